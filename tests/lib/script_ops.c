/* SPDX-License-Identifier: MIT */
/* Scripts' operations on metadata/: see script.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "script_run.h"
#include "tree_edit.h"
#include "tree_image.h"
#include "tree/history.h"
#include "tree/nodes.h"
#include "live/queue.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

uint64_t script_folder(void)
{
    return ino_row(0);
}

uint64_t script_number(struct run *r, const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);
    if (*end || end == text)
        script_fail(r, "%s is not a number", text);
    return n;
}

/* ---- handles ---- */

struct handle *script_handle(struct run *r, const char *name)
{
    static struct handle none;
    struct handle *h =
        name[0] >= 'A' && name[0] <= 'Z' && !name[1] ? &r->handle[name[0] - 'A'] : NULL;
    if (h && h->f)
        return h;
    script_fail(r, "handle %s is not open", name);
    return &none;
}

int script_flags(struct run *r, char **word)
{
    static const struct {
        const char *name;
        int flag;
    } rows[] = {{"r", O_RDONLY},      {"w", O_WRONLY},
                {"rw", O_RDWR},       {"trunc", O_TRUNC},
                {"append", O_APPEND}, {"creat", O_CREAT},
                {"excl", O_EXCL},     {"mkstemp", O_CREAT | O_EXCL | LIVE_MKSTEMP}};
    int flags = 0;
    for (; *word; word++) {
        size_t i = 0;
        while (i < COUNT(rows) && strcmp(rows[i].name, *word) != 0)
            i++;
        if (i == COUNT(rows))
            script_fail(r, "open has no %s", *word);
        else
            flags |= rows[i].flag;
    }
    return flags;
}

/* Open a name as the kernel does: look it up, then open or create it. */
int script_open(struct run *r, const char *name, int flags, struct handle *h)
{
    struct tree_entry e;
    int found = tree_lookup(r->t, script_folder(), name, &e);
    int got = found;
    *h = (struct handle){0};
    if (found == 0 && flags & O_EXCL)
        got = -EEXIST;
    else if (found == 0)
        got = tree_open_file(r->t, e.node, flags & ~O_CREAT, &h->f);
    else if (found == -ENOENT && flags & O_CREAT)
        got = found = tree_create(r->t, script_folder(), name, flags, &e, &h->f);
    if (got == 0)
        h->node = e.node;
    else if (found == 0)
        tree_forget(r->t, e.node, 1);
    return got;
}

static int op_open(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    if (arg[0][0] < 'A' || arg[0][0] > 'Z' || arg[0][1] || r->handle[arg[0][0] - 'A'].f) {
        script_fail(r, "%s is not a handle, or is open", arg[0]);
        return 0;
    }
    return script_open(r, arg[1], script_flags(r, arg + 2), &r->handle[arg[0][0] - 'A']);
}

static int put(struct handle *h, const char *text, uint64_t at, struct waiter *w)
{
    size_t n = strlen(text);
    int got = script_wait_here(w, tree_write(h->f, at, text, n, &w->wait));
    if (got == 0)
        h->at = at + n;
    return got;
}

static int op_write(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    return h->f ? put(h, arg[1], arg[2] ? script_number(r, arg[2]) : h->at, w) : 0;
}

static int op_flush(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    return h->f ? tree_flush(h->f, &w->wait) : 0;
}

/* A release is answered before what it leaves behind is judged: wait for that. */
static void settle(const struct run *r)
{
    struct live *l = atomic_load(&r->t->live);
    for (bool idle = !l; !idle && !script_copies_are_held(); (void)usleep(100)) {
        lock_take(&l->lock);
        idle = queue_is_idle(l);
        lock_drop(&l->lock);
    }
}

void script_release(struct run *r, struct handle *h)
{
    (void)tree_release(h->f);
    settle(r);
    tree_forget(r->t, h->node, 1);
    *h = (struct handle){0};
}

static int op_release(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    (void)w;
    if (h->f)
        script_release(r, h);
    return 0;
}

/* The kernel releases the file whatever the flush returns. */
static int close_handle(struct run *r, struct handle *h, struct waiter *w)
{
    int got = script_wait_here(w, tree_flush(h->f, &w->wait));
    script_release(r, h);
    return got;
}

static int op_close(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    return h->f ? close_handle(r, h, w) : 0;
}

static int op_trunc(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    return h->f ? tree_truncate(h->f, script_number(r, arg[1]), &w->wait) : 0;
}

static int op_allocate(struct run *r, char **arg, struct waiter *w)
{
    struct handle *h = script_handle(r, arg[0]);
    (void)w;
    return h->f ? tree_allocate(h->f, arg[3] ? FALLOC_FL_KEEP_SIZE : 0, script_number(r, arg[1]),
                                script_number(r, arg[2]))
                : 0;
}

/* ---- names ---- */

/* Write as a shell does: open the file, make it the output (which closes the first descriptor),
 * write, close. */
int script_redirect(struct run *r, const char *name, int flags, const char *text, struct waiter *w)
{
    struct handle h;
    int got = script_open(r, name, O_WRONLY | O_CREAT | flags, &h);
    if (got < 0)
        return got;
    got = script_wait_here(w, tree_flush(h.f, &w->wait));
    if (got == 0 && *text)
        got = put(&h, text, 0, w);
    int closed = close_handle(r, &h, w);
    return got ? got : closed;
}

static int op_put(struct run *r, char **arg, struct waiter *w)
{
    return script_redirect(r, arg[0], O_TRUNC, arg[1], w);
}

static int op_add(struct run *r, char **arg, struct waiter *w)
{
    return script_redirect(r, arg[0], O_APPEND, arg[1], w);
}

/* Drop the reference of a lookup after a call on its node; at once if the script goes on. */
static int forget_then(struct run *r, uint64_t node, struct waiter *w, int got)
{
    if (w < r->waiter || w >= r->waiter + WAITS)
        got = script_wait_here(w, got);
    tree_forget(r->t, node, 1);
    return got;
}

static int op_truncate(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    got = truncate_node(r->t, e.node, script_number(r, arg[1]), &w->wait);
    return forget_then(r, e.node, w, got);
}

static int op_rm(struct run *r, char **arg, struct waiter *w)
{
    (void)w;
    return tree_unlink(r->t, script_folder(), arg[0]);
}

static int op_mv(struct run *r, char **arg, struct waiter *w)
{
    return tree_rename(r->t, script_folder(), arg[0], script_folder(), arg[1], 0, &w->wait);
}

static int op_mvnew(struct run *r, char **arg, struct waiter *w)
{
    return tree_rename(r->t, script_folder(), arg[0], script_folder(), arg[1], RENAME_NOREPLACE,
                       &w->wait);
}

static int op_link(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = tree_symlink(r->t, script_folder(), arg[0], arg[1], &e);
    if (got == 0)
        tree_forget(r->t, e.node, 1);
    return got;
}

static int op_mknod(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = tree_mknod(r->t, script_folder(), arg[0], &e);
    if (got == 0)
        tree_forget(r->t, e.node, 1);
    return got;
}

static int op_type(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    got = tree_setxattr(r->t, e.node, "user.gguf.type", arg[1], strlen(arg[1]), &w->wait);
    return forget_then(r, e.node, w, got);
}

static int op_forgive(struct run *r, char **arg, struct waiter *w)
{
    struct tree_entry e;
    (void)w;
    int got = tree_lookup(r->t, script_folder(), arg[0], &e);
    if (got < 0)
        return got;
    got = tree_removexattr(r->t, e.node, arg[1] ? arg[1] : "user.gguf.error");
    tree_forget(r->t, e.node, 1);
    return got;
}

static int op_undo(struct run *r, char **arg, struct waiter *w)
{
    return tree_begin_undo(r->t, arg[0] ? strtoull(arg[0], NULL, 10) : 0, &w->wait);
}

static int op_clear(struct run *r, char **arg, struct waiter *w)
{
    (void)arg;
    (void)w;
    return tree_history_clear(r->t, NULL);
}

const struct script_op script_edits[] = {
    {"open", op_open, 3, 8, false},       {"write", op_write, 2, 3, false},
    {"trunc", op_trunc, 2, 2, false},     {"allocate", op_allocate, 3, 4, false},
    {"flush", op_flush, 1, 1, false},     {"release", op_release, 1, 1, false},
    {"close", op_close, 1, 1, false},     {"put", op_put, 2, 2, false},
    {"add", op_add, 2, 2, false},         {"truncate", op_truncate, 2, 2, false},
    {"rm", op_rm, 1, 1, false},           {"mv", op_mv, 2, 2, false},
    {"mvnew", op_mvnew, 2, 2, false},     {"link", op_link, 2, 2, false},
    {"mknod", op_mknod, 1, 1, false},     {"type", op_type, 2, 2, false},
    {"forgive", op_forgive, 1, 2, false}, {"undo", op_undo, 0, 1, false},
    {"clear", op_clear, 0, 0, false},     {0},
};
