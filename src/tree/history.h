/* SPDX-License-Identifier: MIT */
/*
 * Applies commands to a tree, and reports its state. Unless noted otherwise, a call waits until it
 * is finished.
 *
 * Threads: any, except a thread that answers requests that the call waits for.
 */
#ifndef TREE_HISTORY_H
#define TREE_HISTORY_H

#include "tree/tree.h"

/* Write accepted edits. Returns 0, or the reason for the loss of an edit. */
int tree_sync(struct tree *t);
/*
 * Write pending edits, and let another process write the model. No edit may be made during or after
 * this; tree_finish() has nothing left to do. Returns 0, or the reason for the loss of an edit.
 */
int tree_retire(struct tree *t);

/*
 * Restore all keys to a state of the history; number 0: before its last edits. Accepted edits are
 * written first. A line about the result is appended to `said`. Returns 0, -EROFS, or -errno with
 * the reason.
 */
int tree_undo(struct tree *t, uint64_t number, struct buf *said, struct err *e);
/* Restore without waiting, like live_undo(). tree_undo_said() returns the line about the last undo,
 * if there was one. */
int tree_begin_undo(struct tree *t, uint64_t number, struct live_wait *w);
int tree_undo_said(struct tree *t, struct buf *out);
/* Write the states as text, and whether edits are still to be written. Returns 0, -EROFS, or -errno
 * with the reason. */
int tree_states(struct tree *t, struct buf *out, struct err *e);
int tree_forget_states(struct tree *t);

/* Write the states of a model that may be open only for reading: those of this process's user.
 * Returns 0 or -errno. */
int tree_history(struct tree *t, struct buf *out, struct err *e);
/* Forget all states, *n of them. Returns 0, -EACCES (the model may not be written) or -errno. */
int tree_history_clear(struct tree *t, size_t *n, struct err *e);

/*
 * Write the last line of `info`, the state of the mount: "mount: read-write; 2 edits are not
 * written yet\n". All of it may change while the snapshot stays, so it is recorded when the name
 * `info` is looked up, and kept with the node (internal.h). why_not: NULL, or why the model cannot
 * be edited; tensors: the same for tensors. im: the importances that weigh values, or NULL. notes
 * (live/live.h): the refused writes.
 */
void state_text(const char *why_not, const char *tensors, const struct imatrix *im,
                const struct live_counts *c, const struct buf *notes, struct buf *out);

#endif
