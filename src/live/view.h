/* SPDX-License-Identifier: MIT */
/*
 * The draft of a view of a tensor, shared by all writing handles, in the list of the live state; its judge is in
 * tensor_judge.h, or for texts in view.c.
 */
#ifndef LIVE_VIEW_H
#define LIVE_VIEW_H

#include "live/tensor.h"
#include "live/tensor_draft.h"
#include "live/views.h"

struct live_view {
    struct draft *d;  /* NULL: what is written is ignored */
    struct link link; /* in objects.shared, if ... */
    uint32_t node;    /* ... it was opened through another node than the draft's */
    bool writes, append;
    atomic_bool closed;   /* since it was written; several threads may call at the same time */
    enum tensor_view to;  /* for a helper that this handle renames: the view that it will be, ... */
    uint32_t to_row;      /* ... and its row */
    bool late;            /* released after live_abandon() */
    struct live_wait end; /* its release */
};

/*
 * A refused write or truncation is reported, and stays with the draft. 1: a line of a text is complete, and must be
 * judged; 0; -errno.
 */
int view_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
               size_t n);
int view_truncate(struct live *l, struct draft *d, uint64_t size);
int view_refused(struct live *l, struct draft *d, int r, struct err *e);
/*
 * Judge what was written, for a request (NULL: none waits). end: no more will come. 1: an edit was made; 0; -errno,
 * which was reported.
 */
int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w);

/* What was written and not accepted never will be. With the lock. */
void view_drop(struct draft *d);

/* The base for a draft: the tensor with all edits accepted. With the lock. -ENOENT. */
int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret);

#define VIEW_NO_ROW UINT32_MAX /* of helpers */
/*
 * The draft of a node: its own, else one that a handle of the node shares, else a dropped one, else NULL. With the
 * lock.
 */
struct draft *view_at(const struct live *l, uint32_t node, uint32_t row);
/* Add it to the lists. With the lock. 0, -ENOMEM. */
int view_draft_add(struct live *l, struct draft *d, struct object *o);
/* The drafts of a tensor, linked by `inside`. With the lock. */
struct draft *view_drafts(const struct live *l, uint32_t tensor);
/* Remove a draft that nothing needs any more, for view_draft_end(); or NULL. With the lock. */
struct draft *view_draft_reap(struct live *l, struct draft *d);
/* Seconds that a draft which holds only a NumPy header waits for its program. */
#define VIEW_BEGUN 10
void view_draft_end(struct draft *d);
/*
 * Helpers in a directory that is gone for good lose their names. Returns those that nothing needs any more, followed
 * by `more`, for view_drafts_end(). With the lock.
 */
struct draft *view_helpers_drop(struct live *l, uint32_t tensor, struct draft *more);
/* A list linked by `next`. */
void view_drafts_end(struct draft *dead);
/* Remove all drafts that were begun when it was new, and that nothing needs any more. With the lock. */
void view_drafts_reap(struct live *l, const struct object *o);
void views_close(struct live *l);

#endif
