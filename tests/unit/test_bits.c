/* SPDX-License-Identifier: MIT */
/* base/bits: random changes against a plain array of flags. */
#include "cu_main.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"

enum { MOST = 200000 };

static bool want[2][MOST];
static uint64_t state = 1;

static uint64_t draw(uint64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

static void check(const struct bits *b, const bool *flags)
{
    uint64_t lo, hi, at = 0;
    while (bits_next(b, at, &lo, &hi)) {
        CU_ASSERT_TRUE_FATAL(at <= lo && lo < hi && hi <= MOST);
        for (uint64_t i = at; i < lo; i++)
            CU_ASSERT_FALSE_FATAL(flags[i]);
        for (uint64_t i = lo; i < hi; i++)
            CU_ASSERT_TRUE_FATAL(flags[i]);
        CU_ASSERT_TRUE(hi == MOST || !flags[hi]);
        at = hi;
    }
    for (uint64_t i = at; i < MOST; i++)
        CU_ASSERT_FALSE_FATAL(flags[i]);
    uint64_t i = draw(MOST);
    CU_ASSERT_EQUAL(bits_has(b, i), flags[i]);
}

static void change(struct bits *b, bool *flags)
{
    uint64_t first = draw(MOST), last = first + draw(draw(2) ? 70 : 80000);
    last = last < MOST ? last : MOST;
    bool on = draw(5) < 3;
    if (!on)
        bits_remove(b, first, last);
    CU_ASSERT_EQUAL(on ? bits_add(b, first, last) : 0, 0);
    for (uint64_t i = first; i < last; i++)
        flags[i] = on;
}

static void test_random(void)
{
    struct bits b[2] = {BITS_INIT, BITS_INIT};
    memset(want, 0, sizeof(want));
    for (unsigned i = 0; i < 300; i++) {
        unsigned k = (unsigned)draw(2);
        change(&b[k], want[k]);
        check(&b[k], want[k]);
        if (draw(12))
            continue;
        bits_join(&b[k], &b[!k]);
        for (size_t n = 0; n < MOST; n++)
            want[k][n] |= want[!k][n];
        memset(want[!k], 0, sizeof(want[0]));
        check(&b[k], want[k]);
        check(&b[!k], want[!k]);
    }
    bits_free(&b[0]);
    bits_free(&b[1]);
}

static void test_ends(void)
{
    struct bits b = BITS_INIT;
    uint64_t lo, hi;
    CU_ASSERT_FALSE(bits_next(&b, 0, &lo, &hi));
    CU_ASSERT_FALSE(bits_has(&b, BITS_MAX));
    bits_remove(&b, 0, BITS_MAX);
    CU_ASSERT_EQUAL(bits_add(&b, 5, 5), 0);
    CU_ASSERT_FALSE(bits_next(&b, 0, &lo, &hi));
    CU_ASSERT_EQUAL(bits_add(&b, 0, BITS_MAX + 1), -EFBIG);
    CU_ASSERT_EQUAL(bits_add(&b, 32767, 32769), 0); /* over the edge of two stretches */
    CU_ASSERT_TRUE(bits_next(&b, 0, &lo, &hi));
    CU_ASSERT_TRUE(lo == 32767 && hi == 32769);
    CU_ASSERT_EQUAL(bits_add(&b, 65535, 65536), 0); /* up to the end of the last */
    CU_ASSERT_TRUE(bits_next(&b, hi, &lo, &hi));
    CU_ASSERT_TRUE(lo == 65535 && hi == 65536);
    CU_ASSERT_FALSE(bits_next(&b, hi, &lo, &hi));
    bits_free(&b);
}

static CU_TestInfo tests[] = {
    {"random changes", test_random},
    {"edges", test_ends},
    CU_TEST_INFO_NULL,
};

CU_MAIN("bits", tests)
