/* SPDX-License-Identifier: MIT */
/*
 * The files of metadata/ while a model can be written: what programs do with names, and with open files. live.h has the
 * words on results, waits and threads.
 *
 * A key that leaves its name for a helper's (vim's backup) stays in the model: most often it comes
 * back under its name a moment later, with another text, and that is one edit of the same key.
 */
#ifndef LIVE_FILES_H
#define LIVE_FILES_H

#include "edit/shown.h"
#include "text/name.h"

struct live;
struct live_wait;
struct live_file; /* an open file */

/* ---- names ---- */

struct live_attr {
    uint32_t number;
    uint32_t ino; /* for st_ino: of the name, whichever file has it */
    uint64_t size;
    bool link;             /* a symbolic link */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The caller gets a reference to the number; so it does from live_list_at(), live_create() and
 * live_symlink(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* f: one of its open files, or NULL; with it the size is that of what it writes. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/* The names that the folder held at one moment, whatever files they have when they are listed: keys in the order of
 * the model, then what is in no snapshot yet. Zero to begin with. */
struct live_list {
    uint32_t *ino; /* owned */
    size_t n;
};
int live_list(struct live *l, struct live_list *list);
void live_list_free(struct live_list *list);
/* Entry *i or the next that is still there: 1, and *i is its place; 0: there are no more. With
 * `attrs` all of *ret is set, else number, ino and link only, and no reference is taken. */
int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret);

/*
 * As mknod(2), and live_create() with O_EXCL: a key or helper without content. It is written next, most likely: until
 * another file of this model is opened for writing, LIVE_MADE seconds have passed, the folder is synced or the mount
 * ends it is as if it were open for that.
 */
int live_make(struct live *l, const char *name, struct live_attr *ret);
#define LIVE_MADE 10
int live_unlink(struct live *l, const char *name);
/* flags as of renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);
int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret);
int live_readlink(struct live *l, uint32_t number, struct buf *out);

/* ---- files ---- */

/* What a file that is opened to be read shows from then on. */
struct live_text {
    bool fixed;         /* it is one of the two below; else live_read() has it */
    struct shown value; /* to be rendered by the caller; free with shown_free(); or none and: */
    struct buf bytes;   /* the caller's */
};

/* flags as of open(2). */
int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text);
/* Open for reading and writing; made if it does not exist. KEY:TYPE makes KEY with that type. */
int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f);
/* Up to n bytes at `off`, of a file that is written or that lives in memory. */
size_t live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst);
/* -EBADF: it is not open for writing. */
int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n);
/* f may be NULL: truncate(2). */
int live_truncate(struct live *l, uint32_t number, struct live_file *f, uint64_t size,
                  struct live_wait *w);
int live_flush(struct live *l, struct live_file *f, struct live_wait *w);
/* f NULL: of the folder. All that was accepted is durable after it; it reports a loss that no other call has. */
int live_fsync(struct live *l, struct live_file *f, struct live_wait *w);
void live_release(struct live *l, struct live_file *f); /* may be NULL */

/* ---- of this layer ---- */

/* What mknod(2) made is closed: it has no value yet, or the empty one. With the lock of `struct live`. */
void files_end_made(struct live *l);

#endif
