/* SPDX-License-Identifier: MIT */
/*
 * What `info` says about the mount: pending edits, refused writes, whether the model's file was changed from outside.
 * All of this may change while the snapshot stays. So the state is recorded when the name `info` is looked up, and
 * kept with the node (internal.h): each state is a separate file, whose text and size never change.
 *
 * Threads: any.
 */
#ifndef TREE_STATE_H
#define TREE_STATE_H

#include "live/live.h"

/*
 * The state of the mount, as the last line: "mount: read-write; 2 edits are not written yet\n". why_not: NULL, or why
 * the model cannot be edited; tensors: the same for tensors. im: the importances that weigh values, or NULL. notes
 * (live/unsaved.h): what was refused.
 */
void state_text(const char *why_not, const char *tensors, const struct imatrix *im,
                const struct live_counts *c, const struct buf *notes, struct buf *out);

/* "3 MANY", "1 ONE", "more than 100 MANY". */
void state_count(size_t n, const char *one, const char *many, struct buf *out);

#endif
