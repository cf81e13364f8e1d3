/* SPDX-License-Identifier: MIT */
/*
 * Numbers as decimal text: see number.h.
 *
 * Floats. Every decimal strictly between the midpoints to the two neighbours parses back to the
 * value; a midpoint itself does or does not, by the parity of the last bit. The task is to find the
 * decimal with the fewest digits in that interval. The first of three ways that applies is used:
 *
 *   whole_digits  integers below 2^24 (2^53): neighbours are at most 1 away, so every digit of the
 *                 integer itself is needed.
 *   fast_digits   f32 only. Value and midpoints are scaled by a power of ten to eight or nine digits
 *                 in double arithmetic, whose error is bounded. If a decision depends on less than
 *                 that bound, the function declines.
 *   slow_digits   exact: libc prints the value with growing precision and reads it back.
 */
#include "text/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DIGITS = 17, /* enough for any f64; 9 for any f32 */
    FLOAT_MAX = 32,  /* longest text: sign, 17 digits, point, e-308; or 0.000 and 17 digits */
    MIN_PLAIN_EXP = -4,
    MAX_PLAIN_EXP = 15,
};

/* 0.digit[0] digit[1] ... times 10^(exp + 1): exp is the power of ten of the first digit. */
struct decimal {
    char digit[MAX_DIGITS + 3]; /* '0' to '9'; the last one is not '0'. Room for a carry and NUL */
    int n;
    int exp;
};

const struct float_names float_names_text = {"nan", "inf", "-inf"};

/* Decimal digits of v, right-aligned in the 20 bytes before `end`; returns the first. */
static char *digits_before(char *end, uint64_t v)
{
    do {
        *--end = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    return end;
}

void text_u64(struct buf *out, uint64_t v)
{
    char s[20], *end = s + sizeof(s), *at = digits_before(end, v);
    buf_add(out, at, (size_t)(end - at));
}

void text_i64(struct buf *out, int64_t v)
{
    char s[21], *end = s + sizeof(s),
                *at = digits_before(end, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
    if (v < 0)
        *--at = '-';
    buf_add(out, at, (size_t)(end - at));
}

/* The decimal v * 10^exp10, v not 0. */
static void set_decimal(struct decimal *d, uint64_t v, int exp10)
{
    char s[20], *end = s + sizeof(s), *at = digits_before(end, v);
    int n = (int)(end - at);
    d->exp = n - 1 + exp10;
    while (n > 1 && at[n - 1] == '0')
        n--;
    d->n = n;
    memcpy(d->digit, at, (size_t)n);
}

static bool whole_digits(double x, double limit, struct decimal *d)
{
    if (x >= limit || x != (double)(uint64_t)x)
        return false;
    set_decimal(d, (uint64_t)x, 0);
    return true;
}

/* The powers of ten that a double holds exactly. */
static const double pow10_exact[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { POW10_LAST = 22 };

/* x * 10^k for |k| <= 66: at most three roundings, each off by at most 2^-53 of the number. */
static double scale10(double x, int k)
{
    for (; k > POW10_LAST; k -= POW10_LAST)
        x *= pow10_exact[POW10_LAST];
    for (; k < -POW10_LAST; k += POW10_LAST)
        x /= pow10_exact[POW10_LAST];
    return k < 0 ? x / pow10_exact[-k] : x * pow10_exact[k];
}

/* The k for which x * 10^k is between 5 * 10^7 and 10^9; 0.30103 is log10(2). */
static int scale_of(double x)
{
    int e2;
    (void)frexp(x, &e2);
    return 8 - (int)floor(e2 * 0.30103);
}

/* Three roundings of a number below 10^9: at most 10^9 * 3 * 2^-53, or 3.4e-7. */
#define SCALE_ERROR 1e-6

static bool near(double a, double b)
{
    return fabs(a - b) < SCALE_ERROR;
}

struct interval {
    double low, mid, high; /* scaled: midpoint below, the value, midpoint above */
};

/* Midpoints between floats are exact in double. Above the largest float the spacing goes on. */
static struct interval scaled_interval(double x, int k)
{
    float f = (float)x;
    double below = (double)nextafterf(f, 0.0f), above = (double)nextafterf(f, INFINITY);
    if (isinf(above))
        above = x + (x - below);
    return (struct interval){scale10((below + x) / 2, k), scale10(x, k),
                             scale10((x + above) / 2, k)};
}

/* x: an f32, positive, finite. False where rounding errors could decide. */
static bool fast_digits(double x, struct decimal *d)
{
    int k = scale_of(x);
    struct interval t = scaled_interval(x, k);
    if (near(t.low, rint(t.low)) || near(t.high, rint(t.high)))
        return false;
    /* Integers in the interval: low to high; then multiples of 10, 100, ... while there are any. */
    uint64_t low = (uint64_t)t.low + 1, high = (uint64_t)t.high;
    int j = 0;
    for (; high / 10 >= (low + 9) / 10; j++) {
        high /= 10;
        low = (low + 9) / 10;
    }
    double unit = t.mid / pow10_exact[j];
    if (low > high || near(unit - floor(unit), 0.5))
        return false;
    uint64_t best = (uint64_t)(unit + 0.5);
    best = best < low ? low : best > high ? high : best;
    set_decimal(d, best, j - k);
    return true;
}

/* The decimal of p digits nearest to x. The point, which depends on the locale, is skipped. */
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

/* Without a point the text means the same in every locale. */
static bool reads_back(const struct decimal *d, double x, bool single)
{
    char s[MAX_DIGITS + 16];
    (void)snprintf(s, sizeof(s), "%.*se%d", d->n, d->digit, d->exp - d->n + 1);
    return single ? (double)strtof(s, NULL) == x : strtod(s, NULL) == x;
}

/* The next decimal of as many digits, or of fewer that end in 0. */
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
 * The shortest decimal. One of up to 6 (15) digits survives being read as a normal float and
 * printed with as many digits. So if a decimal of at most 6 digits gives x, printing x with 6
 * digits finds it (without the zeros at its end). Beyond that, and for subnormals, each precision
 * is tried. If any decimal of p digits is in the interval, the nearest one is. Powers of two are an
 * exception: their interval reaches half as far down as up, so the next decimal up may be in it
 * instead.
 */
static void slow_digits(double x, bool single, struct decimal *d)
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

static char *put(char *at, const char *s, int n)
{
    memcpy(at, s, (size_t)n);
    return at + n;
}

/* 0.000ddd */
static char *layout_small(char *at, const struct decimal *d)
{
    at = put(at, "0.000", 1 - d->exp);
    return put(at, d->digit, d->n);
}

/* ddd000 or ddd.ddd */
static char *layout_plain(char *at, const struct decimal *d)
{
    int whole = d->exp + 1;
    if (d->n <= whole) {
        at = put(at, d->digit, d->n);
        return put(at, "000000000000000", whole - d->n);
    }
    at = put(at, d->digit, whole);
    *at++ = '.';
    return put(at, d->digit + whole, d->n - whole);
}

/* d.ddde+XX: a sign and at least two digits */
static char *layout_exp(char *at, const struct decimal *d)
{
    *at++ = d->digit[0];
    if (d->n > 1) {
        *at++ = '.';
        at = put(at, d->digit + 1, d->n - 1);
    }
    *at++ = 'e';
    *at++ = d->exp < 0 ? '-' : '+';
    int e = abs(d->exp);
    if (e >= 100)
        *at++ = (char)('0' + e / 100);
    *at++ = (char)('0' + e / 10 % 10);
    *at++ = (char)('0' + e % 10);
    return at;
}

static char *layout(char *at, const struct decimal *d)
{
    if (d->exp < MIN_PLAIN_EXP || d->exp > MAX_PLAIN_EXP)
        return layout_exp(at, d);
    return d->exp < 0 ? layout_small(at, d) : layout_plain(at, d);
}

static bool special(struct buf *out, double v, const struct float_names *names)
{
    if (isfinite(v) && v != 0)
        return false;
    if (v == 0)
        buf_str(out, signbit(v) ? "-0" : "0");
    else
        buf_str(out, isnan(v) ? names->nan : signbit(v) ? names->minus_inf : names->inf);
    return true;
}

static void add_decimal(struct buf *out, bool minus, const struct decimal *d)
{
    char s[FLOAT_MAX], *at = s;
    if (minus)
        *at++ = '-';
    at = layout(at, d);
    buf_add(out, s, (size_t)(at - s));
}

void text_f32(struct buf *out, float v, const struct float_names *names)
{
    double x = fabs((double)v);
    struct decimal d;
    if (special(out, (double)v, names))
        return;
    if (!whole_digits(x, 0x1p24, &d) && !fast_digits(x, &d))
        slow_digits(x, true, &d);
    add_decimal(out, signbit(v), &d);
}

void text_f64(struct buf *out, double v, const struct float_names *names)
{
    double x = fabs(v);
    struct decimal d;
    if (special(out, v, names))
        return;
    if (!whole_digits(x, 0x1p53, &d))
        slow_digits(x, false, &d);
    add_decimal(out, signbit(v), &d);
}

void text_scalar(struct buf *out, const struct gguf_value *v, const struct float_names *names)
{
    switch (gguf_types[v->type].kind) {
    case GGUF_KIND_UINT:
        text_u64(out, gguf_uint(v));
        break;
    case GGUF_KIND_INT:
        text_i64(out, gguf_int(v));
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
