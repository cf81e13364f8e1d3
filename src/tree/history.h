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
/* Append a list of the states that this process's user has kept for a model, which may be open only
 * for reading. Returns 0 or -errno. */
int tree_history(struct tree *t, struct buf *out, struct err *e);
/* Forget all states. Returns 0, -EACCES (the model may not be written) or -errno. */
int tree_history_clear(struct tree *t, struct err *e);

/* Write the last lines of `info`, the state of the mount. */
void state_text(struct tree *t, struct buf *out);
/* Write `errors`: a line "PATH: WHY" for each refused write, and for each edit that could not be
 * written. */
void errors_text(struct tree *t, struct buf *out);

#endif
