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
    MAX_DIGITS = 17, /* enough for any f64; 9 for any f32 */
    MIN_PLAIN_EXP = -4,
    MAX_PLAIN_EXP = 15,
};

/* The number 0.digit[0] digit[1] ... times 10^(exp + 1): exp is the power of ten of the first
 * digit. */
struct decimal {
    char digit[MAX_DIGITS + 1]; /* '0' to '9' */
    int n;
    int exp;
};

const struct float_names float_names_text = {"nan", "inf", "-inf"};

/* Set *d to the p-digit decimal nearest to x. The point is skipped, because it depends on the
 * locale. */
static void print_digits(double x, int p, struct decimal *d)
{
    char s[64];
    (void)snprintf(s, sizeof(s), "%.*e", p - 1, x);
    d->n = 0;
    const char *at = s;
    for (; *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            d->digit[d->n++] = *at;
    d->exp = atoi(at + 1);
}

/* True if the decimal parses back to x. A text without a point means the same in every locale. */
static bool reads_back(const struct decimal *d, double x, bool single)
{
    char s[MAX_DIGITS + 16];
    (void)snprintf(s, sizeof(s), "%.*se%d", d->n, d->digit, d->exp - d->n + 1);
    return single ? (double)strtof(s, NULL) == x : strtod(s, NULL) == x;
}

/* Set *d to the next larger decimal with the same number of digits. The result may end in zeros. */
static void increment(struct decimal *d)
{
    int i = d->n - 1;
    for (; i >= 0 && d->digit[i] == '9'; i--)
        d->digit[i] = '0';
    if (i >= 0) {
        d->digit[i]++;
        return;
    }
    d->digit[0] = '1';
    d->exp++;
}

/*
 * Find the shortest decimal. A decimal of up to 6 digits (f64: 15) survives being read as a normal
 * float and printed with the same number of digits. So if a decimal of at most 6 digits parses to
 * x, printing x with 6 digits and dropping trailing zeros finds that decimal. For more digits, and
 * for subnormals, each precision is tried: if any p-digit decimal is in the interval, then so is
 * the p-digit decimal nearest to x. Powers of two are an exception: their interval reaches half as
 * far down as up, so the next decimal up may be in the interval instead.
 */
static void tried_digits(double x, bool single, struct decimal *d)
{
    int e2, last = single ? 9 : MAX_DIGITS, safe = single ? 6 : 15;
    bool pow2 = frexp(x, &e2) == 0.5;
    bool normal = e2 > (single ? -125 : -1021);
    for (int p = normal ? safe : 1; p <= last; p++) {
        print_digits(x, p, d);
        if (reads_back(d, x, single))
            break;
        if (!pow2)
            continue;
        increment(d);
        if (reads_back(d, x, single))
            break;
    }
    while (d->n > 1 && d->digit[d->n - 1] == '0')
        d->n--;
}

/* Lay a decimal out: 0.000ddd, ddd000, ddd.ddd or d.ddde+XX. */
static void add_decimal(struct buf *out, bool minus, const struct decimal *d)
{
    const int whole = d->exp + 1;
    buf_str(out, minus ? "-" : "");
    if (d->exp < MIN_PLAIN_EXP || d->exp > MAX_PLAIN_EXP)
        buf_printf(out, "%c%s%.*se%+03d", d->digit[0], d->n > 1 ? "." : "", d->n - 1, d->digit + 1,
                   d->exp);
    else if (whole <= 0)
        buf_printf(out, "0.%.*s%.*s", -whole, "000", d->n, d->digit);
    else if (d->n <= whole)
        buf_printf(out, "%.*s%.*s", d->n, d->digit, whole - d->n, "000000000000000");
    else
        buf_printf(out, "%.*s.%.*s", whole, d->digit, d->n - whole, d->digit + whole);
}

static void add_float(struct buf *out, double v, bool single, const struct float_names *names)
{
    const double x = fabs(v);
    struct decimal d;
    if (!isfinite(v)) {
        buf_str(out, isnan(v) ? names->nan : signbit(v) ? names->minus_inf : names->inf);
    } else if (x < (single ? 0x1p24 : 0x1p53) && x == floor(x)) {
        buf_printf(out, "%.0f", v); /* neighbours are at most 1 away: every digit is needed */
    } else {
        tried_digits(x, single, &d);
        add_decimal(out, signbit(v), &d);
    }
}

void text_f32(struct buf *out, float v, const struct float_names *names)
{
    add_float(out, (double)v, true, names);
}

void text_f64(struct buf *out, double v, const struct float_names *names)
{
    add_float(out, v, false, names);
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
        if (v->type == GGUF_F32)
            text_f32(out, (float)gguf_float(v), names);
        else
            text_f64(out, gguf_float(v), names);
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
