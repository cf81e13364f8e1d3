/* SPDX-License-Identifier: MIT */
/* Mounts, those of this program above all, at and below a shelf's folder: see reach.h. */
#include "base/lock.h"
#include "shelf/reach.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "shelf/mounts.h"

static void free_seen(struct seen_mount *seen, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(seen[i].at);
    free(seen);
}

void reach_forget_mounts(struct reach *r)
{
    free_seen(r->seen, r->n_seen);
    r->seen = NULL;
    r->n_seen = 0;
}

/* If the list cannot be read, the old one stays, and counts for nothing until it can be. */
int reach_look_at_mounts(struct reach *r)
{
    struct mounts ms;
    size_t n = 0;
    int e = mounts_load(&ms, 0);
    struct seen_mount *seen = e == 0 ? calloc(ms.n + 1, sizeof(*seen)) : NULL;
    if (e == 0 && !seen)
        e = -ENOMEM;
    for (; e == 0 && n < ms.n; n++) {
        const struct mount *m = &ms.mount[n];
        bool ours = mount_is_ggufs(m) || (r->own && m->dev == r->own);
        seen[n] = (struct seen_mount){m->dev, strdup(m->at), ours};
        e = seen[n].at ? 0 : -ENOMEM;
    }
    mounts_free(&ms);
    r->stale = e < 0;
    if (e < 0) {
        free_seen(seen, n);
        return e;
    }
    reach_forget_mounts(r);
    r->seen = seen;
    r->n_seen = n;
    r->looks++;
    return 0;
}

/* Read the list of mounts if it may have changed since it was read. Under the lock. */
static int see_mounts(struct reach *r)
{
    struct pollfd p = {.fd = r->mounts, .events = POLLPRI};
    bool changed = r->mounts < 0 || r->stale || poll(&p, 1, 0) != 0;
    return changed ? reach_look_at_mounts(r) : 0;
}

int reach_see_mounts(struct reach *r, unsigned *looks)
{
    lock_take(&r->lock);
    int e = see_mounts(r);
    *looks = r->looks;
    lock_drop(&r->lock);
    return e;
}

bool reach_barred(struct reach *r, dev_t dev)
{
    lock_take(&r->lock);
    bool barred = (r->own && dev == r->own) || see_mounts(r) < 0;
    for (size_t i = 0; i < r->n_seen && !barred; i++)
        barred = r->seen[i].ours && r->seen[i].dev == dev;
    lock_drop(&r->lock);
    return barred;
}

bool reach_is_mount_point(struct reach *r, const char *path)
{
    lock_take(&r->lock);
    bool found = see_mounts(r) < 0;
    for (size_t i = 0; i < r->n_seen && !found; i++)
        found = strcmp(r->seen[i].at, path) == 0;
    lock_drop(&r->lock);
    return found;
}

int reach_mounts_in(struct reach *r, const char *path, struct buf *names)
{
    size_t n = strlen(path) - (path[1] == '\0'); /* "/" ends in a slash */
    lock_take(&r->lock);
    int e = see_mounts(r);
    for (size_t i = 0; i < r->n_seen && e == 0; i++) {
        const char *at = r->seen[i].at;
        if (strncmp(at, path, n) != 0 || at[n] != '/' || !at[n + 1] || strchr(at + n + 1, '/'))
            continue;
        buf_char(names, r->seen[i].ours ? '!' : ' ');
        buf_add(names, at + n + 1, strlen(at + n + 1) + 1);
    }
    lock_drop(&r->lock);
    return e < 0 ? e : buf_error(names);
}
