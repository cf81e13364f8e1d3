/* SPDX-License-Identifier: MIT */
/* Removes and renames files of metadata/, and makes links. live.h explains results, waits and threads. */
#ifndef LIVE_RENAME_H
#define LIVE_RENAME_H

#include "live/meta.h"

struct live;
struct live_wait;

/* Remove a key or a helper. The removal of a key is written a second later. */
int live_unlink(struct live *l, const char *name);
/* Rename a file, with the flags of renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);
int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret);
int live_readlink(struct live *l, uint32_t number, struct buf *out);

#endif
