/* SPDX-License-Identifier: MIT */
/* Lists, asks and removes mounts: see unmount.h. */
#include "mount/unmount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/sys.h"
#include "model/shards.h"
#include "mount/log.h"
#include "mount/proc.h"
#include "text/json.h"
#include "text/name.h"

/* Attempts to unmount a mount in use, which programs that are just ending may hold, and the
 * milliseconds between them. */
#define BUSY_TRIES 10
#define BUSY_MS 50
/* Seconds to wait for a daemon to end, and milliseconds between looks. */
#define PATIENCE 10
#define LOOK_AGAIN 5
/* Attempts to undo while other programs are making edits. */
#define UNDO_TRIES 20
/* Maximum size of what a mount says. */
#define SAID_MAX ((size_t)1 << 20)

/* The attribute of a mount that says why it is read-only. */
#define READ_ONLY "user.gguf.readonly"

extern char **environ;

/* ---- one mount ---- */

/* Become the user that made a mount, whom alone its kernel lets in: only root can. */
static int become_owner(const struct mount *m, struct err *e)
{
    const long user = mount_user(m);
    const uid_t uid = (uid_t)user;
    const gid_t gid = (gid_t)mount_number(m->super, "group_id");
    if (user < 0 || uid == geteuid())
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

/* Remove a mount that is known to be dead. */
static int remove_dead(const struct mount *m, const char *shown, struct err *e)
{
    int r = mount_take_down(m->at, true, e);
    if (r < 0)
        return err_prefix(e, r, "%s: has a dead mount", shown);
    log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
    return 0;
}

int mount_remove_dead(const struct mount *m, const char *shown, struct err *e)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    return is_dead(add_attribute(m->at, READ_ONLY, &why)) ? remove_dead(m, shown, e) : 1;
}

static int run_fusermount(const char *at, bool lazy, struct err *e)
{
    char name[] = "fusermount3", now[] = "-u", later[] = "-uz", last[] = "--", said[256];
    char *const argv[] = {name, lazy ? later : now, last, (char *)(uintptr_t)at, NULL};
    int status = 0;
    pid_t pid;
    struct caught c = catch_begin();
    int r = -posix_spawnp(&pid, name, NULL, NULL, argv, environ);
    while (r == 0 && waitpid(pid, &status, 0) < 0)
        r = errno == EINTR ? 0 : -errno;
    catch_end(&c, said, sizeof(said));
    if (r < 0)
        return err_set(e, r, "cannot run fusermount3: %s", strerror(-r));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return err_set(e, strstr(said, strerror(EBUSY)) ? -EBUSY : -EPERM, "fusermount3 -u failed: %s",
                   said);
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
    json_text(j, "mode", mount_has(m->super, "ro") ? "ro" : "rw");
    json_text(j, "reason", reason);
    if (mount_user(m) < 0)
        json_text(j, "user", NULL);
    else
        buf_printf(json_item(j, "user"), "%ld", mount_user(m));
    json_text(j, "state", state);
    json_end(j);
}

/* Only the user's own mounts are asked: one of another user need not answer. */
static void add_mount(struct json *j, bool json, const struct mount *m)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    const bool own = mount_user(m) >= 0 && (uid_t)mount_user(m) == geteuid();
    const int r = own ? add_attribute(m->at, READ_ONLY, &why) : -EPERM;
    const bool reason = why.len > 0;
    buf_char(&why, '\0');
    if (json) {
        json_mount(j, m,
                   r == 0       ? "alive"
                   : is_dead(r) ? "dead"
                                : "unknown",
                   reason ? buf_text(&why) : NULL);
        return;
    }
    show_all(j->out, m->source, strlen(m->source));
    buf_str(j->out, " on ");
    show_all(j->out, m->at, strlen(m->at));
    buf_str(j->out, mount_has(m->super, "ro") ? ", read-only" : ", read-write");
    buf_str(j->out, reason ? " (" : "");
    show_all(j->out, why.data, why.len - 1);
    buf_str(j->out, reason ? ")" : "");
    if (!own)
        buf_printf(j->out, ", user %ld", mount_user(m));
    buf_str(j->out, is_dead(r) ? ", dead\n" : "\n");
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

/* Log each line of a text, and return the number of lines. */
static int log_lines(const char *shown, const char *kind, const struct buf *text)
{
    const char *end = buf_text_end(text), *stop;
    int n = 0;
    for (const char *p = buf_text(text); p < end; p = stop + 1, n++) {
        stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        log_line(LOG_WARNING, "%s: %s: %.*s", shown, kind, (int)(stop - p), p);
    }
    return n;
}

/* Write what is pending. Logs what is not in the file (the file `errors`; in a mount of a directory
 * of models, where that may be a model, the root's error), and what backup there is. Returns the
 * number of edits that are not in the file, or -errno. */
static int write_pending(const char *at, const char *shown)
{
    CLEANUP(buf_free) struct buf errors = BUF_INIT, backup = BUF_INIT;
    const int fd = open_dir(at);
    if (fd < 0)
        return fd;
    const int r = fsync(fd) < 0 ? -errno : 0;
    const int file = openat(fd, "errors", O_RDONLY | O_CLOEXEC);
    if (file < 0 || read_all(file, SAID_MAX, &errors) < 0)
        (void)add_attribute(at, "user.gguf.error", &errors);
    (void)add_attribute(at, "user.gguf.backup", &backup);
    (void)close(fd);
    const int n = log_lines(shown, "not saved", &errors);
    (void)log_lines(shown, "backup", &backup);
    return r < 0 ? r : n;
}

/* Wait until the daemon, which locks the directory below its mount point, has ended. */
static int wait_for_end(const char *path, struct err *e)
{
    const struct timespec begin = when_now();
    const int fd = open_dir(path);
    int r = 0;
    while (fd >= 0 && r == 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        if (when_past(&begin, PATIENCE))
            r = err_set(e, -EBUSY, "unmounted; still being written");
        when_sleep(LOOK_AGAIN);
    }
    if (fd >= 0)
        (void)close(fd);
    return r;
}

/* Return true, after saying so, if the file system is still mounted elsewhere, as by mount --bind:
 * its daemon lives on. */
static bool lives_on(const struct mount *m, const char *shown)
{
    CLEANUP(mounts_free) struct mounts ms;
    char there[SHOW_MAX];
    const struct mount *other =
        mounts_load(&ms) == 0 ? mounts_of(&ms, m->dev, NULL, m->source) : NULL;
    if (other)
        log_line(LOG_NOTICE, "%s: unmounted; still mounted on %s", shown,
                 show(there, other->at, strlen(other->at)));
    return other;
}

static int unmount(const struct mount *m, const char *shown, struct err *e)
{
    const int lost = write_pending(m->at, shown);
    if (is_dead(lost))
        return remove_dead(m, shown, e);
    if (lost < 0)
        return err_set(e, lost, "not unmounted: an edit could not be written: %s", strerror(-lost));
    int r = mount_take_down(m->at, false, e);
    for (int i = 0; i < BUSY_TRIES && r == -EBUSY; i++) {
        when_sleep(BUSY_MS);
        r = mount_take_down(m->at, false, e);
    }
    if (r == -EBUSY)
        return err_set(e, r, "is in use; to see by whom: fuser -vm %s", shown);
    if (r == 0 && !lives_on(m, shown))
        r = wait_for_end(m->at, e);
    return r < 0 ? r : lost > 0;
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
    else if ((r = become_owner(m, e)) == 0)
        r = unmount(m, shown, e);
    free(path);
    return r < 0 ? err_prefix(e, r, "%s", shown) : r;
}

/* ---- a model in a mount ---- */

static int undo_there(const char *at, const char *number, struct buf *said)
{
    const int fd = open_dir(at);
    int r = fd < 0 ? fd : -EBUSY;
    /* edits of other programs, which may go on, are written first */
    for (int i = 0; i < UNDO_TRIES && r == -EBUSY; i++) {
        r = fsync(fd) < 0 ? -errno : 0;
        if (r == 0 && fsetxattr(fd, "user.gguf.undo", number, strlen(number), 0) < 0)
            r = -errno;
    }
    if (r != -EACCES && r != -EROFS && fd >= 0) /* else the daemon was not asked */
        (void)add_attribute(at, "user.gguf.undo", said);
    if (fd >= 0)
        (void)close(fd);
    return r;
}

/* Append the directory in a mount that has the place of the model with this real path. With `cut`, a
 * split model's name there lacks the number of its first file. */
static void add_place(const struct mount *m, const char *real, bool cut, struct buf *out)
{
    char name[TREE_NAME_MAX + 1];
    buf_str(out, m->at);
    for (const char *p = real + strlen(m->source); *p;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        const bool shard = cut && !p[n] && split_count(p);
        (void)name_encode(p, shard ? n - SPLIT_TAIL : n, name);
        buf_printf(out, "/%s%s", name, shard ? ".gguf" : "");
        p += n;
    }
}

/* Return 0 if a directory in a mount shows the model with this real path, -ESTALE if it shows
 * another one, or another -errno. */
static int check_source(const struct buf *at, const char *real)
{
    struct stat shown, want;
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%.*s/source", (int)at->len, buf_text(at));
    int r = stat(path, &shown);
    if (r == 0 && S_ISDIR(shown.st_mode)) {
        (void)strncat(path, strrchr(real, '/'), sizeof(path) - strlen(path) - 1);
        r = stat(path, &shown);
    }
    if (r < 0 || stat(real, &want) < 0)
        return -errno;
    return shown.st_dev == want.st_dev && shown.st_ino == want.st_ino ? 0 : -ESTALE;
}

/* Append the directory in a mount that shows the model with this real path, or to `why` that there
 * is another model. A split model keeps its whole name if another model has the shorter one. */
static int add_shown(const struct mount *m, const char *real, struct buf *at, struct buf *why)
{
    const bool alone = strcmp(m->source, real) == 0;
    int r = -ENOENT;
    for (int cut = 0; cut < 2 && r == -ENOENT; cut++) {
        at->len = 0;
        add_place(m, real, cut, at);
        r = buf_error(at) || alone ? buf_error(at) : check_source(at, real);
    }
    if (r == -ESTALE)
        buf_printf(why, "%.*s is another model", (int)at->len, buf_text(at));
    return r;
}

/* Return the real path of a model or, if it is split, of its first shard. */
static char *real_model(const char *operand)
{
    struct shards s;
    char *first = shards_find(&s, operand) < 0 ? NULL : shards_path(&s, 0);
    char *real = first ? realpath(first, NULL) : NULL;
    shards_free(&s);
    free(first);
    return real;
}

/* Return the mount of ggufs that contains an operand, whose real path is `path`, or NULL. */
static const struct mount *ggufs_around(const struct mounts *ms, const char *path)
{
    const struct mount *m = path ? mounts_around(ms, path) : NULL;
    return m && mount_is_ggufs(m) ? m : NULL;
}

/* Find the mount that contains the operand, or that edits it. Appends the operand's path there, or to
 * `real` the path of the model, with a NUL. */
static const struct mount *find_mount(const struct mounts *ms, const char *operand, struct buf *at,
                                      struct buf *real)
{
    char *path = mounts_path(operand), *model = NULL;
    const struct mount *m = ggufs_around(ms, path);
    if (m)
        buf_str(at, path);
    else if ((model = real_model(operand)) && (m = mounts_editing(ms, model)))
        buf_add(real, model, strlen(model) + 1);
    free(model);
    free(path);
    return m;
}

int mnt_undo(const char *operand, const char *number, struct buf *said, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(buf_free) struct buf line = BUF_INIT, at = BUF_INIT, real = BUF_INIT;
    const uid_t user = geteuid();
    int r = mounts_load(&ms);
    const struct mount *m = r == 0 ? find_mount(&ms, operand, &at, &real) : NULL;
    if (r == 0)
        r = buf_error(&real);
    if (r < 0)
        return err_set(e, r, "cannot list mounts: %s", strerror(-r));
    if (!m)
        return 1;
    r = become_owner(m, e);
    if (r < 0)
        return r;
    if (real.len > 0)
        r = add_shown(m, buf_text(&real), &at, &line);
    buf_add(&at, "/metadata", sizeof("/metadata"));
    if (r == 0)
        r = buf_error(&at);
    if (r == 0)
        r = undo_there(buf_text(&at), number, &line);
    if (r == -ENOENT && line.len == 0 && geteuid() == user) /* the mount does not show the model */
        return 1;
    if (r < 0)
        return err_set(e, r, "%.*s", line.len ? (int)line.len : (int)strlen(strerror(-r)),
                       line.len ? buf_text(&line) : strerror(-r));
    buf_add(said, line.data, line.len);
    return buf_error(said);
}

/* Return the target of `source` in a model's directory, or of the first link in it. */
static char *source_of(const char *folder)
{
    char path[PATH_MAX], *target = NULL;
    (void)snprintf(path, sizeof(path), "%s/source", folder);
    DIR *d = opendir(path);
    if (!d)
        return realpath(path, NULL);
    for (const struct dirent *x; !target && (x = readdir(d));)
        if (x->d_type == DT_LNK) {
            (void)snprintf(path, sizeof(path), "%s/source/%s", folder, x->d_name);
            target = realpath(path, NULL);
        }
    (void)closedir(d);
    return target;
}

char *mnt_model(const char *operand)
{
    CLEANUP(mounts_free) struct mounts ms = {0};
    struct stat st;
    char *path = mounts_path(operand), *model = NULL;
    const struct mount *m = mounts_load(&ms) == 0 ? ggufs_around(&ms, path) : NULL;
    if (!m)
        model = strdup(operand);
    else if (strcmp(path, m->at) == 0 && stat(m->source, &st) == 0 && S_ISREG(st.st_mode))
        model = strdup(m->source);
    else
        model = source_of(path);
    free(path);
    return model;
}
