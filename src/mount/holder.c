/* SPDX-License-Identifier: MIT */
/* Finds the process that holds a model's lock: see holder.h. */
#include "mount/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <unistd.h>

#include "base/when.h"
#include "mount/log.h"
#include "shelf/mounts.h"
#include "mount/daemon.h"

/* Milliseconds: before a line reports the wait; the longest wait for a daemon that may not end; and
 * between two checks, unless it ends earlier. */
#define LINE_AFTER 1000
#define PATIENCE 10000
#define LOOK_AGAIN 100

/* Wait until the process has ended, at most some milliseconds. */
static void rest(long pid, int ms)
{
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0), .events = POLLIN};
    (void)poll(&p, 1, ms);
    if (p.fd >= 0)
        (void)close(p.fd);
}

/*
 * The daemon of ggufs that holds the lock; NULL: no such process can be seen. One of another user may only claim
 * that, so the kernel must say the same.
 */
static const struct daemon *find(const struct daemons *ds, const struct file_id *id)
{
    long pid = file_locked_by(id);
    for (size_t i = 0; i < ds->n; i++) {
        const struct daemon *d = &ds->daemon[i];
        const bool believed = d->uid == 0 || d->uid == geteuid() || d->pid == pid;
        if (d->status.holds ? believed : d->status.state == DAEMON_SILENT && d->pid == pid)
            return d;
    }
    return NULL;
}

enum verdict { FREE, STARTS, GONE, ENDS, KEEPS };

/* What the holder will do; *why names it. */
static enum verdict judge(const struct daemon *d, struct err *why)
{
    const struct daemon_status *s = &d->status;
    char at[SHOW_MAX];
    if (s->state == DAEMON_SILENT) {
        (void)err_set(why, -EBUSY, "another ggufs writes it (process %ld, which does not answer)",
                      d->pid);
        return KEEPS;
    }
    (void)show(at, s->at, strlen(s->at));
    if (s->state == DAEMON_STARTING) {
        (void)err_set(why, -EBUSY, "another ggufs is about to mount it on %s (process %ld)", at,
                      d->pid);
        return STARTS;
    }
    if (s->state > DAEMON_GONE) {
        (void)err_set(why, -EBUSY, "process %ld is still writing edits of %s", d->pid, at);
        return d->uid == 0 || d->uid == geteuid() ? ENDS : GONE; /* others may only claim it */
    }
    if (s->state == DAEMON_SERVING) {
        (void)err_set(why, -EBUSY, "another ggufs writes it (mounted on %s, process %ld)", at,
                      d->pid);
        return KEEPS;
    }
    (void)err_set(
        why, -EBUSY,
        "another ggufs writes it (process %ld; its mount on %s is gone, but files are open)",
        d->pid, at);
    return GONE;
}

/* ---- holders whose status cannot be read ---- */

/* A mount of this model whose daemon cannot be seen. */
static bool name_by_mount(int fd, struct err *why)
{
    char link[64], path[PATH_MAX], at[SHOW_MAX], user[PROCESS_NAME_MAX];
    struct mounts ms;
    bool found = false;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    path[n > 0 ? n : 0] = '\0';
    if (mounts_load(&ms, 0) == 0)
        for (size_t i = 0; i < ms.n && !found; i++) {
            const struct mount *m = &ms.mount[i];
            found = mount_is_ggufs(m) && strcmp(m->source, path) == 0 && mount_has(m->super, "rw");
            if (found)
                (void)err_set(why, -EBUSY, "another ggufs writes it (mounted on %s by %s)",
                              show(at, m->at, strlen(m->at)),
                              user_name(user, mount_number(m->super, "user_id")));
        }
    mounts_free(&ms);
    return found;
}

static void name_other(int fd, const struct file_id *id, struct err *why)
{
    char name[PROCESS_NAME_MAX];
    if (name_by_mount(fd, why))
        return;
    long pid = file_locked_by(id);
    if (pid && *process_name(name, pid))
        (void)err_set(why, -EBUSY, "another program has it locked (process %ld, %s)", pid, name);
    else
        (void)err_set(
            why, -EBUSY,
            "a process that cannot be seen has it locked (of another user, container or machine)");
}

/* ---- */

/* Check the holder of the lock once. *pid: the process to wait for. */
static enum verdict look(int fd, long *pid, struct err *why)
{
    struct daemons ds;
    struct file_id id;
    enum verdict v = FREE;
    if (!file_id_of(fd, &id))
        return FREE;
    const struct daemon *d = daemons_find(&ds, &id) == 0 ? find(&ds, &id) : NULL;
    if (d) {
        *pid = d->pid;
        v = judge(d, why);
    }
    daemons_free(&ds);
    return v;
}

/* No ggufs holds the lock, but it was refused. It may be free by now: a process that is being killed
 * loses its status a moment before its locks. */
static enum verdict look_closer(int fd, long *pid, struct err *why)
{
    struct file_id id;
    for (int i = 0; i < 2; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return FREE;
        rest(0, LOOK_AGAIN);
        enum verdict v = look(fd, pid, why);
        if (v != FREE)
            return v;
    }
    if (file_id_of(fd, &id))
        name_other(fd, &id, why);
    return KEEPS;
}

static enum verdict look_at(int dir, const char *name, bool busy, long *pid, struct err *why)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return FREE; /* and opening it fails */
    enum verdict v = look(fd, pid, why);
    if (v == FREE && busy)
        v = look_closer(fd, pid, why);
    (void)close(fd);
    return v;
}

bool holder_wait(void *arg, int dir, const char *name, bool busy, struct err *why)
{
    const char *model = arg;
    const long long begin = when_ms();
    long pid = 0;
    bool said = false;
    for (;;) {
        char shown[SHOW_MAX];
        enum verdict v = look_at(dir, name, busy, &pid, why);
        const long long waited = when_ms() - begin;
        if (v == FREE || v == KEEPS)
            return v == FREE;
        if (v == STARTS && !busy) /* nothing is edited yet */
            return false;
        if (v != ENDS && waited >= PATIENCE)
            return false;
        if (!said && waited >= LINE_AFTER) {
            log_line(LOG_NOTICE, "%s: waiting: %s", show(shown, model, strlen(model)), why->msg);
            said = true;
        }
        rest(pid, LOOK_AGAIN);
    }
}
