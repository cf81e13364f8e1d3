/* SPDX-License-Identifier: MIT */
/* A process that unmounts when the daemon is gone: see guard.h. */
#include "mount/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <unistd.h>

#define GUARD_FD 3 /* the guard's only descriptor besides 0 to 2, which are /dev/null */

/*
 * Leave everything that the daemon has: its terminal, its folder, and its open files above all. A
 * guard that held /dev/fuse would keep the connection alive, one that held the model its lock.
 * Signals are for the daemon; the guard follows it.
 */
static void leave(int from)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    (void)prctl(PR_SET_NAME, "auto_unmount");
    if (chdir("/") < 0 || dup2(from, GUARD_FD) < 0)
        _exit(1);
    (void)close_range(GUARD_FD + 1, ~0U, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < GUARD_FD && null >= 0; fd++)
        (void)dup2(null, fd);
    if (null > GUARD_FD)
        (void)close(null);
}

/* Nothing is ever written: a read returns when the last other end is closed. */
static void wait_for_end(void)
{
    char byte;
    while (read(GUARD_FD, &byte, 1) < 0 && errno == EINTR)
        ;
}

/* statfs(2) always asks the daemon; what stat(2) gives may have been kept by the kernel. */
static bool is_dead(const char *mountpoint)
{
    struct statfs fs;
    return statfs(mountpoint, &fs) < 0 && (errno == ENOTCONN || errno == ECONNABORTED);
}

static void guard(int from, const char *mountpoint)
{
    leave(from);
    wait_for_end();
    if (!is_dead(mountpoint) || umount2(mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
        _exit(0);
    (void)execlp("fusermount3", "fusermount3", "-u", "-q", "-z", "--", mountpoint, (char *)NULL);
    _exit(127);
}

int guard_begin(const char *mountpoint, int *ret, struct err *e)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_set(e, -errno, "cannot make a pipe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        guard(ends[0], mountpoint);
    int r = pid < 0 ? err_set(e, -errno, "cannot start a process: %s", strerror(errno)) : 0;
    (void)close(ends[0]);
    if (r < 0)
        (void)close(ends[1]);
    else
        *ret = ends[1];
    return r;
}

void guard_end(int *guard)
{
    if (*guard >= 0)
        (void)close(*guard);
    *guard = -1;
}
