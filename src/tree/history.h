/* SPDX-License-Identifier: MIT */
/*
 * What commands have done with a tree: a call waits until it is done, if it does not say otherwise.
 *
 * Threads: any, but none that answers what it waits for.
 */
#ifndef TREE_HISTORY_H
#define TREE_HISTORY_H

#include "tree/tree.h"

/* Write what is accepted. 0, or why an edit was lost. */
int tree_sync(struct tree *t);
/* Write what is pending, and let another process write the model. No edit is made before or after: tree_finish() has
 * nothing more to do. 0, or why an edit was lost. */
int tree_retire(struct tree *t);

/*
 * All keys made what they were in a state of the history; number 0: before its last edits. A line about what was done is
 * added to `said`. What is accepted is written before. 0, -EROFS, -errno with the reason.
 */
int tree_undo(struct tree *t, uint64_t number, struct buf *said, struct err *e);
/* The same, as live_undo(): it does not wait. tree_undo_said(): the line about the last one, if there was one. */
int tree_begin_undo(struct tree *t, uint64_t number, struct live_wait *w);
int tree_undo_said(struct tree *t, struct buf *out);
/* The states as text, and whether edits are not written yet. 0, -EROFS, -errno with the reason. */
int tree_states(struct tree *t, struct buf *out, struct err *e);
int tree_forget_states(struct tree *t);

/* The same of a model that may be open for reading only: the states of this process's user. 0,
 * -errno. */
int tree_history(struct tree *t, struct buf *out, struct err *e);
/* Forget them: *n states. 0; -EACCES (the model may not be written), -errno. */
int tree_history_clear(struct tree *t, size_t *n, struct err *e);

#endif
