/* SPDX-License-Identifier: MIT */
/* Numbers from text: see scan.h. */
#include "text/scan.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/value.h"

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

void scan_trim(const uint8_t **p, size_t *n)
{
    while (*n && is_space((*p)[*n - 1]))
        --*n;
    for (; *n && is_space(**p); --*n)
        ++*p;
}

/* Bytes of the sign at p (0 or 1); *minus is set if it is "-". */
static size_t scan_sign(const uint8_t *p, size_t n, bool *minus)
{
    *minus = n && p[0] == '-';
    return n && (p[0] == '-' || p[0] == '+');
}

static size_t count_digits(const uint8_t *p, size_t n)
{
    size_t i = 0;
    while (i < n && is_digit(p[i]))
        i++;
    return i;
}

int scan_integer(const uint8_t *p, size_t n, struct integer *ret)
{
    struct integer v = {0};
    size_t i = scan_sign(p, n, &v.minus);
    if (i == n || count_digits(p + i, n - i) != n - i)
        return -EINVAL;
    for (; i < n; i++)
        if (__builtin_mul_overflow(v.magnitude, 10u, &v.magnitude) ||
            __builtin_add_overflow(v.magnitude, (unsigned)(p[i] - '0'), &v.magnitude))
            return -ERANGE;
    *ret = v;
    return 0;
}

bool integer_fits(uint32_t type, const struct integer *v)
{
    unsigned bits = gguf_types[type].width * 8u;
    if (gguf_types[type].kind == GGUF_KIND_UINT)
        return (!v->minus || v->magnitude == 0) && v->magnitude <= UINT64_MAX >> (64 - bits);
    uint64_t limit = (uint64_t)1 << (bits - 1);
    return v->minus ? v->magnitude <= limit : v->magnitude < limit;
}

static int integer_bits(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits)
{
    struct integer v;
    int r = scan_integer(p, n, &v);
    if (r < 0)
        return r;
    if (!integer_fits(type, &v))
        return -ERANGE;
    *bits = v.minus ? 0 - v.magnitude : v.magnitude;
    return 0;
}

/* A float in decimal: digits before and after the point, and a power of ten. */
struct parts {
    bool minus;
    const uint8_t *whole, *frac;
    size_t n_whole, n_frac;
    int64_t exp;
};

/* Larger exponents make no difference: no text has so many digits. */
#define EXP_LIMIT ((int64_t)1 << 40)

/* "e-12" at p, to the end of the text. */
static bool scan_exponent(const uint8_t *p, size_t n, int64_t *ret)
{
    bool minus;
    size_t i = 1 + scan_sign(p + 1, n - 1, &minus);
    int64_t v = 0;
    if (i == n || count_digits(p + i, n - i) != n - i)
        return false;
    for (; i < n; i++)
        v = v < EXP_LIMIT ? v * 10 + (p[i] - '0') : v;
    *ret = minus ? -v : v;
    return true;
}

static bool split_decimal(const uint8_t *p, size_t n, struct parts *t)
{
    *t = (struct parts){0};
    size_t i = scan_sign(p, n, &t->minus);
    t->whole = p + i;
    t->n_whole = count_digits(p + i, n - i);
    i += t->n_whole;
    if (i < n && p[i] == '.') {
        t->frac = p + ++i;
        t->n_frac = count_digits(p + i, n - i);
        i += t->n_frac;
    }
    if (t->n_whole + t->n_frac == 0)
        return false;
    return i == n || ((p[i] == 'e' || p[i] == 'E') && scan_exponent(p + i, n - i, &t->exp));
}

/* True if the text is the first n letters of word, in any case. */
static bool begins(const char *word, const uint8_t *p, size_t n)
{
    if (n > strlen(word))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((p[i] | 0x20) != word[i])
            return false;
    return true;
}

static bool is_word(const char *word, const uint8_t *p, size_t n)
{
    return n == strlen(word) && begins(word, p, n);
}

/* nan, inf, infinity with an optional sign. */
static bool scan_special(const uint8_t *p, size_t n, double *ret)
{
    bool minus;
    size_t sign = scan_sign(p, n, &minus);
    p += sign;
    n -= sign;
    if (is_word("nan", p, n))
        *ret = (double)NAN;
    else if (is_word("inf", p, n) || is_word("infinity", p, n))
        *ret = (double)INFINITY;
    else
        return false;
    *ret = copysign(*ret, minus ? -1.0 : 1.0);
    return true;
}

bool scan_is_float(const uint8_t *p, size_t n)
{
    struct parts t;
    double d;
    return split_decimal(p, n, &t) || scan_special(p, n, &d);
}

bool scan_begins_word(const uint8_t *p, size_t n)
{
    bool minus;
    size_t sign = scan_sign(p, n, &minus);
    return begins("nan", p + sign, n - sign) || begins("infinity", p + sign, n - sign);
}

/* The same number without a point, which depends on the locale: 1.25e3 becomes 125e1. */
static void join(const struct parts *t, char *s)
{
    if (t->minus)
        *s++ = '-';
    memcpy(s, t->whole, t->n_whole);
    s += t->n_whole;
    if (t->n_frac)
        memcpy(s, t->frac, t->n_frac);
    s += t->n_frac;
    (void)sprintf(s, "e%lld", (long long)(t->exp - (int64_t)t->n_frac));
}

static double to_float(uint32_t type, const char *s)
{
    return type == GGUF_F32 ? (double)strtof(s, NULL) : strtod(s, NULL);
}

static int decimal_value(uint32_t type, const struct parts *t, double *ret)
{
    enum { EXTRA = 24 }; /* sign, e, 14 digits with their sign, NUL */
    char small[128], *s = small;
    size_t need = t->n_whole + t->n_frac + EXTRA;
    if (need > sizeof(small) && !(s = malloc(need)))
        return -ENOMEM;
    join(t, s);
    *ret = to_float(type, s);
    if (s != small)
        free(s);
    return isinf(*ret) ? -ERANGE : 0;
}

/* The bits of v in the type, whose range v is known to be in. */
static uint64_t float_bits(uint32_t type, double v)
{
    uint64_t bits;
    /* A conversion drops the sign of a NaN on RISC-V. */
    float f = copysignf((float)v, signbit(v) ? -1.0F : 1.0F);
    uint32_t low;
    memcpy(&low, &f, sizeof(low));
    memcpy(&bits, &v, sizeof(bits));
    return type == GGUF_F32 ? low : bits;
}

static int float_value(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits)
{
    struct parts t;
    double v;
    if (!scan_special(p, n, &v)) {
        int r = split_decimal(p, n, &t) ? decimal_value(type, &t, &v) : -EINVAL;
        if (r < 0)
            return r;
    }
    *bits = float_bits(type, v);
    return 0;
}

static int bool_value(const uint8_t *p, size_t n, uint64_t *bits)
{
    bool yes = n == 4 && memcmp(p, "true", 4) == 0;
    if (!yes && !(n == 5 && memcmp(p, "false", 5) == 0))
        return -EINVAL;
    *bits = yes;
    return 0;
}

int scan_scalar(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits)
{
    switch (gguf_types[type].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return integer_bits(type, p, n, bits);
    case GGUF_KIND_FLOAT:
        return float_value(type, p, n, bits);
    default:
        return bool_value(p, n, bits);
    }
}
