/* SPDX-License-Identifier: MIT */
/*
 * Reads the kernel's list of mounts (/proc/PID/mountinfo). Reading it accesses no other file
 * system, so a dead or hanging mount does no harm.
 *
 * Any thread may call these functions; they have no state.
 */
#ifndef SHELF_MOUNTS_H
#define SHELF_MOUNTS_H

#include <sys/types.h>

#include "base/buf.h"

/* A mount. The texts point into the parsed line and are not trusted. */
struct mount {
    long id, parent;
    dev_t dev; /* device of the file system */
    /* the mounted part of the file system: "/", or the directory of a bind mount */
    const char *root;
    const char *at;     /* the mount point */
    const char *flags;  /* flags of this mount: ro, nosuid ... */
    const char *type;   /* type of the file system: fuse.ggufs ... */
    const char *source; /* for ggufs: the model, unless fsname= was given */
    const char *super;  /* options of the file system: ro, user_id= ... */
};

/* Mounts in the order in which they were made. If two are on one mount point, the later one hides
 * the other. */
struct mounts {
    struct mount *mount; /* owned */
    size_t n, cap;
    char *text; /* owned; the parsed lines */
};

/* Parse a line, modifying it. Returns false if it is not a line of mountinfo. */
bool mount_parse(char *line, struct mount *ret);
/* Returns true if a list of options, such as `super`, contains this option. */
bool mount_has(const char *options, const char *name);
/* Return the number after NAME= in a list of options, or -1 if the list lacks that option. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* Returns true if the type is that of ggufs. A mount made with -o subtype= has another type. */
bool mount_is_ggufs(const struct mount *m);

/* Load the mounts visible to a process; pid 0 is this process. Returns 0 or -errno; free ms in
 * either case. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/*
 * Returns true if a mount is of the file system `dev` and is on `at` or has this source (either may
 * be NULL). The device number alone is not sufficient, because the numbers of ended mounts are soon
 * reused. The second function returns the last such mount, or NULL.
 */
bool mount_is_of(const struct mount *m, dev_t dev, const char *at, const char *source);
const struct mount *mounts_of(const struct mounts *ms, dev_t dev, const char *at,
                              const char *source);
/*
 * Return the real path of a possible mount point, absolute and without links and dots. Its file
 * system is not accessed, so a dead or hanging mount there does no harm. Returns NULL with errno on
 * failure; ENOTCONN means that the path is inside a dead mount. The caller frees the path.
 */
char *mounts_path(const char *given);
/* Return the mount that contains this real path, or NULL with errno. Linux before 5.8 does not
 * report that mount; the last one in the list at or above the path is returned instead. */
const struct mount *mounts_around(const struct mounts *ms, const char *path);

/* Return the innermost mount above a path as typed, or NULL if there is only the root mount. No
 * directory on the way is accessed, because a daemon may not answer. */
const struct mount *mounts_typed(const struct mounts *ms, const char *path);

/* Returns true if no other mount covers this one, so that unmounting its path unmounts this one. */
bool mount_is_top(const struct mounts *ms, const struct mount *m);

/* Append a path with octal escapes (\ooo) for white space and backslashes. The second function
 * undoes that in place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

#endif
