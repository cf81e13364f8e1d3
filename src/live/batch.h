/* SPDX-License-Identifier: MIT */
/*
 * What is accepted and not on the disk, as a whole: snapshots are made of it when a request looks
 * or when it is written, and it is taken back, dropped, or moved to what is on the disk. See core.h
 * for what a batch is.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_BATCH_H
#define LIVE_BATCH_H

#include "live/core.h"

/* Begin a batch on what is in flight, else on what is on disk. */
void batch_begin(struct live *l);
/* It is written, or nothing of it has to be: what was done to names stays. */
void batch_end_steps(struct live *l, struct batch *b);
/* Free one without steps. Any thread. */
void batch_free(struct batch *b);
/*
 * The store of the newest snapshot again, which may be one of l->next, over base_store(): bytes that are not on the
 * disk lie over those that are. Nothing is copied, and no disk is asked. 0, -ENOMEM.
 */
int batch_store(struct live *l, struct store **ret);

/* Make a snapshot of the accepted edits, unless one exists. 0, -errno. */
int batch_freshen(struct live *l, struct err *e);
/* The same for programs that look: without the keys that are DOOMED, and the tensors. */
int batch_look(struct live *l, struct err *e);

/* Room for batch_move(), before anything is changed. 0, -ENOMEM. */
int batch_room(struct live *l);
/*
 * Whether what is pending can be written as things stand: by the strategy that was asked for, and with the room that
 * the disk was seen to have. The edit that makes it impossible is refused alone. 0, -ENOSPC, -EOPNOTSUPP, -errno with
 * a line.
 */
int batch_check(struct live *l, struct err *e);
/* True if the model is so small that a batch is written at once, whatever the strategy. */
bool batch_is_small(const struct batch *b);
/* Does it take as long to write what is pending as to copy a large model? */
bool batch_is_slow(const struct live *l);
/* The kernel may ask for a version when the tensor has another one. */
void batch_note_version(struct live *l, struct tensor_id id);
/* The change is another one now: snapshots of before are not made of it. */
void batch_touch(struct live *l);
/* An edit of a key is accepted, and of another one; either may be NULL. */
void batch_count(struct live *l, struct name *x, struct name *other);
/* Both: the edit is part of the change now. */
void batch_note(struct live *l, struct name *x, struct name *other);
/* Take back what the change got since edit_mark(): it may have been planned, or shown, already. */
void batch_undo(struct live *l, size_t mark);
/* What the names of all keys show that a change names follows from what is stored now. */
void batch_follow(struct live *l, const struct edit_change *c);
/* With an edit, the file of one name moves to a key's: if the edit fails, it goes back. */
void batch_move(struct live *l, struct name *from, struct name *to);

/* Drop all of it (M4). failed: the batch that was in flight, if its write failed; else NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Break the promises of all edits after live.settled. True if no request waits for some of them. */
bool batch_break(struct live *l, int r);

/* What a change does to each key and tensor: a line for each, NUL-terminated. Any thread. */
void notes_all(const struct edit_change *c, struct buf *out);

#endif
