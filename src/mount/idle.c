/* SPDX-License-Identifier: MIT */
/* A mount that ends by itself: see idle.h. */
#include "mount/idle.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shelf/mounts.h"

extern char **environ;

/*
 * fusermount3 is asked for by ordinary users; what it says about a mount in use is of no interest.
 */
static void run_fusermount(char *at)
{
    char name[] = "fusermount3", unmount[] = "-u", silent[] = "-q", last[] = "--";
    char *argv[] = {name, unmount, silent, last, at, NULL};
    posix_spawn_file_actions_t quiet;
    pid_t pid;
    if (posix_spawn_file_actions_init(&quiet) != 0)
        return;
    if (posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
        posix_spawnp(&pid, name, &quiet, NULL, argv, environ) == 0)
        (void)waitpid(pid, NULL, 0);
    (void)posix_spawn_file_actions_destroy(&quiet);
}

/* Another file system may have been mounted over this one since. */
static bool is_seen(const struct idle *i)
{
    struct mounts ms;
    const struct mount *top = mounts_load(&ms, 0) == 0 ? mounts_at(&ms, i->mountpoint) : NULL;
    bool seen = top && top->dev == i->dev;
    mounts_free(&ms);
    return seen;
}

/* If this succeeds the session's loop returns, and idle_end() follows. */
static void try_unmount(char *at)
{
    if (umount2(at, UMOUNT_NOFOLLOW) < 0 && errno == EPERM)
        run_fusermount(at);
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
        if (handles_idle(i->handles, &seen) && is_seen(i))
            try_unmount(i->mountpoint);
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
