/* SPDX-License-Identifier: MIT */
/* Finds other processes through /proc: see processes.h. */
#include "mount/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/when.h"

int processes_each(const char *folder, bool (*fn)(void *arg, long number), void *arg)
{
    DIR *d = opendir(folder);
    bool more = true;
    const struct dirent *e;
    if (!d)
        return -errno;
    while (more && (e = readdir(d)))
        if (e->d_name[0] >= '0' && e->d_name[0] <= '9')
            more = fn(arg, strtol(e->d_name, NULL, 10));
    (void)closedir(d);
    return more ? 0 : 1;
}

/* Read the start of a short file of /proc, as a text. Its length; 0: it cannot be read. */
static size_t read_short(const char *path, char *dst, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, dst, size - 1);
    if (fd >= 0)
        (void)close(fd);
    dst[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

const char *process_name(char dst[PROCESS_NAME_MAX], long pid)
{
    char path[64], name[32];
    (void)snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
    size_t n = read_short(path, name, sizeof(name));
    if (n > 0 && name[n - 1] == '\n')
        n--;
    return show_in(dst, PROCESS_NAME_MAX, name, n);
}

/* "PID (NAME) STATE ...": the name may contain anything. */
bool process_stopped(long pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    (void)read_short(path, text, sizeof(text));
    const char *name_end = strrchr(text, ')');
    return name_end && (strncmp(name_end, ") T", 3) == 0 || strncmp(name_end, ") t", 3) == 0);
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

/* ---- daemons of ggufs ---- */

struct search {
    long pid;
    int fd;
};

static bool try_status(void *arg, long number)
{
    struct search *s = arg;
    s->fd = daemon_open(s->pid, (int)number);
    return s->fd < 0;
}

static uid_t owner(long pid)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%ld", pid);
    return stat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
}

static bool add_process(void *arg, long pid)
{
    struct processes *ps = arg;
    struct search s = {.pid = pid, .fd = -1};
    char name[PROCESS_NAME_MAX], folder[64];
    if (pid == getpid() || strcmp(process_name(name, pid), DAEMON_COMM) != 0)
        return true;
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fd", pid);
    (void)processes_each(folder, try_status, &s);
    if (s.fd < 0)
        return true;
    struct process p = {.pid = pid, .uid = owner(pid), .fd = s.fd};
    bool room = array_grow(&ps->process, &ps->cap, ps->n, sizeof(*ps->process)) == 0;
    /* A parent that has not ended yet has its child's file open. */
    if (room && daemon_read(s.fd, &p.status) == 0 && (!p.status.pid || p.status.pid == pid)) {
        ps->process[ps->n++] = p;
        return true;
    }
    daemon_status_free(&p.status);
    (void)close(s.fd);
    return room;
}

int processes_find(struct processes *ps)
{
    *ps = (struct processes){0};
    int r = processes_each("/proc", add_process, ps);
    return r > 0 ? -ENOMEM : r;
}

void processes_free(struct processes *ps)
{
    for (size_t i = 0; i < ps->n; i++) {
        daemon_status_free(&ps->process[i].status);
        (void)close(ps->process[i].fd);
    }
    free(ps->process);
}

static bool is_of(const struct process *p, const struct mount *m)
{
    const struct daemon_status *s = &p->status;
    long user = mount_number(m->super, "user_id");
    return (p->uid == 0 || (long)p->uid == user) && mount_is_of(m, s->dev, s->at, s->model);
}

/* True if a's status was written after b's. */
static bool is_later(const struct process *a, const struct process *b)
{
    struct stat x, y;
    if (fstat(a->fd, &x) < 0 || fstat(b->fd, &y) < 0)
        return false;
    return when_before(&y.st_mtim, &x.st_mtim);
}

/* A daemon that serves comes first. Of two the later one is meant: the number of a mount that was taken
 * from a stopped daemon is given to the next mount. */
struct process *processes_of(const struct processes *ps, const struct mount *m)
{
    struct process *found = NULL;
    for (size_t i = 0; i < ps->n; i++) {
        struct process *p = &ps->process[i];
        if (is_of(p, m) && (!found || p->status.state < found->status.state ||
                            (p->status.state == found->status.state && is_later(p, found))))
            found = p;
    }
    return found;
}

const struct mount *process_mount(const struct mounts *ms, const struct process *p)
{
    return mounts_of(ms, p->status.dev, p->status.at, p->status.model);
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
    /* On btrfs and overlayfs stat(2) gives other numbers. */
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    (void)read_short(path, info, sizeof(info));
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

struct lock_search {
    long pid;
    const struct file_id *id;
};

/* "lock:\t1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF" in a description. */
static bool try_lock(void *arg, long number)
{
    const struct lock_search *s = arg;
    char path[64], info[INFO_MAX];
    unsigned major_no, minor_no;
    uint64_t ino;
    (void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%ld", s->pid, number);
    (void)read_short(path, info, sizeof(info));
    for (const char *p = info; (p = strstr(p, "\nlock:")); p++)
        if (sscanf(p, " lock: %*d: FLOCK %*s WRITE %*d %x:%x:%" SCNu64, &major_no, &minor_no,
                   &ino) == 3 &&
            major_no == s->id->major && minor_no == s->id->minor && ino == s->id->ino)
            return false;
    return true;
}

bool process_locks(long pid, const struct file_id *id)
{
    struct lock_search s = {pid, id};
    char folder[64];
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fdinfo", pid);
    return processes_each(folder, try_lock, &s) > 0;
}
