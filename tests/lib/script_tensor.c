/* SPDX-License-Identifier: MIT */
/* Scripts' operations on tensors/, and inspections of it: see script.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "live/tensors.h"
#include "script_run.h"
#include "tree_edit.h"
#include "tree_image.h"

enum { FLOATS = 64, RENAME_NEW = 1 };

/* Look up the directory in a path below tensors/, and find the last name. */
static int parent_of(struct run *r, const char *path, uint64_t *dir, const char **name)
{
    struct tree_entry e;
    char folder[TREE_NAME_MAX + 1];
    const char *slash = strchr(path, '/');
    int got = tree_lookup(r->t, INO_ROOT, "tensors", &e);
    if (got == 0 && slash) {
        (void)snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
        got = tree_lookup(r->t, e.node, folder, &e);
    }
    *dir = e.node;
    *name = slash ? slash + 1 : path;
    return got;
}

/* Look up a path; if a node on the way is stale, look the path up again, as the kernel does. */
static int find(struct run *r, const char *path, struct tree_entry *e)
{
    uint64_t dir;
    const char *name;
    int got = -ESTALE;
    for (int tries = 0; got == -ESTALE && tries < 2; tries++) {
        got = parent_of(r, path, &dir, &name);
        if (got == 0 && strcmp(path, ".") == 0)
            got = tree_getattr(r->t, dir, NULL, e);
        else if (got == 0)
            got = tree_lookup(r->t, dir, name, e);
    }
    return got;
}

/* Open a path; if its node is stale, look the path up again, as the kernel does. */
static int open_tensor(struct run *r, const char *path, int flags, struct handle *h)
{
    struct tree_entry e;
    uint64_t dir;
    const char *name;
    *h = (struct handle){0};
    int got = parent_of(r, path, &dir, &name), found;
    for (int tries = 0; got == 0 && tries < 2; tries++) {
        found = got = tree_lookup(r->t, dir, name, &e);
        if (found == 0 && flags & O_EXCL)
            got = -EEXIST;
        else if (found == 0)
            got = tree_open_file(r->t, e.node, flags & ~O_CREAT, &h->f);
        else if (found == -ENOENT && flags & O_CREAT)
            got = tree_create(r->t, dir, name, flags, &e, &h->f);
        if (got == 0)
            h->node = e.node;
        else if (found == 0)
            tree_forget(r->t, e.node, 1);
        if (got != -ESTALE)
            break;
        got = 0;
    }
    return h->f || got < 0 ? got : -ESTALE;
}

static int op_topen(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    struct handle *h = &r->handle[(arg[0][0] - 'A') % HANDLES];
    return open_tensor(r, arg[1], script_flags(r, arg + 2), h);
}

static uint64_t noted;

static int op_tnote(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    noted = script_handle(r, arg[0])->node;
    return 0;
}

/* Check that the path no longer shows the noted node, which the kernel cached. */
static int op_tmoved(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = find(r, arg[0], &e);
    if (got == 0 && e.node == noted)
        script_fail(r, "%s has the same node", arg[0]);
    return got;
}

/* Open by node, as through /proc/self/fd, for which the kernel looks up no name. */
static int op_tnode(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = &r->handle[(arg[0][0] - 'A') % HANDLES];
    (void)w;
    *h = (struct handle){.node = noted};
    int got = tree_open_file(r->t, noted, script_flags(r, arg + 1), &h->f);
    if (got < 0)
        *h = (struct handle){0};
    return got;
}

static int put_bytes(struct run *r, const char *path, int flags, const void *bytes, size_t n,
                     struct waiter *w)
{
    struct handle h;
    int got = open_tensor(r, path, O_WRONLY | O_CREAT | flags, &h);
    if (got < 0)
        return got;
    got = script_wait_here(w, tree_flush(h.f, &w->wait));
    if (got == 0 && n)
        got = script_wait_here(w, tree_write(h.f, 0, bytes, n, &w->wait));
    int closed = script_wait_here(w, tree_flush(h.f, &w->wait));
    script_release(r, &h);
    return got ? got : closed;
}

static int op_tput(struct run *r, char **arg, struct waiter *w)
{
    return put_bytes(r, arg[0], O_TRUNC, arg[1], strlen(arg[1]), w);
}

static int op_tadd(struct run *r, char **arg, struct waiter *w)
{
    return put_bytes(r, arg[0], O_APPEND, arg[1], strlen(arg[1]), w);
}

static size_t floats_of(const char *text, uint8_t bytes[4 * FLOATS])
{
    size_t n = 0;
    for (char *end; *text && n < FLOATS; text = end + strspn(end, " "), n++) {
        float value = strtof(text, &end);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        put_u32(bytes + 4 * n, bits, false);
    }
    return 4 * n;
}

static int op_tfloats(struct run *r, char **arg, struct waiter *w)
{
    uint8_t bytes[4 * FLOATS];
    size_t n = floats_of(arg[1], bytes);
    return put_bytes(r, arg[0], O_TRUNC, bytes, n, w);
}

/* Write over existing bytes; the header of an .npy stays. */
static int op_tpoke(struct run *r, char **arg, struct waiter *w)
{
    uint8_t bytes[4 * FLOATS];
    size_t n = floats_of(arg[2], bytes);
    struct handle *h = script_handle(r, arg[0]);
    return h->f ? tree_write(h->f, script_number(r, arg[1]), bytes, n, &w->wait) : 0;
}

static int op_tdots(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    uint64_t n = script_number(r, arg[1]), step = script_number(r, arg[2]);
    int got = 0;
    for (uint64_t i = 0; h->f && got == 0 && i < n; i++)
        got = script_wait_here(w, tree_write(h->f, i * step, "X", 1, &w->wait));
    return got;
}

/* Write a whole .npy of float32 with this shape. */
static int op_tnpy(struct run *r, char **arg, struct waiter *w)
{
    uint8_t bytes[128 + 4 * FLOATS] = "\x93NUMPY\x01\x00\x76";
    size_t n = floats_of(arg[2], bytes + 128);
    struct handle *h = script_handle(r, arg[0]);
    int len = snprintf((char *)bytes + 10, 118,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", arg[1]);
    memset(bytes + 10 + len, ' ', 118 - (size_t)len);
    bytes[127] = '\n';
    return h->f ? tree_write(h->f, 0, bytes, 128 + n, &w->wait) : 0;
}

static int op_ttruncate(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    int got = -ESTALE;
    for (int tries = 0; got == -ESTALE && tries < 2; tries++) {
        got = find(r, arg[0], &e);
        if (got == 0) {
            got = script_wait_here(w,
                                   truncate_node(r->t, e.node, script_number(r, arg[1]), &w->wait));
            tree_forget(r->t, e.node, 1);
        }
    }
    return got;
}

static int op_trm(struct run *r, char **arg, struct waiter *w)
{
    uint64_t dir;
    const char *name;
    (void)w;
    int got = parent_of(r, arg[0], &dir, &name);
    return got < 0 ? got : tree_unlink(r->t, dir, name);
}

static int op_trmdir(struct run *r, char **arg, struct waiter *w)
{
    uint64_t dir;
    const char *name;
    (void)w;
    int got = parent_of(r, arg[0], &dir, &name);
    return got < 0 ? got : tree_rmdir(r->t, dir, name);
}

static int op_tmkdir(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    uint64_t dir;
    const char *name;
    (void)w;
    int got = parent_of(r, arg[0], &dir, &name);
    return got < 0 ? got : tree_mkdir(r->t, dir, name, &e);
}

static int move(struct run *r, char **arg, unsigned flags, struct waiter *w)
{
    uint64_t from, to;
    const char *name, *new_name;
    int got = parent_of(r, arg[0], &from, &name);
    if (got == 0)
        got = parent_of(r, arg[1], &to, &new_name);
    return got < 0 ? got : tree_rename(r->t, from, name, to, new_name, flags, &w->wait);
}

static int op_tmv(struct run *r, char **arg, struct waiter *w)
{
    return move(r, arg, 0, w);
}

static int op_tmvnew(struct run *r, char **arg, struct waiter *w)
{
    return move(r, arg, RENAME_NEW, w);
}

/* ---- inspection ---- */

static void expect(struct run *r, const char *got, const char *want)
{
    if (strcmp(got, want) != 0)
        script_fail(r, "'%s' instead of '%s'", got, want);
}

static int op_tlist(struct run *r, char **arg, struct waiter *w)
{
    const struct tree_image m = {.t = r->t};
    char path[TREE_NAME_MAX + 10];
    (void)w;
    (void)snprintf(path, sizeof(path), "tensors%s%s", *arg[0] == '.' ? "" : "/",
                   *arg[0] == '.' ? "" : arg[0]);
    char *got = image_list(&m, path);
    size_t n = strlen(got);
    for (size_t i = 0; i < n; i++)
        if (got[i] == '\n')
            got[i] = i + 1 < n ? ' ' : '\0';
    expect(r, got, arg[1]);
    free(got);
    return 0;
}

static char *whole(struct run *r, const char *path, size_t *n)
{
    const struct tree_image m = {.t = r->t};
    char full[TREE_NAME_MAX + 10];
    (void)snprintf(full, sizeof(full), "tensors/%s", path);
    return image_text(&m, full, n);
}

static int op_ttext(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    size_t n;
    (void)w;
    int got = find(r, arg[0], &e);
    if (got < 0)
        return got;
    CLEANUP(buf_free) struct buf brief = BUF_INIT;
    char *text = whole(r, arg[0], &n);
    script_model_brief(&brief, text, n);
    buf_char(&brief, '\0');
    expect(r, (char *)brief.data, arg[1]);
    free(text);
    return 0;
}

static int op_tdotted(struct run *r, char **arg, struct waiter *w)
{
    size_t size, n = (size_t)script_number(r, arg[1]), step = (size_t)script_number(r, arg[2]);
    char *text = whole(r, arg[0], &size);
    (void)w;
    for (size_t i = 0; !r->failed && i < size; i++)
        if (text[i] != (i % step == 0 && i / step < n ? 'X' : '.'))
            script_fail(r, "byte %zu is %c", i, text[i]);
    free(text);
    return 0;
}

static int op_tvalues(struct run *r, char **arg, struct waiter *w)
{
    uint8_t want[4 * FLOATS];
    size_t n, size = floats_of(arg[1], want);
    char *text = whole(r, arg[0], &n);
    (void)w;
    if (n < size || memcmp(text + n - size, want, size) != 0)
        script_fail(r, "other values");
    free(text);
    return 0;
}

static int op_tstat(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e = {0};
    (void)w;
    int got = find(r, arg[0], &e);
    if (got == 0 && (uint64_t)e.attr.st_size != script_number(r, arg[1]))
        script_fail(r, "it is %lld", (long long)e.attr.st_size);
    return got;
}

static int op_tgone(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    if (find(r, arg[0], &e) != -ENOENT)
        script_fail(r, "it is there");
    return 0;
}

static int op_terror(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    struct tree_entry e;
    (void)w;
    int got = find(r, arg[0], &e);
    if (got == 0)
        got = tree_getxattr(r->t, e.node, "user.gguf.error", &text);
    buf_char(&text, '\0');
    if (got == 0 && !strstr((char *)text.data, arg[1]))
        script_fail(r, "it is '%s'", (char *)text.data);
    return got;
}

static int op_tforgive(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = find(r, arg[0], &e);
    return got < 0 ? got : tree_removexattr(r->t, e.node, "user.gguf.error");
}

/* Compare the tensors of the files on the disk. */
static int op_tfile(struct run *r, char **arg, struct waiter *w)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    (void)w;
    if (!script_model_tensors(&r->m, &text))
        script_fail(r, "the file is not a regular model");
    else
        expect(r, (char *)text.data, arg[0]);
    return 0;
}

const struct script_op script_tensors[] = {
    {"topen", op_topen, 3, 8, false},     {"tnote", op_tnote, 1, 1, false},
    {"tnode", op_tnode, 2, 8, false},     {"tmoved", op_tmoved, 1, 1, false},
    {"tput", op_tput, 2, 2, false},       {"tadd", op_tadd, 2, 2, false},
    {"tfloats", op_tfloats, 2, 2, false}, {"tpoke", op_tpoke, 3, 3, false},
    {"tnpy", op_tnpy, 3, 3, false},       {"ttruncate", op_ttruncate, 2, 2, false},
    {"trm", op_trm, 1, 1, false},         {"trmdir", op_trmdir, 1, 1, false},
    {"tmkdir", op_tmkdir, 1, 1, false},   {"tmv", op_tmv, 2, 2, false},
    {"tmvnew", op_tmvnew, 2, 2, false},   {"tdots", op_tdots, 3, 3, false},
    {"tdotted", op_tdotted, 3, 3, false}, {"tlist", op_tlist, 2, 2, false},
    {"ttext", op_ttext, 2, 2, false},     {"tvalues", op_tvalues, 2, 2, false},
    {"tstat", op_tstat, 2, 2, false},     {"tgone", op_tgone, 1, 1, false},
    {"terror", op_terror, 2, 2, false},   {"tforgive", op_tforgive, 1, 1, false},
    {"tfile", op_tfile, 1, 1, true},      {0},
};
