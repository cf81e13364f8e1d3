/* SPDX-License-Identifier: MIT */
/* base/map: how far data is read ahead for programs. */
#include "cu_main.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/map.h"

#define K ((uint64_t)1 << 10)
#define M (K << 10)

static char name[] = "far-XXXXXX";
static struct map map;
static struct far_run run;

static void begin(void)
{
    int fd = mkstemp(name);
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    (void)unlink(name);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)(999 * M)), 0);
    CU_ASSERT_EQUAL_FATAL(map_open(&map, fd, 999 * M), 0);
    run = (struct far_run){0};
}

static void end(void)
{
    (void)close(map.fd);
    map_close(&map);
    (void)memcpy(name, "far-XXXXXX", sizeof(name));
}

/* Return how many bytes are requested beyond the end of a read. `stop`: the end of the part that is
 * being read. */
static uint64_t beyond(uint64_t off, uint64_t n, uint64_t stop)
{
    uint64_t upto = far_want(&run, &map, off, n, stop);
    CU_ASSERT_TRUE(upto >= off + n);
    return upto - (off + n);
}

/* Return how many bytes are requested beyond the end of sequential reads of 64 KiB each. */
static uint64_t in_order(uint64_t off, uint64_t n, uint64_t stop)
{
    uint64_t upto = off, last = off + n;
    for (; off < last; off += 64 * K)
        upto = max_u64(upto, off + 64 * K + beyond(off, 64 * K, stop));
    return upto - last;
}

static void test_bounds(void)
{
    begin();
    /* A single read requests only its own range, wherever it is. */
    CU_ASSERT_EQUAL(beyond(900 * M, 16 * K, 999 * M), 0);
    CU_ASSERT_EQUAL(beyond(300 * M, 3 * M, 999 * M), 0);
    /* Sequential reads prefetch no more bytes than they have read, and at most 2 MiB. */
    uint64_t more = in_order(400 * M, 256 * K, 999 * M);
    CU_ASSERT_TRUE(more > 0 && more <= 256 * K);
    more = in_order(100 * M, 30 * M, 999 * M);
    CU_ASSERT_TRUE(more >= M && more <= 2 * M);
    /* Nothing beyond the end of the file is requested. */
    CU_ASSERT_EQUAL(far_want(&run, &map, 999 * M, 1, 1000 * M), 999 * M);
    end();
}

static void test_part(void)
{
    begin();
    CU_ASSERT_EQUAL(in_order(100 * M, 10 * M, 110 * M), 0);
    CU_ASSERT_TRUE(beyond(110 * M, 64 * K, 120 * M) >= M); /* the program keeps reading */
    end();
}

static void test_random(void)
{
    begin();
    for (uint64_t i = 0; i < 100; i++)
        CU_ASSERT_EQUAL(beyond(i * 37 % 100 * 9 * M, 64 * K, 999 * M), 0);
    end();
}

static void test_overtaking(void)
{
    uint64_t upto = 0;
    begin();
    for (uint64_t at = 0; at < 8 * M; at += 256 * K) {
        upto = max_u64(upto, far_want(&run, &map, at + 128 * K, 128 * K, 999 * M));
        upto = max_u64(upto, far_want(&run, &map, at, 128 * K, 999 * M));
    }
    CU_ASSERT_TRUE(upto >= 9 * M && upto <= 10 * M);
    end();
}

static CU_TestInfo tests[] = {
    {"readahead is no longer than the data already read", test_bounds},
    {"readahead stops at the end of the part that is read", test_part},
    {"random reads do not count as sequential", test_random},
    {"requests that overtake each other still count as sequential", test_overtaking},
    CU_TEST_INFO_NULL,
};

CU_MAIN("far", tests)
