/* SPDX-License-Identifier: MIT */
/* text/text.h: names of types. */
#include "cu_main.h"

#include <string.h>

#include "gguf/gguf.h"
#include "text/text.h"

static const struct gguf_format v3 = {.version = 3, .len_width = 8};

static void test_names(void)
{
    static const char *const names[] = {"u8",         "f64",           "bool",        "string",
                                        "array[i16]", "array[string]", "array[array]"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        CLEANUP(buf_free) struct buf name = BUF_INIT;
        struct gguf_value v = {0};
        uint32_t type, elem;
        CU_ASSERT_TRUE_FATAL(type_name_get(names[i], strlen(names[i]), &type, &elem));
        v.type = (uint8_t)type;
        v.elem = (uint8_t)elem;
        type_name_put(&v, &name);
        buf_char(&name, '\0');
        CU_ASSERT_STRING_EQUAL((char *)name.data, names[i]);
    }
}

/* Each row is an array of arrays: 'a' begins an array of that many, 'b' and 's' are empty arrays of
 * u8 and strings. */
static void test_nested(void)
{
    static const struct {
        const char *parts, *name;
    } rows[] = {
        {"0", "array[array]"},
        {"1b", "array[array[u8]]"},
        {"3bbb", "array[array[u8]]"},
        {"2bs", "array[array]"},
        {"22bb1b", "array[array[array[u8]]]"},
        {"22bb1s", "array[array]"},
        {"12bs", "array[array[array]]"},
        {"2b1b", "array[array]"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT, name = BUF_INIT;
        for (const char *p = rows[i].parts; *p; p++) {
            const bool leaf = *p == 'b' || *p == 's';
            const uint32_t elem = *p == 'b'   ? GGUF_U8
                                  : *p == 's' ? (uint32_t)GGUF_STRING
                                              : (uint32_t)GGUF_ARRAY;
            buf_uint(&b, elem, 4, false);
            buf_uint(&b, leaf ? 0 : (uint64_t)(*p - '0'), 8, false);
        }
        const struct gguf_value v = gguf_value_at(&v3, GGUF_ARRAY, b.data);
        type_name_put(&v, &name);
        buf_char(&name, '\0');
        CU_ASSERT_STRING_EQUAL((char *)name.data, rows[i].name);
    }
}

static CU_TestInfo tests[] = {
    {"types are named, and found by name", test_names},
    {"arrays of arrays name the type that all inner arrays have", test_nested},
    CU_TEST_INFO_NULL,
};

CU_MAIN("type_name", tests)
