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

/* ---- the kernel's list of mounts (/proc/PID/mountinfo); reading it accesses no mount ---- */

/* A mount. The strings point into the parsed line and are not trusted. */
struct mount {
    long id, parent;
    dev_t dev; /* device of the file system */
    /* the mounted part of the file system: "/", or the directory of a bind mount */
    const char *root;
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
/* Returns true if a list of options, such as `super`, contains this option. */
bool mount_has(const char *options, const char *name);
/* Return the number after NAME= in a list of options, or -1 if the list lacks that option. */
long mount_number(const char *options, const char *name);
bool mount_is_fuse(const struct mount *m);
/* Returns true if the mount's type is that of ggufs. A mount made with -o subtype= has a different
 * type. */
bool mount_is_ggufs(const struct mount *m);

/* Load the mounts visible to a process; pid 0 is this process. Free ms even on failure. */
int mounts_load(struct mounts *ms, long pid);
void mounts_free(struct mounts *ms);
/* Returns true if a mount belongs to the file system `dev` and is on `at` or has this source
 * (either may be NULL). `dev` alone is not enough, because a device number may be reused. The
 * second function returns the last such mount. */
bool mount_is_of(const struct mount *m, dev_t dev, const char *at, const char *source);
const struct mount *mounts_of(const struct mounts *ms, dev_t dev, const char *at,
                              const char *source);
/* Return the real path of a possible mount point, without accessing the file system mounted there.
 * The caller frees the path. Returns NULL with errno on failure; ENOTCONN means that the path is
 * inside a dead mount. */
char *mounts_path(const char *given);
/* Get the real path of an open file. Returns false, with an empty path, if it is not known. */
bool path_of_fd(int fd, char ret[PATH_MAX]);
/* Return the mount that contains this real path, or NULL with errno. */
const struct mount *mounts_around(const struct mounts *ms, const char *path);
/* Return the innermost mount above a path, taken as typed, or NULL if there is only the root mount.
 * No directory on the way is accessed, because its daemon may be hung. */
const struct mount *mounts_typed(const struct mounts *ms, const char *path);
/* Returns true if no other mount covers this one. */
bool mount_is_top(const struct mounts *ms, const struct mount *m);

/* Append a path with octal escapes (\ooo) for white space and backslashes. The second function
 * decodes such escapes in place. */
void path_escape(struct buf *out, const char *path);
void path_unescape(char *text);

/* ---- a shelf's directory ---- */

/* Maximum number of directories whose names are cached, and maximum size in bytes of all cached
 * names. */
#define KEPT_MAX 16
#define KEPT_BYTES ((size_t)64 << 20)

struct names;
struct listing;

/* Protects the state of this process's mount: lists of mounts and names, the opening and closing of
 * models, handles, and clients. The lock is not held while a disk is accessed. */
extern struct lock mount_lock;

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
