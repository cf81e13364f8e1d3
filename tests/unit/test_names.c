/* SPDX-License-Identifier: MIT */
/* live/names: what a new name in metadata/ means. test_live_helpers.c tests what programs see. */
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "cu_main.h"
#include "gguf/value.h"
#include "live/names.h"

/* Write a key of a row of the table of standardized keys. */
static void key_of_row(const struct key_row *row, char dst[128])
{
    static const char *const parts[][2] = {{"[arch]", "llama"}, {"{i}", "0"}, {"{name}", "chatml"}};
    (void)snprintf(dst, 128, "%s", row->pattern);
    for (size_t i = 0; i < COUNT(parts); i++) {
        char rest[128], *at = strstr(dst, parts[i][0]);
        if (!at)
            continue;
        (void)snprintf(rest, sizeof(rest), "%s", at + strlen(parts[i][0]));
        (void)snprintf(at, 128 - (size_t)(at - dst), "%s%s", parts[i][1], rest);
    }
}

static bool is_standard(const void *of, const char *name)
{
    (void)of;
    return key_find(name, strlen(name));
}

static bool is_nothing(const void *of, const char *name)
{
    (void)of;
    (void)name;
    return false;
}

/* A person's name for a key is a key, or is refused: only these suffixes of keys make helpers. */
static void test_standard_keys(void)
{
    static const struct {
        const char *suffix;
        enum name_class created, aside;
    } rows[] = {
        {".tmp", NAME_HELPER, NAME_HELPER},
        {".new", NAME_HELPER, NAME_HELPER},
        {".swp", NAME_HELPER, NAME_HELPER},
        {"aB1dE2.bck", NAME_HELPER, NAME_HELPER},
        {"~", NAME_HELPER, NAME_HELPER},
        {".bak", NAME_INVALID, NAME_HELPER},
        {".orig", NAME_INVALID, NAME_HELPER},
        {".old", NAME_INVALID, NAME_HELPER},
        {".save", NAME_INVALID, NAME_HELPER},
        {".chatml", NAME_KEY, NAME_KEY},
        {".vision", NAME_KEY, NAME_KEY},
        {".github", NAME_KEY, NAME_KEY},
        {".backup", NAME_KEY, NAME_KEY},
        {".rej", NAME_KEY, NAME_KEY},
        {".1", NAME_KEY, NAME_KEY},
        {".123456", NAME_KEY, NAME_KEY},
        {"123456", NAME_KEY, NAME_KEY},
        {".bck", NAME_KEY, NAME_KEY},
        {".baK", NAME_KEY, NAME_KEY},
        {".bak.x", NAME_KEY, NAME_KEY},
        {".", NAME_INVALID, NAME_INVALID},
        {" copy", NAME_INVALID, NAME_INVALID},
        {".bak ", NAME_INVALID, NAME_INVALID},
        {"..bak", NAME_INVALID, NAME_INVALID},
    };
    const struct name_keys all = {is_standard, NULL}, none = {is_nothing, NULL};
    for (size_t k = 0; k < key_table_len; k++) {
        char key[128], name[160];
        key_of_row(&key_table[k], key);
        CU_ASSERT_TRUE_FATAL(is_standard(NULL, key));
        for (enum name_way way = NAME_CREATED; way <= NAME_ASIDE; way++)
            CU_ASSERT_EQUAL(name_classify(key, way, &none), NAME_KEY);
        for (size_t i = 0; i < COUNT(rows); i++) {
            (void)snprintf(name, sizeof(name), "%s%s", key, rows[i].suffix);
            const bool new = !is_standard(NULL, name); /* such as general.base_model.0.name.1 */
            CU_ASSERT_TRUE(!new || name_classify(name, NAME_CREATED, &all) == rows[i].created);
            CU_ASSERT_TRUE(!new || name_classify(name, NAME_MKSTEMP, &all) == rows[i].created);
            CU_ASSERT_TRUE(!new || name_classify(name, NAME_ASIDE, &all) == rows[i].aside);
        }
    }
}

static CU_TestInfo tests[] = {
    {"a standardized key with a suffix is a key, is refused, or is a known helper",
     test_standard_keys},
    CU_TEST_INFO_NULL,
};

CU_MAIN("names", tests)
