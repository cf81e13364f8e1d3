/* SPDX-License-Identifier: MIT */
/*
 * A disk that logs its writes and flushes: a FUSE server with one file, a disk image. A loop device
 * uses the file; see tests/mount/powercut.py.
 *
 *     disklog IMAGE LOG MOUNTPOINT [options of libfuse]      MOUNTPOINT: a regular file
 *
 * LOG is a sequence of records in the order of the requests. Each is logged before its request is
 * answered:
 *     u64 offset, u64 n, n bytes      a write
 *     u64 -1, u64 0                   a flush: all writes before it are durable
 * Numbers are in host byte order. There is one thread, so a write that was answered before a flush
 * request is logged before the flush.
 */
#define FUSE_USE_VERSION 312
#include <fuse.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *image_path, *log_path;
static int image = -1, record = -1;

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)path;
    (void)fi;
    if (fstat(image, st) < 0)
        return -errno;
    st->st_mode = S_IFREG | 0600;
    return 0;
}

/* Cache no pages of the file, so that writes arrive here immediately. */
static int on_open(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    fi->direct_io = 1;
    return 0;
}

static int on_read(const char *path, char *dst, size_t n, off_t off, struct fuse_file_info *fi)
{
    (void)path;
    (void)fi;
    ssize_t r = pread(image, dst, n, off);
    return r < 0 ? -errno : (int)r;
}

static int add_record(uint64_t off, const char *bytes, size_t n)
{
    uint64_t head[2] = {off, n};
    struct iovec part[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)bytes, n}};
    ssize_t r = writev(record, part, n ? 2 : 1);
    return r == (ssize_t)(sizeof(head) + n) ? 0 : -EIO;
}

static int on_write(const char *path, const char *src, size_t n, off_t off,
                    struct fuse_file_info *fi)
{
    (void)path;
    (void)fi;
    int r = add_record((uint64_t)off, src, n);
    if (r < 0)
        return r;
    ssize_t done = pwrite(image, src, n, off);
    return done == (ssize_t)n ? (int)n : -EIO;
}

static int on_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
    (void)path;
    (void)data_only;
    (void)fi;
    return add_record(UINT64_MAX, NULL, 0);
}

static const struct fuse_operations operations = {
    .getattr = on_getattr,
    .open = on_open,
    .read = on_read,
    .write = on_write,
    .fsync = on_fsync,
};

/* The first two arguments are for this program, the others for libfuse. */
static int on_argument(void *data, const char *arg, int key, struct fuse_args *out)
{
    (void)data;
    (void)out;
    if (key != FUSE_OPT_KEY_NONOPT || log_path)
        return 1;
    if (!image_path)
        image_path = arg;
    else
        log_path = arg;
    return 0;
}

int main(int argc, char **argv)
{
    struct fuse_args args = FUSE_ARGS_INIT(argc, argv);
    if (fuse_opt_parse(&args, NULL, NULL, on_argument) < 0 || !log_path)
        return 2;
    image = open(image_path, O_RDWR | O_CLOEXEC);
    record = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (image < 0 || record < 0 || fuse_opt_add_arg(&args, "-f") < 0 ||
        fuse_opt_add_arg(&args, "-s") < 0)
        return 1;
    int r = fuse_main(args.argc, args.argv, &operations, NULL);
    fuse_opt_free_args(&args);
    return r;
}
