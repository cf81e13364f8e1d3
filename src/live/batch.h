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

/* Make a snapshot of the accepted edits, unless one exists. 0; -EAGAIN (bytes of tensors are to be copied
 * first, which preview_again() does; all is planned and parsed); -errno. */
int batch_freshen(struct live *l, struct err *e);
/* The same for programs that look: without the keys that are DOOMED. */
int batch_look(struct live *l, struct err *e);

/* Room for an edit and for a file that it moves, before anything is changed. 0, -ENOMEM. */
int batch_room(struct live *l);
/*
 * Whether what is pending could be written by the strategy that was asked for, as far as plans show it: the edit
 * that makes it impossible is refused alone. In other modes nothing is planned. 0, -EOPNOTSUPP, -errno with a line.
 */
int batch_check(struct live *l, struct err *e);
/* The change is another one now: snapshots of before are not made of it. */
void batch_touch(struct live *l);
/* An edit of a key is accepted, and of another one; either may be NULL. */
void batch_count(struct live *l, struct name *x, struct name *other);
/* Both: the edit is part of the change now. */
void batch_note(struct live *l, struct name *x, struct name *other);
/* Take back what the change got since edit_mark(), and its steps since there were so many: it may have
 * been planned, or shown, already. */
void batch_undo(struct live *l, size_t mark, size_t steps);
/* What the names of all keys show that a change names follows from what is stored now. */
void batch_follow(struct live *l, const struct edit_change *c);
/* With an edit, the file of one name moves to a key's: if the edit fails, it goes back. */
void batch_move(struct live *l, struct name *from, struct name *to);

/*
 * The first of the edits that were asked for can be written: operations of the change, steps, and up to which
 * number.
 */
void batch_keep(struct live *l, size_t ops, size_t steps, uint64_t edit);
/* Those that were asked for cannot be written. */
void batch_take_back(struct live *l, const struct err *e);
/* Drop all of it (M4). failed: the batch that was in flight, if its write failed; else NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Whether the edit with this number is lost if all after `after` are. Of a batch that failed some files may have
 * been written: their edits are not lost. failed: NULL if there is no such batch. */
bool batch_loses(const struct batch *failed, uint64_t after, uint64_t edit, uint32_t file);
/* Break the promises of all such edits. True if none of `waits` waits for one of them. */
bool batch_break(struct live *l, const struct batch *failed, uint64_t after,
                 const struct live_wait *waits, int r);

#endif
