/* SPDX-License-Identifier: MIT */
/*
 * A FUSE server that serves bytes from memory: the reference for a mount.
 *
 *     ready_server -f SIZE MOUNTPOINT      in the foreground
 *
 * It shows a file `far` of SIZE bytes. Its reads are answered from SIZE bytes of memory, at the same
 * offset: the minimum for a server that returns stored bytes. It has libfuse's own loop, like ggufs.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FOREVER 1e9

static size_t total;
static char *far;

static struct stat attributes(fuse_ino_t ino)
{
    return ino == FUSE_ROOT_ID
               ? (struct stat){.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2}
               : (struct stat){.st_ino = ino,
                               .st_mode = S_IFREG | 0444,
                               .st_nlink = 1,
                               .st_size = (off_t)total,
                               .st_blocks = (blkcnt_t)(total / 512)};
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {.ino = 2, .attr_timeout = FOREVER, .entry_timeout = FOREVER};
    e.attr = attributes(e.ino);
    if (parent == FUSE_ROOT_ID && strcmp(name, "far") == 0)
        (void)fuse_reply_entry(req, &e);
    else
        (void)fuse_reply_err(req, ENOENT);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    const struct stat st = attributes(ino);
    (void)fi;
    (void)fuse_reply_attr(req, &st, FOREVER);
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fi->keep_cache = 1;
    fi->noflush = 1;
    (void)fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
                    struct fuse_file_info *fi)
{
    const size_t left = (size_t)off < total ? total - (size_t)off : 0;
    (void)ino;
    (void)fi;
    (void)fuse_reply_buf(req, left ? far + off : NULL, size < left ? size : left);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = op_lookup, .getattr = op_getattr, .open = op_open, .read = op_read};

int main(int argc, char **argv)
{
    struct fuse_args none = FUSE_ARGS_INIT(1, argv);
    if (argc != 4)
        return 2;
    total = strtoull(argv[2], NULL, 10);
    far = malloc(total);
    struct fuse_session *se = fuse_session_new(&none, &ops, sizeof(ops), NULL);
    if (!far || !se || fuse_set_signal_handlers(se) < 0 || fuse_session_mount(se, argv[3]) < 0)
        return 1;
    for (size_t i = 0; i < total; i++)
        far[i] = (char)(i * 2654435761u >> 24);
    const int r = fuse_session_loop_mt(se, NULL);
    fuse_session_unmount(se);
    return r < 0;
}
