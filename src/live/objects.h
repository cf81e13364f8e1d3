/* SPDX-License-Identifier: MIT */
/*
 * Tensors that a call has touched, and drafts of their views. Private to this layer; call all
 * functions with the lock of `struct live` held, unless they say otherwise.
 *
 * A tensor that no call has touched has no object. An object is found by the tensor's number, which
 * the tensor keeps. One that is `fresh` is a folder that mkdir(2) made and that is no tensor of the
 * model yet. One that is `gone` was removed: it is hidden, and each write removes it in its plan,
 * as with keys (state.h).
 *
 * A view that is open for writing has a draft: what was written to it, as extents over the tensor
 * as it is. Only one draft of a tensor at a time has bytes that are not accepted, but for those that
 * nobody writes any more and that wait to be judged; those of a fresh tensor all have. `epoch` counts
 * how often bytes of the tensor's drafts were copied to be judged: when a copy is accepted, extents
 * of its epoch and older are dropped.
 */
#ifndef LIVE_OBJECTS_H
#define LIVE_OBJECTS_H

#include "live/judge.h"
#include "live/queue.h"

/* Maximum size in bytes of a draft whose size no tensor determines; larger than any tensor. */
#define DRAFT_MAX ((uint64_t)1 << 43)

/* A handle of a view. */
struct live_view {
    struct object *o;     /* pinned */
    struct view_draft *d; /* NULL: the view is computed, or the handle cannot write */
    LIST_ENTRY(live_view) in_draft;
    uint64_t opened; /* the object's epoch when it was opened, or cut the view down to nothing */
    uint64_t wrote;  /* the same at its last write; 0: it has not written */
    uint64_t asked;  /* the same if that write had its line judged */
    int lost;        /* why what it wrote was dropped, until it begins anew; or 0 */
    bool append;
    bool owes; /* opened or written since its last flush */
};

struct view_draft {
    struct view_draft *next; /* in object.drafts */
    struct object *object;
    enum tensor_view view; /* constant */
    unsigned writers;      /* number of handles open for writing */
    unsigned judging;      /* number of requests that judge it */
    unsigned pins;         /* number of calls that use it without the lock */
    bool dirty;            /* written since the last flush */
    bool changed;          /* it was written or truncated, so it shows its own bytes */
    uint64_t touched;      /* the epoch of the last write */
    uint64_t refused;      /* the newest epoch that was judged invalid; 0: none */
    uint64_t settled;      /* the newest epoch that was accepted; 0: none */
    uint64_t copied;       /* the newest epoch that was taken to be judged; 0: none */
    uint64_t outdated; /* writes of handles that were opened in this epoch or before are refused */
    int refusal;       /* the error of `refused` */
    LIST_HEAD(, live_view) handles; /* those that can write */
    struct err why;                 /* why a write was refused, until the view is written anew */
    struct timespec begun; /* until when a header alone waits for the rest; tv_sec 0: it does not */
    /* The content, if `changed`: */
    struct extents written;
    uint64_t size;  /* what was cut off and not written since lies in zeros of `written` */
    struct npy npy; /* as in struct tensor_round */
    /* Held during a write, and taken before the lock of `struct live`. Protects what follows:
     * room in the log for bytes [room.at, room.at + room.len) of the view, which no copy has
     * seen. */
    struct lock io;
    struct extent room;
};

struct object {
    struct link link; /* first member; in live.tensors.by_number */
    uint32_t number;
    bool fresh, gone;
    bool kept;   /* gone, but a fresh tensor has its name: it goes when that one is added */
    bool adding; /* fresh, and added by the request that runs: as good as a tensor of the model */
    char *error; /* owned: why the last edit was refused, or NULL */
    struct timespec mtime; /* tv_sec is 0 if not written in this mount */
    struct view_draft *drafts;
    uint64_t epoch;      /* of what is written to them now */
    unsigned pins;       /* number of handles, of requests, and of calls that refer to it */
    uint64_t generation; /* changes each time it comes back */
    uint32_t hidden;     /* rows of views that were unlinked a moment ago, or not made yet */
    struct timespec hidden_until; /* unless it is fresh */
    uint32_t cold;                /* rows whose pages in the kernel may show something else */
    uint64_t chilled;             /* number of times that rows became so */
    /* For a fresh tensor: */
    TAILQ_ENTRY(object) in_fresh; /* live.tensors.fresh */
    char *name;                   /* owned */
    size_t name_len;
    bool news;               /* written since it was judged */
    unsigned owing;          /* number of writing handles that owe their flush */
    struct tensor_edit edit; /* the worker's: what it was judged to be; empty if nothing */
};

struct object *object_find(const struct live *l, uint32_t number);
/* Return the object of a tensor, making one. Returns NULL if out of memory. */
struct object *object_get(struct live *l, uint32_t number);
/* Free an object that nothing needs. */
void object_reap(struct live *l, struct object *o);
void object_unpin(struct live *l, struct object *o);
/* Make a request about a tensor. Returns NULL if out of memory. request_free() calls the second
 * function. */
struct request *object_request(struct live *l, struct object *o);
void object_request_end(struct live *l, struct request *q);
/* How to watch a judgement: it is cancelled with the request, and the log tells its progress. */
struct units_watch object_watch(struct live *l);
void object_set_error(struct live *l, struct object *o, const char *why); /* why may be NULL */
/* Report a refused edit in the log and in user.gguf.error, unless it was the last to be reported: a full
 * disk refuses each page of a mapping. Returns e->code. */
int object_refused(struct live *l, struct object *o, const struct err *e);
/* The tensor has other bytes, type or shape: its times move, and its cached pages are outdated. */
void object_changed(struct object *o);
/* The kernel's pages of these rows may be outdated. */
void object_chill(struct object *o, uint32_t rows);
/* A fresh tensor was written or flushed: it is judged when all rest. */
void object_touch(struct live *l, struct object *o);
/* Return the draft of a view, or NULL. o may be NULL. */
struct view_draft *object_draft(const struct object *o, enum tensor_view view);
/* True if a view does not count: it is computed, or the values of a fresh tensor that has `raw`. */
bool object_leaves(const struct object *o, enum tensor_view view);

/* Return the name of a tensor, which the accepted state or the object keeps, or NULL if it is not there
 * any more. */
const char *object_name(const struct live *l, const struct object *o, size_t *n);
/* Return the tensor as it is in the accepted state, for as long as the lock is held; `t` is NULL if it
 * is not there. */
struct tensor_base object_base(const struct live *l, const struct object *o);
/* Get the same with references, and with its importances. */
void object_base_get(const struct live *l, const struct object *o, struct tensor_base *ret);

/* ---- drafts ---- */

/* True if there is something to judge. */
bool draft_is_written(const struct view_draft *d);
/* Drop what was written up to an epoch. */
void draft_settle(struct view_draft *d, uint64_t epoch);
/* Drop all that was written. */
void draft_reset(struct view_draft *d);
/* Free a draft that nothing needs. */
void draft_reap(struct live *l, struct view_draft *d);
/* Take d->io as well, for which the lock is dropped and retaken. */
void draft_enter(struct live *l, struct view_draft *d);
void draft_leave(struct live *l, struct view_draft *d);
/* Copy what was written, and have later writes go elsewhere. Call with d->io held as well. Returns 0
 * or -ENOMEM. */
int draft_take(struct view_draft *d, struct tensor_round *ret);

/* Free all objects. */
void objects_close(struct live *l);

#endif
