/* SPDX-License-Identifier: MIT */
/* Scripts of edits, run with each allocation failing in turn. An edit may fail or succeed, but
 * afterwards the model is valid, no file is left beside it, and it can be edited again. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cu_main.h"
#include "history_dir.h"
#include "live/tensors.h"
#include "script_run.h"
#include "tree/nodes.h"

static const char *const ways[] = {
    "topen A a/raw rw; write A XY 2; flush A; close A; topen A z/f32 rw; tpoke A 400 '65 66'; "
    "close A;"
    "tput b/type 'F16\n'; tput b/shape 6; fsync",
    "tmv a d; tmkdir n; tput n/type I8; tput n/shape 3; tput n/raw 123; trmdir c; fsync; tmv n m",
    "tput a/.h 12345678; tmv a/.h a/.k; tmv a/.k a/raw; trm b/raw; tfloats b/f32 '6 5 4 3 2 1'; "
    "fsync",
    "put a.name two; mv a.count a.amount; rm a.other; put b.new 5; put .x y; mv .x a.list; type "
    "b.new u64;"
    "link .l t; rm .l; fsync",
    "mv a.name a.name~; put a.name three; rm a.name~; open A a.list w trunc; write A '4\n5\n'; "
    "close A;"
    "truncate a.list 0; add a.list 6; fsync",
    "tmkdir n; tput n/type F32; tput n/.h 12; tput n/f32 12345678; trm n/f32; trm n/.h; tput "
    "n/shape 2; trmdir n;"
    "ttruncate z/f32 4; tmvnew a n; tmv n a; trm a/f32; tput a/f32 12345678; topen A a/raw rw; "
    "write A Z 1; fsync A;"
    "close A; fsync",
    "topen A z/raw rw trunc; trunc A 1; write A 1 0; write A 2 2; write A 3 4; write A 4 6; write "
    "A 5 "
    "8; write A 6 10; write A 7 12; write A 8 14; close A; type a.other f32; fsync",
    "mknod m.k; put m.k 4; open A a.name rw; trunc A 5000; trunc A 0; write A 'two'; fsync A; "
    "close A; forgive "
    "a.name; fsync",
    /* Scripts with a history. */
    "put a.name two; put b.new 5; rm a.count; fsync; undo; undo; undo 1",
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static void do_all(struct run *r, const char *way)
{
    while (*way) {
        way += strspn(way, " ");
        size_t n = strcspn(way, ";");
        char op[80] = "";
        strncat(op, way, n < 79 ? n : 79);
        size_t handle = strcspn(op, " ") + 1;
        bool open = strstr(op, "open ") != NULL;
        /* Skip operations on files that could not be opened. */
        if (open || handle + 1 > strlen(op) || op[handle] < 'A' || op[handle] > 'Z' ||
            r->handle[op[handle] - 'A'].f)
            script_do(r, op, strlen(op));
        way += n + (way[n] == ';');
    }
}

/* Check the model and its directory, and that edits are possible again. */
static void check_after(struct run *r)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    r->lenient = false;
    CU_ASSERT_TRUE(script_model_tensors(&r->m, &text));
    CU_ASSERT_TRUE(script_model_alone(&r->m));
    script_start(r);
    script_do(r, "put z.last 1", 12);
    script_do(r, "fsync", 5);
    CU_ASSERT_EQUAL(script_finish(r), 0);
}

/* Run a script whose n-th allocation fails. Returns false if there are fewer than n. */
static bool fails_at(const char *way, unsigned n, enum live_commit commit)
{
    static const struct script s = {"memory is short", NULL, "", ""};
    struct run r = {.s = &s, .mode = way, .lenient = true};
    struct home x;
    r.opt = (struct tree_options){.strategy = EDIT_COPY,
                                  .commit = commit,
                                  .tensors = true,
                                  .history = strstr(way, "undo") ? 20 : 0,
                                  .log = {.line = script_log}};
    home_setup(&x);
    (void)setenv("XDG_STATE_HOME", x.path, 1);
    script_model_make(&r.m, SCRIPT_TENSORS);
    script_start(&r);
    alloc_arm(n, false);
    do_all(&r, way);
    bool hit = alloc_disarm();
    (void)script_finish(&r);
    check_after(&r);
    script_model_drop(&r.m);
    home_teardown(&x);
    return hit && !r.failed;
}

static void test_each(void)
{
    static const enum live_commit modes[] = {LIVE_COMMIT_SYNC, LIVE_COMMIT_CLOSE};
    for (size_t i = 0; i < 2 * WAYS; i++) {
        unsigned n = 1;
        while (fails_at(ways[i / 2], n, modes[i % 2]))
            n++;
        CU_ASSERT_TRUE(n > 50);
    }
}

/* ---- one operation that fails ---- */

static void begin(struct run *r, enum live_commit commit)
{
    static const struct script s = {"one operation fails", NULL, "", ""};
    *r = (struct run){.s = &s, .mode = "one"};
    r->opt = (struct tree_options){.strategy = EDIT_COPY, .commit = commit};
    script_model_make(&r->m, 0);
    script_start(r);
}

static void end(struct run *r)
{
    (void)script_finish(r);
    CU_ASSERT_FALSE(r->failed);
    script_model_drop(&r->m);
}

static void do_one(struct run *r, const char *op)
{
    script_do(r, op, strlen(op));
}

/* Run an operation whose n-th allocation fails. Returns false if there are fewer than n. */
static bool do_short(struct run *r, const char *op, unsigned n)
{
    r->lenient = true;
    alloc_arm(n, false);
    do_one(r, op);
    bool hit = alloc_disarm();
    r->lenient = false;
    return hit;
}

/* Reopen a file with an accepted draft while the n-th allocation fails. */
static bool reopens(unsigned n)
{
    struct run r;
    begin(&r, LIVE_COMMIT_SYNC);
    do_one(&r, "open A a.list rw trunc");
    for (int i = 0; i < 2000; i++)
        do_one(&r, "write A '123\n'");
    do_one(&r, "flush A");
    alloc_count();
    bool hit = do_short(&r, "open B a.list rw", n);
    CU_ASSERT_TRUE(r.handle[1].f || alloc_live() <= 0);
    end(&r);
    return hit;
}

static void test_reopened(void)
{
    unsigned n = 1;
    while (reopens(n))
        n++;
    CU_ASSERT_TRUE(n > 5);
}

/* Run `op` with the n-th allocation failing. If `op` is refused, the next edit must work as usual:
 * a signal ends the wait for that edit, which takes effect nevertheless. `op` is an edit that is
 * planned before it is accepted, or one that counts as two. */
static bool is_counted(const char *op, const char *name, int refused, unsigned n)
{
    struct run r;
    begin(&r, LIVE_COMMIT_CLOSE);
    bool hit = do_short(&r, op, n);
    struct live_attr attr;
    struct live *l = atomic_load(&r.t->live);
    if (!l || live_lookup(l, name, &attr) == refused) {
        do_one(&r, "hold");
        do_one(&r, "& mv a.count a.amount");
        do_one(&r, "held");
        do_one(&r, "interrupt");
        do_one(&r, "wait =EINTR");
        do_one(&r, "go");
        do_one(&r, "list a.name a.amount a.other a.list");
    }
    end(&r);
    return hit;
}

static void test_counted(void)
{
    unsigned n = 1, over = 1;
    while (is_counted("put general.alignment 64", "general.alignment", -ENOENT, n))
        n++;
    while (is_counted("mv a.count a.other", "a.count", 0, over))
        over++;
    CU_ASSERT_TRUE(n > 20 && over > 10);
}

static CU_TestInfo tests[] = {
    {"an allocation that fails leaves the model valid and editable", test_each},
    {"a file that cannot be opened again leaves no memory", test_reopened},
    {"an edit that was refused does not count", test_counted},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live_nomem", tests)
