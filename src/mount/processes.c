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
#include "shelf/mounts.h"

bool proc_each(const char *folder, bool (*fn)(void *arg, long number), void *arg)
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

/* The line is "PID (NAME) STATE ...", and the name may contain anything. */
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

bool file_id_of(int fd, struct file_id *ret)
{
    char path[64], info[PROC_INFO_MAX];
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

/* Parse "1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF". Returns the process if that is a lock on
 * the file, otherwise 0. */
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

/* Locks belong to open file descriptions, no matter which process took them. */
static bool is_unlocked(void *arg, long number)
{
    static const char label[] = "\nlock:";
    char path[64], info[PROC_INFO_MAX];
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
    return proc_each("/proc/self/fdinfo", is_unlocked, &of);
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

/* These should stop a program even if it has a handler. */
#define ASKS (BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTERM))
/* All signals except these end a program, unless it has a handler. */
#define HARMLESS                                                                               \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) | BIT(SIGTSTP) | \
     BIT(SIGTTIN) | BIT(SIGTTOU))

/*
 * Read the set of signals in the line `name` of a status. Returns false if there is no such line.
 */
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
    if (thread <= 0) /* the thread is in another container */
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)thread);
    (void)proc_read(path, status, sizeof(status));
    return stops_by_status(status);
}
