/* SPDX-License-Identifier: MIT */
/*
 * Tells what a new name in metadata/ means: a key, a helper file of an editor, or neither; removes
 * and renames files. live.h explains results, waits and threads. Names are file names (text/name.h),
 * not empty and at most TREE_NAME_MAX bytes long.
 */
#ifndef LIVE_NAMES_H
#define LIVE_NAMES_H

#include <stdbool.h>

struct file;
struct live;
struct live_wait;

/* Remove a key or a helper. The removal of a key is written a second later. */
int live_unlink(struct live *l, const char *name);
/* Rename a file, with the flags of renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);

/* ---- what a name means ---- */

/* How the name comes to be. */
enum name_way {
    NAME_CREATED, /* or a helper is renamed to it */
    NAME_MKSTEMP, /* created as mkstemp(3) does: exclusively, with mode 0600 */
    NAME_ASIDE,   /* a key is renamed to it */
};

/* True if nobody expects a helper with this name to last. */
bool name_is_fleeting(const char *name);

/* ---- for this layer: with the lock of `struct live` held ---- */

/*
 * Make a file for a name that shows none; if it can be opened, call name_spare(). Returns 0,
 * -EINVAL (it can be neither a key nor a helper; the log has the reason), -EPERM (one of the
 * program's own keys) or -ENOMEM.
 */
int name_create(struct live *l, const char *text, enum name_way way, struct file **ret);

#endif
