/* SPDX-License-Identifier: MIT */
/* mount/mounts: paths as the kernel's list of mounts writes them. */
#include "cu_main.h"

#include <string.h>

#include "mount/mounts.h"

static void test_escape(void)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        {"/mnt/plain", "/mnt/plain"},           {"/a b", "/a\\040b"},
        {"/tab\there\n", "/tab\\011here\\012"}, {"/back\\slash\\040", "/back\\134slash\\134040"},
        {"/\xc3\xa9\xff", "/\xc3\xa9\xff"},     {"", ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        CLEANUP(buf_free) struct buf b = BUF_INIT;
        char text[64];
        path_escape(&b, rows[i].path);
        buf_char(&b, '\0');
        CU_ASSERT_STRING_EQUAL((const char *)b.data, rows[i].text);
        (void)strcpy(text, rows[i].text);
        path_unescape(text);
        CU_ASSERT_STRING_EQUAL(text, rows[i].path);
    }
}

/* What is no escape stays. */
static void test_unescape(void)
{
    static const struct {
        const char *text, *path;
    } rows[] = {
        {"\\", "\\"},     {"\\04", "\\04"},  {"\\400", "\\400"},
        {"\\08", "\\08"}, {"\\377", "\377"}, {"a\\x41", "a\\x41"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[64];
        (void)strcpy(text, rows[i].text);
        path_unescape(text);
        CU_ASSERT_STRING_EQUAL(text, rows[i].path);
    }
}

static CU_TestInfo tests[] = {
    {"paths are escaped and come back", test_escape},
    {"what is no escape stays", test_unescape},
    CU_TEST_INFO_NULL,
};

CU_MAIN("mounts", tests)
