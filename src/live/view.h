/* SPDX-License-Identifier: MIT */
/*
 * The draft of a view of a tensor, which all handles that write it share, in the list of the live
 * state; its judge is tensor_judge.h, or view.c.
 */
#ifndef LIVE_VIEW_H
#define LIVE_VIEW_H

#include "live/tensor.h"
#include "live/tensor_draft.h"
#include "live/views.h"

struct live_view {
    struct draft *d;  /* NULL: what is written is left aside */
    struct link link; /* in objects.shared, if ... */
    uint32_t node;    /* ... it was opened by another node than the draft's */
    bool writes, append;
    atomic_bool closed; /* since it was written; calls of several threads may come at a time */
    enum tensor_view
        to; /* of a helper that is renamed by this handle: the view that it is to be, ... */
    uint32_t to_row;      /* ... and its row */
    bool late;            /* released after live_abandon() */
    struct live_wait end; /* its release */
};

/* A write, or a truncation, that is refused is reported, and stays with the draft. 1: a line of a text is whole, and is to be
 * judged; 0; -errno. */
int view_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
               size_t n);
int view_truncate(struct live *l, struct draft *d, uint64_t size);
int view_refused(struct live *l, struct draft *d, int r, struct err *e);
/* Judge what was written, for a request (NULL: none waits). end: no more will come. 1: there was an edit; 0; -errno, which
 * was reported. */
int view_judge(struct live *l, struct draft *d, bool end, struct live_wait *w);

/* What was written and is not accepted never is. With the lock. */
void view_drop(struct draft *d);

/* The base of a draft: the tensor with all edits accepted. With the lock. -ENOENT. */
int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret);

#define VIEW_NO_ROW UINT32_MAX /* of helpers */
/* The draft of a node: its own, else one that a handle of the node shares, else a dropped one, else NULL. With the
 * lock. */
struct draft *view_at(const struct live *l, uint32_t node, uint32_t row);
/* Put one into the lists. With the lock. 0, -ENOMEM. */
int view_draft_add(struct live *l, struct draft *d, struct object *o);
/* Those of a tensor, by `inside`. With the lock. */
struct draft *view_drafts(const struct live *l, uint32_t tensor);
/* Take one out that nothing needs any more: for view_draft_end(); or NULL. With the lock. */
struct draft *view_draft_reap(struct live *l, struct draft *d);
/* Seconds for which a draft that holds a NumPy header alone waits for its program. */
#define VIEW_BEGUN 10
void view_draft_end(struct draft *d);
/* Helpers of a folder that is gone for good lose their names. Returns, before `more`, those that nothing needs
 * any more, for view_drafts_end(). With the lock. */
struct draft *view_helpers_drop(struct live *l, uint32_t tensor, struct draft *more);
/* A list by `next`. */
void view_drafts_end(struct draft *dead);
/* All that were begun when it was a new one, and nothing needs any more. With the lock. */
void view_drafts_reap(struct live *l, const struct object *o);
void views_close(struct live *l);

#endif
