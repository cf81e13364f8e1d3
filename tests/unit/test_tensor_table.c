/* SPDX-License-Identifier: MIT */
/* Contents of tensors with unwritten changes. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faultsys.h"
#include "live/batch.h"
#include "live/draft.h"
#include "live/views.h"
#include "live/writer.h"
#include "model_dir.h"
#include "place.h"
#include "tree/nodes.h"
#include "tree_image.h"
#include "viewfile.h"

enum { BYTES = 160000 };

/* A tree whose system calls go through fs, with a tensor "b" (I8) and optionally t0, t1 and so
 * on. */
struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
    unsigned reads; /* number of reads of drafts */
};

static void begin_how(struct room *x, enum live_commit commit, enum edit_strategy how,
                      unsigned more, size_t n)
{
    const struct tree_options o = {
        .tensors = true, .strategy = how, .reserve = EDIT_RESERVE_AUTO, .commit = commit};
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_tensor(&b, "b", I8, SHAPE(BYTES), NULL, BYTES);
    for (unsigned i = 0; i < more; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "t%u", i);
        build_tensor(&b, name, I8, SHAPE(n), NULL, n);
    }
    c.bytes = build_finish(&b, &c.n);
    make_place(&x->p, &c);
    free(c.bytes);
    x->t = image_tree(x->p.model, &o);
    faultsys_init(&x->fs, FAULT_NONE, 0, 0);
    x->t->model.file.sys = &x->fs.sys;
}

static void begin_with(struct room *x, enum live_commit commit, unsigned more, size_t n)
{
    begin_how(x, commit, EDIT_COPY, more, n);
}

static void begin(struct room *x, enum live_commit commit)
{
    begin_with(x, commit, 0, 0);
}

static void end(struct room *x)
{
    CU_ASSERT_EQUAL(tree_finish(x->t), 0);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

/* Return the byte at `off` in b/raw, as read by a program that opens it now. */
static uint8_t byte_at(struct room *x, size_t off)
{
    const struct tree_image m = {.t = x->t};
    uint8_t ret = 0;
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/b/raw", off, 1, &ret), 1);
    return ret;
}

/* ---- shown without the disk ---- */

enum { PART = 512, PARTS = 300 };

/* Make scattered edits of a few bytes each. */
static void write_parts(struct room *x)
{
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_WRONLY, &v), 0);
    for (uint64_t i = 0; i < PARTS; i++) {
        CU_ASSERT_EQUAL(viewfile_pwrite(&v, i * PART, "XX", 2), 0);
        CU_ASSERT_EQUAL(viewfile_flush(&v), 0);
    }
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
}

static void write_one(void *arg)
{
    struct room *x = arg;
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, BYTES - 1, "Y", 1), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
}

/* However scattered, accepted edits are shown without access to the disk. No lookup waits for
 * another. */
static void test_no_copy(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    uint8_t between = byte_at(&x, 150);
    write_parts(&x);
    faultsys_init(&x.fs, FAULT_BROKEN, 1, -EIO);
    CU_ASSERT_EQUAL(live_freshen(x.t->meta, true, NULL), 0);
    CU_ASSERT_EQUAL(atomic_load(&x.fs.calls), 0);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    for (size_t i = 0; i < PARTS; i++)
        CU_ASSERT_EQUAL(byte_at(&x, i * PART + 1), 'X');
    CU_ASSERT_EQUAL(byte_at(&x, 150), between);
    write_one(&x);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    end(&x);
}

static void make(struct room *x, const char *name, bool whole)
{
    CU_ASSERT_EQUAL(do_mkdir_tensor(x->t, name), 0);
    CU_ASSERT_EQUAL(viewfile_put_with(x->t, name, "type", O_CREAT, "I8\n", 3), 0);
    if (whole)
        CU_ASSERT_EQUAL(viewfile_put_with(x->t, name, "shape", O_CREAT, "4\n", 2), 0);
    CU_ASSERT_EQUAL(viewfile_put_with(x->t, name, "raw", O_CREAT, "1234", 4), 0);
}

/* ---- removed, but not yet written ---- */

/* Return whether a view of the model contains this text. */
static bool has(struct room *x, const char *view, const char *text)
{
    const struct tree_image m = {.t = x->t};
    static char bytes[3 * BYTES];
    ssize_t n = image_bytes(&m, view, 0, sizeof(bytes), (uint8_t *)bytes);
    CU_ASSERT_TRUE_FATAL(n > 0);
    return memmem(bytes, (size_t)n, text, strlen(text));
}

static void check_whole(struct room *x, const char *name, bool there)
{
    char json[32];
    (void)snprintf(json, sizeof(json), "\"%s\"", name);
    CU_ASSERT_EQUAL(has(x, "model.gguf", name), there);
    CU_ASSERT_EQUAL(has(x, "tensors.json", json), there);
}

/* A removed tensor disappears at once from every view of the model; a new tensor is not yet in
 * them. If no tensor would be left, all are shown unchanged. */
static void test_removed_at_once(void)
{
    struct room x;
    begin_with(&x, LIVE_COMMIT_SYNC, 2, 50);
    const struct tree_image m = {.t = x.t};
    check_whole(&x, "t0", true);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "t0"), 0);
    check_whole(&x, "t0", false);
    check_whole(&x, "t1", true);
    CU_ASSERT_EQUAL(do_write(x.t, "general.name", "new\n", 4), 0);
    CU_ASSERT_EQUAL(byte_at(&x, 0), byte_at(&x, 0));
    check_whole(&x, "t0", false);
    make(&x, "novel", true);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    check_whole(&x, "novel", true);
    write_one(&x);
    make(&x, "later", true);
    write_one(&x);
    const uint64_t node = image_node(&m, "tensors/b/raw");
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "novel"), 0);
    check_whole(&x, "novel", false);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "later"), 0);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "t1"), 0);
    check_whole(&x, "t1", false);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/b/raw"), node);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "b"), 0);
    check_whole(&x, "t1", true);
    CU_ASSERT_EQUAL(do_sync(x.t), -EPERM);
    check_whole(&x, "t1", true);
    check_whole(&x, "novel", true);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    end(&x);
}

/* ---- the model is truncated by another program ---- */

static void cut_model(struct room *x, uint64_t tensor_bytes)
{
    const struct gguf *g = x->t->newest.view.snap->gguf;
    CU_ASSERT_EQUAL(truncate(x->p.model, (off_t)(g->tensor[0].off + tensor_bytes)), 0);
}

/* End the test: the model has changed, so the accepted edit cannot be written. */
static void end_cut(struct room *x)
{
    CU_ASSERT_EQUAL(tree_finish(x->t), -ESTALE);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

/* Return the byte at `off` in a view of b, as read by a program that opens it now, or -errno. */
static int byte_or_error(struct room *x, const char *view, size_t off)
{
    const struct tree_image m = {.t = x->t};
    char path[32];
    uint8_t ret = 0;
    (void)snprintf(path, sizeof(path), "tensors/b/%s", view);
    ssize_t r = image_bytes(&m, path, off, 1, &ret);
    return r < 0 ? (int)r : ret;
}

/* The model is truncated while it is shown. Bytes beyond its new end are lost, even those in its
 * last page. */
static void test_cut_while_shown(void)
{
    enum { CUT = 5000 };
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    const int before = byte_at(&x, CUT - 1);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 100000, "XX", 2), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL(byte_at(&x, 100001), 'X');
    cut_model(&x, CUT);
    CU_ASSERT_EQUAL(byte_or_error(&x, "raw", CUT - 1), before);
    CU_ASSERT_FALSE(store_cut(x.t->newest.view.store));
    CU_ASSERT_EQUAL(byte_or_error(&x, "raw", CUT), -EIO);
    CU_ASSERT_TRUE(store_cut(x.t->newest.view.store));
    CU_ASSERT_EQUAL(byte_or_error(&x, "f32", 4 * CUT), -EIO);
    CU_ASSERT_EQUAL(byte_or_error(&x, "raw", BYTES - 1), -EIO);
    end_cut(&x);
}

/* Bytes that are only in a draft stay available. */
static void test_cut_below_draft(void)
{
    static char bytes[BYTES];
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    memset(bytes, 'Z', BYTES);
    CU_ASSERT_EQUAL(viewfile_put(x.t, "b", "raw", bytes, BYTES), 0);
    CU_ASSERT_EQUAL(byte_at(&x, 0), 'Z');
    CU_ASSERT_EQUAL(truncate(x.p.model, 0), 0);
    CU_ASSERT_EQUAL(byte_or_error(&x, "raw", 0), 'Z');
    CU_ASSERT_EQUAL(byte_or_error(&x, "raw", BYTES - 1), 'Z');
    end_cut(&x);
}

static void test_many(void)
{
    enum { MANY = 40, LEN = 5000 };
    struct room x = {0};
    static char bytes[LEN];
    begin_with(&x, LIVE_COMMIT_SYNC, MANY, LEN);
    for (unsigned i = 0; i < MANY; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "t%u", i);
        memset(bytes, (int)i + 1, LEN);
        CU_ASSERT_EQUAL(viewfile_put(x.t, name, "raw", bytes, LEN), 0);
    }
    CU_ASSERT_EQUAL(live_freshen(x.t->meta, true, NULL), 0);
    for (unsigned i = 0; i < MANY; i++) {
        const struct tree_image m = {.t = x.t};
        char path[32];
        uint8_t got = 0;
        (void)snprintf(path, sizeof(path), "tensors/t%u/raw", i);
        CU_ASSERT_EQUAL(image_bytes(&m, path, LEN - 1, 1, &got), 1);
        CU_ASSERT_EQUAL(got, i + 1);
    }
    end(&x);
}

/* ---- lists that grow with edits ---- */

/* When the batch is planned again, tensors with unchanged content keep their nodes. */
static void test_planned_again(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    const struct tree_image m = {.t = x.t};
    write_one(&x);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    uint64_t node = image_node(&m, "tensors/b/raw");
    const struct edit_plan *p = &atomic_load(&x.t->live)->next.plan;
    const struct tensor_content *k = p->tensor[0].content;
    CU_ASSERT_EQUAL(do_write(x.t, "general.name", "new\n", 4), 0);
    CU_ASSERT_EQUAL(live_freshen(x.t->meta, true, NULL), 0);
    CU_ASSERT_PTR_EQUAL(p->tensor[0].content, k);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/b/raw"), node);
    end(&x);
}

static int write_at(struct room *x, uint64_t at, const char *byte, unsigned n)
{
    struct viewfile v;
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x->t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, at, byte, 1), 0);
    if (n)
        faultsys_init(&x->fs, FAULT_BROKEN, n, -EIO);
    return viewfile_close(&v);
}

/* Starting at each call in turn, the disk fails until the edit has failed. The tree then shows the
 * content of the journal, and the next edit completes the journal's edit. */
static void test_unfinished(void)
{
    unsigned lost = 0, unfinished = 0;
    bool hit = true;
    for (unsigned n = 1; hit; n++) {
        struct room x;
        begin_how(&x, LIVE_COMMIT_CLOSE, EDIT_INPLACE, 0, 0);
        const struct tree_image m = {.t = x.t};
        const uint64_t before = image_node(&m, "tensors/b/raw");
        const uint8_t was = byte_at(&x, 9);
        int r = write_at(&x, 9, "Y", n);
        hit = atomic_load(&x.fs.hit);
        faultsys_init(&x.fs, FAULT_NONE, 0, 0);
        const bool in_journal = atomic_load(&x.t->live)->file->unfinished;
        const bool done = r == 0 || in_journal;
        CU_ASSERT_TRUE(!in_journal || (r == -EIO && files_in(&x.p) == 2));
        CU_ASSERT_EQUAL(byte_at(&x, 9), done ? 'Y' : was);
        CU_ASSERT_TRUE(!done || image_node(&m, "tensors/b/raw") != before);
        lost += !done;
        unfinished += in_journal;
        if (in_journal) {
            CU_ASSERT_EQUAL(write_at(&x, 10, "Z", 0), 0);
            CU_ASSERT_EQUAL(files_in(&x.p), 1);
            CU_ASSERT_TRUE(byte_at(&x, 9) == 'Y' && byte_at(&x, 10) == 'Z');
        }
        CU_ASSERT_TRUE(tree_finish(x.t) <= 0);
        tree_close(x.t);
        drop_place(&x.p);
    }
    CU_ASSERT_TRUE(lost > 5);
    CU_ASSERT_TRUE(unfinished > 2);
}

/* If a new tensor cannot be written, a program can continue to write another tensor that it has
 * open. */
static void test_lost_beside(void)
{
    unsigned lost = 0;
    bool hit = true;
    for (unsigned n = 1; hit; n++) {
        struct room x;
        struct viewfile v, other;
        begin(&x, LIVE_COMMIT_CLOSE);
        CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR, &v), 0);
        CU_ASSERT_EQUAL(viewfile_pwrite(&v, 7, "Y", 1), 0);
        make(&x, "new", true);
        faultsys_init(&x.fs, FAULT_BROKEN, n, -EIO);
        int r = do_sync(x.t);
        hit = atomic_load(&x.fs.hit);
        faultsys_init(&x.fs, FAULT_NONE, 0, 0);
        lost += r < 0;
        if (live_count(x.t->live).changed) { /* the old file could not be restored */
            CU_ASSERT_EQUAL(viewfile_close(&v), -ESTALE);
        } else {
            CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_RDWR, &other), 0);
            CU_ASSERT_EQUAL(viewfile_close(&other), 0);
            CU_ASSERT_EQUAL(viewfile_close(&v), 0);
            CU_ASSERT_EQUAL(byte_at(&x, 7), 'Y');
        }
        CU_ASSERT_TRUE(tree_finish(x.t) <= 0);
        tree_close(x.t);
        drop_place(&x.p);
    }
    CU_ASSERT_TRUE(lost > 5);
}

/* A draft is refused while a call still uses it. The next program gets a new draft at the same
 * node. */
static void test_open_after_refusal(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_CLOSE);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_cut(&v, 9), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, "Y", 1), 0);
    struct live *l = atomic_load(&x.t->live);
    lock_take(&l->lock);
    struct draft *d = views_each(l, NULL);
    d->handles++;
    lock_drop(&l->lock);
    CU_ASSERT_EQUAL(viewfile_close(&v), -EINVAL);
    write_one(&x);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    waits_rest(l); /* a release may be judged later */
    lock_take(&l->lock);
    d->handles--;
    view_reap(l, d);
    CU_ASSERT_PTR_EQUAL_FATAL(l->objects.dead, d);
    lock_drop(&l->lock);
    views_bury(l);
    end(&x);
}

/* Return the number of new tensors waiting to be judged. */
static size_t n_due(const struct live *l)
{
    size_t n = 0;
    for (const struct object *o = l->objects.fresh.first; o; o = o->next)
        n += o->dirty && (!o->open || l->writer.stop);
    return n;
}

/* The list of new tensors omits those that were added or removed. New tensors that were judged
 * incomplete do not wait for the judge. */
static void test_makings_end(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    const struct tree_image m = {.t = x.t};
    make(&x, "one", true);
    make(&x, "two", false);
    make(&x, "three", true);
    make(&x, "four", true);
    const struct live *l = atomic_load(&x.t->live);
    CU_ASSERT_EQUAL(l->objects.fresh.n, 4);
    CU_ASSERT_EQUAL(n_due(l), 4);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "three"), 0);
    CU_ASSERT_EQUAL(n_due(l), 3);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "one", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(n_due(l), 2);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL(n_due(l), 3);
    char *names = image_list(&m, "tensors");
    CU_ASSERT_STRING_EQUAL(names, "b\none\ntwo\nfour\n");
    free(names);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->objects.fresh.n, 1);
    CU_ASSERT_EQUAL(n_due(l), 0);
    names = image_list(&m, "tensors");
    CU_ASSERT_STRING_EQUAL(names, "b\nfour\none\ntwo\n");
    free(names);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "two"), 0);
    CU_ASSERT_EQUAL(l->objects.fresh.n, 0);
    make(&x, "two", true);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->objects.fresh.n, 0);
    end(&x);
}

/* When the mount ends, a draft is judged even if an open handle could still write to it. */
static void test_makings_at_the_end(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    make(&x, "one", true);
    const struct live *l = atomic_load(&x.t->live);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "one", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(n_due(l), 0);
    tree_hurry(x.t);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->objects.fresh.n, 0);
    viewfile_release(&v);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"accepted edits are shown without accessing the disk", test_no_copy},
    {"a removed tensor immediately disappears from every view of the model", test_removed_at_once},
    {"the model is truncated while an edit is shown", test_cut_while_shown},
    {"the model is truncated below the end of a draft", test_cut_below_draft},
    {"many tensors are written before any is read", test_many},
    {"planning again keeps the node of unchanged content", test_planned_again},
    {"bytes in an unfinished journal are shown", test_unfinished},
    {"losing one new tensor does not disturb the writer of another", test_lost_beside},
    {"a view can be opened while its refused draft is in use", test_open_after_refusal},
    {"new tensors judged incomplete do not wait for the judge", test_makings_end},
    {"new tensors are judged at the end, even with open files", test_makings_at_the_end},
    CU_TEST_INFO_NULL,
};

CU_MAIN("tensor_table", tests)
