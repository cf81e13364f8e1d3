/* SPDX-License-Identifier: MIT */
/*
 * What is being edited: the files of metadata/ while a model can be written, what is accepted and
 * not on the disk yet, and the thread that writes it.
 *
 *     r = live_open(&newest, &file, &options, &l, &e);
 *     r = live_start(l, &e);           before the first edit; in the process that edits: after a fork
 *     ... any of the other calls, from any threads ...
 *     r = live_finish(l);              what is pending is written
 *     live_close(l);
 *
 * A file has a number, which the kernel knows it by. What a name means, when an edit is accepted
 * and when it is durable: docs/editing.md.
 *
 * Functions return 0 or -errno with the meaning that the system call of the same name has, and
 * leave outputs untouched on failure. Where there is a wait, the result may be LIVE_PARKED: then
 * done() is called later, once, by another thread.
 *
 * Threads: any. No lock is held while a text is rendered or measured, or the disk is asked.
 */
#ifndef LIVE_LIVE_H
#define LIVE_LIVE_H

#include <stdatomic.h>

#include "base/crew.h"
#include "base/logger.h"
#include "edit/file.h"
#include "edit/history_job.h"
#include "edit/plan.h"
#include "edit/shown.h"
#include "model/imatrix.h"
#include "model/newest.h"
#include "text/name.h"

struct live;
struct live_file; /* an open file */

enum live_commit { LIVE_COMMIT_AUTO, LIVE_COMMIT_CLOSE, LIVE_COMMIT_SYNC };

/* For crew_make(): threads that write, and milliseconds after which other models do not wait for one. */
#define LIVE_THREAD "writer"
#define LIVE_PATIENCE 1000

struct live_options {
    enum live_commit commit;
    struct edit_options edit;
    bool tensors;                  /* tensors can be edited too: tensors.h */
    const struct imatrix *imatrix; /* how values are weighed that are encoded; not owned, or NULL */
    struct history_job *history;   /* not owned; NULL: none is kept */
    struct crew *crew;             /* whose thread writes; not owned; NULL: one of its own */
    struct logger log;             /* called by any thread */
};

/* What a request waits for: to be judged, for handles to be released, until its batch is durable. */
enum live_needs { LIVE_JUDGED, LIVE_RELEASED, LIVE_DURABLE };

/* A request that waits. Zero but for the first three. */
struct live_wait {
    void (*done)(struct live_wait *w, int result); /* 0 or -errno */
    const void *request;                           /* for live_interrupt() */
    bool (*stopped)(struct live_wait *w);          /* a signal ends it; NULL: none can */
    /* Of this module: an entry of waits.h. */
    struct live_wait *next;
    enum live_needs needs;
    int result;             /* once it is taken out */
    uint64_t batch, edit;   /* DURABLE: the numbers of the batch, and of the edit; or WAITS_ALL */
    struct timespec until;  /* RELEASED: no longer than this: CLOCK_MONOTONIC */
    struct live_view *view; /* JUDGED: by which a draft is judged, and for what; ... */
    int (*ask)(struct live *l, struct live_wait *w, bool stopped);
    bool begun;         /* ... it is being judged now, ... */
    atomic_bool cancel; /* ... which is to end */
};
#define LIVE_PARKED 1

/*
 * Edit the model that `n` has as its newest state, and as what is on the disk; `file` is its file, of a
 * split model the first. Both must outlive it, and nobody else changes them. Key i has number i to begin
 * with. 0, -ENOMEM.
 */
int live_open(struct newest *n, struct edit_file *file, const struct live_options *o,
              struct live **ret);
/* Start the thread that writes, or use that of the options: before the first edit. */
int live_start(struct live *l, struct err *e);
/* Begin to write what is pending; for live_finish() of many models. No edit comes after that. */
void live_hurry(struct live *l);
/* Write what is pending, end the thread. 0, or why an edit was lost (it was logged). */
int live_finish(struct live *l);
/* Before files are released that programs may still have open: drafts that no flush, fsync or
 * release has judged are dropped. */
void live_abandon(struct live *l);
/* After live_finish(): a note (unsaved.h) for each edit that is not in the file, and for each file that
 * is dropped because it is not a key. */
void live_unsaved(struct live *l, struct buf *notes);
/* Before the first edit: the notes of an earlier one of the same model, which are as if these edits had been
 * made here. What has no place here stays in `notes`. 0, -ENOMEM. */
int live_recall(struct live *l, struct buf *notes);
void live_close(struct live *l); /* may be NULL */

/* ---- the newest state ---- */

/* Make a snapshot of the accepted edits, unless one exists. whole: for a view of the whole, which shows nothing
 * that was removed and is still to be written. *ret: that view, which is to be freed; NULL: it is not asked for. */
int live_freshen(struct live *l, bool whole, struct view *ret);

/* Pending edits are counted up to this, so that a look does not cost more the more there are. */
#define LIVE_COUNT_MOST 101

struct live_counts {
    size_t pending; /* edits that are not written */
    size_t refused; /* files whose last write was refused */
    bool changed;   /* another program changed a file of the model. The disk is asked. */
};
struct live_counts live_count(struct live *l);
/* Those of them that are accepted. The disk is not asked. */
size_t live_accepted(struct live *l);

/* True if nothing would be lost without it but notes, and helpers if these may be. No file is open. */
bool live_idle(struct live *l, bool helpers);

/* How many numbers were given: all that are used later are at least these. */
struct live_given {
    uint32_t snapshots, keys;
};
struct live_given live_given(struct live *l);

/* True if it has nothing to write, and this is a file that it edits. */
bool live_edits(struct live *l, dev_t dev, ino_t ino);

/* ---- names ---- */

struct live_attr {
    uint32_t number;
    uint32_t ino;        /* for st_ino: of the name, whichever file has it */
    uint64_t generation; /* differs each time that the number is used again */
    uint64_t size;
    bool link;             /* a symbolic link */
    struct timespec mtime; /* tv_sec 0: not written in this mount */
};

/* The caller gets a reference to the number; so it does from live_list_at(), live_create() and
 * live_symlink(). */
int live_lookup(struct live *l, const char *name, struct live_attr *ret);
/* Drop n references. */
void live_forget(struct live *l, uint32_t number, uint64_t n);
/* f: one of its open files, or NULL; with it the size is that of what it writes. */
int live_attr(struct live *l, uint32_t number, const struct live_file *f, struct live_attr *ret);

/* What the folder held at one moment: keys in the order of the model, then what is in no snapshot
 * yet. Zero to begin with. */
struct live_list {
    uint32_t *number; /* owned */
    size_t n;
};
int live_list(struct live *l, struct live_list *list);
void live_list_free(struct live_list *list);
/* Entry *i or the next that is still there: 1, and *i is its place; 0: there are no more. With
 * `attrs` all of *ret is set, else number, ino and link only, and no reference is taken. */
int live_list_at(struct live *l, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct live_attr *ret);

/*
 * As mknod(2), and live_create() with O_EXCL: a key or helper without content. It is written next, most likely: until
 * another file of this model is opened for writing, LIVE_MADE seconds have passed, the folder is synced or the mount
 * ends it is as if it were open for that.
 */
int live_make(struct live *l, const char *name, struct live_attr *ret);
#define LIVE_MADE 10
int live_unlink(struct live *l, const char *name);
/* flags as of renameat2(2). */
int live_rename(struct live *l, const char *name, const char *new_name, unsigned flags,
                struct live_wait *w);
int live_symlink(struct live *l, const char *name, const char *target, struct live_attr *ret);
int live_readlink(struct live *l, uint32_t number, struct buf *out);

/* ---- files ---- */

/* What a file that is opened to be read shows from then on. */
struct live_text {
    bool fixed;         /* it is one of the two below; else live_read() has it */
    struct shown value; /* to be rendered by the caller; free with shown_free(); or none and: */
    struct buf bytes;   /* the caller's */
};

/* flags as of open(2). */
int live_open_file(struct live *l, uint32_t number, int flags, struct live_file **ret,
                   struct live_text *text);
/* Open for reading and writing; made if it does not exist. KEY:TYPE makes KEY with that type. */
int live_create(struct live *l, const char *name, int flags, struct live_attr *ret,
                struct live_file **f);
/* Up to n bytes at `off`, of a file that is written or that lives in memory. */
size_t live_read(struct live *l, const struct live_file *f, uint64_t off, size_t n, void *dst);
/* -EBADF: it is not open for writing. */
int live_write(struct live *l, struct live_file *f, uint64_t off, const void *bytes, size_t n);
/* f may be NULL: truncate(2). */
int live_truncate(struct live *l, uint32_t number, struct live_file *f, uint64_t size,
                  struct live_wait *w);
int live_flush(struct live *l, struct live_file *f, struct live_wait *w);
/* f NULL: of the folder. All that was accepted is durable after it; it reports a loss that no other call has. */
int live_fsync(struct live *l, struct live_file *f, struct live_wait *w);
void live_release(struct live *l, struct live_file *f); /* may be NULL */

/*
 * The program that waits with `request` is to stop: the request is answered with -EINTR. What was accepted stays
 * so, and is written; a conversion that is still being judged is ended and makes no edit.
 */
void live_interrupt(struct live *l, const void *request);

/* ---- the history ---- */

/*
 * Make all keys what they were in a state of the history; number 0: before its last edits. One
 * edit, written at once in any mode. 0: they are that already; -EBUSY (edits are not written yet:
 * after live_fsync() of the folder, again), -EOPNOTSUPP (no history is kept), as of history_pick(),
 * edit_restore() and edit_plan_make(). What was done, or why not, is live_undo_said().
 */
int live_undo(struct live *l, uint64_t number, struct live_wait *w);
/* A line about the last live_undo(); nothing if there was none. 0, -ENOMEM. */
int live_undo_said(struct live *l, struct buf *out);
/* The states as text (history_text()). 0, -EOPNOTSUPP, -errno. */
int live_history(struct live *l, struct buf *out, struct err *e);
/* Forget them. 0, -EOPNOTSUPP, -errno. */
int live_history_clear(struct live *l);

/* ---- facts ---- */

/* What is known of a file; a text that is empty does not apply. Free with live_facts_free(). */
struct live_facts {
    struct buf key, type, error;
    bool helper; /* it lives in memory, and is not a link */
};
int live_facts(struct live *l, uint32_t number, struct live_facts *ret);
void live_facts_free(struct live_facts *f);
/* Give a file the type that is called so. -EINVAL: there is no such type, or its value does not
 * fit. */
int live_retype(struct live *l, uint32_t number, const void *type, size_t n, struct live_wait *w);
/* Forget why its last write was refused. */
int live_forgive(struct live *l, uint32_t number);

#endif
