/* SPDX-License-Identifier: MIT */
/* A process that unmounts after the daemon has ended: see guard.h. */
#include "mount/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <unistd.h>

#define NAME "auto_unmount" /* the guard's name in lists of processes */
#define GUARD_FD 3          /* the guard's only descriptor besides 0 to 2, which are /dev/null */

/* The last space before field `n` of /proc/PID/stat; NULL: fewer fields. The process's name before
 * may contain spaces and brackets. */
static const char *stat_field(const char *text, int n)
{
    const char *at = strrchr(text, ')');
    for (int field = 2; field < n && at; field++)
        at = strchr(at + 1, ' ');
    return at;
}

/*
 * With another name and without arguments, the guard survives programs that look for the daemon by
 * these (pidof, pkill -f) and kill it. Fields 48 and 49 are the addresses of the arguments.
 */
static void take_name(void)
{
    char text[1024] = "";
    unsigned long from = 0, to = 0;
    (void)prctl(PR_SET_NAME, NAME);
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    const char *at = n > 0 ? stat_field(text, 48) : NULL;
    if (!at || sscanf(at, "%lu %lu", &from, &to) != 2 || from == 0 || from >= to)
        return;
    char *args = (char *)(uintptr_t)from; /* this process' own */
    memset(args, 0, to - from);
    memcpy(args, NAME, to - from <= sizeof(NAME) ? to - from - 1 : sizeof(NAME) - 1);
}

/*
 * Drop everything shared with the daemon: its terminal, its folder, and above all its open files.
 * With /dev/fuse open the guard would keep the connection alive, with the model open its lock.
 * Signals are for the daemon; the guard ends after it.
 */
static void leave(int from)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)setsid();
    take_name();
    if (chdir("/") < 0 || dup2(from, GUARD_FD) < 0)
        _exit(1);
    (void)close_range(GUARD_FD + 1, ~0U, 0);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < GUARD_FD && null >= 0; fd++)
        (void)dup2(null, fd);
    if (null > GUARD_FD)
        (void)close(null);
}

/* Report that leave() is done, then wait: read(2) returns when the last other end is closed. */
static void wait_for_end(void)
{
    char byte = 0;
    if (write(GUARD_FD, &byte, 1) < 0)
        _exit(1);
    while (read(GUARD_FD, &byte, 1) < 0 && errno == EINTR)
        ;
}

/* statfs(2) always asks the daemon; stat(2) may answer from the kernel's cache. */
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

/* Wait until leave() is done: from then on nothing that ends this process ends the guard. */
static int wait_for_guard(int fd, struct err *e)
{
    char byte;
    ssize_t n;
    do
        n = read(fd, &byte, 1);
    while (n < 0 && errno == EINTR);
    return n == 1 ? 0 : err_set(e, -ECHILD, "the process for unmounting has ended");
}

int guard_begin(const char *mountpoint, int *ret, struct err *e)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return err_set(e, -errno, "cannot make a socket: %s", strerror(errno));
    pid_t pid = fork();
    if (pid == 0)
        guard(ends[0], mountpoint);
    int r = pid < 0 ? err_set(e, -errno, "cannot start a process: %s", strerror(errno)) : 0;
    (void)close(ends[0]);
    if (r == 0)
        r = wait_for_guard(ends[1], e);
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
