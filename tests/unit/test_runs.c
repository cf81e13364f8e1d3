/* SPDX-License-Identifier: MIT */
/* base/runs, base/fetch: what is read ahead of programs, and how. */
#include "cu_main.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/fetch.h"
#include "base/runs.h"

#define K ((uint64_t)1 << 10)
#define M (K << 10)

/* A read of a part that ends at `stop`. */
static uint64_t note_of(struct runs *r, uint64_t off, uint64_t n, uint64_t stop)
{
    uint64_t from, end = runs_note(r, off, n, stop, 999 * M, &from);
    CU_ASSERT_TRUE(from >= off + n);
    CU_ASSERT_TRUE(from <= end);
    return end;
}

static uint64_t note(struct runs *r, uint64_t off, uint64_t n)
{
    return note_of(r, off, n, 999 * M);
}

/* Reads of 64 KiB in order from `at` on; returns how far beyond them was read ahead. */
static uint64_t read_in_order(struct runs *r, uint64_t at, uint64_t n)
{
    uint64_t upto = at, end = at + n;
    for (; at < end; at += 64 * K)
        upto = max_u64(upto, note(r, at, 64 * K));
    return upto - end;
}

static void test_bounds(void)
{
    struct runs r;
    runs_init(&r, 0, 2 * M);
    /* A single read costs itself, wherever it is, and also repeated. */
    CU_ASSERT_EQUAL(note(&r, 900 * M, 16 * K), 900 * M + 16 * K);
    CU_ASSERT_EQUAL(note(&r, 900 * M, 16 * K), 900 * M + 16 * K);
    CU_ASSERT_EQUAL(note(&r, 300 * M, 3 * M), 303 * M);
    /* Reads in order cost at most as much again, and 2 MiB. */
    CU_ASSERT_EQUAL(read_in_order(&r, 500 * M, 64 * K), 0);
    uint64_t more = read_in_order(&r, 400 * M, 256 * K);
    CU_ASSERT_TRUE(more > 0 && more <= 256 * K);
    more = read_in_order(&r, 100 * M, 30 * M);
    CU_ASSERT_TRUE(more >= M && more <= 2 * M);
    /* Nothing is read beyond the end. */
    CU_ASSERT_EQUAL(read_in_order(&r, 990 * M, 9 * M), 0);
    runs_free(&r);
}

/* Each byte once, in order, and none before as much was read as is worth a thread's while. */
static void test_once(void)
{
    struct runs r;
    uint64_t from, end, upto = 0;
    runs_init(&r, M, 8 * M);
    for (uint64_t at = 0; at < 100 * M; at += 128 * K) {
        end = runs_note(&r, at, 128 * K, 999 * M, 999 * M, &from);
        if (from == end)
            continue;
        CU_ASSERT_TRUE(at >= M);
        CU_ASSERT_EQUAL(from, upto ? upto : at + 128 * K);
        upto = end;
    }
    CU_ASSERT_TRUE(upto >= 104 * M && upto <= 108 * M);
    runs_free(&r);
}

/* Not beyond the part that is read, but for a program that went on beyond another. */
static void test_parts(void)
{
    struct runs r;
    uint64_t upto = 0;
    runs_init(&r, 0, 8 * M);
    for (uint64_t at = 0; at < 20 * M; at += 256 * K)
        upto = max_u64(upto, note_of(&r, at, 256 * K, 20 * M));
    CU_ASSERT_EQUAL(upto, 20 * M);
    /* Into the next part, of 1 MiB, and the one after it. */
    upto = note_of(&r, 20 * M, 256 * K, 21 * M);
    CU_ASSERT_TRUE(upto > 24 * M && upto <= 28 * M + 256 * K);
    /* Another program, in a part that the first one left. */
    for (uint64_t at = 0; at < 12 * M; at += 256 * K)
        upto = note_of(&r, at, 256 * K, 12 * M + 1);
    CU_ASSERT_TRUE(upto <= 12 * M + 1);
    runs_free(&r);
}

/* As many programs as there are runs, in turns. */
static void test_many(void)
{
    struct runs r;
    runs_init(&r, 0, 2 * M);
    for (uint64_t at = 0; at < 20 * M; at += 256 * K)
        for (uint64_t i = 0; i < RUNS_MOST; i++)
            (void)note(&r, 100 * M * i + at, 256 * K);
    for (uint64_t i = 0; i < RUNS_MOST; i++) {
        uint64_t more = read_in_order(&r, 100 * M * i + 20 * M, 2 * M);
        CU_ASSERT_TRUE(more >= M && more <= 2 * M);
    }
    runs_free(&r);
}

/* Requests of one readahead in any order are in order; a page here and there is not, however near. */
static void test_order(void)
{
    static const uint64_t order[] = {1, 0, 3, 2, 4, 7, 6, 5};
    struct runs r;
    uint64_t upto = 0, seed = 1;
    runs_init(&r, M, 8 * M);
    for (uint64_t i = 0; i < 80; i++)
        upto = max_u64(upto, note(&r, (i / 8 * 8 + order[i % 8]) * 256 * K, 256 * K));
    CU_ASSERT_TRUE(upto > 22 * M && upto <= 28 * M);
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t at = 500 * M + (seed >> 33) % (16 * M / 4096) * 4096;
        CU_ASSERT_EQUAL(note(&r, at, 4096), at + 4096);
        at = 800 * M + (uint64_t)i * 64 * K % (100 * M); /* a page of each 64 KiB */
        CU_ASSERT_EQUAL(note(&r, at, 4096), at + 4096);
    }
    runs_free(&r);
}

static void post(void *owner)
{
    (void)sem_post(owner);
}

static size_t resident(const struct map *m)
{
    unsigned char there[1024];
    size_t pages = (size_t)m->size / (size_t)sysconf(_SC_PAGESIZE), n = 0;
    CU_ASSERT_TRUE_FATAL(pages <= sizeof(there));
    CU_ASSERT_EQUAL(mincore((void *)(uintptr_t)m->data, (size_t)m->size, there), 0);
    for (size_t i = 0; i < pages; i++)
        n += there[i] & 1;
    return n;
}

/* All pages are there when it is reported; what is there already, or not in the file, begins nothing. */
static void test_fetch(void)
{
    char name[] = "fetch-XXXXXX";
    int fd = mkstemp(name);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = 1024 * page;
    struct map m;
    sem_t done;
    CU_ASSERT_TRUE_FATAL(fd >= 0);
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    uint8_t *bytes = malloc(size);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    memset(bytes, 7, size);
    CU_ASSERT_EQUAL(write(fd, bytes, size), (ssize_t)size);
    CU_ASSERT_EQUAL(fsync(fd), 0);
    CU_ASSERT_EQUAL(map_open(&m, fd, size), 0);
    CU_ASSERT_EQUAL(sem_init(&done, 0, 0), 0);
    CU_ASSERT_FALSE(fetch_pages(&m, 0, 0, &done, post));
    CU_ASSERT_FALSE(fetch_pages(&m, size, 1, &done, post));
    CU_ASSERT_FALSE(fetch_pages(&m, 1, size, &done, post));
    CU_ASSERT_EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    if (resident(&m) == 0) { /* else it is kept in memory alone */
        CU_ASSERT_TRUE(fetch_pages(&m, 1, size - 1, &done, post));
        CU_ASSERT_EQUAL(sem_wait(&done), 0);
        CU_ASSERT_EQUAL(resident(&m), 1024);
    }
    if (resident(&m) == 1024)
        CU_ASSERT_FALSE(fetch_pages(&m, 0, size, &done, post));
    /* A file that was cut is nothing that the thread could fail of. */
    CU_ASSERT_EQUAL(ftruncate(fd, 0), 0);
    if (fetch_pages(&m, 0, size, &done, post))
        CU_ASSERT_EQUAL(sem_wait(&done), 0);
    map_close(&m);
    free(bytes);
    (void)sem_destroy(&done);
    (void)close(fd);
    (void)unlink(name);
}

static CU_TestInfo tests[] = {
    {"what is read ahead is bounded by what is read", test_bounds},
    {"what is read ahead is read once", test_once},
    {"what is read ahead ends with the part that is read, or goes on with the program", test_parts},
    {"several programs read in order at once", test_many},
    {"requests overtake each other; random reads are none in order", test_order},
    {"pages are brought into memory by another thread", test_fetch},
    CU_TEST_INFO_NULL,
};

CU_MAIN("runs", tests)
