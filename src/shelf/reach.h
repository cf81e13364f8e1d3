/* SPDX-License-Identifier: MIT */
/*
 * How a shelf reaches the files below its folder: one name at a time, by handles, so that the rules
 * hold whatever others change meanwhile. And the names in folders, which are kept as long as the folders' times say that
 * nothing was changed.
 *
 *     r = reach_begin(&reach, "/srv/models", false, &e);
 *     r = reach_open(&reach, NULL, "sub/x.gguf", REACH_LINKS, &f);     from the shelf's folder
 *     ... f.fd (O_PATH), f.path, f.st ...
 *     reach_close(&f);
 *     reach_end(&reach);
 *
 * Rules: no mount of ggufs is entered, nor asked anything (-EXDEV); at most 40 links are followed; of
 * a `strict` reach, links that lead out of the folder count only if all of them belong to the
 * daemon's user (-EACCES). A file is never opened but as O_PATH, so that no FIFO or device blocks.
 *
 * Threads: any.
 */
#ifndef SHELF_REACH_H
#define SHELF_REACH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/lock.h"
#include "base/err.h"
#include "shelf/mounts.h"

/* Folders whose names are kept, and bytes of them. */
#define KEPT_MAX 16
#define KEPT_BYTES ((size_t)64 << 20)

struct names;
struct kept_names {
    struct names *names; /* a reference; NULL: none */
    dev_t dev;
    ino_t ino;
    struct timespec mtime, ctime;
    uint64_t mounts;      /* a hash of those in the folder */
    unsigned used;        /* the last use */
    bool far;             /* of another machine: the times say nothing */
    struct timespec read; /* when they were read */
};

struct reach {
    int fd;      /* owned; O_PATH */
    char *path;  /* owned; the real path of the folder */
    bool strict; /* other users may look into the mount */
    dev_t own;   /* the device of the shelf's own mount; 0: none */
    struct lock lock;
    int mounts;         /* owned; /proc/self/mountinfo, which reports changes to poll(2); -1 */
    struct mounts seen; /* as of the last look; protected by lock */
    bool stale;         /* the last look failed; protected by lock */
    struct kept_names kept[KEPT_MAX]; /* names.c; protected by lock */
    unsigned uses;
};

/* A file that was found. */
struct found {
    int fd;         /* owned; O_PATH; -1: none */
    char *path;     /* owned; the real path */
    struct stat st; /* when it was found */
    bool linked;    /* a link was followed */
    bool lent;      /* fd is the reach's own */
};

#define FOUND_NONE ((struct found){.fd = -1})

enum reach_flags { REACH_NO_LINKS, REACH_LINKS };

/* The folder `path`; links are followed. 0, -errno with a line. */
int reach_begin(struct reach *r, const char *path, bool strict, struct err *e);
void reach_end(struct reach *r);

/*
 * `name` in the folder `dir` (NULL: the shelf's): a name, or several with slashes between. With
 * REACH_NO_LINKS a link is -ELOOP. 0, -errno.
 */
int reach_open(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               struct found *ret);
/* A real path that was found before; -ELOOP if a link is on the way now. */
int reach_again(struct reach *r, const char *path, struct found *ret);
/* The folder that such a path is in. */
int reach_around(struct reach *r, const char *path, struct found *ret);
/* Attributes of a file that was found by `path` at the real path `real`, which is still so. 0; -errno: it is to be found
 * again. */
int reach_stat(struct reach *r, const char *path, const char *real, struct stat *ret);
/* What was found for reading: a folder, or a regular file. The descriptor, or -errno. */
int reach_read(const struct found *f);
void reach_close(struct found *f);

/* True if a real path is the shelf's folder, or below it. */
bool reach_holds(const struct reach *r, const char *path);
/* True if nothing on this device is touched: it is a mount of ggufs. */
bool reach_barred(struct reach *r, dev_t dev);
/* Names of the mount points in the folder with this real path, each with its end and, before it, '!'
 * for a mount of ggufs, else ' '. 0, -errno. */
int reach_mounts_in(struct reach *r, const char *path, struct buf *names);

/* ---- names of folders ---- */

/* Names of a folder but those of hidden files, and their types; DT_UNKNOWN: not to be looked at. */
struct names {
    struct buf texts;
    struct name {
        uint32_t text;
        uint8_t type;
    } * name; /* owned; sorted */
    size_t n, cap;
    struct reach *reach;
    unsigned refs; /* protected by the reach's lock */
};

/*
 * A reference to the names as they are now; those of the folders that were looked at last are kept,
 * and used again as long as the folder's times say that nothing was changed; of another machine's, within a
 * second. 0, -errno (*ret is NULL).
 */
int names_load(struct reach *r, const struct found *dir, const struct names **ret);
void names_free(const struct names *const *n); /* may be of NULL */
static inline bool is_hidden(const char *name)
{
    return name[0] == '.';
}
/* The number of the first name that is not before `text`. */
size_t names_from(const struct names *n, const char *text);
static inline const char *name_at(const struct names *n, size_t i)
{
    return (const char *)n->texts.data + n->name[i].text;
}
/* True if there is such a number, and the name begins so. */
static inline bool name_begins(const struct names *n, size_t i, const char *start)
{
    return i < n->n && strncmp(name_at(n, i), start, strlen(start)) == 0;
}
/* The type of a name; DT_UNKNOWN: it is not there. */
uint8_t names_type(const struct names *n, const char *text);

/* True if `name` in a folder is a folder; with links also a link to one. */
bool has_folder(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags);
/* A small file of a store, whole. 0, -EFBIG, -EINVAL (not a regular file), -errno. */
int read_small(const struct found *f, size_t most, struct buf *ret);
/* True if the process lacks memory or descriptors. Any other error of what is in a store leaves that
 * out of a listing, and nothing else. */
bool is_shortage(int e);

#endif
