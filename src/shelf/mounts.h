/* SPDX-License-Identifier: MIT */
/*
 * The kernel's list of mounts (/proc/PID/mountinfo). Reading it does not access any file system, so
 * a dead or hanging mount does no harm.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_MOUNTS_H
#define SHELF_MOUNTS_H

#include <sys/types.h>

#include "base/buf.h"

/* One mount. The texts point into the parsed line; do not trust them. */
struct mount {
    long id, parent;
    dev_t dev; /* of the file system */
    /* the mounted part of the file system: "/", or a directory of a bind mount */
    const char *root;
    const char *at;     /* the mount point */
    const char *flags;  /* of this mount: ro, nosuid ... */
    const char *type;   /* fuse.ggufs */
    const char *source; /* the model, if fsname was not given */
    const char *super;  /* options of the file system: ro, user_id= ... */
};

/* In the order in which they were made; of two on one mount point the later one hides the other. */
struct mounts {
    struct mount *mount; /* owned */
    size_t n, cap;
    char *text; /* owned: the lines */
};

/* Parse a line, which it modifies. False: not a line of mountinfo. */
bool mount_parse(char *line, struct mount *ret);
/* True if a list of options, such as `super`, has this one. */
bool mount_has(const char *options, const char *name);
/* The number after NAME= in a list of options; -1: the list does not have it. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* True if the type is that of ggufs. With -o subtype= a mount has another type. */
bool mount_is_ggufs(const struct mount *m);

/* The mounts visible to a process; pid 0: this process. 0, -errno. Free in both cases. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/*
 * True for a mount of the file system `dev` that is on `at` or has this source (either may be
 * NULL). The number alone is not sufficient: that of a removed mount is soon reused.
 */
bool mount_is_of(const struct mount *m, dev_t dev, const char *at, const char *source);
const struct mount *mounts_of(const struct mounts *ms, dev_t dev, const char *at,
                              const char *source);
/*
 * The real path of a possible mount point: absolute, without links and dots. Its file system is not
 * accessed, so a dead or hanging mount there does no harm. NULL, with errno: ENOTCONN if the path
 * is inside a dead mount. free() it.
 */
char *mounts_path(const char *given);
/*
 * The mount at or around this real path; NULL: not found, with errno. Linux before 5.8 does not report it: there the
 * last one in the list that is at or above the path is used.
 */
const struct mount *mounts_around(const struct mounts *ms, const char *path);

/*
 * The innermost mount above a path as typed: nothing on the way is accessed, because a daemon may
 * not answer. NULL: only the root mount.
 */
const struct mount *mounts_typed(const struct mounts *ms, const char *path);

/* True if no other mount is over it: unmounting its path then unmounts this one. */
bool mount_is_top(const struct mounts *ms, const struct mount *m);

/* Append a path with octal escapes (\ooo) for white space and backslashes; and undo that in place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif
