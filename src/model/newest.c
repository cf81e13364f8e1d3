/* SPDX-License-Identifier: MIT */
/* The newest state of a model: see newest.h. */
#include "model/newest.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/when.h"
#include "base/lock.h"
#include "model/split.h"

void newest_init(struct newest *n)
{
    *n = (struct newest){0};
    lock_init(&n->lock);
}

void newest_free(struct newest *n)
{
    view_free(&n->view);
    image_unref(n->file);
    lock_destroy(&n->lock);
}

struct view newest_view_as(const struct newest *n, struct snapshot *g)
{
    bool first = g->number == 0 && n->file;
    return (struct view){snapshot_ref(g), store_ref(n->view.store),
                         first ? image_ref(n->file) : NULL};
}

struct view newest_view(struct newest *n)
{
    lock_take(&n->lock);
    struct view v = newest_view_as(n, n->view.snap);
    lock_drop(&n->lock);
    return v;
}

struct timespec newest_changed(struct newest *n)
{
    lock_take(&n->lock);
    struct timespec ret = n->changed;
    lock_drop(&n->lock);
    return ret;
}

void newest_touch(struct newest *n)
{
    lock_take(&n->lock);
    n->changed = when_date();
    lock_drop(&n->lock);
}

/* Takes over the files. */
static int make_split(const struct newest *n, struct gguf *const *file, uint32_t number,
                      const struct timespec *mtime, struct snapshot **ret, struct err *e)
{
    const size_t files = n->shards->n;
    struct gguf *merged = NULL, **all = malloc(files * sizeof(struct gguf *));
    if (!all)
        return err_set(e, -ENOMEM, "no memory");
    memcpy((void *)all, (const void *)file, files * sizeof(struct gguf *));
    int r = merge_shards((const struct gguf *const *)all, files, &merged, e);
    if (r == 0 && snapshot_make(merged, number, mtime, ret) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    if (r < 0) {
        gguf_free(merged);
        free((void *)all);
        return r;
    }
    (*ret)->shard = all;
    (*ret)->own = all[0];
    (*ret)->shards = n->shards;
    return 0;
}

int newest_make(const struct newest *n, struct gguf *const *file, uint32_t number,
                const struct timespec *mtime, struct snapshot **ret, struct err *e)
{
    struct snapshot *g = NULL;
    int r = number == UINT32_MAX ? err_set(e, -EOVERFLOW, "too many edits; mount it again") : 0;
    if (r == 0 && n->shards)
        r = make_split(n, file, number, mtime, &g, e);
    else if (r == 0 && snapshot_make(file[0], number, mtime, &g) < 0)
        r = err_set(e, -ENOMEM, "no memory");
    if (r < 0) {
        for (size_t i = 0; i < (n->shards ? n->shards->n : 1); i++)
            gguf_free(file[i]);
        return r;
    }
    if (n->view.snap)
        g->ids = ids_ref(n->view.snap->ids); /* this is an edit of keys */
    g->file = n->name ? n->name : g->file;
    *ret = g;
    return 0;
}

/* The store of these files; m is the first. */
static int make_store(const struct snapshot *g, struct mapped *const *file, struct mapped *m,
                      struct store **ret)
{
    const size_t n = snapshot_files(g);
    struct mapped **all = malloc(n * sizeof(struct mapped *));
    if (!all)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        all[i] = i ? file[i] : m;
    int r = store_make(all, (const struct gguf *const *)(g->shard ? g->shard : &g->gguf), n, ret);
    free((void *)all);
    return r;
}

int newest_make_store(const struct snapshot *g, struct mapped *const *file, int fd,
                      struct store **ret, struct err *e)
{
    struct mapped *m = NULL;
    if (fd < 0)
        return make_store(g, file, file[0], ret) < 0 ? err_set(e, -ENOMEM, "no memory") : 0;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return err_set(e, -errno, "cannot duplicate: %s", strerror(errno));
    int r = mapped_open(own_fd, snapshot_file(g, 0)->file_size, &m, e);
    if (r < 0) {
        (void)close(own_fd);
        return r;
    }
    r = make_store(g, file, m, ret);
    mapped_unref(m);
    return r < 0 ? err_set(e, r, "no memory") : 0;
}

struct view newest_put_view(struct newest *n, struct snapshot *g, struct store *s)
{
    lock_take(&n->lock);
    if (n->leaving && g->ids != n->view.snap->ids)
        n->leaving(n->leaving_arg, g);
    struct view old = {n->view.snap, n->view.store, NULL};
    n->view.snap = g;
    n->view.store = s;
    lock_drop(&n->lock);
    return old;
}

void newest_drop_file(struct newest *n)
{
    lock_take(&n->lock);
    struct image *file = n->file;
    n->file = NULL;
    lock_drop(&n->lock);
    image_unref(file);
}
