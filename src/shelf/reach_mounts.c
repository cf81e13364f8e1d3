/* SPDX-License-Identifier: MIT */
/* Mounts, those of this program above all, at and below a shelf's folder: see reach.h. */
#include "shelf/reach.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/mounts.h"

void reach_forget_mounts(struct reach *r)
{
    for (size_t i = 0; i < r->n_seen; i++)
        free(r->seen[i].at);
    r->n_seen = 0;
}

int reach_look_at_mounts(struct reach *r)
{
    struct mounts ms;
    int e = mounts_load(&ms, 0);
    reach_forget_mounts(r);
    r->looks++;
    for (size_t i = 0; i < ms.n && e == 0; i++) {
        const struct mount *m = &ms.mount[i];
        bool ours = mount_is_ggufs(m) || (r->own && m->dev == r->own);
        char *at = strdup(m->at);
        e = at ? array_grow(&r->seen, &r->cap_seen, r->n_seen, sizeof(*r->seen)) : -ENOMEM;
        if (e == 0)
            r->seen[r->n_seen++] = (struct seen_mount){m->dev, at, ours};
        else
            free(at);
    }
    mounts_free(&ms);
    return e;
}

/* Read the list of mounts if it may have changed since it was read. Under the lock. */
static int see_mounts(struct reach *r)
{
    struct pollfd p = {.fd = r->mounts, .events = POLLPRI};
    return r->mounts < 0 || poll(&p, 1, 0) != 0 ? reach_look_at_mounts(r) : 0;
}

int reach_see_mounts(struct reach *r)
{
    (void)pthread_mutex_lock(&r->lock);
    int e = see_mounts(r);
    (void)pthread_mutex_unlock(&r->lock);
    return e;
}

bool reach_barred(struct reach *r, dev_t dev)
{
    (void)pthread_mutex_lock(&r->lock);
    bool barred = (r->own && dev == r->own) || see_mounts(r) < 0;
    for (size_t i = 0; i < r->n_seen && !barred; i++)
        barred = r->seen[i].ours && r->seen[i].dev == dev;
    (void)pthread_mutex_unlock(&r->lock);
    return barred;
}

bool reach_is_mount_point(struct reach *r, const char *path)
{
    (void)pthread_mutex_lock(&r->lock);
    bool found = see_mounts(r) < 0;
    for (size_t i = 0; i < r->n_seen && !found; i++)
        found = strcmp(r->seen[i].at, path) == 0;
    (void)pthread_mutex_unlock(&r->lock);
    return found;
}

int reach_mounts_in(struct reach *r, const char *path, struct buf *names)
{
    size_t n = strlen(path) - (path[1] == '\0'); /* "/" ends in a slash */
    (void)pthread_mutex_lock(&r->lock);
    int e = see_mounts(r);
    for (size_t i = 0; i < r->n_seen && e == 0; i++) {
        const char *at = r->seen[i].at;
        if (strncmp(at, path, n) != 0 || at[n] != '/' || !at[n + 1] || strchr(at + n + 1, '/'))
            continue;
        buf_char(names, r->seen[i].ours ? '!' : ' ');
        buf_add(names, at + n + 1, strlen(at + n + 1) + 1);
    }
    (void)pthread_mutex_unlock(&r->lock);
    return e < 0 ? e : buf_error(names);
}
