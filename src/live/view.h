/* SPDX-License-Identifier: MIT */
/*
 * The draft of a view of a tensor, which all handles that write it share, in the list of the live
 * state; its judge is tensor_judge.h, or view.c.
 */
#ifndef LIVE_VIEW_H
#define LIVE_VIEW_H

#include "live/tensor.h"
#include "live/tensor_draft.h"

/* Texts of `type` and `shape` are shorter. */
#define VIEW_TEXT_MAX 4096

struct live_view {
    struct draft *d;  /* NULL: what is written is left aside */
    struct link link; /* in live.shared, if ... */
    uint32_t node;    /* ... it was opened by another node than the draft's */
    bool writes, append;
    atomic_bool closed; /* since it was written; calls of several threads may come at a time */
    bool flushed;       /* of a helper: it was, or synced */
    struct live_view
        *from;            /* owned: of a helper that is renamed over the view by this handle, ... */
    bool unhid;           /* ... which was hidden */
    struct live_wait end; /* its release */
};

/* Of values or bytes; of a text; of a helper's bytes. */
extern const struct draft_kind view_data, view_line, view_helper;

/* A flush whose draft was judged, by what carries out requests of the draft (waits.h). */
int view_flushed(struct live *l, struct live_view *h, struct live_wait *w);
/* The same of a release. */
void view_release(struct live *l, struct live_view *h);

/* What was written and is not accepted never is. With the lock. */
void view_drop(struct draft *d);

/* What a text shows of a tensor; of other kinds, or of a tensor that does not exist, nothing. */
void view_text(enum live_view_kind kind, const struct tensor_base *base, struct buf *out);

/* The base of a draft: the tensor with all edits accepted. With the lock. -ENOENT. */
int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret);

#define VIEW_NO_ROW UINT32_MAX /* of helpers */
/* The newest draft of a view that is not outdated. With the lock. */
struct draft *view_find(const struct live *l, uint32_t tensor, uint32_t row);
/* True if another view of the tensor holds what is not accepted. With the lock. */
bool view_is_busy(const struct live *l, uint32_t tensor, uint32_t row);
/* A new draft of a view, by a node that has none (IDS_NONE: one of its own); one more handle of one. With the lock. */
int view_make(struct live *l, uint32_t node, uint32_t tensor, uint32_t row,
              enum live_view_kind kind, struct draft **ret);
int view_join(struct live *l, struct draft *d, uint32_t node, int flags, struct live_view **ret);
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
