/* SPDX-License-Identifier: MIT */
/*
 * Handles batches: accepted edits that are not on disk yet (core.h). A snapshot of a batch is made
 * when a request needs one or when the batch is written. In the end a batch becomes the state on
 * disk, or is taken back or dropped.
 *
 * Threads: call all functions with the lock of `struct live` held, unless they say otherwise.
 */
#ifndef LIVE_BATCH_H
#define LIVE_BATCH_H

#include "live/core.h"

/* Begin a batch based on the batch in flight or, if there is none, on the state on disk. */
void batch_begin(struct live *l);
/* End the steps of a batch that was written or need not be: its changes to names become final. */
void batch_end_steps(struct live *l, struct batch *b);
/* Free a batch that has no steps. Any thread may call this. */
void batch_free(struct batch *b);
/*
 * Make a new store over base_store() for the newest snapshot, which may be one of l->next: bytes
 * not yet on disk overlay those on disk. Copies no data and does not access the disk. Returns 0 or
 * -ENOMEM.
 */
int batch_store(struct live *l, struct store **ret);

/* Make a snapshot of the accepted edits, unless one exists. Returns 0 or -errno. */
int batch_freshen(struct live *l, struct err *e);
/* Make a snapshot for programs that read the model; it lacks the DOOMED keys and tensors. */
int batch_look(struct live *l, struct err *e);

/* Allocate the memory that batch_move() needs; call before any change. Returns 0 or -ENOMEM. */
int batch_room(struct live *l);
/*
 * Check that pending edits can be written now with the requested strategy, in the free space that
 * the disk last reported. Only the edit that makes this impossible is refused. Returns 0, or
 * -ENOSPC, -EOPNOTSUPP or -errno with a message.
 */
int batch_check(struct live *l, struct err *e);
/* True if the model is so small that a batch is written at once, whatever the strategy. */
bool batch_is_small(const struct batch *b);
/* True if writing the pending edits takes as long as copying a large model. */
bool batch_is_slow(const struct live *l);
/* Remember a version of a tensor: the kernel may still request it after it is replaced. */
void batch_note_version(struct live *l, struct tensor_id id);
/* Note that the change has been altered, so that existing snapshots are out of date. */
void batch_touch(struct live *l);
/* Count the edit to one or two keys as accepted; either may be NULL. */
void batch_count(struct live *l, struct name *x, struct name *other);
/* Do the same, and note that the edit is now part of the change. */
void batch_note(struct live *l, struct name *x, struct name *other);
/* Take back everything added to the change since edit_mark(), even if already planned or shown. */
void batch_undo(struct live *l, size_t mark);
/* Update all names that a change affects, deriving their content from the stored keys. */
void batch_follow(struct live *l, const struct edit_change *c);
/* Move a name's file to a key's name. It moves back if the key's last edit cannot be written. */
void batch_move(struct live *l, struct name *from, struct name *to);

/* Drop the whole batch (M4). failed: the batch in flight whose write failed, or NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Break the promises of all edits after live.settled. Returns true if there is an edit among them
 * that no request waits for. */
bool batch_break(struct live *l, int r);

/* Describe the effect of a change on each key and tensor, as one NUL-terminated line each. Any
 * thread may call this. */
void notes_all(const struct edit_change *c, struct buf *out);

#endif
