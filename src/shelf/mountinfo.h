/* SPDX-License-Identifier: MIT */
/*
 * Reads the kernel's list of mounts (/proc/self/mountinfo), without accessing any of the mounts.
 *
 * Any thread may call these functions; they keep no state.
 */
#ifndef SHELF_MOUNTINFO_H
#define SHELF_MOUNTINFO_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/buf.h"

/* A mount. The strings point into the parsed line and are not trusted. */
struct mount {
    long id;
    dev_t dev;          /* device of the file system */
    const char *at;     /* the mount point */
    const char *type;   /* type of the file system: fuse.ggufs ... */
    const char *source; /* for ggufs: the model, unless fsname= was given */
    const char *super;  /* options of the file system: ro, user_id= ... */
};

/* Mounts in the order in which they were made. */
struct mounts {
    struct mount *mount; /* owned */
    size_t n, cap;
    char *text; /* owned; the parsed lines */
};

/* Parse a line of mountinfo, modifying it. Returns false if it is malformed. */
bool mount_parse(char *line, struct mount *ret);
/* Return an option in a list, such as `super`, or NULL if the list lacks it. */
const char *mount_option(const char *options, const char *name);
/* Return the number after NAME= in a list of options, or -1 if the list lacks that option. */
long mount_number(const char *options, const char *name);
/* Returns true if the mount's type is that of ggufs. A mount made with -o subtype= has a different
 * type. */
bool mount_is_ggufs(const struct mount *m);

/* Load the mounts that this process sees. Free ms even on failure. */
int mounts_load(struct mounts *ms);
void mounts_free(struct mounts *ms);
/* Return the real path of a possible mount point, without accessing the file system mounted there.
 * The caller frees the path. Returns NULL with errno on failure; ENOTCONN means that the path is
 * inside a dead mount. */
char *mounts_path(const char *given);
/* Get the real path of an open file. Returns false, with an empty path, if it is not known. */
bool path_of_fd(int fd, char ret[PATH_MAX]);
/* Return the mount of ggufs that contains this real path (or NULL), or NULL. */
const struct mount *mounts_around(const struct mounts *ms, const char *path);

/* Read a file to its end, or until there are more than `most` bytes. Closes the descriptor. Returns
 * 0 or -errno. */
int read_all(int fd, size_t most, struct buf *ret);

#endif
