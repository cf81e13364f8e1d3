/* SPDX-License-Identifier: MIT */
/*
 * A table of the system calls that change files. The edit layer makes no others, so a test can put
 * its own table in front and make any call fail, be cut short, or stop the program.
 *
 * Each entry works like its namesake in Linux's manual, except that it returns -errno instead of
 * -1, takes the table as its first argument, and has unsigned offsets. sys_libc makes the real
 * calls.
 *
 * Any number of threads may use the real table.
 */
#ifndef BASE_SYS_H
#define BASE_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
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
    /* sync_file_range(): wait for writes to the disk that are under way. Returns the error of one
     * that failed since the last such call or fsync. Begins no write. */
    int (*settled)(const struct sys *s, int fd);
    int (*flock)(const struct sys *s, int fd, int how);
    /* SEEK_DATA or SEEK_HOLE: *ret is the offset that was found. */
    int (*seek)(const struct sys *s, int fd, uint64_t off, int whence, uint64_t *ret);
    ssize_t (*copy_range)(const struct sys *s, int from, uint64_t from_off, int to, uint64_t to_off,
                          size_t n);
    /* FICLONERANGE; n = 0: up to the end of `from`. */
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
    /* Call fn for each name except "." and ".." until fn returns a value other than 0. Returns that
     * value. */
    int (*list)(const struct sys *s, int dir, int (*fn)(void *arg, const char *name), void *arg);
};

extern const struct sys sys_libc;

/*
 * Return true if open(2) with these flags may change the file. O_TRUNC does so even with O_RDONLY.
 */
bool sys_open_changes(int flags);

/*
 * Read or write all n bytes, in as many calls as it takes. Returns 0, -EIO (the file ends first) or
 * -errno.
 */
int sys_read_all(const struct sys *s, int fd, void *dst, size_t n, uint64_t off);
int sys_write_all(const struct sys *s, int fd, const void *src, size_t n, uint64_t off);

/* fsync, repeated after EINTR. */
int sys_sync(const struct sys *s, int fd);

/* fsync a directory. Also returns 0 on file systems that cannot do that. */
int sys_sync_dir(const struct sys *s, int dir);

/* Close *fd unless it is -1, and set it to -1. All writes to the file must be synced already. */
void sys_close(const struct sys *s, int *fd);

/* ---- paths as strings; nothing is looked up ---- */

/* Return the last component of a path. */
static inline const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Return true if an absolute path is `folder` or lies below it. */
static inline bool path_below(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

#endif
