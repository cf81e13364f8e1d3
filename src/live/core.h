/* SPDX-License-Identifier: MIT */
/*
 * What is being edited, as a whole: the state that the files of this floor share.
 *
 * Edits that are accepted and not on the disk are a batch: a change of the model, and the steps by
 * which names were changed with it. `next` collects; the writer's thread takes it as a whole (it is
 * then in flight), writes it without the lock, and answers the requests that wait. What is accepted
 * meanwhile collects in `next` again, based on what is in flight.
 *
 *  M4. What was done to names since the state on the disk is in the steps of its batch. Written: the
 *      steps are dropped. Failed: the steps of the later batch and then its own are played backwards.
 *      All that was accepted until then is lost, and reported.
 *  M6. Edits have numbers, which rise. Those up to `settled` are on the disk, or lost; those after it
 *      and up to flight.last are in flight; the others are in `next`. A request waits for the
 *      batch of its edit (waits.h); a loss is reported by promises (waits.h).
 *
 * Threads: all of struct live but what is marked is protected by its lock.
 */
#ifndef LIVE_CORE_H
#define LIVE_CORE_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/lock.h"
#include "edit/commit.h"
#include "live/live.h"
#include "live/logs.h"
#include "live/names.h"
#include "live/objects.h"
#include "live/waits.h"

/* With an edit a file moved from one name to another, in the place of what that had. All of them stay as long. */
struct step {
    struct name *from, *to;
    struct file *file, *before; /* before: NULL if there was none */
    unsigned drafts;            /* file->drafts: later ones do not go back with it */
};

struct batch {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* owned: of the change, as it was at its last snapshot, ... */
    bool planned;              /* ... if there is one */
    uint64_t number;           /* rises: a request waits for one (waits.h) */
    struct step *step;         /* owned */
    size_t n_step, cap_step;
    uint64_t restored; /* an undo: the state that it goes back to; else 0 */
    char undone[512];  /* an undo: what is said of it once it is written */
    struct buf notes;  /* owned; in flight: what it does to each key and tensor, for the log */
    struct err why;    /* why it was not written; else code 0 */
    /* In flight: */
    struct view view; /* references: what is being written; no snapshot: nothing is in flight */
    uint64_t last;    /* its last edit */
    size_t n_edits;   /* keys and tensors that it changes */
    bool slow;        /* it may be a copy of a large model */
};

/* The turns of the writer's thread, and when the next one is due. */
struct writer {
    struct pool_job job;
    bool started, stop;
    bool unmapped;       /* readers have a mapping from before its last edit */
    unsigned converting; /* conversions under way: what waits for `due` waits for them, too */
    int failed;          /* 0, or why edits were lost whose error no request got; reported once */
    /* CLOCK_MONOTONIC: the first edit that waits for `due`, and when to write what no request waits for; tv_sec 0:
     * nothing waits. */
    struct timespec first, due;
};

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file
        *file; /* the file that is edited: not owned; the writer's: while nothing is written,
                                  under the lock */
    struct history_job *history; /* not owned; set once it has started; NULL: none is kept */
    struct lock lock;            /* comes before that of `newest` */
    struct {
        atomic_bool stale; /* edits were accepted that are not in the newest snapshot */
        atomic_bool
            hides;       /* the newest snapshot lacks what is DOOMED: it is not what is accepted */
        uint32_t number; /* of the last snapshot that was made */
    } shown;
    struct view disk;          /* references: what the model file holds */
    struct batch next, flight; /* flight: if its view is set; its plan as it was taken */
    struct names names;
    struct objects objects; /* tensors */
    struct logs logs;       /* of drafts of tensors */
    struct waits waits;
    uint64_t edits;   /* the number of the last one that was accepted */
    uint64_t settled; /* that of the last one which is on the disk, or lost */
    struct {
        struct edit_disk
            disk; /* of the file with the keys, as it was seen last; not known once a write has begun, ... */
        struct timespec until; /* ... nor from then on: CLOCK_MONOTONIC */
        bool freeing;          /* the file that was replaced last still takes its room */
    } room;
    struct writer writer;
    char undo[512]; /* about the last undo: as long as a line of struct err */
    bool ending;    /* drafts that were not judged yet are dropped */
};

/* A batch is in flight. */
static inline bool is_flying(const struct live *l)
{
    return l->flight.view.snap != NULL;
}

/* What an edit that is made now is based on. */
static inline const struct view *base_view(const struct live *l)
{
    return is_flying(l) ? &l->flight.view : &l->disk;
}

static inline struct snapshot *base_snapshot(const struct live *l)
{
    return base_view(l)->snap;
}

/* Where its tensors are. */
static inline struct store *base_store(const struct live *l)
{
    return base_view(l)->store;
}

/* Log a line. Any thread. */
#define live_log(l, ...) logger_log(&(l)->opt.log, __VA_ARGS__)

#endif
