/* SPDX-License-Identifier: MIT */
/* Probes and removes mounts from outside of their daemon: see takedown.h. */
#include "mount/takedown.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount/log.h"
#include "shelf/mounts.h"

extern char **environ;

/* statfs(2) always asks the daemon. For other users the kernel itself replies, with zeros. */
static enum mount_life ask(const char *at)
{
    struct statfs fs;
    if (statfs(at, &fs) == 0)
        return fs.f_bsize ? MOUNT_ALIVE : MOUNT_UNKNOWN;
    return errno == ENOTCONN || errno == ECONNABORTED ? MOUNT_DEAD : MOUNT_UNKNOWN;
}

enum mount_life mount_life(const char *at, int ms)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) { /* a reader of the command's output does not wait for a process that hangs */
        (void)close_range(STDIN_FILENO, ~0U, 0);
        _exit(ask(at));
    }
    struct pollfd p = {.fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, .events = POLLIN};
    bool ended = p.fd >= 0 && poll(&p, 1, ms) > 0;
    if (p.fd >= 0)
        (void)close(p.fd);
    if (pid > 0 && !ended) /* it may not end before the daemon does, so do not wait for it */
        (void)kill(pid, SIGKILL);
    bool known = pid > 0 && waitpid(pid, &status, ended ? 0 : WNOHANG) == pid && WIFEXITED(status);
    return known ? (enum mount_life)WEXITSTATUS(status) : MOUNT_UNKNOWN;
}

bool mount_is_there(dev_t dev)
{
    struct mounts ms;
    bool there = mounts_load(&ms, 0) < 0;
    for (size_t i = 0; i < ms.n && !there; i++)
        there = ms.mount[i].dev == dev;
    mounts_free(&ms);
    return there;
}

/* Start it, with its standard error in `said`; -1: it stays as it is. 0, -errno. */
static int spawn_fusermount(const char *at, bool lazy, int said, pid_t *pid)
{
    char name[] = "fusermount3", now[] = "-u", later[] = "-uz", last[] = "--";
    char *const argv[] = {name, lazy ? later : now, last, (char *)(uintptr_t)at, NULL};
    posix_spawn_file_actions_t actions;
    int r = posix_spawn_file_actions_init(&actions);
    if (r != 0)
        return -r;
    if (said >= 0)
        r = posix_spawn_file_actions_adddup2(&actions, said, STDERR_FILENO);
    if (r == 0)
        r = posix_spawnp(pid, argv[0], &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return -r;
}

static int run_fusermount(const char *at, bool lazy, struct err *e)
{
    char said[256] = "";
    int status = 0, file = memfd_create("ggufs-stderr", MFD_CLOEXEC);
    pid_t pid;
    int r = spawn_fusermount(at, lazy, file, &pid);
    while (r == 0 && waitpid(pid, &status, 0) < 0)
        r = errno == EINTR ? 0 : -errno;
    catch_last(file, said, sizeof(said));
    if (file >= 0)
        (void)close(file);
    if (r < 0)
        return err_set(e, r, "cannot run fusermount3: %s", strerror(-r));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    r = strstr(said, strerror(EBUSY)) ? -EBUSY : -EPERM;
    return err_set(e, r, "fusermount3 -u failed%s%s", said[0] ? ": " : "", said);
}

int mount_take_down(const char *at, bool lazy, struct err *e)
{
    if (umount2(at, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return run_fusermount(at, lazy, e);
    return err_set(e, -errno, "cannot unmount: %s", strerror(errno));
}
