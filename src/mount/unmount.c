/* SPDX-License-Identifier: MIT */
/* Unmounts, and waits for the daemon: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/thread.h"
#include "base/when.h"
#include "mount/log.h"
#include "mount/processes.h"
#include "mount/takedown.h"
#include "mount/users.h"

/* After so many seconds a line reports the wait. */
#define LINE_AFTER 1
/* How often a busy mount is tried again if no process is seen to use it. */
#define BUSY_TRIES 40
#define BUSY_MS 50

#define ANSWER_MS 2000
/* Milliseconds between two looks at a daemon that is to end; seconds after which one that still serves is
 * asked for where. */
#define LOOK_AGAIN 100
#define PATIENCE 10

/* Bytes of a line about a lost edit: a name and a reason. */
#define LINE_MAX_SHOWN 1024

/* The mount to be removed, and the daemon to wait for. */
struct target {
    const char *shown; /* the mount point as it was given, safe to print */
    struct mounts mounts;
    struct processes processes;
    const struct mount *mount; /* NULL: no longer mounted, but its daemon still writes */
    struct process *daemon;    /* NULL: a dead mount */
    int process;               /* becomes readable when the daemon ends */
};

/* The user beside root whose processes are trusted: for root the folder's owner, whose claims hold up
 * that folder alone. Its file system is not accessed, as it may hang. */
static uid_t trusted(const char *path)
{
    struct statx st;
    if (geteuid() != 0)
        return geteuid();
    int r = statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_UID, &st);
    return r == 0 && st.stx_mask & STATX_UID ? st.stx_uid : 0;
}

/* A daemon that was mounted there and still writes. Processes of other users may only claim that. */
static struct process *find_leaving(const struct processes *ps, const char *path)
{
    uid_t user = trusted(path);
    for (size_t i = 0; i < ps->n; i++) {
        struct process *p = &ps->process[i];
        if (p->status.state >= DAEMON_LEAVING && strcmp(p->status.at, path) == 0 &&
            (p->uid == 0 || p->uid == user))
            return p;
    }
    return NULL;
}

/* A mount without a daemon that can be seen. */
static int without_daemon(const struct mount *m, struct err *e)
{
    char name[PROCESS_NAME_MAX];
    long user = mount_number(m->super, "user_id");
    if (!mount_is_ggufs(m))
        return err_set(e, -EINVAL, "is a mount of %s, not of ggufs",
                       show_in(name, sizeof(name), m->type, strlen(m->type)));
    if (geteuid() != 0 && user >= 0 && (uid_t)user != geteuid())
        return err_set(e, -EPERM,
                       "is a mount of user %s, which only that user and root can unmount",
                       user_name(name, user));
    if (mount_life(m->at, ANSWER_MS) == MOUNT_DEAD)
        return 0;
    return err_set(e, -ESRCH,
                   "cannot see its daemon, of another container perhaps "
                   "(fusermount3 -u unmounts, without waiting for it)");
}

static int find_target(const char *path, struct target *t, struct err *e)
{
    int r = mounts_load(&t->mounts, 0);
    if (r == 0)
        r = processes_find(&t->processes);
    if (r < 0)
        return err_set(e, r, "cannot read /proc: %s", strerror(-r));
    t->mount = mounts_around(&t->mounts, path);
    if (!t->mount || strcmp(t->mount->at, path) != 0) {
        t->mount = NULL;
        t->daemon = find_leaving(&t->processes, path);
        if (!t->daemon)
            return err_set(e, -EINVAL, "is not a mount of ggufs: nothing is mounted there");
    } else if (mount_is_fuse(t->mount)) {
        t->daemon = processes_of(&t->processes, t->mount);
    }
    if (!t->daemon)
        return without_daemon(t->mount, e);
    t->process = (int)syscall(SYS_pidfd_open, (pid_t)t->daemon->pid, 0);
    if (t->process < 0 && errno != ESRCH)
        return err_set(e, -errno, "cannot watch its daemon %ld: %s", t->daemon->pid,
                       strerror(errno));
    return 0;
}

/* ---- a line for a long wait ---- */

struct patience {
    const char *shown;
    const struct process *daemon; /* NULL: a dead mount */
    atomic_bool writes;           /* it was asked to write what is pending */
    struct lock lock;
    struct cond over;
    bool done; /* protected by the lock */
    struct thread thread;
    bool runs;
};

/* What the daemon does at this moment. A mount that is gone here and still served is somewhere else. */
static const char *does_now(const struct patience *p)
{
    struct daemon_status s;
    const char *does = "has not ended yet";
    bool known = daemon_read(p->daemon->fd, &s) == 0;
    if (known && !s.read_only && (s.state == DAEMON_LEAVING || atomic_load(&p->writes)))
        does = "is still writing edits";
    else if (known && s.state == DAEMON_SERVING)
        does = "has not ended yet (is it stopped, or mounted in another namespace?)";
    daemon_status_free(&s);
    return does;
}

static void *say_waiting(void *arg)
{
    struct patience *p = arg;
    struct timespec until = when_now();
    until.tv_sec += LINE_AFTER;
    lock_take(&p->lock);
    while (!p->done && lock_wait(&p->lock, &p->over, &until))
        ;
    bool late = !p->done;
    lock_drop(&p->lock);
    if (late)
        log_line(LOG_NOTICE, "%s: waiting: process %ld %s", p->shown, p->daemon->pid, does_now(p));
    return NULL;
}

/* If no thread can be started, the line is left out. */
static void patience_begin(struct patience *p, const struct target *t)
{
    *p = (struct patience){.shown = t->shown, .daemon = t->daemon};
    lock_init(&p->lock);
    cond_init(&p->over);
    p->runs = p->daemon && thread_start(&p->thread, say_waiting, p) == 0;
}

static void patience_end(struct patience *p)
{
    lock_take(&p->lock);
    p->done = true;
    cond_signal(&p->over);
    lock_drop(&p->lock);
    if (p->runs)
        thread_join(&p->thread);
    cond_destroy(&p->over);
    lock_destroy(&p->lock);
}

/* ---- steps ---- */

/*
 * fsync of the folder writes pending edits, and reports earlier failures. Root may not be able to
 * access the mount of another user: then the daemon writes when it ends. -ENOTCONN: the daemon was
 * killed.
 */
static int write_pending(const char *path, struct patience *p, struct err *e)
{
    CLEANUP(buf_free) struct buf folder = BUF_INIT;
    buf_printf(&folder, "%s/metadata", path);
    buf_char(&folder, '\0');
    if (buf_error(&folder))
        return err_set(e, buf_error(&folder), "no memory");
    int fd = open((const char *)folder.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOTCONN || errno == ECONNABORTED ? -ENOTCONN : 0;
    atomic_store(&p->writes, true);
    int r = fsync(fd) < 0 ? -errno : 0;
    atomic_store(&p->writes, false);
    (void)close(fd);
    return r < 0 ? err_set(e, r, "an edit could not be written: %s", strerror(-r)) : 0;
}

static bool is_gone(const struct target *t)
{
    struct mounts ms;
    bool gone = mounts_load(&ms, 0) == 0;
    for (size_t i = 0; i < ms.n && gone; i++)
        gone = ms.mount[i].dev != t->mount->dev;
    mounts_free(&ms);
    return gone;
}

/*
 * Another --unmount has the mount open for a moment, which does not count as a use: the mount is
 * tried again for a while, unless another program is seen to use it. 0: unmounted.
 */
static int busy(const struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf users = BUF_INIT;
    bool others = mount_users(&t->mounts, t->mount, &users);
    for (int i = 0; !others && i < BUSY_TRIES; i++) {
        when_sleep(BUSY_MS);
        if (is_gone(t) || mount_take_down(t->mount->at, !t->daemon, e) == 0) {
            *e = (struct err){0};
            return 0;
        }
        users.len = 0;
        others = mount_users(&t->mounts, t->mount, &users);
    }
    buf_char(&users, '\0');
    if (buf_error(&users) || users.len == 1)
        return err_set(e, -EBUSY,
                       "is in use, by the working folder of this command, or by a process "
                       "that cannot be seen");
    return err_set(e, -EBUSY, "is in use: %s", (const char *)users.data);
}

/* A dead mount may be in use, but waiting for its users makes no sense: their calls fail. */
static int take_down(const struct target *t, struct err *e)
{
    int r = mount_take_down(t->mount->at, !t->daemon, e);
    if (r < 0 && is_gone(t)) { /* another process unmounted it */
        *e = (struct err){0};
        return 0;
    }
    if (r == -EBUSY)
        return busy(t, e);
    if (r == 0 && !t->daemon)
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", t->shown);
    return r;
}

/* The next of the daemon's lines, made safe to print. False: that was all. */
static bool next_line(const struct buf *lines, size_t *at, char shown[LINE_MAX_SHOWN])
{
    const char *text = buf_text(lines) + *at;
    if (*at >= lines->len)
        return false;
    const char *stop = memchr(text, '\n', lines->len - *at);
    size_t n = stop ? (size_t)(stop - text) : lines->len - *at;
    (void)show_in(shown, LINE_MAX_SHOWN, text, n);
    *at += n + 1;
    return true;
}

static void tell(const char *shown, const struct daemon_status *s, struct buf *lost)
{
    char line[LINE_MAX_SHOWN];
    for (size_t at = 0; next_line(&s->lost, &at, line);)
        buf_printf(lost, "%s: not saved: %s\n", shown, line);
    for (size_t at = 0; next_line(&s->backups, &at, line);)
        log_line(LOG_NOTICE, "%s: backup: %s", shown, line);
}

/* Gone here, and still served: where it lives on. 0: that cannot be seen. */
static int lives_on(const struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf where = BUF_INIT;
    if (!t->mount || !is_gone(t) || !mount_lives_on(t->mount->dev, &where))
        return 0;
    bool seen = where.len > 0;
    buf_char(&where, '\0');
    return err_set(e, -ETIMEDOUT,
                   "is unmounted, but lives on in another mount namespace, so its daemon (process "
                   "%ld) goes on%s%s",
                   t->daemon->pid, seen ? "; in that namespace: " : "",
                   seen && !buf_error(&where) ? (const char *)where.data : "");
}

static enum daemon_state state_of(const struct process *p)
{
    struct daemon_status s;
    enum daemon_state state = daemon_read(p->fd, &s) == 0 ? s.state : DAEMON_STARTING;
    daemon_status_free(&s);
    return state;
}

/* Wait until the daemon has ended, or needs nothing more to end. */
static int wait_for_end(const struct target *t, struct err *e)
{
    struct pollfd p = {.fd = t->process, .events = POLLIN};
    struct timespec begin = when_now();
    while (t->process >= 0 && poll(&p, 1, LOOK_AGAIN) <= 0) {
        enum daemon_state state = state_of(t->daemon);
        if (state == DAEMON_CLOSED)
            break;
        if (state != DAEMON_SERVING || !when_past(&begin, PATIENCE))
            continue;
        int r = lives_on(t, e);
        if (r < 0)
            return r;
        begin = when_now();
    }
    return 0;
}

/* Wait until the daemon has ended, and get its outcome. */
static int last_words(const struct target *t, struct buf *lost, struct err *e)
{
    struct daemon_status s;
    char shown[sizeof(e->msg)];
    int r = wait_for_end(t, e);
    if (r < 0)
        return r;
    r = daemon_read(t->daemon->fd, &s);
    if (r < 0 || s.state < DAEMON_ENDED) {
        r = err_set(e, -EIO, "the daemon was killed");
    } else {
        tell(t->shown, &s, lost);
        if (s.failed)
            r = err_set(e, -EIO, "%s", show_in(shown, sizeof(shown), s.failed, strlen(s.failed)));
    }
    daemon_status_free(&s);
    return r;
}

/* A bind mount of it may be left: then the daemon continues. */
static bool is_mounted_elsewhere(const struct target *t)
{
    struct mounts ms;
    char at[SHOW_MAX];
    const struct mount *m = mounts_load(&ms, 0) == 0 ? process_mount(&ms, t->daemon) : NULL;
    if (m)
        log_line(LOG_NOTICE, "%s: unmounted; still mounted on %s", t->shown,
                 show(at, m->at, strlen(m->at)));
    mounts_free(&ms);
    return m != NULL;
}

static int unmount_target(const char *path, struct target *t, struct patience *p, struct buf *lost,
                          struct err *e)
{
    struct err unwritten = {0};
    int r = 0;
    if (t->mount && t->daemon && write_pending(path, p, &unwritten) == -ENOTCONN && !unwritten.code)
        t->daemon = NULL;
    if (t->mount)
        r = take_down(t, e);
    if (r == 0 && t->daemon && !(t->mount && is_mounted_elsewhere(t)))
        r = last_words(t, lost, e);
    if (unwritten.code && (r == 0 || r == -ETIMEDOUT)) {
        if (r < 0)
            log_line(LOG_WARNING, "%s: %s", t->shown, e->msg);
        *e = unwritten;
        r = unwritten.code;
    }
    return r;
}

int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e)
{
    char shown[SHOW_MAX];
    struct target t = {.shown = show(shown, mountpoint, strlen(mountpoint)), .process = -1};
    char *path = mounts_path(mountpoint);
    int r = path ? find_target(path, &t, e) : err_set(e, -errno, "%s", strerror(errno));
    struct patience p;
    if (r == 0) {
        patience_begin(&p, &t);
        r = unmount_target(path, &t, &p, lost, e);
        patience_end(&p);
    }
    if (t.process >= 0)
        (void)close(t.process);
    processes_free(&t.processes);
    mounts_free(&t.mounts);
    free(path);
    return r < 0 ? err_prefix(e, r, "%s", shown) : 0;
}
