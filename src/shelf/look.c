/* SPDX-License-Identifier: MIT */
/* Looks at other disks: see look.h. */
#include "shelf/look.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/when.h"
#include "base/lock.h"
#include "base/crew.h"

/* What another thread does, which frees it if it is late. */
struct look {
    struct crew_job job;
    struct reach *reach;
    look_act *act;
    struct found dir;
    char *name;
    struct buf out;
    int result;
    bool done, late;   /* protected by the reach's lock */
    struct look *next; /* of those that are late */
};

int look_begin(struct reach *r)
{
    cond_init(&r->looked);
    return crew_make("look", 1, &r->lookers);
}

bool look_end(struct reach *r)
{
    if (!r->lookers)
        return true;
    crew_free(r->lookers);
    lock_take(&r->lock);
    bool none = r->n_late == 0;
    lock_drop(&r->lock);
    if (none)
        cond_destroy(&r->looked);
    return none;
}

static void look_free(struct look *l)
{
    reach_close(&l->dir);
    free(l->name);
    buf_free(&l->out);
    free(l);
}

/* Under the lock. */
static void unlist(struct reach *r, const struct look *l)
{
    struct look **at = &r->late;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    r->n_late--;
}

static bool turn(struct crew_job *j, struct timespec *again)
{
    struct look *l = (struct look *)j;
    struct reach *r = l->reach;
    (void)again;
    int result = l->act(r, &l->dir, l->name, &l->out);
    lock_take(&r->lock);
    bool late = l->late;
    l->result = result;
    l->done = true;
    if (late)
        unlist(r, l);
    else
        cond_broadcast(&r->looked);
    lock_drop(&r->lock);
    if (late)
        look_free(l);
    return false;
}

static struct look *look_new(struct reach *r, look_act *act, const struct found *dir,
                             const char *name)
{
    struct look *l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    *l = (struct look){.reach = r, .act = act, .dir = *dir, .name = strdup(name)};
    l->dir.fd = fcntl(dir->fd, F_DUPFD_CLOEXEC, 0);
    l->dir.path = strdup(dir->path);
    if (l->dir.fd >= 0 && l->dir.path && l->name)
        return l;
    look_free(l);
    return NULL;
}

/* Milliseconds that a look may take; 0: it is late already, or too many are. */
static unsigned patience(struct reach *r, look_act *act, const struct found *dir, const char *name)
{
    lock_take(&r->lock);
    unsigned ms = r->n_late ? LOOK_IMPATIENCE : LOOK_PATIENCE;
    if (r->n_late >= LOOK_LATE_MAX)
        ms = 0;
    for (const struct look *l = r->late; l && ms; l = l->next)
        if (l->act == act && strcmp(l->dir.path, dir->path) == 0 && strcmp(l->name, name) == 0)
            ms = 0;
    lock_drop(&r->lock);
    return ms;
}

/* Wait for the other thread. False: it is late, and frees the look. */
static bool wait_for(struct reach *r, struct look *l, unsigned ms)
{
    struct timespec until = when_now();
    bool early = true;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    lock_take(&r->lock);
    while (!l->done && early)
        early = lock_wait(&r->lock, &r->looked, &until);
    bool done = l->done;
    if (!done) {
        l->late = true;
        l->next = r->late;
        r->late = l;
        r->n_late++;
    }
    lock_drop(&r->lock);
    return done;
}

int look(struct reach *r, look_act *act, const struct found *dir, const char *name, struct buf *out)
{
    if (!r->lookers || reach_is_near(r, dir, name))
        return act(r, dir, name, out);
    unsigned ms = patience(r, act, dir, name);
    struct look *l = ms ? look_new(r, act, dir, name) : NULL;
    if (!l)
        return ms ? -ENOMEM : -ETIMEDOUT;
    if (crew_do(r->lookers, &l->job, turn) < 0) {
        look_free(l);
        return -ETIMEDOUT;
    }
    if (!wait_for(r, l, ms))
        return -ETIMEDOUT;
    int result = l->result;
    buf_add(out, l->out.data, l->out.len);
    look_free(l);
    return result < 0 || !buf_error(out) ? result : buf_error(out);
}
