/* SPDX-License-Identifier: MIT */
/* Lists and removes mounts: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "base/sys.h"
#include "base/lock.h"
#include "mount/daemon.h"
#include "mount/log.h"
#include "shelf/mountinfo.h"
#include "text/json.h"

/* Seconds to wait before printing a message about the wait. */
#define LINE_AFTER 1
/* Number of retries for a busy mount that no visible process uses, and the milliseconds between
 * them. */
#define BUSY_TRIES 40
#define BUSY_MS 50
/* Milliseconds between checks while waiting for a daemon, and milliseconds to wait for its process
 * to exit. */
#define LOOK_AGAIN 100
#define EXIT_MS 1000
/* Maximum size in bytes of a line about a lost edit, with a name and a reason. */
#define LINE_MAX_SHOWN 1024

extern char **environ;

/* ---- one mount ---- */

/* The daemon always answers statfs(2), except that the kernel itself returns zeros to users without
 * access to the mount. */
enum mount_life mount_ask(const char *at)
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
    /* close all descriptors: a reader of the command's output must not wait for a hung child */
    if (pid == 0) {
        (void)close_range(STDIN_FILENO, ~0U, 0);
        _exit(mount_ask(at));
    }
    bool ended = pid > 0 && process_wait(pid, ms);
    /* the child may survive as long as the daemon hangs, so do not wait for it */
    if (pid > 0 && !ended)
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

static int run_fusermount(const char *at, bool lazy, struct err *e)
{
    char said[256] = "";
    int status = 0, file = memfd_create("ggufs-stderr", MFD_CLOEXEC);
    char name[] = "fusermount3", now[] = "-u", later[] = "-uz", last[] = "--";
    char *const argv[] = {name, lazy ? later : now, last, (char *)(uintptr_t)at, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, file, STDERR_FILENO);
    int r = -posix_spawnp(&pid, name, &actions, NULL, argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
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
    if (!said[0])
        (void)snprintf(said, sizeof(said), WIFSIGNALED(status) ? "signal %d" : "exit status %d",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    return err_set(e, r, "fusermount3 -u failed: %s", said);
}

int mount_take_down(const char *at, bool lazy, struct err *e)
{
    if (umount2(at, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return run_fusermount(at, lazy, e);
    return err_set(e, -errno, "cannot unmount: %s", strerror(errno));
}

/* ---- the users of a mount, found without accessing it ---- */

/* The name of a ggufs process in /proc/PID/comm. */
#define OUR_NAME "ggufs"

/* Maximum number of users to name. */
#define NAMED_MAX 8

struct users {
    const struct mount *m;
    struct buf *out;
    unsigned n;
    long pid;    /* the process being checked */
    bool others; /* something other than ggufs uses the mount */
};

static bool link_is_below(const struct users *u, const char *name)
{
    char path[64], target[PATH_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/%s", u->pid, name);
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    return n > 0 && path_below(target, u->m->at);
}

/* Return false, which ends the search, if a file was opened through the mount. */
static bool try_file(void *arg, long number)
{
    const struct users *u = arg;
    static const char label[] = "\nmnt_id:";
    char path[64], info[PROC_INFO_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%ld/fdinfo/%ld", u->pid, number);
    (void)proc_read(path, info, sizeof(info));
    const char *at = strstr(info, label);
    long id = at ? strtol(at + sizeof(label) - 1, NULL, 10) : -1;
    return id != u->m->id;
}

/* Search lines "START-END rwxp OFFSET 00:4d INODE PATH" for a mapping of a file in the mount. A
 * mapping also keeps the mount busy. */
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

/* Return true if the process is in another mount namespace, where it cannot keep the mount busy. */
static bool is_elsewhere(const struct users *u)
{
    char path[64], here[64] = "", there[64] = "";
    (void)snprintf(path, sizeof(path), "/proc/%ld/ns/mnt", u->pid);
    return readlink(path, there, sizeof(there) - 1) > 0 &&
           readlink("/proc/self/ns/mnt", here, sizeof(here) - 1) > 0 && strcmp(here, there) != 0;
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
    char folder[64];
    u->pid = pid;
    (void)snprintf(folder, sizeof(folder), "/proc/%ld/fdinfo", pid);
    if (pid != getpid() && !is_elsewhere(u) &&
        (link_is_below(u, "cwd") || link_is_below(u, "root") || link_is_below(u, "exe") ||
         proc_each(folder, try_file, u) || has_mapping(u)))
        add_process(u);
    return true;
}

/*
 * Append a list of the mount's users, "process 12 (bash), process 34 (vim) and 5 more", safe to
 * print. Users are the mounts inside it, and the visible processes that have an open file, a
 * mapping, their working or root directory, or their program in the mount. Returns true if there is
 * a user other than ggufs itself, which briefly opens the mount during an --unmount.
 */
static bool mount_users(const struct mounts *ms, const struct mount *m, struct buf *out)
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
    (void)proc_each("/proc", try_process, &u);
    add_more(&u);
    return u.others;
}

/* ---- other mount namespaces ---- */

/* Name a process if it is in another mount namespace that still contains the mount. */
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

/* ---- --list ---- */

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

static void add_shown(struct buf *out, const char *before, const char *text)
{
    buf_str(out, before);
    show_all(out, text, strlen(text));
}

static void add_number(struct json *j, const char *name, long n, bool known)
{
    if (known)
        buf_printf(json_item(j, name), "%ld", n);
    else
        json_text(j, name, NULL);
}

/* Add an entry for a mount and its daemon, one of which may be NULL. The entry is an object in a
 * JSON list, or a line. */
static void add_entry(struct json *j, const struct mount *m, const struct daemon *d,
                      long long until)
{
    static const struct daemon_status none;
    const struct daemon_status *s = d ? &d->status : &none;
    const char *at = m ? m->at : s->at, *model = s->model || !m ? s->model : m->source;
    const bool ro = m ? mount_has(m->super, "ro") : s->read_only != NULL;
    const long user = m ? mount_number(m->super, "user_id") : -1;
    const char *state = state_of(m, d, until);
    char name[PROCESS_NAME_MAX];
    if (j->depth) {
        json_begin(j, NULL, "{");
        json_text(j, "mountpoint", at);
        json_text(j, "model", model);
        json_text(j, "mode", ro ? "ro" : "rw");
        json_text(j, "reason", s->read_only);
        add_number(j, "pid", d ? d->pid : 0, d != NULL);
        add_number(j, "user", user, user >= 0);
        json_text(j, "state", state);
        json_end(j);
        return;
    }
    add_shown(j->out, "", model);
    add_shown(j->out, " on ", at);
    buf_str(j->out, ro ? ", read-only" : ", read-write");
    if (s->read_only) {
        add_shown(j->out, " (", s->read_only);
        buf_char(j->out, ')');
    }
    if (d)
        buf_printf(j->out, ", process %ld", d->pid);
    else if (user >= 0)
        buf_printf(j->out, ", user %s", user_name(name, user));
    if (strcmp(state, "alive") != 0)
        buf_printf(j->out, ", %s", state);
    buf_char(j->out, '\n');
}

static void add_all(const struct mounts *ms, struct daemons *ds, struct json *j)
{
    long long until = when_ms() + MOUNT_ANSWER_MS;
    for (size_t i = 0; i < ms->n; i++) {
        const struct mount *m = &ms->mount[i];
        const struct daemon *d = mount_is_fuse(m) ? daemons_of(ds, m) : NULL;
        if (d || mount_is_ggufs(m))
            add_entry(j, m, d, until);
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
    bool said;            /* the wait has been reported */
    struct timespec gone; /* when the daemon was first found to outlive the mount; 0: not yet */
};

/* Find a daemon that is still writing and whose mount was at `path`. Root also trusts daemons of
 * the directory's owner, whose claims affect only that directory. The directory's file system is
 * not accessed, because it may hang. */
static struct daemon *find_leaving(const struct daemons *ds, const char *path)
{
    struct statx st;
    uid_t user = geteuid();
    if (user == 0 &&
        statx(AT_FDCWD, path, AT_STATX_DONT_SYNC | AT_SYMLINK_NOFOLLOW, STATX_UID, &st) == 0 &&
        st.stx_mask & STATX_UID)
        user = st.stx_uid;
    for (size_t i = 0; i < ds->n; i++) {
        struct daemon *d = &ds->daemon[i];
        if (d->status.state >= DAEMON_LEAVING && strcmp(d->status.at, path) == 0 &&
            (d->uid == 0 || d->uid == user))
            return d;
    }
    return NULL;
}

/* Explain why a mount without a visible daemon cannot be unmounted. Returns 0 if the mount is dead
 * and so can be unmounted. */
static int without_daemon(const struct mount *m, struct err *e)
{
    char name[PROCESS_NAME_MAX];
    if (!mount_is_ggufs(m))
        return err_set(e, -EINVAL, "is a mount of type %s, not of ggufs",
                       show_in(name, sizeof(name), m->type, strlen(m->type)));
    int r = daemon_unseen(m, " (fusermount3 -u unmounts, without waiting for it)", e);
    return r == -ESRCH && mount_life(m->at, MOUNT_ANSWER_MS) == MOUNT_DEAD ? 0 : r;
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
            return err_set(e, -EINVAL, "is not a ggufs mount: nothing is mounted there");
    } else if (mount_is_fuse(t->mount)) {
        t->daemon = daemons_of(&t->daemons, t->mount);
    }
    if (t->daemon && t->daemon->status.state == DAEMON_SILENT)
        return daemon_no_answer(t->daemon, e);
    return t->daemon ? 0 : without_daemon(t->mount, e);
}

/* ---- the steps of an unmount ---- */

/* If the wait is long, print a message, but only once. */
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

/* Ask the daemon to write pending edits before the unmount, so that an error can still be reported.
 * Returns -EPIPE if the daemon was killed. */
static int write_pending(struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    int r = daemon_ask(t->daemon, "sync", &said, say_writing, t, e);
    if (r == -ESHUTDOWN) { /* another process has unmounted it */
        *e = (struct err){0};
        return 0;
    }
    return r < 0 && r != -EPIPE && r != -ETIMEDOUT
               ? err_prefix(e, r, "an edit could not be written")
               : r;
}

/* Try for a while to unmount a busy mount, but stop if something other than ggufs turns out to be
 * using it. Returns 0 if the mount is gone. */
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
                       "is in use by the working directory of this command or by a process that "
                       "cannot be seen");
    return err_set(e, -EBUSY, "is in use: %s", (const char *)users.data);
}

/* Unmount. A dead mount is unmounted even if in use, because all calls on its files fail anyway. */
static int take_down(const struct target *t, struct err *e)
{
    int r = mount_take_down(t->mount->at, !t->daemon, e);
    if (r < 0 && !mount_is_there(t->mount->dev)) { /* another process has unmounted it */
        *e = (struct err){0};
        return 0;
    }
    if (r == -EBUSY)
        return busy(t, e);
    if (r == 0 && !t->daemon)
        log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", t->shown);
    return r;
}

/* Report the lines that the daemon sent, made safe to print: lost edits in `lost`, backups in the
 * log. */
static void tell(const char *shown, const struct daemon_status *s, struct buf *lost)
{
    char line[LINE_MAX_SHOWN];
    const struct buf *const lists[] = {&s->lost, &s->backups};
    for (int i = 0; i < 2; i++)
        for (const char *p = buf_text(lists[i]), *end = buf_text_end(lists[i]); p < end;) {
            const size_t n = strcspn(p, "\n"); /* the daemon's text ends in a newline */
            (void)show_in(line, sizeof(line), p, n);
            if (i == 0)
                buf_printf(lost, "%s: not saved: %s\n", shown, line);
            else
                log_line(LOG_NOTICE, "%s: backup: %s", shown, line);
            p += n + 1;
        }
}

/* Check whether a mount that was unmounted here is served only in another mount namespace. Returns
 * 0 to keep waiting, 1 after logging where it is still mounted read-only, or -EBUSY if files there
 * are open for writing. */
static int lives_on(struct target *t, struct err *e)
{
    CLEANUP(buf_free) struct buf where = BUF_INIT;
    const struct daemon *d = t->daemon;
    if (!t->gone.tv_sec)
        t->gone = when_now();
    if (!t->mount || !when_past(&t->gone, LINE_AFTER) || mount_is_there(t->mount->dev))
        return 0;
    struct users u = {.m = t->mount, .out = &where};
    (void)proc_each("/proc", try_namespace, &u);
    add_more(&u);
    const char *in = where.len ? "; in that namespace: " : "";
    buf_char(&where, '\0');
    const char *users = buf_error(&where) ? "" : buf_text(&where);
    if (!d->status.free)
        return err_set(e, -EBUSY,
                       "is unmounted, but files in it are open for writing in another mount "
                       "namespace, so its daemon (process %ld) keeps running%s%s",
                       d->pid, in, users);
    log_line(LOG_NOTICE,
             "%s: unmounted%s; it remains mounted read-only in another mount namespace, so its "
             "daemon (process %ld) keeps running%s%s",
             t->shown, d->status.lost.len ? "" : ", and all is written", d->pid, in, users);
    return 1;
}

/* Wait until the daemon has ended; if only its exit remains, wait up to EXIT_MS. Returns 0, 1 if it
 * continues to serve in another mount namespace, or -errno. */
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
    if (r == 0)
        (void)process_wait(d->pid, EXIT_MS);
    return r;
}

/* Wait until the daemon has ended, and report its outcome. */
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

/* Check for a bind mount of the file system, which keeps the daemon running. If one exists, logs a
 * line and returns true. */
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
