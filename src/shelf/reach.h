/* SPDX-License-Identifier: MIT */
/*
 * Finds the files below a shelf's directory. Each name on the way is opened separately, relative to
 * the descriptor of its directory, so that the rules below are enforced even if other processes
 * change directories or links in the meantime. Also reads the names in directories, and caches the
 * names until the directories' times change.
 *
 *     r = reach_begin(&reach, "/srv/models", false, &e);
 *     r = reach_open(&reach, NULL, "sub/x.gguf", REACH_LINKS, &f);     from the shelf's directory
 *     ... f.fd (O_PATH), f.path, f.st ...
 *     reach_close(&f);
 *     reach_end(&reach);
 *
 * The rules: no ggufs mount is entered or queried (-EXDEV); at most 40 links are followed; with
 * `strict`, links that lead out of the directory are followed only if all of them belong to the
 * daemon's user (-EACCES). Files are opened only with O_PATH, so that opening one never blocks.
 *
 * Any thread may call these functions.
 */
#ifndef SHELF_REACH_H
#define SHELF_REACH_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/lock.h"
#include "shelf/mountinfo.h"

/* ---- a shelf's directory ---- */

/* Maximum number of directories whose names are cached, and maximum size in bytes of all cached
 * names. */
#define KEPT_MAX 16
#define KEPT_BYTES ((size_t)64 << 20)

struct names;
struct listing;

struct reach {
    int fd;      /* owned; O_PATH */
    char *path;  /* owned; the real path of the directory */
    bool strict; /* other users can access the mount, so their links are restricted */
    dev_t own;   /* device of the shelf's own mount; 0: not known yet */
    int mounts;  /* owned; /proc/self/mountinfo, for which poll(2) reports changes; or -1 */
    /* Protected by mount_lock: */
    struct mounts seen; /* the list of mounts at the last check */
    bool stale;         /* the last check failed to read the list */
    /* references to cached names, the most recently used first */
    const struct names *kept[KEPT_MAX];
};

/* A file that was found. */
struct found {
    int fd;         /* owned; O_PATH; -1: none */
    char *path;     /* owned; the real path */
    struct stat st; /* attributes when the file was found */
    bool linked;    /* a link was followed */
};

#define FOUND_NONE ((struct found){.fd = -1})

enum reach_flags { REACH_NO_LINKS, REACH_LINKS };

/* Begin with the directory `path`, following links. Returns 0, or -errno with a message. */
int reach_begin(struct reach *r, const char *path, bool strict, struct err *e);
void reach_end(struct reach *r);

/* Find `name`, which may be several names separated by slashes, in the directory `dir` (NULL: the
 * shelf's). Returns 0 or -errno; with REACH_NO_LINKS, -ELOOP for a link. */
int reach_open(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               struct found *ret);
/* Find a file again by its earlier real path. Returns 0, -ELOOP if there is now a link on the way,
 * or another -errno. */
int reach_again(struct reach *r, const char *path, struct found *ret);
/* Like reach_again(), but find the directory that contains the file. */
int reach_around(struct reach *r, const char *path, struct found *ret);
/* Open f, which must be a directory or a regular file, for reading. Returns the descriptor or
 * -errno. */
int reach_read(const struct found *f);
void reach_close(struct found *f);

/* Returns true if this is the device of a ggufs mount, in which nothing may be accessed, or if that
 * cannot be determined. */
bool reach_barred(struct reach *r, dev_t dev);
/* Get the names, each with its NUL, of the ggufs mount points in the directory with this real path.
 * Returns 0 or -errno. */
int reach_mounts_in(struct reach *r, const char *path, struct buf *names);
/* Returns true if any file system is mounted on `name` in the directory with this real path, or if
 * that cannot be determined. */
bool reach_mounted(struct reach *r, const char *path, const char *name);

/* ---- names in directories ---- */

/* The names in a directory, except those of hidden files, and their types. A name with DT_UNKNOWN
 * must not be accessed. */
struct names {
    struct buf texts;
    struct name {
        uint32_t text;
        uint8_t type;
    } * name; /* owned; sorted */
    size_t n, cap;
    /* The directory as it was when its names were read: */
    dev_t dev;
    ino_t ino;
    struct timespec mtime, ctime;
    uint64_t mounts;      /* hash of the mount points in the directory */
    bool far;             /* the directory is on another machine, so its times are not reliable */
    struct timespec read; /* when its names were read */
    atomic_uint refs;
    /* owned: the listing derived from the names alone (place.h), or NULL */
    _Atomic(struct listing *) made;
};

/*
 * Get a reference to the current names in a directory. The names in the most recently used
 * directories are cached and, while a directory's times do not change, reused. Names in a directory
 * on another machine are reused for only a second. Returns 0, or -errno with *ret set to NULL.
 */
int names_load(struct reach *r, const struct found *dir, const struct names **ret);
const struct names *names_ref(const struct names *n);
void names_free(const struct names *const *n); /* *n may be NULL */
static inline bool is_hidden(const char *name)
{
    return name[0] == '.';
}
/* Return the index of the first name that does not sort before `text`. */
size_t names_from(const struct names *n, const char *text);
static inline const char *name_at(const struct names *n, size_t i)
{
    return (const char *)n->texts.data + n->name[i].text;
}
/* Returns true if the index is valid and the name has this prefix. */
static inline bool name_begins(const struct names *n, size_t i, const char *start)
{
    return i < n->n && strncmp(name_at(n, i), start, strlen(start)) == 0;
}
/* Return the type of a name, or DT_UNKNOWN if it is not found. */
uint8_t names_type(const struct names *n, const char *text);

/* Read the whole content of a small file in a store. Returns 0, -EFBIG (larger than `most` bytes),
 * -EINVAL (not a regular file) or another -errno. */
int read_small(const struct found *f, size_t most, struct buf *ret);
/* Returns true if the error means that the process lacks memory or descriptors. After any other
 * error in a store, a listing merely omits the affected entry. */
bool is_shortage(int e);

#endif
