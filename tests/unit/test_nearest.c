/* SPDX-License-Identifier: MIT */
/* base/err: the word that was probably meant. */
#include "cu_main.h"

#include <string.h>

#include "base/err.h"

static const char *const words[] = {"ro",      "rw",    "commit", "relayout",
                                    "reserve", "views", "uid",    "gid"};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const char *meant(const char *word)
{
    struct nearest n = nearest_to(word, strlen(word));
    for (size_t i = 0; i < COUNT(words); i++)
        nearest_offer(&n, words[i], strlen(words[i]), i);
    return n.found ? words[n.which] : "";
}

static void test_meant(void)
{
    static const struct {
        const char *word, *meant;
    } rows[] = {
        {"comit", "commit"},
        {"commmit", "commit"},
        {"cmomit", "commit"},
        {"Commit", "commit"},
        {"kommit", "commit"},
        {"relayuot", "relayout"},
        {"resreve", "reserve"},
        {"view", "views"},
        {"rx", "ro"},
        {"uid", "uid"},
        {"guid", "uid"},
        {"nonsense", ""},
        {"", ""},
        {"x", ""},
        {"commitcommit", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        CU_ASSERT_STRING_EQUAL(meant(rows[i].word), rows[i].meant);
}

static CU_TestInfo tests[] = {
    {"the intended word is suggested", test_meant},
    CU_TEST_INFO_NULL,
};

CU_MAIN("nearest", tests)
