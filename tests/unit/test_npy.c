/* SPDX-License-Identifier: MIT */
/* model/npy: headers written by NumPy and others, and headers that are refused. */
#include "cu_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "model/npy.h"

/* Write a header of the given version with exactly this dict. */
static size_t header(uint8_t *dst, uint8_t version, const char *dict)
{
    size_t n = strlen(dict), fixed = version == 1 ? 10 : 12;
    memcpy(dst, "\x93NUMPY", 6);
    dst[6] = version;
    dst[7] = 0;
    if (version == 1)
        put_u16(dst + 8, (uint16_t)n, false);
    else
        put_u32(dst + 8, (uint32_t)n, false);
    memcpy(dst + fixed, dict, n);
    return fixed + n;
}

static int parse(uint8_t version, const char *dict, struct npy *ret, struct err *e)
{
    /* The copy has exactly the header's size, so that a sanitizer detects reads beyond it. */
    uint8_t room[512], *exact;
    size_t n = header(room, version, dict);
    exact = malloc(n);
    memcpy(exact, room, n);
    *e = (struct err){0};
    int r = npy_parse(exact, n, ret, e);
    if (r == 0)
        CU_ASSERT_EQUAL(ret->header, n);
    for (size_t i = 1; i < n; i++) {
        /* Incomplete headers are not refused. */
        CLEANUP(free_it) uint8_t *part = malloc(i);
        memcpy(part, exact, i);
        CU_ASSERT_EQUAL(npy_parse(part, i, ret, NULL), NPY_MORE);
    }
    free(exact);
    return r;
}

TEST("valid headers are accepted")
{
    static const struct {
        uint8_t version;
        const char *dict;
        uint32_t width, n_dims;
        uint64_t dims[4];
    } rows[] = {
        {1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n", 4, 2, {3, 2}},
        {1, "{'descr': '<f2', 'fortran_order': False, 'shape': (7,), }\n", 2, 1, {7}},
        {2,
         "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4), }\n",
         4,
         4,
         {4, 3, 2, 1}},
        {3, "{'shape': (5L, 6L), 'fortran_order': False, 'descr': '<f4'}", 4, 2, {6, 5}},
        {1, "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":()}", 4, 1, {1}},
        {1, " { 'descr' : '<f4' , 'fortran_order' : True , 'shape' : ( 9 , ) } \n", 4, 1, {9}},
        {1, "{'descr': '<f4', 'fortran_order': True, 'shape': (), }", 4, 1, {1}},
        {1, "{\r\n\t'descr':\t'<f4', 'fortran_order': False, 'shape': (4)}\r\n", 4, 1, {4}},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct npy npy = {0}, part;
        struct err e;
        uint8_t room[512];
        (void)part;
        CU_ASSERT_EQUAL(parse(rows[i].version, rows[i].dict, &part, &e), 0);
        size_t n = header(room, rows[i].version, rows[i].dict);
        CU_ASSERT_EQUAL(npy_parse(room, n, &npy, &e), 0);
        CU_ASSERT_EQUAL(npy.width, rows[i].width);
        CU_ASSERT_EQUAL(npy.n_dims, rows[i].n_dims);
        CU_ASSERT_EQUAL(memcmp(npy.dims, rows[i].dims, npy.n_dims * 8), 0);
    }
}

TEST("unsupported headers are refused")
{
    static const struct {
        const char *dict, *line;
    } rows[] = {
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }", "'>f4'"},
        {"{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3), }", "'|i1'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "fields"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1, 1), }", "4 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }", "dimension of 0"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
         "too many"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2;3), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "no dict"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", "no dict"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "missing"},
        {"{'descr: '<f4', 'fortran_order': False, 'shape': (2,)}", "missing"},
        {"{'descr': '<f4', 'fortran_order': F}", "missing"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,), }", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2L}", "tuple"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 2), }",
         "too many"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1152921504606846977,), }", "too many"},
        {"[]", "no dict"},
        {"{", "no dict"},
        {"", "no dict"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct npy npy;
        struct err e;
        CU_ASSERT_EQUAL(parse(1, rows[i].dict, &npy, &e), -EINVAL);
        CU_SAYS(strstr(e.msg, rows[i].line), "%s: %s\n", rows[i].dict, e.msg);
    }
}

/* Bytes that cannot begin a header are refused as soon as that is certain. */
TEST("a bad header is refused as soon as it is recognised")
{
    struct npy npy;
    struct err e;
    uint8_t bytes[] = "\x93NUMPY\x01\x00\x10\x00";
    CU_ASSERT_EQUAL(npy_parse(bytes, 0, &npy, &e), NPY_MORE);
    CU_ASSERT_EQUAL(npy_parse(bytes, 10, &npy, &e), NPY_MORE);
    for (size_t i = 0; i < 6; i++) {
        bytes[i] ^= 1;
        CU_ASSERT_EQUAL(npy_parse(bytes, i, &npy, &e), NPY_MORE);
        CU_ASSERT_EQUAL(npy_parse(bytes, i + 1, &npy, &e), -EINVAL);
        bytes[i] ^= 1;
    }
    bytes[6] = 4;
    CU_ASSERT_EQUAL(npy_parse(bytes, 7, &npy, &e), -EINVAL);
    bytes[6] = 0;
    CU_ASSERT_EQUAL(npy_parse(bytes, 7, &npy, &e), -EINVAL);
    uint8_t large[] = "\x93NUMPY\x02\x00\xf5\xff\x00\x00";
    /* With the preceding bytes, this makes a header of 65536 + 1 bytes. */
    CU_ASSERT_EQUAL(npy_parse(large, 12, &npy, &e), -EINVAL);
    large[8] = 0xf4;
    CU_ASSERT_EQUAL(npy_parse(large, 12, &npy, &e), NPY_MORE);
}

/* Headers that we write can be read; their data begins at a multiple of 64. */
TEST("a written header is read back")
{
    for (uint32_t n_dims = 0; n_dims <= NPY_MAX_DIMS; n_dims++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        struct buf measure = BUF_MEASURE;
        const uint64_t dims[] = {4096, 3, 20000000000, 1};
        struct npy npy = {0};
        struct err e = {0};
        buf_str(&b, "before");
        size_t n = npy_header(&b, n_dims % 2 ? "<f4" : "<f2", n_dims, dims);
        CU_ASSERT_EQUAL(npy_header(&measure, "<f4", n_dims, dims), n);
        CU_ASSERT_EQUAL(n % 64, 0);
        CU_ASSERT_EQUAL(b.len, 6 + n);
        CU_ASSERT_EQUAL(npy_parse(b.data + 6, n, &npy, &e), 0);
        CU_ASSERT_EQUAL(npy.header, n);
        CU_ASSERT_EQUAL(npy.width, n_dims % 2 ? 4 : 2);
        CU_ASSERT_EQUAL(npy.n_dims, n_dims ? n_dims : 1);
        for (uint32_t i = 0; i < n_dims; i++)
            CU_ASSERT_EQUAL(npy.dims[i], dims[i]);
    }
}
