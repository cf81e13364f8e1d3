/* SPDX-License-Identifier: MIT */
/*
 * Applies commands to a tree and reports its state. Unless noted otherwise, calls return only when
 * they are finished.
 *
 * Any thread may call these functions, except a thread that must answer a request that the call
 * waits for.
 */
#ifndef TREE_HISTORY_H
#define TREE_HISTORY_H

#include "live/live.h"
#include "tree/tree.h"

/*
 * Restore all keys to a state in the history; number 0 is the state before the last edits. Nobody else
 * may edit the tree. Appends a line about the result to `said`. Returns 0, -EROFS, or -errno
 * with the reason in *e.
 */
int tree_undo(struct tree *t, uint64_t number, struct buf *said, struct err *e);
/* Begin to restore without waiting, like live_undo(). tree_undo_said() writes the line about the
 * last undo, if there was one. */
int tree_begin_undo(struct tree *t, uint64_t number, struct live_wait *w);
int tree_undo_said(struct tree *t, struct buf *out);
/* Append a list of the states that this process's user has kept for a model, which may be open only
 * for reading. Returns 0 or -errno. */
int tree_history(struct tree *t, struct buf *out, struct err *e);
/* Forget all states. Returns 0, -EACCES (the model may not be written) or -errno. */
int tree_history_clear(struct tree *t, struct err *e);

/*
 * Write the last line of `info`, the state of the mount: "mount: read-write; 2 edits are not
 * written yet\n". `why_not` is NULL or the reason why
 * the model cannot be edited, and `tensors` the same for its tensors. `im` holds the importances
 * that weight values, or is NULL. `notes` (live/live.h) holds the refused writes.
 */
void state_text(const char *why_not, const char *tensors, const struct imatrix *im,
                const struct live_counts *c, const struct buf *notes, struct buf *out);

/*
 * Write `errors`: a line "PATH: WHY" for each refused write in `notes`, and for each edit in
 * `trouble` (notes too) that could not be written.
 */
void errors_text(const struct buf *notes, const struct buf *trouble, struct buf *out);

#endif
