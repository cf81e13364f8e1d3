/* SPDX-License-Identifier: MIT */
/* base: bytes, buf, err, far, hash, map; in pool, jobs take turns, and each unit runs once. */
#include "cu_test.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"
#include "base/hash.h"
#include "base/map.h"
#include "base/pool.h"

TEST("unaligned bytes are read and written in both orders")
{
    const uint8_t b[9] = {0xff, 1, 2, 3, 4, 5, 6, 7, 8};
    CU_ASSERT_EQUAL(get_u16(b + 1, false), 0x0201);
    CU_ASSERT_EQUAL(get_u16(b + 1, true), 0x0102);
    CU_ASSERT_EQUAL(get_u32(b + 1, false), 0x04030201);
    CU_ASSERT_EQUAL(get_u64(b + 1, false), 0x0807060504030201);
    CU_ASSERT_EQUAL(get_uint(b + 1, 8, true), 0x0102030405060708);
    uint8_t out[8];
    for (size_t w = 1; w <= 8; w *= 2)
        for (int big = 0; big < 2; big++) {
            put_uint(out, 0x1122334455667788, w, big);
            uint64_t want =
                w == 8 ? 0x1122334455667788 : 0x1122334455667788 & ((1ull << 8 * w) - 1);
            CU_ASSERT_EQUAL(get_uint(out, w, big), want);
        }
}

TEST("arithmetic that overflows is refused")
{
    uint64_t r = 7;
    CU_ASSERT_FALSE(add_u64(UINT64_MAX, 1, &r));
    CU_ASSERT_FALSE(mul_u64(1ull << 32, 1ull << 32, &r));
    CU_ASSERT_TRUE(mul_u64(1ull << 32, 1ull << 31, &r));
    CU_ASSERT_EQUAL(r, 1ull << 63);
    CU_ASSERT_FALSE(align_u64(UINT64_MAX - 3, 8, &r));
    CU_ASSERT_TRUE(align_u64(33, 32, &r) && r == 64);
    CU_ASSERT_TRUE(align_u64(64, 32, &r) && r == 64);
    CU_ASSERT_TRUE(is_pow2(1) && is_pow2(1ull << 63) && !is_pow2(0) && !is_pow2(24));
}

TEST("names are printed without control bytes")
{
    char dst[SHOW_MAX];
    CU_ASSERT_STRING_EQUAL(show(dst, "a.b", 3), "a.b");
    CU_ASSERT_STRING_EQUAL(show(dst, "\x1b[31m\n", 6), "\\x1b[31m\\x0a");
    CU_ASSERT_STRING_EQUAL(show(dst, "\xc3\xbc\xc2\x9b\xff", 5), "\xc3\xbc\\xc2\\x9b\\xff");
    CU_ASSERT_STRING_EQUAL(show(dst, "\xe2\x80\xae!\xe2\x81\xa6\x7f\xe2\x80\x8d", 11),
                           "\\xe2\\x80\\xae!\\xe2\\x81\\xa6\\x7f\xe2\x80\x8d");
    char longname[1000];
    memset(longname, 1, sizeof(longname));
    CU_ASSERT_TRUE(strlen(show(dst, longname, sizeof(longname))) < SHOW_MAX);
    CU_ASSERT_PTR_NOT_NULL(strstr(dst, "..."));
}

/* Values from the reference implementation, one for each length of the tail. */
TEST("xxh64 equals its reference")
{
    static const char text[] =
        "Keys of a model, kept as they were before they were changed by anyone.";
    CU_ASSERT_EQUAL(xxh64(0, text, 0), 0xef46db3751d8e999);
    CU_ASSERT_EQUAL(xxh64(23, text, 23), 0xee08e43b2457af8d);
    CU_ASSERT_EQUAL(xxh64(46, text, 46), 0xce94781c617fb0ab);
    CU_ASSERT_EQUAL(xxh64(69, text, 69), 0xf44a71009b5dc029);
}

static int touch(void *arg)
{
    const volatile uint8_t *p = arg;
    return p[0];
}

TEST("a page that is gone gives EIO every time")
{
    int fd = memfd_create("map", 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 3 * 4096), 0);
    struct map m;
    CU_ASSERT_EQUAL_FATAL(map_open(&m, fd, 3 * 4096), 0);
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), 0);
    CU_ASSERT_EQUAL(map_check(&m, 3 * 4096), 0);
    CU_ASSERT_EQUAL(ftruncate(fd, 4096), 0);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), -EIO);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)(m.data + 8192)), -EIO);
    CU_ASSERT_EQUAL(map_guard(touch, (void *)(uintptr_t)m.data), 0);
    sigset_t mask;
    CU_ASSERT_EQUAL(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    CU_ASSERT_EQUAL(sigismember(&mask, SIGBUS), 0);
    CU_ASSERT_EQUAL(map_check(&m, 4097), -EIO);
    map_close(&m);
    (void)close(fd);
}

TEST("lines with tabs become aligned columns")
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, out = BUF_INIT;
    buf_str(&lines, "a\tbcd\t1\n\xc3\xa9\xc3\xa9\t\t22\nlonger than most\tx\t3\nend\n");
    buf_table(&lines, "lrr", 5, &out);
    buf_char(&out, '\0');
    CU_ASSERT_STRING_EQUAL(buf_text(&out), "a   bcd   1\n\xc3\xa9\xc3\xa9       22\n"
                                           "longer than most    x   3\nend\n");
    /* If memory ran out while a line was being written, the incomplete line is not read. */
    lines.len -= 3;
    lines.err = -ENOMEM;
    out.len = 0;
    buf_table(&lines, "lrr", 5, &out);
    CU_ASSERT_EQUAL(buf_error(&out), -ENOMEM);
    CU_ASSERT_EQUAL(out.len, 0);
}

static const char *const words[] = {"ro",      "rw",    "commit", "relayout",
                                    "reserve", "views", "uid",    "gid"};

static const char *meant(const char *word)
{
    struct nearest n = nearest_to(word, strlen(word));
    for (size_t i = 0; i < COUNT(words); i++)
        nearest_offer(&n, words[i], strlen(words[i]), i);
    return n.found ? words[n.which] : "";
}

TEST("the intended word is suggested")
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

static void call_now(struct pool_job *j)
{
    const struct timespec now = when_now();
    pool_call_at(j, &now);
}

struct work {
    struct pool_job job;
    sem_t begun, hang;
    bool hangs; /* each turn waits for `hang` */
    bool far;   /* asks for another turn, an hour later */
    atomic_uint turns;
    atomic_uint now;  /* turns that run at this moment */
    atomic_uint most; /* ... at the most */
};

static struct timespec in_an_hour(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 3600;
    return t;
}

static bool turn(struct pool_job *j, struct timespec *again)
{
    struct work *w = (struct work *)j;
    const unsigned now = atomic_fetch_add(&w->now, 1) + 1;
    if (now > atomic_load(&w->most))
        atomic_store(&w->most, now);
    atomic_fetch_add(&w->turns, 1);
    (void)sem_post(&w->begun);
    if (w->hangs)
        (void)sem_wait(&w->hang);
    atomic_fetch_sub(&w->now, 1);
    *again = in_an_hour();
    return w->far;
}

static void join(struct work *w)
{
    *w = (struct work){.turns = 0};
    (void)sem_init(&w->begun, 0, 0);
    (void)sem_init(&w->hang, 0, 0);
    CU_ASSERT_EQUAL_FATAL(pool_join(&w->job, turn), 0);
}

static void leave(struct work *w)
{
    pool_leave(&w->job);
    (void)sem_destroy(&w->begun);
    (void)sem_destroy(&w->hang);
}

/* Calls during a turn lead to one more turn, which does not overlap it. */
TEST("turns of one job do not overlap")
{
    struct work w;
    join(&w);
    w.hangs = true;
    call_now(&w.job);
    (void)sem_wait(&w.begun);
    for (unsigned i = 0; i < 10; i++)
        call_now(&w.job);
    (void)sem_post(&w.hang);
    (void)sem_post(&w.hang);
    leave(&w);
    CU_ASSERT_EQUAL(w.turns, 2);
    CU_ASSERT_EQUAL(w.most, 1);
}

/* ---- units ---- */

enum { MOST = 5000 };

struct units_job {
    atomic_uint times[MOST];
    atomic_uint done;
    uint64_t every; /* one unit in this many has work to do */
    uint64_t fails; /* units from this one on fail with -100 - unit; MOST: none fails */
    uint64_t progress;
};

static int unit(void *arg, uint64_t i, void *room)
{
    struct units_job *j = arg;
    memset(room, (int)i, 64);
    atomic_fetch_add(&j->times[i], 1);
    atomic_fetch_add(&j->done, 1);
    return i >= j->fails ? -100 - (int)i : 0;
}

static uint64_t next(void *arg, uint64_t i)
{
    const struct units_job *j = arg;
    return (i + j->every - 1) / j->every * j->every;
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    struct units_job *j = arg;
    CU_ASSERT_TRUE(done > j->progress && done <= all && all == MOST);
    j->progress = done;
}

static int run(struct units_job *j, uint64_t n, const struct units_watch *watch)
{
    struct units u = {.n = n, .unit = unit, .arg = j, .room = 64};
    u.next = j->every ? next : NULL;
    return units_run(&u, watch);
}

TEST("each unit runs once")
{
    struct units_job j = {.fails = MOST};
    struct units_watch w = {.progress = progress, .arg = &j};
    CU_ASSERT_EQUAL(run(&j, 0, &w), 0);
    CU_ASSERT_EQUAL(j.done, 0);
    CU_ASSERT_EQUAL(run(&j, MOST, &w), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_EQUAL(j.progress, MOST); /* even if another thread ran the last one */
}

TEST("units without work are skipped")
{
    struct units_job j = {.fails = MOST, .every = 7};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), 0);
    for (size_t i = 0; i < MOST; i++)
        CU_ASSERT_EQUAL(j.times[i], i % 7 == 0);
}

/* The first unit that fails is reported; all units before it are done. */
TEST("the first error is reported")
{
    struct units_job j = {.fails = 1234};
    CU_ASSERT_EQUAL(run(&j, MOST, NULL), -100 - 1234);
    for (size_t i = 0; i <= 1234; i++)
        CU_ASSERT_EQUAL(j.times[i], 1);
    CU_ASSERT_TRUE(j.done < MOST);
}
