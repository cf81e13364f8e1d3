/* SPDX-License-Identifier: MIT */
/*
 * The draft of a view of a tensor, which all handles that write it share, in the list of the live
 * state; its judge is tensor_judge.h, or view.c.
 *
 * Locks: that of `struct live` protects all but the content of `data`. A draft is judged without it, for one
 * request at a time (waits.h). `io` of a helper is held while it is written, and comes before that lock.
 */
#ifndef LIVE_VIEW_H
#define LIVE_VIEW_H

#include "base/crew.h"
#include "base/lock.h"
#include "live/tensor.h"
#include "live/tensor_draft.h"
#include "live/tensors.h"

/* Texts of `type` and `shape` are shorter. */
#define VIEW_TEXT_MAX 4096

/* What is asked for is to be done by the draft's `into`. */
#define VIEW_INTO 2

/*
 * What a draft holds and how that is judged, chosen when it is made: of a tensor, or of one in the
 * making, data or a text (contents.c); or a helper's bytes (helpers.h). Without the lock.
 */
struct view_kind {
    /* These three may be VIEW_INTO. */
    int (*read)(struct live *l, struct view_draft *d, uint64_t off, void *dst, size_t n,
                size_t *got);
    /* 1: a line is whole, and is to be judged; 0; -errno, which was reported. */
    int (*write)(struct live *l, struct view_draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n);
    int (*truncate)(struct live *l, struct view_draft *d, uint64_t size);
    /* NULL: without effect. */
    int (*allocate)(struct live *l, struct view_draft *d, uint64_t off, uint64_t n, bool keep_size);
    /* Judge what was written, for a request (NULL: none waits). end: no more will come. 1: there was an edit; 0;
     * -errno, which was reported. NULL: it is not judged. */
    int (*judge)(struct live *l, struct view_draft *d, bool end, struct live_wait *w);
    bool ends; /* each close is taken for the end: a text may lack its newline */
    /* fsync(2); NULL: it is in memory. */
    int (*sync)(struct live *l, struct view_draft *d, struct live_wait *w);
};

struct view_draft {
    struct live *live; /* constant */
    const struct view_kind *of;
    struct view_draft *next, **at; /* in live.views */
    struct view_draft *inside;     /* in the drafts of its folder */
    struct link link;              /* in live.nodes */
    /* Of its node: the version of the tensor that showed there when it was begun. Of a helper, and in the making: of
     * the counter that gives numbers to versions. */
    uint32_t node;
    uint32_t tensor, row;
    struct folder *folder; /* of the tensor: there as long as the live state */
    enum live_view_kind kind;
    struct making *making;     /* of a tensor in the making; NULL: of a tensor */
    bool unlinked;             /* of such a one: its name is gone */
    struct tensor_draft *data; /* owned; NULL: it is a text */
    struct buf text;
    char *helper;          /* owned: the name of a helper; NULL: it is a view */
    int fd;                /* owned: a helper's content */
    _Atomic uint64_t size; /* of that: the disk is not asked under the lock */
    uint64_t writes;       /* how often that was changed; protected by `io` */
    struct lock io;
    uint64_t n_elem; /* of the tensor, when it was begun */
    /* Owned, of a helper that was renamed over a view: by it that view is written now. Set with both
     * locks; there until its last handle goes. NULL: it has its own content. */
    struct live_view *into;
    unsigned unflushed;            /* handles that may write a helper, and were never flushed */
    _Atomic enum view_state state; /* of the text; else that of `data` counts */
    struct promise promise;        /* what was accepted of it */
    unsigned handles, users;       /* open ones; and calls that use it without the lock */
    unsigned writers;              /* of the handles */
    unsigned unsettled; /* writers that were opened, or written, and not closed or synced since */
    bool cold;          /* when it was begun, what the kernel has kept of its node was not right */
    /* When its last writer went and left a NumPy header alone: CLOCK_MONOTONIC; 0: it did not. The next
     * program that opens it goes on with it. */
    time_t begun;
    bool unclosed;       /* some writer went without a flush */
    unsigned edits;      /* of the folder, when it was begun or passed */
    unsigned losses;     /* of the folder, the same */
    bool accepted;       /* some of it was, since it has writers */
    struct err why;      /* code 0; or why a write was refused, until it is written anew */
    bool asked;          /* requests are carried out: waits.h ... */
    struct crew_job job; /* ... by this turn */
};

struct live_view {
    struct view_draft *d; /* NULL: what is written is left aside */
    struct link link;     /* in live.shared, if ... */
    uint32_t node;        /* ... it was opened by another node than the draft's */
    bool writes, append;
    atomic_bool closed; /* since it was written; calls of several threads may come at a time */
    bool flushed;       /* of a helper: it was, or synced */
    struct live_view
        *from;            /* owned: of a helper that is renamed over the view by this handle, ... */
    bool unhid;           /* ... which was hidden */
    struct live_wait end; /* its release */
};

/* The kind of a draft that is made, but of a helper's. */
const struct view_kind *view_kind_of(const struct view_draft *d);
extern const struct view_kind view_helper;
/* How they are judged, and synced: of a tensor; of one in the making. */
int view_data_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w);
int view_text_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w);
int view_sync(struct live *l, struct view_draft *d, struct live_wait *w);
int making_text_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w);
int making_data_judge(struct live *l, struct view_draft *d, bool end, struct live_wait *w);
int making_sync(struct live *l, struct view_draft *d, struct live_wait *w);

/* A flush whose draft was judged, by what carries out requests of the draft (waits.h). */
int view_flushed(struct live *l, struct live_view *h, struct live_wait *w);
/* The same of a release. */
void view_release(struct live *l, struct live_view *h);

/* What was written and is not accepted never is. With the lock. */
void view_drop(struct view_draft *d);

/* What a text shows of a tensor; of other kinds, or of a tensor that does not exist, nothing. */
void view_text(enum live_view_kind kind, const struct tensor_base *base, struct buf *out);

/* The base of a draft: the tensor with all edits accepted. With the lock. -ENOENT. */
int view_base(struct live *l, uint32_t tensor, struct tensor_base **ret);

/* A tensor that is in the making still (makings.h); NULL. With the lock. */
struct making *making_of(const struct live *l, uint32_t number);
/* What is known of one that was removed goes with its last draft. With the lock. */
void making_reap(struct live *l, struct making *m);
#define VIEW_NO_ROW UINT32_MAX /* of helpers */
/* The newest draft of a view that is not outdated. With the lock. */
struct view_draft *view_find(const struct live *l, uint32_t tensor, uint32_t row);
/* True if another view of the tensor holds what is not accepted. With the lock. */
bool view_is_busy(const struct live *l, uint32_t tensor, uint32_t row);
/* A new draft of a view, by a node that has none (IDS_NONE: one of its own); one more handle of one. With the lock. */
int view_make(struct live *l, uint32_t node, uint32_t tensor, uint32_t row,
              enum live_view_kind kind, struct view_draft **ret);
int view_join(struct live *l, struct view_draft *d, uint32_t node, int flags,
              struct live_view **ret);
/* The draft of a node, or that some handle has by it; one that was dropped if there is no other; or NULL. With the
 * lock. */
struct view_draft *view_at(const struct live *l, uint32_t node, uint32_t row);
uint64_t view_draft_size(const struct view_draft *d);
/* Of what was written to it. */
static inline enum view_state view_state(const struct view_draft *d)
{
    return d->data ? tensor_draft_state(d->data) : d->state;
}
/* Put one into the lists. With the lock. 0, -ENOMEM. */
int view_draft_add(struct live *l, struct view_draft *d, struct folder *f);
/* Those of a folder, by `inside`. With the lock. */
struct view_draft *view_drafts(const struct live *l, uint32_t tensor);
/* Take one out that nothing needs any more: for view_draft_end(); or NULL. With the lock. */
struct view_draft *view_draft_reap(struct live *l, struct view_draft *d);
/* Seconds for which a draft that holds a NumPy header alone waits for its program. */
#define VIEW_BEGUN 10
void view_draft_end(struct view_draft *d);
/* Helpers of a folder that is gone for good lose their names. Returns, before `more`, those that nothing needs
 * any more, for view_drafts_end(). With the lock. */
struct view_draft *view_helpers_drop(struct live *l, uint32_t tensor, struct view_draft *more);
/* A list by `next`. */
void view_drafts_end(struct view_draft *dead);
/* All of a tensor in the making that nothing needs any more. With the lock. */
void view_drafts_reap(struct live *l, const struct making *m);
void views_close(struct live *l);

#endif
