/* SPDX-License-Identifier: MIT */
/*
 * A draft: what programs write to a key, a view of a tensor or a helper file, until it is judged. All handles that
 * write share it. In metadata/ it holds a text (key_draft.h); of a view of a tensor, or a helper beside one (view.h),
 * stretches of the log over what the view shows (tensor_draft.h).
 *
 * Locks: that of `struct live` protects all but these. A view's draft is judged without it, for one
 * request at a time (waits.h). `io` is held while it is written, and comes before that lock.
 */
#ifndef LIVE_DRAFT_H
#define LIVE_DRAFT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/pool.h"
#include "base/hash.h"
#include "base/lock.h"
#include "edit/shown.h"
#include "live/helper.h"
#include "live/logs.h"
#include "live/tensor_base.h"
#include "live/tensors.h"

struct object;
struct live_view;

/*
 * Whether what was written is judged. A view's draft may be written while it is judged: that is part of the next
 * judgement. What was refused, and was not written since, is judged again by a flush or fsync, which reports the
 * result (unless `why` says what stays wrong). The release of the last writer does not judge it again: a close
 * has reported that it failed, and nothing would report that it did not. Events come under the lock of what holds the
 * content; the state is read without it.
 */
enum draft_state {
    DRAFT_CLEAN,    /* nothing was written since it was begun or passed */
    DRAFT_EMPTIED,  /* a text was truncated or made, and nothing written since */
    DRAFT_WRITTEN,  /* something was, and is to be judged */
    DRAFT_JUDGED,   /* it is being judged */
    DRAFT_MORE,     /* it is being judged, and more was written meanwhile */
    DRAFT_SHORT,    /* at the last close a key's text was no value, but may become one */
    DRAFT_ACCEPTED, /* a key's text is the value, or was */
    DRAFT_REFUSED,  /* it was judged, and is an error; nothing was written since */
    DRAFT_DROPPED,  /* its last writer is gone, and it was not accepted: it never is */
    DRAFT_STATES
};

enum draft_event {
    DRAFT_WRITE,     /* bytes, or zeros by which it grew */
    DRAFT_CUT,       /* data was made shorter: not a write by itself */
    DRAFT_EMPTY,     /* a text was made empty: what was written to it is gone */
    DRAFT_JUDGE,     /* a judgement begins; if draft_is_due(). A key is judged at once, without */
    DRAFT_PASS,      /* it was accepted, or nothing of it differs */
    DRAFT_LEAVE,     /* no verdict: too short so far, or to be judged again */
    DRAFT_LACK,      /* the same of a key, which is judged once more is written */
    DRAFT_REFUSE,    /* an error */
    DRAFT_TAKE_BACK, /* what was refused is reported as a write that did not happen */
    DRAFT_REOPEN,    /* another program begins anew from what is stored */
    DRAFT_DROP,      /* the last writer is gone */
    DRAFT_EVENTS
};

/* Where the values of a NumPy view are, by its header. */
struct tensor_layout {
    uint32_t header, width; /* bytes of the header, of a value; 0: unknown */
};

/* Bytes [lo, hi) of the view. */
struct tensor_range {
    uint64_t lo, hi;
};

struct tensor_ranges {
    struct tensor_range *of; /* owned: in order, disjoint */
    size_t n;
};

/* A stored value, by numbers that no other has in this mount, and its type. */
struct typed_value {
    uint64_t id; /* shown_id() */
    uint32_t kv; /* of struct shown */
    struct typed type;
};

struct draft {
    _Atomic enum draft_state state;
    struct buf text;         /* in metadata/: the content */
    _Atomic uint64_t size;   /* of any other; the disk is not asked under the lock */
    unsigned handles, users; /* of a view: open ones; and calls that use it without the lock */
    unsigned writers;        /* handles that are open for writing */
    bool accepted;           /* some of it was, since it was begun or has writers, and not lost */
    struct err why;          /* code 0; or why a write was refused, until it is written anew */

    /* ---- in metadata/ ---- */
    unsigned restarts;  /* a program began anew from what is stored */
    bool whole;         /* written from the beginning on, without a hole: its start can be judged */
    bool closed;        /* the last that was seen of it is a flush, as close(2) sends it */
    bool anew;          /* of a name that had no file, though the key is stored; until accepted */
    struct typed typed; /* opened as KEY:TYPE */
    struct typed_value known; /* the stored value whose type was found last */
    struct shown before;      /* the key's value when it was begun */

    /* ---- of a view, or of a helper beside it ---- */
    struct live *live;        /* constant */
    struct draft *next, **at; /* in live.views */
    struct draft *inside;     /* in the drafts of its object */
    struct link link;         /* in live.nodes */
    /* Of its node: the version of the tensor that showed there when it was begun. Of a helper, and in the making: of
     * the counter that gives numbers to versions. */
    uint32_t node;
    uint32_t tensor, row;
    struct object *object; /* of the tensor: there as long as the draft */
    bool made;             /* of a view: begun when the tensor was a new one: objects.h */
    bool unlinked;         /* its name is gone */
    bool replaced;         /* a helper has taken its place: what is written to it is refused */
    char *
        helper; /* owned: the name of a helper, or of one that was renamed over a view; NULL: it never was one */
    uint64_t n_elem;        /* of the tensor, when it was begun */
    struct promise promise; /* what was accepted of it */
    unsigned unsettled; /* writers that were opened, or written, and not closed or synced since */
    bool cold;          /* when it was begun, what the kernel has kept of its node was not right */
    /* CLOCK_MONOTONIC: when its last writer left nothing but a NumPy header, which the next program to open it
     * continues; or 0. */
    time_t begun;
    bool unclosed;       /* some writer went without a flush */
    unsigned edits;      /* of the object, when it was begun or passed */
    unsigned losses;     /* of the object, the same */
    bool asked;          /* requests are carried out: waits.h ... */
    struct pool_job job; /* ... by this turn */

    /* ---- data ---- */
    struct logs *logs; /* not owned; constant; NULL: it is in metadata/ */
    struct lock io, lock;
    /* Changed with both locks, as is the size: */
    _Atomic enum tensor_view
        view; /* a helper that is renamed over a view becomes that: with the lock of live, too */
    uint64_t limit; /* no write may end behind it */
    uint64_t phase; /* of the view's first byte in the model: log_take() */
    struct extents written;
    uint64_t cut;         /* bytes from here on are not those below: all are in `written` */
    unsigned truncations; /* how often it was cut: a judgement of what is gone does not count */
    struct npy npy;       /* of a NumPy view: its header, if npy.header is not 0 */
    /* For `io` alone: where the log has room for bytes [room.at, room.at + room.len) of the view. No judgement has
     * seen that room. Without a log: none. */
    struct extent room;
    uint64_t sent,
        run; /* bytes [sent, run) of it were written in order, and not sent to the disk */
    /* Protected by `lock`: what is below, and */
    struct tensor_base *base;     /* a reference */
    struct tensor_ranges judging; /* what is being judged */
    /* The judge's: */
    struct tensor_layout layout; /* as which all is judged that is not to be judged again */
};

/* Nothing of it is set yet. NULL: no memory. */
struct draft *draft_new(void);
void draft_free(struct draft *d); /* may be NULL */

/* The one place where a state changes. */
void draft_event(struct draft *d, enum draft_event event);
/* Something is to be judged. */
bool draft_is_due(enum draft_state state);
/* Something was written to a view and is not accepted. */
bool draft_is_unaccepted(enum draft_state state);

static inline bool draft_is_text(const struct draft *d)
{
    return d->view == TENSOR_TYPE || d->view == TENSOR_SHAPE;
}

static inline bool draft_is_helper(const struct draft *d)
{
    return d->view == TENSOR_HELPER;
}

#endif
