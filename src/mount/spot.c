/* SPDX-License-Identifier: MIT */
/* Mount points: see spot.h. */
#include "mount/spot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <syslog.h>
#include <unistd.h>

#include "mount/daemon.h"
#include "mount/log.h"
#include "shelf/mounts.h"

extern char **environ;

/*
 * How often a mount point is checked: dead mounts may be stacked, and one that is being removed
 * disappears on its own. Between two checks of such a mount there are some milliseconds.
 */
#define LOOKS_MAX 100
#define LOOK_AGAIN 50

#define ANSWER_MS 2000

/* In a device number within the kernel. */
#define KERNEL_MINOR_BITS 20

/*
 * For the unmounting process: its name in lists of processes, and its only descriptor besides 0 to
 * 2, which are /dev/null.
 */
#define GUARD_NAME "auto_unmount"
#define GUARD_FD 3

/* ---- mounts ---- */

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
    if (pid == 0) { /* a reader of the command's output does not wait for a hanging process */
        (void)close_range(STDIN_FILENO, ~0U, 0);
        _exit(ask(at));
    }
    bool ended = pid > 0 && process_wait(pid, ms);
    if (pid > 0 && !ended) /* it may outlive the daemon, so do not wait for it */
        (void)kill(pid, SIGKILL);
    bool known = pid > 0 && waitpid(pid, &status, ended ? 0 : WNOHANG) == pid && WIFEXITED(status);
    return known ? (enum mount_life)WEXITSTATUS(status) : MOUNT_UNKNOWN;
}

bool mount_is_there(dev_t dev)
{
    CLEANUP(mounts_free) struct mounts ms;
    bool there = mounts_load(&ms, 0) < 0;
    for (size_t i = 0; i < ms.n && !there; i++)
        there = ms.mount[i].dev == dev;
    return there;
}

/* Start it, with its standard error in `said`; -1: standard error is unchanged. 0, -errno. */
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

/* ---- a process that unmounts after the daemon has ended ---- */

/*
 * The last space before field `n` of /proc/PID/stat; NULL: fewer fields. The process name before it
 * may contain spaces and brackets.
 */
static const char *stat_field(const char *text, int n)
{
    const char *at = strrchr(text, ')');
    for (int field = 2; field < n && at; field++)
        at = strchr(at + 1, ' ');
    return at;
}

/*
 * With another name and no arguments, the guard survives programs that look for the daemon by these (pidof, pkill -f)
 * and kill it. Fields 48 and 49 are the addresses of the arguments.
 */
static void take_name(void)
{
    char text[1024] = "";
    unsigned long from = 0, to = 0;
    (void)prctl(PR_SET_NAME, GUARD_NAME);
    (void)proc_read("/proc/self/stat", text, sizeof(text));
    const char *at = stat_field(text, 48);
    if (!at || sscanf(at, "%lu %lu", &from, &to) != 2 || from == 0 || from >= to)
        return;
    char *args = (char *)(uintptr_t)from; /* this process's own */
    memset(args, 0, to - from);
    memcpy(args, GUARD_NAME,
           to - from <= sizeof(GUARD_NAME) ? to - from - 1 : sizeof(GUARD_NAME) - 1);
}

/*
 * Drop everything shared with the daemon: its terminal, its directory, and above all its open
 * files. An open /dev/fuse in the guard would keep the connection alive, an open model its lock.
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

static void guard(int from, const char *mountpoint)
{
    leave(from);
    wait_for_end();
    if (ask(mountpoint) == MOUNT_DEAD)
        (void)mount_take_down(mountpoint, true, NULL);
    _exit(0);
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

/* ---- a new mount ---- */

/* True for a mount of ggufs. */
static bool is_ours(const struct mount *m, const struct daemon *d)
{
    return mount_is_ggufs(m) || (mount_is_fuse(m) && d);
}

/* A mount of ggufs is on the mount point: refuse, or remove it. */
static int occupied(const struct mount *m, const struct daemon *d, const char *shown, struct err *e)
{
    char model[SHOW_MAX], pid[64] = "";
    if (d && d->status.state >= DAEMON_LEAVING) { /* it is removing its mount */
        (void)poll(NULL, 0, LOOK_AGAIN);
        return 0;
    }
    if (mount_life(m->at, ANSWER_MS) == MOUNT_DEAD) {
        int r = mount_take_down(m->at, true, e);
        if (r < 0 && r != -EINVAL) /* EINVAL: another process did it */
            return err_prefix(e, r, "%s: has a dead mount", shown);
        *e = (struct err){0};
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
        return 0;
    }
    if (d)
        (void)snprintf(pid, sizeof(pid), ", process %ld", d->pid);
    return err_set(
        e, -EBUSY,
        "%s: a ggufs is already mounted there (%s%s); unmount it first: ggufs --unmount %s", shown,
        show(model, m->source, strlen(m->source)), pid, shown);
}

static int inside(const struct mount *m, const char *shown, struct err *e)
{
    char at[SHOW_MAX];
    return err_set(e, -EBUSY, "%s: is inside the ggufs mount on %s", shown,
                   show(at, m->at, strlen(m->at)));
}

/* Check the list of mounts once. 1: a dead mount was removed, check again; 0, -errno. */
static int look(const char *path, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(daemons_free) struct daemons ds = {0};
    int r = mounts_load(&ms, 0);
    const struct mount *m = r == 0 ? mounts_around(&ms, path) : NULL;
    if (m && mount_is_fuse(m))
        (void)daemons_find(&ds, NULL);
    const struct daemon *d = m ? daemons_of(&ds, m) : NULL;
    if (!m || !is_ours(m, d))
        return 0;
    if (strcmp(m->at, path) != 0)
        return inside(m, shown, e);
    r = occupied(m, d ? d : daemons_silent(&ds, m), shown, e);
    return r < 0 ? r : 1;
}

/* The path is not accessible. */
static int no_path(const char *path, int why, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    char at[SHOW_MAX];
    const struct mount *m =
        mounts_load(&ms, 0) == 0 && why == ENOTCONN ? mounts_typed(&ms, path) : NULL;
    if (m)
        return err_set(e, -why, "%s: is inside the dead mount on %s", shown,
                       show(at, m->at, strlen(m->at)));
    return err_set(e, -why, "%s: %s", shown, strerror(why));
}

/* A path into a mount of ggufs is refused before it is resolved. */
static int check_typed(const char *path, const char *shown, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    const struct mount *m =
        mounts_load(&ms, 0) == 0 && !strstr(path, "..") ? mounts_typed(&ms, path) : NULL;
    return m && mount_is_ggufs(m) && mount_life(m->at, ANSWER_MS) != MOUNT_DEAD
               ? inside(m, shown, e)
               : 0;
}

static bool is_opened_already(const char *mountpoint)
{
    return strncmp(mountpoint, "/dev/fd/", 8) == 0;
}

/* From a new kernel's description of a connection; 0: not available. */
static dev_t device_of_connection(int fd)
{
    static const char label[] = "\nfuse_connection:";
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)proc_read(path, text, sizeof(text));
    const char *at = strstr(text, label);
    unsigned number = at ? (unsigned)strtoul(at + sizeof(label) - 1, NULL, 10) : 0;
    return makedev(number >> KERNEL_MINOR_BITS, number & ((1U << KERNEL_MINOR_BITS) - 1));
}

/* Where the file system is mounted; NULL: not in this list, or no memory. free() it. */
static char *place_of(dev_t dev)
{
    CLEANUP(mounts_free) struct mounts ms;
    if (mounts_load(&ms, 0) == 0)
        for (size_t i = ms.n; dev && i-- > 0;)
            if (ms.mount[i].dev == dev)
                return strdup(ms.mount[i].at);
    return NULL;
}

static dev_t device_at(const char *mountpoint)
{
    struct statx st;
    if (statx(AT_FDCWD, mountpoint, AT_STATX_DONT_SYNC, 0, &st) < 0)
        return 0;
    return makedev(st.stx_dev_major, st.stx_dev_minor);
}

dev_t spot_device(char **mountpoint, int fd)
{
    if (!is_opened_already(*mountpoint))
        return device_at(*mountpoint);
    dev_t dev = device_of_connection(fd);
    char *at = place_of(dev);
    if (at) {
        free(*mountpoint);
        *mountpoint = at;
    }
    return dev;
}

int spot_claim(const char *mountpoint, int *claim, struct err *e)
{
    char shown[SHOW_MAX];
    *claim = -1;
    if (is_opened_already(mountpoint))
        return 0;
    int fd = open(mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOOKS_MAX && flock(fd, LOCK_EX | LOCK_NB) < 0; i++)
        (void)poll(NULL, 0, LOOK_AGAIN);
    int r = look(mountpoint, show(shown, mountpoint, strlen(mountpoint)), e);
    if (r >= 0)
        *claim = fd;
    else if (fd >= 0)
        (void)close(fd);
    return r < 0 ? r : 0;
}

int spot_prepare(char **mountpoint, struct err *e)
{
    char shown[SHOW_MAX];
    struct stat st;
    if (is_opened_already(*mountpoint))
        return 0;
    (void)show(shown, *mountpoint, strlen(*mountpoint));
    int r = check_typed(*mountpoint, shown, e);
    if (r < 0)
        return r;
    char *path = mounts_path(*mountpoint);
    if (!path)
        return no_path(*mountpoint, errno, shown, e);
    r = 1;
    for (int i = 0; i < LOOKS_MAX && r > 0; i++)
        r = look(path, shown, e);
    free(*mountpoint);
    *mountpoint = path;
    if (r > 0)
        r = err_set(e, -EBUSY, "%s: is still mounted", shown);
    if (r < 0)
        return r;
    if (stat(path, &st) < 0)
        return no_path(path, errno, shown, e);
    return S_ISDIR(st.st_mode) ? 0 : err_set(e, -ENOTDIR, "%s: is not a directory", shown);
}
