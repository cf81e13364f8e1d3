/* SPDX-License-Identifier: MIT */
/* The model's file, new files that replace it, and the commit: see commit.h. */
#include "edit/commit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/map.h"
#include "edit/journal.h"

/* ---- the model's file ---- */

/*
 * How many times to reopen a model because it has just been replaced. Without a limit, this would
 * never end on a file system whose inode numbers change spontaneously.
 */
#define OPEN_TRIES 100

struct edit_id edit_id_of(const struct stat *st)
{
    return (struct edit_id){st->st_dev, st->st_ino, (uint64_t)st->st_size, st->st_mtim};
}

bool edit_id_equal(const struct edit_id *a, const struct edit_id *b)
{
    return a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
           a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

/*
 * Takes the lock, and checks that the path still names this file, because a writer may just have
 * replaced the file.
 */
static int lock_model(const struct edit_file *f, bool *replaced, struct err *e)
{
    struct stat st;
    int r = f->sys->flock(f->sys, f->fd, LOCK_EX | LOCK_NB);
    if (r == -EWOULDBLOCK)
        return err_set(e, r, "another process has the model open for writing");
    if (r < 0)
        return err_sys(e, r, "cannot lock the model");
    r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    *replaced = r == -ENOENT || (r == 0 && (st.st_dev != f->id.dev || st.st_ino != f->id.ino));
    return *replaced || r == 0 ? 0 : err_sys(e, r, "cannot stat the model");
}

int edit_file_stat(const struct edit_file *f, struct stat *ret, struct err *e)
{
    int r = f->sys->fstat(f->sys, f->fd, ret);
    return err_sys(e, r, "cannot stat the model");
}

static int not_regular(struct err *e)
{
    return err_set(e, -EINVAL, "is not a regular file");
}

/*
 * Returns true if the file is read-only even for its owner, as is a copy that cp(1) makes of the
 * view model.gguf.
 */
static bool is_own_copy(const struct stat *st, int error)
{
    return error == -EACCES && st->st_uid == geteuid() && !(st->st_mode & S_IWUSR);
}

/* Opens the model only if it is a regular file: opening a device might have side effects. */
static int open_once(struct edit_file *f, bool write, bool *replaced, struct err *e)
{
    int flags = (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
    struct stat st;
    *replaced = false;
    int r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    if (r == 0 && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return not_regular(e);
    f->fd = f->sys->openat(f->sys, f->dir, f->name, flags, 0);
    if (f->fd < 0)
        return err_set(e, f->fd, "cannot open the model%s: %s%s", write ? " for writing" : "",
                       strerror(-f->fd),
                       write && r == 0 && is_own_copy(&st, f->fd) ? " (chmod u+w)" : "");
    r = edit_file_stat(f, &st, e);
    if (r < 0)
        return r;
    if (!S_ISREG(st.st_mode))
        return not_regular(e);
    f->id = edit_id_of(&st);
    return write ? lock_model(f, replaced, e) : 0;
}

int edit_file_open(struct edit_file *f, const struct sys *sys, int dir, const char *name,
                   bool write, struct err *e)
{
    struct edit_file file = {.sys = sys, .dir = dir, .fd = -1, .locked = write};
    if (snprintf(file.name, sizeof(file.name), "%s", name) > NAME_MAX)
        return err_set(e, -ENAMETOOLONG, "the model's name is over %d bytes", NAME_MAX);
    for (int i = 0; i < OPEN_TRIES; i++) {
        bool replaced;
        int r = open_once(&file, write, &replaced, e);
        if (r == 0 && !replaced) {
            *f = file;
            return 0;
        }
        sys_close(sys, &file.fd);
        if (r < 0)
            return r;
    }
    return err_set(e, -ESTALE, "the model's file was replaced each time it was opened");
}

void edit_file_close(struct edit_file *f)
{
    sys_close(f->sys, &f->fd);
}

int edit_file_fresh(const struct edit_file *f, struct err *e)
{
    struct stat st;
    int r = f->sys->fstatat(f->sys, f->dir, f->name, &st);
    if (r < 0 && r != -ENOENT)
        return err_sys(e, r, "cannot stat the model");
    struct edit_id now = r < 0 ? (struct edit_id){0} : edit_id_of(&st);
    if (r == 0 && (f->unfinished ? now.dev == f->id.dev && now.ino == f->id.ino
                                 : edit_id_equal(&now, &f->id)))
        return 0;
    const char *what = r < 0                    ? "is gone"
                       : now.ino != f->id.ino   ? "is now another file"
                       : now.size != f->id.size ? "now has another size"
                                                : "was written by another program";
    return err_set(e, -ESTALE, "the model was changed outside the mount: it %s", what);
}

static int check_links(const struct stat *st, struct err *e)
{
    if (st->st_nlink <= 1)
        return 0;
    return err_set(e, -EMLINK,
                   "the model has other names (%lu hard links in all), which would keep the old "
                   "content: make it a file of its own first (cp --reflink=auto)",
                   (unsigned long)st->st_nlink);
}

int edit_file_note(struct edit_file *f, struct err *e)
{
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r == 0)
        f->id = edit_id_of(&st);
    return r;
}

void edit_side_name(char dst[NAME_MAX + 1], const char *name, const char *suffix)
{
    static const char mark[] = ".ggufs-";
    size_t n = strlen(name), around = 1 + sizeof(mark) - 1 + sizeof(EDIT_JOURNAL_SUFFIX) - 1;
    char cut[32] = "";
    if (n + around > NAME_MAX) {
        (void)snprintf(cut, sizeof(cut), "~%016" PRIx64, xxh64(0, name, n));
        n = NAME_MAX - around - strlen(cut);
    }
    (void)snprintf(dst, NAME_MAX + 1, ".%.*s%s%s%s", (int)n, name, cut, mark, suffix);
}

bool edit_is_owned(const struct stat *st, const struct stat *model)
{
    return S_ISREG(st->st_mode) &&
           (st->st_uid == geteuid() || st->st_uid == model->st_uid || st->st_uid == 0);
}

bool edit_is_ours(const struct stat *st, const struct stat *model)
{
    return edit_is_owned(st, model) && st->st_nlink == 1;
}

#define NAME_TRIES 100
/* How many times to copy the model's owner, mode and attributes again if they keep changing. */
#define DRESS_TRIES 100

/* ---- attributes ---- */

/* Returns an error that comes from the medium unchanged, and any other error as -EPERM. */
static int not_reproduced(struct err *e, int r, const char *what, const char *name)
{
    bool medium = r == -ENOSPC || r == -EDQUOT || r == -EIO || r == -ENOMEM;
    char shown[SHOW_MAX];
    return err_set(e, medium ? r : -EPERM, "the model's %s%s%s cannot be reproduced: %s", what,
                   *name ? " " : "", show(shown, name, strlen(name)), strerror(-r));
}

/*
 * Reads the names, each with its NUL, and then an empty one. A file system without attributes has no
 * names. Neither they nor a value are ever larger than the kernel's limits.
 */
static int get_names(const struct sys *s, int fd, char dst[XATTR_LIST_MAX + 2])
{
    ssize_t n = s->flistxattr(s, fd, dst, XATTR_LIST_MAX);
    if (n == -EOPNOTSUPP || n == -ENOSYS)
        n = 0;
    memset(dst + (n < 0 ? 0 : n), 0, 2);
    return n < 0 ? (int)n : 0;
}

static const char *next_name(const char *name)
{
    return name + strlen(name) + 1;
}

static bool has_name(const char *names, const char *name)
{
    while (*names && strcmp(names, name) != 0)
        names = next_name(names);
    return *names;
}

/*
 * Copies an attribute, or only reads it if to < 0. Does not set an attribute that `to` already has
 * (such as a label set by the system), because that may not be permitted.
 */
static int copy_one(const struct sys *s, int from, int to, const char *name)
{
    uint8_t want[XATTR_SIZE_MAX], have[XATTR_SIZE_MAX];
    const ssize_t n = s->fgetxattr(s, from, name, want, sizeof(want));
    if (n < 0 || to < 0)
        return n < 0 ? (int)n : 0;
    if (s->fgetxattr(s, to, name, have, sizeof(have)) == n && memcmp(have, want, (size_t)n) == 0)
        return 0;
    return s->fsetxattr(s, to, name, want, (size_t)n);
}

/* Copies all attributes, and removes others that `to` has; or only reads them if to < 0. */
static int copy_attributes(const struct sys *s, int from, int to, struct err *e)
{
    char want[XATTR_LIST_MAX + 2], have[XATTR_LIST_MAX + 2] = "";
    int r = get_names(s, from, want);
    if (r == 0 && to >= 0)
        r = get_names(s, to, have);
    if (r < 0)
        return not_reproduced(e, r, "list of extended attributes", "");
    for (const char *name = have; *name; name = next_name(name))
        if (!has_name(want, name) && (r = s->fremovexattr(s, to, name)) < 0)
            return not_reproduced(e, r, "absence of the attribute", name);
    for (const char *name = want; *name; name = next_name(name))
        if ((r = copy_one(s, from, to, name)) < 0)
            return not_reproduced(e, r, "extended attribute", name);
    return 0;
}

/* Gives `to`, one of our files, exactly the attributes of the model, whose stat is st. */
static int dress(const struct edit_file *f, const struct stat *st, int to, struct err *e)
{
    const struct sys *s = f->sys;
    struct stat now;
    int r = s->fstat(s, to, &now);
    if (r == 0 && (now.st_uid != st->st_uid || now.st_gid != st->st_gid))
        r = s->fchown(s, to, st->st_uid, st->st_gid);
    if (r < 0)
        return not_reproduced(e, r, "owner and group", "");
    r = copy_attributes(s, f->fd, to, e);
    if (r < 0)
        return r;
    /*
     * The mode comes last, because a change of owner clears the set-id bits, and an ACL keeps its
     * mask in the group bits.
     */
    r = s->fchmod(s, to, st->st_mode & 07777);
    return r < 0 ? not_reproduced(e, r, "mode", "") : 0;
}

/* ---- a new file ---- */

/*
 * A new file beside the model that replaces it completely or not at all.
 *
 * Invariants:
 *  T1. The path always names a complete file, because the new file is synced before it is
 *      atomically exchanged with the old one (RENAME_EXCHANGE).
 *  T2. The displaced file is checked after the exchange; if it is not the file that was opened, it
 *      is put back (-ESTALE). So a file that appeared between the last check of the path and the
 *      exchange is not lost.
 *  T3. Success is reported only after the directory is synced. If the sync fails, the old file is
 *      put back.
 *  T4. A crash leaves at most one file, which matches ".NAME.ggufs-XXXXXX", has the old or the new
 *      content, and is neither locked nor read. edit_recover() removes it.
 *  T5. The new file has the owner, mode and attributes that the model has when it is displaced.
 *      They are set again if they changed while the new file was written, and hard links are
 *      checked again. Last-moment changes to owner, mode and links are noticed (-EBUSY or -EMLINK,
 *      and the old file is put back), but changes to other attributes are not.
 * On file systems without the exchange, a plain rename follows the same check. T2 and T5 then have
 * a gap of one system call, and the new file stays if the directory cannot be synced. It also stays
 * if a failing rename removes the model, as on SMB, which temp_probe() detects.
 */
struct temp {
    int fd; /* open for reading and writing */
    char name[NAME_MAX + 1];
    struct edit_id id; /* identity of the new file when it was synced */
    struct stat model; /* the model's, before its attributes were copied */
};

#define TEMP_INIT ((struct temp){.fd = -1})

/* ---- its content ---- */

/*
 * copy_file_range(2) clones whole blocks by itself if the file system can, and both offsets are
 * multiples of its block. Tensors begin anywhere, so where bytes move by a multiple of the block,
 * the incomplete first block is copied by a call of its own; the kernel leaves the incomplete last
 * one to a further call. (Where nothing can be cloned, the kernel's folios would be smaller for it.)
 * Zeros, and holes in the model, become holes in the new file. Holes are not looked for in drafts:
 * their bytes may be in the page cache only, which not every file system searches (SEEK_DATA).
 */

#define CHUNK ((uint64_t)64 << 20) /* bytes between progress reports; a multiple of any block */
#define PIECE ((size_t)256 << 10)  /* bytes per read where the kernel cannot copy */

struct move {
    const struct sys *sys;
    const struct edit_hooks *hooks; /* may be NULL */
    int to;
    uint64_t block;       /* block size for cloning; 1: nothing can be cloned */
    uint64_t done, total; /* bytes of data, including holes */
};

static void count_copied(struct move *m, uint64_t n)
{
    m->done += n;
    if (m->hooks && m->hooks->progress)
        m->hooks->progress(m->done, m->total, m->hooks->arg);
}

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

/* Returns how many of the next n bytes to copy at once. */
static size_t next_part(const struct move *m, uint64_t src, uint64_t at, uint64_t n)
{
    const uint64_t mask = m->block - 1, edge = round_up(at, m->block) - at;
    const bool edge_only = ((at ^ src) & mask) == 0 && edge > 0;
    return (size_t)min_u64(n, edge_only ? edge : CHUNK);
}

static int copy_bytes(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    while (n > 0) {
        const size_t part = next_part(m, src, at, n);
        ssize_t got = m->sys->copy_range(m->sys, from, src, m->to, at, part);
        if (got == -EINTR)
            continue;
        /* The kernel cannot copy between these files; these errors do not come from the medium. */
        if (got == 0 || got == -EXDEV || got == -ENOSYS || got == -EOPNOTSUPP || got == -EINVAL ||
            got == -EPERM) {
            const int r = copy_piecewise(m, from, src, at, part);
            got = r < 0 ? r : (ssize_t)part;
        }
        if (got < 0)
            return (int)got;
        count_copied(m, (uint64_t)got);
        src += (uint64_t)got;
        at += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return 0;
}

/*
 * Finds the next data [lo, hi) between src and end. If holes cannot be found, everything is data.
 */
static int next_data(const struct move *m, int from, uint64_t src, uint64_t end, uint64_t *lo,
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

/* Copies a range of the model, leaving holes in the new file where the old one has them. */
static int copy_sparse(struct move *m, int from, uint64_t src, uint64_t at, uint64_t n)
{
    uint64_t end = src + n, lo, hi;
    while (src < end) {
        int r = next_data(m, from, src, end, &lo, &hi);
        if (r < 0)
            return r;
        count_copied(m, lo - src);
        r = copy_bytes(m, from, lo, at + (lo - src), hi - lo);
        if (r < 0)
            return r;
        at += hi - src;
        src = hi;
    }
    return 0;
}

/* Fills the planned file or, if `backup` is set, a copy of the model. */
static int temp_fill(const struct edit_file *f, const struct temp *t, const struct edit_plan *plan,
                     bool backup, const struct edit_hooks *h, struct err *e)
{
    const struct segment all = {.from = IMAGE_FILE, .no = EDIT_OLD_FILE, .len = f->id.size};
    const struct image *im = plan->image;
    const struct segment *seg = backup ? &all : im->seg, *end = seg + (backup ? 1 : im->n);
    struct move m = {f->sys, h, t->fd, f->clone == EDIT_CLONE_NO ? 1 : plan->block, 0, 0};
    for (const struct segment *s = seg; s < end; s++)
        m.total += s->from == IMAGE_FILE ? s->len : 0;
    int r = f->sys->ftruncate(f->sys, t->fd, backup ? f->id.size : im->size);
    for (const struct segment *s = seg; s < end && r == 0; s++)
        if (s->from == IMAGE_MEMORY)
            r = sys_write_all(f->sys, t->fd, s->bytes, (size_t)s->len, s->at);
        else if (s->from == IMAGE_FILE && s->no == EDIT_OLD_FILE)
            r = copy_sparse(&m, f->fd, s->src, s->at, s->len);
        else if (s->from == IMAGE_FILE)
            r = copy_bytes(&m, im->file[s->no].fd, s->src, s->at, s->len);
    return err_sys(e, r, backup ? "cannot copy the model" : "cannot write the new file");
}

/* ---- made and published ---- */

static int temp_create(const struct edit_file *f, struct temp *t, struct err *e)
{
    static atomic_uint count;
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, r = -EEXIST;
    char suffix[EDIT_TEMP_SUFFIX + 1];
    for (int i = 0; i < NAME_TRIES && r == -EEXIST; i++) {
        const unsigned n = atomic_fetch_add(&count, 1);
        (void)snprintf(suffix, sizeof(suffix), "%06x", (unsigned)hash_name(&n, sizeof(n)) >> 8);
        edit_side_name(t->name, f->name, suffix);
        r = f->sys->openat(f->sys, f->dir, t->name, flags, 0600);
    }
    if (r < 0)
        return err_sys(e, r, "cannot create a file beside the model");
    t->fd = r;
    return 0;
}

/* Closes and removes the file. A caching file system may restore the name on close. */
static void temp_abandon(const struct edit_file *f, struct temp *t)
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

static int temp_sync(const struct edit_file *f, struct temp *t, struct err *e)
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

static int temp_dress(const struct edit_file *f, struct temp *t, struct err *e)
{
    int r = f->sys->flock(f->sys, t->fd, LOCK_EX | LOCK_NB);
    if (r < 0)
        return err_sys(e, r, "cannot lock the new file");
    r = edit_file_stat(f, &t->model, e);
    return r < 0 ? r : dress(f, &t->model, t->fd, e);
}

static bool same_rights(const struct stat *a, const struct stat *b)
{
    return a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid;
}

/* Compares the ctime, and also owner and mode, because times may be coarse. */
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
            r = check_links(&now, e);
        if (r < 0 || same_change(&now, &t->model))
            return r;
        t->model = now;
        r = dress(f, &now, t->fd, e);
        if (r == 0)
            r = temp_sync(f, t, e);
        if (r < 0)
            return r;
    }
    return err_set(e, -EBUSY, "the model's owner, mode or attributes keep changing");
}

static bool no_exchange(int r)
{
    return r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP;
}

/*
 * Tests with two named files whether a file can be replaced while it is open, as the model is. On
 * SMB this fails, and the open file disappears.
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

int edit_unnamed(const struct edit_file *f, struct err *e)
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

static int temp_probe(const struct edit_file *f, struct err *e)
{
    struct temp t = {.fd = open_unnamed(f)};
    if (t.fd < 0)
        return probe_named(f, e);
    int r = temp_dress(f, &t, e);
    sys_close(f->sys, &t.fd);
    return r == 0 && far_file(f->dir) ? probe_named(f, e) : r;
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
        return err_set(e, -ESTALE, "the model has just been changed outside the mount");
    if (!same_rights(&st, &t->model))
        return err_set(e, -EBUSY, "the model's owner or mode has just changed");
    return check_links(&st, e);
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

/* Leaves the new file in place. f keeps its old file open. */
static void let_go(struct edit_file *f, struct temp *t)
{
    sys_close(f->sys, &t->fd);
    f->unsynced = true;
}

/*
 * Returns 1 if `name` names the new file, 0 if it names another one, or -errno. The rename changes
 * nothing, but makes the kernel look the name up even if it has been told to cache it for a while.
 */
static int is_named(const struct edit_file *f, const char *name, const struct temp *t)
{
    struct stat st;
    (void)f->sys->rename(f->sys, f->dir, name, name, RENAME_NOREPLACE);
    const int r = f->sys->fstatat(f->sys, f->dir, name, &st);
    return r < 0 ? r : st.st_dev == t->id.dev && st.st_ino == t->id.ino;
}

/*
 * Renames the temp's name to the model's, or exchanges them. Also returns 0 if the call fails although
 * it was done, as when a server's answer is lost: the new file then has the name `now`, not `was`.
 */
static int temp_rename(const struct edit_file *f, const struct temp *t, unsigned flags,
                       const char *was, const char *now)
{
    int r = f->sys->rename(f->sys, f->dir, t->name, f->name, flags);
    return r < 0 && is_named(f, now, t) == 1 && is_named(f, was, t) != 1 ? 0 : r;
}

/*
 * T3. Undoes the exchange. If this displaces another file, which has since replaced the new one,
 * that file is put back. If the exchange fails, renames the old file over the new one, because
 * recovery would remove a file with a temp's name. If that fails too, the new file stays.
 */
static void undo_exchange(struct edit_file *f, struct temp *t)
{
    int r = temp_rename(f, t, RENAME_EXCHANGE, f->name, t->name);
    if (r == 0 && is_named(f, t->name, t) == 0)
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, RENAME_EXCHANGE);
    else if (r < 0 && is_named(f, f->name, t) == 1)
        r = f->sys->rename(f->sys, f->dir, t->name, f->name, 0);
    if (r == 0)
        f->unsynced = sys_sync_dir(f->sys, f->dir) < 0;
    else
        let_go(f, t);
}

static int exchanged(struct edit_file *f, struct temp *t, int *old, struct err *e)
{
    int r = check_displaced(f, t, e);
    if (r == 0)
        r = sync_folder(f, e);
    if (r < 0) {
        undo_exchange(f, t);
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
    int r = temp_rename(f, t, 0, t->name, f->name);
    if (r < 0) {
        (void)err_sys(e, r, "cannot rename the new file over the model");
        if (f->sys->fstatat(f->sys, f->dir, f->name, &st) == -ENOENT) {
            (void)err_sys(e, r, "the model is gone, and the new file is %s: cannot rename it",
                          t->name);
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

static int temp_publish(struct edit_file *f, struct temp *t, int *old, struct err *e)
{
    *old = -1;
    int r = dress_again(f, t, e);
    if (r == 0)
        r = edit_file_fresh(f, e);
    if (r < 0)
        return r;
    r = temp_rename(f, t, RENAME_EXCHANGE, t->name, f->name);
    if (r == 0)
        return exchanged(f, t, old, e);
    if (no_exchange(r))
        return plain(f, t, old, e);
    return err_sys(e, r, "cannot put the new file in the model's place");
}

static int temp_name(const struct edit_file *f, struct temp *t, const char *name, struct err *e)
{
    char shown[SHOW_MAX];
    int r = f->sys->rename(f->sys, f->dir, t->name, name, 0);
    if (r < 0)
        return err_sys(e, r, "cannot rename a file to %s", show(shown, name, strlen(name)));
    sys_close(f->sys, &t->fd);
    return sync_folder(f, e);
}

/* ---- the disk ---- */

/* Returns 0 for an error that may be temporary, and any other error unchanged. */
static int lasting(int r)
{
    static const int passing[] = {-ENOSPC, -EDQUOT, -ENOMEM, -EINTR, -EMFILE, -ENFILE, -EAGAIN};
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (r == passing[i])
            return 0;
    return r;
}

/*
 * Tries to clone into a file beside the model, and remembers the result, which never changes. A
 * failure that may be temporary leaves it unknown.
 */
static void probe_clone(struct edit_file *f, uint64_t block)
{
    struct temp t = TEMP_INIT;
    uint64_t n = f->id.size < block ? 0 : block; /* 0: the whole file, if smaller than a block */
    if (temp_create(f, &t, NULL) < 0)
        return;
    int r = f->sys->clone_range(f->sys, f->fd, 0, t.fd, 0, n);
    temp_abandon(f, &t);
    if (r == 0)
        f->clone = EDIT_CLONE_YES;
    else if (lasting(r) < 0 && r != -EIO)
        f->clone = EDIT_CLONE_NO;
}

/* Determines how many bytes new files can take up. */
static int free_bytes(const struct edit_file *f, uint64_t *ret, struct err *e)
{
    struct statvfs v;
    int r = f->sys->fstatvfs(f->sys, f->dir, &v);
    if (r < 0)
        return err_sys(e, r, "cannot find the free space");
    if (!mul_u64(geteuid() == 0 ? v.f_bfree : v.f_bavail, v.f_frsize, ret))
        *ret = UINT64_MAX;
    return 0;
}

int edit_room_for(const struct edit_file *f, uint64_t needed, const char *what, struct err *e)
{
    uint64_t found = 0;
    int r = free_bytes(f, &found, e);
    return r < 0 ? r : edit_check_room(found, needed, what, e);
}

int edit_backup_name(char dst[NAME_MAX + 1], const struct edit_file *f,
                     const struct edit_options *o, struct err *e)
{
    if (snprintf(dst, NAME_MAX + 1, "%s%s", f->name, o->backup) > NAME_MAX)
        return err_set(e, -ENAMETOOLONG, "the backup's name would be over %d bytes", NAME_MAX);
    return 0;
}

/* Writes the backup's name to `name`. Fails if a directory already has that name. */
static int check_backup(const struct edit_file *f, const struct edit_options *o,
                        char name[NAME_MAX + 1], struct err *e)
{
    char shown[SHOW_MAX];
    struct stat st;
    int r = edit_backup_name(name, f, o, e);
    if (r == 0 && f->sys->fstatat(f->sys, f->dir, name, &st) == 0 && S_ISDIR(st.st_mode))
        r = err_set(e, -EISDIR, "%s, the name of the backup, is a directory",
                    show(shown, name, strlen(name)));
    return r;
}

int edit_look(const struct edit_file *f, const struct edit_options *o, struct edit_disk *ret,
              struct err *e)
{
    struct edit_disk d = {.known = true, .backup = o->backup && !f->backed, .clone = f->clone};
    char name[NAME_MAX + 1];
    struct stat st;
    int r = edit_file_stat(f, &st, e);
    if (r == 0)
        r = check_links(&st, e);
    if (r == 0)
        r = edit_file_fresh(f, e);
    if (r == 0)
        r = free_bytes(f, &d.free, e);
    if (r == 0 && d.backup)
        r = check_backup(f, o, name, e);
    if (r < 0)
        return r;
    d.used = (uint64_t)st.st_blocks * 512;
    *ret = d;
    return 0;
}

int edit_check_drafts(const struct edit_file *f, const struct edit_plan *p, bool sync,
                      struct err *e)
{
    struct log *last = NULL;
    int r = 0;
    for (size_t i = 0; i < p->n_tensors && r == 0; i++) {
        struct tensor_content *k = p->tensor[i].content;
        if (!k || atomic_load(&k->safe))
            continue;
        for (size_t n = 0; n < k->n && r == 0; n++)
            if (k->piece[n].log != last)
                r = log_check(last = k->piece[n].log, f->sys, sync, e);
        atomic_store(&k->safe, sync && r == 0);
    }
    return r;
}

/* ---- in place ---- */

static bool has_journal(const struct edit_file *f)
{
    char name[NAME_MAX + 1];
    struct stat st;
    edit_side_name(name, f->name, EDIT_JOURNAL_SUFFIX);
    return f->sys->fstatat(f->sys, f->dir, name, &st) == 0;
}

static int write_inplace(struct edit_file *f, const struct edit_plan *p, const struct edit_hooks *h,
                         struct edit_result *ret, struct err *e)
{
    CLEANUP(journal_free) struct journal k = JOURNAL_INIT;
    int r = journal_write(f, p, h, &k, e);
    if (r < 0)
        return r;
    r = edit_file_fresh(f, e);
    if (r < 0)
        return journal_cancel(f, &k, r, e);
    r = journal_apply(f, &k);
    if (r < 0) {
        (void)err_sys(e, r, "cannot write the model");
        (void)edit_file_note(f, NULL); /* even a failed write may have set the time */
        /* The edit is taken back only if it is certain that none of it was or will be written. */
        if (journal_compare(f, &k, NULL) == 0 && k.state != JOURNAL_VOID && !k.begun &&
            (journal_end(f, &k) == 0 || !has_journal(f)))
            return journal_cancel(f, &k, r, e);
        f->unfinished = ret->unfinished = true;
        return err_prefix(e, -EIO, "the " JOURNAL_FINISHES);
    }
    (void)journal_end(f, &k); /* the edit is durable */
    return 0;
}

/* ---- by a new file ---- */

/*
 * Makes a new file that replaces the model (*old: the descriptor of the old one) or, given the name
 * of a backup, a copy of the unchanged model. The copy gets that name, replacing any older backup,
 * only once it is on disk, so that no backup is ever incomplete.
 */
static int make_new_file(struct edit_file *f, const struct edit_plan *p, const struct edit_hooks *h,
                         const char *backup, int *old, struct err *e)
{
    struct temp t = TEMP_INIT;
    int r = temp_create(f, &t, e);
    if (r == 0)
        r = temp_dress(f, &t, e);
    if (r == 0)
        r = temp_fill(f, &t, p, backup, h, e);
    if (r == 0 && !backup)
        r = edit_check_drafts(f, p, false, e);
    if (r == 0)
        r = temp_sync(f, &t, e);
    if (r == 0)
        r = backup ? temp_name(f, &t, backup, e) : temp_publish(f, &t, old, e);
    temp_abandon(f, &t);
    return r;
}

/* ---- probes ---- */

int edit_try(const struct edit_file *f, bool new, struct err *e)
{
    uint8_t byte;
    int r = f->id.size ? sys_read_all(f->sys, f->fd, &byte, 1, 0) : 0;
    if (r < 0 || !new)
        return err_sys(e, r, "cannot read a file that is open for writing here");
    r = copy_attributes(f->sys, f->fd, -1, e);
    return lasting(r < 0 ? r : temp_probe(f, e));
}

/* ---- the commit ---- */

static int make_backup(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                       const struct edit_hooks *h, struct err *e)
{
    char name[NAME_MAX + 1];
    int r = edit_backup_name(name, f, o, e);
    if (r == 0)
        r = make_new_file(f, p, h, name, NULL, e);
    f->backed = r == 0;
    return r < 0 ? err_prefix(e, r, "backup") : 0;
}

int edit_way(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
             enum edit_strategy *ret, uint64_t *copies, struct err *e)
{
    struct edit_disk d;
    int r = edit_look(f, o, &d, e);
    if (r == 0 && f->clone == EDIT_CLONE_UNKNOWN) {
        probe_clone(f, edit_block(o));
        d.clone = f->clone;
    }
    return r < 0 ? r : edit_plan_way(p, o, &d, ret, copies, e);
}

int edit_settle(struct edit_file *f, struct err *e)
{
    enum journal_state found;
    int r = f->unsynced ? sync_folder(f, e) : 0;
    if (r == 0)
        r = edit_file_fresh(f, e);
    f->unsynced &= r < 0;
    return r == 0 ? journal_settle(f, true, &found, e) : r;
}

int edit_commit(struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
                const struct edit_hooks *h, struct edit_result *ret, struct err *e)
{
    struct edit_options inplace = *o;
    uint64_t copies;
    *ret = (struct edit_result){.old_fd = -1};
    int r = edit_settle(f, e); /* the plan builds on it */
    if (r == 0 && p->old_size != f->id.size)
        r = err_set(e, -ESTALE, "the edit was planned for a file of %llu bytes, not of %llu",
                    (unsigned long long)p->old_size, (unsigned long long)f->id.size);
    if (r < 0 || p->same)
        return r;
    r = edit_way(f, p, o, &ret->strategy, &copies, e);
    if (r == 0 && o->backup && !f->backed)
        r = make_backup(f, p, o, h, e);
    if (r < 0)
        return r;
    if (ret->strategy == EDIT_INPLACE)
        return write_inplace(f, p, h, ret, e);
    r = make_new_file(f, p, h, NULL, &ret->old_fd, e);
    inplace.strategy = EDIT_INPLACE; /* a copy may meet a quota, which no look at the disk shows */
    if ((r != -ENOSPC && r != -EDQUOT) || o->strategy != EDIT_AUTO || f->unsynced ||
        edit_way(f, p, &inplace, &ret->strategy, &copies, &(struct err){0}) < 0)
        return r;
    if (e)
        *e = (struct err){0};
    return write_inplace(f, p, h, ret, e);
}
