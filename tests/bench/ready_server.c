/* SPDX-License-Identifier: MIT */
/*
 * A FUSE server that serves bytes from memory: the reference for a mount.
 *
 *     ready_server SIZE MOUNTPOINT [options of libfuse]      always in the foreground
 *
 * It shows files of SIZE bytes. Reads of hot0 to hot7 are answered immediately from one piece of
 * memory as large as a reply, which stays in the processor's cache: a server that has to look up,
 * decode or fetch anything is not faster unless it overlaps that with the program's work. Reads of
 * far0 to far7 are answered from SIZE bytes of memory, at the same offset: the minimum for a server
 * that returns stored bytes. The loop is configured like that of ggufs.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INO_HOT = 2, FILES = 8, INO_FAR = INO_HOT + FILES, INO_END = INO_FAR + FILES };

#define FOREVER 1e9
#define REPLY_MAX ((size_t)1 << 20)

struct ready {
    off_t size;   /* of each file, in bytes */
    uint8_t *hot; /* REPLY_MAX bytes */
    uint8_t *far; /* size bytes */
};

static bool attributes(fuse_req_t req, fuse_ino_t ino, struct stat *st)
{
    const struct ready *r = fuse_req_userdata(req);
    bool root = ino == FUSE_ROOT_ID;
    *st = (struct stat){.st_ino = ino,
                        .st_mode = root ? S_IFDIR | 0755 : S_IFREG | 0444,
                        .st_nlink = root ? 2 : 1,
                        .st_size = root ? 0 : r->size,
                        .st_blocks = root ? 0 : (r->size + 511) / 512};
    return root || (ino >= INO_HOT && ino < INO_END);
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {.attr_timeout = FOREVER, .entry_timeout = FOREVER};
    bool hot = strncmp(name, "hot", 3) == 0, far = strncmp(name, "far", 3) == 0;
    if (parent == FUSE_ROOT_ID && (hot || far) && name[3] >= '0' && name[3] <= '7' && !name[4])
        e.ino = (hot ? INO_HOT : INO_FAR) + (fuse_ino_t)(name[3] - '0');
    if (e.ino == 0 || !attributes(req, e.ino, &e.attr))
        (void)fuse_reply_err(req, ENOENT);
    else
        (void)fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct stat st;
    (void)fi;
    if (attributes(req, ino, &st))
        (void)fuse_reply_attr(req, &st, FOREVER);
    else
        (void)fuse_reply_err(req, ENOENT);
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
    const struct ready *r = fuse_req_userdata(req);
    (void)fi;
    size_t left = off < r->size ? (size_t)(r->size - off) : 0;
    size = size < left ? size : left;
    struct iovec part = {.iov_base = ino < INO_FAR ? r->hot : r->far + off,
                         .iov_len = size < REPLY_MAX ? size : REPLY_MAX};
    if (size == 0)
        part.iov_base = r->hot;
    (void)fuse_reply_iov(req, &part, 1);
}

static const struct fuse_lowlevel_ops ops = {
    .lookup = op_lookup, .getattr = op_getattr, .open = op_open, .read = op_read};

static int loop(struct fuse_session *se, const struct fuse_cmdline_opts *cmd)
{
    if (cmd->singlethread)
        return fuse_session_loop(se);
    struct fuse_loop_config *cfg = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(cfg, (unsigned)cmd->clone_fd);
    fuse_loop_cfg_set_max_threads(cfg, cmd->max_threads);
    fuse_loop_cfg_set_idle_threads(cfg, cmd->max_idle_threads);
    int r = fuse_session_loop_mt(se, cfg);
    fuse_loop_cfg_destroy(cfg);
    return r;
}

static int serve(struct fuse_args *args, struct ready *r)
{
    struct fuse_cmdline_opts cmd;
    int status = 1;
    if (fuse_parse_cmdline(args, &cmd) < 0 || !cmd.mountpoint)
        return 2;
    struct fuse_session *se = fuse_session_new(args, &ops, sizeof(ops), r);
    if (se && fuse_set_signal_handlers(se) == 0 && fuse_session_mount(se, cmd.mountpoint) == 0) {
        status = loop(se, &cmd) < 0;
        fuse_session_unmount(se);
        fuse_remove_signal_handlers(se);
    }
    if (se)
        fuse_session_destroy(se);
    free(cmd.mountpoint);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        (void)fprintf(stderr, "usage: ready_server SIZE MOUNTPOINT [options]\n");
        return 2;
    }
    struct ready r = {.size = strtoll(argv[1], NULL, 10), .hot = malloc(REPLY_MAX)};
    r.far = malloc(r.size > 0 ? (size_t)r.size : 1);
    argv[1] = argv[0];
    struct fuse_args args = FUSE_ARGS_INIT(argc - 1, argv + 1);
    if (!r.hot || !r.far)
        return 1;
    for (size_t i = 0; i < REPLY_MAX; i++)
        r.hot[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t i = 0; i < (size_t)r.size; i++)
        r.far[i] = (uint8_t)(i * 2654435761u >> 24);
    int status = serve(&args, &r);
    fuse_opt_free_args(&args);
    free(r.hot);
    free(r.far);
    return status;
}
