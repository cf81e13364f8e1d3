/* SPDX-License-Identifier: MIT */
/* Error lines and names made safe to print: see err.h. */
#include "base/err.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/bytes.h"

int err_set(struct err *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;
    e->code = code;
    e->where = 0;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    return code;
}

int err_sys(struct err *e, int r, const char *fmt, ...)
{
    char what[sizeof(e->msg)];
    if (r >= 0 || !e)
        return r;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return err_set(e, r, "%s: %s", what, strerror(-r));
}

int err_prefix(struct err *e, int code, const char *fmt, ...)
{
    char rest[sizeof(e->msg)];
    if (!e)
        return code;
    e->code = code;
    memcpy(rest, e->msg, sizeof(rest));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    e->where += e->where && n >= 0 ? (unsigned)n + 2 : 0;
    if (n >= 0 && (size_t)n < sizeof(e->msg))
        (void)snprintf(e->msg + n, sizeof(e->msg) - (size_t)n, ": %s", rest);
    return code;
}

/* Return the length in bytes of the printable sequence at p, or 0 if the byte there must be
 * escaped. */
static size_t printable(const uint8_t *p, size_t n)
{
    return n > 0 && (p[0] < 0x20 || utf8_hidden(p, n)) ? 0 : utf8_len(p, n);
}

const char *show_in(char *dst, size_t room, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t at = 0;
    for (size_t i = 0; i < n;) {
        size_t len = printable(p + i, n - i);
        if (at + (len ? len : 4) + sizeof("...") > room) {
            memcpy(dst + at, "...", 3);
            at += 3;
            break;
        }
        if (len)
            memcpy(dst + at, p + i, len);
        else
            (void)snprintf(dst + at, 5, "\\x%02x", p[i]);
        at += len ? len : 4;
        i += len ? len : 1;
    }
    dst[at] = '\0';
    return dst;
}

const char *show(char dst[SHOW_MAX], const void *bytes, size_t n)
{
    return show_in(dst, SHOW_MAX, bytes, n);
}

void show_all(struct buf *out, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = printable(p + i, n - i);
        if (len)
            buf_add(out, p + i, len);
        else
            buf_printf(out, "\\x%02x", p[i]);
    }
}

void logger_log(const struct logger *l, int priority, const char *fmt, ...)
{
    char line[1024];
    const char *label = l->label ? l->label : "";
    va_list ap;
    if (!l->line)
        return;
    int n = snprintf(line, sizeof(line) / 2, "%s%s", label, l->label ? ": " : "");
    size_t at = n < 0 ? 0 : (size_t)n < sizeof(line) / 2 ? (size_t)n : sizeof(line) / 2 - 1;
    va_start(ap, fmt);
    (void)vsnprintf(line + at, sizeof(line) - at, fmt, ap);
    va_end(ap);
    l->line(priority, line);
}

/* ---- the nearest word ---- */

/* Longer words are not compared, because no option is that long. */
#define WORD_MAX 48

struct nearest nearest_to(const char *word, size_t len)
{
    return (struct nearest){.word = word, .len = len};
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Return the smallest number of letters that must be changed, removed, added, or swapped with a
 * neighbour. */
static uint64_t letters_apart(const char *a, size_t n, const char *b, size_t m)
{
    uint64_t row[3][WORD_MAX + 1]; /* rows for this letter of a and the previous two */
    for (size_t j = 0; j <= m; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        uint64_t *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            uint64_t d = last[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            d = min_u64(d, min_u64(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                d = min_u64(d, before[j - 2] + 1);
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

void nearest_offer(struct nearest *n, const char *candidate, size_t len, size_t which)
{
    if (n->len > WORD_MAX || len > WORD_MAX || n->len < 2) /* one letter is close to any other */
        return;
    const uint64_t d = letters_apart(n->word, n->len, candidate, len);
    const uint64_t most = n->len < 3 ? 1 : n->len / 3; /* letters may be wrong */
    if (d > most || (n->found && d >= n->distance))
        return;
    n->found = true;
    n->which = which;
    n->distance = d;
}
