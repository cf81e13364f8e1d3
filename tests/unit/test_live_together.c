/* SPDX-License-Identifier: MIT */
/* Requests of two programs at the same moment: both wait for one edit, and one gets a signal. */
#include <stdatomic.h>
#include <string.h>

#include "cu_main.h"
#include "live/core.h"
#include "live/view.h"
#include "script_run.h"
#include "tree/handle.h"
#include "tree/internal.h"

static void do_one(struct run *r, const char *op)
{
    script_do(r, op, strlen(op));
}

/* What two programs have written to one draft: the edit is also that of the other one. */
static void test_signal(void)
{
    static const struct script s = {"two closes wait for one edit", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    r.opt = (struct tree_options){.commit = LIVE_COMMIT_CLOSE, .tensors = true};
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    do_one(&r, "open H a.name w trunc");
    do_one(&r, "write H two");
    do_one(&r, "hold");
    do_one(&r, "& flush H");
    do_one(&r, "held");
    do_one(&r, "topen A a/raw rw");
    do_one(&r, "topen B a/raw rw");
    do_one(&r, "write A X 2");
    do_one(&r, "write B Y 3");
    struct live *l = atomic_load(&r.t->live);
    struct view_draft *d = script_handle(&r, "A")->f->view->d;
    CU_ASSERT_EQUAL(d->of->judge(l, d, d->of->ends, NULL), 1); /* the first half of a close of A */
    do_one(&r, "& flush B");
    lock_take(&l->lock);
    CU_ASSERT_FALSE(d->accepted);
    d->accepted = true; /* as that of A knows */
    lock_drop(&l->lock);
    do_one(&r, "& flush A");
    do_one(&r, "interrupt");
    do_one(&r, "go");
    do_one(&r, "wait");
    do_one(&r, "wait");
    do_one(&r, "wait =EINTR");
    do_one(&r, "ttext a/raw abXYefgh");
    do_one(&r, "release A");
    do_one(&r, "release B");
    do_one(&r, "release H");
    do_one(&r, "fsync");
    do_one(&r, "ttext a/raw abXYefgh");
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    script_model_drop(&r.m);
}

static CU_TestInfo tests[] = {
    {"a signal to one of two that wait for an edit", test_signal},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live together", tests)
