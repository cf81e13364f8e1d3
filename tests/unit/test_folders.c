/* SPDX-License-Identifier: MIT */
/* What is known of tensors' folders; and mappings that keep their bytes while their file is changed. */
#include "cu_main.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "live/core.h"
#include "live/folders.h"
#include "live/makings.h"
#include "model/store.h"

enum { MANY = 1000 };

static void test_found(void)
{
    struct folders s = {0};
    CU_ASSERT_PTR_NULL(folders_find(&s, 5));
    for (uint32_t i = 0; i < MANY; i++)
        CU_ASSERT_PTR_NOT_NULL_FATAL(folders_get(&s, 7 * i));
    for (uint32_t i = 0; i < 7 * MANY; i++) {
        const struct folder *f = folders_find(&s, i);
        CU_ASSERT(i % 7 ? !f : f && f->number == i);
    }
    CU_ASSERT_PTR_NULL(folders_find(&s, UINT32_MAX));
    folders_free(&s);
}

static void test_removed(void)
{
    struct folders s = {0};
    struct folder *a = folders_get(&s, 1), *b = folders_get(&s, 2), *c = folders_get(&s, 3);
    CU_ASSERT_FATAL(a && b && c);
    folder_doom(&s, a);
    folder_doom(&s, b);
    folder_doom(&s, c);
    folder_doom(&s, a);
    CU_ASSERT_EQUAL(s.n_doomed, 3);
    CU_ASSERT_FALSE(folders_due(&s)); /* not before two quiet seconds */
    s.now = true;
    CU_ASSERT(folders_due(&s));
    folders_untie(&s, b);
    folders_untie(&s, b);
    CU_ASSERT(!b->doomed && s.n_doomed == 2);
    struct folder *all = folders_take(&s);
    CU_ASSERT(all == a && a->next_doomed == c && !c->next_doomed);
    CU_ASSERT(!a->doomed && !s.doomed && !s.n_doomed && !folders_due(&s));
    folder_hide(a, 3);
    folder_back(a);
    CU_ASSERT(a->generation == 1 && !folder_hidden(a) && !a->removed);
    folders_free(&s);
}

static void test_hidden(void)
{
    struct folders s = {0};
    struct folder *f = folders_get(&s, 1);
    CU_ASSERT_FATAL(f != NULL);
    folder_hide(f, 0);
    folder_hide(f, 5);
    CU_ASSERT_EQUAL(folder_hidden(f), 1 << 0 | 1 << 5);
    folder_unhide(f, 0);
    CU_ASSERT_EQUAL(folder_hidden(f), 1 << 5);
    f->hidden_at.tv_sec -= FOLDERS_VIEWS; /* as if so long ago */
    CU_ASSERT_EQUAL(folder_hidden(f), 0);
    folder_set_error(&s, f, "why");
    folder_set_error(&s, f, "another");
    CU_ASSERT(s.n_errors == 1 && strcmp(f->error, "another") == 0);
    folder_set_error(&s, f, NULL);
    CU_ASSERT(s.n_errors == 0 && !f->error);
    folders_free(&s);
}

/* Tensors in the making are judged two quiet seconds after the first of those that wait, rounded up. */
static void test_makings_due(void)
{
    static struct live l;
    struct making m[5] = {{.dirty = true, .gone = true},
                          {.dirty = true, .open = 1},
                          {.dirty = false},
                          {.dirty = true, .last = {100, 999999999}},
                          {.dirty = true, .last = {200, 5}}};
    lock_init(&l.lock);
    lock_take(&l.lock);
    CU_ASSERT_PTR_NULL(makings_due_at(&l));
    for (size_t i = 0; i < 5; i++) {
        making_queue(&l, &m[i]);
        const struct timespec *due = makings_due_at(&l);
        CU_ASSERT_EQUAL(due != NULL, i >= 3);
        CU_ASSERT(i < 3 || (due->tv_sec == 103 && due->tv_nsec == 0));
    }
    m[4].gone = true;
    making_queue(&l, &m[4]);
    l.judging = &m[3];
    CU_ASSERT_FALSE(makings_due(&l));
    l.judging = NULL;
    CU_ASSERT_TRUE(makings_due(&l)); /* that was long ago */
    m[3].open = 1;
    making_queue(&l, &m[3]);
    l.folders.now = true;
    CU_ASSERT_FALSE(makings_due(&l)); /* not while it is written */
    l.stop = true;
    making_queue(&l, &m[3]);
    CU_ASSERT_TRUE(makings_due(&l));
    l.stop = false;
    m[3].open = 0;
    (void)clock_gettime(CLOCK_MONOTONIC, &m[3].last);
    m[3].last.tv_sec += 1000;
    CU_ASSERT_TRUE(makings_due(&l)); /* a sync of the folder does not wait */
    l.folders.now = false;
    CU_ASSERT_FALSE(makings_due(&l));
    lock_drop(&l.lock);
    lock_destroy(&l.lock);
}

static CU_TestInfo tests[] = {
    {"folders are found by number", test_found},
    {"removed ones wait, and come back as others", test_removed},
    {"views that were unlinked, and errors", test_hidden},
    {"when tensors in the making are judged", test_makings_due},
    CU_TEST_INFO_NULL,
};

CU_MAIN("folders", tests)
