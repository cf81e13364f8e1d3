/* SPDX-License-Identifier: MIT */
/* text/number: numbers as decimal text. */
#include "cu_main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/number.h"

static float f32_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static double f64_of(uint64_t bits)
{
    double d;
    memcpy(&d, &bits, sizeof(d));
    return d;
}

static uint64_t bits_of(double d)
{
    uint64_t bits;
    memcpy(&bits, &d, sizeof(bits));
    return bits;
}

/* An xorshift64 generator, which returns the same numbers in every run. */
static uint64_t random64(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static const char *f32_text(char s[64], float f)
{
    struct buf b = BUF_INIT;
    text_f32(&b, f, &float_names_text);
    (void)snprintf(s, 64, "%.*s", (int)b.len, (const char *)b.data);
    buf_free(&b);
    return s;
}

static const char *f64_text(char s[64], double d)
{
    struct buf b = BUF_INIT;
    text_f64(&b, d, &float_names_text);
    (void)snprintf(s, 64, "%.*s", (int)b.len, (const char *)b.data);
    buf_free(&b);
    return s;
}

static void test_integers(void)
{
    struct buf b = BUF_INIT;
    text_u64(&b, 0);
    text_u64(&b, UINT64_MAX);
    buf_char(&b, ' ');
    text_i64(&b, INT64_MIN);
    text_i64(&b, INT64_MAX);
    text_i64(&b, -1);
    const char *want = "018446744073709551615 -92233720368547758089223372036854775807-1";
    CU_ASSERT_EQUAL_FATAL(b.len, strlen(want));
    CU_ASSERT_EQUAL(memcmp(b.data, want, b.len), 0);
    buf_free(&b);
}

static void test_f32_figures(void)
{
    // clang-format off
    static const struct {
        uint32_t bits;
        const char *text;
    } row[] = {
        {0x00000000, "0"}, {0x80000000, "-0"}, {0x7f800000, "inf"}, {0xff800000, "-inf"},
        {0x7fc00000, "nan"}, {0xffc00001, "nan"}, {0x7f800001, "nan"},
        {0x3f800000, "1"}, {0xbf800000, "-1"}, {0x3dcccccd, "0.1"}, {0x3eaaaaab, "0.33333334"},
        {0x461c4000, "10000"}, {0x3727c5ac, "1e-05"}, {0x38d1b717, "0.0001"},
        {0x358637bd, "1e-06"}, {0x7f7fffff, "3.4028235e+38"}, {0x00000001, "1e-45"},
        {0x80000001, "-1e-45"}, {0x007fffff, "1.1754942e-38"}, {0x00800000, "1.1754944e-38"},
        {0x4b7fffff, "16777215"}, {0x4b800000, "16777216"}, {0x4e800000, "1073741800"},
        {0x5a0e1bca, "1e+16"}, {0x5a0e1bc9, "9999999000000000"}, {0x4b189680, "10000000"},
        {0x3a83126f, "0.001"}, {0x40490fdb, "3.1415927"}, {0xc2f6e979, "-123.456"},
        {0x5f000000, "9.223372e+18"}, {0x00000002, "3e-45"}, {0x00000003, "4e-45"},
    };
    // clang-format on
    char s[64];
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        CU_ASSERT_STRING_EQUAL(f32_text(s, f32_of(row[i].bits)), row[i].text);
}

static void test_f64_figures(void)
{
    // clang-format off
    static const struct {
        uint64_t bits;
        const char *text;
    } row[] = {
        {0x0000000000000000, "0"}, {0x8000000000000000, "-0"}, {0x7ff0000000000000, "inf"},
        {0xfff0000000000000, "-inf"}, {0x7ff8000000000000, "nan"}, {0xfff0000000000001, "nan"},
        {0x3fb999999999999a, "0.1"}, {0x3fd3333333333334, "0.30000000000000004"},
        {0x3ee4f8b588e368f1, "1e-05"}, {0x0000000000000001, "5e-324"},
        {0x7fefffffffffffff, "1.7976931348623157e+308"}, {0x0010000000000000, "2.2250738585072014e-308"},
        {0x4341c37937e08000, "1e+16"}, {0x4341c37937e07fff, "9999999999999998"},
        {0x4340000000000000, "9007199254740992"}, {0x400921fb54442d18, "3.141592653589793"},
        {0x44b52d02c7e14af6, "1e+23"}, {0x3d12000000000000, "1.5987211554602254e-14"},
    };
    // clang-format on
    char s[64];
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        CU_ASSERT_STRING_EQUAL(f64_text(s, f64_of(row[i].bits)), row[i].text);
}

struct precision {
    int digits; /* enough for any value */
    double (*read)(const char *s);
};

static double read_f32(const char *s)
{
    return (double)strtof(s, NULL);
}

static double read_f64(const char *s)
{
    return strtod(s, NULL);
}

static const struct precision single = {9, read_f32}, twofold = {17, read_f64};

/* Add `step` to the last digit of the decimal s = d.ddde+XX. Returns false if that needs a
 * carry. */
static bool neighbour(char *s, int step)
{
    char *last = strchr(s, 'e') - 1;
    if (*last == (step > 0 ? '9' : '0'))
        return false;
    *last = (char)(*last + step);
    return true;
}

/* By trial and error, find the shortest decimals that read back as x > 0, and of those the one
 * nearest to x. The text has the format of "%e". */
static void brute_force(double x, const struct precision *to, char s[64])
{
    for (int p = 1; p <= to->digits; p++)
        for (int step = 0; step < 3; step++) {
            (void)snprintf(s, 64, "%.*e", p - 1, x);
            if (step && !neighbour(s, step == 1 ? 1 : -1))
                continue;
            if (to->read(s) == x)
                return;
        }
    CU_FAIL("no decimal reads back");
}

static int significant(const char *s)
{
    int n = 0, zeros = 0;
    for (; *s && *s != 'e'; s++) {
        if (*s < '0' || *s > '9' || (n == 0 && *s == '0'))
            continue;
        n++;
        zeros = *s == '0' ? zeros + 1 : 0;
    }
    return n - zeros;
}

/* Returns true if both decimals have the same number of digits and read as the same f64. */
static bool agrees(const char *text, double x, const struct precision *to)
{
    char want[64];
    brute_force(x, to, want);
    return significant(text) == significant(want) && strtod(text, NULL) == strtod(want, NULL);
}

static bool f32_agrees(uint32_t bits)
{
    char s[64];
    float f = f32_of(bits);
    return agrees(f32_text(s, f), (double)f, &single);
}

static bool f64_agrees(uint64_t bits)
{
    char s[64];
    double d = f64_of(bits);
    return agrees(f64_text(s, d), d, &twofold);
}

static void test_random_shortest(void)
{
    uint64_t state = 0x9e3779b97f4a7c15;
    int wrong = 0;
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)(random64(&state) >> 33);
        if (isfinite(f32_of(bits)) && bits)
            wrong += !f32_agrees(bits);
    }
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = random64(&state) >> (i % 2 ? 1 : 12); /* every other number is subnormal */
        if (isfinite(f64_of(bits)) && bits)
            wrong += !f64_agrees(bits);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_random_round_trip(void)
{
    uint64_t state = 88172645463325252;
    char s[64];
    int wrong = 0;
    for (int i = 0; i < 200000; i++) {
        float f = f32_of((uint32_t)random64(&state));
        float back = strtof(f32_text(s, f), NULL);
        wrong += isnan(f) ? !isnan(back) : memcmp(&back, &f, sizeof(f)) != 0;
    }
    for (int i = 0; i < 20000; i++) {
        double d = f64_of(random64(&state));
        wrong += isnan(d) ? !isnan(strtod(f64_text(s, d), NULL))
                          : bits_of(strtod(f64_text(s, d), NULL)) != bits_of(d);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static CU_TestInfo tests[] = {
    {"integers are printed with all their digits", test_integers},
    {"f32 values print as known figures", test_f32_figures},
    {"f64 values print as known figures", test_f64_figures},
    {"random floats print as the nearest of the shortest texts", test_random_shortest},
    {"random floats read back as the same bits", test_random_round_trip},
    CU_TEST_INFO_NULL,
};

CU_MAIN("number", tests)
