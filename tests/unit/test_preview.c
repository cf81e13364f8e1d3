/* SPDX-License-Identifier: MIT */
/* What is shown of tensors that are changed and not on the disk. */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faultsys.h"
#include "live/makings.h"
#include "live/preview_bytes.h"
#include "model_dir.h"
#include "place.h"
#include "tree/internal.h"
#include "tree_image.h"
#include "viewfile.h"

enum { BYTES = 160000 };

/* A tree with the tensor "b" (I8), and perhaps t0, t1 and so on, whose system calls go through fs. */
struct room {
    struct place p;
    struct faultsys fs;
    struct tree *t;
    unsigned reads; /* of drafts */
};

static void begin_with(struct room *x, enum live_commit commit, unsigned more, size_t n)
{
    const struct tree_options o = {
        .tensors = true, .strategy = EDIT_COPY, .reserve = EDIT_RESERVE_AUTO, .commit = commit};
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

/* The byte of b/raw at `off` that a program reads which opens it now. */
static uint8_t byte_at(struct room *x, size_t off)
{
    const struct tree_image m = {.t = x->t};
    uint8_t ret = 0;
    CU_ASSERT_EQUAL(image_bytes(&m, "tensors/b/raw", off, 1, &ret), 1);
    return ret;
}

/* ---- bytes that are copied to be shown ---- */

enum { PART = 512, PARTS = 300 };

/* So many edits of one part each that the tensor is copied to be shown. */
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

/* The model is edited in the middle of the copying, which needs the lock of what is edited; and what is
 * shown then has that edit too. */
static void test_edited_while_copied(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    uint8_t between = byte_at(&x, 150);
    write_parts(&x);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    x.fs.before = "pwrite";
    x.fs.hook = write_one;
    x.fs.arg = &x;
    CU_ASSERT_EQUAL(byte_at(&x, PART), 'X');
    CU_ASSERT_PTR_NULL(x.fs.before);
    CU_ASSERT_EQUAL(byte_at(&x, 150), between);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    end(&x);
}

/* ---- bytes that are mapped to be shown ---- */

static void count_unlocked(void *arg)
{
    struct room *x = arg;
    CU_ASSERT_FALSE(lock_held(&x->t->live->lock));
    x->fs.before = "pread";
    x->reads++;
}

/* A page has bytes of the model and of a draft's file: that is read without the lock of what is edited, by the
 * judge and then to be shown. */
static void test_mapped_without_lock(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    place_in_files(&x.p);
    uint8_t before = byte_at(&x, 4999), behind = byte_at(&x, 5002);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "b", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 5000, "XX", 2), 0);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    x.reads = 0;
    x.fs.before = "pread";
    x.fs.hook = count_unlocked;
    x.fs.arg = &x;
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL(byte_at(&x, 5000), 'X');
    CU_ASSERT_EQUAL(x.reads, 2);
    CU_ASSERT_EQUAL(byte_at(&x, 4999), before);
    CU_ASSERT_EQUAL(byte_at(&x, 5002), behind);
    x.fs.before = NULL;
    end(&x);
}

/* The disk is full: the request that looks fails, and the next one does not. */
static void test_copy_fails(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    write_parts(&x);
    faultsys_init(&x.fs, FAULT_BROKEN, 1, -ENOSPC);
    CU_ASSERT_EQUAL(tree_freshen(x.t), -ENOSPC);
    faultsys_init(&x.fs, FAULT_NONE, 0, 0);
    CU_ASSERT_EQUAL(tree_freshen(x.t), 0);
    CU_ASSERT_EQUAL(byte_at(&x, (PARTS - 1) * PART), 'X');
    end(&x);
}

/* ---- the model is cut by another program ---- */

static void cut_model(struct room *x, uint64_t tensor_bytes)
{
    const struct gguf *g = x->t->newest.view.snap->gguf;
    CU_ASSERT_EQUAL(truncate(x->p.model, (off_t)(g->tensor[0].off + tensor_bytes)), 0);
}

/* What was accepted cannot be written: the model was changed. */
static void end_cut(struct room *x)
{
    CU_ASSERT_EQUAL(tree_finish(x->t), -ESTALE);
    tree_close(x->t);
    CU_ASSERT_EQUAL(files_in(&x->p), 1);
    drop_place(&x->p);
}

static int memory_file(size_t n)
{
    int fd = memfd_create("bytes", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, (off_t)n), 0);
    return fd;
}

/* Before it is shown: the pages that a draft is to be copied to are gone. */
static void show_cut(struct edit_draft *d)
{
    const struct edit_file f = {.fd = -1, .sys = &sys_libc};
    const struct edit_piece piece = {.at = 100000, .len = 2, .draft = d};
    struct below b = {.f = &f};
    struct edit_content *k;
    struct shown_bytes shown;
    struct err e = {0};
    CU_ASSERT_EQUAL_FATAL(map_guard_init(), 0);
    CU_ASSERT_EQUAL_FATAL(mapped_open(memory_file(BYTES), BYTES, &b.m, &e), 0);
    CU_ASSERT_EQUAL_FATAL(edit_content_make(&(struct edit_shape){0}, BYTES, NULL, &piece, 1, &k),
                          0);
    CU_ASSERT_EQUAL(preview_bytes_map(k, &b, &shown, &e), 0);
    mapped_unref(shown.m);
    CU_ASSERT_EQUAL(ftruncate(b.m->fd, 10000), 0);
    CU_ASSERT_EQUAL(preview_bytes_map(k, &b, &shown, &e), -EIO);
    CU_ASSERT_PTR_NULL(shown.m);
    CU_ASSERT_STRING_EQUAL(e.msg, "cannot keep changed bytes: Input/output error");
    edit_content_unref(k);
    edit_draft_unref(d);
    mapped_unref(b.m);
}

static void test_cut_before_shown(void)
{
    struct edit_draft *d;
    CU_ASSERT_EQUAL_FATAL(edit_draft_memory(2, &d), 0);
    show_cut(d);
    CU_ASSERT_EQUAL_FATAL(edit_draft_file(memory_file(2), &d, &(struct err){0}), 0);
    show_cut(d);
}

/* The byte of a view of b at `off`, or -errno of a program that opens it now. */
static int byte_or_error(struct room *x, const char *view, size_t off)
{
    const struct tree_image m = {.t = x->t};
    char path[32];
    uint8_t ret = 0;
    (void)snprintf(path, sizeof(path), "tensors/b/%s", view);
    ssize_t r = image_bytes(&m, path, off, 1, &ret);
    return r < 0 ? (int)r : ret;
}

/* While it is shown: what is behind the end is lost also in the page that the file ends in. */
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

/* Bytes that are a draft's alone are all there. */
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

/* All tensors are written before a program looks: as many mappings are made at once. */
static void test_many_mapped(void)
{
    enum { MANY = 40, LEN = 5000 };
    struct room x = {0};
    static char bytes[LEN];
    begin_with(&x, LIVE_COMMIT_SYNC, MANY, LEN);
    place_in_files(&x.p);
    for (unsigned i = 0; i < MANY; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "t%u", i);
        memset(bytes, (int)i + 1, LEN);
        CU_ASSERT_EQUAL(viewfile_put(x.t, name, "raw", bytes, LEN), 0);
    }
    CU_ASSERT_EQUAL(tree_freshen(x.t), 0);
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

/* ---- lists that grow with what is edited ---- */

/* A tensor whose content is the same keeps its node when the batch is planned anew; found by an index. */
static void test_planned_again(void)
{
    struct room x;
    begin(&x, LIVE_COMMIT_SYNC);
    const struct tree_image m = {.t = x.t};
    write_one(&x);
    CU_ASSERT_EQUAL(byte_at(&x, BYTES - 1), 'Y');
    uint64_t node = image_node(&m, "tensors/b/raw");
    const struct preview *p = &atomic_load(&x.t->live)->next.preview;
    const struct edit_content *k = p->of[0].content;
    CU_ASSERT_PTR_NOT_NULL_FATAL(p->find.slot);
    CU_ASSERT_EQUAL(do_write(x.t, "general.name", "new\n", 4), 0);
    CU_ASSERT_EQUAL(tree_freshen(x.t), 0);
    CU_ASSERT_PTR_EQUAL(p->of[0].content, k);
    CU_ASSERT_EQUAL(image_node(&m, "tensors/b/raw"), node);
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

/* The numbers of the list of those to be judged. */
static unsigned due_now(const struct live *l)
{
    unsigned n = 0;
    const struct making *last = NULL;
    for (const struct making *m = l->due_making; m; last = m, m = m->due_next, n++)
        CU_ASSERT_PTR_EQUAL(m->due_before, last);
    CU_ASSERT_PTR_EQUAL(l->due_last, last);
    return n;
}

/* What is a tensor, or removed, is in no list that is walked; what is judged, and not whole, not in that of
 * those to be judged. */
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
    CU_ASSERT_EQUAL(l->makings_left, 4);
    CU_ASSERT_EQUAL(due_now(l), 4);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "three"), 0);
    CU_ASSERT_EQUAL(due_now(l), 3);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "one", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(due_now(l), 2);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_EQUAL(due_now(l), 3);
    char *names = image_list(&m, "tensors");
    CU_ASSERT_STRING_EQUAL(names, "b\none\ntwo\nfour\n");
    free(names);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->makings_left, 1);
    CU_ASSERT_EQUAL(due_now(l), 0);
    names = image_list(&m, "tensors");
    CU_ASSERT_STRING_EQUAL(names, "b\nfour\none\ntwo\n");
    free(names);
    CU_ASSERT_EQUAL(do_rmdir_tensor(x.t, "two"), 0);
    CU_ASSERT_EQUAL(l->n_makings, 0);
    make(&x, "two", true);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->n_makings, 0);
    end(&x);
}

/* At the end also what a handle may write still is judged. */
static void test_makings_at_the_end(void)
{
    struct room x;
    struct viewfile v;
    begin(&x, LIVE_COMMIT_SYNC);
    make(&x, "one", true);
    const struct live *l = atomic_load(&x.t->live);
    CU_ASSERT_EQUAL_FATAL(viewfile_open(x.t, "one", "raw", O_WRONLY, &v), 0);
    CU_ASSERT_EQUAL(due_now(l), 0);
    tree_hurry(x.t);
    CU_ASSERT_EQUAL(do_sync(x.t), 0);
    CU_ASSERT_EQUAL(l->makings_left, 0);
    viewfile_release(&v);
    end(&x);
}

static CU_TestInfo tests[] = {
    {"edited while bytes are copied to be shown", test_edited_while_copied},
    {"bytes are mapped to be shown without a lock", test_mapped_without_lock},
    {"bytes cannot be copied to be shown", test_copy_fails},
    {"the model is cut before an edit is shown", test_cut_before_shown},
    {"the model is cut while an edit is shown", test_cut_while_shown},
    {"the model is cut below a draft", test_cut_below_draft},
    {"many tensors are mapped at once", test_many_mapped},
    {"planned again: the same content, the same node", test_planned_again},
    {"tensors in the making end", test_makings_end},
    {"tensors in the making at the end of the mount", test_makings_at_the_end},
    CU_TEST_INFO_NULL,
};

CU_MAIN("preview", tests)
