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
/* The number behind NAME= in a list of options; -1 if it is not there. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* True if it is a mount of ggufs by its type. With -o subtype= a mount has another one. */
bool mount_is_ggufs(const struct mount *m);

/* The mounts that a process sees; pid 0: this one. 0, -errno. Free in both cases. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/* The mount that is seen at a path without links and dots; NULL: nothing is mounted there. */
const struct mount *mounts_at(const struct mounts *ms, const char *path);
/*
 * A mount of the file system `dev` that is on `at` or has this source (either may be NULL), or
 * NULL. The number alone does not do: that of a mount which is gone is soon given to another.
 */
bool mount_is_of(const struct mount *m, dev_t dev, const char *at, const char *source);
const struct mount *mounts_of(const struct mounts *ms, dev_t dev, const char *at,
                              const char *source);
/*
 * The real path of what may be a mount point: absolute, without links and dots. Its file system is
 * not asked, so that a mount there that is dead or hangs does no harm. NULL: errno says why, ENOTCONN
 * if it is inside of a dead mount. free() it.
 */
char *mounts_path(const char *given);
/* The mount in which this real path lies, or that is there; NULL: not found, with errno. */
const struct mount *mounts_around(const struct mounts *ms, const char *path);

/* A path in which white space and backslashes are octal escapes (\ooo), and back in its place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif
