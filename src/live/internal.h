/* SPDX-License-Identifier: MIT */
/* What the files of this floor share; private to it. */
#ifndef LIVE_INTERNAL_H
#define LIVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "edit/commit.h"
#include "live/helper.h"
#include "live/keys.h"
#include "live/live.h"

/*
 * Edits that are accepted and not yet durable. All protected by the lock.
 *
 * An edit is first asked for: the writer's thread asks the disk whether it can be written. Until
 * then it can be taken back (STAGE_NEW in keys.h).
 */
struct pending {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* of the change, if `planned` is its version */
    uint64_t planned;
    uint64_t batch;       /* differs for each batch */
    struct kfile **fresh; /* owned: pinned, what edits of STAGE_NEW are of */
    size_t n_fresh, cap_fresh;
    struct live_wait *asking; /* requests that wait for the disk's answer */
    struct live_wait *waits;  /* requests that wait until it is durable */
    unsigned edits;           /* accepted since nothing was pending */
    struct live_wait
        *owner;             /* the request that waits, if this batch is its edit alone; else NULL */
    bool asked;             /* the disk was asked, and then */
    enum edit_strategy how; /* what it said */
    uint64_t restored;      /* it is an undo: the state that it goes back to; else 0 */
};

struct writer {
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    bool stop;
    bool due_set;
    struct timespec first;          /* CLOCK_MONOTONIC: the first edit that waits for due */
    struct timespec due;            /* the same: when to write what no request waits for */
    struct gen *disk;               /* a reference: what the model file holds */
    struct gen *flight;             /* a reference: what is being written, or NULL */
    struct live_wait *flight_waits; /* requests that wait for that */
    struct live_wait *flight_owner; /* as pending.owner */
    size_t flight_edits;            /* keys that it changes */
    bool flight_slow;               /* it is a copy of a large model */
    struct live_wait *asked;        /* requests whose question the thread is asking just now */
    struct pending next;
    int failed;         /* 0, or why a write that no request waited for failed; reported once */
    bool freeing;       /* the file that was replaced last still takes its room */
    unsigned losses;    /* how often accepted edits were given up */
    atomic_bool cancel; /* stops a copy */
};

struct live {
    struct live_options opt;
    struct newest *newest; /* not owned */
    struct edit_file
        *file;      /* not owned; the writer's: while nothing is written, protected by lock */
    bool odd_names; /* some key has a NUL in it */
    /* Protects what is being edited: all below. Order: this lock, then that of `newest`. */
    pthread_mutex_t lock;
    atomic_bool stale;    /* edits were accepted that are not in the newest generation */
    bool ending;          /* drafts that were not judged yet are dropped */
    uint32_t generations; /* made after the first */
    uint64_t ranks;       /* given to keys */
    struct keys keys;
    struct writer writer;
    char undo[512]; /* about the last undo: as long as a line of struct err */
};

/* An open file. */
struct live_file {
    struct kfile *kf;    /* if it is one that was touched */
    struct draft *draft; /* shared: what it writes; NULL if it does not */
    bool append;         /* each write goes to the end */
    bool wrote;          /* something of the draft is by this handle */
};

/* Log a line, if somebody wants it. */
void live_log(const struct live *l, int priority, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Put a generation in the place of the newest: a reference, taken on success. Under the lock. 0,
 * -ENOMEM. */
int adopt(struct live *l, struct gen *gen);
/* Make a generation of what was accepted, if there is none yet. Under the lock. */
int freshen_locked(struct live *l, struct err *e);

/* -ENOENT if there is no file of this number. Under the lock. */
int number_check(const struct live *l, uint32_t number);
/* An entry, and what its size is to be measured from: under the lock; and its size: without it. */
struct shown attr_of(const struct live *l, uint32_t number, struct live_attr *ret);
void attr_measure(struct shown *s, struct live_attr *ret);

/*
 * Open and close a metadata file of a writable tree. Under the lock. unready: why the model cannot
 * be edited just now (writer_ready()), code 0 if it can.
 */
int write_open(struct live *l, struct live_file *f, uint32_t number, int flags,
               const struct err *unready);
void write_release(struct live *l, struct live_file *f);

/* ---- drafts: all under the lock ---- */

/* One more writer of a file; its draft is made if there is none. */
int draft_join(struct live *l, struct live_file *file, struct kfile *f, bool truncate,
               const struct err *unready);
/* A writer goes; with the last one the draft ends. */
void draft_leave(struct live *l, struct draft *d);
/* Before a draft is written at `off`, or made `off` bytes long: who goes beyond the end of what was
 * accepted has seen the stored text, and means that. 0, -errno. */
int draft_reach(const struct live *l, struct draft *d, uint64_t off);
void draft_truncate(struct live *l, struct draft *d);
/*
 * Accept what was written. 1: it is to be written to disk; 0: nothing is; -errno. again: also what
 * was accepted before, if edits were given up since (an error, a signal).
 */
int draft_settle(struct live *l, struct draft *d, bool again);
/* A write was refused: so is the draft, and what of it was accepted before is taken back. */
int draft_refuse(struct live *l, struct draft *d, const struct err *e);
/* A file got no value: a key that is stored is back, a new one goes. */
void draft_no_value(struct live *l, struct kfile *f);
/* A file gives its draft away (NULL: it has none), to be given to a file: what that had changes
 * nothing any more. */
struct draft *draft_take(struct kfile *f);
void draft_give(struct draft *d, struct kfile *f);
/* The file is removed or replaced: its draft changes nothing any more. */
void draft_drop(struct kfile *f);

/* In memory only. */
bool kfile_is_helper(const struct kfile *f);

/* 0 if names in this folder may be changed: it is metadata/ of a writable tree. -EROFS, -EACCES. */
int metadata_folder(const struct live *l, uint64_t folder);
/* What a file name in metadata/ is. */
enum name_class classify(struct live *l, const char *name);
/* A file that is neither a key nor a known helper was written: log that it is not saved. */
#define STRAY "it is not a key name (keys have a dot)"
void log_stray(const struct live *l, const struct kfile *f);

/*
 * Whether the text of a draft, or a continuation of it, can be the value of its key, as far as that
 * is cheap to tell. at_once: all of the text was written by one write, so that it is parsed if it
 * looks whole; who writes by echo learns of a failure only here, for shells do not look at what
 * close(2) gives. 0, or -errno with a line.
 */
int draft_judge(const struct live *l, const struct kfile *f, bool at_once, struct err *e);
/* Whether a text that is no value yet may become one if more is written: it ends within a line. */
bool draft_may_go_on(const struct live *l, const struct kfile *f);

/* ---- edits: all under the lock ---- */

/* Some key has a NUL in it: it may be equal to another up to that. */
bool has_odd_names(const struct gguf *g);

/* True if the model, with all edits accepted, has the key. */
bool edits_stored(const struct live *l, const struct kfile *f);
/* The value of file number `number` there: references for shown_free(). */
struct shown edits_shown(const struct live *l, uint32_t number);
/* The type of the value that is to come, as far as it is known before there is a text. */
struct typed edits_known_type(const struct live *l, const struct kfile *f);
/* The type that this text is to have. */
struct typed edits_type(const struct live *l, const struct kfile *f, const struct buf *text);

/* The bytes that a kfile shows until they are accepted or refused, or as a helper; NULL: those of
 * its key. */
struct buf *kfile_bytes(struct kfile *f);

/*
 * Take a text as the value of a key. 1: it is accepted; 0: it is what the file shows already;
 * -errno with a line in *e. What was accepted goes to writer_accepted().
 */
int edits_accept(struct live *l, struct kfile *f, const struct buf *text, struct err *e);
/* Give a key the value that it had once; none: it is removed. As edits_accept(). */
int edits_restore(struct live *l, struct kfile *f, const struct shown *value, struct err *e);
/* Rename a key to one that is not stored, or change a type. As edits_accept(). */
int edits_rename(struct live *l, struct kfile *from, struct kfile *to, struct err *e);
int edits_retype(struct live *l, struct kfile *f, struct typed type, struct err *e);
/* Remove a key. As edits_accept(). */
int edits_remove(struct live *l, struct kfile *f, struct err *e);
/* Make the removals that are due part of what is accepted. 0, or why keys are back. */
int edits_remove_due(struct live *l);
/* A value was refused: for the log and for user.gguf.error. Returns e->code. */
int edits_refused(struct live *l, struct kfile *f, const struct err *e);

/* ---- what is pending: all under the lock ---- */

/* Begin a batch on what is in flight, else on what is on disk. */
void pending_init(struct live *l);
void pending_free(struct pending *p);
/* An edit of f (pinned from here on) is part of the change now. `other` may be NULL. */
void pending_note(struct live *l, struct kfile *f, struct kfile *other);
/* Room for pending_note() and moves_add(), before anything is changed. 0, -ENOMEM. */
int pending_room(struct live *l);
/* The first n edits that were asked for can be written; or all that were asked for cannot. */
void pending_keep(struct live *l, size_t ops, size_t fresh, size_t moved);
void pending_take_back(struct live *l, const struct err *e);
/* Drop what is pending. */
void pending_drop(struct live *l);
/* What was in flight (`failed`) was not written: what was accepted since moves to what is on disk. */
void pending_rebase(struct live *l, const struct edit_change *failed);

/* What the files of all keys are that a change names follows from what is stored now. */
void settle_change(struct live *l, const struct edit_change *c);
/* The newest generation is what is on the disk, or in flight: nothing is pending. */
void adopt_base(struct live *l);

/* Renames that are pending (struct moved in keys.h). */
int moves_room(struct keys *k);
void moves_add(struct keys *k, struct kfile *from, struct kfile *to);
void moves_stage(struct keys *k, enum stage from, enum stage to);
/* The edits of a stage were written, or given up: then what they moved goes back. */
void moves_land(struct live *l, enum stage stage, bool written);

int writer_start(struct live *l, struct err *e);
/* Write what is pending, end the thread. 0, or why something was not written. */
int writer_stop(struct live *l);
/* Whether the model could be edited at this moment; asked before there is an edit, since shells do
 * not look at what close(2) returns. Not under the lock: it asks the disk. */
void writer_ready(struct live *l, struct err *e);
/* What identifies the model's file, to ask the disk about it without the lock. False while an edit
 * is being written. Under the lock; ret->fd is not set. */
bool writer_file(const struct live *l, struct edit_file *ret);
/* Something was accepted: wait until it is durable, or until the disk was asked whether it can be
 * written, by the commit mode. w NULL: no request waits. 0, TREE_PARKED. */
int writer_accepted(struct live *l, struct live_wait *w);
/*
 * Wait until all that was accepted is durable. own: the edit accepted last is by who waits.
 * 0: it is already; -errno: an earlier failure.
 */
int writer_sync(struct live *l, struct live_wait *w, bool own);
/* Seconds after which a removal or a mere truncation is written: most often a value follows. */
#define WRITER_SOON 1
/* Have it written in `seconds`, at the latest WRITER_LATEST after the first edit. */
#define WRITER_LATEST 10
void writer_later(struct live *l, unsigned seconds);

#endif
