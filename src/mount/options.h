/* SPDX-License-Identifier: MIT */
/*
 * The command line of a mount: ggufs [options] MODEL MOUNTPOINT, as a person, mount(8) or fstab
 * gives it.
 */
#ifndef MOUNT_OPTIONS_H
#define MOUNT_OPTIONS_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "shelf/shelf.h"

struct mnt_options {
    struct tree_options tree;
    char *model;      /* owned; NULL if not given */
    char *mountpoint; /* owned; NULL if not given. Absolute once it is mounted */
    char *fsname;     /* owned; NULL: the model's real path */
    char *subtype;    /* owned; NULL: "ggufs" */
    int help, version;
    struct fuse_args args;        /* what is left for libfuse */
    struct fuse_cmdline_opts cmd; /* foreground, threads ... */
    int partial, ro;              /* as fuse_opt_parse() sets them */
    int allow_other;              /* also passed to libfuse */
    int tilde;                    /* -o backup, without a suffix */
    bool set_threads;             /* max_threads was given */
    int auto_unmount;             /* handled by guard.h, not by libfuse */
    bool set_readahead;
    unsigned readahead; /* KiB; unless set_readahead, use the default */
    unsigned idle;      /* seconds; 0: the mount stays (idle.h) */
    /* Words and numbers as they were given; owned, NULL if they were not. */
    char *views, *tensors, *imatrix, *commit, *relayout, *reserve, *hardlinks, *backup, *hashnames,
        *uid, *gid, *umask, *kib, *idle_for, *states;
    struct imatrix *importances; /* owned; NULL: none */
    struct err err;              /* why parsing failed */
};

/*
 * Parse. 0, or -EINVAL with a line in o->err that names the option, and the one that was most
 * likely meant. The last of `ro` and `rw` counts, as in mount(8). Free `o` in both cases.
 */
int mnt_options_parse(int argc, char **argv, struct mnt_options *o);
/* Add the other options for libfuse: fsname, subtype, default_permissions, ro or rw. 0, -ENOMEM. */
int mnt_options_finish(struct mnt_options *o, const struct shelf *s);
void mnt_options_free(struct mnt_options *o);

#endif
