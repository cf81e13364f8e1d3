/* SPDX-License-Identifier: MIT */
/* Names and files of metadata/: finds, lists, opens and reads them, and tells their attributes.
 * live.h explains results, waits and threads. */
#ifndef LIVE_META_H
#define LIVE_META_H

#include <time.h>

#include "base/err.h"
#include "edit/change.h"
#include "text/name.h"

struct file;
struct live;
struct name;

/* ---- names ---- */

struct live_attr {
    uint32_t number;
    uint32_t ino; /* st_ino: a key's stays the same when its file is replaced */
    uint64_t size;
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
};

struct live_file; /* an open file */

/* Look up a name. The caller acquires a reference to the file's number, as with live_list_at(),
 * live_create() and live_make(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references to a number. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* Get the attributes of a file. f: one of its handles, whose written size is then reported, or
 * NULL. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/* List the names in the directory at this moment, each with a NUL: keys in the model's order, then
 * other files. */
int live_list(struct live *l, struct buf *names);
/*
 * Get the name at byte *at of such a list, or the next one that still exists. Returns 1 with its
 * place in *at, or 0 at the end. With `attrs`, all of *ret is set, and a reference is taken;
 * otherwise the size is not.
 */
int live_list_at(struct live *l, const struct buf *names, uint64_t *at, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret);

/* Make a key or helper without content, for mknod(2). Returns -EEXIST if the name has a file. A key
 * that nobody opens for writing is not stored, and goes when the kernel forgets it. */
int live_make(struct live *l, const char *name, struct live_attr *ret);
/* ---- files ---- */

/*
 * A key's value, taken from a snapshot, which the caller may render without any lock and frees with
 * shown_free(), or bytes that are owned by the caller.
 */
struct live_text {
    struct shown value;
    struct buf bytes;
};

/* Open a file, with the flags of open(2). text: what it holds, if it is opened for reading only. */
int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text);
/* Open a file for reading and writing, creating it if needed; KEY:TYPE creates KEY with a type.
 * LIVE_MKSTEMP, among the flags: as mkstemp(3) does, exclusively and with mode 0600. */
#define LIVE_MKSTEMP (1 << 30)
int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f);
/* Read up to n bytes at `off` from a file that is open for writing. */
int live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst,
              size_t *ret);
/* Facts about a file, of which each is added to a text if it applies. */
struct live_facts {
    struct buf *key, *type, *error;
    bool *helper; /* the file lives in memory */
};
int live_facts(struct live *l, uint32_t number, const struct live_facts *to);

/* ---- for this layer: with the lock of `struct live` held ---- */

/* Return the name with this text if it was touched, or NULL. */
struct name *name_find(const struct live *l, const char *text);
/* Return the key of the accepted state's own file (snapshot_own()) with this file name, or
 * UINT32_MAX. */
uint32_t key_named(const struct live *l, const char *text);
/* Return the name of a key that may not be there yet, or NULL if out of memory. */
struct name *name_key(struct live *l, const char *text);
/* Return the visible file with this name; KEY:TYPE is another name of KEY while KEY has that
 * type. */
struct file *file_look(struct live *l, const char *text, int *why);
struct file *file_numbered(struct live *l, uint32_t number, int *why);
/* Return the name of the key whose file this is; NULL for a helper or an orphan. */
struct name *file_key(const struct file *f);

/* Make a name (key: NULL for a helper) or a file. A key's file gets the key's own number unless an
 * earlier file of it is still in use. Return NULL if out of memory. */
struct name *name_make(struct live *l, const char *text, const char *key, size_t key_len,
                       uint32_t ino);
struct file *file_make(struct live *l, struct name *x);
/* Give a file another name, whose file becomes an orphan. */
void file_move(struct live *l, struct file *f, struct name *to);
/* Take a file's name away. */
void file_drop(struct live *l, struct file *f);
/* End a draft that nothing needs (a new key's text stays: the key may be renamed over a string), drop
 * the file of a key that is neither stored nor being written, and free what nothing needs. */
void file_settle(struct live *l, struct file *f);
void name_reap(struct live *l, struct name *x);
/* Take the removal of a key back, unless it is being written: then the key stays gone until it has a
 * new value. */
void name_keep(struct live *l, struct name *x);
/* The same, and show a key that was hidden. */
void name_spare(struct live *l, struct name *x);
/* Take the removals of all keys back, for this reason (code 0: as was asked). why NULL: of those that
 * were created anew while their removal was planned. */
void names_spare_all(struct live *l, const struct err *why);
void name_set_error(struct live *l, struct name *x, const char *why); /* why may be NULL */
/* Report a refused edit in the log and in user.gguf.error. Returns e->code. */
int name_refused(struct live *l, struct name *x, const struct err *e);
/* Forget the gone names whose keys have been removed. */
void names_removed(struct live *l);
/* Free all names and files. */
void names_close(struct live *l);

#endif
