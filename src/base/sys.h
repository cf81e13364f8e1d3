/* SPDX-License-Identifier: MIT */
/*
 * The system calls by which files are changed, as a table: the edit layer makes no other, so that
 * a test can put its own table in front and fail, shorten or cut off any of them.
 *
 * Each entry is its namesake in Linux's manual, but that it returns -errno instead of -1, takes the
 * table as its first argument, and offsets are unsigned. sys_libc is the real one.
 *
 * Threads: the real table may be used by any number of them.
 */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct sys {
    int (*openat)(const struct sys *s, int dir, const char *name, int flags, mode_t mode);
    int (*close)(const struct sys *s, int fd);
    ssize_t (*pread)(const struct sys *s, int fd, void *dst, size_t n, uint64_t off);
    ssize_t (*pwrite)(const struct sys *s, int fd, const void *src, size_t n, uint64_t off);
    int (*ftruncate)(const struct sys *s, int fd, uint64_t size);
    int (*fsync)(const struct sys *s, int fd);
    int (*flock)(const struct sys *s, int fd, int how);
    /* SEEK_DATA or SEEK_HOLE: the offset found in *ret. */
    int (*seek)(const struct sys *s, int fd, uint64_t off, int whence, uint64_t *ret);
    ssize_t (*copy_range)(const struct sys *s, int from, uint64_t from_off, int to, uint64_t to_off,
                          size_t n);
    /* FICLONERANGE; n 0: up to the end of `from`. */
    int (*clone_range)(const struct sys *s, int from, uint64_t from_off, int to, uint64_t to_off,
                       uint64_t n);
    int (*fstat)(const struct sys *s, int fd, struct stat *ret);
    int (*fstatat)(const struct sys *s, int dir, const char *name, struct stat *ret); /* nofollow */
    int (*fstatvfs)(const struct sys *s, int fd, struct statvfs *ret);
    int (*fchmod)(const struct sys *s, int fd, mode_t mode);
    int (*fchown)(const struct sys *s, int fd, uid_t uid, gid_t gid);
    ssize_t (*flistxattr)(const struct sys *s, int fd, char *dst, size_t n);
    ssize_t (*fgetxattr)(const struct sys *s, int fd, const char *name, void *dst, size_t n);
    int (*fsetxattr)(const struct sys *s, int fd, const char *name, const void *value, size_t n);
    int (*fremovexattr)(const struct sys *s, int fd, const char *name);
    int (*rename)(const struct sys *s, int dir, const char *from, const char *to, unsigned flags);
    int (*unlinkat)(const struct sys *s, int dir, const char *name);
    /* Each name in the folder but "." and ".."; ends early when fn returns other than 0, with that. */
    int (*list)(const struct sys *s, int dir, int (*fn)(void *arg, const char *name), void *arg);
};

extern const struct sys sys_libc;

/* All n bytes, however many calls it takes. 0, -EIO (the file ends first), -errno. */
int sys_read_all(const struct sys *s, int fd, void *dst, size_t n, uint64_t off);
int sys_write_all(const struct sys *s, int fd, const void *src, size_t n, uint64_t off);

/* fsync, again when a signal came. */
int sys_sync(const struct sys *s, int fd);

/* fsync of a folder; on file systems that know no such thing there is nothing to do. */
int sys_sync_dir(const struct sys *s, int dir);

/* Close *fd if it is not -1, and make it -1. For files whose writes were synced before. */
void sys_close(const struct sys *s, int *fd);

#endif
