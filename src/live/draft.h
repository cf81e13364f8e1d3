/* SPDX-License-Identifier: MIT */
/*
 * A draft holds the bytes that programs write to a key, a view of a tensor or a helper file, until
 * they are judged. All writing handles share it. In metadata/ it holds a text (key_draft.h); for a
 * view of a tensor, or a helper beside one (views.h), stretches of the log over the view's content.
 *
 * Locks: unless marked otherwise, members are protected by the lock of `struct live`. A view's
 * draft is judged without it, for one request at a time (waits.h). `io` is held while it is
 * written, and comes before that lock.
 */
#ifndef LIVE_DRAFT_H
#define LIVE_DRAFT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/hash.h"
#include "base/lock.h"
#include "base/pool.h"
#include "edit/change.h"
#include "live/helper.h"
#include "live/logs.h"
#include "live/tensor_base.h"
#include "live/waits.h"

struct object;
struct live_view;

/*
 * State of the judgement. A view's draft may be written while it is judged: those bytes belong to
 * the next judgement. A flush or fsync judges a refused draft that was not written since again, and
 * reports the result (unless `why` says what stays wrong). The release of the last writer does not
 * judge it again: a close has already reported the failure, and a later success could not be
 * reported. Events happen under the lock that protects the content; the state is read without it.
 */
enum draft_state {
    DRAFT_CLEAN,    /* not written since it was begun or passed */
    DRAFT_EMPTIED,  /* a text was truncated or created, and not written since */
    DRAFT_WRITTEN,  /* written, and still to be judged */
    DRAFT_JUDGED,   /* being judged */
    DRAFT_MORE,     /* being judged, and written meanwhile */
    DRAFT_SHORT,    /* at the last close a key's text was not a value, but it may become one */
    DRAFT_ACCEPTED, /* a key's text is the value, or was */
    DRAFT_REFUSED,  /* judged to be an error, and not written since */
    DRAFT_DROPPED,  /* its last writer is gone and it was not accepted, and never will be */
    DRAFT_STATES
};

enum draft_event {
    DRAFT_WRITE,  /* bytes, or zeros that made it longer */
    DRAFT_CUT,    /* data was made shorter: not a write by itself */
    DRAFT_EMPTY,  /* a text was made empty: bytes written to it are gone */
    DRAFT_JUDGE,  /* a judgement begins; if draft_is_due(). A key is judged at once, without this */
    DRAFT_PASS,   /* it was accepted, or does not differ */
    DRAFT_LEAVE,  /* no verdict: too short so far, or to be judged again */
    DRAFT_LACK,   /* no verdict on a key's text, which is judged when more is written */
    DRAFT_REFUSE, /* an error */
    DRAFT_TAKE_BACK, /* a refused write is reported as not having happened */
    DRAFT_REOPEN,    /* another program starts over from the stored value */
    DRAFT_DROP,      /* the last writer is gone */
    DRAFT_EVENTS
};

/* Place of the values of a NumPy view, according to its header. */
struct tensor_layout {
    uint32_t header, width; /* sizes of the header and of a value in bytes; 0: unknown */
};

/* Bytes [lo, hi) of the view. */
struct tensor_range {
    uint64_t lo, hi;
};

struct tensor_ranges {
    struct tensor_range *of; /* owned: in order, disjoint */
    size_t n;
};

/* A stored value, by numbers unique in this mount, and its type. */
struct typed_value {
    uint64_t id; /* result of shown_id() */
    uint32_t kv; /* as in struct shown */
    struct typed type;
};

struct draft {
    _Atomic enum draft_state state;
    struct buf text; /* in metadata/: the content */
    /* For any other draft: its size; the disk is not accessed under the lock. */
    _Atomic uint64_t size;
    /* For a view: numbers of open handles, and of calls that use it without the lock. */
    unsigned handles, users;
    unsigned writers; /* number of handles open for writing */
    /* A part of it was accepted since it was begun or has writers, and is not lost. */
    bool accepted;
    /* Code 0, or the reason why a write was refused, until the draft is rewritten. */
    struct err why;

    /* ---- in metadata/ ---- */
    unsigned restarts; /* how often a program started over from the stored value */
    bool whole;  /* written from the start, without a hole, so that its beginning can be judged */
    bool closed; /* the last call on it was a flush, as sent by close(2) */
    bool anew;   /* for a name without a file whose key is stored; until it is accepted */
    struct typed typed;       /* opened as KEY:TYPE */
    struct typed_value known; /* the stored value whose type was determined last */
    struct shown before;      /* value of the key when the draft was begun */

    /* ---- of a view, or of a helper beside it ---- */
    struct live *live;        /* constant */
    struct draft *next, **at; /* in live.views */
    struct draft *inside;     /* in the drafts of its object */
    struct link link;         /* in live.nodes */
    /*
     * Version of the node: that of the tensor shown when the draft was begun. For a helper, and for
     * a new tensor: from the counter for versions.
     */
    uint32_t node;
    uint32_t row;
    struct object *object; /* object of the tensor, which exists as long as the draft */
    bool made;             /* of a view: begun when the tensor was new: objects.h */
    bool unlinked;         /* its name is gone */
    bool replaced;         /* a helper has taken its place: writes to it are refused */
    /* Owned: the name of a helper, or of a helper that was renamed over a view; NULL: never a
     * helper. */
    char *helper;
    uint64_t n_elem;        /* of the tensor, when the draft was begun */
    struct promise promise; /* for its accepted edits */
    /* Number of writers that were opened, or written, and not closed or synced since. */
    unsigned unsettled;
    bool cold; /* when it was begun, the kernel's cached pages of its node were not right */
    /* CLOCK_MONOTONIC: when its last writer left only a NumPy header, which the next program to
     * open it continues; or 0. */
    time_t begun;
    bool unclosed;       /* a writer was released without a flush */
    unsigned edits;      /* the object's count when it was begun or passed */
    unsigned losses;     /* the object's count at that time */
    bool asked;          /* requests are being handled: waits.h ... */
    struct pool_job job; /* ... in turns of this job */

    /* ---- data ---- */
    struct logs *logs; /* not owned; constant; NULL: the draft is in metadata/ */
    struct lock io, lock;
    /* Changed with both locks, like the size: */
    /* A helper renamed over a view becomes that view: changed with the lock of live, too. */
    _Atomic enum tensor_view view;
    uint64_t limit; /* writes may not go past it */
    struct extents written;
    uint64_t cut; /* bytes from here on do not come from the base: all are in `written` */
    /* How often it was truncated: judgements of truncated bytes do not count. */
    unsigned truncations;
    struct npy npy; /* the header of a NumPy view, if npy.header is not 0 */
    /*
     * Protected by `io`: the space in the log for bytes [room.at, room.at + room.len) of the view.
     * No judgement has seen that space. Without a log: no space.
     */
    struct extent room;
    /* Bytes [sent, run) of that space were written in order but not yet sent to the disk. */
    uint64_t sent, run;
    /* Protected by `lock`: the base, and */
    struct tensor_base *base;     /* a reference */
    struct tensor_ranges judging; /* the ranges being judged */
    /* Members of the judge: */
    /* The layout by which all bytes were judged that will not be judged again. */
    struct tensor_layout layout;
};

/* Make a draft whose members are all unset. Returns NULL without memory. */
struct draft *draft_new(void);
void draft_free(struct draft *d); /* may be NULL */

/* Change the state. Only this function does. */
void draft_event(struct draft *d, enum draft_event event);
/* True if there is something to judge. */
bool draft_is_due(enum draft_state state);
/* True if bytes written to a view are not accepted. */
bool draft_is_unaccepted(enum draft_state state);

static inline bool draft_is_text(const struct draft *d)
{
    return d->view == TENSOR_TYPE || d->view == TENSOR_SHAPE;
}

static inline bool draft_is_helper(const struct draft *d)
{
    return d->view == TENSOR_HELPER;
}

/*
 * ---- the data in the draft of a view: written bytes, over the view's content when the draft was
 * begun ----
 *
 *     r = tensor_draft_make(f, base, TENSOR_F32, &d, &e);
 *     r = tensor_draft_write(d, false, off, bytes, n, &e);       ... truncate, allocate, read
 *     r = tensor_draft_judge(d, &watch, &edit, &e);    (tensor_judge.h) at a flush, fsync or release
 *     TENSOR_CHANGED:  r = tensor_edit_apply(&edit, change, name, n, &e);
 *                      r == 0: tensor_draft_passed(d, base with the new content)
 *                      r < 0:  tensor_draft_failed(d)
 *     tensor_edit_free(&edit);
 *     draft_free(d);
 *
 * Bytes are in the model's log (logs.h): a draft is a list of stretches of it, over the view of the
 * base. Bytes not judged yet are overwritten in place; bytes that are being judged, or were, never
 * change: new ones are written elsewhere. Where the draft was truncated and grew again, there are
 * zeros.
 *
 * Threads: any. One judges at a time, up to passed() or failed(). Others may read and write
 * meanwhile: their bytes are part of this judgement or the next. `io` is held for one write and
 * while the disk is accessed, but not while values are compared and encoded; `lock` is held only
 * briefly, to access the members that it protects, and comes after all other locks.
 */

/* Limit on a draft whose length is not limited by a tensor, in bytes: larger than any tensor. */
#define TENSOR_DRAFT_MAX ((uint64_t)1 << 43)
/* Maximum length of a text of `type` or `shape`. */
#define TENSOR_TEXT_MAX 4096

/*
 * Make a draft of a view that exists, or of any view of a tensor that does not exist, or of a
 * helper (which is never judged). The logs must outlive it. Takes a reference to the base. Does not
 * access the disk: the first write creates a log. Returns 0 or -ENOMEM.
 */
int tensor_draft_make(struct logs *logs, struct tensor_base *base, enum tensor_view view,
                      struct draft **ret, struct err *e);

/*
 * Write to the draft. append: at its present end; else at `off`. Returns 0, or 1 for a text whose
 * line is complete and ends with these bytes; -EFBIG (longer than the view can be), -EINVAL (a
 * complete or incomplete NumPy header that cannot become a valid one; a text that has a hole or is
 * too long), -ENOSPC, -ENOMEM, -EIO or -errno. On failure the content at the place of the write is
 * undefined.
 */
int tensor_draft_write(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n,
                       struct err *e);
/* Returns 0, -EFBIG, -ENOMEM or -errno. */
int tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
/* Handle fallocate(2) with mode 0, or keeping the size. Reserves no space. Returns 0 or -EFBIG. */
int tensor_draft_allocate(struct draft *d, uint64_t off, uint64_t n, bool keep_size, struct err *e);
/* Read up to n bytes at `off`; *got is less at the end. Returns 0, -ENOMEM, -EIO or -errno. */
int tensor_draft_read(struct draft *d, uint64_t off, void *dst, size_t n, size_t *got);
/*
 * Note that the edit was accepted: the draft continues from this base, which includes it. Quick;
 * call it before the model can be edited again. Takes a reference.
 */
void tensor_draft_passed(struct draft *d, struct tensor_base *now);
/* Note that the edit was not accepted. */
void tensor_draft_failed(struct draft *d);
/*
 * Take back a line that a signal has stopped: while it was judged (judged), or before, when no
 * other line waits (all).
 */
void tensor_draft_take_back(struct draft *d, bool judged, bool all);
/*
 * Count all bytes of a helper as written to this view, so that they must be judged; or make it a
 * helper again. Takes a reference to the base. With `io`. The second function checks that this is
 * possible: 0, -EFBIG, -EINVAL or -errno, as for a write.
 */
void tensor_draft_become(struct draft *d, enum tensor_view view, struct tensor_base *base);
int tensor_draft_check(struct draft *d, struct err *e);

/* ---- for judges ---- */

/* The data to judge, as of the beginning of the judgement. */
struct tensor_round {
    struct tensor_base *base;   /* a reference */
    struct extents shown;       /* owned: extents whose bytes do not change */
    struct tensor_ranges fresh; /* owned: the ranges to judge */
    uint64_t size;
    uint64_t cut;
    unsigned truncations;
};

/* Begin a judgement. Returns 0 if no bytes were written, 1 if _end() must follow, or -errno. */
int tensor_draft_begin(struct draft *d, struct tensor_round *ret);
/* Judge all of it, by this header, showing no bytes of the base any more. Returns 0 or -errno. */
int tensor_draft_detach(struct draft *d, struct tensor_round *round, const struct npy *npy);
/* Copy bytes [lo, hi) to the log unless they are there. Returns 0 or -errno. */
int tensor_draft_hold(struct draft *d, uint64_t lo, uint64_t hi);
/* Read bytes [off, off + n) of the view as judged, zeros past the size. Returns 0, -EIO or
 * -errno. */
int tensor_round_read(const struct draft *d, const struct tensor_round *round, uint64_t off,
                      void *dst, size_t n);
/* Get these bytes as a piece: how many, and their place; *ret: log NULL: in the base. Returns 0 or
 * -errno. */
int tensor_round_piece(const struct draft *d, const struct tensor_round *round, uint64_t off,
                       uint64_t n, struct tensor_piece *ret, struct err *e);
/* Get all its bytes, which then never change, as a tensor of this shape. Returns 0, or -errno with
 * a message. */
int tensor_draft_share(struct draft *d, const struct tensor_shape *shape, struct tensor_edit *ret,
                       struct err *e);
/* End the judgement. keep: passed() or failed() will follow; otherwise all bytes count as not
 * judged. Returns -EAGAIN as above, else r. */
int tensor_draft_end(struct draft *d, struct tensor_round *round, bool keep, int r);

#endif
