/* SPDX-License-Identifier: MIT */
/* live/tensor_base: texts accepted by `type` and `shape`. */
#include "cu_main.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "live/tensor_judge.h"
#include "quant/types.h"

static void check_line(const char *text, const struct err *e, const char *line)
{
    if (!line)
        return;
    if (!strstr(e->msg, line))
        (void)printf("\n%s: %s\n", text, e->msg);
    CU_ASSERT_PTR_NOT_NULL(strstr(e->msg, line));
}

struct row {
    const char *text;
    int want;
    const char *line;
};

static void test_type(void)
{
    static const struct row rows[] = {
        {"Q8_0\n", 0, NULL},
        {"q8_0\r\n", 0, NULL},
        {"  Q8_0 \t\n\n  ", 0, NULL},
        {"Q8_0", 0, NULL},
        {"Q8_0 ", 0, NULL},
        {"Q8_", -EINVAL, "did you mean Q8_0"},
        {"Q8", -EINVAL, "did you mean Q8_0"},
        {"Q", -EINVAL, "did you mean Q4_0"},
        {"", -EINVAL, "no type"},
        {" ", -EINVAL, "no type"},
        {"\n", -EINVAL, "no type"},
        {"Q9", -EINVAL, "'Q9' is not a type"},
        {"Q8-0", -EINVAL, "did you mean Q8_0"},
        {"Q4_KM\n", -EINVAL, "did you mean Q4_K"},
        {"Q8_00", -EINVAL, "did you mean Q8_0"},
        {"Q8 _0", -EINVAL, "not a type"},
        {"Q8_0\nx", -EINVAL, "more than one line"},
        {"x", -EINVAL, "not a type"},
        {"x\x1b[0m\n", -EINVAL, "\\x1b"},
        {"a long name", -EINVAL, "not a type"},
        {"unknown:", -EINVAL, "not a type"},
        {"unknown:77", -EOPNOTSUPP, "unknown:77"},
        {"unknown:77\n", -EOPNOTSUPP, "unknown:77"},
        {"unknown:7x", -EINVAL, "not a type"},
        {"Q4_2\n", -EOPNOTSUPP, "retired type Q4_2"},
        {"Q4_0_4_4\n", -EOPNOTSUPP, "retired"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = {0};
        uint32_t id = 99;
        size_t n = strlen(rows[i].text);
        char *exact = malloc(n + 1); /* lets a sanitizer detect a read beyond it */
        memcpy(exact + 1, rows[i].text, n);
        int r = tensor_type_parse(exact + 1, n, &id, &e);
        free(exact);
        if (r != rows[i].want)
            (void)printf("\n'%s': %d\n", rows[i].text, r);
        CU_ASSERT_EQUAL(r, rows[i].want);
        if (r == 0)
            CU_ASSERT_EQUAL(id, Q8_0_ID);
        if (r < 0)
            check_line(rows[i].text, &e, rows[i].line);
    }
}

/* Each type is accepted by its own name. */
static void test_names(void)
{
    for (uint32_t id = 0; quant_find(id); id++) {
        const struct quant_type *t = quant_find(id);
        uint32_t got = 99;
        int want = t->block_len ? 0 : -EOPNOTSUPP;
        CU_ASSERT_EQUAL(tensor_type_parse(t->name, strlen(t->name), &got, NULL), want);
        CU_ASSERT_TRUE(want < 0 || got == id);
    }
}

/* A type is shown by name or, if it is unknown or was removed, by number. */
static void test_type_shown(void)
{
    static const struct {
        uint32_t id;
        const char *text;
    } rows[] = {{Q8_0_ID, "Q8_0\n"}, {4, "unknown:4\n"}, {1000, "unknown:1000\n"}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(buf_free) struct buf out = BUF_INIT;
        tensor_text(&(struct tensor_base){.exists = true, .type = rows[i].id}, TENSOR_TYPE, &out);
        buf_char(&out, '\0');
        CU_ASSERT_STRING_EQUAL((const char *)out.data, rows[i].text);
    }
}

static void test_shape(void)
{
    static const struct row rows[] = {
        {"2 3\n", 0, NULL},
        {" 2\t3 \r\n\n", 0, NULL},
        {"02 3", 0, NULL},
        {"2 3 ", 0, NULL},
        {"2 0", -EINVAL, "dimension is 0"},
        {"2 0 ", -EINVAL, "dimension is 0"},
        {"0\n", -EINVAL, "dimension is 0"},
        {"2 3 4 5 6", -EINVAL, "1 to 4"},
        {"2,3", -EINVAL, "not a shape"},
        {"(2 3)\n", -EINVAL, "not a shape"},
        {"-2\n", -EINVAL, "not a shape"},
        {"x", -EINVAL, "not a shape"},
        {"2 3\n4", -EINVAL, "more than one line"},
        {"4294967296 4294967296", -EINVAL, "overflows"},
        {"99999999999999999999", -EINVAL, "overflows"},
        {"18446744073709551616", -EINVAL, "overflows"},
        {"1152921504606846977", -EINVAL, "overflows"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = {0};
        struct tensor_shape s = {0};
        size_t n = strlen(rows[i].text);
        char *exact = malloc(n + 1); /* lets a sanitizer detect a read beyond it */
        memcpy(exact + 1, rows[i].text, n);
        int r = tensor_shape_parse(exact + 1, n, &s, &e);
        free(exact);
        if (r != rows[i].want)
            (void)printf("\n'%s': %d\n", rows[i].text, r);
        CU_ASSERT_EQUAL(r, rows[i].want);
        if (r == 0)
            CU_ASSERT_TRUE(s.n_dims == 2 && s.dims[0] == 3 && s.dims[1] == 2);
        if (r < 0)
            check_line(rows[i].text, &e, rows[i].line);
    }
}

static void test_scalar(void)
{
    struct tensor_shape s = {0};
    CU_ASSERT_EQUAL(tensor_shape_parse("\n", 1, &s, NULL), 0);
    CU_ASSERT_TRUE(s.n_dims == 1 && s.dims[0] == 1);
    s = (struct tensor_shape){0};
    CU_ASSERT_EQUAL(tensor_shape_parse("", 0, &s, NULL), 0);
    CU_ASSERT_TRUE(s.n_dims == 1 && s.dims[0] == 1);
    CU_ASSERT_EQUAL(tensor_shape_parse("1152921504606846976\n", 20, &s, NULL), 0);
}

static void test_reshape(void)
{
    struct tensor_base b = {.exists = true, .type = Q8_0_ID, .n_dims = 2, .dims = {64, 3}};
    struct tensor_shape s = {.n_dims = 2, .dims = {64, 3}};
    struct err e = {0};
    b.n_elem = 192;
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), TENSOR_SAME);
    CU_ASSERT_EQUAL(s.type, Q8_0_ID);
    s = (struct tensor_shape){.n_dims = 1, .dims = {192}};
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), TENSOR_CHANGED);
    s = (struct tensor_shape){.n_dims = 2, .dims = {3, 64}};
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), -EINVAL);
    check_line("3 64", &e, "whole number of blocks");
    s = (struct tensor_shape){.n_dims = 1, .dims = {224}};
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), -EINVAL);
    check_line("224", &e, "224 elements, the tensor has 192");
    b = (struct tensor_base){.exists = true, .n_elem = 1};
    s = (struct tensor_shape){.n_dims = 1, .dims = {1}};
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), TENSOR_SAME);
    s = (struct tensor_shape){.n_dims = 2, .dims = {1, 1}};
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), TENSOR_CHANGED);
    b.type = 200;
    CU_ASSERT_EQUAL(tensor_reshape(&b, &s, &e), -EOPNOTSUPP);
}

static CU_TestInfo tests[] = {
    {"a type is parsed from text", test_type},
    {"every type is accepted by its name", test_names},
    {"a type is shown by name, or by number if unknown", test_type_shown},
    {"a shape is parsed from text", test_shape},
    {"an empty shape is that of a scalar", test_scalar},
    {"a tensor may get a different shape with the same number of values", test_reshape},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_text", tests)
