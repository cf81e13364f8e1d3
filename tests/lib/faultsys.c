/* SPDX-License-Identifier: MIT */
/* System calls that fail at a chosen call: see faultsys.h. */
#include "faultsys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECTOR 512
#define SHORT_MAX 1000

struct fault_write {
    struct fault_write *next;
    int fd;                  /* a duplicate */
    uint64_t ino, off, size; /* size: of the file before */
    size_t n;                /* bytes before, of which `was` are kept; beyond the old size: zeros */
    uint8_t was[];
};

/* How a change of the folder is undone: by a rename, or (to is empty) by removing `from`. */
struct fault_entry {
    struct fault_entry *next; /* the one before */
    bool lost;
    int dir;
    unsigned flags;
    char from[256], to[256];
    char kept[64]; /* what the change removed: gets the name `from` back, or goes with the sync */
};

static struct faultsys *self(const struct sys *s)
{
    return (struct faultsys *)(uintptr_t)s;
}

static const struct sys *real = &sys_libc;

/* The lot: splitmix64. */
static uint64_t lot(struct faultsys *fs)
{
    uint64_t z = fs->seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/* The log of FAULT_POWER. */

static void log_write(struct faultsys *fs, int fd, uint64_t off, size_t n)
{
    struct stat st;
    if (fs->mode != FAULT_POWER || real->fstat(real, fd, &st) < 0)
        return;
    struct fault_write *w = calloc(1, sizeof(*w) + n);
    if (!w)
        abort();
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->fd = open(path, O_RDWR | O_CLOEXEC); /* the fd itself may be write-only */
    w->ino = st.st_ino;
    w->off = off;
    w->size = (uint64_t)st.st_size;
    w->n = n;
    if (w->fd < 0 || (n && pread(w->fd, w->was, n, (off_t)off) < 0))
        abort();
    w->next = fs->writes;
    fs->writes = w;
}

static struct fault_entry *log_entry(struct faultsys *fs, int dir, const char *from, const char *to)
{
    struct fault_entry *e = calloc(1, sizeof(*e));
    if (!e)
        abort();
    e->dir = dir;
    (void)snprintf(e->from, sizeof(e->from), "%s", from);
    (void)snprintf(e->to, sizeof(e->to), "%s", to);
    e->next = fs->entries;
    fs->entries = e;
    return e;
}

static void forget_writes(struct faultsys *fs, uint64_t ino)
{
    for (struct fault_write **at = &fs->writes; *at;) {
        struct fault_write *w = *at;
        if (w->ino != ino) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        (void)close(w->fd);
        free(w);
    }
}

static void forget_entry(struct fault_entry *e)
{
    if (e->kept[0])
        (void)unlinkat(e->dir, e->kept, 0);
    free(e);
}

static void forget_entries(struct faultsys *fs)
{
    while (fs->entries) {
        struct fault_entry *e = fs->entries;
        fs->entries = e->next;
        forget_entry(e);
    }
}

/* Of the folder that was synced. */
static void sync_entries(struct faultsys *fs, const struct stat *synced)
{
    for (struct fault_entry **at = &fs->entries; *at;) {
        struct fault_entry *e = *at;
        struct stat st;
        if (fstat(e->dir, &st) == 0 &&
            (st.st_dev != synced->st_dev || st.st_ino != synced->st_ino)) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        forget_entry(e);
    }
}

static void undo_entry(const struct fault_entry *e)
{
    if (e->to[0])
        (void)renameat2(e->dir, e->from, e->dir, e->to, e->flags);
    else if (!e->kept[0])
        (void)unlinkat(e->dir, e->from, 0);
    if (e->kept[0])
        (void)renameat(e->dir, e->kept, e->dir, e->from);
}

static void lose_write(struct faultsys *fs, const struct fault_write *w)
{
    for (size_t i = 0; i < w->n; i += SECTOR)
        if (lot(fs) & 1) {
            size_t n = w->n - i < SECTOR ? w->n - i : SECTOR;
            if (pwrite(w->fd, w->was + i, n, (off_t)(w->off + i)) < 0)
                abort();
        }
    if (w->n == 0 && (lot(fs) & 1) && ftruncate(w->fd, (off_t)w->size) < 0)
        abort();
}

static bool names(const struct fault_entry *e, const char *name)
{
    return strcmp(e->from, name) == 0 || (name[0] && strcmp(e->to, name) == 0);
}

/* Has an earlier change of one of its names been lost? */
static bool lost_before(const struct fault_entry *e)
{
    for (const struct fault_entry *p = e->next; p; p = p->next)
        if (p->lost && (names(p, e->from) || names(p, e->to)))
            return true;
    return false;
}

/* From the oldest on, which is the last of the list. */
static void choose_lost(struct faultsys *fs, struct fault_entry *e)
{
    if (!e)
        return;
    choose_lost(fs, e->next);
    bool unlucky = lot(fs) & 1;
    e->lost = unlucky || lost_before(e);
}

void faultsys_power_cut(struct faultsys *fs)
{
    for (struct fault_write *w = fs->writes; w; w = w->next)
        lose_write(fs, w);
    choose_lost(fs, fs->entries);
    /* The newest first. A change that stays has no name in common with a lost one before it. */
    for (struct fault_entry *e = fs->entries; e; e = e->next)
        if (e->lost) {
            undo_entry(e);
            e->kept[0] = '\0';
        }
    forget_entries(fs);
}

/* Count a call; true if it must return *ret instead of being made. */
static bool fault(const struct sys *s, const char *what, int *ret)
{
    struct faultsys *fs = self(s);
    if (fs->before && strcmp(fs->before, what) == 0) {
        fs->before = NULL;
        fs->hook(fs->arg);
    }
    bool due = ++fs->calls == fs->n || (fs->mode == FAULT_BROKEN && fs->calls > fs->n);
    if (!due || fs->mode == FAULT_NONE || fs->mode == FAULT_SHORT)
        return false;
    fs->hit = true;
    fs->what = what;
    if (fs->mode == FAULT_POWER)
        faultsys_power_cut(fs);
    if (fs->mode != FAULT_FAIL && fs->mode != FAULT_BROKEN)
        _exit(FAULT_EXIT);
    *ret = fs->error;
    return true;
}

static size_t shorten(const struct sys *s, size_t n)
{
    return self(s)->brief && n > SHORT_MAX ? SHORT_MAX : n;
}

/* The table. */

#define FAULT(name)              \
    int failed;                  \
    if (fault(s, name, &failed)) \
    return failed

static void note_name(const struct sys *s, int dir, const char *name)
{
    self(s)->loose |= dir < 0 || strchr(name, '/') || strcmp(name, "..") == 0;
}

static int f_openat(const struct sys *s, int dir, const char *name, int flags, mode_t mode)
{
    FAULT("openat");
    note_name(s, dir, name);
    self(s)->loose |= !(flags & O_NOFOLLOW) || !(flags & O_CREAT) != !(flags & O_EXCL);
    bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
    int no = nameless ? self(s)->no_tmpfile : flags & O_CREAT ? self(s)->no_create : 0;
    if (no)
        return no;
    int fd = real->openat(real, dir, name, flags, mode);
    if (fd >= 0 && (flags & O_CREAT)) {
        self(s)->created++;
        self(s)->fresh = fd;
        if (self(s)->mode == FAULT_POWER)
            (void)log_entry(self(s), dir, name, "");
    }
    return fd;
}

static int f_close(const struct sys *s, int fd)
{
    if (self(s)->fresh == fd)
        self(s)->fresh = -1;
    return real->close(real, fd);
}

static ssize_t f_pread(const struct sys *s, int fd, void *dst, size_t n, uint64_t off)
{
    FAULT("pread");
    if (self(s)->no_read && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
        return self(s)->no_read;
    return real->pread(real, fd, dst, shorten(s, n), off);
}

static ssize_t f_pwrite(const struct sys *s, int fd, const void *src, size_t n, uint64_t off)
{
    FAULT("pwrite");
    if (self(s)->frozen && fd == self(s)->frozen)
        return -EPERM;
    log_write(self(s), fd, off, n);
    return real->pwrite(real, fd, src, shorten(s, n), off);
}

static int f_ftruncate(const struct sys *s, int fd, uint64_t size)
{
    FAULT("ftruncate");
    log_write(self(s), fd, 0, 0);
    return real->ftruncate(real, fd, size);
}

static int f_fsync(const struct sys *s, int fd)
{
    struct stat st;
    FAULT("fsync");
    if (real->fstat(real, fd, &st) < 0)
        return -EBADF;
    if (S_ISDIR(st.st_mode))
        sync_entries(self(s), &st);
    else
        forget_writes(self(s), st.st_ino);
    return 0;
}

static int f_flock(const struct sys *s, int fd, int how)
{
    FAULT("flock");
    return real->flock(real, fd, how);
}

static int f_seek(const struct sys *s, int fd, uint64_t off, int whence, uint64_t *ret)
{
    FAULT("lseek");
    return real->seek(real, fd, off, whence, ret);
}

static ssize_t f_copy_range(const struct sys *s, int from, uint64_t from_off, int to,
                            uint64_t to_off, size_t n)
{
    FAULT("copy_file_range");
    if (self(s)->no_range)
        return self(s)->no_range;
    log_write(self(s), to, to_off, n);
    return real->copy_range(real, from, from_off, to, to_off, shorten(s, n));
}

/* What file systems demand: whole blocks, but for the end of the file. */
static int clone_by_copy(struct faultsys *fs, int from, uint64_t from_off, int to, uint64_t to_off,
                         uint64_t n)
{
    struct stat st;
    if (real->fstat(real, from, &st) < 0)
        return -EBADF;
    uint64_t size = (uint64_t)st.st_size;
    n = n ? n : size - from_off;
    if (from_off % 4096 || to_off % 4096 || from_off + n > size ||
        (n % 4096 && from_off + n != size))
        return -EINVAL;
    log_write(fs, to, to_off, (size_t)n);
    uint8_t *bytes = malloc((size_t)n + 1);
    int r = bytes ? sys_read_all(real, from, bytes, (size_t)n, from_off) : -ENOMEM;
    if (r == 0)
        r = sys_write_all(real, to, bytes, (size_t)n, to_off);
    free(bytes);
    return r;
}

static int f_clone_range(const struct sys *s, int from, uint64_t from_off, int to, uint64_t to_off,
                         uint64_t n)
{
    FAULT("clone");
    if (self(s)->clone)
        return clone_by_copy(self(s), from, from_off, to, to_off, n);
    return real->clone_range(real, from, from_off, to, to_off, n);
}

static int f_fstat(const struct sys *s, int fd, struct stat *ret)
{
    FAULT("fstat");
    return real->fstat(real, fd, ret);
}

static int f_fstatat(const struct sys *s, int dir, const char *name, struct stat *ret)
{
    FAULT("fstatat");
    note_name(s, dir, name);
    return real->fstatat(real, dir, name, ret);
}

static int f_fstatvfs(const struct sys *s, int fd, struct statvfs *ret)
{
    FAULT("fstatvfs");
    int r = real->fstatvfs(real, fd, ret);
    if (self(s)->full)
        ret->f_bfree = ret->f_bavail = 0;
    return r;
}

static int f_fchmod(const struct sys *s, int fd, mode_t mode)
{
    FAULT("fchmod");
    return real->fchmod(real, fd, mode);
}

static int f_fchown(const struct sys *s, int fd, uid_t uid, gid_t gid)
{
    FAULT("fchown");
    return real->fchown(real, fd, uid, gid);
}

static ssize_t f_flistxattr(const struct sys *s, int fd, char *dst, size_t n)
{
    FAULT("flistxattr");
    if (self(s)->no_list)
        return self(s)->no_list;
    return real->flistxattr(real, fd, dst, n);
}

static ssize_t f_fgetxattr(const struct sys *s, int fd, const char *name, void *dst, size_t n)
{
    FAULT("fgetxattr");
    return real->fgetxattr(real, fd, name, dst, n);
}

static int f_fsetxattr(const struct sys *s, int fd, const char *name, const void *value, size_t n)
{
    FAULT("fsetxattr");
    if (self(s)->no_xattr)
        return self(s)->no_xattr;
    return real->fsetxattr(real, fd, name, value, n);
}

static int f_fremovexattr(const struct sys *s, int fd, const char *name)
{
    FAULT("fremovexattr");
    return real->fremovexattr(real, fd, name);
}

/* A second name for a file that is about to lose its own. */
static void keep(const struct faultsys *fs, int dir, const char *name, char kept[64])
{
    (void)snprintf(kept, 64, "kept-by-faultsys-%u", fs->calls);
    if (linkat(dir, name, dir, kept, 0) < 0)
        kept[0] = '\0';
}

static int f_rename(const struct sys *s, int dir, const char *from, const char *to, unsigned flags)
{
    struct faultsys *fs = self(s);
    FAULT("rename");
    note_name(s, dir, from);
    note_name(s, dir, to);
    if ((fs->no_exchange || fs->no_replace) && flags)
        return -EINVAL;
    if (fs->no_rename)
        return fs->no_rename;
    if (fs->no_replace && real->unlinkat(real, dir, to) == 0)
        return fs->no_replace;
    char kept[64] = "";
    if (fs->mode == FAULT_POWER && !flags)
        keep(fs, dir, to, kept);
    int r = real->rename(real, dir, from, to, flags);
    if (r == 0 && fs->mode == FAULT_POWER) {
        struct fault_entry *e = log_entry(fs, dir, to, from);
        e->flags = flags;
        memcpy(e->kept, kept, sizeof(kept));
    }
    return r;
}

static int f_unlinkat(const struct sys *s, int dir, const char *name)
{
    struct faultsys *fs = self(s);
    FAULT("unlinkat");
    note_name(s, dir, name);
    if (fs->sticky && fs->fresh >= 0)
        return 0;
    char kept[64] = "";
    if (fs->mode == FAULT_POWER)
        keep(fs, dir, name, kept);
    int r = real->unlinkat(real, dir, name);
    if (r == 0 && fs->mode == FAULT_POWER)
        memcpy(log_entry(fs, dir, name, "")->kept, kept, sizeof(kept));
    return r;
}

/* A folder that is made stays: only its content is of interest. */
static int f_mkdirat(const struct sys *s, int dir, const char *name, mode_t mode)
{
    FAULT("mkdirat");
    note_name(s, dir, name);
    return real->mkdirat(real, dir, name, mode);
}

static int f_list(const struct sys *s, int dir, int (*fn)(void *arg, const char *name), void *arg)
{
    FAULT("list");
    return real->list(real, dir, fn, arg);
}

void faultsys_init(struct faultsys *fs, enum fault_mode mode, unsigned n, int error)
{
    *fs = (struct faultsys){
        .sys = {.openat = f_openat,
                .close = f_close,
                .pread = f_pread,
                .pwrite = f_pwrite,
                .ftruncate = f_ftruncate,
                .fsync = f_fsync,
                .flock = f_flock,
                .seek = f_seek,
                .copy_range = f_copy_range,
                .clone_range = f_clone_range,
                .fstat = f_fstat,
                .fstatat = f_fstatat,
                .fstatvfs = f_fstatvfs,
                .fchmod = f_fchmod,
                .fchown = f_fchown,
                .flistxattr = f_flistxattr,
                .fgetxattr = f_fgetxattr,
                .fsetxattr = f_fsetxattr,
                .fremovexattr = f_fremovexattr,
                .rename = f_rename,
                .unlinkat = f_unlinkat,
                .mkdirat = f_mkdirat,
                .list = f_list},
        .mode = mode,
        .brief = mode == FAULT_SHORT,
        .n = n,
        .error = error,
        .fresh = -1,
    };
}
