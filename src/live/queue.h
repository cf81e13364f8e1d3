/* SPDX-License-Identifier: MIT */
/*
 * The queue of edits of one model. A worker, a turn of the pool that lasts while there are requests,
 * takes one after another: it makes the edit in `pending`, plans the new file, and writes it or
 * keeps it pending (overlay.h). A request that is interrupted while it waits is taken out and did
 * not happen; once it has begun, only its wait ends.
 */
#ifndef LIVE_QUEUE_H
#define LIVE_QUEUE_H

#include "live/judge.h"
#include "live/state.h"

/* When an edit is written: when pending edits are due, as the commit mode says, or before the call
 * returns. */
enum when { WHEN_DUE, WHEN_MODE, WHEN_NOW };

struct request {
    TAILQ_ENTRY(request) in_queue;
    struct live_wait *wait; /* NULL: nobody waits, or no longer */
    enum when when;
    /*
     * Make the edit in l->pending; may drop the lock meanwhile. Returns 1 if pending was changed, 0
     * if there is nothing to do, or -errno with the reason; its operations are then taken back.
     * NULL: write what is pending.
     */
    int (*apply)(struct live *l, struct request *q, struct err *e);
    /*
     * Follow an edit that was accepted (r >= 0, or r < 0 and `done`) or refused. Returns the result
     * for the program. NULL: r, or `failed`.
     */
    int (*end)(struct live *l, struct request *q, int r, const struct err *e);
    bool done;     /* the edit was made, or there was nothing to do, whatever the result */
    bool changed;  /* apply() returned 1 */
    bool converts; /* apply() converts a tensor: the end of the mount breaks that off */
    /* For apply() and end(): */
    struct file *file; /* pinned, as are the names; each may be NULL */
    struct name *from, *to;
    struct buf text; /* owned */
    struct typed typed;
    uint64_t number; /* a draft's version; an undo's state; 1: a key's rename, with its value */
    int failed;      /* the error of a new tensor, which keeps nothing else from being written */
    struct object *object;     /* a tensor: pinned; or NULL */
    struct view_draft *view;   /* a draft of it, counted in `judging`; or NULL */
    struct tensor_round round; /* a copy of that: owned */
    bool last;                 /* no more writes of it will come */
    int verdict;               /* on it; -EINTR: none, or a signal ended the judgement */
};

/* Make a request about a file, if any. Returns NULL if out of memory. */
struct request *request_new(struct live *l, struct file *f);
/* Free a request that was not added. */
void request_free(struct live *l, struct request *q);
/*
 * Add a request, which the queue then owns. w: who waits for it, or NULL. Returns LIVE_PARKED (0 if
 * w is NULL), or -EROFS (no more edits) or -errno, after freeing it.
 */
int queue_add(struct live *l, struct request *q, struct live_wait *w);
/* Write what is pending, after all requests before; first add the new tensors, if `all`. Returns as
 * queue_add(). */
int queue_sync(struct live *l, bool all, struct live_wait *w);
/* Have pending edits written later: removals, or collected edits. */
void queue_later(struct live *l, bool removes);
/* If nothing is pending any more, nothing is due, and nothing is in trouble. */
void queue_spared(struct live *l);
#define QUEUE_REMOVALS 1 /* seconds after the last removal */
#define QUEUE_TENSORS 2  /* the same if tensors are removed */
#define QUEUE_EDITS 10   /* seconds after the last collected edit */
#define QUEUE_LATEST 60  /* seconds after the first */

/* Call these three without the lock. */
void queue_interrupt(struct live *l, const void *request);
int queue_start(struct live *l);
/* Wait until the queue is idle, and end its jobs. */
void queue_stop(struct live *l);

#endif
