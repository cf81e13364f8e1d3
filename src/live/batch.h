/* SPDX-License-Identifier: MIT */
/*
 * Handles a batch, the accepted edits that are not on disk yet (core.h). A snapshot of a batch is
 * made when a request needs one or when the batch is written. A batch is taken back, dropped, or
 * becomes the state on disk.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_BATCH_H
#define LIVE_BATCH_H

#include "live/core.h"

/* Begin a batch based on the batch in flight, else on the state on disk. */
void batch_begin(struct live *l);
/* End the steps of a batch that is written, or that need not be: its changes to names become
 * final. */
void batch_end_steps(struct live *l, struct batch *b);
/* Free a batch without steps. Any thread. */
void batch_free(struct batch *b);
/*
 * Make a new store for the newest snapshot, which may be one from l->next, over base_store(): bytes
 * not yet on disk overlay those that are. Copies no data and does not access the disk. Returns 0 or
 * -ENOMEM.
 */
int batch_store(struct live *l, struct store **ret);

/* Make a snapshot of the accepted edits, unless one exists. Returns 0 or -errno. */
int batch_freshen(struct live *l, struct err *e);
/* Make a snapshot for programs that read: without the DOOMED keys and tensors. */
int batch_look(struct live *l, struct err *e);

/* Allocate the memory that batch_move() needs, before any change. Returns 0 or -ENOMEM. */
int batch_room(struct live *l);
/*
 * Check that pending edits can be written now: with the requested strategy, and the space that the
 * disk was last seen to have. Only the edit that makes this impossible is refused. Returns 0, or
 * -ENOSPC, -EOPNOTSUPP or -errno with a message.
 */
int batch_check(struct live *l, struct err *e);
/* True if the model is so small that a batch is written at once, whatever the strategy. */
bool batch_is_small(const struct batch *b);
/* True if writing the pending edits takes as long as copying a large model. */
bool batch_is_slow(const struct live *l);
/* Note a version: the kernel may still request it after the tensor has another one. */
void batch_note_version(struct live *l, struct tensor_id id);
/* Note that the change is different now, so older snapshots do not show it. */
void batch_touch(struct live *l);
/* Count the edit of a key, and of another one, as accepted; either may be NULL. */
void batch_count(struct live *l, struct name *x, struct name *other);
/* Count the edit, and note that it is part of the change now. */
void batch_note(struct live *l, struct name *x, struct name *other);
/* Take back everything that was added to the change since edit_mark(), even if it was already
 * planned or shown. */
void batch_undo(struct live *l, size_t mark);
/* Update all names that a change affects: their content follows from the stored keys. */
void batch_follow(struct live *l, const struct edit_change *c);
/* Move a name's file to a key's name. It moves back if the last edit of that key cannot be
 * written. */
void batch_move(struct live *l, struct name *from, struct name *to);

/* Drop the whole batch (M4). failed: the batch that was in flight, if its write failed; else
 * NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Break the promises of all edits after live.settled. Returns true if no request waits for some of
 * them. */
bool batch_break(struct live *l, int r);

/* Describe the effect of a change on each key and tensor, in one NUL-terminated line each. Any
 * thread. */
void notes_all(const struct edit_change *c, struct buf *out);

#endif
