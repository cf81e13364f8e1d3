/* SPDX-License-Identifier: MIT */
/*
 * The state of editing, shared by the files of this layer.
 *
 * Accepted edits that are not on disk yet form a batch: a change of the model, and the steps that
 * changed names with it. They collect in `next`. The writer's thread takes `next` as a whole (it is
 * then in flight), writes it without the lock, and answers the waiting requests. Edits accepted
 * meanwhile collect in a new `next`, based on the batch in flight.
 *
 *  M4. Steps record what each batch did to names since the state on disk. When it is written, its
 *      steps are dropped. If that fails, the steps of the later batch and then its own are played
 *      backwards; all edits accepted until then are lost, and reported.
 *  M6. Edits have ascending numbers. Those up to `settled` are on disk, or lost; those after it up
 *      to flight.last are in flight; the others are in `next`. A request waits for the batch of its
 *      edit, and promises report losses (waits.h).
 *
 * Threads: all of struct live is protected by its lock unless marked otherwise.
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

/*
 * A move of a file by an edit from one name to another, where it replaced another file. All these
 * files are kept until the edit is written.
 */
struct step {
    struct name *from, *to;
    struct file *file, *before; /* before: NULL if there was no file */
    unsigned drafts;            /* file->drafts: later drafts were opened by the new name, ... */
    bool waits;                 /* ... unless the rename was not answered before it was written */
    uint64_t edit;              /* if this edit is written, the file does not go back */
};

struct batch {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* owned: plan of the change as of its last snapshot, ... */
    bool planned;              /* ... if there is a plan */
    uint64_t number;           /* ascending number: a request waits for it (waits.h) */
    struct step *step;         /* owned */
    size_t n_step, cap_step;
    uint64_t restored; /* for an undo: the state that it restores; else 0 */
    char undone[512];  /* for an undo: the line that is reported after the write */
    struct buf notes;  /* owned; in flight: its effect on each key and tensor, for the log */
    struct err why;    /* the reason why it was not written; else code 0 */
    /* In flight: */
    struct view view; /* references: the state being written; no snapshot: no batch is in flight */
    uint64_t last;    /* its last edit */
    size_t n_edits;   /* number of keys and tensors that it changes */
    bool slow;        /* the write may be a copy of a large model */
};

/* The turns of the writer's thread, and the time of the next one. */
struct writer {
    struct pool_job job;
    bool started, stop;
    bool unmapped;       /* readers have a mapping from before the last edit */
    unsigned converting; /* conversions in progress, for which edits with a `due` time also wait */
    /* 0, or the reason for the loss of edits whose error no request got; reported once. */
    int failed;
    /*
     * CLOCK_MONOTONIC: the first edit that waits for `due`, and the time to write edits that no
     * request waits for. tv_sec 0: no edit waits.
     */
    struct timespec first, due;
};

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file
        /* The file that is edited, not owned. While no batch is written it is under the lock, else
         * the writer's. */
        *file;
    struct history_job *history; /* not owned; set when it has started; NULL: no history is kept */
    struct lock lock;            /* locked before the lock of `newest` */
    struct {
        atomic_bool stale; /* edits were accepted that are not in the newest snapshot */
        /* The newest snapshot lacks DOOMED keys and tensors, so it does not show exactly the
         * accepted edits. */
        atomic_bool hides;
        uint32_t number; /* the number of the last snapshot made */
    } shown;
    struct view disk;          /* references: the state of the model file */
    struct batch next, flight; /* flight: in use if its view is set; its plan as it was taken */
    struct names names;
    struct objects objects; /* tensors */
    struct logs logs;       /* logs that hold drafts of tensors */
    struct waits waits;
    uint64_t edits;   /* the number of the last accepted edit */
    uint64_t settled; /* the number of the last edit that is on disk, or lost */
    struct {
        /* The disk of the file with the keys, as last seen; unknown once a write has begun, ... */
        struct edit_disk disk;
        struct timespec until; /* ... and from this time (CLOCK_MONOTONIC) on */
        bool freeing;          /* the last replaced file still takes its space */
    } room;
    struct writer writer;
    char undo[512]; /* line about the last undo: as long as a line of struct err */
    bool ending;    /* drafts that were not judged yet are dropped */
};

/* True if a batch is in flight. */
static inline bool is_flying(const struct live *l)
{
    return l->flight.view.snap != NULL;
}

/* Return the base of an edit made now. */
static inline const struct view *base_view(const struct live *l)
{
    return is_flying(l) ? &l->flight.view : &l->disk;
}

static inline struct snapshot *base_snapshot(const struct live *l)
{
    return base_view(l)->snap;
}

/* Return the store of that base. */
static inline struct store *base_store(const struct live *l)
{
    return base_view(l)->store;
}

/* Log a line. Any thread. */
#define live_log(l, ...) logger_log(&(l)->opt.log, __VA_ARGS__)

#endif
