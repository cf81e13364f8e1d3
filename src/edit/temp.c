/* SPDX-License-Identifier: MIT */
/* A new file that takes the model's place: see temp.h, whose invariants are named here. */
#include "edit/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#include "base/buf.h"
#include "base/far.h"
#include "base/hash.h"

#define NAME_TRIES 100
/* How often the model's owner, mode, attributes or links may change while the new file gets them. */
#define DRESS_TRIES 100
#define ACL "system.posix_acl_access"

/* ---- attributes ---- */

/* Errors of the medium are passed on; any other is a refusal. */
static int refuse(struct err *e, int r, const char *what, const char *name)
{
    bool medium = r == -ENOSPC || r == -EDQUOT || r == -EIO || r == -ENOMEM;
    char shown[SHOW_MAX];
    return err_set(e, medium ? r : -EPERM, "the model's %s%s%s cannot be reproduced: %s", what,
                   *name ? " " : "", show(shown, name, strlen(name)), strerror(-r));
}

/* Read a whole attribute (name) or the list of names (NULL), which may grow between two calls. */
static int get_all(const struct sys *s, int fd, const char *name, struct buf *ret)
{
    for (;;) {
        ssize_t n = name ? s->fgetxattr(s, fd, name, NULL, 0) : s->flistxattr(s, fd, NULL, 0);
        if (n < 0)
            return (int)n;
        ret->len = 0;
        uint8_t *at = buf_extend(ret, (size_t)n + 1);
        if (!at)
            return -ENOMEM;
        n = name ? s->fgetxattr(s, fd, name, at, (size_t)n + 1)
                 : s->flistxattr(s, fd, (char *)at, (size_t)n + 1);
        if (n == -ERANGE)
            continue;
        ret->len = n < 0 ? 0 : (size_t)n;
        return n < 0 ? (int)n : 0;
    }
}

/* The names, one after another, each with its NUL. File systems without attributes have none. */
static int get_names(const struct sys *s, int fd, struct buf *ret)
{
    int r = get_all(s, fd, NULL, ret);
    return r == -EOPNOTSUPP || r == -ENOSYS ? 0 : r;
}

static const char *next_name(const struct buf *names, const char *name)
{
    const char *at = name ? name + strlen(name) + 1 : (const char *)names->data;
    return names->len && at < (const char *)names->data + names->len ? at : NULL;
}

static bool has_name(const struct buf *names, const char *name)
{
    const char *at = NULL;
    while ((at = next_name(names, at)))
        if (strcmp(at, name) == 0)
            return true;
    return false;
}

/*
 * Copy one attribute. If `to` already has it (a label that the system gives), no permission is
 * needed.
 */
static int copy_one(const struct sys *s, int from, int to, const char *name)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    CLEANUP(buf_free) struct buf have = BUF_INIT;
    int r = get_all(s, from, name, &want);
    if (r < 0)
        return r;
    if (get_all(s, to, name, &have) == 0 && have.len == want.len &&
        (want.len == 0 || memcmp(have.data, want.data, want.len) == 0))
        return 0;
    return s->fsetxattr(s, to, name, want.data, want.len);
}

static int copy_xattrs(const struct sys *s, int from, int to, struct err *e)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    CLEANUP(buf_free) struct buf have = BUF_INIT;
    int r = get_names(s, from, &want);
    if (r == 0)
        r = get_names(s, to, &have);
    if (r < 0)
        return refuse(e, r, "list of extended attributes", "");
    for (const char *name = NULL; (name = next_name(&have, name));)
        if (!has_name(&want, name) && (r = s->fremovexattr(s, to, name)) < 0)
            return refuse(e, r, "lack of the attribute", name);
    for (const char *name = NULL; (name = next_name(&want, name));)
        if ((r = copy_one(s, from, to, name)) < 0)
            return refuse(e, r, "extended attribute", name);
    return 0;
}

static bool no_acl(int r)
{
    return r == -ENODATA || r == -EOPNOTSUPP || r == -ENOSYS;
}

bool attr_no_acl(const struct sys *s, int fd)
{
    return no_acl((int)s->fgetxattr(s, fd, ACL, NULL, 0));
}

bool attr_drop_acl(const struct sys *s, int fd)
{
    int r = s->fremovexattr(s, fd, ACL);
    return r == 0 || no_acl(r);
}

int attr_check(const struct sys *s, int fd, struct err *e)
{
    CLEANUP(buf_free) struct buf names = BUF_INIT;
    CLEANUP(buf_free) struct buf value = BUF_INIT;
    int r = get_names(s, fd, &names);
    if (r < 0)
        return refuse(e, r, "list of extended attributes", "");
    for (const char *name = NULL; (name = next_name(&names, name));)
        if ((r = get_all(s, fd, name, &value)) < 0)
            return refuse(e, r, "extended attribute", name);
    return 0;
}

int attr_copy(const struct sys *s, int from, const struct stat *st, int to, struct err *e)
{
    struct stat now;
    int r = s->fstat(s, to, &now);
    if (r == 0 && (now.st_uid != st->st_uid || now.st_gid != st->st_gid))
        r = s->fchown(s, to, st->st_uid, st->st_gid);
    if (r < 0)
        return refuse(e, r, "owner and group", "");
    r = copy_xattrs(s, from, to, e);
    if (r < 0)
        return r;
    /* Last: a change of owner clears the set-id bits, and an ACL has its mask in the group bits. */
    r = s->fchmod(s, to, st->st_mode & 07777);
    return r < 0 ? refuse(e, r, "mode", "") : 0;
}

/* ---- the file ---- */

static void random_suffix(char dst[EDIT_TEMP_SUFFIX + 1])
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static atomic_uint count;
    unsigned n = atomic_fetch_add(&count, 1);
    uint64_t v = hash_name(&n, sizeof(n));
    for (int i = 0; i < EDIT_TEMP_SUFFIX; i++, v /= sizeof(digits) - 1)
        dst[i] = digits[v % (sizeof(digits) - 1)];
    dst[EDIT_TEMP_SUFFIX] = '\0';
}

int temp_create(const struct edit_file *f, struct temp *t, struct err *e)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, r = -EEXIST;
    char suffix[EDIT_TEMP_SUFFIX + 1];
    for (int i = 0; i < NAME_TRIES && r == -EEXIST; i++) {
        random_suffix(suffix);
        edit_side_name(t->name, f->name, suffix);
        r = f->sys->openat(f->sys, f->dir, t->name, flags, 0600);
    }
    if (r < 0)
        return err_set(e, r, "cannot create a file beside the model: %s", strerror(-r));
    t->fd = r;
    return 0;
}

int temp_dress(const struct edit_file *f, struct temp *t, struct err *e)
{
    int r = f->sys->flock(f->sys, t->fd, LOCK_EX | LOCK_NB);
    if (r < 0)
        return err_set(e, r, "cannot lock the new file: %s", strerror(-r));
    r = edit_file_stat(f, &t->model, e);
    return r < 0 ? r : attr_copy(f->sys, f->fd, &t->model, t->fd, e);
}

static bool same_rights(const struct stat *a, const struct stat *b)
{
    return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Times may be coarse: rights are compared too. */
static bool same_change(const struct stat *a, const struct stat *b)
{
    return a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec &&
           same_rights(a, b);
}

/* T5. What became of the model while the new file was written. */
static int dress_again(const struct edit_file *f, struct temp *t, struct err *e)
{
    for (int i = 0; i < DRESS_TRIES; i++) {
        struct stat now;
        int r = edit_file_stat(f, &now, e);
        if (r == 0)
            r = edit_file_links(&now, t->break_links, e);
        if (r < 0 || same_change(&now, &t->model))
            return r;
        t->model = now;
        r = attr_copy(f->sys, f->fd, &now, t->fd, e);
        if (r == 0)
            r = temp_sync(f, t, e);
        if (r < 0)
            return r;
    }
    return err_set(e, -EBUSY, "the model's owner, mode or attributes change again and again");
}

static bool no_exchange(int r)
{
    return r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP;
}

/*
 * With two files that have names also what only these can show: one takes the place of the other,
 * which is open, as the model is. With SMB that fails, and the other one is gone.
 */
static int probe_named(const struct edit_file *f, struct err *e)
{
    struct temp t = TEMP_INIT, other = TEMP_INIT;
    int r = temp_create(f, &other, e);
    if (r == 0)
        r = temp_create(f, &t, e);
    if (r == 0)
        r = temp_dress(f, &t, e);
    if (r == 0) {
        r = f->sys->rename(f->sys, f->dir, t.name, other.name, RENAME_EXCHANGE);
        if (no_exchange(r))
            r = f->sys->rename(f->sys, f->dir, t.name, other.name, 0);
        if (r < 0)
            (void)err_set(e, r, "cannot rename a file over an open one beside the model: %s",
                          strerror(-r));
    }
    temp_abandon(f, &t);
    temp_abandon(f, &other);
    return r;
}

int temp_unnamed(const struct edit_file *f, struct err *e)
{
    int flags = O_TMPFILE | O_RDWR | O_NOFOLLOW | O_CLOEXEC;
    struct temp t = TEMP_INIT;
    int fd = f->sys->openat(f->sys, f->dir, ".", flags, 0600);
    if (fd >= 0)
        return fd;
    int r = temp_create(f, &t, e);
    if (r < 0)
        return r;
    r = f->sys->unlinkat(f->sys, f->dir, t.name);
    if (r == 0)
        return t.fd;
    temp_abandon(f, &t);
    return err_set(e, r, "cannot remove a file beside the model: %s", strerror(-r));
}

int temp_probe(const struct edit_file *f, struct err *e)
{
    int flags = O_TMPFILE | O_RDWR | O_NOFOLLOW | O_CLOEXEC;
    struct temp t = {.fd = f->sys->openat(f->sys, f->dir, ".", flags, 0600)};
    if (t.fd < 0)
        return probe_named(f, e);
    int r = temp_dress(f, &t, e);
    sys_close(f->sys, &t.fd);
    return r == 0 && far_file(f->dir) ? probe_named(f, e) : r;
}

int temp_sync(const struct edit_file *f, struct temp *t, struct err *e)
{
    struct stat st;
    int r = sys_sync(f->sys, t->fd);
    if (r == 0)
        r = f->sys->fstat(f->sys, t->fd, &st);
    if (r < 0)
        return err_set(e, r, "cannot sync the new file: %s", strerror(-r));
    t->id = edit_id_of(&st);
    return 0;
}

/* T2, T5: what the exchange displaced must be the file that was opened, and as it was a moment ago. */
static int check_displaced(const struct edit_file *f, const struct temp *t, struct err *e)
{
    struct stat st;
    int r = f->sys->fstatat(f->sys, f->dir, t->name, &st);
    if (r < 0)
        return err_set(e, r, "cannot stat the old file: %s", strerror(-r));
    struct edit_id id = edit_id_of(&st);
    if (!edit_id_equal(&id, &f->id))
        return err_set(e, -ESTALE, "the model changed behind the mount, just now");
    if (!same_rights(&st, &t->model))
        return err_set(e, -EBUSY, "the model's owner or mode changed, just now");
    return edit_file_links(&st, t->break_links, e);
}

static int sync_folder(const struct edit_file *f, struct err *e)
{
    int r = sys_sync_dir(f->sys, f->dir);
    return r < 0 ? err_set(e, r, "cannot sync the model's directory: %s", strerror(-r)) : 0;
}

/* The new file is the model now: f takes its descriptor. */
static void adopt(struct edit_file *f, struct temp *t, const struct edit_id *id, int *old)
{
    *old = f->fd;
    f->fd = t->fd;
    f->id = *id;
    *t = TEMP_INIT;
}

/* The path names the new file for good, although the edit failed: f keeps the one it has. */
static void let_go(const struct edit_file *f, struct temp *t)
{
    sys_close(f->sys, &t->fd);
    *t = TEMP_INIT;
}

/* True if `name` names the file that has this id. */
static bool names(const struct edit_file *f, const char *name, const struct edit_id *id)
{
    struct stat st;
    return f->sys->fstatat(f->sys, f->dir, name, &st) == 0 && st.st_dev == id->dev &&
           st.st_ino == id->ino;
}

/*
 * T3. Undo the exchange. What comes out of the model's place then must be the new file: another one was
 * put there meanwhile, and goes back. If the exchange fails, what was displaced is renamed over the
 * new file, which is not needed any more: a recovery would remove a file that has the name of a temp.
 * What cannot be undone stays.
 */
static void take_back(const struct edit_file *f, struct temp *t)
{
    int r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    if (r == 0 && !names(f, t->name, &t->id))
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    else if (r < 0 && names(f, f->name, &t->id))
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, 0);
    if (r == 0)
        (void)sys_sync_dir(f->sys, f->dir);
    else
        let_go(f, t);
}

static int exchanged(struct edit_file *f, struct temp *t, const struct edit_id *id, int *old,
                     struct err *e)
{
    int r = check_displaced(f, t, e);
    if (r == 0)
        r = sync_folder(f, e);
    if (r < 0) {
        take_back(f, t);
        return r;
    }
    /* The edit is done. An old file whose name stays is swept by the next recovery (T4). */
    if (f->sys->unlinkat(f->sys, f->dir, t->name) < 0)
        (void)f->sys->unlinkat(f->sys, f->dir, t->name);
    adopt(f, t, id, old);
    return 0;
}

static int plain(struct edit_file *f, struct temp *t, const struct edit_id *id, int *old,
                 struct err *e)
{
    struct stat st;
    int r = f->sys->rename(f->sys, f->dir, t->name, f->name, 0);
    if (r < 0) {
        (void)err_set(e, r, "cannot rename the new file over the model: %s", strerror(-r));
        if (f->sys->fstatat(f->sys, f->dir, f->name, &st) == -ENOENT) {
            (void)err_set(e, r, "the model is gone, the new file is %s: cannot rename it: %s",
                          t->name, strerror(-r));
            let_go(f, t);
        }
        return r;
    }
    r = sync_folder(f, e);
    if (r < 0)
        let_go(f, t);
    else
        adopt(f, t, id, old);
    return r;
}

int temp_publish(struct edit_file *f, struct temp *t, int *old, struct err *e)
{
    *old = -1;
    int r = dress_again(f, t, e);
    if (r == 0)
        r = edit_file_fresh(f, e);
    if (r < 0)
        return r;
    r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    if (r == 0)
        return exchanged(f, t, &t->id, old, e);
    if (no_exchange(r))
        return plain(f, t, &t->id, old, e);
    return err_set(e, r, "cannot put the new file in the model's place: %s", strerror(-r));
}

int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e)
{
    char shown[SHOW_MAX];
    int r = f->sys->rename(f->sys, f->dir, t->name, name, 0);
    if (r < 0)
        return err_set(e, r, "cannot rename a file to %s: %s", show(shown, name, strlen(name)),
                       strerror(-r));
    let_go(f, t);
    return sync_folder(f, e);
}

/* A store that keeps open files for itself may bring the name back when the file is closed. */
void temp_abandon(const struct edit_file *f, struct temp *t)
{
    struct stat st;
    if (t->fd < 0)
        return;
    int r = f->sys->unlinkat(f->sys, f->dir, t->name);
    sys_close(f->sys, &t->fd);
    if (r < 0 || f->sys->fstatat(f->sys, f->dir, t->name, &st) == 0)
        (void)f->sys->unlinkat(f->sys, f->dir, t->name);
    *t = TEMP_INIT;
}
