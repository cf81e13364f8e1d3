/* SPDX-License-Identifier: MIT */
/*
 * A draft holds the bytes that programs write to a key, a view of a tensor or a helper file, until
 * they are judged. All writing handles share it. In metadata/ it holds text (edits.h); for a view
 * of a tensor, or a helper beside one (views.h), it holds stretches of the log that overlay the
 * view's content.
 *
 * Locks: unless marked otherwise, members are protected by the lock of `struct live`. A view's
 * draft is judged without holding that lock, for one request at a time (writer.h). `io` is held
 * while the draft is written, and is taken before the lock of `struct live`.
 */
#ifndef LIVE_DRAFT_H
#define LIVE_DRAFT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/hash.h"
#include "base/lock.h"
#include "base/pool.h"
#include "edit/change.h"
#include "edit/commit.h"
#include "live/objects.h"
#include "live/tensor_judge.h"
#include "live/writer.h"

struct object;
struct live_view;

/*
 * ---- the log of an edited model (model/store.h) ----
 *
 * It is an unnamed file beside the model, created when a draft is first written. Its space is freed
 * once nothing needs it any more. After a lot has been written to a log, it is kept only for its
 * current users, and a new one is started. Threads: any, without the lock.
 */

struct logs {
    const struct edit_file *f; /* not owned; only its constant members are used */
    struct lock *lock;         /* not owned: the lock of the live state, which protects `now` */
    struct log *now;           /* a reference; NULL: no log */
};

/* Call log_take() on the model's log; *ret is a reference to it. Returns 0, or -errno with a
 * message. */
int logs_take(struct logs *s, uint64_t n, uint64_t phase, struct log **ret, uint64_t *at,
              struct err *e);
/* Like logs_take(), but fill the range with zeros. */
int logs_take_zeros(struct logs *s, uint64_t n, struct log **ret, uint64_t *at, struct err *e);
/* Write bytes to a range taken before. Returns 0, -ENOSPC or -errno. */
int logs_put(const struct logs *s, struct log *log, uint64_t at, const void *bytes, size_t n);
/* Set e to a message about r, an error from logs_put(). Returns r. */
int logs_failed(int r, struct err *e);
/* Drop the log if nothing needs it. */
void logs_rest(struct logs *s);

/*
 * ---- bytes written to a view ----
 *
 * They are disjoint stretches of the view in ascending order, each in a log or all zeros. One
 * thread at a time may use them.
 */

struct extent {
    uint64_t at, len; /* in the view */
    uint64_t src;     /* offset of the first byte in the log */
    struct log *log;  /* a reference; NULL: zeros */
    bool fresh;       /* not judged yet */
};

struct extents {
    struct extent *of; /* owned */
    size_t n, cap;
};

void extents_free(struct extents *s);
/* Put an extent over the existing ones, taking another reference to its log. Returns 0 or
 * -ENOMEM. */
int extents_put(struct extents *s, const struct extent *x);
/* Drop all bytes past `size`. */
void extents_cut(struct extents *s, uint64_t size);
/* Copy all extents into *ret, which must be empty, with new references. Returns 0 or -ENOMEM. */
int extents_copy(const struct extents *s, struct extents *ret);
/* Return how many of the n > 0 bytes at `off` belong to one extent (*ret), or to no extent (*ret is
 * NULL). */
uint64_t extents_stretch(const struct extents *s, uint64_t off, uint64_t n,
                         const struct extent **ret);
/* Read bytes [off, off + n) of the view, all within one extent. Returns 0, -EIO or -errno. */
int extent_read(const struct extent *x, uint64_t off, void *dst, size_t n);

/* ---- drafts ---- */

/*
 * State of the judgement. A view's draft may be written while it is being judged; bytes written
 * then belong to the next judgement. A flush or fsync judges a refused draft again even if it has
 * not been written since, and reports the result (unless `why` gives a lasting reason). The release
 * of the last writer does not: a close has already reported the failure, and a later success could
 * not be reported. Events happen under the lock that protects the content; the state may be read
 * without that lock.
 */
enum draft_state {
    DRAFT_CLEAN,    /* not written since the draft was started or last passed */
    DRAFT_EMPTIED,  /* a text was truncated or created, and has not been written since */
    DRAFT_WRITTEN,  /* written and not yet judged */
    DRAFT_JUDGED,   /* being judged */
    DRAFT_MORE,     /* being judged, and written in the meantime */
    DRAFT_SHORT,    /* at its last close, a key's text was not yet a value, but may become one */
    DRAFT_ACCEPTED, /* a key's text is, or once was, the key's value */
    DRAFT_REFUSED,  /* judged invalid, and not written since */
    DRAFT_DROPPED,  /* its last writer is gone; it was not accepted and never will be */
    DRAFT_STATES
};

enum draft_event {
    DRAFT_WRITE,     /* bytes were written, or zeros extended the draft */
    DRAFT_CUT,       /* data was truncated, which by itself is not a write */
    DRAFT_EMPTY,     /* a text was emptied, discarding what was written to it */
    DRAFT_JUDGE,     /* a judgement begins, which requires draft_is_due(); not used for keys */
    DRAFT_PASS,      /* the draft was accepted, or changes nothing */
    DRAFT_LEAVE,     /* no verdict: the draft is too short so far, or must be judged again */
    DRAFT_LACK,      /* no verdict on a key's text until more is written */
    DRAFT_REFUSE,    /* the judgement found an error */
    DRAFT_TAKE_BACK, /* a refused write is treated as if it had not happened */
    DRAFT_REOPEN,    /* another program starts over from the stored value */
    DRAFT_DROP,      /* the last writer is gone */
    DRAFT_EVENTS
};

/* Where the values of a NumPy view are, according to its header. */
struct tensor_layout {
    uint32_t header, width; /* sizes of the header and of one value, in bytes; 0 if unknown */
};

/* Bytes [lo, hi) of a view. */
struct tensor_range {
    uint64_t lo, hi;
};

struct tensor_ranges {
    struct tensor_range *of; /* owned: in order, disjoint */
    size_t n;
};

struct draft {
    _Atomic enum draft_state state;
    struct buf text; /* in metadata/: the content */
    /* For any other draft: its size, which can be read without a lock. */
    _Atomic uint64_t size;
    unsigned handles; /* for a view: number of open handles */
    unsigned writers; /* number of handles open for writing */
    /* Why a write was refused, until the draft is rewritten; else code 0. */
    struct err why;

    /* ---- in metadata/ ---- */
    unsigned restarts; /* how often a program has started over from the stored value */
    bool whole;        /* written from the start without a hole, so its beginning can be judged */
    bool closed;       /* flushed (by close(2)) since the last write */
    /* started for a name without a file, even if its key is stored; not accepted yet */
    bool anew;
    struct typed typed;  /* the type set for the file, for example by opening KEY:TYPE */
    uint64_t edit;       /* the last edit made from the draft; 0 if it is lost or none was made */
    struct shown before; /* the key's value before that edit and the edits directly preceding it */

    /* ---- for a view, or a helper beside it ---- */
    struct live *live;    /* constant */
    struct draft *inside; /* next in object->drafts, or in objects.dead */
    struct link link;     /* in objects.nodes */
    /* The node's version: that of the tensor shown when the draft was started; for a helper or a
     * new tensor, a new number from the version counter. */
    uint32_t node;
    uint32_t row;
    struct object *object; /* the tensor's object, which outlives the draft */
    bool accepted;         /* some content has been accepted since the first writer joined */
    bool made;             /* for a view: started when the tensor was new (objects.h) */
    bool unlinked;         /* the draft no longer has a name */
    bool replaced;         /* a helper has replaced this draft: writes to it are refused */
    /* Owned: the draft's name as a helper, kept even after a rename over a view; NULL if it was
     * never a helper. */
    char *helper;
    uint64_t n_elem;        /* the tensor's number of elements when the draft was started */
    struct promise promise; /* covers the edits accepted from this draft */
    /* Number of writing handles not closed or synced since they were opened or last written. */
    unsigned unsettled;
    bool cold; /* when the draft was started, the kernel's cached pages of its node were stale */
    /* CLOCK_MONOTONIC: when the last writer left a draft with only a NumPy header, which the next
     * program to open the view may continue; else 0. */
    time_t begun;
    bool unclosed;       /* a writer was released without a flush */
    unsigned edits;      /* object->edits when the draft was started or last passed */
    unsigned losses;     /* object->losses at the same moment as `edits` */
    bool asked;          /* its requests are being handled, without the lock (writer.h) */
    struct pool_job job; /* handles its requests in the pool */

    /* ---- data ---- */
    struct logs *logs; /* not owned; constant; NULL: the draft is in metadata/ */
    struct lock io, lock;
    /* These change only with both locks held, as does the size: */
    /* Changes when a helper is renamed over a view, also with the lock of `struct live`. */
    _Atomic enum tensor_view view;
    uint64_t limit; /* the maximum size */
    struct extents written;
    uint64_t cut; /* bytes from this offset on never come from the base */
    /* Number of truncations; a truncation during a judgement invalidates the judgement. */
    unsigned truncations;
    struct npy npy; /* the header of a NumPy view, unless npy.header is 0 */
    /* Protected by `io`: space reserved in the log for bytes [room.at, room.at + room.len) of the
     * view, not yet seen by any judgement. If room.log is NULL, no space is reserved. */
    struct extent room;
    /* Bytes [sent, run) of that space have been written sequentially but not sent to the disk. */
    uint64_t sent, run;
    /* Protected by `lock`: */
    struct tensor_base *base;     /* a reference */
    struct tensor_ranges judging; /* the ranges being judged */
    /* Used only by the judge: */
    /* The layout of the values judged so far. If it changes, all values are judged again. */
    struct tensor_layout layout;
};

/* Make an empty draft. Returns NULL if out of memory. */
struct draft *draft_new(void);
void draft_free(struct draft *d); /* may be NULL */

/* Change the state of a draft. No other function may. */
void draft_event(struct draft *d, enum draft_event event);
/* True if there is something to judge. */
bool draft_is_due(enum draft_state state);
/* True if a draft in this state has bytes that have not been accepted. */
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
 * ---- data in the draft of a view ----
 *
 * The written bytes overlay the content that the view had when the draft was started.
 *
 *     r = tensor_draft_make(f, base, TENSOR_F32, &d, &e);
 *     r = tensor_draft_write(d, false, off, bytes, n, &e);       ... truncate, allocate, read
 *     r = tensor_draft_judge(d, &watch, &edit, &e);    (tensor_judge.h) at flush, fsync, release
 *     TENSOR_CHANGED:  if the edit is accepted: tensor_draft_passed(d, base with the new content)
 *                      otherwise: tensor_draft_failed(d)
 *     tensor_edit_free(&edit);
 *     draft_free(d);
 *
 * Bytes are in the model's log: a draft is a list of stretches of the log that overlay the view of
 * the base. Bytes not judged yet are overwritten in place; bytes that are being or have been judged
 * never change: new ones are written elsewhere. Where a draft was truncated and then grew again, it
 * holds zeros.
 *
 * Threads: any. One thread at a time judges, until passed() or failed(). Others may read and write
 * in the meantime; their bytes are part of this judgement or the next. `io` is held for one write
 * and while the disk is accessed, but not while values are compared and encoded; `lock` is held
 * only briefly, to access the members that it protects, and is taken after all other locks.
 */

/* Maximum size in bytes of a draft whose size no tensor determines; larger than any tensor. */
#define TENSOR_DRAFT_MAX ((uint64_t)1 << 43)
/* Maximum length of the text in `type` or `shape`. */
#define TENSOR_TEXT_MAX 4096

/*
 * Make a draft for a view that exists, for any view of a tensor that does not exist, or for a
 * helper (which is never judged). The logs must outlive the draft. Takes a reference to the base.
 * Does not access the disk; the first write creates a log. Returns 0 or -ENOMEM.
 */
int tensor_draft_make(struct logs *logs, struct tensor_base *base, enum tensor_view view,
                      struct draft **ret, struct err *e);

/*
 * Write to the draft at `off` or, if `append` is set, at its current end. Returns 0; 1 if these
 * bytes complete the line of a text; -EFBIG (longer than the view can be), -EINVAL (a NumPy header,
 * complete or not, that cannot become a valid one; a text that has a hole or is too long), -ENOSPC,
 * -ENOMEM, -EIO or -errno. On failure, the content in the range of the write is undefined.
 */
int tensor_draft_write(struct draft *d, bool append, uint64_t off, const void *bytes, size_t n,
                       struct err *e);
/* Truncate or extend the draft. Returns 0, -EFBIG, -ENOMEM or -errno. */
int tensor_draft_truncate(struct draft *d, uint64_t size, struct err *e);
/* Handle fallocate(2), with or without keeping the size. Reserves no space. Returns 0 or -EFBIG. */
int tensor_draft_allocate(struct draft *d, uint64_t off, uint64_t n, bool keep_size, struct err *e);
/* Read up to n bytes at `off`; *got < n only at the end. Returns 0, -ENOMEM, -EIO or -errno. */
int tensor_draft_read(struct draft *d, uint64_t off, void *dst, size_t n, size_t *got);
/* Record that the edit was accepted. The draft continues from `now`, a base that includes the edit,
 * and takes a reference to it. Call this before the model can be edited again. */
void tensor_draft_passed(struct draft *d, struct tensor_base *now);
/* Record that the edit was not accepted. */
void tensor_draft_failed(struct draft *d);
/* Take back a line whose judgement was stopped by a signal. judged: the judgement had started. all:
 * the judgement had not started, and no other line is waiting. */
void tensor_draft_take_back(struct draft *d, bool judged, bool all);
/*
 * Treat all bytes of a helper as written to this view, so that they must be judged; or turn the
 * draft back into a helper. Takes a reference to the base. Call with `io` held. The second function
 * checks the draft's length and header; it returns 0, -EFBIG, -EINVAL or -errno, as for a write.
 */
void tensor_draft_become(struct draft *d, enum tensor_view view, struct tensor_base *base);
int tensor_draft_check(struct draft *d, struct err *e);

/* ---- for judges ---- */

/* The data to judge, as it was when the judgement began. */
struct tensor_round {
    struct tensor_base *base;   /* a reference */
    struct extents shown;       /* owned: extents whose bytes do not change */
    struct tensor_ranges fresh; /* owned: the ranges to judge */
    uint64_t size;
    uint64_t cut;
    unsigned truncations;
};

/* Get the draft's bytes as they are now; later writes do not change them. Returns 0 or -ENOMEM. */
int tensor_draft_round(struct draft *d, struct tensor_round *ret);
void tensor_round_free(struct tensor_round *round);
/* Begin a judgement. Returns 0 if no bytes were written, 1 if tensor_draft_end() must follow, or
 * -errno. */
int tensor_draft_begin(struct draft *d, struct tensor_round *ret);
/* From now on, judge the whole draft by this header, and show no bytes of the base. Returns 0 or
 * -errno. */
int tensor_draft_detach(struct draft *d, struct tensor_round *round, const struct npy *npy);
/* Copy bytes [lo, hi) to the log, except those that are already in it. Returns 0 or -errno. */
int tensor_draft_hold(struct draft *d, uint64_t lo, uint64_t hi);
/* Read bytes [off, off + n) of the view being judged; bytes past the size are zero. Returns 0, -EIO
 * or -errno. */
int tensor_round_read(const struct draft *d, const struct tensor_round *round, uint64_t off,
                      void *dst, size_t n);
/* Get the first piece of the range [off, off + n): its length and its place in the log, or a NULL
 * ret->log if the piece is in the base. Returns 0 or -errno. */
int tensor_round_piece(const struct draft *d, const struct tensor_round *round, uint64_t off,
                       uint64_t n, struct tensor_piece *ret, struct err *e);
/* End the judgement. keep: passed() or failed() will follow; otherwise all bytes count as not
 * judged. Returns r, or -EAGAIN if the draft was truncated in the meantime. */
int tensor_draft_end(struct draft *d, struct tensor_round *round, bool keep, int r);

#endif
