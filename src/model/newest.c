/* SPDX-License-Identifier: MIT */
/* The newest state of a model: see newest.h. */
#include "model/newest.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void newest_init(struct newest *n)
{
    *n = (struct newest){0};
    (void)pthread_mutex_init(&n->lock, NULL);
}

void newest_free(struct newest *n)
{
    view_free(&n->view);
    image_unref(n->file);
    (void)pthread_mutex_destroy(&n->lock);
}

struct view newest_view_as(const struct newest *n, struct snapshot *g)
{
    bool first = g->number == 0 && n->file;
    return (struct view){snapshot_ref(g), store_ref(n->view.store),
                         first ? image_ref(n->file) : NULL};
}

struct view newest_view(struct newest *n)
{
    (void)pthread_mutex_lock(&n->lock);
    struct view v = newest_view_as(n, n->view.snap);
    (void)pthread_mutex_unlock(&n->lock);
    return v;
}

struct timespec newest_changed(struct newest *n)
{
    (void)pthread_mutex_lock(&n->lock);
    struct timespec ret = n->changed;
    (void)pthread_mutex_unlock(&n->lock);
    return ret;
}

void newest_touch(struct newest *n)
{
    (void)pthread_mutex_lock(&n->lock);
    (void)clock_gettime(CLOCK_REALTIME, &n->changed);
    (void)pthread_mutex_unlock(&n->lock);
}

int newest_make(const struct newest *n, struct gguf *own, uint32_t number,
                const struct timespec *mtime, struct snapshot **ret, struct err *e)
{
    struct gguf *merged = NULL;
    struct snapshot *g = NULL;
    int r = number == UINT32_MAX ? err_set(e, -EOVERFLOW, "too many edits; mount it again") : 0;
    if (r == 0 && n->shards)
        r = shards_merge(n->shards, own, &merged, e);
    if (r == 0) {
        r = snapshot_make(merged ? merged : own, number, mtime, &g);
        if (r < 0)
            (void)err_set(e, r, "no memory");
    }
    if (r < 0) {
        gguf_free(merged);
        gguf_free(own);
        return r;
    }
    if (n->view.snap)
        g->ids = ids_ref(n->view.snap->ids); /* an edit of keys */
    g->own = merged ? own : NULL;
    g->shards = n->shards;
    g->file = n->name ? n->name : g->file;
    *ret = g;
    return 0;
}

int newest_make_store(const struct newest *n, int fd, const struct gguf *own, struct store **ret,
                      struct err *e)
{
    static const struct shards one = {0};
    struct mapped *m = NULL;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return err_set(e, -errno, "cannot duplicate: %s", strerror(errno));
    int r = mapped_open(own_fd, own->file_size, &m, e);
    if (r < 0) {
        (void)close(own_fd);
        return r;
    }
    r = shards_store(n->shards ? n->shards : &one, own, m, ret);
    mapped_unref(m);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s)
{
    (void)pthread_mutex_lock(&n->lock);
    if (n->leaving && g->ids != n->view.snap->ids)
        n->leaving(n->leaving_arg, g);
    struct view old = {n->view.snap, n->view.store, NULL};
    n->view.snap = g;
    n->view.store = s;
    (void)pthread_mutex_unlock(&n->lock);
    return old;
}

void newest_drop_file(struct newest *n)
{
    (void)pthread_mutex_lock(&n->lock);
    struct image *file = n->file;
    n->file = NULL;
    (void)pthread_mutex_unlock(&n->lock);
    image_unref(file);
}
