/* SPDX-License-Identifier: MIT */
/*
 * Calls that programs seldom make: on hidden keys, on names that another program has just created,
 * and with text that is not UTF-8. Also signals to requests that wait behind others, and a
 * strategy that the disk does not support.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cu_main.h"
#include "live/batch.h"
#include "live/files.h"
#include "live/views.h"
#include "script_run.h"
#include "tree/file.h"
#include "tree/nodes.h"

/* Begin a run, and create a helper to start editing the model. */
static struct live *begin(struct run *r, unsigned how, enum edit_strategy strategy)
{
    static const struct script s = {"seldom calls", NULL, "", ""};
    *r = (struct run){.s = &s, .mode = "sync"};
    r->opt = (struct tree_options){.strategy = strategy,
                                   .commit = LIVE_COMMIT_SYNC,
                                   .tensors = how & SCRIPT_TENSORS,
                                   .log = {.line = script_log}};
    script_log_clear();
    script_model_make(&r->m, how);
    script_start(r);
    script_one(r, "put .x y");
    return atomic_load(&r->t->live);
}

static void end(struct run *r)
{
    CU_ASSERT_FALSE(r->failed);
    CU_ASSERT_EQUAL(script_finish(r), 0);
    script_model_drop(&r->m);
}

/* ---- hidden keys ---- */

/* The kernel's file handles can contain the number of a hidden key. */
static void test_own_by_number(void)
{
    struct run r;
    struct live_file *f = NULL;
    struct live_text text = {0};
    struct live_wait w = {0};
    struct live *l = begin(&r, SCRIPT_SPLIT, EDIT_COPY);
    const uint32_t number = gguf_find_key(snapshot_own(l->disk.snap), "split.no", 8);
    CU_ASSERT_EQUAL_FATAL(live_open_file(l, number, O_RDWR, &f, &text), 0);
    CU_ASSERT_EQUAL(live_write(l, f, 0, "5", 1), 0);
    CU_ASSERT_EQUAL(live_flush(l, f, &w), -EPERM);
    live_release(l, f);
    script_one(&r, "rm split.no =EPERM");
    script_one(&r, "mv .x split.no =EPERM");
    script_one(&r, "open A .y w creat");
    script_one(&r, "mv .y split.no =EPERM");
    script_one(&r, "close A");
    script_one(&r, "fsync");
    script_one(&r, "list a.name a.count a.other a.list .x .y");
    script_one(&r, "file " UNCHANGED);
    end(&r);
}

static void test_reserve(void)
{
    struct run r;
    (void)begin(&r, 0, EDIT_COPY);
    CU_ASSERT_EQUAL(script_finish(&r), 0);
    r.opt.reserve = 64;
    script_start(&r);
    script_one(&r, "put a.name two");
    script_one(&r, "fsync");
    const struct live *l = atomic_load(&r.t->live);
    CU_ASSERT_NOT_EQUAL(gguf_find_key(l->disk.snap->gguf, "ggufs.reserve", 13), UINT32_MAX);
    script_one(&r, "gone ggufs.reserve");
    script_one(&r, "put ggufs.reserve x =EPERM");
    script_one(&r, "list a.name a.count a.other a.list");
    end(&r);
}

/* ---- what another program has made since the kernel's lookup ---- */

static void test_made_since(void)
{
    struct run r;
    struct live_file *f = NULL;
    struct live_attr attr;
    struct live_view *v = NULL;
    uint32_t tensor = 0, node = 0;
    struct live *l = begin(&r, SCRIPT_TENSORS, EDIT_COPY);
    script_one(&r, "link .l target");
    CU_ASSERT_EQUAL(live_create(l, ".l", 0, &attr, &f), -ELOOP);
    script_one(&r, "readlink .l target");
    script_one(&r, "tput a/.h 12");
    CU_ASSERT_EQUAL(live_tensor_find(l, "a", &tensor), 0);
    CU_ASSERT_EQUAL(live_helper_create(l, tensor, ".h", O_EXCL, &v, &node), -EEXIST);
    CU_ASSERT_EQUAL_FATAL(live_helper_create(l, tensor, ".h", 0, &v, &node), 0);
    CU_ASSERT_EQUAL(live_view_write(l, v, 0, "3", 1, NULL), 0);
    live_view_release(l, v);
    script_one(&r, "ttext a/.h 32");
    CU_ASSERT_EQUAL_FATAL(live_helper_create(l, tensor, ".h", O_TRUNC, &v, &node), 0);
    live_view_release(l, v);
    script_one(&r, "ttext a/.h ''");
    end(&r);
}

/* ---- text that is not UTF-8 ---- */

/* The text of a stored value is accepted, even if it is written line by line. */
static void test_not_utf8(void)
{
    static const struct script s = {"not UTF-8", NULL, "", ""};
    struct run r = {.s = &s, .mode = "close"};
    r.opt = (struct tree_options){.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE};
    script_model_make(&r.m, 0);
    const uint8_t *at = memmem(r.m.old.bytes, r.m.old.n, "one", 3);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    int fd = open(r.m.place.model, O_WRONLY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(pwrite(fd, "\xff\nx", 3, at - (const uint8_t *)r.m.old.bytes), 3);
    (void)close(fd);
    script_start(&r);
    script_one(&r, "open A a.name w trunc");
    script_one(&r, "write A '\xff\n'");
    script_one(&r, "write A 'x\n'");
    script_one(&r, "close A");
    script_one(&r, "text a.name '\xff\nx\n'");
    script_one(&r, "put a.name '\xff\ny\n' =EILSEQ");
    script_one(&r, "put a.name '\xfe\n' =EILSEQ");
    script_one(&r, "text a.name '\xff\nx\n'");
    end(&r);
}

/* ---- a strategy that the disk does not support ---- */

static void test_no_clones(void)
{
    struct run r;
    struct live *l = begin(&r, 0, EDIT_REFLINK);
    l->file->clone = EDIT_CLONE_NO;
    script_one(&r, "put a.name two =EOPNOTSUPP");
    script_one(&r, "logged 'the file system cannot clone ranges'");
    script_one(&r, "text a.name 'one\n'");
    end(&r);
}

/* ---- an accepted edit that cannot be planned ---- */

static int list(struct live *l)
{
    struct live_list names = {0};
    int r = live_list(l, &names);
    live_list_free(&names);
    return r;
}

static int freshen(struct live *l)
{
    return live_freshen(l, true, NULL);
}

/* If an edit that cannot be planned is accepted by mistake, that edit is lost, but the model can be
 * listed and edited again without an unmount. */
static void test_no_plan(void)
{
    int (*const looks[])(struct live * l) = {list, freshen};
    for (size_t i = 0; i < 2; i++) {
        struct run r;
        struct live *l = begin(&r, 0, EDIT_COPY);
        struct buf none = BUF_INIT;
        struct edit_value *v = edit_value_make(GGUF_U32, &none);
        script_one(&r, "put a.name two");
        lock_take(&l->lock);
        CU_ASSERT_EQUAL(edit_set(&l->next.change, "a.bad", 5, v, EDIT_LAST, NULL), 0);
        batch_note(l);
        lock_drop(&l->lock);
        edit_value_unref(v);
        CU_ASSERT_EQUAL(looks[i](l), -EINVAL);
        for (unsigned tries = 0; looks[i](l) < 0 && tries < 1000; tries++)
            (void)usleep(10000);
        script_one(&r, "list a.name a.count a.other a.list .x");
        script_one(&r, "logged 'a.name: string, 3 -> 3 bytes: not written'");
        script_one(&r, "refused a.name");
        script_one(&r, "fsync =EINVAL");
        script_one(&r, "put a.name three");
        script_one(&r, "fsync");
        script_one(&r, "file a.name:string=three " A_COUNT A_OTHER A_LIST);
        end(&r);
    }
}

/* ---- what is refused ---- */

/* Lost or incomplete tensors do not count as refused. */
static void test_refused(void)
{
    struct run r;
    CLEANUP(buf_free) struct buf notes = BUF_INIT;
    CLEANUP(buf_free) struct buf lines = BUF_INIT;
    struct live *l = begin(&r, SCRIPT_TENSORS, EDIT_COPY);
    script_one(&r, "tmkdir m");
    script_one(&r, "tput m/shape 1");
    script_one(&r, "tfloats m/f32 1");
    script_one(&r, "fail EIO");
    script_one(&r, "fsync =EIO");
    script_one(&r, "fail");
    live_refused(l, &notes);
    CU_ASSERT_EQUAL(notes.len, 0);
    script_one(&r, "tmkdir n");
    script_one(&r, "tput a/raw abc =EINVAL");
    live_refused(l, &notes);
    unsaved_lines(&notes, &lines);
    buf_char(&lines, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)lines.data, "tensors/a: it has 3 of 8 bytes\n");
    script_one(&r, "trmdir n");
    end(&r);
}

/* ---- requests that wait behind another ---- */

/* The run whose file A is judged. */
static struct run *judged;

static void on_end(struct live_wait *w, int result)
{
    (void)w;
    CU_ASSERT_EQUAL(result, 0);
}

static void on_signal(struct live_wait *w, int result)
{
    (void)w;
    CU_ASSERT_EQUAL(result, -EINTR);
}

static void write_line(struct live_wait *w)
{
    *w = (struct live_wait){.done = on_signal, .request = w};
    struct tree_file *b = script_handle(judged, "B")->f;
    CU_ASSERT_EQUAL(tree_write(b, 0, "F16\n", 4, w), LIVE_PARKED);
}

/* A line stopped by a signal counts as not written, unless another line is still waiting. */
static int judge_and_stop(struct live *l, struct live_wait *w, bool stopped)
{
    struct live_wait line[3];
    struct tensor_round round;
    struct draft *d = w->view->d;
    CU_ASSERT_FALSE(stopped);
    script_one(judged, "& fsync B");
    script_one(judged, "interrupt");
    script_one(judged, "wait =EINTR");
    script_one(judged, "& flush B");
    write_line(&line[0]);
    write_line(&line[1]);
    live_interrupt(l, &line[0]);
    CU_ASSERT_EQUAL(d->size, 4);
    CU_ASSERT_EQUAL(tensor_draft_begin(d, &round), 1);
    write_line(&line[2]);
    live_interrupt(l, &line[2]);
    CU_ASSERT_EQUAL(d->size, 4);
    CU_ASSERT_EQUAL(tensor_draft_end(d, &round, false, 0), 0);
    live_interrupt(l, &line[1]);
    CU_ASSERT_EQUAL(d->size, 0);
    script_one(judged, "interrupt");
    script_one(judged, "wait =EINTR");
    return 0;
}

static void test_stopped(void)
{
    struct run r;
    struct live_wait wait = {.done = on_end};
    struct live *l = begin(&r, SCRIPT_TENSORS, EDIT_COPY);
    script_one(&r, "topen A b/type rw");
    script_one(&r, "topen B b/type rw trunc");
    judged = &r;
    CU_ASSERT_EQUAL(waits_judge(l, script_handle(&r, "A")->f->view, judge_and_stop, &wait), 0);
    script_one(&r, "write B 'BF16\n' 0");
    script_one(&r, "close B");
    script_one(&r, "close A");
    script_one(&r, "ttext b/type 'BF16\n'");
    end(&r);
}

static int judge_and_rename(struct live *l, struct live_wait *w, bool stopped)
{
    (void)l;
    (void)w;
    CU_ASSERT_FALSE(stopped);
    script_one(judged, "write B 12345678");
    script_one(judged, "& tmv a/.h a/raw");
    return 0;
}

/* A thread that answers requests hands a rename to the pool, because judging the rename may take a
 * while. */
static void test_rename_behind(void)
{
    struct run r;
    struct live_wait wait = {.done = on_end};
    struct live *l = begin(&r, SCRIPT_TENSORS, EDIT_COPY);
    script_one(&r, "topen A a/.h creat rw");
    script_one(&r, "topen B a/.h rw");
    judged = &r;
    CU_ASSERT_EQUAL(waits_judge(l, script_handle(&r, "A")->f->view, judge_and_rename, &wait), 0);
    script_one(&r, "wait");
    script_one(&r, "close B");
    script_one(&r, "close A");
    script_one(&r, "ttext a/raw 12345678");
    script_one(&r, "tgone a/.h");
    end(&r);
}

static CU_TestInfo tests[] = {
    {"keys reserved for ggufs cannot be opened by their numbers", test_own_by_number},
    {"the reserve has no file", test_reserve},
    {"another program has made a file of the same name", test_made_since},
    {"a stored text that is not UTF-8", test_not_utf8},
    {"range clones are not used on a disk without them", test_no_clones},
    {"an edit that cannot be planned is dropped", test_no_plan},
    {"only refused edits are in the list of refused edits", test_refused},
    {"signals to requests that wait for a judgement", test_stopped},
    {"a rename waits for a judgement", test_rename_behind},
    CU_TEST_INFO_NULL,
};

CU_MAIN("live_rare", tests)
