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
    struct edit_plan
        plan;        /* owned: of the change, as it was when a snapshot was made of it last, ... */
    bool planned;    /* ... if there is one */
    uint64_t number; /* rises: a request waits for one (waits.h) */
    struct step *step; /* owned */
    size_t n_step, cap_step;
    uint64_t last;     /* in flight: its last edit */
    uint64_t restored; /* it is an undo: the state that it goes back to; else 0 */
    char undone[512];  /* the same: what is said of it once it is written */
    size_t n_edits;    /* in flight: keys and tensors that it changes */
    bool slow;         /* in flight: it may be a copy of a large model */
    struct buf notes;  /* owned; in flight: what is done to each key and tensor, for the log */
    struct err why;    /* it was not written: why; else code 0 */
};

struct draft;

/* Of the last so many versions of tensors something is known that the kernel may still ask for. */
enum { LIVE_KNOWN = 1024 };

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file *file;  /* that is edited: not owned; the writer's: while nothing is written,
                                  under the lock */
    bool unmapped;           /* the writer's: readers have a mapping of before its last edit */
    bool nul_names;          /* some key has a NUL in it; constant */
    struct lock lock;        /* comes before that of `newest` */
    atomic_bool touched;     /* something is known of some tensor's folder */
    atomic_bool stale;       /* edits were accepted that are not in the newest snapshot */
    atomic_bool hides;       /* that is without the keys, and tensors, that are DOOMED: it
                                         is not what is accepted */
    bool ending;             /* drafts that were not judged yet are dropped */
    uint32_t snapshots;      /* the number of the last one that was made */
    uint64_t ranks;          /* given to keys: the next new one's */
    uint64_t tensor_ranks;   /* the same of tensors */
    struct names names;
    struct snapshot *disk;              /* a reference: what the model file holds */
    struct snapshot *flying;            /* a reference: what is being written, or NULL */
    struct store *store;                /* a reference: of the tensors of `disk` */
    struct store *flying_store;         /* a reference: of those of `flying`; or NULL */
    struct logs logs;                   /* of drafts of tensors */
    struct objects objects;             /* tensors */
    const struct object *judging;       /* a new one: its drafts stay meanwhile */
    struct draft *views;                /* owned list: of tensors, that are open for writing */
    struct table nodes;                 /* the same by their nodes */
    struct table shared;                /* handles, by other nodes than their drafts' */
    struct tensor_id given[LIVE_KNOWN]; /* versions of tensors; number: 1 + the tensor's; 0: none */
    uint32_t first_numbers;             /* below it, versions are numbers of tensors */
    struct batch next;
    struct batch flight; /* if `flying` is set; its plan as it was taken */
    struct waits waits;
    uint64_t edits;   /* the number of the last one that was accepted */
    uint64_t settled; /* that of the last one which is on the disk, or lost */
    int failed;       /* 0, or why edits were lost whose error no request got; reported once */
    bool freeing;     /* the file that was replaced last still takes its room */
    struct edit_disk
        room; /* of the file with the keys, as it was seen last; not known since a write has begun, ... */
    struct timespec room_until;  /* ... nor from then on: CLOCK_MONOTONIC */
    char undo[512];              /* about the last undo: as long as a line of struct err */
    struct history_job *history; /* not owned; set once it has started; NULL: none is kept */
    /* Turns of the writer's thread: */
    struct pool_job job;
    bool started, stop;
    unsigned converting; /* tensors, at this moment: what waits for `due` waits for them, too */
    struct {
        struct live_file *file; /* owned; or NULL */
        struct timespec due;    /* CLOCK_MONOTONIC: when it is closed */
    } made;                     /* what mknod made last, open */
    struct timespec first;      /* CLOCK_MONOTONIC: the first edit that waits for due */
    struct timespec
        due; /* the same: when to write what no request waits for; tv_sec 0: nothing is */
};

/* What an edit that is made now is based on. */
static inline struct snapshot *base_snapshot(const struct live *l)
{
    return l->flying ? l->flying : l->disk;
}

/* Where the tensors are of what an edit that is made now is based on. */
static inline struct store *base_store(const struct live *l)
{
    return l->flying ? l->flying_store : l->store;
}

/* Log a line. Any thread. */
#define live_log(l, ...) logger_log(&(l)->opt.log, __VA_ARGS__)

#endif
