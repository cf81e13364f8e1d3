/* SPDX-License-Identifier: MIT */
/*
 * A FUSE server that serves bytes from memory: the reference for a mount.
 *
 *     ready_server [options of libfuse] SIZE MOUNTPOINT      always in the foreground
 *
 * It shows a file `far` of SIZE bytes. Its reads are answered from SIZE bytes of memory, at the same
 * offset: the minimum for a server that returns stored bytes. The loop is configured like that of ggufs.
 */
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INO_FAR = 2 };

#define FOREVER 1e9

struct ready {
    off_t size;   /* in bytes */
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
    return root || ino == INO_FAR;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct fuse_entry_param e = {.attr_timeout = FOREVER, .entry_timeout = FOREVER};
    if (parent == FUSE_ROOT_ID && strcmp(name, "far") == 0)
        e.ino = INO_FAR;
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
    (void)ino;
    (void)fi;
    size_t left = off < r->size ? (size_t)(r->size - off) : 0;
    (void)fuse_reply_buf(req, left ? (const char *)r->far + off : NULL, size < left ? size : left);
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
        (void)fprintf(stderr, "usage: ready_server [options] SIZE MOUNTPOINT\n");
        return 2;
    }
    struct ready r = {.size = strtoll(argv[argc - 2], NULL, 10)};
    r.far = malloc(r.size > 0 ? (size_t)r.size : 1);
    argv[argc - 2] = argv[argc - 1];
    struct fuse_args args = FUSE_ARGS_INIT(argc - 1, argv);
    if (!r.far)
        return 1;
    for (size_t i = 0; i < (size_t)r.size; i++)
        r.far[i] = (uint8_t)(i * 2654435761u >> 24);
    int status = serve(&args, &r);
    fuse_opt_free_args(&args);
    free(r.far);
    return status;
}
