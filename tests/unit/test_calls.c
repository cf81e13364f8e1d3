/* SPDX-License-Identifier: MIT */
/* Each call on each kind of file: in a read-only tree, in one with editable keys, in one with
 * editable tensors, and while another process holds the lock. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "cu_test.h"
#include "model_dir.h"
#include "tree_image.h"

enum { READ_ONLY, KEYS, TENSORS, BUSY, KINDS };

static struct tree *open_kind(int kind, struct place *p, struct tree **other)
{
    struct tree_options o = {.strategy = EDIT_COPY, .commit = LIVE_COMMIT_CLOSE, .tensors = true};
    struct build b = build_of(3, false);
    build_text(&b, "a.b:u32=1|>t F32 5");
    *p = place_of(&b);
    *other = kind == BUSY ? image_tree(p->model, &o) : NULL;
    o.read_only = kind == READ_ONLY;
    o.tensors = kind >= TENSORS;
    o.views = FILES_ALL;
    o.late = kind == BUSY;
    return image_tree(p->model, &o);
}

static char long_name[TREE_NAME_MAX + 2];

/* ---- calls on a node, with a name in it or the name of an attribute ---- */

/* What calls need: an entry, a wait, and something to read into. */
struct room {
    struct tree_entry e;
    struct tree_wait w;
    struct buf out;
};

/* Define call_NAME(), which returns the result of an expression. */
#define CALLS(what, result)                                                 \
    static int call_##what(struct tree *t, uint64_t node, const char *name) \
    {                                                                       \
        struct room r = {.out = BUF_INIT};                                  \
        (void)name;                                                         \
        const int got = (result);                                           \
        buf_free(&r.out);                                                   \
        return got;                                                         \
    }

static int create_in(struct tree *t, uint64_t node, const char *name, struct tree_entry *e)
{
    struct tree_file *f = NULL;
    int r = tree_create(t, node, name, O_RDWR | O_CREAT | O_EXCL, e, &f);
    tree_release(f);
    return r;
}

static int rename_in(struct tree *t, uint64_t node, const char *name, uint64_t into, const char *to,
                     unsigned flags)
{
    struct tree_wait w;
    return tree_waited(&w, tree_rename(t, node, name, into, to, flags, tree_wait(&w)));
}

static int open_folder(struct tree *t, uint64_t node)
{
    struct tree_dir *d;
    int r = tree_opendir(t, node, &d);
    if (r == 0)
        tree_closedir(d);
    return r;
}

enum use { NOTHING, WRITE, ALLOCATE, FLUSH };

/* Open a file, and use it. */
static int open_as(struct tree *t, uint64_t node, int flags, enum use use)
{
    struct tree_wait w;
    struct tree_file *f = NULL;
    int r = tree_open_file(t, node, flags, &f);
    if (r == 0 && use == WRITE)
        r = tree_waited(&w, tree_write(f, 0, "x", 1, tree_wait(&w)));
    if (r == 0 && use == ALLOCATE)
        r = tree_allocate(f, 0, 0, 1);
    if (r == 0 && use == FLUSH)
        r = tree_waited(&w, tree_flush(f, tree_wait(&w)));
    if (r == 0 && use == FLUSH)
        r = tree_waited(&w, tree_fsync(f, tree_wait(&w)));
    tree_release(f);
    return r;
}

static int set_to(struct tree *t, uint64_t node, const char *name, const void *value, size_t n)
{
    struct tree_wait w;
    return tree_waited(&w, tree_setxattr(t, node, name, value, n, tree_wait(&w)));
}

/* Set an attribute to its current value, as cp -a does. */
static int set_same(struct tree *t, uint64_t node, const char *name, struct buf *is)
{
    int r = tree_getxattr(t, node, name, is);
    return r < 0 ? r : set_to(t, node, name, is->data, is->len);
}

CALLS(create, create_in(t, node, name, &r.e))
CALLS(mknod, tree_mknod(t, node, name, &r.e))
CALLS(mkdir, tree_mkdir(t, node, name, &r.e))
CALLS(lookup, tree_lookup(t, node, name, &r.e))
CALLS(getattr, tree_getattr(t, node, NULL, &r.e))
CALLS(rename, rename_in(t, node, name, node, "x.y", 0))
CALLS(rename_long, rename_in(t, node, name, node, long_name, 0))
CALLS(exchange, rename_in(t, node, name, node, "x.y", 2))
CALLS(move, rename_in(t, node, name, INO_ROOT, "x.y", 0))
CALLS(move_t, rename_in(t, node, name, ino_row(1), "x.y", 0)) /* into tensors/ */
CALLS(move_m, rename_in(t, node, name, ino_row(0), "x.y", 0)) /* into metadata/ */
CALLS(unlink, tree_unlink(t, node, name))
CALLS(rmdir, tree_rmdir(t, node, name))
CALLS(opendir, open_folder(t, node))
CALLS(open_r, open_as(t, node, O_RDONLY, NOTHING))
CALLS(open_w, open_as(t, node, O_RDWR, NOTHING))
CALLS(truncate, tree_waited(&r.w, tree_truncate_unopened(t, node, 1, tree_wait(&r.w))))
/* on a file that is opened only for reading */
CALLS(write, open_as(t, node, O_RDONLY, WRITE))
CALLS(allocate, open_as(t, node, O_RDONLY, ALLOCATE))
CALLS(flush, open_as(t, node, O_RDONLY, FLUSH))
CALLS(get, tree_getxattr(t, node, name, &r.out))
CALLS(set, set_to(t, node, name, "u64", 3))
CALLS(set_same, set_same(t, node, name, &r.out))
CALLS(remove, tree_removexattr(t, node, name))

/* ---- the expected results ---- */

#define CALL(n) #n, call_##n
#define LONG "LONG"   /* a name that is too long */
#define CHILD "CHILD" /* what is in that directory */

/* The columns: files, and what is in them. The last number belongs to no node. */
static const struct column {
    const char *path, *child;
} columns[] = {{"", "info"},         {"metadata", "a.b"},   {"tensors", "t"},
               {"tensors/t", "raw"}, {"tensors/t/raw", ""}, {"metadata/a.b", ""},
               {"model.gguf", ""},   {"NONE", ""}};

/* In a column, a letter for each kind: the error; 0: success; -: not called. */
static const struct {
    char letter;
    int error;
} letters[] = {{'0', 0},       {'R', EROFS},  {'A', EACCES},       {'P', EPERM},  {'N', ENOENT},
               {'D', ENODATA}, {'I', EISDIR}, {'T', ENOTDIR},      {'V', EINVAL}, {'O', EOPNOTSUPP},
               {'B', EBADF},   {'E', EEXIST}, {'L', ENAMETOOLONG}, {'Y', EBUSY}};

static const struct row_of_calls {
    const char *call;
    int (*fn)(struct tree *t, uint64_t node, const char *name);
    const char *name, *want;
} rows[] = {
    // clang-format off
    {CALL(create), "n.n", "RAAA R00Y RRPY RRPY RRAA RAAA ---- RRNY"},
    {CALL(mknod), "n.n", "RAAA R00Y RRPY RRPY RRAA RAAA ---- RRNY"},
    {CALL(mkdir), "n.n", "RAAA RPPY RR0Y RRPY RRAA RAAA ---- RRPY"},
    {CALL(create), LONG, "---- LLLL LLLL LLLL ---- ---- ---- ----"},
    {CALL(mknod), LONG, "---- LLLL LLLL LLLL ---- ---- ---- ----"},
    {CALL(mkdir), LONG, "---- LLLL LLLL LLLL ---- ---- ---- ----"},
    {CALL(lookup), LONG, "---- LLLL LLLL LLLL ---- ---- ---- ----"},
    {CALL(create), "raw", "---- ---- ---- RREY ---- ---- ---- ----"},
    {CALL(create), "stats", "---- ---- ---- RREY ---- ---- ---- ----"},
    {CALL(create), "shard", "---- ---- ---- RRPY ---- ---- ---- ----"},
    {CALL(mknod), "raw", "---- ---- ---- RREY ---- ---- ---- ----"},
    {CALL(create), "t", "---- ---- RRPY ---- ---- ---- ---- ----"},
    {CALL(lookup), "x", "---- ---- NNNN NNNN TTTT TTTT ---- NNNN"},
    {CALL(unlink), CHILD, "RAAA R00Y RRIY RR0Y ---- ---- ---- ----"},
    {CALL(rmdir), CHILD, "RAAA RPPY RRPY RRTY ---- ---- ---- ----"},
    {CALL(rename), CHILD, "RAAA R00Y RR0Y RRPY ---- ---- ---- ----"},
    {CALL(exchange), CHILD, "RAAA RVVY RRVY RRPY ---- ---- ---- ----"},
    {CALL(move), CHILD, "RAAA RAAY RRAY RRAY ---- ---- ---- ----"},
    {CALL(move_t), CHILD, "RAAA RRPY RR0Y RRPY ---- ---- ---- ----"},
    {CALL(move_m), CHILD, "RAAA R00Y RRPY RRPY ---- ---- ---- ----"},
    {CALL(unlink), "no", "---- RNNY RRIY RRNY ---- ---- ---- ----"},
    {CALL(rmdir), "no", "---- RPPY RRNY RRTY ---- ---- ---- ----"},
    {CALL(rename), "no", "---- RNNY RRNY RRPY ---- ---- ---- ----"},
    {CALL(opendir), NULL, "0000 0000 0000 0000 TTTT TTTT TTTT NNNN"},
    {CALL(open_r), NULL, "IIII IIII IIII IIII 0000 0000 0000 NNNN"},
    {CALL(open_w), NULL, "IIII IIII IIII IIII RR0Y R00Y RAAA NNNN"},
    {CALL(truncate), NULL, "IIII IIII IIII IIII RR0Y R00Y RAAA NNNN"},
    {CALL(write), NULL, "IIII ---- ---- ---- BBBB BBBB BBBB NNNN"},
    {CALL(allocate), NULL, "IIII ---- ---- ---- OOOO OOOO OOOO NNNN"},
    {CALL(flush), NULL, "IIII ---- ---- ---- 0000 0000 0000 NNNN"},
    {CALL(getattr), NULL, "---- ---- 0000 0000 0000 0000 0000 ----"},
    {CALL(get), "user.x", "DDDD DDDD DDDD DDDD DDDD DDDD DDDD ----"},
    {CALL(set), "user.x", "ROOO ROOO ROOO ROOO ROOO ROOO ROOO ----"},
    {CALL(remove), "user.x", "RDDD RDDD RD00 RD00 RD00 RDDD RDDD ----"},
    {CALL(get), "user.gguf.type", "---- ---- DDDD 0000 DDDD 0000 DDDD NNNN"},
    {CALL(set), "user.gguf.type", "---- ---- RO00 RP00 RO00 R00Y ROOO RN00"},
    {CALL(set_same), "user.gguf.type", "---- ---- DDDD R000 DDDD R000 DDDD NNNN"},
    {CALL(remove), "user.gguf.type", "---- ---- RD00 RP00 RD00 RPPP RDDD RN00"},
    {CALL(get), "user.gguf.error", "---- ---- DDDD DDDD DDDD DDDD DDDD ----"},
    {CALL(set), "user.gguf.error", "---- ---- RO00 RO00 RO00 ROOO ROOO ----"},
    {CALL(set_same), "user.gguf.error", "---- ---- DDDD DDDD DDDD DDDD DDDD ----"},
    {CALL(remove), "user.gguf.error", "---- ---- RD00 RD00 RD00 RDDD RDDD ----"},
    {CALL(get), "user.gguf.readonly", "---- ---- D0DD DDDD DDDD DDDD DDDD ----"},
    {CALL(set), "user.gguf.readonly", "---- ---- RP00 RO00 RO00 ROOO ROOO ----"},
    {CALL(set_same), "user.gguf.readonly", "---- ---- D0DD DDDD DDDD DDDD DDDD ----"},
    {CALL(remove), "user.gguf.readonly", "---- ---- RP00 RD00 RD00 RDDD RDDD ----"},
    {CALL(get), "user.gguf.name", "---- ---- ---- 0000 ---- 0000 ---- ----"},
    {CALL(set), "user.gguf.name", "---- ---- ---- RP00 ---- RPPP ---- ----"},
    {CALL(set_same), "user.gguf.name", "---- ---- ---- R000 ---- R000 ---- ----"},
    {CALL(remove), "user.gguf.name", "---- ---- ---- RP00 ---- RPPP ---- ----"},
    {CALL(rename_long), CHILD, "---- LLLL LLLL LLLL ---- ---- ---- ----"},
    // clang-format on
};

static int want_of(const struct row_of_calls *row, size_t column, int kind)
{
    const char c = row->want[column * (KINDS + 1) + (size_t)kind];
    for (size_t i = 0; i < COUNT(letters); i++)
        if (letters[i].letter == c)
            return -letters[i].error;
    return 1;
}

static void check(const struct row_of_calls *row, size_t column, int kind)
{
    CLEANUP(drop_place) struct place p;
    const struct column *on = &columns[column];
    struct tree *other, *t = open_kind(kind, &p, &other);
    const struct tree_image m = {.t = t};
    const char *name = row->name;
    if (name && strcmp(name, LONG) == 0)
        name = long_name;
    if (name && strcmp(name, CHILD) == 0)
        name = on->child;
    int r = row->fn(
        t, column == COUNT(columns) - 1 ? ino_make(NODE_TENSOR, 77, 0) : image_node(&m, on->path),
        name);
    CU_SAYS(r == want_of(row, column, kind), "%s '%s' %s of kind %d: %s\n", row->call, on->path,
            row->name, kind, strerror(-r));
    tree_close(other);
    (void)tree_finish(t);
    tree_close(t);
}

TEST("each call is refused on each wrong kind of file")
{
    memset(long_name, 'x', sizeof(long_name) - 1);
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(columns); k++)
            for (int kind = 0; kind < KINDS; kind++)
                if (want_of(&rows[i], k, kind) <= 0)
                    check(&rows[i], k, kind);
}
