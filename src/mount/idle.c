/* SPDX-License-Identifier: MIT */
/* A mount that ends by itself: see idle.h. */
#include "mount/idle.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

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

static void *watch(void *arg)
{
    struct idle *i = arg;
    unsigned long seen = 0;
    struct timespec next;
    (void)pthread_setname_np(pthread_self(), "idle");
    (void)clock_gettime(CLOCK_MONOTONIC, &next);
    for (;;) {
        next.tv_sec += (time_t)i->seconds;
        int r;
        while ((r = sem_clockwait(&i->stop, CLOCK_MONOTONIC, &next)) < 0 && errno == EINTR)
            ;
        if (r == 0)
            return NULL;
        /* If it succeeds the session's loop returns, and idle_end() follows. It may be in use. */
        if (handles_idle(i->handles, &seen) && is_seen(i))
            (void)mount_take_down(i->mountpoint, false, NULL);
    }
}

int idle_begin(struct idle *i, unsigned seconds, char *mountpoint, dev_t dev,
               struct handles *handles, struct err *e)
{
    sigset_t all, old;
    *i =
        (struct idle){.seconds = seconds, .mountpoint = mountpoint, .dev = dev, .handles = handles};
    if (seconds == 0)
        return 0;
    (void)sem_init(&i->stop, 0, 0);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&i->thread, NULL, watch, i);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    i->runs = r == 0;
    if (r < 0)
        (void)sem_destroy(&i->stop);
    return r < 0 ? err_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

void idle_end(struct idle *i)
{
    if (!i->runs)
        return;
    (void)sem_post(&i->stop);
    (void)pthread_join(i->thread, NULL);
    (void)sem_destroy(&i->stop);
    i->runs = false;
}
