/* SPDX-License-Identifier: MIT */
/*
 * Tensors that can be edited: their folders, by the names that these have, and their views. Beside
 * live.h, whose words on results, waits and threads hold here too. Only where live_options.tensors
 * is set.
 *
 * The newest snapshot (live_freshen()) has every tensor that a function here returns.
 */
#ifndef LIVE_TENSORS_H
#define LIVE_TENSORS_H

#include "live/live.h"

/* What is known of a tensor's folder beside what snapshots have of the tensor. */
struct live_folder {
    uint64_t generation;   /* differs each time that it comes back after it was removed */
    uint32_t hidden;       /* rows of views that were unlinked a moment ago */
    bool removed;          /* it is shown no more */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The number of the tensor whose folder has this name. -ENOENT. */
int live_tensor_find(struct live *l, const char *file, uint32_t *number);
/* What is known of it; all zero if that is nothing. fresh: the newest snapshot is to show the
 * tensor as it is now. */
int live_tensor_folder(struct live *l, uint32_t number, bool fresh, struct live_folder *ret);

/* flags as of renameat2(2). -ENOTEMPTY: there is a tensor of the new name. */
int live_tensor_rename(struct live *l, const char *from, const char *to, unsigned flags,
                       struct live_wait *w);
/* rmdir(2): with all that is in it. */
int live_tensor_remove(struct live *l, const char *file);
/* Hide a view, a row of the folder, for a second. */
int live_view_unlink(struct live *l, uint32_t number, uint32_t row);

/* Why the last edit was refused, into `out`: nothing if it was not. And forget that. */
int live_tensor_error(struct live *l, uint32_t number, struct buf *out);
void live_tensor_forgive(struct live *l, uint32_t number);

#endif
