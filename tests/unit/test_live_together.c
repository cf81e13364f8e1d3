/* SPDX-License-Identifier: MIT */
/* Two programs make requests at the same time. Both wait for the same edit, and one gets a signal;
 * both close a view; one opens a key while an edit by the other replaces the file. */
#include <stdatomic.h>
#include <string.h>

#include "cu_main.h"
#include "live/batch.h"
#include "live/views.h"
#include "script_run.h"
#include "tree/file.h"
#include "tree/nodes.h"

/* Two programs have written to one draft, so the edit belongs to both. */
static void test_signal(void)
{
    static const struct script s = {"two closes wait for one edit", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    r.opt = (struct tree_options){.commit = LIVE_COMMIT_CLOSE, .tensors = true};
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    script_one(&r, "open H a.name w trunc");
    script_one(&r, "write H two");
    script_one(&r, "hold");
    script_one(&r, "& flush H");
    script_one(&r, "held");
    script_one(&r, "topen A a/raw rw");
    script_one(&r, "topen B a/raw rw");
    script_one(&r, "write A X 2");
    script_one(&r, "write B Y 3");
    struct live *l = atomic_load(&r.t->live);
    struct draft *d = script_handle(&r, "A")->f->view->d;
    CU_ASSERT_EQUAL(view_judge(l, d, false, NULL), 1); /* the first half of a close of A */
    script_one(&r, "& flush B");
    script_one(&r, "& flush A");
    script_one(&r, "interrupt");
    script_one(&r, "go");
    script_one(&r, "wait");
    script_one(&r, "wait");
    script_one(&r, "wait =EINTR");
    script_one(&r, "ttext a/raw abXYefgh");
    script_one(&r, "release A");
    script_one(&r, "release B");
    script_one(&r, "release H");
    script_one(&r, "fsync");
    script_one(&r, "ttext a/raw abXYefgh");
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

/* The run whose file A is released during another call. */
static struct run *released;

static void on_end(struct live_wait *w, int result)
{
    (void)w;
    CU_ASSERT_EQUAL(result, 0);
}

/* A and B have the same draft. B is closed while the close of A is being judged. */
static struct {
    struct tree *t;
    struct tree_file *b;
    struct live_wait wait[2];
    int answered;
} closes;

static void on_answer(struct live_wait *w, int result)
{
    CU_ASSERT_EQUAL(result, 0);
    CU_ASSERT_PTR_EQUAL(w, &closes.wait[closes.answered++]);
}

static int judge_first(struct live *l, struct live_wait *w, bool stopped)
{
    (void)l;
    CU_ASSERT_PTR_EQUAL(w, &closes.wait[0]);
    CU_ASSERT_FALSE(stopped);
    CU_ASSERT_EQUAL(tree_flush(closes.b, &closes.wait[1]), LIVE_PARKED);
    CU_ASSERT_EQUAL(closes.answered, 0);
    return 0;
}

/* The first close is answered before the second is judged. */
static void test_behind(void)
{
    static const struct script s = {"a close comes while another one is judged", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    r.opt = (struct tree_options){.commit = LIVE_COMMIT_CLOSE, .tensors = true};
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    script_one(&r, "topen A a/raw rw");
    script_one(&r, "topen B a/raw rw");
    closes.t = r.t;
    closes.b = script_handle(&r, "B")->f;
    closes.wait[0].done = closes.wait[1].done = on_answer;
    struct live *l = atomic_load(&r.t->live);
    struct live_view *a = script_handle(&r, "A")->f->view;
    CU_ASSERT_EQUAL(waits_judge(l, a, judge_first, &closes.wait[0]), LIVE_PARKED);
    CU_ASSERT_EQUAL(closes.answered, 2);
    script_one(&r, "release A");
    script_one(&r, "release B");
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

/* Let the release of A arrive during another call, then end the mount. */
static int release_and_end(struct live *l, struct live_wait *w, bool stopped)
{
    (void)w;
    (void)stopped;
    script_one(released, "release A");
    live_abandon(l);
    return 0;
}

/* If a release arrives before the mount ends, the draft is judged even if the release is handled
 * only afterwards. */
static void test_release_at_the_end(void)
{
    static const struct script s = {"a release comes just before the end", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    struct live_wait wait = {.done = on_end};
    r.opt = (struct tree_options){.commit = LIVE_COMMIT_CLOSE, .tensors = true};
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    script_one(&r, "topen A a/raw w");
    script_one(&r, "write A X");
    struct live *l = atomic_load(&r.t->live);
    struct live_view *a = script_handle(&r, "A")->f->view;
    released = &r;
    CU_ASSERT_EQUAL(waits_judge(l, a, release_and_end, &wait), LIVE_PARKED);
    script_one(&r, "ttext a/raw Xbcdefgh");
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

/* The run in which another program makes an edit just before the model's name is next checked. */
static struct run *edited;

static int look_late(const struct sys *s, int dir, const char *name, struct stat *st)
{
    struct run *r = edited;
    (void)s;
    edited = NULL;
    if (r)
        script_one(r, "put a.count 9");
    return sys_libc.fstatat(&sys_libc, dir, name, st);
}

/* An edit made by the other program through the tree does not count as a change from outside. */
static void test_replaced(void)
{
    static const struct script s = {"a key is opened while the file is replaced", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    struct sys late = sys_libc;
    r.opt = (struct tree_options){.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE};
    script_model_make(&r.m, 0);
    script_start(&r);
    script_one(&r, "put a.name two");
    late.fstatat = look_late;
    struct live *l = atomic_load(&r.t->live);
    l->file->sys = &late;
    edited = &r;
    script_one(&r, "open A a.other w trunc");
    CU_ASSERT_PTR_NULL(edited);
    script_one(&r, "write A 10");
    script_one(&r, "close A");
    script_one(&r, "file a.name:string=two a.count:u32=9 a.other:u32=10 " A_LIST);
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

static CU_TestInfo tests[] = {
    {"a key is opened while an edit replaces the file", test_replaced},
    {"a signal interrupts one of two requests that wait for an edit", test_signal},
    {"a close comes while another close is judged", test_behind},
    {"a release comes just before the end of the mount", test_release_at_the_end},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live together", tests)
