/* SPDX-License-Identifier: MIT */
/* Files of metadata/: finds, lists, opens, reads, writes and closes them. live.h explains results, waits and threads. */
#ifndef LIVE_META_H
#define LIVE_META_H

#include <time.h>

#include "base/err.h"
#include "edit/change.h"
#include "text/name.h"

struct file;
struct live;
struct live_wait;

/* ---- names ---- */

struct live_attr {
    uint32_t number;
    uint32_t ino; /* st_ino: a key's stays the same when its file is replaced */
    uint64_t size;
    bool link;             /* a symbolic link */
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
};

struct live_file; /* an open file */

/* Look up a name. The caller acquires a reference to the file's number, as with live_list_at(),
 * live_create(), live_make() and live_symlink(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references to a number. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* Get the attributes of a file. f: one of its handles, whose written size is then reported, or
 * NULL. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/* The names in the directory at one moment: keys in the model's order, then other files. Initially
 * zero. */
struct live_list {
    struct buf names; /* owned: NUL-terminated */
    size_t *at;       /* owned: where each name begins */
    size_t n, cap;
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
 * write usually follows, so the file counts as open for writing until another file of this model is
 * opened for writing, LIVE_MADE seconds pass, the directory is synced, or the mount ends.
 */
int live_make(struct live *l, const char *name, struct live_attr *ret);
#define LIVE_MADE 10
/* ---- files ---- */

/*
 * A key's value, taken from a snapshot, which the caller may render without any lock and frees with
 * shown_free(), or bytes that are owned by the caller.
 */
struct live_text {
    bool fixed; /* the content is `value` or `bytes`; otherwise use live_read() */
    struct shown value;
    struct buf bytes;
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
/* Write everything that was accepted: of a file, also what was written to it; or, if f is NULL, of
 * the directory. */
int live_fsync(struct live *l, struct live_file *f, struct live_wait *w);
void live_release(struct live *l, struct live_file *f);

/* Facts about a file; an empty text means that a fact does not apply. Free them with
 * live_facts_free(). */
struct live_facts {
    struct buf key, type, error;
    bool helper; /* the file lives in memory and is not a link */
};
int live_facts(struct live *l, uint32_t number, struct live_facts *ret);
void live_facts_free(struct live_facts *f);
/* Set a file's type, given by name. Returns -EINVAL if there is no such type or if the value does
 * not fit it. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);
/* Forget why the file's last write was refused. */
int live_forgive(struct live *l, uint32_t number);

/* ---- for this layer ---- */

/* A file has no writers. What no flush has judged, because its program was killed or its wait was
 * interrupted, is judged now; the draft stays until then. w: who waits, or NULL. Call with the lock
 * held. */
int draft_judge_rest(struct live *l, struct file *f, struct live_wait *w);

/* Close the file made by mknod(2), whose value is still missing or empty. Call with the lock
 * held. */
void live_end_made(struct live *l);

#endif
