/* SPDX-License-Identifier: MIT */
/*
 * Opens files and directories below a shelf's directory so that no link, mount or special file that
 * other users put there leads the daemon astray.
 *
 *     r = paths_begin(&p, "/srv/models", false, &e);
 *     r = path_open(&p, "/srv/models/sub", &dir);            by its real path, without links
 *     r = path_in(&p, &dir, "x.gguf", &f);                   by a name; a link is followed
 *     ... f.fd (O_PATH), f.path, f.st ...
 *     found_close(&f);
 *     paths_end(&p);
 *
 * No link is followed on the way. A name that is a link is replaced by its target, joined and
 * normalised, which is then opened in the same manner; it may be a link again (at most 8: -ELOOP).
 * If other users can access the mount, each link must belong to the daemon's user and lead below the
 * directory (-EACCES). Nothing at or below a mount of ggufs is touched (-EXDEV). Files are opened
 * with O_PATH, so that opening one never blocks.
 *
 * Any thread may call these functions.
 */
#ifndef SHELF_PATH_H
#define SHELF_PATH_H

#include <errno.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "shelf/mountinfo.h"

/* A shelf's directory. */
struct paths {
    int fd;          /* owned; O_PATH */
    char *path;      /* owned; the real path */
    bool shared;     /* other users can access the mount, so links are restricted */
    const char *own; /* the mount point of the shelf; NULL: not known. Not owned */
};

#define PATHS_NONE ((struct paths){.fd = -1})

/* A file or directory that was found. */
struct path_found {
    int fd;      /* owned; O_PATH; -1: none */
    char *path;  /* owned; the real path */
    bool linked; /* a name was a link */
    struct stat st;
};

#define FOUND_NONE ((struct path_found){.fd = -1})

/* Begin with the directory `path`, following links. Returns 0, or -errno with a message. Call
 * paths_end() in both cases. */
int paths_begin(struct paths *p, const char *path, bool shared, struct err *e);
void paths_end(struct paths *p);

/* Find a file by its real path. Returns 0 or -errno, -ELOOP if there is a link on the way. */
int path_open(const struct paths *p, const char *path, struct path_found *ret);
/* Find `name`, which may be several names separated by slashes, in a directory. The first one may be
 * a link, the others not (-ELOOP). Returns 0 or -errno. */
int path_in(const struct paths *p, const struct path_found *dir, const char *name,
            struct path_found *ret);
/* Open the directory that contains this real path for reading or, if that is not permitted, with
 * O_PATH. Returns the descriptor or -errno. */
int path_parent(const struct paths *p, const char *path);
void found_close(struct path_found *f);

/* Read all of a small file. Returns 0, -EINVAL (it is not a regular file), -EFBIG (larger than `most`
 * bytes) or another -errno. */
int found_text(const struct path_found *f, size_t most, struct buf *ret);

/* Returns true if this is a mount of ggufs, on which nothing may be touched. */
bool paths_bar(const struct paths *p, const struct mount *m);
/* Return the path of the directory that contains an absolute path. The caller frees it. Returns NULL
 * if out of memory. */
char *path_above(const char *path);

/* Returns true if the error means that the process lacks memory or descriptors. */
static inline bool is_shortage(int e)
{
    return e == -ENOMEM || e == -EMFILE || e == -ENFILE;
}

#endif
