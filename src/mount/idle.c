/* SPDX-License-Identifier: MIT */
/* A mount that ends by itself: see idle.h. */
#include "mount/idle.h"

#include <string.h>

#include "base/when.h"
#include "mount/takedown.h"
#include "shelf/mounts.h"

/* Another file system may have been mounted over this one since. */
static bool is_seen(const struct idle *i)
{
    struct mounts ms;
    const struct mount *m =
        mounts_load(&ms, 0) == 0 ? mounts_of(&ms, i->dev, i->mountpoint, NULL) : NULL;
    bool seen = m && mount_is_top(&ms, m);
    mounts_free(&ms);
    return seen;
}

/* Waits until then. */
static bool is_stopped(struct idle *i, const struct timespec *until)
{
    LOCKED(&i->lock);
    while (!i->stop && lock_wait(&i->lock, &i->end, until))
        ;
    return i->stop;
}

static void *watch(void *arg)
{
    struct idle *i = arg;
    unsigned long seen = 0;
    struct timespec next = when_now();
    thread_name("idle");
    for (;;) {
        next.tv_sec += (time_t)i->seconds;
        if (is_stopped(i, &next))
            return NULL;
        /* If it succeeds the session's loop returns, and idle_end() follows. It may be in use. */
        if (handles_idle(i->handles, &seen) && is_seen(i))
            (void)mount_take_down(i->mountpoint, false, NULL);
    }
}

static void drop(struct idle *i)
{
    cond_destroy(&i->end);
    lock_destroy(&i->lock);
}

int idle_begin(struct idle *i, unsigned seconds, char *mountpoint, dev_t dev,
               struct handles *handles, struct err *e)
{
    *i =
        (struct idle){.seconds = seconds, .mountpoint = mountpoint, .dev = dev, .handles = handles};
    if (seconds == 0)
        return 0;
    lock_init(&i->lock);
    cond_init(&i->end);
    int r = thread_start(&i->thread, watch, i);
    i->runs = r == 0;
    if (r < 0)
        drop(i);
    return r < 0 ? err_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

void idle_end(struct idle *i)
{
    if (!i->runs)
        return;
    lock_take(&i->lock);
    i->stop = true;
    cond_signal(&i->end);
    lock_drop(&i->lock);
    thread_join(&i->thread);
    drop(i);
    i->runs = false;
}
