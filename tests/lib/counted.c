/* SPDX-License-Identifier: MIT */
/*
 * A file system with one file, which logs read requests, for remote.py:
 *
 *     counted FILE MOUNTPOINT LOG         in the foreground
 *
 * MOUNTPOINT/model.gguf shows FILE, read-only. Each read request, including the kernel's own
 * for mapped pages and read-ahead, appends a line "OFFSET SIZE" to LOG.
 */
#define FUSE_USE_VERSION 312
#include <fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "model.gguf"

static int file = -1, asked = -1;

static int get_attributes(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    if (strcmp(path, "/" NAME) == 0)
        return fstat(file, st) < 0 ? -errno : 0;
    if (strcmp(path, "/") != 0)
        return -ENOENT;
    *st = (struct stat){.st_mode = S_IFDIR | 0755, .st_nlink = 2};
    return 0;
}

static int list(const char *path, void *buf, fuse_fill_dir_t fill, off_t off,
                struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)path;
    (void)off;
    (void)fi;
    (void)flags;
    return fill(buf, NAME, NULL, 0, (enum fuse_fill_dir_flags)0) ? -ENOMEM : 0;
}

static int read_some(const char *path, char *buf, size_t n, off_t off, struct fuse_file_info *fi)
{
    char line[64];
    (void)path;
    (void)fi;
    int len = snprintf(line, sizeof(line), "%lld %zu\n", (long long)off, n);
    ssize_t got = pread(file, buf, n, off);
    if (write(asked, line, (size_t)len) != len || got < 0)
        return -EIO;
    return (int)got;
}

int main(int argc, char **argv)
{
    static const struct fuse_operations operations = {
        .getattr = get_attributes, .readdir = list, .read = read_some};
    if (argc != 4)
        return 2;
    file = open(argv[1], O_RDONLY | O_CLOEXEC);
    asked = open(argv[3], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0 || asked < 0)
        return 1;
    char name[] = "counted", foreground[] = "-f", option[] = "-o", only[] = "ro";
    char *own[] = {name, foreground, option, only, argv[2], NULL};
    return fuse_main(5, own, &operations, NULL);
}
