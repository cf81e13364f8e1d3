/* SPDX-License-Identifier: MIT */
/*
 * The list of mounts as the kernel shows it (/proc/PID/mountinfo). Reading it asks no file system,
 * so that a mount that is dead or hangs does no harm.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_MOUNTS_H
#define MOUNT_MOUNTS_H

#include <sys/types.h>

#include "base/buf.h"

/* One mount. The texts lie in the line that it was parsed from, and are not to be trusted. */
struct mount {
    long id, parent;
    dev_t dev;          /* of the file system */
    const char *root;   /* what of the file system is mounted: "/", or a folder of a bind mount */
    const char *at;     /* the mount point */
    const char *flags;  /* of this mount: ro, nosuid ... */
    const char *type;   /* fuse.ggufs */
    const char *source; /* the model, if fsname was not given */
    const char *super;  /* options of the file system: ro, user_id= ... */
};

/* In the order in which they were made; of two on one mount point the later one is seen. */
struct mounts {
    struct mount *mount; /* owned */
    size_t n, cap;
    char *text; /* owned: the lines */
};

/* Parse a line, which is changed. False: it is not one of mountinfo. */
bool mount_parse(char *line, struct mount *ret);
/* True if a list of options, as of `super`, has this one. */
bool mount_has(const char *options, const char *name);
/* The number behind NAME= in a list of options; -1 if there is none. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* True if it is a mount of ggufs by its type. With -o subtype= a mount has another one. */
bool mount_is_ggufs(const struct mount *m);

/* The mounts that a process sees; pid 0: this one. 0, -errno. Free in both cases. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/* The mount that is seen at a path without links and dots; NULL: none. */
const struct mount *mounts_at(const struct mounts *ms, const char *path);
/* The last mount of a file system; NULL: none. */
const struct mount *mounts_of(const struct mounts *ms, dev_t dev);

/* A path in which white space and backslashes are octal escapes (\ooo), and back in its place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif
