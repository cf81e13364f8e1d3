/* SPDX-License-Identifier: MIT */
/* Every way to read a tree, with each allocation failing in turn. The call fails with ENOMEM, and
 * once memory is available again, nothing has changed. */
#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alloc.h"
#include "build_gguf.h"
#include "model_dir.h"
#include "place.h"
#include "tree/history.h"
#include "tree_image.h"
#include "viewfile.h"

/* ---- a stopped clock, because unfinished edits are dropped after a while ---- */

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, ret);
    *ret = (struct timespec){.tv_sec = 1000};
    return 0;
}

/* ---- the content of a tree, in memory that is always available ---- */

static struct seen {
    size_t n;
    char text[1 << 17];
} before, after;

static void add(struct seen *s, const void *bytes, size_t n)
{
    if (n >= sizeof(s->text) - s->n)
        abort();
    memcpy(s->text + s->n, bytes, n);
    s->n += n;
}

static void add_name(struct seen *s, const char *name, long long number)
{
    char line[TREE_NAME_MAX + 40];
    add(s, line, (size_t)snprintf(line, sizeof(line), "%s %lld\n", name, number));
}

static int add_buf(struct seen *s, struct buf *b, int r)
{
    if (r == 0 && b->len)
        add(s, b->data, b->len);
    buf_free(b);
    return r;
}

static int look_attributes(struct tree *t, uint64_t node, struct seen *s)
{
    static const char *const names[] = {"user.gguf.name",  "user.gguf.type",
                                        "user.gguf.shape", "user.gguf.offset",
                                        "user.gguf.error", "user.gguf.readonly"};
    struct buf b = BUF_INIT;
    int r = add_buf(s, &b, tree_listxattr(t, node, &b));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && r == 0; i++) {
        r = add_buf(s, &b, tree_getxattr(t, node, names[i], &b));
        r = r == -ENODATA ? 0 : r;
    }
    return r;
}

static int read_some(struct tree_file *f, uint64_t off, struct reply *reply)
{
    static uint8_t scratch[1 << 14];
    struct tree_wait w;
    int r;
    do {
        *reply = (struct reply){.scratch = scratch, .wait = tree_wait(&w)};
        r = tree_read(f, off, sizeof(scratch), reply);
        const bool again = r == LIVE_PARKED;
        r = tree_waited(&w, r);
        if (!again || r < 0)
            break;
        tree_reply_done(reply);
    } while (true);
    return r;
}

static int look_file(struct tree *t, uint64_t node, struct seen *s)
{
    struct tree_file *f = NULL;
    int r = tree_open_file(t, node, O_RDONLY, &f);
    uint64_t off = 0;
    size_t n = 1;
    while (r == 0 && n > 0) {
        struct reply reply;
        r = read_some(f, off, &reply);
        n = r == 0 ? reply.len : 0;
        if (n)
            add(s, reply.bytes, n);
        off += n;
        tree_reply_done(&reply);
    }
    (void)tree_release(f);
    return r;
}

static int look(struct tree *t, uint64_t node, struct seen *s);

static int look_entries(struct tree *t, uint64_t node, struct tree_dir *d, bool attrs,
                        struct seen *s)
{
    char name[TREE_NAME_MAX + 1];
    struct tree_entry e;
    uint64_t cookie = 0;
    int r;
    while ((r = tree_readdir(t, d, &cookie, attrs, name, &e)) > 0) {
        add_name(s, name, e.attr.st_mode & S_IFMT);
        if (!attrs || cookie <= 2)
            continue;
        r = tree_lookup(t, node, name, &e);
        if (r == 0) {
            add_name(s, name, S_ISDIR(e.attr.st_mode) ? 0 : (long long)e.attr.st_size);
            r = look(t, e.node, s);
            tree_forget(t, e.node, 1);
        }
        if (r < 0)
            break;
    }
    return r;
}

/* Read a node and everything below it. */
static int look(struct tree *t, uint64_t node, struct seen *s)
{
    struct tree_entry e;
    struct tree_dir *d = NULL;
    int r = tree_getattr(t, node, NULL, &e);
    if (r == 0)
        r = look_attributes(t, node, s);
    if (r == 0 && !S_ISDIR(e.attr.st_mode))
        return look_file(t, node, s);
    if (r == 0)
        r = tree_opendir(t, node, &d);
    if (r == 0) {
        add_name(s, "cached", tree_dir_cacheable(t, d));
        r = look_entries(t, node, d, false, s);
        if (r == 0)
            r = look_entries(t, node, d, true, s);
        tree_closedir(d);
    }
    return r;
}

/* ---- models ---- */

static struct content model_of(bool split, unsigned no)
{
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    build_str(&b, "general.architecture", "test");
    if (split) {
        build_num(&b, "split.no", GGUF_U16, no);
        build_num(&b, "split.count", GGUF_U16, 2);
        build_num(&b, "split.tensors.count", GGUF_I32, 3);
    }
    build_array(&b, "a.list", GGUF_STRING, 2);
    build_item_str(&b, "one");
    build_item_str(&b, "two");
    build_u32(&b, "a.b", 1);
    if (no == 0)
        build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    if (no == 0)
        build_tensor(&b, "a/b", I8, SHAPE(2, 3), NULL, 6);
    if (no == 1 || !split)
        build_tensor(&b, "u", F32, SHAPE(2), NULL, 8);
    c.bytes = build_finish(&b, &c.n);
    return c;
}

static void make(struct place *p, bool split)
{
    struct content c = model_of(split, 0);
    make_place(p, &c);
    free(c.bytes);
    if (!split)
        return;
    c = model_of(true, 1);
    put_file(p->dir, "m-00002-of-00002.gguf", c.bytes, c.n);
    free(c.bytes);
    CU_ASSERT_EQUAL(renameat(p->dir, NAME, p->dir, "m-00001-of-00002.gguf"), 0);
    (void)snprintf(p->model, sizeof(p->model), "%s/m-00001-of-00002.gguf", p->folder);
}

/* Files kept open while everything is read. */
struct open_files {
    struct viewfile view, helper;
};

/* Make edits of each kind: written, refused and unfinished. */
static void edit(struct tree *t, struct open_files *x)
{
    CU_ASSERT_EQUAL(do_write(t, "a.b", "x\n", 2), -EINVAL);
    CU_ASSERT_EQUAL(do_write(t, "new.key", "7\n", 2), 0);
    CU_ASSERT_EQUAL(do_write(t, ".helper", "text", 4), 0);
    CU_ASSERT_EQUAL(do_unlink(t, "a.list"), 0);
    CU_ASSERT_EQUAL(do_sync(t), 0); /* `info` counts unwritten edits */
    CU_ASSERT_EQUAL(do_mkdir_tensor(t, "making"), 0);
    CU_ASSERT_EQUAL(viewfile_put_with(t, "making", "type", O_CREAT, "F32\n", 4), 0);
    CU_ASSERT_EQUAL(viewfile_open(t, "t", "raw", O_RDWR, &x->view), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&x->view, 4, "abcd", 4), 0);
    CU_ASSERT_EQUAL(viewfile_open(t, "u", ".helper", O_RDWR | O_CREAT, &x->helper), 0);
    CU_ASSERT_EQUAL(viewfile_pwrite(&x->helper, 0, "hello", 5), 0);
    CU_ASSERT_EQUAL(viewfile_unlink(t, "u", "f32"), 0);
}

static const struct row_of_case {
    const char *name;
    bool split, edited, pending;
    struct tree_options o;
} cases[] = {
    {"read-only", false, false, false, {.read_only = true, .views = FILES_ALL}},
    {"read-only, split", true, false, false, {.read_only = true, .views = FILES_ALL}},
    {"keys", false, false, false, {.strategy = EDIT_COPY, .views = FILES_ALL}},
    {"split", true, false, false, {.strategy = EDIT_COPY, .views = FILES_ALL, .tensors = true}},
    {"an edit that is in no snapshot yet",
     false,
     false,
     true,
     {.strategy = EDIT_COPY, .tensors = true, .commit = LIVE_COMMIT_SYNC}},
    {"edited",
     false,
     true,
     false,
     {.strategy = EDIT_COPY,
      .views = FILES_ALL,
      .tensors = true,
      .late = true,
      .commit = LIVE_COMMIT_CLOSE}},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* Read a tree while the n-th allocation fails. Returns false if there are fewer than n. */
static bool looks_at(struct tree *t, unsigned n, bool pending)
{
    struct statvfs fs;
    after.n = 0;
    if (pending)
        CU_ASSERT_EQUAL(do_write(t, "a.b", n % 2 ? "3\n" : "2\n", 2), 0);
    alloc_arm(n, false);
    int r = look(t, INO_ROOT, &after);
    const bool hit = alloc_disarm();
    if (r != 0 && r != -ENOMEM)
        (void)printf("\n%s at allocation %u\n", strerror(-r), n);
    CU_ASSERT_TRUE(r == 0 || (hit && r == -ENOMEM));
    CU_ASSERT_EQUAL(tree_statfs(t, &fs), 0);
    return hit;
}

static void test_case(const struct row_of_case *c)
{
    struct place p;
    struct open_files x;
    make(&p, c->split);
    struct tree *t = image_tree(p.model, &c->o);
    if (c->edited)
        edit(t, &x);
    if (c->pending)
        CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    before.n = after.n = 0;
    CU_ASSERT_EQUAL(look(t, INO_ROOT, &before), 0);
    unsigned n = 1;
    while (looks_at(t, n, c->pending))
        n++;
    CU_ASSERT_TRUE(n > 100);
    after.n = 0;
    if (c->pending)
        CU_ASSERT_EQUAL(do_write(t, "a.b", "2\n", 2), 0);
    CU_ASSERT_EQUAL(look(t, INO_ROOT, &after), 0);
    CU_ASSERT_EQUAL(after.n, before.n);
    CU_ASSERT_EQUAL(memcmp(after.text, before.text, before.n), 0);
    if (c->edited) {
        viewfile_release(&x.helper);
        CU_ASSERT_EQUAL(viewfile_close(&x.view), 0);
    }
    (void)tree_finish(t);
    tree_close(t);
    drop_place(&p);
}

static void test_looks(void)
{
    for (size_t i = 0; i < CASES; i++)
        test_case(&cases[i]);
}

/* ---- opening a tree ---- */

static bool opens_at(const char *path, const struct tree_options *o, unsigned n)
{
    struct tree *t = NULL;
    struct err e = {0};
    alloc_count();
    alloc_arm(n, false);
    int r = tree_open(path, o, &t, &e);
    const bool hit = alloc_disarm();
    CU_ASSERT_TRUE(r == 0 ? t != NULL : hit && r == -ENOMEM && !t);
    if (r < 0)
        CU_ASSERT_TRUE(e.code == r && e.msg[0]);
    tree_close(t);
    CU_ASSERT_TRUE(alloc_live() <= 0); /* libc allocates some memory itself */
    return hit;
}

static void test_opens(void)
{
    for (size_t i = 0; i < CASES; i++) {
        struct place p;
        make(&p, cases[i].split);
        tree_close(image_tree(p.model, &cases[i].o));
        unsigned n = 1;
        while (opens_at(p.model, &cases[i].o, n))
            n++;
        CU_ASSERT_TRUE(n > 20);
        drop_place(&p);
    }
}

/* The first read of a tree computes the results that the tree keeps. */
static void test_first_looks(void)
{
    struct place p;
    bool hit = true;
    make(&p, false);
    for (unsigned n = 1; hit; n++) {
        struct tree *t = image_tree(p.model, &cases[0].o);
        hit = looks_at(t, n, false);
        tree_close(t);
    }
    drop_place(&p);
}

static CU_TestInfo tests[] = {
    {"an allocation fails while everything in a tree is read", test_looks},
    {"an allocation fails while a model is opened", test_opens},
    {"an allocation fails while a tree is read for the first time", test_first_looks},
    CU_TEST_INFO_NULL,
};

CU_MAIN("looks_nomem", tests)
