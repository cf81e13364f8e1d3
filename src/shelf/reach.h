/* SPDX-License-Identifier: MIT */
/*
 * How a shelf reaches the files below its folder: one name at a time, by handles, so that the rules
 * hold whatever others change meanwhile.
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

#endif
