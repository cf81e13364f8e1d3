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
#include <sys/stat.h>

#include "base/lock.h"
#include "base/buf.h"
#include "base/err.h"

/* Folders whose names are kept, and bytes of them. */
#define KEPT_MAX 16
#define KEPT_BYTES ((size_t)64 << 20)

struct crew;
struct look;
struct names;
struct kept_names {
    struct names *names; /* a reference; NULL: none */
    dev_t dev;
    ino_t ino;
    struct timespec mtime, ctime;
    unsigned looks, used; /* reach.looks; the last use */
};

struct reach {
    int fd;      /* owned; O_PATH */
    char *path;  /* owned; the real path of the folder */
    bool strict; /* other users may look into the mount */
    dev_t own;   /* the device of the shelf's own mount; 0: none */
    struct lock lock;
    int mounts; /* owned; /proc/self/mountinfo, which reports changes to poll(2); -1 */
    struct seen_mount {
        dev_t dev;
        char *at;  /* owned */
        bool ours; /* of ggufs */
    } * seen;      /* owned; as of the last look; protected by lock */
    size_t n_seen;
    bool stale;                       /* the last look failed; protected by lock, as `looks` */
    unsigned looks;                   /* at the list of mounts */
    struct kept_names kept[KEPT_MAX]; /* names.c; protected by lock */
    unsigned uses;
    struct crew *lookers; /* owned; look.c; NULL: looks are not given up */
    struct cond looked;
    struct look *late; /* looks; protected by lock */
    unsigned n_late;
};

/* A file that was found. */
struct found {
    int fd;         /* owned; O_PATH; -1: none */
    char *path;     /* owned; the real path */
    struct stat st; /* when it was found */
    bool linked;    /* a link was followed */
};

#define FOUND_NONE ((struct found){.fd = -1})

enum reach_flags { REACH_NO_LINKS, REACH_LINKS };

/* The folder `path`; links are followed. 0, -errno with a line. */
int reach_begin(struct reach *r, const char *path, bool strict, struct err *e);
/* Not if look_end() says that it must stay. */
void reach_end(struct reach *r);
/* The list of mounts, as reach_begin() reads it and reach_end() frees it. Under the lock, if others
 * use it already. */
int reach_look_at_mounts(struct reach *r);
void reach_forget_mounts(struct reach *r);
/* Names of a folder, as store.h has them; may be NULL. */
void names_free(struct reach *r, const struct names *n);

/*
 * `name` in the folder `dir` (NULL: the shelf's): a name, or several with slashes between. With
 * REACH_NO_LINKS a link is -ELOOP. 0, -errno.
 */
int reach_open(struct reach *r, const struct found *dir, const char *name, enum reach_flags flags,
               struct found *ret);
/* A real path that was found before; -ELOOP if a link is on the way now. */
int reach_again(struct reach *r, const char *path, struct found *ret);
/* The same for reading: a folder, or a regular file. The descriptor, or -errno. */
int reach_read(const struct found *f);
void reach_close(struct found *f);

/* True if `name` does not lead to another disk than that of `dir`, or of "/"; nothing is asked of
 * another one. Also if it does not exist. */
bool reach_is_near(struct reach *r, const struct found *dir, const char *name);

/* True if a real path is the shelf's folder, or below it. */
bool reach_holds(const struct reach *r, const char *path);
/* True if nothing on this device is touched: it is a mount of ggufs. */
bool reach_barred(struct reach *r, dev_t dev);
/* Read the list of mounts if it may have changed since it was read. 0 and how often it was read,
 * -errno. */
int reach_see_mounts(struct reach *r, unsigned *looks);
/* True if something is mounted at this real path, or if the list of mounts cannot be read. */
bool reach_is_mount_point(struct reach *r, const char *path);
/* Names of the mount points in the folder with this real path, each with its end and, before it, '!'
 * for a mount of ggufs, else ' '. 0, -errno. */
int reach_mounts_in(struct reach *r, const char *path, struct buf *names);

#endif
