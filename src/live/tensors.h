/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited: their directories, by name. For their views see views.h. What live.h says about
 * results, waits and threads applies here too. Only if live_options.tensors is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"
#include "live/tensor_base.h"

/* What is known about a tensor's directory in addition to what snapshots have for the tensor. */
struct live_folder {
    uint64_t generation;   /* differs each time it comes back after a removal */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is no longer shown */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The number of the tensor whose directory has this name. -ENOENT. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* The same for a replaced version; very old versions are forgotten. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* What is known about it; all zero if nothing is. fresh: bring the newest snapshot up to date for this tensor. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * Tensors being made: created by mkdir(2), they become tensors of the model when they are complete, with the same
 * number, which the nodes of ignored views have, too. live_tensor_find(), _rename() and _remove() work on them as
 * well.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if it is still being made. *views: the rows that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/*
 * From index *i on, the next of them, in the order in which they were made; *i becomes its index. False: there are no
 * more.
 */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* The node number of a written view; if it is the tensor's own number, the view is ignored. -ENOENT. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is ignored; it then counts as written. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* flags as for renameat2(2). -ENOTEMPTY: a tensor with the new name exists. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* rmdir(2): removes it with everything in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the directory, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* It is visible again. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* fsync of a view that shows what is stored: syncs whatever the tensor has, whichever program wrote it (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- errors ---- */

/* Append to `out` why the last edit was refused: nothing if it was not. And forget it. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

#endif
