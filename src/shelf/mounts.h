/* SPDX-License-Identifier: MIT */
/*
 * Reads the kernel's list of mounts (/proc/PID/mountinfo). This accesses no other file system, so a
 * dead or hanging mount does no harm.
 *
 * Threads: any; no state.
 */
#ifndef SHELF_MOUNTS_H
#define SHELF_MOUNTS_H

#include <sys/types.h>

#include "base/buf.h"

/* A mount. The texts point into the parsed line, and are not trusted. */
struct mount {
    long id, parent;
    dev_t dev; /* device of the file system */
    /* The mounted part of the file system: "/", or a directory of a bind mount. */
    const char *root;
    const char *at;     /* the mount point */
    const char *flags;  /* flags of this mount: ro, nosuid ... */
    const char *type;   /* fuse.ggufs */
    const char *source; /* the model, if fsname was not given */
    const char *super;  /* options of the file system: ro, user_id= ... */
};

/* Mounts in the order in which they were made; of two on one mount point, the later one hides the
 * other. */
struct mounts {
    struct mount *mount; /* owned */
    size_t n, cap;
    char *text; /* owned: the lines */
};

/* Parse a line, and modify it. Returns false if it is not a line of mountinfo. */
bool mount_parse(char *line, struct mount *ret);
/* True if a list of options, such as `super`, contains this one. */
bool mount_has(const char *options, const char *name);
/* Return the number after NAME= in a list of options, or -1 if the list lacks it. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* True if the type is that of ggufs. A mount with -o subtype= has another type. */
bool mount_is_ggufs(const struct mount *m);

/* Load the mounts visible to a process; pid 0 is this process. Returns 0 or -errno. Free ms in both
 * cases. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/*
 * True for a mount of the file system `dev` that is on `at` or has this source (either may be
 * NULL). The device number alone is not sufficient, because numbers of ended mounts are soon
 * reused.
 */
bool mount_is_of(const struct mount *m, dev_t dev, const char *at, const char *source);
const struct mount *mounts_of(const struct mounts *ms, dev_t dev, const char *at,
                              const char *source);
/*
 * Return the real path of a possible mount point: absolute, without links and dots. Its file system
 * is not accessed, so a dead or hanging mount there does no harm. Returns NULL with errno: ENOTCONN
 * if the path is inside a dead mount. The caller frees the path.
 */
char *mounts_path(const char *given);
/*
 * Return the mount at or around this real path, or NULL with errno. Linux before 5.8 does not
 * report it; there the last mount in the list at or above the path is returned.
 */
const struct mount *mounts_around(const struct mounts *ms, const char *path);

/*
 * Return the innermost mount above a path as typed. No directory on the way is accessed, because a
 * daemon may not answer. NULL: only the root mount.
 */
const struct mount *mounts_typed(const struct mounts *ms, const char *path);

/* True if no other mount covers it: unmounting its path then unmounts this one. */
bool mount_is_top(const struct mounts *ms, const struct mount *m);

/* Append a path with octal escapes (\ooo) for white space and backslashes. The second function
 * undoes that in place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif
