/* SPDX-License-Identifier: MIT */
/*
 * Accepted edits that are not on disk yet, as a whole: a snapshot of it is made when a request needs one or when it
 * is written, and it is taken back, dropped, or becomes what is on disk. See core.h for what a batch is.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_BATCH_H
#define LIVE_BATCH_H

#include "live/core.h"

/* Begin a batch based on what is in flight, else on what is on disk. */
void batch_begin(struct live *l);
/* It is written, or nothing of it has to be: what was done to names becomes final. */
void batch_end_steps(struct live *l, struct batch *b);
/* Free a batch without steps. Any thread. */
void batch_free(struct batch *b);
/*
 * A new store for the newest snapshot, which may be one from l->next, over base_store(): bytes not yet on disk lie
 * over those that are. Copies nothing and does not access the disk. 0, -ENOMEM.
 */
int batch_store(struct live *l, struct store **ret);

/* Make a snapshot of the accepted edits, unless one exists. 0, -errno. */
int batch_freshen(struct live *l, struct err *e);
/* The same for programs that look: without the DOOMED keys and tensors. */
int batch_look(struct live *l, struct err *e);

/* Allocate what batch_move() needs, before anything is changed. 0, -ENOMEM. */
int batch_room(struct live *l);
/*
 * Whether what is pending can be written as things stand: with the requested strategy, and the space that the disk
 * was last seen to have. Only the edit that makes it impossible is refused. 0, -ENOSPC, -EOPNOTSUPP, -errno with a
 * line.
 */
int batch_check(struct live *l, struct err *e);
/* True if the model is so small that a batch is written at once, whatever the strategy. */
bool batch_is_small(const struct batch *b);
/* True if writing what is pending takes as long as copying a large model. */
bool batch_is_slow(const struct live *l);
/* The kernel may still ask for a version after the tensor has another one. */
void batch_note_version(struct live *l, struct tensor_id id);
/* The change is different now: older snapshots do not show it. */
void batch_touch(struct live *l);
/* Count the edit of a key, and of another one, as accepted; either may be NULL. */
void batch_count(struct live *l, struct name *x, struct name *other);
/* Both: the edit is part of the change now. */
void batch_note(struct live *l, struct name *x, struct name *other);
/* Take back what the change got since edit_mark(), even if it was already planned or shown. */
void batch_undo(struct live *l, size_t mark);
/* For all keys that a change names: what their names show is derived from what is stored now. */
void batch_follow(struct live *l, const struct edit_change *c);
/* A name's file moves to a key's name, and back if the last edit of that key cannot be written. */
void batch_move(struct live *l, struct name *from, struct name *to);

/* Drop all of it (M4). failed: the batch that was in flight, if its write failed; else NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Break the promises of all edits after live.settled. True if no request waits for some of them. */
bool batch_break(struct live *l, int r);

/* What a change does to each key and tensor: one NUL-terminated line each. Any thread. */
void notes_all(const struct edit_change *c, struct buf *out);

#endif
