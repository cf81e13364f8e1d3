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

#include <stddef.h>

struct err {
    int code; /* 0 or -errno */
    char msg[512];
    /* Length of the place at the start of msg, which ": " and the reason follow; 0 if msg has no
     * place. */
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
 * "...". Escaping an escaped text again changes nothing. Returns dst, NUL-terminated.
 */
const char *show_in(char *dst, size_t room, const void *bytes, size_t n);

/* Room for a name that is part of a line (longer ones end in "..."). */
#define SHOW_MAX 160
const char *show(char dst[SHOW_MAX], const void *bytes, size_t n);
/* Append the same to a buf, whatever its length. */
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

#endif
