/* SPDX-License-Identifier: MIT */
/* The table of system calls: see sys.h. The edit layer never sees errno. */
#include "base/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SELF __attribute__((unused)) const struct sys *s

/* Define the entry do_NAME() for a call that returns -1 and sets errno. */
#define CALL(type, name, call, ...)          \
    static type do_##name(SELF, __VA_ARGS__) \
    {                                        \
        const type r = call;                 \
        return r < 0 ? -errno : r;           \
    }

CALL(int, openat, openat(dir, name, flags, mode), int dir, const char *name, int flags, mode_t mode)
CALL(int, close, close(fd), int fd)
CALL(ssize_t, pread, pread(fd, dst, n, (off_t)off), int fd, void *dst, size_t n, uint64_t off)
CALL(ssize_t, pwrite, pwrite(fd, src, n, (off_t)off), int fd, const void *src, size_t n,
     uint64_t off)
CALL(int, ftruncate, ftruncate(fd, (off_t)size), int fd, uint64_t size)
CALL(int, fsync, fsync(fd), int fd)
CALL(int, settled, sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WAIT_BEFORE), int fd)
CALL(int, flock, flock(fd, how), int fd, int how)
CALL(int, fstat, fstat(fd, ret), int fd, struct stat *ret)
CALL(int, fstatat, fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW), int dir, const char *name,
     struct stat *ret)
CALL(int, fstatvfs, fstatvfs(fd, ret), int fd, struct statvfs *ret)
CALL(int, fchmod, fchmod(fd, mode), int fd, mode_t mode)
CALL(int, fchown, fchown(fd, uid, gid), int fd, uid_t uid, gid_t gid)
CALL(ssize_t, flistxattr, flistxattr(fd, dst, n), int fd, char *dst, size_t n)
CALL(ssize_t, fgetxattr, fgetxattr(fd, name, dst, n), int fd, const char *name, void *dst, size_t n)
CALL(int, fsetxattr, fsetxattr(fd, name, value, n, 0), int fd, const char *name, const void *value,
     size_t n)
CALL(int, fremovexattr, fremovexattr(fd, name), int fd, const char *name)
CALL(int, rename, renameat2(dir, from, dir, to, flags), int dir, const char *from, const char *to,
     unsigned flags)
CALL(int, unlinkat, unlinkat(dir, name, 0), int dir, const char *name)

static int do_seek(SELF, int fd, uint64_t off, int whence, uint64_t *ret)
{
    off_t at = lseek(fd, (off_t)off, whence);
    if (at < 0)
        return -errno;
    *ret = (uint64_t)at;
    return 0;
}

static ssize_t do_copy_range(SELF, int from, uint64_t from_off, int to, uint64_t to_off, size_t n)
{
    off64_t in = (off64_t)from_off, out = (off64_t)to_off;
    const ssize_t r = copy_file_range(from, &in, to, &out, n, 0);
    return r < 0 ? -errno : r;
}

static int do_clone_range(SELF, int from, uint64_t from_off, int to, uint64_t to_off, uint64_t n)
{
    struct file_clone_range range = {
        .src_fd = from, .src_offset = from_off, .src_length = n, .dest_offset = to_off};
    return ioctl(to, FICLONERANGE, &range) < 0 ? -errno : 0;
}

static int do_list(SELF, int dir, int (*fn)(void *arg, const char *name), void *arg)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
    if (fd < 0)
        return -errno;
    DIR *d = fdopendir(fd);
    if (!d) {
        r = -errno;
        (void)close(fd);
        return r;
    }
    const struct dirent *entry;
    while (r == 0 && (errno = 0, entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = fn(arg, entry->d_name);
    r = r ? r : -errno;
    (void)closedir(d);
    return r;
}

const struct sys sys_libc = {
    .openat = do_openat,
    .close = do_close,
    .pread = do_pread,
    .pwrite = do_pwrite,
    .ftruncate = do_ftruncate,
    .fsync = do_fsync,
    .settled = do_settled,
    .flock = do_flock,
    .seek = do_seek,
    .copy_range = do_copy_range,
    .clone_range = do_clone_range,
    .fstat = do_fstat,
    .fstatat = do_fstatat,
    .fstatvfs = do_fstatvfs,
    .fchmod = do_fchmod,
    .fchown = do_fchown,
    .flistxattr = do_flistxattr,
    .fgetxattr = do_fgetxattr,
    .fsetxattr = do_fsetxattr,
    .fremovexattr = do_fremovexattr,
    .rename = do_rename,
    .unlinkat = do_unlinkat,
    .list = do_list,
};

bool sys_open_changes(int flags)
{
    return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC);
}

int sys_read_all(const struct sys *s, int fd, void *dst, size_t n, uint64_t off)
{
    uint8_t *p = dst;
    while (n > 0) {
        ssize_t got = s->pread(s, fd, p, n, off);
        if (got == -EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? (int)got : -EIO;
        p += got;
        off += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

int sys_write_all(const struct sys *s, int fd, const void *src, size_t n, uint64_t off)
{
    const uint8_t *p = src;
    while (n > 0) {
        ssize_t put = s->pwrite(s, fd, p, n, off);
        if (put == -EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? (int)put : -EIO;
        p += put;
        off += (uint64_t)put;
        n -= (size_t)put;
    }
    return 0;
}

int sys_sync(const struct sys *s, int fd)
{
    int r;
    do
        r = s->fsync(s, fd);
    while (r == -EINTR);
    return r;
}

int sys_sync_dir(const struct sys *s, int dir)
{
    int r = sys_sync(s, dir);
    return r == -EINVAL ? 0 : r;
}

void sys_close(const struct sys *s, int *fd)
{
    if (*fd >= 0)
        (void)s->close(s, *fd);
    *fd = -1;
}
