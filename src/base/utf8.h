/* SPDX-License-Identifier: MIT */
/* UTF-8 as RFC 3629 defines it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

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
    /* The second byte excludes overlong forms (e0, f0), surrogates (ed) and > U+10FFFF (f4). */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return len;
}

/* Return the number of terminal columns of a text: continuation bytes do not count. */
static inline size_t utf8_columns(const uint8_t *p, size_t n)
{
    size_t ret = 0;
    for (size_t i = 0; i < n; i++)
        ret += (p[i] & 0xc0) != 0x80;
    return ret;
}

/* Return how many of the n bytes at p, from the first on, are valid UTF-8. */
static inline size_t utf8_run(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    size_t i = 0, len;
    while (i < n && (len = utf8_len(p + i, n - i)) > 0)
        i += len;
    return i;
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

#endif
