/* SPDX-License-Identifier: MIT */
/* Lists, asks and removes mounts: see unmount.h. */
#include "mount/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/sys.h"
#include "mount/log.h"
#include "mount/proc.h"
#include "text/json.h"

/* Attempts to unmount a mount in use, which programs that are just ending may hold, and the
 * milliseconds between them. */
#define BUSY_TRIES 10
#define BUSY_MS 50
/* Seconds to wait for a daemon to end, and milliseconds between looks. */
#define PATIENCE 10
#define LOOK_AGAIN 5

/* The attribute of a mount that says why it is read-only, and that of metadata/ that restores the keys. */
#define READ_ONLY "user.gguf.readonly"
#define UNDO "user.gguf.undo"

extern char **environ;

/* ---- one mount ---- */

static bool is_own(const struct mount *m)
{
    return (uid_t)mount_user(m) == geteuid();
}

/* Become the user that made a mount, whom alone its kernel lets in: only root can. */
static int become_owner(const struct mount *m, struct err *e)
{
    const long user = mount_user(m);
    const uid_t uid = (uid_t)user;
    const gid_t gid = (gid_t)mount_number(m->super, "group_id");
    if (is_own(m))
        return 0;
    if (setgroups(0, NULL) == 0 && setresgid(gid, gid, gid) == 0 && setresuid(uid, uid, uid) == 0)
        return 0;
    return err_set(e, -EPERM, "it is a mount of user %ld: only that user and root can do that",
                   user);
}

static bool is_dead(int r)
{
    return r == -ENOTCONN || r == -ECONNABORTED;
}

static int open_dir(const char *at)
{
    const int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Append the text of an attribute, if there is one. Returns 0 or -errno. */
static int add_attribute(const char *at, const char *name, struct buf *out)
{
    char text[65536]; /* an attribute is no longer */
    const ssize_t n = getxattr(at, name, text, sizeof(text));
    buf_add(out, text, n > 0 ? (size_t)n : 0);
    return n < 0 && errno != ENODATA ? -errno : 0;
}

int mount_remove_dead(const struct mount *m, const char *shown, struct err *e)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    if (!is_dead(add_attribute(m->at, READ_ONLY, &why)))
        return 1;
    const int r = mount_take_down(m->at, true, e);
    if (r < 0)
        return err_prefix(e, r, "%s: has a dead mount", shown);
    log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
    return 0;
}

/* Unmount as an ordinary user. That it is in use is the only reason why that fails. */
static int run_fusermount(const char *at, bool lazy, struct err *e)
{
    char name[] = "fusermount3", now[] = "-uq", later[] = "-uqz", last[] = "--";
    char *const argv[] = {name, lazy ? later : now, last, (char *)(uintptr_t)at, NULL};
    int status = 0;
    pid_t pid;
    int r = -posix_spawnp(&pid, name, NULL, NULL, argv, environ);
    while (r == 0 && waitpid(pid, &status, 0) < 0)
        r = errno == EINTR ? 0 : -errno;
    if (r < 0)
        return err_set(e, r, "cannot run fusermount3: %s", strerror(-r));
    return status == 0 ? 0 : err_set(e, -EBUSY, "cannot unmount: %s", strerror(EBUSY));
}

int mount_take_down(const char *at, bool lazy, struct err *e)
{
    if (umount2(at, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno == EPERM)
        return run_fusermount(at, lazy, e);
    return err_set(e, -errno, "cannot unmount: %s", strerror(errno));
}

/* ---- --list ---- */

static void json_mount(struct json *j, const struct mount *m, const char *state, const char *reason)
{
    json_begin(j, NULL, "{");
    json_text(j, "mountpoint", m->at);
    json_text(j, "model", m->source);
    json_text(j, "mode", mount_option(m->super, "ro") ? "ro" : "rw");
    json_text(j, "reason", *reason ? reason : NULL);
    buf_printf(json_item(j, "user"), "%ld", mount_user(m));
    json_text(j, "state", state);
    json_end(j);
}

static void mount_line(struct buf *out, const struct mount *m, bool dead, const char *reason)
{
    show_all(out, m->source, strlen(m->source));
    buf_str(out, " on ");
    show_all(out, m->at, strlen(m->at));
    buf_str(out, mount_option(m->super, "ro") ? ", read-only" : ", read-write");
    if (*reason) {
        buf_str(out, " (");
        show_all(out, reason, strlen(reason));
        buf_char(out, ')');
    }
    if (!is_own(m))
        buf_printf(out, ", user %ld", mount_user(m));
    buf_str(out, dead ? ", dead\n" : "\n");
}

/* Only the user's own mounts are asked: one of another user need not answer. */
static void add_mount(struct json *j, bool json, const struct mount *m)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    const int r = is_own(m) ? add_attribute(m->at, READ_ONLY, &why) : -EPERM;
    buf_char(&why, '\0');
    if (json)
        json_mount(j, m, r == 0 ? "alive" : is_dead(r) ? "dead" : "unknown", buf_text(&why));
    else
        mount_line(j->out, m, is_dead(r), buf_text(&why));
}

int mnt_list(bool json, struct buf *out, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    struct json j = {.out = out};
    int r = mounts_load(&ms);
    if (json)
        json_begin(&j, NULL, "[\n");
    for (size_t i = 0; i < ms.n && r == 0; i++)
        if (mount_is_ggufs(&ms.mount[i]))
            add_mount(&j, json, &ms.mount[i]);
    if (json) {
        json_end(&j);
        buf_char(out, '\n');
    }
    if (r == 0)
        r = buf_error(out);
    return r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r)) : 0;
}

/* ---- --unmount ---- */

/* Log each line of an attribute of the mount's root. */
static void log_attribute(const char *at, const char *name, const char *kind, const char *shown)
{
    CLEANUP(buf_free) struct buf text = BUF_INIT;
    (void)add_attribute(at, name, &text);
    buf_char(&text, '\0');
    char *rest = buf_error(&text) ? NULL : (char *)text.data;
    for (const char *line; (line = strsep(&rest, "\n"));)
        if (*line)
            log_line(LOG_WARNING, "%s: %s: %s", shown, kind, line);
}

/* Write what is pending. Logs what is not in the file, and what backup there is. */
static int write_pending(const char *at, const char *shown)
{
    const int fd = open_dir(at);
    if (fd < 0)
        return fd;
    const int r = fsync(fd) < 0 ? -errno : 0;
    (void)close(fd);
    log_attribute(at, "user.gguf.error", "not saved", shown);
    log_attribute(at, "user.gguf.backup", "backup", shown);
    return r;
}

/* Wait until the daemon, which locks the directory below its mount point, has ended. */
static int wait_for_end(const char *path, struct err *e)
{
    const struct timespec begin = when_now();
    const int fd = open_dir(path);
    int r = 0;
    while (fd >= 0 && r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        if (when_past(&begin, PATIENCE))
            r = err_set(e, -EBUSY, "unmounted; still being written, or mounted elsewhere");
        when_sleep(LOOK_AGAIN);
    }
    if (fd >= 0)
        (void)close(fd);
    return r;
}

static int unmount_live(const struct mount *m, const char *shown, struct err *e)
{
    int r = write_pending(m->at, shown);
    if (r < 0)
        return err_set(e, r, "not unmounted: an edit could not be written: %s", strerror(-r));
    for (int i = 0; (r = mount_take_down(m->at, false, e)) == -EBUSY && i < BUSY_TRIES; i++)
        when_sleep(BUSY_MS);
    if (r == -EBUSY)
        return err_set(e, r, "is in use; to see by whom: fuser -vm %s", shown);
    return r < 0 ? r : wait_for_end(m->at, e);
}

int mnt_unmount(const char *mountpoint, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    char shown[SHOW_MAX], type[SHOW_MAX];
    (void)show(shown, mountpoint, strlen(mountpoint));
    char *path = mounts_path(mountpoint);
    int r = path ? mounts_load(&ms) : -errno;
    const struct mount *m = r == 0 ? mounts_at(&ms, path) : NULL;
    if (r < 0)
        r = err_set(e, r, "%s", strerror(-r));
    else if (!m)
        r = err_set(e, -EINVAL, "is not a ggufs mount: nothing is mounted there");
    else if (!mount_is_ggufs(m))
        r = err_set(e, -EINVAL, "is a mount of type %s, not of ggufs",
                    show(type, m->type, strlen(m->type)));
    else if ((r = become_owner(m, e)) == 0 && (r = mount_remove_dead(m, shown, e)) == 1)
        r = unmount_live(m, shown, e);
    free(path);
    return r < 0 ? err_prefix(e, r, "%s", shown) : r;
}

/* ---- a model in a mount ---- */

static int undo_at(const char *at, const char *number, struct buf *said, struct err *e)
{
    CLEANUP(buf_free) struct buf line = BUF_INIT, metadata = BUF_INIT;
    buf_str(&metadata, at);
    buf_add(&metadata, "/metadata", sizeof("/metadata"));
    if (buf_error(&metadata))
        return err_set(e, -ENOMEM, "no memory");
    const char *keys = buf_text(&metadata);
    const int r = setxattr(keys, UNDO, number, strlen(number), 0) < 0 ? -errno : 0;
    if (r != -EACCES && r != -EROFS) /* else the daemon was not asked */
        (void)add_attribute(keys, UNDO, &line);
    if (r < 0)
        return err_set(e, r, "%.*s", line.len ? (int)line.len : (int)strlen(strerror(-r)),
                       line.len ? buf_text(&line) : strerror(-r));
    buf_add(said, line.data, line.len);
    return buf_error(said);
}

int mnt_undo(const char *operand, const char *number, struct buf *said, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    char *path = mounts_path(operand);
    int r = mounts_load(&ms);
    const struct mount *m = r == 0 ? mounts_around(&ms, path) : NULL;
    if (r < 0)
        r = err_set(e, r, "cannot list mounts: %s", strerror(-r));
    else if (!m)
        r = 1;
    else if ((r = become_owner(m, e)) == 0)
        r = undo_at(path, number, said, e);
    free(path);
    return r;
}

char *mnt_model(const char *operand)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(buf_free) struct buf model = BUF_INIT;
    char *path = mounts_path(operand);
    const int r = mounts_load(&ms) == 0 && mounts_around(&ms, path)
                      ? add_attribute(path, "user.gguf.source", &model)
                      : 0;
    if (!model.len)
        buf_str(&model, operand);
    buf_char(&model, '\0');
    free(path);
    errno = r < 0 ? -r : ENOMEM;
    return r < 0 || buf_error(&model) ? NULL : (char *)buf_steal(&model);
}
