/* SPDX-License-Identifier: MIT */
/* Makes edits to a tree, and waits for them: see tree_edit.h. */
#include "tree_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void answer(struct live_wait *w, int result)
{
    struct tree_wait *me = (struct tree_wait *)w;
    me->result = result;
    (void)sem_post(&me->answered);
}

struct live_wait *tree_wait(struct tree_wait *w)
{
    *w = (struct tree_wait){.wait = {.done = answer, .request = w}};
    (void)sem_init(&w->answered, 0, 0);
    return &w->wait;
}

int tree_waited(struct tree_wait *w, int r)
{
    if (r == LIVE_PARKED) {
        struct timespec until;
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += WAIT_MOST;
        if (sem_timedwait(&w->answered, &until) < 0) {
            (void)puts("\na call waits for what comes after it");
            abort();
        }
        r = w->result;
    }
    (void)sem_destroy(&w->answered);
    return r;
}

static uint64_t metadata(void)
{
    return ino_row(0);
}

/* Look up a node, which the kernel then knows until let_go(). Returns 0 or -errno. */
static int find(struct tree *t, const char *name, uint64_t *ret)
{
    struct tree_entry e;
    int r = tree_lookup(t, metadata(), name, &e);
    if (r == 0)
        *ret = e.node;
    return r;
}

static void let_go(struct tree *t, uint64_t node)
{
    if (node)
        tree_forget(t, node, 1);
}

static int open_or_create(struct tree *t, const char *name, int flags, uint64_t *node,
                          struct tree_file **f)
{
    struct tree_entry e;
    int r = find(t, name, node);
    if (r == 0)
        return tree_open_file(t, *node, flags, f);
    if (r != -ENOENT)
        return r;
    r = tree_create(t, metadata(), name, flags | O_CREAT, &e, f);
    if (r == 0)
        *node = e.node;
    return r;
}

static int write_through(struct tree *t, const char *name, int flags, const void *text, size_t n)
{
    struct tree_file *f = NULL;
    struct tree_wait w;
    uint64_t node = 0;
    int r = open_or_create(t, name, flags, &node, &f);
    if (r == 0 && n)
        r = tree_write(f, 0, text, n, NULL);
    if (f) { /* the kernel flushes and releases even after a failed write */
        int flushed = tree_waited(&w, tree_flush(f, tree_wait(&w)));
        tree_release(f);
        r = r ? r : flushed;
    }
    let_go(t, node);
    return r;
}

int do_write(struct tree *t, const char *name, const void *text, size_t n)
{
    return write_through(t, name, O_WRONLY | O_TRUNC, text, n);
}

int do_append(struct tree *t, const char *name, const void *text, size_t n)
{
    return write_through(t, name, O_WRONLY | O_APPEND, text, n);
}

int do_truncate(struct tree *t, const char *name)
{
    struct tree_wait w;
    uint64_t node = 0;
    int r = find(t, name, &node);
    if (r == 0) {
        r = tree_waited(&w, tree_truncate_unopened(t, node, 0, tree_wait(&w)));
    }
    let_go(t, node);
    return r;
}

int do_unlink(struct tree *t, const char *name)
{
    return tree_unlink(t, metadata(), name);
}

int do_rename(struct tree *t, const char *from, const char *to)
{
    struct tree_wait w;
    return tree_waited(&w, tree_rename(t, metadata(), from, metadata(), to, 0, tree_wait(&w)));
}

int do_retype(struct tree *t, const char *name, const char *type)
{
    struct tree_wait w;
    uint64_t node = 0;
    int r = find(t, name, &node);
    if (r == 0) {
        r = tree_waited(
            &w, tree_setxattr(t, node, "user.gguf.type", type, strlen(type), tree_wait(&w)));
    }
    let_go(t, node);
    return r;
}

int do_sync(struct tree *t)
{
    struct tree_wait w;
    return tree_waited(&w, tree_fsyncdir(t, tree_wait(&w)));
}
