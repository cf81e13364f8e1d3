/* SPDX-License-Identifier: MIT */
/* Calls refused on nodes of a read-only tree, of a tree with editable keys, of one that also has
 * editable tensors, and of a split model. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "build_gguf.h"
#include "model_dir.h"
#include "place.h"
#include "tree_image.h"
#include "viewfile.h"

enum { READ_ONLY, KEYS, TENSORS, SPLIT, KINDS };

static struct content model_of(bool split, unsigned no)
{
    struct content c;
    struct build b;
    build_init(&b, 3, false);
    if (split) {
        build_num(&b, "split.no", GGUF_U16, no);
        build_num(&b, "split.count", GGUF_U16, 2);
        build_num(&b, "split.tensors.count", GGUF_I32, 1);
    }
    build_u32(&b, "a.b", 1);
    if (no == 0)
        build_tensor(&b, "t", F32, SHAPE(5), NULL, 20);
    c.bytes = build_finish(&b, &c.n);
    return c;
}

static struct tree *open_kind(int kind, struct place *p)
{
    const struct tree_options o = {.strategy = EDIT_COPY,
                                   .commit = LIVE_COMMIT_CLOSE,
                                   .read_only = kind == READ_ONLY,
                                   .tensors = kind >= TENSORS,
                                   .views = FILES_ALL};
    struct content c = model_of(kind == SPLIT, 0);
    make_place(p, &c);
    free(c.bytes);
    if (kind == SPLIT) {
        c = model_of(true, 1);
        put_file(p->dir, "m-00002-of-00002.gguf", c.bytes, c.n);
        free(c.bytes);
        CU_ASSERT_EQUAL(renameat(p->dir, NAME, p->dir, "m-00001-of-00002.gguf"), 0);
        (void)snprintf(p->model, sizeof(p->model), "%s/m-00001-of-00002.gguf", p->folder);
    }
    return image_tree(p->model, &o);
}

static char long_name[TREE_NAME_MAX + 2];

/* ---- calls on a node, with a name in it or the name of an attribute ---- */

static int call_create(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    struct tree_file *f = NULL;
    int r = tree_create(t, node, name, O_RDWR | O_CREAT | O_EXCL, &e, &f);
    (void)tree_release(f);
    return r;
}

static int call_mknod(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    return tree_mknod(t, node, name, &e);
}

static int call_mkdir(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    return tree_mkdir(t, node, name, &e);
}

static int call_symlink(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    return tree_symlink(t, node, name, "target", &e);
}

static int call_lookup(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    return tree_lookup(t, node, name, &e);
}

static int call_getattr(struct tree *t, uint64_t node, const char *name)
{
    struct tree_entry e;
    (void)name;
    return tree_getattr(t, node, NULL, &e);
}

static int call_readlink(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    (void)name;
    return tree_readlink(t, node, &out);
}

static int call_rename_in(struct tree *t, uint64_t node, const char *name, uint64_t into,
                          const char *to, unsigned flags)
{
    struct tree_wait w;
    return tree_waited(&w, tree_rename(t, node, name, into, to, flags, tree_wait(&w)));
}

static int call_rename(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, node, "x.y", 0);
}

static int call_rename_long(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, node, long_name, 0);
}

static int call_exchange(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, node, "x.y", 2);
}

static int call_move(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, INO_ROOT, "x.y", 0);
}

/* This function moves a node into tensors/, and the next one into metadata/. */
static int call_move_t(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, ino_row(1), "x.y", 0);
}

static int call_move_m(struct tree *t, uint64_t node, const char *name)
{
    return call_rename_in(t, node, name, ino_row(0), "x.y", 0);
}

static int call_unlink(struct tree *t, uint64_t node, const char *name)
{
    return tree_unlink(t, node, name);
}

static int call_rmdir(struct tree *t, uint64_t node, const char *name)
{
    return tree_rmdir(t, node, name);
}

static int call_opendir(struct tree *t, uint64_t node, const char *name)
{
    struct tree_dir *d;
    (void)name;
    int r = tree_opendir(t, node, &d);
    if (r == 0)
        tree_closedir(d);
    return r;
}

static int open_as(struct tree *t, uint64_t node, int flags)
{
    struct tree_file *f = NULL;
    int r = tree_open_file(t, node, flags, &f);
    (void)tree_release(f);
    return r;
}

static int call_open_r(struct tree *t, uint64_t node, const char *name)
{
    (void)name;
    return open_as(t, node, O_RDONLY);
}

static int call_open_w(struct tree *t, uint64_t node, const char *name)
{
    (void)name;
    return open_as(t, node, O_RDWR);
}

static int call_truncate(struct tree *t, uint64_t node, const char *name)
{
    struct tree_wait w;
    (void)name;
    return tree_waited(&w, truncate_node(t, node, 1, tree_wait(&w)));
}

/* The following calls are refused on a file opened only for reading. */
static int call_write(struct tree *t, uint64_t node, const char *name)
{
    struct tree_wait w;
    struct tree_file *f = NULL;
    (void)name;
    int r = tree_open_file(t, node, O_RDONLY, &f);
    if (r == 0)
        r = tree_waited(&w, tree_write(f, 0, "x", 1, tree_wait(&w)));
    (void)tree_release(f);
    return r;
}

static int call_allocate(struct tree *t, uint64_t node, const char *name)
{
    struct tree_file *f = NULL;
    (void)name;
    int r = tree_open_file(t, node, O_RDONLY, &f);
    if (r == 0)
        r = tree_allocate(f, 0, 0, 1);
    (void)tree_release(f);
    return r;
}

static int call_flush(struct tree *t, uint64_t node, const char *name)
{
    struct tree_wait w;
    struct tree_file *f = NULL;
    (void)name;
    int r = tree_open_file(t, node, O_RDONLY, &f);
    if (r == 0)
        r = tree_waited(&w, tree_flush(f, tree_wait(&w)));
    if (r == 0)
        r = tree_waited(&w, tree_fsync(f, tree_wait(&w)));
    (void)tree_release(f);
    return r;
}

static int call_get(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf out = BUF_INIT;
    return tree_getxattr(t, node, name, &out);
}

static int call_set(struct tree *t, uint64_t node, const char *name)
{
    struct tree_wait w;
    return tree_waited(&w, tree_setxattr(t, node, name, "u64", 3, tree_wait(&w)));
}

/* Set an attribute to its current value, as cp -a does. */
static int call_set_same(struct tree *t, uint64_t node, const char *name)
{
    CLEANUP(buf_free) struct buf is = BUF_INIT;
    struct tree_wait w;
    int r = tree_getxattr(t, node, name, &is);
    return r < 0 ? r
                 : tree_waited(&w, tree_setxattr(t, node, name, is.data, is.len, tree_wait(&w)));
}

static int call_remove(struct tree *t, uint64_t node, const char *name)
{
    return tree_removexattr(t, node, name);
}

/* ---- the expected results ---- */

#define CALL(n) #n, call_##n
/* In the table, this represents long_name. */
#define LONG "LONG"
/* In the table, this represents numbers that belong to no node. */
#define NONE "NONE"
#define ROW "ROW"

static const struct row_of_calls {
    const char *call;
    int (*fn)(struct tree *t, uint64_t node, const char *name);
    const char *path, *name;
    int want[KINDS];
} rows[] = {
    // clang-format off
    {CALL(create), "", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(mknod), "", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(mkdir), "", "n.n", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(symlink), "", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(create), "metadata", "n.n", {EROFS, 0, 0, 0}},
    {CALL(mknod), "metadata", "n.n", {EROFS, 0, 0, 0}},
    {CALL(mkdir), "metadata", "n.n", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(symlink), "metadata", "n.n", {EROFS, EPERM, EPERM, EPERM}},
    {CALL(create), "tensors", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(mknod), "tensors", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(mkdir), "tensors", "n.n", {EPERM, EROFS, 0, EROFS}},
    {CALL(symlink), "tensors", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(create), "tensors/t", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(mknod), "tensors/t", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(mkdir), "tensors/t", "n.n", {EPERM, EROFS, EPERM, EROFS}},
    {CALL(symlink), "tensors/t", "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(create), "tensors/t/raw", "n.n", {EROFS, EROFS, EACCES, EROFS}},
    {CALL(mknod), "tensors/t/raw", "n.n", {EROFS, EROFS, EACCES, EROFS}},
    {CALL(mkdir), "tensors/t/raw", "n.n", {EPERM, EROFS, EPERM, EROFS}},
    {CALL(symlink), "tensors/t/raw", "n.n", {EROFS, EROFS, EACCES, EROFS}},
    {CALL(create), "metadata/a.b", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(mknod), "metadata/a.b", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(mkdir), "metadata/a.b", "n.n", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(symlink), "metadata/a.b", "n.n", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(create), NONE, "n.n", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(mknod), NONE, "n.n", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(mkdir), NONE, "n.n", {EPERM, EROFS, EPERM, EROFS}},
    {CALL(symlink), NONE, "n.n", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(create), "metadata", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mknod), "metadata", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mkdir), "metadata", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(symlink), "metadata", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(lookup), "metadata", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(create), "tensors", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mknod), "tensors", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mkdir), "tensors", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(symlink), "tensors", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(lookup), "tensors", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(create), "tensors/t", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mknod), "tensors/t", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(mkdir), "tensors/t", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(symlink), "tensors/t", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(lookup), "tensors/t", LONG, {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(create), "tensors/t", "raw", {EROFS, EROFS, EEXIST, EROFS}},
    {CALL(create), "tensors/t", "stats", {EROFS, EROFS, EEXIST, EROFS}},
    {CALL(create), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(mknod), "tensors/t", "raw", {EROFS, EROFS, EEXIST, EROFS}},
    {CALL(create), "tensors", "t", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(lookup), "tensors/t/raw", "x", {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(lookup), "metadata/a.b", "x", {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(lookup), NONE, "x", {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(lookup), "tensors", "x", {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(lookup), "tensors/t", "x", {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(unlink), "", "info", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(rmdir), "", "info", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(rename), "", "info", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(exchange), "", "info", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(move), "", "info", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(move_t), "", "info", {EROFS, EACCES, EPERM, EACCES}},
    {CALL(move_m), "", "info", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(unlink), "metadata", "a.b", {EROFS, 0, 0, 0}},
    {CALL(rmdir), "metadata", "a.b", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(rename), "metadata", "a.b", {EROFS, 0, 0, 0}},
    {CALL(exchange), "metadata", "a.b", {EROFS, EINVAL, EINVAL, EINVAL}},
    {CALL(move), "metadata", "a.b", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(move_t), "metadata", "a.b", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_m), "metadata", "a.b", {EROFS, 0, 0, 0}},
    {CALL(unlink), "metadata", "no", {EROFS, ENOENT, ENOENT, ENOENT}},
    {CALL(rmdir), "metadata", "no", {EPERM, EPERM, EPERM, EPERM}},
    {CALL(rename), "metadata", "no", {EROFS, ENOENT, ENOENT, ENOENT}},
    {CALL(exchange), "metadata", "no", {EROFS, ENOENT, ENOENT, ENOENT}},
    {CALL(move), "metadata", "no", {EROFS, EACCES, EACCES, EACCES}},
    {CALL(move_t), "metadata", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_m), "metadata", "no", {EROFS, ENOENT, ENOENT, ENOENT}},
    {CALL(unlink), "tensors", "t", {EROFS, EROFS, EISDIR, EROFS}},
    {CALL(rmdir), "tensors", "t", {EPERM, EROFS, EPERM, EROFS}},
    {CALL(rename), "tensors", "t", {EROFS, EROFS, 0, EROFS}},
    {CALL(exchange), "tensors", "t", {EROFS, EROFS, EINVAL, EROFS}},
    {CALL(move), "tensors", "t", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_t), "tensors", "t", {EROFS, EROFS, 0, EROFS}},
    {CALL(move_m), "tensors", "t", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(unlink), "tensors", "no", {EROFS, EROFS, EISDIR, EROFS}},
    {CALL(rmdir), "tensors", "no", {EPERM, EROFS, ENOENT, EROFS}},
    {CALL(rename), "tensors", "no", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(exchange), "tensors", "no", {EROFS, EROFS, EINVAL, EROFS}},
    {CALL(move), "tensors", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_t), "tensors", "no", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(move_m), "tensors", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(unlink), "tensors/t", "raw", {EROFS, EROFS, 0, EROFS}},
    {CALL(rmdir), "tensors/t", "raw", {EPERM, EROFS, ENOTDIR, EROFS}},
    {CALL(rename), "tensors/t", "raw", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(exchange), "tensors/t", "raw", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move), "tensors/t", "raw", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_t), "tensors/t", "raw", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_m), "tensors/t", "raw", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(unlink), "tensors/t", "no", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(rmdir), "tensors/t", "no", {EPERM, EROFS, ENOTDIR, EROFS}},
    {CALL(rename), "tensors/t", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(exchange), "tensors/t", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move), "tensors/t", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_t), "tensors/t", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_m), "tensors/t", "no", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(unlink), "tensors/t", "shard", {EROFS, EROFS, ENOENT, EROFS}},
    {CALL(rmdir), "tensors/t", "shard", {EPERM, EROFS, ENOTDIR, EROFS}},
    {CALL(rename), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(exchange), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_t), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(move_m), "tensors/t", "shard", {EROFS, EROFS, EPERM, EROFS}},
    {CALL(readlink), "", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "", NULL, {0, 0, 0, 0}},
    {CALL(open_r), "", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(open_w), "", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(truncate), "", NULL, {EROFS, EACCES, EACCES, EACCES}},
    {CALL(write), "", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(allocate), "", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(flush), "", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(readlink), "metadata", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "metadata", NULL, {0, 0, 0, 0}},
    {CALL(open_r), "metadata", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(open_w), "metadata", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(truncate), "metadata", NULL, {EROFS, EACCES, EACCES, EACCES}},
    {CALL(getattr), "tensors", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "tensors", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "tensors", NULL, {0, 0, 0, 0}},
    {CALL(open_r), "tensors", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(open_w), "tensors", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(truncate), "tensors", NULL, {EROFS, EROFS, EACCES, EROFS}},
    {CALL(getattr), "tensors/t", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "tensors/t", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "tensors/t", NULL, {0, 0, 0, 0}},
    {CALL(open_r), "tensors/t", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(open_w), "tensors/t", NULL, {EISDIR, EISDIR, EISDIR, EISDIR}},
    {CALL(truncate), "tensors/t", NULL, {EROFS, EROFS, EACCES, EROFS}},
    {CALL(getattr), "tensors/t/raw", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "tensors/t/raw", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "tensors/t/raw", NULL, {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(open_r), "tensors/t/raw", NULL, {0, 0, 0, 0}},
    {CALL(open_w), "tensors/t/raw", NULL, {EROFS, EROFS, 0, EROFS}},
    {CALL(truncate), "tensors/t/raw", NULL, {EROFS, EROFS, 0, EROFS}},
    {CALL(write), "tensors/t/raw", NULL, {EBADF, EBADF, EBADF, EBADF}},
    {CALL(allocate), "tensors/t/raw", NULL, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(flush), "tensors/t/raw", NULL, {0, 0, 0, 0}},
    {CALL(getattr), "tensors/t/offset", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "tensors/t/offset", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "tensors/t/offset", NULL, {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(open_r), "tensors/t/offset", NULL, {0, 0, 0, 0}},
    {CALL(open_w), "tensors/t/offset", NULL, {EROFS, EROFS, 0, EROFS}},
    {CALL(truncate), "tensors/t/offset", NULL, {EROFS, EROFS, 0, EROFS}},
    {CALL(write), "tensors/t/offset", NULL, {EBADF, EBADF, EBADF, EBADF}},
    {CALL(allocate), "tensors/t/offset", NULL, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(flush), "tensors/t/offset", NULL, {0, 0, 0, 0}},
    {CALL(getattr), "metadata/a.b", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "metadata/a.b", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "metadata/a.b", NULL, {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(open_r), "metadata/a.b", NULL, {0, 0, 0, 0}},
    {CALL(open_w), "metadata/a.b", NULL, {EROFS, 0, 0, 0}},
    {CALL(truncate), "metadata/a.b", NULL, {EROFS, 0, 0, 0}},
    {CALL(write), "metadata/a.b", NULL, {EBADF, EBADF, EBADF, EBADF}},
    {CALL(allocate), "metadata/a.b", NULL, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(flush), "metadata/a.b", NULL, {0, 0, 0, 0}},
    {CALL(getattr), "model.gguf", NULL, {0, 0, 0, 0}},
    {CALL(readlink), "model.gguf", NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), "model.gguf", NULL, {ENOTDIR, ENOTDIR, ENOTDIR, ENOTDIR}},
    {CALL(open_r), "model.gguf", NULL, {0, 0, 0, 0}},
    {CALL(open_w), "model.gguf", NULL, {EROFS, EACCES, EACCES, EACCES}},
    {CALL(truncate), "model.gguf", NULL, {EROFS, EACCES, EACCES, EACCES}},
    {CALL(write), "model.gguf", NULL, {EBADF, EBADF, EBADF, EBADF}},
    {CALL(allocate), "model.gguf", NULL, {EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(flush), "model.gguf", NULL, {0, 0, 0, 0}},
    {CALL(readlink), NONE, NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(open_r), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(open_w), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(truncate), NONE, NULL, {EROFS, EROFS, EACCES, EROFS}},
    {CALL(write), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(allocate), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(flush), NONE, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(getattr), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(readlink), ROW, NULL, {EINVAL, EINVAL, EINVAL, EINVAL}},
    {CALL(opendir), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(open_r), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(open_w), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(truncate), ROW, NULL, {EROFS, EACCES, EACCES, EACCES}},
    {CALL(write), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(allocate), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(flush), ROW, NULL, {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(get), "", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "", "user.x", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "metadata", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "metadata", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "metadata", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "metadata", "user.x", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "tensors", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors", "user.gguf.type", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors", "user.gguf.type", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors", "user.gguf.error", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors", "user.gguf.error", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors", "user.gguf.readonly", {ENODATA, 0, ENODATA, 0}},
    {CALL(set), "tensors", "user.gguf.readonly", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors", "user.gguf.readonly", {ENODATA, EOPNOTSUPP, ENODATA, EOPNOTSUPP}},
    {CALL(remove), "tensors", "user.gguf.readonly", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "tensors", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors", "user.x", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t", "user.gguf.type", {0, 0, 0, 0}},
    {CALL(set), "tensors/t", "user.gguf.type", {EROFS, EPERM, 0, EPERM}},
    {CALL(set_same), "tensors/t", "user.gguf.type", {EROFS, 0, 0, 0}},
    {CALL(remove), "tensors/t", "user.gguf.type", {EROFS, EPERM, 0, EPERM}},
    {CALL(get), "tensors/t", "user.gguf.name", {0, 0, 0, 0}},
    {CALL(set), "tensors/t", "user.gguf.name", {EROFS, EPERM, 0, EPERM}},
    {CALL(set_same), "tensors/t", "user.gguf.name", {EROFS, 0, 0, 0}},
    {CALL(remove), "tensors/t", "user.gguf.name", {EROFS, EPERM, 0, EPERM}},
    {CALL(get), "tensors/t", "user.gguf.error", {ENODATA, ENODATA, ENODATA, 0}},
    {CALL(set), "tensors/t", "user.gguf.error", {EROFS, EPERM, 0, EPERM}},
    {CALL(set_same), "tensors/t", "user.gguf.error", {ENODATA, ENODATA, ENODATA, 0}},
    {CALL(remove), "tensors/t", "user.gguf.error", {EROFS, ENODATA, 0, 0}},
    {CALL(get), "tensors/t", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t", "user.gguf.readonly", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t", "user.gguf.readonly", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t", "user.x", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t/raw", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t/raw", "user.gguf.type", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t/raw", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t/raw", "user.gguf.type", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t/raw", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t/raw", "user.gguf.error", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t/raw", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t/raw", "user.gguf.error", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t/raw", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t/raw", "user.gguf.readonly", {EROFS, EOPNOTSUPP, 0, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t/raw", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t/raw", "user.gguf.readonly", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "tensors/t/raw", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "tensors/t/raw", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "tensors/t/raw", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "tensors/t/raw", "user.x", {EROFS, ENODATA, 0, ENODATA}},
    {CALL(get), "metadata/a.b", "user.gguf.type", {0, 0, 0, 0}},
    {CALL(set), "metadata/a.b", "user.gguf.type", {EROFS, 0, 0, 0}},
    {CALL(set_same), "metadata/a.b", "user.gguf.type", {EROFS, 0, 0, 0}},
    {CALL(remove), "metadata/a.b", "user.gguf.type", {EROFS, EPERM, EPERM, EPERM}},
    {CALL(get), "metadata/a.b", "user.gguf.name", {0, 0, 0, 0}},
    {CALL(set), "metadata/a.b", "user.gguf.name", {EROFS, EPERM, EPERM, EPERM}},
    {CALL(set_same), "metadata/a.b", "user.gguf.name", {EROFS, 0, 0, 0}},
    {CALL(remove), "metadata/a.b", "user.gguf.name", {EROFS, EPERM, EPERM, EPERM}},
    {CALL(get), "metadata/a.b", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "metadata/a.b", "user.gguf.error", {EROFS, EPERM, EPERM, EPERM}},
    {CALL(set_same), "metadata/a.b", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "metadata/a.b", "user.gguf.error", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "metadata/a.b", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "metadata/a.b", "user.gguf.readonly", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "metadata/a.b", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "metadata/a.b", "user.gguf.readonly", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "metadata/a.b", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "metadata/a.b", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "metadata/a.b", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "metadata/a.b", "user.x", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "model.gguf", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "model.gguf", "user.gguf.type", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "model.gguf", "user.gguf.type", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "model.gguf", "user.gguf.type", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "model.gguf", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "model.gguf", "user.gguf.error", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "model.gguf", "user.gguf.error", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "model.gguf", "user.gguf.error", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "model.gguf", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "model.gguf", "user.gguf.readonly", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "model.gguf", "user.gguf.readonly", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "model.gguf", "user.gguf.readonly", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), "model.gguf", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(set), "model.gguf", "user.x", {EROFS, EOPNOTSUPP, EOPNOTSUPP, EOPNOTSUPP}},
    {CALL(set_same), "model.gguf", "user.x", {ENODATA, ENODATA, ENODATA, ENODATA}},
    {CALL(remove), "model.gguf", "user.x", {EROFS, ENODATA, ENODATA, ENODATA}},
    {CALL(get), NONE, "user.gguf.type", {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(set), NONE, "user.gguf.type", {EROFS, ENOENT, 0, ENOENT}},
    {CALL(set_same), NONE, "user.gguf.type", {ENOENT, ENOENT, ENOENT, ENOENT}},
    {CALL(remove), NONE, "user.gguf.type", {EROFS, ENOENT, 0, ENOENT}},
    {CALL(rename_long), "metadata", "a.b", {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(rename_long), "tensors", "t", {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    {CALL(rename_long), "tensors/t", "raw", {ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG, ENAMETOOLONG}},
    // clang-format on
};

static uint64_t node_of(struct tree *t, const char *path)
{
    const struct tree_image m = {.t = t};
    if (strcmp(path, NONE) == 0)
        return ino_tensor(77);
    if (strcmp(path, ROW) == 0)
        return ino_row(99);
    return image_node(&m, path);
}

static void test_row(const struct row_of_calls *row, int kind)
{
    struct place p;
    struct tree *t = open_kind(kind, &p);
    const char *name = row->name && strcmp(row->name, LONG) == 0 ? long_name : row->name;
    int r = row->fn(t, node_of(t, row->path), name);
    if (r != -row->want[kind])
        (void)printf("\n%s '%s' %s of kind %d: %s\n", row->call, row->path,
                     row->name ? row->name : "", kind, strerror(-r));
    CU_ASSERT_EQUAL(r, -row->want[kind]);
    (void)tree_finish(t);
    tree_close(t);
    drop_place(&p);
}

static void test_all(void)
{
    memset(long_name, 'x', sizeof(long_name) - 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (int kind = 0; kind < KINDS; kind++)
            test_row(&rows[i], kind);
}

static CU_TestInfo tests[] = {
    {"each call is refused on each wrong kind of file", test_all},
    CU_TEST_INFO_NULL,
};

CU_MAIN("refused_calls", tests)
