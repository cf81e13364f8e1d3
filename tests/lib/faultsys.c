/* SPDX-License-Identifier: MIT */
/* Makes chosen system calls fail, and simulates what a power cut destroys: see faultsys.h. */
#include "faultsys.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define SHORT_MAX 1000
#define SECTOR 512

static struct faultsys *self(const struct sys *s)
{
    return (struct faultsys *)(uintptr_t)s;
}

static const struct sys *real = &sys_libc;

/* ---- what a power cut destroys ---- */

/* Return the next number from splitmix64. */
static uint64_t lot(struct faultsys *fs)
{
    uint64_t z = fs->seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

void fault_log_write(struct faultsys *fs, int fd, uint64_t off, size_t n)
{
    struct stat st;
    if (fs->mode != FAULT_POWER || real->fstat(real, fd, &st) < 0)
        return;
    struct fault_write *w = calloc(1, sizeof(*w) + n);
    if (!w)
        abort();
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->fd = open(path, O_RDWR | O_CLOEXEC); /* fd itself may be write-only */
    w->ino = st.st_ino;
    w->off = off;
    w->size = (uint64_t)st.st_size;
    w->n = n;
    if (w->fd < 0 || (n && pread(w->fd, w->was, n, (off_t)off) < 0))
        abort();
    w->next = fs->writes;
    fs->writes = w;
}

struct fault_entry *fault_log_entry(struct faultsys *fs, int dir, const char *from, const char *to)
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

static void forget_write(struct fault_write *w)
{
    (void)close(w->fd);
    free(w->written);
    free(w);
}

/* After a write has been synced, mark its sectors as written in the writes that a failed fsync
 * dropped. */
static void write_anew(struct faultsys *fs, const struct fault_write *now)
{
    for (struct fault_write *w = fs->writes; w; w = w->next)
        for (size_t i = 0; i < w->n && w->dropped && w->ino == now->ino; i += SECTOR)
            w->written[i / SECTOR] |=
                w->off + i < now->off + now->n && now->off < w->off + i + SECTOR;
}

void fault_synced(struct faultsys *fs, uint64_t ino)
{
    for (struct fault_write **at = &fs->writes; *at;) {
        struct fault_write *w = *at;
        if (w->ino != ino || w->dropped) {
            at = &w->next;
            continue;
        }
        write_anew(fs, w);
        *at = w->next;
        forget_write(w);
    }
}

void fault_not_synced(struct faultsys *fs, uint64_t ino)
{
    for (struct fault_write *w = fs->writes; w; w = w->next) {
        if (w->ino != ino || w->dropped || w->n == 0)
            continue;
        w->dropped = true;
        w->written = calloc(w->n / SECTOR + 1, 1);
        if (!w->written)
            abort();
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

/* Record that the directory was synced. */
void fault_synced_folder(struct faultsys *fs, const struct stat *synced)
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
        if ((lot(fs) & 1) && !(w->written && w->written[i / SECTOR])) {
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

/* True if an earlier change to one of e's names has been lost. */
static bool lost_before(const struct fault_entry *e)
{
    for (const struct fault_entry *p = e->next; p; p = p->next)
        if (p->lost && (names(p, e->from) || names(p, e->to)))
            return true;
    return false;
}

/* Choose which changes are lost, starting with the oldest, which is the last in the list. */
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
    /* Undo the newest change first. A change is kept only if it shares no name with an earlier lost
     * one. */
    for (struct fault_entry *e = fs->entries; e; e = e->next)
        if (e->lost) {
            undo_entry(e);
            e->kept[0] = '\0';
        }
    forget_entries(fs);
}

/* ---- faults ---- */

/* Count a call. Returns true if the call must return *ret without being made. */
static bool fault(const struct sys *s, const char *what, int fd, int *ret)
{
    struct faultsys *fs = self(s);
    *ret = fs->each ? fs->each(what, fd) : 0;
    if (*ret)
        return true;
    const bool named = fs->before && strcmp(fs->before, what) == 0;
    if (named || (fs->at && fs->at == fs->calls + 1)) {
        fs->before = NULL;
        fs->at = 0;
        fs->hook(fs->arg);
    }
    bool due = ++fs->calls == fs->n || (fs->mode == FAULT_BROKEN && fs->calls > fs->n);
    if (!due || fs->mode == FAULT_NONE)
        return false;
    fs->what = fs->hit ? fs->what : what;
    fs->hit = true;
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

static ssize_t room_for(const struct sys *s, int fd, uint64_t off, size_t n)
{
    return self(s)->room ? self(s)->room(fd, off, n) : (ssize_t)n;
}

/* ---- the table ---- */

#define FAULT(name, fd)              \
    int failed;                      \
    if (fault(s, name, fd, &failed)) \
    return failed

/* A call that only fails. */
#define PASS(type, name, what, params, fd, ...)   \
    static type f_##name params                   \
    {                                             \
        FAULT(what, fd);                          \
        return real->name(real, fd, __VA_ARGS__); \
    }
PASS(int, flock, "flock", (const struct sys *s, int fd, int how), fd, how)
PASS(int, fstat, "fstat", (const struct sys *s, int fd, struct stat *ret), fd, ret)
PASS(int, fchmod, "fchmod", (const struct sys *s, int fd, mode_t mode), fd, mode)
PASS(int, fchown, "fchown", (const struct sys *s, int fd, uid_t uid, gid_t gid), fd, uid, gid)
PASS(ssize_t, fgetxattr, "fgetxattr",
     (const struct sys *s, int fd, const char *name, void *dst, size_t n), fd, name, dst, n)
PASS(int, fremovexattr, "fremovexattr", (const struct sys *s, int fd, const char *name), fd, name)
PASS(int, list, "list",
     (const struct sys *s, int dir, int (*fn)(void *arg, const char *name), void *arg), dir, fn,
     arg)

/* No data is found in a file without a name: it is never synced, so what was written to it may be in
 * the kernel's pages only, which a file system that asks a server does not search. */
static int f_seek(const struct sys *s, int fd, uint64_t at, int how, uint64_t *ret)
{
    struct stat st;
    FAULT("lseek", fd);
    if (real->fstat(real, fd, &st) == 0 && st.st_nlink == 0)
        return -ENXIO;
    return real->seek(real, fd, at, how, ret);
}

static void note_name(const struct sys *s, int dir, const char *name)
{
    self(s)->loose |= dir < 0 || strchr(name, '/') || strcmp(name, "..") == 0;
}

static int f_openat(const struct sys *s, int dir, const char *name, int flags, mode_t mode)
{
    assert(flags & O_CLOEXEC);
    const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
    FAULT(nameless || flags & O_CREAT ? "create" : "openat", dir);
    note_name(s, dir, name);
    self(s)->loose |= !(flags & O_NOFOLLOW) || !(flags & O_CREAT) != !(flags & O_EXCL);
    int no = nameless ? self(s)->lacks.no_tmpfile : flags & O_CREAT ? self(s)->lacks.no_create : 0;
    if (no)
        return no;
    int fd = real->openat(real, dir, name, flags, mode);
    if (fd >= 0 && (flags & O_CREAT)) {
        self(s)->created++;
        self(s)->fresh = fd;
        if (self(s)->mode == FAULT_POWER)
            (void)fault_log_entry(self(s), dir, name, "");
    }
    return fd;
}

static int f_close(const struct sys *s, int fd)
{
    if (self(s)->fresh == fd)
        self(s)->fresh = -1;
    if (self(s)->each)
        (void)self(s)->each("close", fd);
    return real->close(real, fd);
}

static ssize_t f_pread(const struct sys *s, int fd, void *dst, size_t n, uint64_t off)
{
    FAULT("pread", fd);
    if (self(s)->lacks.no_read && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY)
        return self(s)->lacks.no_read;
    return real->pread(real, fd, dst, shorten(s, n), off);
}

static ssize_t f_pwrite(const struct sys *s, int fd, const void *src, size_t n, uint64_t off)
{
    FAULT("pwrite", fd);
    if (self(s)->frozen && fd == self(s)->frozen)
        return -EPERM;
    const ssize_t room = room_for(s, fd, off, n);
    if (room < 0)
        return room;
    fault_log_write(self(s), fd, off, (size_t)room);
    return real->pwrite(real, fd, src, shorten(s, (size_t)room), off);
}

static int f_ftruncate(const struct sys *s, int fd, uint64_t size)
{
    FAULT("ftruncate", fd);
    fault_log_write(self(s), fd, 0, 0);
    return real->ftruncate(real, fd, size);
}

static int f_fsync(const struct sys *s, int fd)
{
    struct stat st;
    int failed;
    const bool fails = fault(s, "fsync", fd, &failed);
    if (real->fstat(real, fd, &st) < 0)
        return -EBADF;
    if (fails) {
        fault_not_synced(self(s), st.st_ino);
        return failed;
    }
    if (S_ISDIR(st.st_mode))
        fault_synced_folder(self(s), &st);
    else
        fault_synced(self(s), st.st_ino);
    return 0;
}

static int f_settled(const struct sys *s, int fd)
{
    FAULT("settled", fd);
    return 0;
}

static ssize_t f_copy_range(const struct sys *s, int from, uint64_t from_off, int to,
                            uint64_t to_off, size_t n)
{
    FAULT("copy_file_range", to);
    if (self(s)->no_range)
        return self(s)->no_range;
    const ssize_t room = room_for(s, to, to_off, n);
    if (room < 0)
        return room;
    fault_log_write(self(s), to, to_off, (size_t)room);
    return real->copy_range(real, from, from_off, to, to_off, shorten(s, (size_t)room));
}

static int f_clone_range(const struct sys *s, int from, uint64_t from_off, int to, uint64_t to_off,
                         uint64_t n)
{
    FAULT("clone", to);
    if (self(s)->clone) /* the probe writes to a file that is then removed */
        return 0;
    return real->clone_range(real, from, from_off, to, to_off, n);
}

static int f_fstatat(const struct sys *s, int dir, const char *name, struct stat *ret)
{
    FAULT("fstatat", dir);
    note_name(s, dir, name);
    return real->fstatat(real, dir, name, ret);
}

static int f_fstatvfs(const struct sys *s, int fd, struct statvfs *ret)
{
    FAULT("fstatvfs", fd);
    int r = real->fstatvfs(real, fd, ret);
    if (self(s)->full)
        ret->f_bfree = ret->f_bavail = 0;
    return r;
}

static ssize_t f_flistxattr(const struct sys *s, int fd, char *dst, size_t n)
{
    FAULT("flistxattr", fd);
    if (self(s)->lacks.no_list)
        return self(s)->lacks.no_list;
    return real->flistxattr(real, fd, dst, n);
}

static int f_fsetxattr(const struct sys *s, int fd, const char *name, const void *value, size_t n)
{
    FAULT("fsetxattr", fd);
    if (self(s)->no_xattr)
        return self(s)->no_xattr;
    return real->fsetxattr(real, fd, name, value, n);
}

/* Give a second name to a file that will lose its own. */
static void keep(const struct faultsys *fs, int dir, const char *name, char kept[64])
{
    (void)snprintf(kept, 64, "kept-by-faultsys-%u", fs->calls);
    if (linkat(dir, name, dir, kept, 0) < 0)
        kept[0] = '\0';
}

/* True if another handle has locked the file. */
static bool has_lock(int dir, const char *name)
{
    const int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool locked = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
    (void)close(fd);
    return locked;
}

static int f_rename(const struct sys *s, int dir, const char *from, const char *to, unsigned flags)
{
    struct faultsys *fs = self(s);
    int failed;
    const bool late = fs->done && fs->hit, fails = fault(s, "rename", dir, &failed);
    note_name(s, dir, from);
    note_name(s, dir, to);
    if (fails && !fs->done)
        return failed;
    fs->loose |= has_lock(dir, to) && !has_lock(dir, from);
    if ((fs->no_exchange || fs->lacks.no_replace) && flags)
        return fails ? failed : -EINVAL;
    if (fs->lacks.no_rename)
        return fs->lacks.no_rename;
    if (fs->lacks.no_replace && real->unlinkat(real, dir, to) == 0)
        return fs->lacks.no_replace;
    char kept[64] = "";
    if (fs->mode == FAULT_POWER && !flags)
        keep(fs, dir, to, kept);
    int r = real->rename(real, dir, from, to, flags);
    if (r == 0 && fs->mode == FAULT_POWER) {
        struct fault_entry *e = fault_log_entry(fs, dir, to, from);
        e->flags = flags;
        memcpy(e->kept, kept, sizeof(kept));
    }
    return fails ? failed : late ? fs->error : r;
}

static int f_unlinkat(const struct sys *s, int dir, const char *name)
{
    struct faultsys *fs = self(s);
    FAULT("unlinkat", dir);
    note_name(s, dir, name);
    if (fs->lacks.sticky && fs->fresh >= 0)
        return 0;
    char kept[64] = "";
    if (fs->mode == FAULT_POWER)
        keep(fs, dir, name, kept);
    int r = real->unlinkat(real, dir, name);
    if (r == 0 && fs->mode == FAULT_POWER)
        memcpy(fault_log_entry(fs, dir, name, "")->kept, kept, sizeof(kept));
    return r;
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
                .settled = f_settled,
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
                .list = f_list},
        .mode = mode,
        .n = n,
        .error = error,
        .fresh = -1,
    };
}
