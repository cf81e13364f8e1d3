/* SPDX-License-Identifier: MIT */
/* live/places: random notes against a plain array. */
#include "cu_main.h"

#include <stdio.h>
#include <string.h>

#include "live/folders.h"

enum { NAMES = 700 };

static void test_random(void)
{
    static uint64_t want[NAMES]; /* 0: not known */
    struct table p = {0};
    uint64_t state = 1;
    CU_ASSERT_EQUAL(places_take(&p, "a", 1, 7), 7);
    for (uint64_t i = 0; i < 20000; i++) {
        char name[16];
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t which = (size_t)(state >> 33) % NAMES,
               n = (size_t)snprintf(name, 16, "t.%zu", which);
        if (state >> 63) {
            places_note(&p, name, n, i + 1);
            want[which] = i + 1;
            continue;
        }
        CU_ASSERT_EQUAL(places_take(&p, name, n, 0), want[which]);
        want[which] = 0;
    }
    places_free(&p);
}

/* Names are bytes of a length. */
static void test_names(void)
{
    struct table p = {0};
    places_note(&p, "ab", 1, 1);
    places_note(&p, "ab", 2, 2);
    places_note(&p, "a\0b", 3, 3);
    CU_ASSERT_EQUAL(places_take(&p, "a\0c", 3, 9), 9);
    CU_ASSERT_EQUAL(places_take(&p, "a\0b", 3, 9), 3);
    CU_ASSERT_EQUAL(places_take(&p, "ab", 2, 9), 2);
    CU_ASSERT_EQUAL(places_take(&p, "a", 1, 9), 1);
    CU_ASSERT_EQUAL(places_take(&p, "a", 1, 9), 9);
    places_free(&p);
}

static CU_TestInfo tests[] = {
    {"random notes", test_random},
    {"names", test_names},
    CU_TEST_INFO_NULL,
};

CU_MAIN("places", tests)
