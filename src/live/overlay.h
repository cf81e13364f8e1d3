/* SPDX-License-Identifier: MIT */
/*
 * Accepts, shows and writes edits: from `pending` to a plan, from the plan to a file or to a
 * snapshot that lies over the old file.
 */
#ifndef LIVE_OVERLAY_H
#define LIVE_OVERLAY_H

#include "live/queue.h"

/* Begin with nothing pending. */
void overlay_begin(struct live *l);
/* Return the number of keys and tensors that the next write removes. */
size_t overlay_removals(const struct live *l);
/* True if something is not on disk. */
bool overlay_is_pending(const struct live *l);

/*
 * Accept what the worker has added to `pending` since `mark`: plan it, and write it now or keep it.
 * If that fails, takes it back to the mark. Only the worker calls this; the lock is dropped
 * meanwhile, and held again from the moment that the state is accepted. Then overlay_freshen() shows
 * it. Returns 0, or -errno with the reason. *done: the edit was made all the same (C4, commit.h).
 */
int overlay_accept(struct live *l, size_t mark, enum when when, bool *done, struct err *e);

/* Free the views that the last edit replaced. Only the worker calls this, without the lock. */
void overlay_retire(struct live *l);

/* Show the accepted state without what is gone, as it is now or later, if the newest view shows an
 * older one. Drops the lock meanwhile. Returns 0 or -errno. */
int overlay_freshen(struct live *l, struct err *e);

/*
 * Find out, without the lock, whether the model can be edited at all now, and set *e to the reason
 * if not. Call before an edit, because shells ignore the result of close(2). fully: also whether it
 * can be written; else only whether another program has changed its file (-ESTALE).
 */
void overlay_ready(struct live *l, bool fully, struct err *e);

#define IN_KEYS "metadata/"
#define IN_TENSORS "tensors/"
/* Name each key and tensor in one NUL-terminated line, "metadata/KEY: what"; edits: those that are pending;
 * gone: those whose removal is not planned now. */
void overlay_notes(const struct live *l, bool edits, bool gone, struct buf *out);

#endif
