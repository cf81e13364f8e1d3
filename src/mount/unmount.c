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
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <syslog.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/sys.h"
#include "model/snapshot.h"
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

extern char **environ;

/* ---- a question to a mount ---- */

/* What a mount is asked: `fn` opens or changes what is at `at`, and appends what it learns. Returns
 * 0 or -errno. */
struct question {
    int (*fn)(const char *at, uint64_t number, struct buf *said);
    uint64_t number;
};

static _Noreturn void ask_in_child(const struct mount *m, const char *at, const struct question *q,
                                   int out)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    const uid_t user = (uid_t)mount_user(m);
    const gid_t group = (gid_t)mount_number(m->super, "group_id");
    int r = setgroups(0, NULL) < 0 || setresgid(group, group, group) < 0 ||
                    setresuid(user, user, user) < 0
                ? -errno
                : q->fn(at, q->number, &said);
    (void)!write(out, &r, sizeof(r));
    for (size_t done = 0; done < said.len;) {
        const ssize_t n = write(out, said.data + done, said.len - done);
        if (n < 0)
            break;
        done += (size_t)n;
    }
    _exit(0);
}

static int ask_as_owner(const struct mount *m, const char *at, const struct question *q,
                        struct buf *said)
{
    CLEANUP(buf_free) struct buf all = BUF_INIT;
    int ends[2], r = -EIO;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    const pid_t pid = fork();
    if (pid == 0)
        ask_in_child(m, at, q, ends[1]);
    (void)close(ends[1]);
    if (pid < 0) {
        (void)close(ends[0]);
        return -EAGAIN;
    }
    if (read_all(ends[0], SAID_MAX, &all) == 0 && all.len >= sizeof(r)) {
        memcpy(&r, all.data, sizeof(r));
        buf_add(said, all.data + sizeof(r), all.len - sizeof(r));
    }
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

/* Ask a mount, or something in it, as the user that made the mount. Returns the answer, or -EPERM if
 * that is another user. */
static int ask(const struct mount *m, const char *at, const struct question *q, struct buf *said)
{
    const long user = mount_user(m);
    if (user < 0 || (uid_t)user == geteuid())
        return q->fn(at, q->number, said);
    return geteuid() == 0 ? ask_as_owner(m, at, q, said) : -EPERM;
}

static int not_ours(const struct mount *m, struct err *e)
{
    return err_set(e, -EPERM, "it is a mount of user %ld: only that user and root can do that",
                   mount_user(m));
}

/* Append the text of an attribute. */
static void add_attribute(int fd, const char *name, struct buf *out)
{
    char text[65536]; /* an attribute is no longer */
    const ssize_t n = fgetxattr(fd, name, text, sizeof(text));
    buf_add(out, text, n > 0 ? (size_t)n : 0);
}

/* ---- one mount ---- */

static int is_alive(const char *at, uint64_t number, struct buf *said)
{
    struct statfs fs;
    (void)number;
    (void)said;
    return statfs(at, &fs) < 0 ? -errno : 0;
}

bool mount_is_dead(const struct mount *m)
{
    CLEANUP(buf_free) struct buf said = BUF_INIT;
    const int r = ask(m, m->at, &(struct question){.fn = is_alive}, &said);
    return r == -ENOTCONN || r == -ECONNABORTED;
}

int mount_remove_dead(const struct mount *m, const char *shown, struct err *e)
{
    int r = mount_take_down(m->at, true, e);
    if (r < 0)
        return err_prefix(e, r, "%s: has a dead mount", shown);
    log_line(LOG_NOTICE, "%s: a dead mount was removed (its daemon had been killed)", shown);
    return 0;
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

static int why_read_only(const char *at, uint64_t number, struct buf *said)
{
    char text[4096];
    (void)number;
    const ssize_t n = getxattr(at, "user.gguf.readonly", text, sizeof(text));
    if (n < 0 && errno != ENODATA)
        return -errno;
    buf_add(said, text, n > 0 ? (size_t)n : 0);
    buf_char(said, '\0');
    return buf_error(said);
}

static void add_mount(struct json *j, const struct mount *m)
{
    CLEANUP(buf_free) struct buf why = BUF_INIT;
    const long user = mount_user(m);
    const bool ro = mount_has(m->super, "ro"), own = user >= 0 && (uid_t)user == geteuid();
    const int r = own ? why_read_only(m->at, 0, &why) : -EPERM;
    const char *state = r == 0 ? "alive" : r == -ENOTCONN ? "dead" : "unknown";
    const char *reason = r == 0 && why.len > 1 ? buf_text(&why) : NULL;
    if (j->depth) {
        json_begin(j, NULL, "{");
        json_text(j, "mountpoint", m->at);
        json_text(j, "model", m->source);
        json_text(j, "mode", ro ? "ro" : "rw");
        json_text(j, "reason", reason);
        if (user >= 0)
            buf_printf(json_item(j, "user"), "%ld", user);
        else
            json_text(j, "user", NULL);
        json_text(j, "state", state);
        json_end(j);
        return;
    }
    show_all(j->out, m->source, strlen(m->source));
    buf_str(j->out, " on ");
    show_all(j->out, m->at, strlen(m->at));
    buf_str(j->out, ro ? ", read-only" : ", read-write");
    if (reason) {
        buf_str(j->out, " (");
        show_all(j->out, reason, strlen(reason));
        buf_char(j->out, ')');
    }
    if (!own)
        buf_printf(j->out, ", user %ld", user);
    buf_str(j->out, r == -ENOTCONN ? ", dead\n" : "\n");
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
            add_mount(&j, &ms.mount[i]);
    if (json) {
        json_end(&j);
        buf_char(out, '\n');
    }
    if (r == 0)
        r = buf_error(out);
    return r < 0 ? err_set(e, r, "cannot list mounts: %s", strerror(-r)) : 0;
}

/* ---- --unmount ---- */

/* Write each line of a text as a line that begins with `kind`. */
static void add_lines(struct buf *out, const char *kind, const struct buf *text)
{
    const char *end = buf_text_end(text), *stop;
    for (const char *p = buf_text(text); p < end; p = stop + 1) {
        stop = memchr(p, '\n', (size_t)(end - p));
        stop = stop ? stop : end;
        buf_str(out, kind);
        show_all(out, p, (size_t)(stop - p));
        buf_char(out, '\n');
    }
}

/* Write what is pending. Says what is not in the file (the file `errors`; in a mount of a directory
 * of models, the root's error), and what backup there is. */
static int write_pending(const char *at, uint64_t number, struct buf *said)
{
    CLEANUP(buf_free) struct buf errors = BUF_INIT, backup = BUF_INIT;
    (void)number;
    const int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    const int r = fsync(fd) < 0 ? -errno : 0;
    const int file = openat(fd, "errors", O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        (void)read_all(file, SAID_MAX / 2, &errors);
    else
        add_attribute(fd, "user.gguf.error", &errors);
    add_attribute(fd, "user.gguf.backup", &backup);
    add_lines(said, "not saved: ", &errors);
    add_lines(said, "backup: ", &backup);
    (void)close(fd);
    return r;
}

/* Wait until the daemon, which locks the directory below its mount point, has ended. */
static int wait_for_end(const char *path, struct err *e)
{
    const struct timespec begin = when_now();
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
static bool lives_on(const struct mount *m, struct buf *said)
{
    CLEANUP(mounts_free) struct mounts ms;
    if (mounts_load(&ms) < 0)
        return false;
    for (size_t i = 0; i < ms.n; i++)
        if (mount_is_of(&ms.mount[i], m->dev, NULL, m->source)) {
            buf_str(said, "unmounted; still mounted on ");
            show_all(said, ms.mount[i].at, strlen(ms.mount[i].at));
            buf_char(said, '\n');
            return true;
        }
    return false;
}

static int unmount(const struct mount *m, const char *shown, struct buf *said, struct err *e)
{
    int r = ask(m, m->at, &(struct question){.fn = write_pending}, said);
    if (r == -ENOTCONN || r == -ECONNABORTED)
        return mount_remove_dead(m, shown, e);
    if (r == -EPERM)
        return not_ours(m, e);
    if (r < 0)
        return err_set(e, r, "not unmounted: an edit could not be written: %s", strerror(-r));
    r = mount_take_down(m->at, false, e);
    for (int i = 0; i < BUSY_TRIES && r == -EBUSY; i++) {
        when_sleep(BUSY_MS);
        r = mount_take_down(m->at, false, e);
    }
    if (r == -EBUSY)
        return err_set(e, r, "is in use; to see by whom: fuser -vm %s", shown);
    return r < 0 || lives_on(m, said) ? r : wait_for_end(m->at, e);
}

int mnt_unmount(const char *mountpoint, struct buf *said, struct err *e)
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
    else
        r = unmount(m, shown, said, e);
    free(path);
    if (r < 0)
        return err_prefix(e, r, "%s", shown);
    return said->len && memmem(said->data, said->len, "not saved: ", 11) ? 1 : 0;
}

/* ---- a model in a mount ---- */

static int undo_there(const char *at, uint64_t number, struct buf *said)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    const int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 ? -errno : -EBUSY;
    /* edits of other programs, which may go on, are written first */
    for (int i = 0; i < UNDO_TRIES && r == -EBUSY; i++) {
        r = fsync(fd) < 0 ? -errno : 0;
        if (r == 0 && fsetxattr(fd, "user.gguf.undo", text, strlen(text), 0) < 0)
            r = -errno;
    }
    if (r != -EACCES && r != -EROFS && fd >= 0) /* else the daemon was not asked */
        add_attribute(fd, "user.gguf.undo", said);
    if (fd >= 0)
        (void)close(fd);
    return r;
}

/* Length of "-00001-of-00001.gguf", which the name of a split model lacks in a mount. */
#define SHARD_TAIL 20

/* Append the directory in a mount that shows the model with this real path. In a mount of a
 * directory it has the model's place there. Returns false if the mount cannot show it. */
static bool add_place(const struct mount *m, const char *real, struct buf *out)
{
    char name[TREE_NAME_MAX + 1];
    if (strcmp(m->source, real) != 0 && !path_below(real, m->source))
        return false;
    buf_str(out, m->at);
    for (const char *p = real + strlen(m->source); *p;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        const bool shard = !p[n] && n > SHARD_TAIL && strncmp(p + n - 14, "-of-", 4) == 0;
        (void)name_encode(p, shard ? n - SHARD_TAIL : n, name);
        buf_printf(out, "/%s%s", name, shard ? ".gguf" : "");
        p += n;
    }
    return true;
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

/* Find the mount that contains the operand, or that edits it. Appends the model's directory there. */
static const struct mount *find_place(const struct mounts *ms, const char *operand, struct buf *at)
{
    char *path = mounts_path(operand);
    const struct mount *m = path ? mounts_around(ms, path) : NULL;
    if (m && mount_is_ggufs(m)) {
        buf_str(at, path);
        free(path);
        return m;
    }
    free(path);
    char *real = real_model(operand);
    m = NULL;
    for (size_t i = real ? ms->n : 0; i-- > 0 && !m;)
        if (mount_is_ggufs(&ms->mount[i]) && mount_has(ms->mount[i].super, "rw") &&
            add_place(&ms->mount[i], real, at))
            m = &ms->mount[i];
    free(real);
    return m;
}

int mnt_undo(const char *operand, uint64_t number, struct buf *said, struct err *e)
{
    CLEANUP(mounts_free) struct mounts ms;
    CLEANUP(buf_free) struct buf line = BUF_INIT, at = BUF_INIT;
    int r = mounts_load(&ms);
    const struct mount *m = r == 0 ? find_place(&ms, operand, &at) : NULL;
    buf_add(&at, "/metadata", sizeof("/metadata"));
    if (r == 0)
        r = buf_error(&at);
    if (r < 0)
        return err_set(e, r, "cannot list mounts: %s", strerror(-r));
    if (!m)
        return 1;
    r = ask(m, buf_text(&at), &(struct question){.fn = undo_there, .number = number}, &line);
    if (r == -EPERM)
        return not_ours(m, e);
    if (r == -ENOENT && line.len == 0) /* the mount does not show the model there */
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
    const struct mount *m = path && mounts_load(&ms) == 0 ? mounts_around(&ms, path) : NULL;
    if (!m || !mount_is_ggufs(m))
        model = strdup(operand);
    else if (strcmp(path, m->at) == 0 && stat(m->source, &st) == 0 && S_ISREG(st.st_mode))
        model = strdup(m->source);
    else
        model = source_of(path);
    free(path);
    return model;
}
