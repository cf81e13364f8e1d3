/* SPDX-License-Identifier: MIT */
/* A new file that replaces the model: see temp.h, whose invariants are cited here. */
#include "edit/temp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/map.h"
#include "base/hash.h"

#define NAME_TRIES 100
/* How many times the model's owner, mode, attributes or links may change while being copied. */
#define DRESS_TRIES 100
#define ACL "system.posix_acl_access"

/* ---- attributes ---- */

/* Returns errors of the medium as they are and any other error as -EPERM. */
static int refuse(struct err *e, int r, const char *what, const char *name)
{
    bool medium = r == -ENOSPC || r == -EDQUOT || r == -EIO || r == -ENOMEM;
    char shown[SHOW_MAX];
    return err_set(e, medium ? r : -EPERM, "the model's %s%s%s cannot be reproduced: %s", what,
                   *name ? " " : "", show(shown, name, strlen(name)), strerror(-r));
}

/*
 * Reads a whole attribute or, if name is NULL, the list of names. Either may grow between two
 * calls.
 */
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

/* Reads the names, each with its NUL. A file system without attributes has no names. */
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
 * Copies an attribute, or only reads it if to < 0. One that `to` already has (such as a label set
 * by the system) needs no permission.
 */
static int copy_one(const struct sys *s, int from, int to, const char *name)
{
    CLEANUP(buf_free) struct buf want = BUF_INIT;
    CLEANUP(buf_free) struct buf have = BUF_INIT;
    int r = get_all(s, from, name, &want);
    if (r < 0 || to < 0)
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
    if (r == 0 && to >= 0)
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
    return copy_xattrs(s, fd, -1, e);
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
    /*
     * The mode comes last, because a change of owner clears the set-id bits, and an ACL keeps its
     * mask in the group bits.
     */
    r = s->fchmod(s, to, st->st_mode & 07777);
    return r < 0 ? refuse(e, r, "mode", "") : 0;
}

/* ---- content ---- */

/*
 * Cloning takes whole blocks, but tensors begin anywhere. Where bytes move by whole blocks, the
 * complete blocks are cloned, and the incomplete ones at both ends are copied. Zeros, and holes in
 * the bytes copied, become holes in the new file.
 */

#define CHUNK ((size_t)16 << 20)  /* bytes between two reports of progress */
#define PIECE ((size_t)256 << 10) /* bytes per read if the kernel does not copy by itself */

struct move {
    const struct sys *sys;
    const struct edit_hooks *hooks; /* may be NULL */
    int to;
    uint64_t block;       /* block size for cloning; 0: do not clone */
    uint64_t done, total; /* bytes of data, including holes */
};

static void advance(struct move *m, uint64_t n)
{
    m->done += n;
    if (m->hooks && m->hooks->progress)
        m->hooks->progress(m->done, m->total, m->hooks->arg);
}

/* Copying. */

static int copy_piecewise(struct move *m, int from, uint64_t src, uint64_t at, size_t n)
{
    size_t room = (size_t)min_u64(n, PIECE);
    uint8_t *piece = malloc(room);
    int r = piece ? 0 : -ENOMEM;
    while (r == 0 && n > 0) {
        size_t part = (size_t)min_u64(n, room);
        r = sys_read_all(m->sys, from, piece, part, src);
        if (r == 0)
            r = sys_write_all(m->sys, m->to, piece, part, at);
        src += part;
        at += part;
        n -= part;
    }
    free(piece);
    return r;
}

static int copy_bytes(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    while (n > 0) {
        const size_t part = (size_t)min_u64(n, CHUNK);
        ssize_t got = m->sys->copy_range(m->sys, from, src, m->to, at, part);
        if (got == -EINTR)
            continue;
        /*
         * The kernel does not copy between these files; these errors do not come from the medium.
         */
        if (got == 0 || got == -EXDEV || got == -ENOSYS || got == -EOPNOTSUPP || got == -EINVAL ||
            got == -EPERM) {
            const int r = copy_piecewise(m, from, src, at, part);
            got = r < 0 ? r : (ssize_t)part;
        }
        if (got < 0)
            return (int)got;
        advance(m, (uint64_t)got);
        src += (uint64_t)got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/*
 * Finds the next data [lo, hi) between src and end. If holes cannot be found, everything is data.
 */
static int find_data(const struct move *m, int from, uint64_t src, uint64_t end, uint64_t *lo,
                     uint64_t *hi)
{
    *lo = src;
    *hi = end;
    int r = m->sys->seek(m->sys, from, src, SEEK_DATA, lo);
    if (r == -ENXIO) /* only a hole remains before the end of the file */
        *lo = end;
    if (r == 0 && *lo < end)
        r = m->sys->seek(m->sys, from, *lo, SEEK_HOLE, hi);
    *lo = min_u64(*lo, end);
    *hi = min_u64(*hi, end);
    return r == -ENXIO || r == -EINVAL || r == -EOPNOTSUPP ? 0 : r;
}

/* Copies a range of a file, leaving holes in the new file where the old one has them. */
static int copy_sparse(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    uint64_t end = src + n, lo, hi;
    while (src < end) {
        int r = find_data(m, from, src, end, &lo, &hi);
        if (r < 0)
            return r;
        advance(m, lo - src);
        r = copy_bytes(m, from, lo, at + (lo - src), hi - lo);
        if (r < 0)
            return r;
        at += hi - src;
        src = hi;
    }
    return 0;
}

/* Copies a range like copy_sparse(), but clones its whole blocks if possible. */
static int move_range(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n, bool draft)
{
    const uint64_t mask = m->block - 1, end = at + n;
    uint64_t lo = min_u64(round_up(at, mask + 1), end), hi = max_u64(end & ~mask, lo);
    if (m->block == 0 || (at ^ src) & mask)
        hi = lo = end;
    int r = lo < hi ? m->sys->clone_range(m->sys, from, src + (lo - at), m->to, lo, hi - lo) : 0;
    if (r < 0 && draft) { /* copying will show what is wrong */
        hi = lo = end;
    } else if (r < 0) {
        return r == -EINVAL || r == -EXDEV || r == -ENOTTY || r == -ENOSYS ? -EOPNOTSUPP : r;
    }
    advance(m, hi - lo);
    r = copy_sparse(m, from, src, at, lo - at);
    return r < 0 ? r : copy_sparse(m, from, src + (hi - at), hi, end - hi);
}

int temp_copy(const struct edit_file *f, struct temp *t, const struct edit_hooks *h, struct err *e)
{
    const uint64_t size = f->id.size;
    struct move m = {.sys = f->sys, .hooks = h, .to = t->fd, .total = size};
    if (f->clone != EDIT_CLONE_NO && f->sys->clone_range(f->sys, f->fd, 0, t->fd, 0, 0) == 0)
        return 0;
    int r = f->sys->ftruncate(f->sys, t->fd, size);
    if (r == 0)
        r = copy_sparse(&m, f->fd, 0, 0, size);
    return err_sys(e, r, "cannot copy the model");
}

int temp_fill(const struct edit_file *f, struct temp *t, const struct edit_plan *plan, bool clone,
              const struct edit_hooks *h, struct err *e)
{
    const struct image *im = plan->image;
    struct move m = {.sys = f->sys, .hooks = h, .to = t->fd, .block = clone ? plan->block : 0};
    for (size_t i = 1; i < im->n; i++)
        m.total += im->seg[i].from == IMAGE_FILE ? im->seg[i].len : 0;
    int r = f->sys->ftruncate(f->sys, t->fd, im->size);
    if (r < 0)
        return err_sys(e, r, "cannot size the new file");
    r = sys_write_all(f->sys, t->fd, im->seg[0].bytes, (size_t)im->seg[0].len, 0);
    if (r < 0)
        return err_sys(e, r, "cannot write the new header");
    for (size_t i = 1; i < im->n && r == 0; i++) {
        const struct segment *s = &im->seg[i];
        const bool draft = s->from == IMAGE_FILE && s->no != EDIT_OLD_FILE;
        if (s->from == IMAGE_FILE)
            r = move_range(&m, draft ? im->file[s->no].fd : f->fd, s->src, s->at, s->len, draft);
    }
    return err_sys(e, r, "cannot %s the tensors", clone ? "clone" : "copy");
}

int temp_check_padding(const struct edit_file *f, const struct edit_plan *p, struct err *e)
{
    uint8_t piece[4096];
    for (size_t i = 0; i < p->image->n; i++) {
        const struct segment *s = &p->image->seg[i];
        const uint64_t end = min_u64(s->at + s->len, p->old_size);
        for (uint64_t at = s->at, n; s->from == IMAGE_ZERO && at < end; at += n) {
            n = min_u64(end - at, sizeof(piece));
            int r = sys_read_all(f->sys, f->fd, piece, (size_t)n, at);
            if (r < 0)
                return err_sys(e, r, "cannot read the padding between tensors");
            if (!is_zero(piece, (size_t)n))
                return err_set(e, -EOPNOTSUPP, "padding between tensors is not zero (byte %llu)",
                               (unsigned long long)s->at);
        }
    }
    return 0;
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
        return err_sys(e, r, "cannot create a file beside the model");
    t->fd = r;
    return 0;
}

int temp_dress(const struct edit_file *f, struct temp *t, struct err *e)
{
    int r = f->sys->flock(f->sys, t->fd, LOCK_EX | LOCK_NB);
    if (r < 0)
        return err_sys(e, r, "cannot lock the new file");
    r = edit_file_stat(f, &t->model, e);
    return r < 0 ? r : attr_copy(f->sys, f->fd, &t->model, t->fd, e);
}

static bool same_rights(const struct stat *a, const struct stat *b)
{
    return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Compares owner and mode as well, because times may be coarse. */
static bool same_change(const struct stat *a, const struct stat *b)
{
    return a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec &&
           same_rights(a, b);
}

/* T5. Repeats the changes made to the model's attributes while the new file was written. */
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
 * Tests with two named files whether one can replace another that is open, as the model is. On SMB
 * this fails, and the file to be replaced disappears.
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
            (void)err_sys(e, r, "cannot rename a file over an open one beside the model");
    }
    temp_abandon(f, &t);
    temp_abandon(f, &other);
    return r;
}

static int open_unnamed(const struct edit_file *f)
{
    return f->sys->openat(f->sys, f->dir, ".", O_TMPFILE | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
}

int temp_unnamed(const struct edit_file *f, struct err *e)
{
    struct temp t = TEMP_INIT;
    int fd = open_unnamed(f);
    if (fd >= 0)
        return fd;
    int r = temp_create(f, &t, e);
    if (r < 0)
        return r;
    r = f->sys->unlinkat(f->sys, f->dir, t.name);
    if (r == 0)
        return t.fd;
    temp_abandon(f, &t);
    return err_sys(e, r, "cannot remove a file beside the model");
}

int temp_probe(const struct edit_file *f, struct err *e)
{
    struct temp t = {.fd = open_unnamed(f)};
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
        return err_sys(e, r, "cannot sync the new file");
    t->id = edit_id_of(&st);
    return 0;
}

/*
 * T2, T5. Checks that the displaced file is the one that was opened, unchanged since the last
 * check.
 */
static int check_displaced(const struct edit_file *f, const struct temp *t, struct err *e)
{
    struct stat st;
    int r = f->sys->fstatat(f->sys, f->dir, t->name, &st);
    if (r < 0)
        return err_sys(e, r, "cannot stat the old file");
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
    return err_sys(e, r, "cannot sync the model's directory");
}

/* Gives f the new file's descriptor. The new file is now the model. */
static void adopt(struct edit_file *f, struct temp *t, int *old)
{
    *old = f->fd;
    f->fd = t->fd;
    f->id = t->id;
    *t = TEMP_INIT;
}

/* Leaves the new file where it is. f keeps its own file. */
static void let_go(const struct edit_file *f, struct temp *t)
{
    sys_close(f->sys, &t->fd);
    *t = TEMP_INIT;
}

/* Returns true if `name` names the new file. */
static bool names(const struct edit_file *f, const char *name, const struct temp *t)
{
    struct stat st;
    return f->sys->fstatat(f->sys, f->dir, name, &st) == 0 && st.st_dev == t->id.dev &&
           st.st_ino == t->id.ino;
}

/*
 * T3. Undoes the exchange. If that displaces not the new file but one that was put there in the
 * meantime, that one is put back. If the exchange fails, renames the old file over the new one,
 * because recovery would remove a file with a temp's name. If nothing works, the new file stays.
 */
static void take_back(const struct edit_file *f, struct temp *t)
{
    int r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    if (r == 0 && !names(f, t->name, t))
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    else if (r < 0 && names(f, f->name, t))
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, 0);
    if (r == 0)
        (void)sys_sync_dir(f->sys, f->dir);
    else
        let_go(f, t);
}

static int exchanged(struct edit_file *f, struct temp *t, int *old, struct err *e)
{
    int r = check_displaced(f, t, e);
    if (r == 0)
        r = sync_folder(f, e);
    if (r < 0) {
        take_back(f, t);
        return r;
    }
    /* The edit is done. If the old file keeps its name, the next recovery removes it (T4). */
    if (f->sys->unlinkat(f->sys, f->dir, t->name) < 0)
        (void)f->sys->unlinkat(f->sys, f->dir, t->name);
    adopt(f, t, old);
    return 0;
}

static int plain(struct edit_file *f, struct temp *t, int *old, struct err *e)
{
    struct stat st;
    int r = f->sys->rename(f->sys, f->dir, t->name, f->name, 0);
    if (r < 0) {
        (void)err_sys(e, r, "cannot rename the new file over the model");
        if (f->sys->fstatat(f->sys, f->dir, f->name, &st) == -ENOENT) {
            (void)err_sys(e, r, "the model is gone, the new file is %s: cannot rename it", t->name);
            let_go(f, t);
        }
        return r;
    }
    r = sync_folder(f, e);
    if (r < 0)
        let_go(f, t);
    else
        adopt(f, t, old);
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
        return exchanged(f, t, old, e);
    if (no_exchange(r))
        return plain(f, t, old, e);
    return err_sys(e, r, "cannot put the new file in the model's place");
}

int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e)
{
    char shown[SHOW_MAX];
    int r = f->sys->rename(f->sys, f->dir, t->name, name, 0);
    if (r < 0)
        return err_sys(e, r, "cannot rename a file to %s", show(shown, name, strlen(name)));
    let_go(f, t);
    return sync_folder(f, e);
}

/*
 * Removes the name once more after the close, because a store that caches open files may bring it
 * back.
 */
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
