/* SPDX-License-Identifier: MIT */
/* The disk: see disk.h. */
#include "disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "faultsys.h"
#include "hooks.h"
#include "scheduler.h"

/* The table of system calls that the program gets, instead of sys_libc, begins with fs.sys. */
extern struct faultsys __wrap_sys_libc;
struct faultsys __wrap_sys_libc;
static struct faultsys *const fs = &__wrap_sys_libc;

enum {
    GRAIN = 4000000,
    FAULTS = 8,
    ROOM_SHIFT = 40
}; /* GRAIN: all file times are multiples of this many nanoseconds */

static struct {
    struct disk_state *s;
    struct {
        char call[20];
        unsigned n, times;
        int error;
    } fault[FAULTS];
    uint64_t room;
    unsigned slow, then;
    void (*fn)(void);
} disk;

/* Size in bytes of the arena for unsynced changes. It is freed as a whole: each story begins with
 * an empty one. */
enum { ARENA = 1 << 28 };
static uint8_t *arena;

/* ---- files, as the disk sees them ---- */

static uint64_t stamp(void)
{
    return sched_now() / GRAIN * GRAIN;
}

static struct disk_file *file_of(uint64_t real)
{
    size_t i = (size_t)(real * 0x9E3779B1u) % 4096;
    while (disk.s->file[i].real && disk.s->file[i].real != real)
        i = (i + 1) % 4096;
    struct disk_file *f = &disk.s->file[i];
    if (!f->real) {
        if (disk.s->n == 4000)
            sched_fail("4000 files were made");
        *f = (struct disk_file){real, ++disk.s->n + 100, stamp(), stamp()};
    }
    return f;
}

static struct timespec date(uint64_t ns)
{
    return (struct timespec){(time_t)(1700000000 + ns / 1000000000), (long)(ns % 1000000000)};
}

static int mend(int r, struct stat *st)
{
    if (r < 0 || !disk.s || (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)))
        return r;
    const struct disk_file *f = file_of(st->st_ino);
    st->st_ino = f->number;
    st->st_mtim = st->st_atim = date(f->mtime);
    st->st_ctim = date(f->ctime);
    return r;
}

int __wrap_fstat64(int fd, struct stat *ret)
{
    return mend(__real_fstat64(fd, ret), ret);
}

int __wrap_stat64(const char *path, struct stat *ret)
{
    return mend(__real_stat64(path, ret), ret);
}

int __wrap_fstatat64(int dir, const char *name, struct stat *ret, int flags)
{
    return mend(__real_fstatat64(dir, name, ret, flags), ret);
}

static int with_room(int r, struct statvfs *v)
{
    v->f_bsize = v->f_frsize = 4096;
    v->f_blocks = (fsblkcnt_t)1 << 30;
    v->f_bfree = v->f_bavail = (fsblkcnt_t)(disk.room / 4096);
    return r;
}

int __wrap_fstatvfs64(int fd, struct statvfs *ret)
{
    return with_room(__real_fstatvfs64(fd, ret), ret);
}

static void touched(int fd, bool content)
{
    struct stat st;
    if (__real_fstat64(fd, &st) < 0)
        return;
    struct disk_file *f = file_of(st.st_ino);
    f->ctime = stamp();
    if (content)
        f->mtime = stamp();
}

/* A call changes the times of a file, or of a directory in which it changes names. */
static void touch(const char *call, int fd)
{
    static const char content[] = "pwrite ftruncate copy_file_range clone create rename unlinkat ",
                      other[] = "fchmod fchown fsetxattr fremovexattr ";
    const char *in_content = strstr(content, call);
    if (in_content || strstr(other, call))
        touched(fd, in_content);
}

bool disk_is_old(const char *path)
{
    struct stat st;
    return __real_stat64(path, &st) == 0 && file_of(st.st_ino)->mtime < stamp();
}

/* ---- faults ---- */

static int fails(const char *call, int fd)
{
    sched_point(call, 0);
    if (disk.then && --disk.then == 0)
        disk.fn();
    if (disk.slow && sched_lot(20))
        sched_pass(disk.slow);
    for (unsigned i = 0; i < FAULTS; i++) {
        if (!disk.fault[i].times ||
            strncmp(call, disk.fault[i].call, strlen(disk.fault[i].call)) != 0)
            continue;
        if (disk.fault[i].n > 1) {
            disk.fault[i].n--;
            continue;
        }
        disk.fault[i].times--;
        disk.s->hits++;
        sched_note("%s fails with %d", call, disk.fault[i].error);
        return -disk.fault[i].error;
    }
    touch(call, fd);
    return 0;
}

/* Reserves space for n bytes at an offset. Returns how many of them may be written, or -ENOSPC. */
static ssize_t roomy(int fd, uint64_t off, size_t n)
{
    struct stat st;
    if (__real_fstat64(fd, &st) < 0 || off + n <= (uint64_t)st.st_size)
        return (ssize_t)n;
    uint64_t more = off + n - (off > (uint64_t)st.st_size ? off : (uint64_t)st.st_size);
    if (more <= disk.room) {
        disk.room -= more;
        return (ssize_t)n;
    }
    uint64_t part = n - (more - disk.room);
    disk.s->hits++;
    disk.room = 0;
    sched_note("the disk is full");
    return part && part < n ? (ssize_t)part : -ENOSPC;
}

void disk_fail(const char *call, unsigned n, int error, unsigned times)
{
    for (unsigned i = 0; i < FAULTS; i++) {
        if (disk.fault[i].times)
            continue;
        disk.fault[i].n = n;
        disk.fault[i].error = error;
        disk.fault[i].times = times;
        strncpy(disk.fault[i].call, call, sizeof(disk.fault[i].call) - 1);
        return;
    }
}

void disk_room(uint64_t bytes)
{
    disk.room = bytes;
    disk.s->hits++; /* a full disk counts as a fault even if only fstatvfs() reports it */
}

void disk_brief(bool brief)
{
    fs->brief = brief;
}

void disk_slow(unsigned ms)
{
    disk.slow = ms;
}

void disk_mend(void)
{
    memset(disk.fault, 0, sizeof(disk.fault));
    disk.room = UINT64_C(1) << ROOM_SHIFT;
    disk.slow = 0;
    fs->brief = false;
}

void disk_cut(uint64_t seed)
{
    fs->seed = seed;
    faultsys_power_cut(fs);
    disk.s->writes = NULL;
    disk.s->entries = NULL;
}

void disk_then(unsigned n, void (*fn)(void))
{
    disk.then = n;
    disk.fn = fn;
}

void disk_now(void)
{
    if (disk.then)
        disk.fn();
}

/* ---- processes ---- */

void disk_prepare(void)
{
    arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (arena == MAP_FAILED)
        abort();
}

void *disk_calloc(size_t n, size_t size)
{
    const size_t bytes = (n * size + 15) / 16 * 16;
    if (bytes > ARENA - disk.s->used)
        sched_fail("too much is not synced");
    disk.s->used += bytes;
    return memset(arena + disk.s->used - bytes, 0, bytes);
}

void *disk_malloc(size_t n)
{
    return disk_calloc(1, n);
}

void disk_free(void *p)
{
    (void)p;
}

/* Opens the file with this inode number. Returns -1 if it has no name in the directory. */
static int open_number(int dir, uint64_t ino)
{
    struct stat st;
    int fd = -1;
    DIR *d = fdopendir(dup(dir));
    rewinddir(d);
    for (const struct dirent *e; fd < 0 && (e = readdir(d));)
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == ino)
            fd = openat(dir, e->d_name, O_RDWR | O_CLOEXEC);
    (void)closedir(d);
    return fd;
}

/* Inherits the unsynced changes of a killed process. Files without a name have nothing to
 * lose. */
static void inherit(const char *folder)
{
    const int dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fs->calls = disk.s->calls;
    fs->entries = disk.s->entries;
    for (struct fault_entry *e = fs->entries; e; e = e->next)
        e->dir = dir;
    fs->writes = disk.s->writes;
    for (struct fault_write **at = &fs->writes; *at;) {
        (*at)->fd = open_number(dir, (*at)->ino);
        if ((*at)->fd < 0)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
}

void disk_leave(const char *folder)
{
    struct stat here, st;
    (void)__real_stat64(folder, &here);
    for (struct fault_entry **at = &fs->entries; *at;)
        if (__real_fstat64((*at)->dir, &st) < 0 || st.st_ino != here.st_ino)
            *at = (*at)->next; /* the file is in a different directory, such as the history's */
        else
            at = &(*at)->next;
    disk.s->writes = fs->writes;
    disk.s->entries = fs->entries;
    disk.s->calls = fs->calls;
}

void disk_begin(struct disk_state *state, const char *folder, bool cuts, unsigned features)
{
    memset(&disk, 0, sizeof(disk));
    disk.s = state;
    faultsys_init(fs, cuts ? FAULT_POWER : FAULT_NONE, 0, 0);
    fs->each = fails;
    fs->room = roomy;
    fs->clone = features & CLONES;
    fs->no_exchange = features & NO_EXCHANGE;
    fs->lacks.no_tmpfile = features & NO_NAMELESS ? -EOPNOTSUPP : 0;
    fs->no_range = features & NO_RANGE ? -EXDEV : 0;
    inherit(folder);
    disk_mend();
}

/* ---- without faults and points ---- */

uint8_t *disk_read(const char *path, size_t *n)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    (void)__real_fstat64(fd, &st);
    *n = (size_t)st.st_size;
    uint8_t *bytes = __real_malloc(*n + 1);
    if (bytes && pread(fd, bytes, *n, 0) != (ssize_t)*n) {
        __real_free(bytes);
        bytes = NULL;
    }
    (void)close(fd);
    return bytes;
}

bool disk_write(const char *path, const uint8_t *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool good = fd >= 0 && write(fd, bytes, n) == (ssize_t)n;
    if (good)
        touched(fd, true);
    if (fd >= 0)
        (void)close(fd);
    return good;
}
