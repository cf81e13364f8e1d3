/* SPDX-License-Identifier: MIT */
/*
 * The editing state that the files of this layer share, and its batches.
 *
 * Accepted edits that are not on disk yet form a batch: a change to the model, plus steps that
 * record the name changes made with it. These edits collect in `next`. The writer's thread takes
 * the whole batch, which is then in flight, writes it without holding the lock, and answers waiting
 * requests. Edits accepted in the meantime collect in a new `next`, which is based on the batch in
 * flight. A snapshot of a batch is made when a request needs one or when the batch is written.
 * Eventually a batch becomes the state on disk, or is taken back or dropped.
 *
 *  M4. Steps record how each batch has changed names since the state on disk. Once a batch is
 *      written, its steps are dropped. If the write fails, the steps of the later batch, and then
 *      those of the failed one, are undone in reverse order; all edits accepted by then are lost
 *      and reported.
 *  M6. Edits have ascending numbers. Those up to `settled` are on disk or lost; those after
 *      `settled` up to flight.last are in flight; the others are in `next`. A request waits for the
 *      batch of its edit, and promises report losses (writer.h).
 *
 * Threads: all of struct live is protected by its lock unless marked otherwise. Call all functions
 * with that lock held, unless they say otherwise.
 */
#ifndef LIVE_BATCH_H
#define LIVE_BATCH_H

#include <stdatomic.h>

#include "base/hash.h"
#include "base/lock.h"
#include "edit/commit.h"
#include "live/live.h"
#include "live/draft.h"
#include "live/objects.h"
#include "live/writer.h"

/* A step records that an edit renamed a file, perhaps over another file. Both files are kept
 * until the edit is written. */
struct step {
    struct name *from, *to;
    struct file *file, *before; /* before: the file that was replaced, or NULL */
    /* file->drafts at the time of the move; later drafts were opened under the new name */
    unsigned drafts;
    uint64_t edit; /* once this edit is written, the move is final */
};

struct batch {
    struct edit_change change; /* relative to `flight` if that is set, else to `disk` */
    struct edit_plan plan;     /* owned: the plan for `change` when its last snapshot was made */
    bool planned;              /* `plan` is set */
    uint64_t number;           /* ascending; requests wait for it (writer.h) */
    struct step *step;         /* owned */
    size_t n_step, cap_step;
    uint64_t restored; /* for an undo: the number of the state that it restores; else 0 */
    char undone[512];  /* for an undo: the line to report after the write */
    struct buf notes;  /* owned, only in flight: the effect on each key and tensor, for the log */
    struct err why;    /* why the batch was not written; else code 0 */
    /* In flight: */
    struct view view; /* references: the state being written; unset if the batch is not in flight */
    uint64_t last;    /* the number of the last edit */
    size_t n_edits;   /* number of keys and tensors changed */
    bool slow;        /* the write copies a lot, as of the last batch_check() */
};

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file
        /* Not owned: the file being edited. Protected by the lock, except that the writer owns the
         * file while writing a batch. */
        *file;
    struct history *history; /* not owned; set at the start; NULL: no history is kept */
    struct lock lock;        /* taken before the lock of `newest` */
    struct {
        atomic_bool stale; /* the newest snapshot lacks accepted edits */
        /* The newest snapshot lacks DOOMED keys and tensors that are not removed yet. */
        atomic_bool hides;
        uint32_t number; /* number of the last snapshot made */
    } shown;
    struct view disk;          /* references: the state of the model file */
    struct batch next, flight; /* `flight` is in use if flight.view is set, and keeps its plan */
    struct names names;
    struct objects objects; /* tensors */
    struct logs logs;       /* logs for the drafts of tensors */
    struct waits waits;
    uint64_t edits;   /* the number of the last accepted edit */
    uint64_t settled; /* the number of the last edit that is on disk or lost */
    struct {
        /* State of the disk that holds the file with the keys, as last seen; unknown once a write
         * has started. */
        struct edit_disk disk;
        struct timespec until; /* when `disk` expires (CLOCK_MONOTONIC) */
        bool freeing;          /* the disk space of the last replaced file is still being freed */
    } room;
    struct writer writer;
    char undo[512]; /* message about the last undo; the same size as in struct err */
    bool ending;    /* the mount is ending, and unjudged drafts are dropped */
};

/* True if a batch is in flight. */
static inline bool is_flying(const struct live *l)
{
    return l->flight.view.snap != NULL;
}

/* Return the view on which a new edit is based. */
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

/* Begin a batch based on the batch in flight or, if there is none, on the state on disk. */
void batch_begin(struct live *l);
/* Free the steps of a batch that was written or needs no write; its name changes become final. */
void batch_end_steps(struct live *l, struct batch *b);
/* Free a batch that has no steps. Any thread may call this. */
void batch_free(struct batch *b);
/*
 * Make a new store over base_store() for the newest snapshot, which may be a snapshot of l->next:
 * bytes not yet on disk overlay those on disk. Copies no data and does not access the disk. Returns
 * 0 or -ENOMEM.
 */
int batch_store(struct live *l, struct store **ret);

/* Make a snapshot of the accepted edits, unless one exists. Returns 0 or -errno. */
int batch_freshen(struct live *l, struct err *e);
/* Make a snapshot for programs that read the model; it lacks the DOOMED keys and tensors. */
int batch_look(struct live *l, struct err *e);

/* Allocate the memory that batch_move() needs; call before any change. Returns 0 or -ENOMEM. */
int batch_room(struct live *l);
/*
 * Check that the pending edits can be written now with the requested strategy and in the free space
 * that the disk last reported, and that the model can be parsed afterwards. Only the edit that makes
 * this impossible is refused. Returns 0, or -ENOSPC, -EOPNOTSUPP or -errno with a message.
 */
int batch_check(struct live *l, struct err *e);
/* True if the model is so small that a batch is written immediately, whatever the strategy. */
bool batch_is_small(const struct batch *b);
/* Remember a version of a tensor: the kernel may still request it after it is replaced. */
void batch_note_version(struct live *l, struct tensor_id id);
/* Record that the change has been altered and existing snapshots are out of date. */
void batch_touch(struct live *l);
/* Do the same as batch_touch(), and count the edit as accepted. */
void batch_note(struct live *l);
/* Take back everything added to the change since edit_mark(), even if already planned or shown. */
void batch_undo(struct live *l, size_t mark);
/* Update all names that a change affects, deriving their content from the stored keys. */
void batch_follow(struct live *l, const struct edit_change *c);
/* Move a name's file to a key's name. It moves back if the key's last edit cannot be written. */
void batch_move(struct live *l, struct name *from, struct name *to);

/* Drop all of l->next (M4). failed: the batch in flight whose write failed, or NULL. */
void batch_drop(struct live *l, struct batch *failed);

/* Break the promises of all edits after live.settled. Returns true if any of them has no request
 * waiting for it. */
bool batch_break(struct live *l, int r);

/* Describe the effect of a change in one NUL-terminated line per key and tensor. Any thread may
 * call this. */
void notes_all(const struct edit_change *c, struct buf *out);

#endif
