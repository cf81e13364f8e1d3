/* SPDX-License-Identifier: MIT */
/*
 * Numbers as decimal text, and back: see number.h.
 *
 * Floats. Every decimal strictly between the midpoints with the two neighbours parses back to the
 * value; whether a midpoint itself does depends on the parity of the last bit. The task is to find
 * the decimal with the fewest digits in that interval: libc prints the value with increasing
 * precision and reads it back.
 */
#include "text/number.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    DECIMAL_MAX = 32, /* room for 17 digits, enough for any f64 (9 for any f32), and an exponent */
    MIN_PLAIN_EXP = -4,
    MAX_PLAIN_EXP = 15,
};

const struct float_names float_names_text = {"nan", "inf", "-inf"};

/* True if the decimal parses back to x. */
static bool reads_back(const char *s, double x, bool single)
{
    return single ? (double)strtof(s, NULL) == x : strtod(s, NULL) == x;
}

/* Change "1.29e+01" to the next larger decimal with as many digits, "1.30e+01". No power of two lies so
 * close below a power of ten that the first digit would overflow. */
static void increment(char *s)
{
    char *at = strchr(s, 'e') - 1;
    for (; *at == '9' || *at == '.'; at--)
        *at = *at == '9' ? '0' : '.';
    ++*at;
}

/*
 * Find the shortest decimal. A decimal of up to 6 digits (f64: 15) survives being read as a normal
 * float and printed with the same number of digits. So if a decimal of at most 6 digits parses to
 * x, printing x with 6 digits and dropping trailing zeros finds that decimal. For more digits, and
 * for subnormals, each precision is tried: if any p-digit decimal is in the interval, then so is
 * the p-digit decimal nearest to x. Powers of two are an exception: their interval reaches half as
 * far down as up, so the next decimal up may be in the interval instead.
 */
static void shortest(double x, bool single, char s[DECIMAL_MAX])
{
    int e2;
    const bool half = frexp(x, &e2) == 0.5, normal = e2 > (single ? -125 : -1021);
    bool found = false;
    for (int p = normal ? (single ? 6 : 15) : 1; !found; p++) {
        (void)snprintf(s, DECIMAL_MAX, "%.*e", p - 1, x);
        found = reads_back(s, x, single);
        if (found || !half || !normal)
            continue;
        increment(s);
        found = reads_back(s, x, single);
    }
}

/* Lay "1.230e+01" out as in Python. */
static void add_decimal(struct buf *out, bool minus, const char *s)
{
    char digit[DECIMAL_MAX];
    int n = 0;
    for (; *s != 'e'; s++)
        if (*s != '.')
            digit[n++] = *s;
    while (n > 1 && digit[n - 1] == '0')
        n--;
    const int exp = atoi(s + 1), whole = exp + 1;
    buf_str(out, minus ? "-" : "");
    if (exp < MIN_PLAIN_EXP || exp > MAX_PLAIN_EXP)
        buf_printf(out, "%c%s%.*se%+03d", digit[0], n > 1 ? "." : "", n - 1, digit + 1, exp);
    else if (whole <= 0)
        buf_printf(out, "0.%.*s%.*s", -whole, "000", n, digit);
    else if (n <= whole)
        buf_printf(out, "%.*s%.*s", n, digit, whole - n, "000000000000000");
    else
        buf_printf(out, "%.*s.%.*s", whole, digit, n - whole, digit + whole);
}

void text_float(struct buf *out, double v, bool single, const struct float_names *names)
{
    const double x = fabs(v);
    char s[DECIMAL_MAX];
    if (!isfinite(v)) {
        buf_str(out, isnan(v) ? names->nan : signbit(v) ? names->minus_inf : names->inf);
    } else if (x < (single ? 0x1p24 : 0x1p53) && x == floor(x)) {
        buf_printf(out, "%.0f", v); /* neighbours are at most 1 away: every digit is needed */
    } else {
        shortest(x, single, s);
        add_decimal(out, signbit(v), s);
    }
}

void text_scalar(struct buf *out, const struct gguf_value *v, const struct float_names *names)
{
    switch (gguf_types[v->type].kind) {
    case GGUF_KIND_UINT:
        buf_printf(out, "%" PRIu64, gguf_uint(v));
        break;
    case GGUF_KIND_INT:
        buf_printf(out, "%" PRId64, gguf_int(v));
        break;
    case GGUF_KIND_BOOL:
        buf_str(out, gguf_uint(v) ? "true" : "false");
        break;
    default:
        text_float(out, gguf_float(v), v->type == GGUF_F32, names);
    }
}

/* ---- from text ---- */

void scan_trim(const uint8_t **p, size_t *n)
{
    while (*n && is_space((*p)[*n - 1]))
        --*n;
    for (; *n && is_space(**p); --*n)
        ++*p;
}

/* Return the length of the sign at p (0 or 1). *minus becomes true if the sign is "-", else
 * false. */
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

/* Read nan, inf or infinity in any case, with an optional sign. */
static bool scan_special(const uint8_t *p, size_t n, double *ret)
{
    bool minus;
    size_t sign = scan_sign(p, n, &minus);
    const char *word = (const char *)p + sign;
    n -= sign;
    if (n == 3 && strncasecmp(word, "nan", n) == 0)
        *ret = (double)NAN;
    else if ((n == 3 || n == 8) && strncasecmp(word, "infinity", n) == 0)
        *ret = (double)INFINITY;
    else
        return false;
    *ret = copysign(*ret, minus ? -1.0 : 1.0);
    return true;
}

/* Read a decimal. The program never leaves the C locale, so strtod(3) takes a point. */
static int scan_decimal(uint32_t type, const uint8_t *p, size_t n, double *ret)
{
    char small[128], *s = small, *end;
    for (size_t i = 0; i < n; i++) /* no spaces, no hexadecimal */
        if (!is_digit(p[i]) && !memchr("+-.eE", p[i], 5))
            return -EINVAL;
    if (n >= sizeof(small) && !(s = malloc(n + 1)))
        return -ENOMEM;
    *(char *)mempcpy(s, p, n) = '\0';
    *ret = type == GGUF_F32 ? (double)strtof(s, &end) : strtod(s, &end);
    const bool whole = n > 0 && end == s + n;
    if (s != small)
        free(s);
    return !whole ? -EINVAL : isinf(*ret) ? -ERANGE : 0;
}

static int float_value(uint32_t type, const uint8_t *p, size_t n, uint64_t *bits)
{
    double v;
    const int r = scan_special(p, n, &v) ? 0 : scan_decimal(type, p, n, &v);
    if (r < 0)
        return r;
    memcpy(bits, &v, sizeof(*bits));
    if (type == GGUF_F32) {
        /* On RISC-V, a conversion drops the sign of a NaN. */
        float f = copysignf((float)v, signbit(v) ? -1.0F : 1.0F);
        uint32_t low;
        memcpy(&low, &f, sizeof(low));
        *bits = low;
    }
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
