/* SPDX-License-Identifier: MIT */
/*
 * Many trees are open at the same time. Editing begins with the first edit, an unused tree can be
 * closed and reopened, and log lines have the model's label.
 */
#include "cu_main.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "build_gguf.h"
#include "model/npy.h"
#include "model_dir.h"
#include "place.h"
#include "put_journal.h"
#include "tree_edit.h"
#include "tree_image.h"
#include "viewfile.h"

static char logged[4096];

static void take_line(int priority, const char *line)
{
    size_t at = strlen(logged);
    (void)priority;
    (void)snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

static const struct tree_options late = {.strategy = EDIT_COPY,
                                         .commit = LIVE_COMMIT_CLOSE,
                                         .late = true,
                                         .log = {.line = take_line, .label = "shelf/a"}};
static const struct tree_options early = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE};

static struct content model(const char *name)
{
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    build_str(&b, "general.name", name);
    build_u32(&b, "a.b", 1);
    build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    c.bytes = build_finish(&b, &c.n);
    return c;
}

static struct place new_place(const char *name)
{
    struct place p;
    struct content c = model(name);
    make_place(&p, &c);
    free(c.bytes);
    return p;
}

static void content_is(struct tree *t, const char *path, const char *want)
{
    const struct tree_image m = {.t = t};
    size_t n;
    char *text = image_text(&m, path, &n);
    CU_ASSERT_STRING_EQUAL(text, want);
    free(text);
}

static bool locked(const struct place *p)
{
    struct tree *t = image_tree(p->model, &early);
    bool is = !tree_writable(t);
    tree_close(t);
    return is;
}

/* Check that user.gguf.error of a key contains these words. */
static void error_has(struct tree *t, const char *path, const char *words)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    const struct tree_image m = {.t = t};
    int r = tree_getxattr(t, image_node(&m, path), "user.gguf.error", &out);
    buf_char(&out, '\0');
    CU_ASSERT_EQUAL(r, words ? 0 : -ENODATA);
    CU_ASSERT_TRUE(!words || strstr((const char *)out.data, words));
}

static void test_first_edit(void)
{
    struct place p = new_place("one");
    struct tree *t = image_tree(p.model, &late);
    const struct tree_image m = {.t = t};
    uint64_t node = image_node(&m, "metadata/a.b");
    CU_ASSERT_TRUE(tree_writable(t));
    content_is(t, "metadata/a.b", "1\n");
    CU_ASSERT_FALSE(locked(&p));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_TRUE(locked(&p));
    CU_ASSERT_EQUAL(image_node(&m, "metadata/a.b"), node);
    content_is(t, "metadata/a.b", "2\n");
    CU_ASSERT_EQUAL(do_rename(t, "a.b", "a.c"), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    CU_ASSERT_FALSE(locked(&p));
    t = image_tree(p.model, &late);
    content_is(t, "metadata/a.c", "2\n");
    tree_close(t);
    drop_place(&p);
}

static void test_what_begins(void)
{
    struct place p = new_place("one");
    struct tree_entry e;
    for (int i = 0; i < 7; i++) {
        struct tree *t = image_tree(p.model, &late);
        const struct tree_image m = {.t = t};
        struct tree_file *f = NULL;
        CU_ASSERT_EQUAL(do_sync(t), 0);
        CU_ASSERT_EQUAL(do_retype(t, "a.b", "u32"), 0); /* the type it already has */
        CU_ASSERT_FALSE(locked(&p));
        if (i == 0)
            CU_ASSERT_EQUAL(do_unlink(t, "no.such"), -ENOENT);
        if (i == 1)
            CU_ASSERT_EQUAL(do_rename(t, "no.such", "x.y"), -ENOENT);
        if (i == 2)
            CU_ASSERT_EQUAL(do_truncate(t, "a.b"), 0);
        if (i == 3)
            CU_ASSERT_EQUAL(do_retype(t, "a.b", "u64"), 0);
        if (i == 4)
            CU_ASSERT_EQUAL(tree_symlink(t, ino_row(0), ".#link", "x", &e), 0);
        if (i == 5)
            CU_ASSERT_EQUAL(do_write(t, "new.key", "1\n", 2), 0);
        if (i == 6)
            CU_ASSERT_EQUAL(tree_open_file(t, image_node(&m, "metadata/a.b"), O_WRONLY, &f), 0);
        CU_ASSERT_TRUE(locked(&p));
        (void)tree_release(f);
        CU_ASSERT_EQUAL(tree_finish(t), 0);
        tree_close(t);
        if (i == 3) { /* the key gets its old type back */
            t = image_tree(p.model, &early);
            CU_ASSERT_EQUAL(do_retype(t, "a.b", "u32"), 0);
            CU_ASSERT_EQUAL(tree_finish(t), 0);
            tree_close(t);
        }
    }
    drop_place(&p);
}

/* While another process holds the lock, edits are refused, but reads continue. */
static void test_busy(void)
{
    struct place p = new_place("one");
    struct tree *t = image_tree(p.model, &late), *other = image_tree(p.model, &early);
    logged[0] = '\0';
    error_has(t, "metadata/a.b", NULL);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -EBUSY);
    error_has(t, "metadata/a.b", "another process");
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "shelf/a: cannot be edited: another process"));
    content_is(t, "metadata/a.b", "1\n");
    tree_close(other);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    error_has(t, "metadata/a.b", NULL);
    CU_ASSERT_PTR_NOT_NULL(strstr(logged, "shelf/a: a.b: changed"));
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* If another file has replaced the model since it was opened, the new file is not edited, and its
 * lock is neither taken nor waited for. */
static void test_changed(void)
{
    struct place p = new_place("one");
    struct tree *t = image_tree(p.model, &late), *other = image_tree(p.model, &early);
    CU_ASSERT_EQUAL(do_write(other, "a.b", "3\n", 2), 0);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -ESTALE);
    CU_ASSERT_EQUAL(tree_finish(other), 0);
    tree_close(other);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), -ESTALE);
    error_has(t, "metadata/a.b", "changed outside the mount");
    CU_ASSERT_FALSE(locked(&p));
    content_is(t, "metadata/a.b", "1\n");
    tree_close(t);
    drop_place(&p);
}

/* An open listing and an open file remain readable after the first edit. */
static void test_meanwhile(void)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    struct tree_dir *d = NULL;
    struct tree_file *f = NULL;
    uint64_t cookie = 0;
    uint8_t scratch[64];
    struct place p = new_place("one");
    struct tree *t = image_tree(p.model, &late);
    const struct tree_image m = {.t = t};
    CU_ASSERT_EQUAL_FATAL(tree_opendir(t, ino_row(0), &d), 0);
    CU_ASSERT_EQUAL_FATAL(tree_open_file(t, image_node(&m, "metadata/a.b"), O_RDONLY, &f), 0);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 1);
    CU_ASSERT_STRING_EQUAL(name, "general.architecture");
    CU_ASSERT_EQUAL(do_write(t, "a.b", "25\n", 3), 0);
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 1);
    CU_ASSERT_STRING_EQUAL(name, "general.name");
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 1);
    CU_ASSERT_STRING_EQUAL(name, "a.b");
    CU_ASSERT_EQUAL(e.attr.st_size, 3);
    CU_ASSERT_EQUAL(tree_readdir(t, d, &cookie, true, name, &e), 0);
    struct reply r = {.scratch = scratch};
    CU_ASSERT_EQUAL(tree_read(f, 0, sizeof(scratch), &r), 0);
    CU_ASSERT_TRUE(r.len == 2 && memcmp(r.bytes, "1\n", 2) == 0);
    (void)tree_release(f);
    tree_closedir(d);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* Make a model with an interrupted edit of general.name from "old!" to "new!". */
static struct place place_with_journal(const struct content *new)
{
    struct place p = new_place("old!");
    struct edit_file f;
    struct err e = {0};
    int dir = open(p.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(edit_file_open(&f, &sys_libc, dir, strrchr(p.model, '/') + 1, true, &e),
                          0);
    CU_ASSERT_EQUAL_FATAL(put_journal(&f, new->bytes, new->n), 0);
    edit_file_close(&f);
    (void)close(dir);
    return p;
}

/* A model with a journal cannot be opened; it is not touched. */
static void test_journal(void)
{
    struct content old = model("old!"), new = model("new!");
    struct place p = place_with_journal(&new);
    struct tree *t = NULL;
    struct err e = {0};
    CU_ASSERT_EQUAL(tree_open(p.model, &late, &t, &e), -EUCLEAN);
    CU_ASSERT_PTR_NOT_NULL(strstr(e.msg, "--recover"));
    CU_ASSERT_TRUE(file_is(&p, &old));
    CU_ASSERT_EQUAL(files_in(&p), 2);
    drop_place(&p);
    free(old.bytes);
    free(new.bytes);
}

/* Return true once the tree is idle: an edit is answered before its thread rests. */
static bool gets_idle(struct tree *t, bool helpers)
{
    unsigned tries = 10000;
    while (!tree_idle(t, helpers) && --tries)
        (void)usleep(1000);
    return tries;
}

/* A tree is not idle while a file is open or an edit is pending. A helper, or a NumPy header whose
 * values are still missing, keeps it busy as well. */
static void test_idle(void)
{
    struct place p = new_place("one");
    struct tree_options o = late;
    struct tree_dir *d = NULL;
    o.commit = LIVE_COMMIT_SYNC;
    o.tensors = true;
    struct tree *t = image_tree(p.model, &o);
    const struct tree_image m = {.t = t};
    struct tree_file *f = NULL;
    CU_ASSERT_TRUE(gets_idle(t, false));
    CU_ASSERT_EQUAL(tree_open_file(t, image_node(&m, "metadata/a.b"), O_RDONLY, &f), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    (void)tree_release(f);
    CU_ASSERT_EQUAL(tree_opendir(t, INO_ROOT, &d), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    tree_closedir(d);
    CU_ASSERT_TRUE(gets_idle(t, false));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_TRUE(gets_idle(t, false));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "x\n", 2), -EINVAL);
    CU_ASSERT_TRUE(gets_idle(t, false));
    CU_ASSERT_EQUAL(do_write(t, "a.b", "3\n", 2), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0);
    CU_ASSERT_TRUE(gets_idle(t, false));
    CU_ASSERT_EQUAL(do_write(t, "4913", "text\n", 5), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    CU_ASSERT_TRUE(gets_idle(t, true));
    CU_ASSERT_EQUAL(do_unlink(t, "4913"), 0);
    CU_ASSERT_TRUE(gets_idle(t, false));
    struct viewfile v;
    CU_ASSERT_EQUAL(do_mkdir_tensor(t, "made"), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    CU_ASSERT_EQUAL(do_rmdir_tensor(t, "made"), 0);
    CU_ASSERT_TRUE(gets_idle(t, false));
    CLEANUP(buf_free) struct buf head = BUF_INIT;
    size_t n = npy_header(&head, "<f4", 1, (const uint64_t[]){2});
    CU_ASSERT_EQUAL(viewfile_open(t, "t", "f32.npy", O_WRONLY | O_TRUNC, &v), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&v, 0, head.data, n), 0);
    CU_ASSERT_EQUAL(viewfile_close(&v), 0);
    CU_ASSERT_FALSE(tree_idle(t, false));
    CU_ASSERT_TRUE(gets_idle(t, true));
    CU_ASSERT_FALSE(tree_changed(t));
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    tree_close(t);
    drop_place(&p);
}

/* A tree of the same files that has not been edited gives nodes the same numbers. */
static void test_again(void)
{
    struct place p = new_place("one");
    struct tree *t = image_tree(p.model, &late), *again = image_tree(p.model, &late);
    const struct tree_image m = {.t = t}, n = {.t = again};
    (void)image_node(&m, "tensors/t/f32");
    CU_ASSERT_EQUAL(tree_identity(t), tree_identity(again));
    CU_ASSERT_EQUAL(image_node(&m, "metadata/a.b"), image_node(&n, "metadata/a.b"));
    CU_ASSERT_EQUAL(image_node(&m, "tensors/t/f32"), image_node(&n, "tensors/t/f32"));
    CU_ASSERT_EQUAL(image_node(&m, "model.gguf"), image_node(&n, "model.gguf"));
    tree_close(again);
    CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_EQUAL(tree_finish(t), 0);
    again = image_tree(p.model, &late);
    CU_ASSERT_NOT_EQUAL(tree_identity(t), tree_identity(again));
    tree_close(again);
    tree_close(t);
    drop_place(&p);
}

static CU_TestInfo tests[] = {
    {"the first edit takes the lock", test_first_edit},
    {"only calls that edit begin editing", test_what_begins},
    {"edits are refused while another process holds the lock", test_busy},
    {"a model that was replaced is not edited", test_changed},
    {"files that are open stay readable after the first edit", test_meanwhile},
    {"a model that an interrupted edit left half written is not opened", test_journal},
    {"a tree is not idle while a file is open or an edit is pending", test_idle},
    {"a reopened tree has the numbers of its predecessor", test_again},
    CU_TEST_INFO_NULL,
};

CU_MAIN("late", tests)
