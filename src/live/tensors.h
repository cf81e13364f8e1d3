/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited: their folders, by the names that these have. Their views: views.h. Beside
 * live.h, whose words on results, waits and threads hold here too. Only where live_options.tensors
 * is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"
#include "live/tensor_base.h"

/* What is known of a tensor's folder beside what snapshots have of the tensor. */
struct live_folder {
    uint64_t generation;   /* differs each time that it comes back after it was removed */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is shown no more */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The number of the tensor whose folder has this name. -ENOENT. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* The same of a version that was replaced, maybe a moment ago; not of all older ones. */
int live_tensor_of_version(struct live *l, uint32_t version, uint32_t *number);
/* What is known of it; all zero if that is nothing. fresh: the newest snapshot is to show the
 * tensor as it is now. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/*
 * Tensors in the making: made by mkdir(2), and tensors of the model when they are whole; with the
 * same number, which is that of the nodes of views that are left aside, too. live_tensor_find(),
 * _rename() and _remove() are for them, as well.
 */
int live_tensor_make(struct live *l, const char *file, uint32_t *number);
/* True if it is one still. *views: the rows that were written. */
bool live_making(struct live *l, uint32_t number, uint32_t *views);
/* From place *i on the next of them, in the order in which they were made; *i is its place then. False:
 * there are no more. */
bool live_making_at(struct live *l, uint64_t *i, char name[TREE_NAME_MAX + 1], uint32_t *number);
/* The number of the node of a view that was written; it is left aside if it is the tensor's own.
 * -ENOENT. */
int live_making_view(struct live *l, uint32_t number, uint32_t row, uint32_t *node);
/* True if a view is to be left aside, and is one of those that were written now. */
bool live_making_leaves(struct live *l, uint32_t number, uint32_t row, enum tensor_view view);
int live_making_unlink(struct live *l, uint32_t number, uint32_t row);

/* flags as of renameat2(2). -ENOTEMPTY: there is a tensor of the new name. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* rmdir(2): with all that is in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the folder, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);
/* It is back. */
void live_view_show(struct live *l, uint32_t number, uint32_t row);

/* fsync of a view that shows what is stored: of what the tensor has, whichever program wrote that (sync FILE). */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- errors ---- */

/* Why the last edit was refused, into `out`: nothing if it was not. And forget that. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

#endif
