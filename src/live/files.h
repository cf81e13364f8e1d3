/* SPDX-License-Identifier: MIT */
/*
 * Handles operations on the names and open files in metadata/ while a model can be written.
 * live.h explains results, waits and threads.
 *
 * A key renamed to a helper (vim's backup) stays in the model: usually it returns under its own
 * name a moment later with a different text, and that is one edit to the same key.
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
    uint32_t ino; /* st_ino, which belongs to the name, not to its file */
    uint64_t size;
    bool link;             /* a symbolic link */
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
};

/* Look up a name. The caller acquires a reference to the file's number, as with live_list_at(),
 * live_create() and live_symlink(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references to a number. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* Get the attributes of a file. f: one of its handles, whose written size is then reported, or
 * NULL. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/* The names in the directory at one moment, even if their files change before they are listed: keys
 * in the model's order, then names that are not in a snapshot yet. Initially zero. */
struct live_list {
    uint32_t *ino; /* owned */
    size_t n;
};
int live_list(struct live *l, struct live_list *list);
void live_list_free(struct live_list *list);
/*
 * Get entry *i or the next one that still exists. Returns 1 with its index in *i, or 0 at the end.
 * With `attrs`, all of *ret is set; otherwise only number, ino and link are set, and no reference
 * is taken.
 */
int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret);

/*
 * Make a key or helper without content, for mknod(2). Returns -EEXIST if the name has a file. A
 * write usually follows, so the file is treated as open for writing until another file of this
 * model is opened for writing, LIVE_MADE seconds pass, the directory is synced, or the mount ends.
 */
int live_make(struct live *l, const char *name, struct live_attr *ret);
#define LIVE_MADE 10
int live_unlink(struct live *l, const char *name);
/* Rename a file, with the flags of renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);
int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret);
int live_readlink(struct live *l, uint32_t number, struct buf *out);

/* ---- files ---- */

/* The content that a file opened for reading will show. */
struct live_text {
    bool fixed; /* the content is `value` or `bytes`; otherwise use live_read() */
    /* The value, which the caller renders and frees with shown_free(). If there is no value, use
     * `bytes`. */
    struct shown value;
    struct buf bytes; /* owned by the caller */
};

/* Open a file, with the flags of open(2). */
int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text);
/* Open a file for reading and writing, creating it if needed; KEY:TYPE creates KEY with a type.
 * LIVE_MKSTEMP, among the flags: as mkstemp(3) does, exclusively and with mode 0600. */
#define LIVE_MKSTEMP (1 << 30)
int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f);
/* Read up to n bytes at `off` from a file that is being written or lives in memory. */
size_t live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst);
/* Write to a file. Returns -EBADF if it is not open for writing. */
int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n);
/* Truncate a file. f may be NULL, for truncate(2). */
int live_truncate(struct live *l, uint32_t number, struct live_file *f, uint64_t size,
                  struct live_wait *w);
int live_flush(struct live *l, struct live_file *f, struct live_wait *w);
/* Sync a file or, if f is NULL, the directory, which makes all edits accepted so far durable.
 * Reports a loss that no other call has reported. */
int live_fsync(struct live *l, struct live_file *f, struct live_wait *w);
void live_release(struct live *l, struct live_file *f);

/* ---- for this layer ---- */

/* Close the file made by mknod(2), whose value is still missing or empty. Call with the lock of
 * `struct live` held. */
void files_end_made(struct live *l);

#endif
