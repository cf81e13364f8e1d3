/* SPDX-License-Identifier: MIT */
/* Listing and unmounting mounts: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/when.h"
#include "mount/daemon.h"
#include "mount/log.h"
#include "mount/processes.h"
#include "mount/spot.h"
#include "shelf/mounts.h"
#include "text/json.h"

/* Milliseconds for probing one mount, and for a whole list. */
#define ANSWER_MS 2000
/* After this many seconds a line reports the wait. */
#define LINE_AFTER 1
/* How often a busy mount is retried if no process is seen to use it. */
#define BUSY_TRIES 40
#define BUSY_MS 50
/* Milliseconds between two checks of a daemon that should end. */
#define LOOK_AGAIN 100
/* Bytes of a line about a lost edit: a name and a reason. */
#define LINE_MAX_SHOWN 1024

/* ---- --list ---- */

/* A mount, or a daemon whose mount is not visible. */
struct entry {
    const char *at, *model, *reason; /* reason: NULL if it is read-write, or unknown */
    bool read_only;
    long pid, user; /* 0, -1: unknown */
    const char *state;
};

static const char *state_of(const struct mount *m, const struct daemon *d, long long until)
{
    static const char *const names[] = {
        [MOUNT_ALIVE] = "alive", [MOUNT_DEAD] = "dead", [MOUNT_UNKNOWN] = "unknown"};
    long long left = until - when_ms();
    if (d)
        return d->status.state >= DAEMON_LEAVING  ? "ending"
               : !m                               ? "hidden"
               : d->status.state != DAEMON_SILENT ? "alive"
               : process_stopped(d->pid)          ? "stopped"
                                                  : "unknown";
    return names[left > 0 ? mount_life(m->at, (int)left) : MOUNT_UNKNOWN];
}

/* One of the two may be NULL. */
static struct entry entry_of(const struct mount *m, const struct daemon *d, long long until)
{
    static const struct daemon_status none;
    const struct daemon_status *s = d ? &d->status : &none;
    return (struct entry){.at = m ? m->at : s->at,
                          .model = s->model || !m ? s->model : m->source,
                          .reason = s->read_only,
                          .read_only = m ? mount_has(m->super, "ro") : s->read_only != NULL,
                          .pid = d ? d->pid : 0,
                          .user = m ? mount_number(m->super, "user_id") : -1,
                          .state = state_of(m, d, until)};
}

static void add_shown(struct buf *out, const char *text)
{
    show_all(out, text, strlen(text));
}

static void add_line(const struct entry *x, struct buf *out)
{
    char name[PROCESS_NAME_MAX];
    add_shown(out, x->model);
    buf_str(out, " on ");
    add_shown(out, x->at);
    buf_str(out, x->read_only ? ", read-only" : ", read-write");
    if (x->reason) {
        buf_str(out, " (");
        add_shown(out, x->reason);
        buf_char(out, ')');
    }
    if (x->pid)
        buf_printf(out, ", process %ld", x->pid);
    else if (x->user >= 0)
        buf_printf(out, ", user %s", user_name(name, x->user));
    if (strcmp(x->state, "alive") != 0)
        buf_printf(out, ", %s", x->state);
    buf_char(out, '\n');
}

static void add_number(struct json *j, const char *name, long n, bool known)
{
    if (known)
        buf_printf(json_item(j, name), "%ld", n);
    else
        json_text(j, name, NULL);
}

static void add_object(struct json *j, const struct entry *x)
{
    json_begin(j, NULL, "{");
    json_text(j, "mountpoint", x->at);
    json_text(j, "model", x->model);
    json_text(j, "mode", x->read_only ? "ro" : "rw");
    json_text(j, "reason", x->reason);
    add_number(j, "pid", x->pid, x->pid > 0);
    add_number(j, "user", x->user, x->user >= 0);
    json_text(j, "state", x->state);
    json_end(j);
}

/* As an object in a JSON list, or as a line. */
static void add_entry(struct json *j, const struct mount *m, const struct daemon *d,
                      long long until)
{
    const struct entry x = entry_of(m, d, until);
    if (j->depth)
        add_object(j, &x);
    else
        add_line(&x, j->out);
}

static void add_all(const struct mounts *ms, struct daemons *ds, struct json *j)
{
    long long until = when_ms() + ANSWER_MS;
    for (size_t i = 0; i < ms->n; i++) {
        const struct mount *m = &ms->mount[i];
        const struct daemon *d = mount_is_fuse(m) ? daemons_of(ds, m) : NULL;
        if (d || mount_is_ggufs(m))
            add_entry(j, m, d ? d : daemons_silent(ds, m), until);
    }
    for (size_t i = 0; i < ds->n; i++) {
        const struct daemon *d = &ds->daemon[i];
        if (d->status.state > DAEMON_STARTING && d->status.model && !daemon_mount(ms, d))
            add_entry(j, NULL, d, until);
    }
}

int mnt_list(bool json, struct buf *out, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(daemons_free) struct daemons ds = {0};
    struct json j = {.out = out};
    int r = mounts_load(&ms, 0);
    if (r == 0)
        r = daemons_find(&ds, NULL);
    if (json)
        json_begin(&j, NULL, "[\n");
    if (r == 0)
        add_all(&ms, &ds, &j);
    if (json) {
        json_end(&j);
        buf_char(out, '\n');
    }
    if (r == 0)
        r = buf_error(out);
    return r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r)) : 0;
}

/* ---- --unmount ---- */

/* The mount to remove, and the daemon to wait for. */
struct target {
    const char *shown; /* the mount point as given, safe to print */
    struct mounts mounts;
    struct daemons daemons;
    const struct mount *mount; /* NULL: no longer mounted, but its daemon is still writing */
    struct daemon *daemon;     /* NULL: a dead mount */
    struct timespec begin;
    bool said;      /* it was reported that it waits */
    unsigned looks; /* checks whether it lives on elsewhere */
};

/*
 * The user besides root whose processes are trusted: for root the directory's owner, whose claims
 * affect only that directory. Its file system is not accessed, as it may hang.
 */
static uid_t trusted(const char *path)
{
    struct statx st;
    if (geteuid() != 0)
        return geteuid();
    int r = statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_UID, &st);
    return r == 0 && st.stx_mask & STATX_UID ? st.stx_uid : 0;
}

/* A daemon that was mounted there and is still writing. Other users' processes may just claim that. */
static struct daemon *find_leaving(const struct daemons *ds, const char *path)
{
    uid_t user = trusted(path);
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        if (d->status.state >= DAEMON_LEAVING && strcmp(d->status.at, path) == 0 &&
            (d->uid == 0 || d->uid == user))
            return d;
    }
    return NULL;
}

/* A mount without a visible daemon. */
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
    return err_set(
        e, -ESRCH,
        "its daemon cannot be asked: it has no control socket, or is in another container "
        "(fusermount3 -u unmounts, without waiting for it)");
}

static int find_target(const char *path, struct target *t, struct err *e)
{
    int r = mounts_load(&t->mounts, 0);
    if (r == 0)
        r = daemons_find(&t->daemons, NULL);
    if (r < 0)
        return err_set(e, r, "cannot read /proc: %s", strerror(-r));
    t->mount = mounts_around(&t->mounts, path);
    if (!t->mount || strcmp(t->mount->at, path) != 0) {
        t->mount = NULL;
        t->daemon = find_leaving(&t->daemons, path);
        if (!t->daemon)
            return err_set(e, -EINVAL, "is not a mount of ggufs: nothing is mounted there");
    } else if (mount_is_fuse(t->mount)) {
        t->daemon = daemons_of(&t->daemons, t->mount);
    }
    const struct daemon *silent = t->daemon ? NULL : daemons_silent(&t->daemons, t->mount);
    if (silent)
        return daemon_no_answer(silent, e);
    return t->daemon ? 0 : without_daemon(t->mount, e);
}

/* ---- steps ---- */

/* Print a line if this takes long. */
static void say_waiting(struct target *t, const char *does)
{
    if (t->said || !when_past(&t->begin, LINE_AFTER))
        return;
    t->said = true;
    log_line(LOG_NOTICE, "%s: waiting: process %ld %s", t->shown, t->daemon->pid, does);
}

static void say_writing(void *arg)
{
    say_waiting(arg, "is still writing edits");
}

/* Pending edits are written first, so that an error can still be reported. -EPIPE: the daemon was killed. */
static int write_pending(struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    int r = daemon_ask(t->daemon, "sync", &said, say_writing, t, e);
    if (r == -ESHUTDOWN) { /* another process unmounted it */
        *e = (struct err){0};
        return 0;
    }
    return r < 0 && r != -EPIPE && r != -ETIMEDOUT
               ? err_prefix(e, r, "an edit could not be written")
               : r;
}

/*
 * Another --unmount has the mount open for a moment, which does not count as a use: the mount is
 * retried for a while, unless another program is seen to use it. 0: unmounted.
 */
static int busy(const struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf users = BUF_INIT;
    bool others = mount_users(&t->mounts, t->mount, &users);
    for (int i = 0; !others && i < BUSY_TRIES; i++) {
        when_sleep(BUSY_MS);
        if (!mount_is_there(t->mount->dev) || mount_take_down(t->mount->at, !t->daemon, e) == 0) {
            *e = (struct err){0};
            return 0;
        }
        users.len = 0;
        others = mount_users(&t->mounts, t->mount, &users);
    }
    buf_char(&users, '\0');
    if (buf_error(&users) || users.len == 1)
        return err_set(e, -EBUSY,
                       "is in use, by the working directory of this command, or by a process "
                       "that cannot be seen");
    return err_set(e, -EBUSY, "is in use: %s", (const char *)users.data);
}

/* A dead mount may be in use, but waiting for its users is pointless: their calls fail. */
static int take_down(const struct target *t, struct err *e)
{
    int r = mount_take_down(t->mount->at, !t->daemon, e);
    if (r < 0 && !mount_is_there(t->mount->dev)) { /* another process unmounted it */
        *e = (struct err){0};
        return 0;
    }
    if (r == -EBUSY)
        return busy(t, e);
    if (r == 0 && !t->daemon)
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", t->shown);
    return r;
}

/* The next of the daemon's lines, made safe to print. False: no more. */
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

/* Unmounted here, but still served: where it lives on. 0: it does not; 1: nothing is left to do here; -errno. */
static int lives_on(struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf where = BUF_INIT;
    const struct daemon *d = t->daemon;
    if (!t->mount || mount_is_there(t->mount->dev) ||
        !mount_lives_on(t->mount, t->looks++ > 0, &where))
        return 0;
    const char *in = where.len ? "; in that namespace: " : "";
    buf_char(&where, '\0');
    const char *users = buf_error(&where) ? "" : buf_text(&where);
    if (!d->status.free)
        return err_set(e, -EBUSY,
                       "is unmounted, but files in it are open for writing in another mount "
                       "namespace, so its daemon "
                       "(process %ld) goes on%s%s",
                       d->pid, in, users);
    log_line(LOG_NOTICE,
             "%s: unmounted%s; it lives on read-only in another mount namespace, so its daemon "
             "(process %ld) "
             "goes on%s%s",
             t->shown, d->status.lost.len ? "" : ", and all is written", d->pid, in, users);
    return 1;
}

/* Wait until the daemon has ended, or needs nothing more to end, or continues elsewhere: 1. */
static int wait_for_end(struct target *t, struct err *e)
{
    struct daemon *d = t->daemon;
    int r = 0;
    while (r == 0 && d->status.state != DAEMON_CLOSED && daemon_hear(d, LOOK_AGAIN)) {
        bool writes = (d->status.state == DAEMON_GONE && !d->status.held) ||
                      d->status.state == DAEMON_LEAVING;
        say_waiting(t, process_stopped(d->pid)          ? "is stopped"
                       : writes && !d->status.read_only ? "is still writing edits"
                                                        : "has not ended yet");
        if (d->status.state == DAEMON_GONE && (d->status.held || d->status.free))
            r = lives_on(t, e);
    }
    return r;
}

/* Wait until the daemon has ended, and get its outcome. */
static int last_words(struct target *t, struct buf *lost, struct err *e)
{
    const struct daemon_status *s = &t->daemon->status;
    char shown[sizeof(e->msg)];
    int r = wait_for_end(t, e);
    if (r < 0)
        return r;
    if (r == 0 && s->state < DAEMON_ENDED)
        return err_set(e, -EIO, "the daemon was killed");
    tell(t->shown, s, lost);
    if (s->failed)
        return err_set(e, -EIO, "%s", show_in(shown, sizeof(shown), s->failed, strlen(s->failed)));
    return 0;
}

/* A bind mount of it may remain: then the daemon continues. */
static bool is_mounted_elsewhere(const struct target *t)
{
    CLEANUP(mounts_free) struct mounts ms;
    char at[SHOW_MAX];
    const struct mount *m = mounts_load(&ms, 0) == 0 ? daemon_mount(&ms, t->daemon) : NULL;
    if (m)
        log_line(LOG_NOTICE, "%s: unmounted; still mounted on %s", t->shown,
                 show(at, m->at, strlen(m->at)));
    return m != NULL;
}

static int unmount_target(struct target *t, struct buf *lost, struct err *e)
{
    struct err unwritten = {0};
    int r = t->mount && t->daemon ? write_pending(t, &unwritten) : 0;
    if (r == -ETIMEDOUT) {
        *e = unwritten;
        return r;
    }
    if (r == -EPIPE) {
        unwritten = (struct err){0};
        t->daemon = NULL;
    }
    r = t->mount ? take_down(t, e) : 0;
    if (r == 0 && t->daemon && !(t->mount && is_mounted_elsewhere(t)))
        r = last_words(t, lost, e);
    if (r == 0 && unwritten.code) {
        *e = unwritten;
        r = unwritten.code;
    }
    return r;
}

int mnt_unmount(const char *mountpoint, struct buf *lost, struct err *e)
{
    char shown[SHOW_MAX];
    struct target t = {.shown = show(shown, mountpoint, strlen(mountpoint)), .begin = when_now()};
    char *path = mounts_path(mountpoint);
    int r = path ? find_target(path, &t, e) : err_set(e, -errno, "%s", strerror(errno));
    if (r == 0)
        r = unmount_target(&t, lost, e);
    daemons_free(&t.daemons);
    mounts_free(&t.mounts);
    free(path);
    return r < 0 ? err_prefix(e, r, "%s", shown) : 0;
}
