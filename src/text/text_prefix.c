/* SPDX-License-Identifier: MIT */
/* Refusing a text while it is still being written: see text_prefix.h. */
#include "text/text_prefix.h"

#include <errno.h>
#include <string.h>

#include "gguf/gguf.h"
#include "text/scan.h"

enum {
    JUDGED = 100,  /* a longer beginning of a number is not checked */
    LOOKED = 4096, /* bytes of a text that are looked at: it is done again with each write */
};

/* More digits only make an integer larger; a space ends it. */
static int integer_prefix(uint32_t type, const uint8_t *p, size_t n)
{
    uint64_t bits;
    if (n == 1 && (*p == '-' || *p == '+'))
        return 0;
    return scan_scalar(type, p, n, &bits);
}

/*
 * May become valid: a float, a float once a digit follows (5e, -), or the beginning of a word
 * (-in). Unless a space has ended the number, more digits can still change its size.
 */
static int float_prefix(uint32_t type, const uint8_t *p, size_t n, bool ended)
{
    uint8_t digit_follows[JUDGED + 1];
    uint64_t bits;
    if (ended)
        return scan_scalar(type, p, n, &bits);
    memcpy(digit_follows, p, n);
    digit_follows[n] = '0';
    bool ok = scan_is_float(p, n) || scan_is_float(digit_follows, n + 1) || scan_begins_word(p, n);
    return ok ? 0 : -EINVAL;
}

static int bool_prefix(const uint8_t *p, size_t n, bool ended)
{
    const char *word = *p == 't' ? "true" : "false";
    if (n > strlen(word) || memcmp(p, word, n) != 0 || (ended && n < strlen(word)))
        return -EINVAL;
    return 0;
}

static int scalar_prefix(uint32_t type, const uint8_t *p, size_t n)
{
    if (n > LOOKED)
        return 0;
    bool ended = n && is_space(p[n - 1]);
    scan_trim(&p, &n);
    if (n == 0 || n > JUDGED)
        return 0;
    switch (gguf_types[type].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return ended ? scan_scalar(type, p, n, &(uint64_t){0}) : integer_prefix(type, p, n);
    case GGUF_KIND_FLOAT:
        return float_prefix(type, p, n, ended);
    default:
        return bool_prefix(p, n, ended);
    }
}

/* The first value, as far as it is written: a line, or the text behind the bracket. */
static int array_prefix(uint32_t elem, const uint8_t *p, size_t n)
{
    for (n = n < LOOKED ? n : LOOKED; n && is_space(*p); n--)
        p++;
    if (n == 0 || (elem != GGUF_ARRAY && *p == '['))
        return 0;
    if (elem == GGUF_ARRAY)
        return *p == '[' ? 0 : -EINVAL;
    if (elem == GGUF_STRING)
        return *p == '"' ? 0 : -EINVAL;
    const uint8_t *newline = memchr(p, '\n', n);
    return scalar_prefix(elem, p, newline ? (size_t)(newline - p) + 1 : n);
}

int text_prefix_check(uint32_t type, uint32_t elem, const uint8_t *text, size_t n)
{
    if (n > GGUF_MAX_STRING + 1)
        return -EFBIG;
    if (type == GGUF_STRING)
        return 0;
    return type == GGUF_ARRAY ? array_prefix(elem, text, n) : scalar_prefix(type, text, n);
}
