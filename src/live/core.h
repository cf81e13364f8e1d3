/* SPDX-License-Identifier: MIT */
/*
 * The state of editing, shared by the files of this layer.
 *
 * Accepted edits that are not on disk yet form a batch: a change to the model, and the steps that
 * changed names along with it. They collect in `next`. The writer's thread takes `next` as a whole
 * (it is then in flight), writes it without holding the lock, and answers the waiting requests.
 * Edits accepted in the meantime collect in a new `next`, which is based on the batch in flight.
 *
 *  M4. Steps record how each batch has changed names since the state on disk. Once a batch is
 *      written, its steps are dropped. If the write fails, the steps of the later batch and then
 *      its own are played backwards; all edits accepted by then are lost, and are reported.
 *  M6. Edits have ascending numbers. Those up to `settled` are on disk or lost; those after
 *      `settled` up to flight.last are in flight; the others are in `next`. A request waits for the
 *      batch of its edit, and promises report losses (waits.h).
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
#include "live/draft.h"
#include "live/names.h"
#include "live/objects.h"
#include "live/waits.h"

/* An edit moved a file from one name to another, where it may have replaced another file. Both
 * files are kept until the edit is written. */
struct step {
    struct name *from, *to;
    struct file *file, *before; /* before: the file that was replaced, or NULL */
    unsigned drafts;            /* file->drafts then; later ones were opened by the new name */
    bool waits;                 /* the rename is answered after the write: ignore `drafts` */
    uint64_t edit;              /* once this edit is written, the file stays */
};

struct batch {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* owned: the plan of the change at its last snapshot */
    bool planned;              /* `plan` is set */
    uint64_t number;           /* ascending; requests wait for it (waits.h) */
    struct step *step;         /* owned */
    size_t n_step, cap_step;
    uint64_t restored; /* for an undo: the number of the state that it restores; else 0 */
    char undone[512];  /* for an undo: the line to report after the write */
    struct buf notes;  /* owned; in flight: the effect on each key and tensor, for the log */
    struct err why;    /* the reason why the batch was not written; else code 0 */
    /* In flight: */
    struct view view; /* references: the state being written; without a snapshot: not in flight */
    uint64_t last;    /* the number of the last edit */
    size_t n_edits;   /* number of keys and tensors changed */
    bool slow;        /* the write may be a copy of a large model */
};

/* The turns of the writer's thread, and when the next one is due. */
struct writer {
    struct pool_job job;
    bool started, stop;
    bool unmapped;       /* the mapping that readers have is older than the last edit */
    unsigned converting; /* conversions in progress; edits with a `due` time wait for them, too */
    /* Why edits were lost whose error no request received, or 0; reported once. */
    int failed;
    /* CLOCK_MONOTONIC: the time of the first edit that waits for `due`, and the time at which to
     * write edits that no request waits for. tv_sec is 0 if no edit waits. */
    struct timespec first, due;
};

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file
        /* The file being edited, not owned. Protected by the lock, except while a batch is being
         * written: then it belongs to the writer. */
        *file;
    struct history_job *history; /* not owned; set at the start; NULL: no history is kept */
    struct lock lock;            /* taken before the lock of `newest` */
    struct {
        atomic_bool stale; /* the newest snapshot lacks accepted edits */
        /* The newest snapshot lacks DOOMED keys and tensors, unlike the accepted edits. */
        atomic_bool hides;
        uint32_t number; /* the number of the last snapshot that was made */
    } shown;
    struct view disk;          /* references: the state of the model file */
    struct batch next, flight; /* flight: in use if its view is set; keeps its plan */
    struct names names;
    struct objects objects; /* tensors */
    struct logs logs;       /* logs that hold drafts of tensors */
    struct waits waits;
    uint64_t edits;   /* the number of the last accepted edit */
    uint64_t settled; /* the number of the last edit that is on disk or lost */
    struct {
        /* The disk of the file with the keys, as last seen; unknown once a write has begun. */
        struct edit_disk disk;
        struct timespec until; /* when `disk` expires (CLOCK_MONOTONIC) */
        bool freeing;          /* the last replaced file still occupies its space */
    } room;
    struct writer writer;
    char undo[512]; /* message about the last undo; as large as that of struct err */
    bool ending;    /* drafts that have not been judged yet are dropped */
};

/* True if a batch is in flight. */
static inline bool is_flying(const struct live *l)
{
    return l->flight.view.snap != NULL;
}

/* Return the view on which an edit made now is based. */
static inline const struct view *base_view(const struct live *l)
{
    return is_flying(l) ? &l->flight.view : &l->disk;
}

static inline struct snapshot *base_snapshot(const struct live *l)
{
    return base_view(l)->snap;
}

static inline struct store *base_store(const struct live *l)
{
    return base_view(l)->store;
}

/* Log a line. Any thread may call this. */
#define live_log(l, ...) logger_log(&(l)->opt.log, __VA_ARGS__)

#endif
