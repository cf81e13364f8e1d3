/* SPDX-License-Identifier: MIT */
/* Failures around drafts of tensors: full disks, failing calls, cancelled work, a truncated model,
 * and concurrent writers. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc.h"
#include "base/bytes.h"
#include "live/tensor_judge.h"
#include "quant/types.h"
#include "tensor_dir.h"

static void scenario(struct tensor_dir *x, const struct units_watch *watch, int *ret)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct draft *d = NULL;
    static uint8_t bytes[240000];
    *ret = tensor_draft_make(&x->logs, x->base, TENSOR_F32, &d, NULL);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = i % 4 == 3 ? 0x41 : (uint8_t)i;
    for (size_t at = 0; *ret == 0 && at < 3; at++)
        *ret = tensor_draft_write(d, false, 4 + at * 80000, bytes, 70000, NULL);
    if (*ret == 0)
        *ret = tensor_draft_truncate(d, 200000, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 240000, bytes, 5760, NULL);
    if (*ret == 0)
        *ret = tensor_draft_judge(d, watch, &edit, NULL);
    if (*ret == TENSOR_CHANGED)
        tensor_draft_failed(d);
    tensor_edit_free(&edit);
    draft_free(d);
}

/* Write bytes in the middle, then more after them, cut off a few of those, extend the draft with
 * zeros, and write bytes near its beginning. The draft is in memory until the last write. */
static void spilled(struct tensor_dir *x, int *ret)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct draft *d = NULL;
    uint8_t bytes[8000], got[3] = "???";
    size_t n = 0;
    memset(bytes, 0x41, sizeof(bytes));
    *ret = tensor_draft_make(&x->logs, x->base, TENSOR_F32, &d, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 100000, bytes, 100, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 110000, bytes, 8000, NULL);
    if (*ret == 0)
        *ret = tensor_draft_truncate(d, 115000, NULL);
    if (*ret == 0)
        *ret = tensor_draft_truncate(d, 245760, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 40, bytes, 4, NULL);
    if (*ret == 0)
        *ret = tensor_draft_read(d, 114999, got, 3, &n);
    if (*ret == 0)
        CU_ASSERT_EQUAL(memcmp(got, "\x41\0\0", 3), 0);
    if (*ret == 0)
        *ret = tensor_draft_judge(d, NULL, &edit, NULL);
    if (*ret == TENSOR_CHANGED)
        tensor_draft_failed(d);
    tensor_edit_free(&edit);
    draft_free(d);
}

static void draft_and_judge(struct tensor_dir *x, int *ret)
{
    scenario(x, NULL, ret);
}

/* Make call n fail: the result is the error or a complete edit, and no file is left. Returns false
 * if there are fewer than n calls. */
static bool call_fails(void (*run)(struct tensor_dir *x, int *ret), enum fault_mode mode,
                       unsigned n)
{
    struct tensor_dir x;
    int r;
    tensor_dir_sane(&x, Q8_0_ID, SHAPE(1024, 60));
    tensor_dir_fault(&x, mode, n, n % 2 ? -EIO : -ENOSPC);
    x.fs.brief = mode == FAULT_SHORT;
    x.fs.no_tmpfile = n % 3 || mode == FAULT_BROKEN ? 0 : -EOPNOTSUPP;
    run(&x, &r);
    bool hit = x.fs.hit;
    CU_ASSERT_EQUAL(r, hit && r < 0 ? r : TENSOR_CHANGED);
    CU_ASSERT_TRUE(r > 0 || r == -EIO || r == -ENOSPC);
    tensor_dir_free(&x);
    return hit;
}

/* Each system call fails, either alone or with all later calls. */
static void test_calls(void)
{
    static const enum fault_mode modes[] = {FAULT_FAIL, FAULT_BROKEN, FAULT_SHORT};
    for (size_t m = 0; m < COUNT(modes); m++) {
        for (unsigned n = 1; call_fails(draft_and_judge, modes[m], n); n++)
            ;
        for (unsigned n = 1; call_fails(spilled, modes[m], n); n++)
            ;
    }
}

/* Each allocation fails, either alone or with all later ones. The result is -ENOMEM, and no memory
 * is leaked. */
static void each_allocation(void (*run)(struct tensor_dir *x, int *ret))
{
    struct tensor_dir x;
    tensor_dir_sane(&x, Q8_0_ID, SHAPE(1024, 60));
    bool failed = true;
    for (unsigned n = 1; failed; n++) {
        for (int rest = 0; rest < 2; rest++) {
            int r = 0;
            alloc_count();
            alloc_arm(n, rest);
            run(&x, &r);
            logs_rest(&x.logs);
            failed = alloc_disarm();
            CU_ASSERT_EQUAL(r, failed ? -ENOMEM : TENSOR_CHANGED);
            CU_ASSERT_EQUAL(alloc_live(), 0);
        }
    }
    tensor_dir_free(&x);
}

static void convert(struct tensor_dir *x, int *ret)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    *ret = tensor_convert(x->base, F16_ID, &x->logs, NULL, &edit, NULL);
    tensor_edit_free(&edit);
}

/* Write a NumPy array of a different shape. */
static void save(struct tensor_dir *x, int *ret)
{
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    struct draft *d = NULL;
    static const uint8_t head[128] =
        "\x93NUMPY\x01\x00\x76\x00{'descr':'<f4','fortran_order':False,'shape':(3,64)}          "
        "                                                        ";
    static const uint8_t zeros[768];
    *ret = tensor_draft_make(&x->logs, x->base, TENSOR_F32_NPY, &d, NULL);
    if (*ret == 0)
        *ret = tensor_draft_truncate(d, 0, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 0, head, 128, NULL);
    if (*ret == 0)
        *ret = tensor_draft_write(d, false, 128, zeros, 768, NULL);
    if (*ret == 0)
        *ret = tensor_draft_judge(d, NULL, &edit, NULL);
    if (*ret == TENSOR_CHANGED)
        tensor_draft_failed(d);
    tensor_edit_free(&edit);
    draft_free(d);
}

static void test_allocations(void)
{
    each_allocation(draft_and_judge);
    each_allocation(spilled);
    each_allocation(convert);
    each_allocation(save);
}

static void test_cancel(void)
{
    struct tensor_dir x;
    atomic_bool cancel = true;
    struct units_watch w = {.cancel = &cancel};
    int r;
    tensor_dir_sane(&x, Q8_0_ID, SHAPE(1024, 60));
    scenario(&x, &w, &r);
    CU_ASSERT_EQUAL(r, -EINTR);
    cancel = false;
    scenario(&x, &w, &r);
    CU_ASSERT_EQUAL(r, TENSOR_CHANGED);
    tensor_dir_free(&x);
}

/* A view is opened under a lock, so the disk is not used before the first write. If that write
 * fails, it can be retried. */
static void test_late_file(void)
{
    struct tensor_dir x;
    struct draft *d = NULL;
    struct err e = {0};
    char got[4];
    size_t n = 0;
    tensor_dir_make(&x, F32, false, SHAPE(1024), NULL);
    tensor_dir_fault(&x, FAULT_BROKEN, 1, -ENOSPC);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.logs, x.base, TENSOR_RAW, &d, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_truncate(d, 8, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, "abcd", 4, &e), -ENOSPC);
    CU_ASSERT_EQUAL(e.code, -ENOSPC);
    CU_ASSERT_FALSE(draft_is_due(d->state));
    tensor_dir_fault(&x, FAULT_BROKEN, 1000000, -EIO); /* so no call fails */
    CU_ASSERT_EQUAL(tensor_draft_read(d, 0, got, 4, &n), 0);
    CU_ASSERT_EQUAL(memcmp(got, x.raw, 4), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, "abcd", 4, &e), 0);
    CU_ASSERT_EQUAL(tensor_draft_read(d, 0, got, 4, &n), 0);
    CU_ASSERT_EQUAL(memcmp(got, "abcd", 4), 0);
    draft_free(d);
    tensor_dir_free(&x);
}

/* If a write beyond the end fails halfway, its bytes do not reappear when the draft grows. */
static void test_halfway(void)
{
    struct tensor_dir x;
    struct draft *d = NULL;
    struct err e = {0};
    uint8_t bytes[3000], got[800], expected[800] = {'a'};
    size_t n = 0;
    memset(bytes, 'x', sizeof(bytes));
    expected[799] = 'z';
    for (int by_write = 0; by_write < 2; by_write++) {
        d = NULL;
        tensor_dir_make(&x, F32, false, SHAPE(1024), NULL);
        CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.logs, x.base, TENSOR_RAW, &d, NULL), 0);
        CU_ASSERT_EQUAL(tensor_draft_truncate(d, 0, NULL), 0);
        CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, "a", 1, NULL), 0);
        tensor_dir_fault(&x, FAULT_BROKEN, 2, -ENOSPC);
        x.fs.brief = true;
        CU_ASSERT_EQUAL(tensor_draft_write(d, false, 1, bytes, sizeof(bytes), &e), -ENOSPC);
        CU_ASSERT_EQUAL(d->size, 1);
        CU_ASSERT_EQUAL(tensor_draft_write(d, false, 799, "z", 1, &e), -ENOSPC);
        CU_ASSERT_EQUAL(d->size, 1);
        tensor_dir_fault(&x, FAULT_NONE, 0, 0);
        if (!by_write)
            CU_ASSERT_EQUAL(tensor_draft_truncate(d, 800, &e), 0);
        CU_ASSERT_EQUAL(tensor_draft_write(d, false, 799, "z", 1, &e), 0);
        CU_ASSERT_EQUAL(tensor_draft_read(d, 0, got, sizeof(got), &n), 0);
        CU_ASSERT_EQUAL(n, sizeof(got));
        CU_ASSERT_EQUAL(memcmp(got, expected, sizeof(got)), 0);
        draft_free(d);
        tensor_dir_free(&x);
    }
}

/* Write beyond the end of a draft of `raw` while it is being judged, and make allocation n of that
 * write fail. The draft is then judged like any other. Returns false if there are fewer than n
 * allocations. */
static bool behind_judged(unsigned n)
{
    enum { SEALED = 1 << 20, ALL = 3 << 20, BEHIND = 2 << 20 };
    struct tensor_dir x;
    struct draft *d = NULL;
    struct tensor_round round;
    struct tensor_edit edit = TENSOR_EDIT_INIT;
    uint8_t *want = malloc(ALL);
    size_t got;
    for (size_t i = 0; i < ALL; i++)
        want[i] = (uint8_t)(i % 251);
    tensor_dir_make(&x, I8_ID, false, SHAPE(ALL), NULL);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.logs, x.base, TENSOR_RAW, &d, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_truncate(d, 0, NULL), 0);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, 0, want, SEALED, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_begin(d, &round), 1);
    alloc_arm(n, false);
    int r = tensor_draft_write(d, false, BEHIND, "behind", 6, NULL);
    bool failed = alloc_disarm();
    CU_ASSERT_EQUAL(r, failed ? -ENOMEM : 0);
    CU_ASSERT_EQUAL(d->size, failed ? SEALED : BEHIND + 6);
    CU_ASSERT_EQUAL(tensor_draft_end(d, &round, false, TENSOR_SHORT), TENSOR_SHORT);
    CU_ASSERT_EQUAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_SHORT);
    CU_ASSERT_EQUAL(tensor_draft_write(d, false, SEALED, want + SEALED, ALL - SEALED, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(tensor_draft_judge(d, NULL, &edit, NULL), TENSOR_CHANGED);
    struct tensor_base *now = tensor_dir_after(&x, x.base, &edit);
    uint8_t *bytes = tensor_dir_bytes(now, TENSOR_RAW, &got);
    CU_ASSERT_EQUAL(got, ALL);
    CU_ASSERT_EQUAL(memcmp(bytes, want, ALL), 0);
    free(bytes);
    free(want);
    tensor_draft_passed(d, now);
    tensor_base_unref(now);
    tensor_edit_free(&edit);
    draft_free(d);
    tensor_dir_free(&x);
    return failed;
}

static void test_behind_judged(void)
{
    for (unsigned n = 1; behind_judged(n); n++)
        ;
}

/* The model is truncated while its values are being compared. */
static void test_cut_model(void)
{
    struct tensor_dir x;
    int r;
    tensor_dir_sane(&x, Q8_0_ID, SHAPE(1024, 60));
    CU_ASSERT_EQUAL(map_guard_init(), 0);
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", x.path, NAME);
    CU_ASSERT_EQUAL(truncate(path, 5000), 0);
    scenario(&x, NULL, &r);
    CU_ASSERT_EQUAL(r, -EIO);
    tensor_dir_free(&x);
}

/* ---- concurrent writers ---- */

struct draft_writer {
    struct draft *d;
    atomic_bool stop;
    atomic_uint rounds;
};

static void *write_on(void *arg)
{
    struct draft_writer *w = arg;
    uint8_t bytes[512];
    for (unsigned i = 0; !atomic_load(&w->stop); i++) {
        size_t got;
        memset(bytes, (int)(i % 64), sizeof(bytes));
        (void)tensor_draft_write(w->d, false, (uint64_t)i % 700 * 512, bytes, 512, NULL);
        (void)tensor_draft_read(w->d, (uint64_t)i % 311 * 512, bytes, 512, &got);
        if (i % 1000 == 999)
            (void)tensor_draft_truncate(w->d, 700 * 512, NULL);
        atomic_fetch_add(&w->rounds, 1);
    }
    return NULL;
}

/* Bytes written during a judgement belong to it or to the next one; none is lost. */
static void test_meanwhile(void)
{
    struct tensor_dir x;
    tensor_dir_make(&x, I8_ID, false, SHAPE(512, 700), NULL);
    struct draft_writer w = {0};
    struct tensor_base *now = tensor_base_ref(x.base);
    pthread_t id;
    size_t n, got;
    CU_ASSERT_EQUAL_FATAL(tensor_draft_make(&x.logs, x.base, TENSOR_RAW, &w.d, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(pthread_create(&id, NULL, write_on, &w), 0);
    for (unsigned i = 0; i < 200 || w.rounds < 5000; i++) {
        struct tensor_edit edit = TENSOR_EDIT_INIT;
        int r = tensor_draft_judge(w.d, NULL, &edit, NULL);
        CU_ASSERT_TRUE(r == TENSOR_SAME || r == TENSOR_CHANGED || r == -EAGAIN);
        if (r == TENSOR_CHANGED && i % 5 == 0)
            tensor_draft_failed(w.d);
        else if (r == TENSOR_CHANGED) {
            struct tensor_base *next = tensor_dir_after(&x, now, &edit);
            tensor_draft_passed(w.d, next);
            tensor_base_unref(now);
            now = next;
        }
        tensor_edit_free(&edit);
    }
    atomic_store(&w.stop, true);
    (void)pthread_join(id, NULL);
    tensor_base_unref(now);
    if (draft_is_due(w.d->state)) {
        struct tensor_edit edit = TENSOR_EDIT_INIT;
        if (tensor_draft_judge(w.d, NULL, &edit, NULL) == TENSOR_CHANGED) {
            struct tensor_base *next = tensor_dir_after(&x, w.d->base, &edit);
            tensor_draft_passed(w.d, next);
            tensor_base_unref(next);
        }
        tensor_edit_free(&edit);
    }
    uint8_t *raw = tensor_dir_bytes(w.d->base, TENSOR_RAW, &n), *shown = malloc(n);
    CU_ASSERT_EQUAL(tensor_draft_read(w.d, 0, shown, n, &got), 0);
    CU_ASSERT_EQUAL(got, n);
    CU_ASSERT_EQUAL(memcmp(raw, shown, n), 0);
    free(raw);
    free(shown);
    draft_free(w.d);
    tensor_dir_free(&x);
}

static CU_TestInfo tests[] = {
    {"the first write creates a draft's file", test_late_file},
    {"every call fails once", test_calls},
    {"every allocation fails once", test_allocations},
    {"bytes that a failed write left past the end are not shown", test_halfway},
    {"a write past the end of a sealed draft runs out of memory", test_behind_judged},
    {"cancelled work ends early", test_cancel},
    {"the model is truncated while its values are compared", test_cut_model},
    {"concurrent writes are judged now or next time", test_meanwhile},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_faults", tests)
