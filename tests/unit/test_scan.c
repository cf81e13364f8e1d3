/* SPDX-License-Identifier: MIT */
/* text/number: numbers and booleans from text. */
#include "cu_main.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/value.h"
#include "text/number.h"

static int scan(uint32_t type, const char *text, uint64_t *bits)
{
    return scan_scalar(type, (const uint8_t *)text, strlen(text), bits);
}

struct good {
    uint32_t type;
    const char *text;
    uint64_t bits; /* the value, in as many low bytes as its type has */
};

static void all_good(const struct good *row, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        uint64_t got = 0x5555, mask = UINT64_MAX >> (64 - 8 * gguf_types[row[i].type].width);
        CU_ASSERT_EQUAL(scan(row[i].type, row[i].text, &got), 0);
        CU_ASSERT_EQUAL(got & mask, row[i].bits & mask);
        if ((got & mask) != (row[i].bits & mask))
            (void)fprintf(stderr, "'%s': %llx\n", row[i].text, (unsigned long long)got);
    }
}

struct bad {
    uint32_t type;
    const char *text;
    int code;
};

static void all_bad(const struct bad *row, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        uint64_t got = 0x5555;
        int r = scan(row[i].type, row[i].text, &got);
        CU_ASSERT_EQUAL(r, row[i].code);
        CU_ASSERT_EQUAL(got, 0x5555);
        if (r != row[i].code)
            (void)fprintf(stderr, "'%s': %d\n", row[i].text, r);
    }
}

#define ROWS(a) (a), sizeof(a) / sizeof((a)[0])

static void test_integers(void)
{
    // clang-format off
    static const struct good good[] = {
        {GGUF_U8, "0", 0}, {GGUF_U8, "255", 255}, {GGUF_U8, "+7", 7}, {GGUF_U8, "007", 7},
        {GGUF_U8, "-0", 0}, {GGUF_I8, "-128", 0x80}, {GGUF_I8, "127", 127},
        {GGUF_U16, "65535", 65535}, {GGUF_I16, "-32768", 0x8000}, {GGUF_I16, "32767", 32767},
        {GGUF_U32, "4294967295", 0xffffffff}, {GGUF_I32, "-2147483648", 0x80000000},
        {GGUF_I32, "2147483647", 0x7fffffff}, {GGUF_U64, "18446744073709551615", UINT64_MAX},
        {GGUF_U64, "9007199254740993", 9007199254740993}, /* no double can hold this */
        {GGUF_I64, "-9223372036854775808", 1ull << 63},
        {GGUF_I64, "9223372036854775807", INT64_MAX},
        {GGUF_U64, "000000000000000000000000000000001", 1},
    };
    static const struct bad bad[] = {
        {GGUF_U8, "256", -ERANGE}, {GGUF_U8, "-1", -ERANGE}, {GGUF_I8, "128", -ERANGE},
        {GGUF_I8, "-129", -ERANGE}, {GGUF_U16, "65536", -ERANGE}, {GGUF_I16, "32768", -ERANGE},
        {GGUF_I16, "-32769", -ERANGE}, {GGUF_U32, "4294967296", -ERANGE},
        {GGUF_I32, "2147483648", -ERANGE}, {GGUF_I32, "-2147483649", -ERANGE},
        {GGUF_U64, "18446744073709551616", -ERANGE}, {GGUF_I64, "9223372036854775808", -ERANGE},
        {GGUF_I64, "-9223372036854775809", -ERANGE},
        {GGUF_U64, "99999999999999999999999999999999", -ERANGE},
        {GGUF_U32, "", -EINVAL}, {GGUF_U32, "-", -EINVAL}, {GGUF_U32, "+", -EINVAL},
        {GGUF_U32, "1.0", -EINVAL}, {GGUF_U32, "1e3", -EINVAL}, {GGUF_U32, "0x10", -EINVAL},
        {GGUF_U32, "1 2", -EINVAL}, {GGUF_U32, "abc", -EINVAL}, {GGUF_U32, "--1", -EINVAL},
        {GGUF_U32, "99999999999999999999999x", -EINVAL}, {GGUF_U32, "true", -EINVAL},
    };
    // clang-format on
    all_good(ROWS(good));
    all_bad(ROWS(bad));
}

static void test_floats(void)
{
    // clang-format off
    static const struct good good[] = {
        {GGUF_F32, "0", 0}, {GGUF_F32, "-0", 0x80000000}, {GGUF_F32, "1", 0x3f800000},
        {GGUF_F32, "0.1", 0x3dcccccd}, {GGUF_F32, ".5", 0x3f000000}, {GGUF_F32, "5.", 0x40a00000},
        {GGUF_F32, "+1e-05", 0x3727c5ac}, {GGUF_F32, "1E5", 0x47c35000},
        {GGUF_F32, "10000.0", 0x461c4000}, {GGUF_F32, "3.4028235e+38", 0x7f7fffff},
        {GGUF_F32, "1e-45", 1}, {GGUF_F32, "1e-60", 0}, {GGUF_F32, "-1e-99999999999999999999", 0x80000000},
        /* Just above halfway to the next float, and exactly halfway. Via f64, the first would be
         * rounded twice. */
        {GGUF_F32, "1.00000005960464477539062500000000000000000001", 0x3f800001},
        {GGUF_F32, "1.000000059604644775390625", 0x3f800000},
        {GGUF_F32, "nan", 0x7fc00000}, {GGUF_F32, "-NaN", 0xffc00000}, {GGUF_F32, "inf", 0x7f800000},
        {GGUF_F32, "-Infinity", 0xff800000}, {GGUF_F32, "+INF", 0x7f800000},
        {GGUF_F64, "0.1", 0x3fb999999999999a}, {GGUF_F64, "nan", 0x7ff8000000000000},
        {GGUF_F64, "-inf", 0xfff0000000000000}, {GGUF_F64, "5e-324", 1},
        {GGUF_F64, "1.7976931348623157e308", 0x7fefffffffffffff},
        {GGUF_F64, "9007199254740993", 0x4340000000000000},
        {GGUF_F64, "0e999999999999999999999999999999", 0},
    };
    static const struct bad bad[] = {
        {GGUF_F32, "3.5e38", -ERANGE}, {GGUF_F32, "-1e39", -ERANGE}, {GGUF_F64, "1e309", -ERANGE},
        {GGUF_F64, "1e99999999999999999999999999", -ERANGE},
        {GGUF_F32, "0x1p3", -EINVAL}, {GGUF_F32, "", -EINVAL}, {GGUF_F32, ".", -EINVAL},
        {GGUF_F32, "1e", -EINVAL}, {GGUF_F32, "1e+", -EINVAL}, {GGUF_F32, "e5", -EINVAL},
        {GGUF_F32, "1,5", -EINVAL}, {GGUF_F32, "1.5f", -EINVAL}, {GGUF_F32, "nan(1)", -EINVAL},
        {GGUF_F32, "infinit", -EINVAL}, {GGUF_F32, "1.2.3", -EINVAL}, {GGUF_F32, "-", -EINVAL},
        {GGUF_F32, "1e5.0", -EINVAL}, {GGUF_F32, "1 ", -EINVAL}, {GGUF_F32, "true", -EINVAL},
    };
    // clang-format on
    all_good(ROWS(good));
    all_bad(ROWS(bad));
}

/* The text is longer than the buffer for ordinary numbers. */
static void test_long_float(void)
{
    char s[1000];
    uint64_t bits;
    (void)snprintf(s, sizeof(s), "0.%0400d1e401", 0);
    CU_ASSERT_EQUAL(scan(GGUF_F32, s, &bits), 0);
    CU_ASSERT_EQUAL(bits, 0x3f800000);
    (void)snprintf(s, sizeof(s), "1%0400d", 0);
    CU_ASSERT_EQUAL(scan(GGUF_F64, s, &bits), -ERANGE);
    (void)snprintf(s, sizeof(s), "1%0400de-400", 0);
    CU_ASSERT_EQUAL(scan(GGUF_F64, s, &bits), 0);
    CU_ASSERT_EQUAL(bits, 0x3ff0000000000000);
}

static void test_bools(void)
{
    // clang-format off
    static const struct good good[] = {{GGUF_BOOL, "true", 1}, {GGUF_BOOL, "false", 0}};
    static const struct bad bad[] = {
        {GGUF_BOOL, "1", -EINVAL}, {GGUF_BOOL, "0", -EINVAL}, {GGUF_BOOL, "True", -EINVAL},
        {GGUF_BOOL, "", -EINVAL}, {GGUF_BOOL, "truee", -EINVAL}, {GGUF_BOOL, "fals", -EINVAL},
    };
    // clang-format on
    all_good(ROWS(good));
    all_bad(ROWS(bad));
}

static void test_trim(void)
{
    const uint8_t *p = (const uint8_t *)" \t\r\n 5 6\r\n\n";
    size_t n = strlen((const char *)p);
    scan_trim(&p, &n);
    CU_ASSERT_EQUAL(n, 3);
    CU_ASSERT_EQUAL(memcmp(p, "5 6", 3), 0);
    p = (const uint8_t *)" \n ";
    n = 3;
    scan_trim(&p, &n);
    CU_ASSERT_EQUAL(n, 0);
}

static CU_TestInfo tests[] = {
    {"integers are exact and within their type", test_integers},
    {"floats are rounded correctly for their type", test_floats},
    {"floats may be of any length", test_long_float},
    {"a bool is true or false and nothing else", test_bools},
    {"surrounding space is ignored", test_trim},
    CU_TEST_INFO_NULL,
};

CU_MAIN("scan", tests)
