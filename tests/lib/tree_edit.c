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

int do_write(struct tree *t, const char *name, const void *text, size_t n)
{
    struct tree_file *f = NULL;
    struct tree_entry e = {.node = 0};
    struct tree_wait w;
    int r = tree_lookup(t, ino_row(0), name, &e);
    if (r == 0)
        r = tree_open_file(t, e.node, O_WRONLY | O_TRUNC, &f);
    else if (r == -ENOENT)
        r = tree_create(t, ino_row(0), name, O_WRONLY | O_TRUNC | O_CREAT, &e, &f);
    if (r == 0 && n)
        r = tree_write(f, 0, text, n, NULL);
    if (f) { /* the kernel flushes and releases even after a failed write */
        int flushed = tree_waited(&w, tree_flush(f, tree_wait(&w)));
        tree_release(f);
        r = r ? r : flushed;
    }
    if (e.node)
        tree_forget(t, e.node, 1);
    return r;
}

int do_unlink(struct tree *t, const char *name)
{
    return tree_unlink(t, ino_row(0), name);
}

int do_rename(struct tree *t, const char *from, const char *to)
{
    struct tree_wait w;
    return tree_waited(&w, tree_rename(t, ino_row(0), from, ino_row(0), to, 0, tree_wait(&w)));
}

int do_retype(struct tree *t, const char *name, const char *type)
{
    struct tree_wait w;
    struct tree_entry e;
    int r = tree_lookup(t, ino_row(0), name, &e);
    if (r < 0)
        return r;
    r = tree_waited(&w,
                    tree_setxattr(t, e.node, "user.gguf.type", type, strlen(type), tree_wait(&w)));
    tree_forget(t, e.node, 1);
    return r;
}

int do_sync(struct tree *t)
{
    struct tree_wait w;
    return tree_waited(&w, tree_fsyncdir(t, tree_wait(&w)));
}
