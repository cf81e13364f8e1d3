/* SPDX-License-Identifier: MIT */
/*
 * The files of metadata/ while a model can be written: what programs do with names, and with open files. live.h has the
 * words on results, waits and threads.
 *
 * A key renamed to a helper (vim's backup) stays in the model: usually it comes back under its name a moment
 * later, with another text, and that is one edit of the same key.
 */
#ifndef LIVE_FILES_H
#define LIVE_FILES_H

#include "edit/change.h"
#include "text/name.h"

struct live;
struct live_wait;
struct live_file; /* an open file */

/* ---- names ---- */

struct live_attr {
    uint32_t number;
    uint32_t ino; /* for st_ino: belongs to the name, whichever file has it */
    uint64_t size;
    bool link;             /* a symbolic link */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The caller gets a reference to the number; also from live_list_at(), live_create() and live_symlink(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* f: one of its open files, whose written size is reported then; or NULL. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/*
 * The names in the directory at one moment, whatever files they have when they are listed: keys in the order of the
 * model, then those in no snapshot yet. Initially zero.
 */
struct live_list {
    uint32_t *ino; /* owned */
    size_t n;
};
int live_list(struct live *l, struct live_list *list);
void live_list_free(struct live_list *list);
/*
 * Entry *i or the next that still exists: 1, and *i is its index; 0: there are no more. With `attrs` all of *ret is
 * set, else only number, ino and link, and no reference is taken.
 */
int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret);

/*
 * Like mknod(2), and live_create() with O_EXCL: a key or helper without content. It will probably be written next:
 * until another file of this model is opened for writing, LIVE_MADE seconds have passed, the directory is synced or
 * the mount ends, it is treated as if it were open for writing.
 */
int live_make(struct live *l, const char *name, struct live_attr *ret);
#define LIVE_MADE 10
int live_unlink(struct live *l, const char *name);
/* flags as for renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);
int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret);
int live_readlink(struct live *l, uint32_t number, struct buf *out);

/* ---- files ---- */

/* What a file opened for reading shows from then on. */
struct live_text {
    bool fixed;         /* it is one of the two below; otherwise use live_read() */
    struct shown value; /* to be rendered by the caller; free with shown_free(); or none and: */
    struct buf bytes;   /* the caller's */
};

/* flags as for open(2). */
int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text);
/* Open for reading and writing, creating the file if needed. KEY:TYPE creates KEY with that type. */
int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f);
/* Read up to n bytes at `off` from a file that is being written or lives in memory. */
size_t live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst);
/* -EBADF: not open for writing. */
int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n);
/* f may be NULL: truncate(2). */
int live_truncate(struct live *l, uint32_t number, struct live_file *f, uint64_t size,
                  struct live_wait *w);
int live_flush(struct live *l, struct live_file *f, struct live_wait *w);
/*
 * f NULL: the directory. Everything accepted so far is durable afterwards; reports a loss that no other call has
 * reported.
 */
int live_fsync(struct live *l, struct live_file *f, struct live_wait *w);
void live_release(struct live *l, struct live_file *f);

/* ---- of this layer ---- */

/* The file made by mknod(2) is closed: it has no value yet, or the empty one. With the lock of `struct live`. */
void files_end_made(struct live *l);

#endif
