/* SPDX-License-Identifier: MIT */
/*
 * The directory metadata/: the names and files that programs have touched.
 */
#ifndef LIVE_DIR_H
#define LIVE_DIR_H

#include "live/names.h"
#include "live/state.h"

/* ---- keys that nobody has touched ---- */

/* Return the number of key kv of the accepted state's own file (snapshot_own()). */
uint32_t key_number(const struct live *l, uint32_t kv);
/* Return the key of that file with this file name or number, or UINT32_MAX. */
uint32_t key_named(const struct live *l, const char *text);
uint32_t key_numbered(const struct live *l, uint32_t number);

/* ---- finding ---- */

/* Return the file with this number if it was touched, or NULL. */
struct file *file_known(const struct live *l, uint32_t number);

/* Return the name with this text if it was touched, or NULL. */
struct name *name_find(const struct live *l, const char *text);
/* Return the name of this key, making one if the accepted state has the key; else NULL, with -ENOENT
 * or -ENOMEM in *why. */
struct name *name_look(struct live *l, const char *text, int *why);
/* Return the file that a name shows, making one if it has none; NULL if it is hidden. */
struct file *name_file(struct live *l, struct name *x, int *why);
/* Return the visible file with this name; KEY:TYPE is another name of KEY while KEY has that
 * type. */
struct file *file_look(struct live *l, const char *text, int *why);
struct file *file_numbered(struct live *l, uint32_t number, int *why);
/* Return the key whose text a file has: its own, or the hidden key whose backup it is. NULL: none. */
struct name *key_meant(const struct file *f);
/* True if a name without a file shows the key that the accepted state has. */
bool name_shows_key(const struct live *l, const struct name *x);

/* ---- changing ---- */

/* Make a name (key: NULL for a helper) or a file. A key's file gets the key's own number unless an
 * earlier file of it is still in use. Return NULL if out of memory. */
struct name *name_make(struct live *l, const char *text, const char *key, size_t key_len,
                       uint32_t ino);
struct file *file_make(struct live *l, struct name *x, enum file_kind kind);
/* Give a file another name, whose file becomes an orphan. */
void file_move(struct live *l, struct file *f, struct name *to);
/* Return the name of a key that may not be there yet, or NULL if out of memory. */
struct name *name_key(struct live *l, const char *text);
/* Classify a name, which may be a key's (names.h). */
enum name_class name_class_of(const struct live *l, const char *text, enum name_way way);
/* Log what a key's name looks like. Returns -EINVAL. */
int name_refuse(const struct live *l, const char *text);

/*
 * Make a file for a name that shows none; if it can be opened, call name_spare(). Returns 0, -EINVAL (it can be neither a key nor a helper;
 * the log has the reason), -EPERM (one of the program's own keys) or -ENOMEM.
 */
int name_create(struct live *l, const char *text, enum name_way way, struct file **ret);
/* Show a key that was removed or hidden. */
void name_spare(struct live *l, struct name *x);
/* Forget the gone names whose keys have been removed. */
void names_removed(struct live *l);
void name_set_error(struct live *l, struct name *x, const char *why); /* why may be NULL */
/* Report a refused edit in the log and in user.gguf.error. Returns e->code. */
int name_refused(struct live *l, struct name *x, const struct err *e);
/* Keep the text that a key was accepted with, if its name is a temporary one. Moves it. */
void name_keep_raw(struct live *l, struct name *x, struct buf *text);
/* Take a file's name away. */
void file_drop(struct live *l, struct file *f);
/* Free a draft that no handle and no request needs, drop the file of a key that is neither stored
 * nor being written, and free what nothing needs. */
void file_settle(struct live *l, struct file *f);
void name_reap(struct live *l, struct name *x);
/* Returns 0, or -ENOSPC if helpers would take too much room. */
int helper_room(const struct live *l, uint64_t was, uint64_t len);
/* Free all names and files. */
void names_close(struct live *l);

#endif
