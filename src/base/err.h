/* SPDX-License-Identifier: MIT */
/*
 * Errors below the front end: a function returns 0 or -errno, and on cold paths (open, parse, edit)
 * also fills in one line of context, which says what failed, where in the file, and why. The line
 * has no final newline or full stop. Names from a file first go through show(), so that no control
 * byte reaches a terminal.
 *
 *   -EBADMSG    the file is not a GGUF file that this program reads (malformed)
 *   -EFBIG      its header exceeds GGUF_MAX_HEADER (exceeding other limits is -EBADMSG)
 *   -ENODATA    the header is complete, but tensor data is missing (an incomplete download)
 *   -EIO        the medium failed, or the file was truncated while it was read
 *   -ENOMEM     no memory
 * Edits also return -EINVAL, -ERANGE, -EILSEQ, -EFBIG (for text), -EPERM, -EMLINK, -ESTALE,
 * -EOPNOTSUPP and -ENOSPC.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err {
    int code; /* 0 or -errno */
    char msg[512];
    /*
     * Length of the place at the start of msg, before ": " and the reason; 0 if msg has no place.
     */
    unsigned where;
};

/*
 * Fill in e (which may be NULL) and return code, so that `return err_set(...)` fails with context.
 */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Return r. If it is negative, also fill in e with what failed and why: "what: strerror(-r)". */
int err_sys(struct err *e, int r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Put "prefix: " before the line that e (which may be NULL) already holds, and set its code.
 * Returns code. */
int err_prefix(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/*
 * Make n bytes safe to print. Printable ASCII and valid UTF-8 outside the C1 controls are copied;
 * any other byte becomes \xNN. A result that does not fit in `room` bytes (at least 8) ends in
 * "...". Escaping escaped text again changes nothing. Returns dst, NUL-terminated.
 */
const char *show_in(char *dst, size_t room, const void *bytes, size_t n);

/* Room for a name that is part of a line (longer names end in "..."). */
#define SHOW_MAX 160
const char *show(char dst[SHOW_MAX], const void *bytes, size_t n);
/* Append the text that show() makes to a buf, without truncating it. */
struct buf;
void show_all(struct buf *out, const void *bytes, size_t n);

/* The destination of a library's log lines: a function supplied by the caller, which any thread may
 * call. Each line begins with a label that names the model. */
struct logger {
    void (*line)(int priority, const char *line); /* syslog(3)'s levels. NULL: lines are dropped */
    const char *label; /* not owned, may be NULL; "LABEL: " begins each line */
};

void logger_log(const struct logger *l, int priority, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF ---- */

/* Return the length in bytes (1 to 4) of the sequence at the start of the n bytes at p, or 0 if it
 * is not valid UTF-8. */
static inline size_t utf8_len(const uint8_t *p, size_t n)
{
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return 1;
    size_t len = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* The second byte reveals overlong forms (e0, f0), surrogates (ed) and everything above
     * U+10FFFF (f4). */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* Return how many bytes at the start of the n bytes at p are valid UTF-8. */
static inline size_t utf8_run(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t i = 0, len;
    while (i < n && (len = utf8_len(p + i, n - i)) > 0)
        i += len;
    return i;
}

/* Return the number of terminal columns that the text takes. Continuation bytes do not count. */
static inline size_t utf8_columns(const uint8_t *p, size_t n)
{
    size_t ret = 0;
    for (size_t i = 0; i < n; i++)
        ret += (p[i] & 0xc0) != 0x80;
    return ret;
}

/*
 * Return the length of the sequence at p if it must not reach a terminal, otherwise 0. This applies
 * to controls (U+007F to U+009F), line separators, and marks that change the direction of text
 * (U+2028 to U+202E, U+2066 to U+2069).
 */
static inline size_t utf8_hidden(const uint8_t *p, size_t n)
{
    if (n > 0 && p[0] == 0x7f)
        return 1;
    if (n > 1 && p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
        return 2;
    if (n < 3 || p[0] != 0xe2)
        return 0;
    return (p[1] == 0x80 && p[2] >= 0xa8 && p[2] <= 0xae) ||
                   (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)
               ? 3
               : 0;
}

/*
 * ---- the word that a mistyped word probably stands for ----
 *
 * It is the closest candidate, if that is close enough. Case is ignored.
 *
 *     struct nearest n = nearest_to("comit", 5);
 *     for (...) nearest_offer(&n, name[i], strlen(name[i]), i);
 *     if (n.found) ... name[n.which]
 */
struct nearest {
    const char *word;
    size_t len;
    bool found;
    /* If found: the caller's number for the best candidate, or for the first of equally good
     * candidates. */
    size_t which;
    uint64_t distance; /* if found: how many letters are wrong, missing, extra or swapped */
};

struct nearest nearest_to(const char *word, size_t len);
void nearest_offer(struct nearest *n, const char *candidate, size_t len, size_t which);

#endif
