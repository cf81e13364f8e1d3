/* SPDX-License-Identifier: MIT */
/* Finds other processes through /proc: see processes.h. */
#include "mount/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/err.h"
#include "base/path.h"
#include "shelf/mounts.h"

/* Call fn for each number in a directory of /proc until it returns false. True if it did. */
static bool each_number(const char *folder, bool (*fn)(void *arg, long number), void *arg)
{
    DIR *d = opendir(folder);
    bool more = true;
    for (const struct dirent *e; d && more && (e = readdir(d));)
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            more = fn(arg, strtol(e->d_name, NULL, 10));
    if (d)
        (void)closedir(d);
    return !more;
}

size_t proc_read(const char *path, char *dst, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    for (ssize_t got = 1; fd >= 0 && got > 0 && n<size - 1; n += got> 0 ? (size_t)got : 0)
        got = read(fd, dst + n, size - 1 - n);
    if (fd >= 0)
        (void)close(fd);
    dst[n] = '\0';
    return n;
}

const char *process_name(char dst[PROCESS_NAME_MAX], long pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    size_t n = proc_read(path, name, sizeof(name));
    if (n > 0 && name[n - 1] == '\n')
        n--;
    return show_in(dst, PROCESS_NAME_MAX, name, n);
}

/* "PID (NAME) STATE ...": the name may contain anything. */
bool process_stopped(long pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    (void)proc_read(path, text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
}

bool process_wait(long pid, int ms)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    int r = 0;
    while ((p.fd >= 0 || ms >= 0) && (r = poll(&p, 1, ms)) < 0 && errno == EINTR)
        ;
    if (p.fd >= 0)
        (void)close(p.fd);
    return r > 0;
}

const char *user_name(char dst[PROCESS_NAME_MAX], long uid)
{
    struct passwd entry, *found = NULL;
    char room[4096];
    if (uid >= 0 && getpwuid_r((uid_t)uid, &entry, room, sizeof(room), &found) == 0 && found)
        return show_in(dst, PROCESS_NAME_MAX, found->pw_name, strlen(found->pw_name));
    (void)snprintf(dst, PROCESS_NAME_MAX, "%ld", uid);
    return dst;
}

/* ---- locks ---- */

/* Long enough for a dozen locks. */
#define INFO_MAX 2048

bool file_id_of(int fd, struct file_id *ret)
{
    char path[64], info[INFO_MAX];
    struct stat st;
    struct mounts ms;
    if (fstat(fd, &st) < 0)
        return false;
    *ret = (struct file_id){major(st.st_dev), minor(st.st_dev), st.st_ino};
    /* stat(2) gives other numbers on btrfs and overlayfs. */
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)proc_read(path, info, sizeof(info));
    const char *ino = strstr(info, "\nino:"), *mnt = strstr(info, "\nmnt_id:");
    if (ino)
        ret->ino = strtoull(ino + 5, NULL, 10);
    long id = mnt ? strtol(mnt + 8, NULL, 10) : -1;
    if (mounts_load(&ms, 0) == 0)
        for (size_t i = 0; i < ms.n; i++)
            if (ms.mount[i].id == id) {
                ret->major = major(ms.mount[i].dev);
                ret->minor = minor(ms.mount[i].dev);
            }
    mounts_free(&ms);
    return true;
}

/* "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF": the process, if that is a lock on the file; else 0. */
static long lock_in(const char *text, const struct file_id *id)
{
    unsigned major_no, minor_no;
    uint64_t ino;
    long pid;
    bool is = sscanf(text, "%*d: FLOCK %*s WRITE %ld %x:%x:%" SCNu64, &pid, &major_no, &minor_no,
                     &ino) == 4 &&
              major_no == id->major && minor_no == id->minor && ino == id->ino;
    return is ? pid : 0;
}

/* Locks belong to open file descriptions, whichever process took them. */
static bool is_unlocked(void *arg, long number)
{
    static const char label[] = "\nlock:";
    char path[64], info[INFO_MAX];
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%ld", number);
    (void)proc_read(path, info, sizeof(info));
    for (const char *p = info; (p = strstr(p, label)); p++)
        if (lock_in(p + sizeof(label) - 1, arg))
            return false;
    return true;
}

bool file_is_locked_here(const struct file_id *id)
{
    struct file_id of = *id;
    return each_number("/proc/self/fdinfo", is_unlocked, &of);
}

long file_locked_by(const struct file_id *id)
{
    char line[256];
    long pid = 0;
    FILE *f = fopen("/proc/locks", "re");
    while (f && pid <= 0 && fgets(line, sizeof(line), f))
        pid = lock_in(line, id);
    if (f)
        (void)fclose(f);
    return pid > 0 ? pid : 0;
}

/* ---- pending signals ---- */

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

/* These stop a program, even with a handler. */
#define ASKS (BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTERM))
/* All others end it, unless it has a handler. */
#define HARMLESS                                                                               \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) | BIT(SIGTSTP) | \
     BIT(SIGTTIN) | BIT(SIGTTOU))

/* Read the set of signals in the line NAME of a status. False: there is no such line. */
static bool find(const char *status, const char *name, uint64_t *ret)
{
    const char *at = strstr(status, name);
    if (at)
        *ret = strtoull(at + strlen(name), NULL, 16);
    return at;
}

bool stops_by_status(const char *status)
{
    uint64_t own, shared, blocked, ignored, caught;
    if (!find(status, "\nSigPnd:", &own) || !find(status, "\nShdPnd:", &shared) ||
        !find(status, "\nSigBlk:", &blocked) || !find(status, "\nSigIgn:", &ignored) ||
        !find(status, "\nSigCgt:", &caught))
        return true;
    uint64_t pending = (own | shared) & ~blocked & ~ignored;
    return pending & (ASKS | ~(caught | HARMLESS));
}

bool stops_thread(pid_t thread)
{
    char path[64], status[8192];
    if (thread <= 0) /* in another container */
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)thread);
    (void)proc_read(path, status, sizeof(status));
    return stops_by_status(status);
}

/* ---- uses of a mount ---- */

/* /proc/PID/comm of a ggufs process. */
#define OUR_NAME "ggufs"

/* The maximum number of users to name. */
#define NAMED_MAX 8

/* In a device number within the kernel. */
#define KERNEL_MINOR_BITS 20

struct users {
    const struct mount *m;
    struct buf *out;
    unsigned n;
    long pid;    /* the process being checked */
    bool others; /* used by anything but this program */
};

static bool link_is_below(const struct users *u, const char *name)
{
    char path[64], target[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", u->pid, name);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    return n > 0 && path_below(target, u->m->at);
}

/* Checks the mount through which a file was opened. */
static bool try_file(void *arg, long number)
{
    const struct users *u = arg;
    static const char label[] = "\nmnt_id:";
    char path[64], info[INFO_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%ld", u->pid, number);
    (void)proc_read(path, info, sizeof(info));
    const char *at = strstr(info, label);
    long id = at ? strtol(at + sizeof(label) - 1, NULL, 10) : -1;
    return id != u->m->id;
}

/* "START-END rwxp OFFSET 00:4d INODE PATH": a mapping keeps its mount busy, too. */
static bool has_mapping(const struct users *u)
{
    char path[64], dev[32], want[32], *line = NULL;
    size_t room = 0;
    bool found = false;
    (void)snprintf(want, sizeof(want), "%02x:%02x", major(u->m->dev), minor(u->m->dev));
    (void)snprintf(path, sizeof(path), "/proc/%ld/maps", u->pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getline(&line, &room, f) > 0)
        found = sscanf(line, "%*s %*s %*s %31s", dev) == 1 && strcmp(dev, want) == 0;
    if (f)
        (void)fclose(f);
    free(line);
    return found;
}

/* A copy of the mount in another mount namespace keeps nothing busy here. */
static bool is_elsewhere(const struct users *u)
{
    char path[64], here[64] = "", there[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/mnt", u->pid);
    return readlink(path, there, sizeof(there) - 1) > 0 &&
           readlink("/proc/self/ns/mnt", here, sizeof(here) - 1) > 0 && strcmp(here, there) != 0;
}

static bool uses(struct users *u)
{
    char folder[64];
    if (is_elsewhere(u))
        return false;
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fdinfo", u->pid);
    return link_is_below(u, "cwd") || link_is_below(u, "root") || link_is_below(u, "exe") ||
           each_number(folder, try_file, u) || has_mapping(u);
}

static void add(struct users *u, const char *text)
{
    if (u->n < NAMED_MAX) {
        buf_str(u->out, u->n ? ", " : "");
        buf_str(u->out, text);
    }
    u->n++;
}

static void add_process(struct users *u)
{
    char name[PROCESS_NAME_MAX], text[PROCESS_NAME_MAX + 64];
    (void)snprintf(text, sizeof(text), "process %ld (%s)", u->pid, process_name(name, u->pid));
    add(u, text);
    u->others |= strcmp(name, OUR_NAME) != 0;
}

static void add_more(const struct users *u)
{
    if (u->n > NAMED_MAX)
        buf_printf(u->out, " and %u more", u->n - NAMED_MAX);
}

static bool try_process(void *arg, long pid)
{
    struct users *u = arg;
    u->pid = pid;
    if (pid != getpid() && uses(u))
        add_process(u);
    return true;
}

/* ---- other mount namespaces ---- */

static bool try_namespace(void *arg, long pid)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    struct users *u = arg;
    bool found = false;
    u->pid = pid;
    if (!is_elsewhere(u) || mounts_load(&ms, pid) < 0)
        return true;
    for (size_t i = 0; i < ms.n && !found; i++)
        found = mount_is_of(&ms.mount[i], u->m->dev, NULL, u->m->source);
    if (found)
        add_process(u);
    return true;
}

/* A directory that the kernel makes for each connection, named by the device number in kernel format. */
static bool is_connected(dev_t dev)
{
    char path[64];
    unsigned number = major(dev) << KERNEL_MINOR_BITS | minor(dev);
    (void)snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", number);
    return access(path, F_OK) == 0;
}

bool mount_lives_on(const struct mount *gone, bool again, struct buf *out)
{
    struct users u = {.m = gone, .out = out};
    (void)each_number("/proc", try_namespace, &u);
    add_more(&u);
    return u.n > 0 || (again && is_connected(gone->dev));
}

bool mount_users(const struct mounts *ms, const struct mount *m, struct buf *out)
{
    struct users u = {.m = m, .out = out};
    for (size_t i = 0; i < ms->n; i++)
        if (ms->mount[i].parent == m->id) {
            char at[SHOW_MAX], text[SHOW_MAX + 32];
            (void)snprintf(text, sizeof(text), "the mount on %s",
                           show(at, ms->mount[i].at, strlen(ms->mount[i].at)));
            add(&u, text);
            u.others = true;
        }
    (void)each_number("/proc", try_process, &u);
    add_more(&u);
    return u.others;
}
