/* SPDX-License-Identifier: MIT */
/*
 * The editing state that the files of this layer share.
 *
 * The keys of the accepted state are those of `state`. `pending` is the overlay that leads from the
 * file on disk (`disk`) to that state; only the worker changes it. Removed keys are not part of it:
 * their names are `gone`, which hides them, and writes remove them in their plans (overlay.c). So a create
 * takes a removal back by clearing a flag, and neither a timer nor another program's fsync can
 * write the removal while the new text is still coming.
 *
 * A name is an entry of metadata/ and points to a file, which is what the kernel knows by a number.
 * A key that no program has touched has neither: its number is its index in the model as it was
 * opened (`born`). A name stays as long as its key exists.
 *
 *  M1. A file has at most one name: x->file == f if and only if f->name == x.
 *  M2. A number is never used for another file while the kernel or a handle refers to it.
 *  M3. A key is visible if `state` has it and its name is neither gone nor hidden behind a backup,
 *      or if its name has a file.
 *
 * Threads: all of struct live is protected by its lock unless marked otherwise. Call all functions
 * of this layer's own headers with that lock held, unless they say otherwise.
 */
#ifndef LIVE_STATE_H
#define LIVE_STATE_H

#include <stdatomic.h>
#include <sys/queue.h>
#include <syslog.h>

#include "base/hash.h"
#include "base/lock.h"
#include "base/pool.h"
#include "edit/change.h"
#include "live/extents.h"
#include "live/live.h"

/* Limit on the text of a value or helper; no tokenizer's array needs this much. */
#define TEXT_MAX ((uint64_t)1 << 30)

/* The type of a value, if it is known before the value. */
struct typed {
    bool set;
    uint32_t type, elem; /* enum gguf_value_type; elem: of an array */
    bool inherited;      /* it is only for a key that is new */
};

/* ---- names and files ---- */

struct name {
    struct link link;           /* first member; in live.by_text */
    struct name *next, *before; /* all names, in order of creation */
    char *text;                 /* owned: the file name */
    char *key;                  /* owned: the key; NULL for a helper */
    size_t key_len;
    uint32_t
        ino; /* st_ino: the key's number, which stays when the file is replaced: vim compares */
    struct file *file;
    struct file *backup; /* the helper that has the text of this hidden key, or NULL */
    bool gone;           /* removed, but not yet written */
    char *error;         /* owned: why the last write was refused, or NULL */
    struct timespec mtime;
    unsigned pins; /* number of requests that refer to it */
};

/* The draft of a key: the text of a file that is open for writing, shared by all its handles. */
enum draft_state {
    DRAFT_NONE,    /* nothing was written; the stored text is taken when it is needed */
    DRAFT_CLEAN,   /* nothing was written since the text was accepted or taken from the key */
    DRAFT_EMPTIED, /* truncated or created, and not written since: no edit before its end */
    DRAFT_WRITTEN, /* to be judged */
    DRAFT_REFUSED, /* judged invalid, and not written since */
};

struct file {
    struct link link; /* first member; in live.by_number */
    uint32_t number;
    bool made; /* by mknod(2), and not opened for writing since */
    struct name
        *name; /* a key's, or else a helper's; NULL: an orphan, whose writes are discarded */
    struct name *backs;   /* a helper: the hidden key whose text it has, or NULL */
    unsigned opens, pins; /* number of handles, and of requests that refer to it */
    uint64_t lookups;     /* number of the kernel's references */
    /* KEY: the type for the next edit, set by opening KEY:TYPE or by setxattr. HELPER: that of the
     * key that it may become. */
    struct typed typed;
    struct buf text;        /* KEY: the draft. HELPER: its bytes */
    enum draft_state state; /* HELPER: NONE or WRITTEN, but for an unwritten one */
    int why;          /* REFUSED: the error, which each flush repeats until it is written anew */
    bool broken;      /* KEY: a part could not be stored, so no more is taken */
    unsigned writers; /* number of handles open for writing */
    unsigned dirty;   /* of these, the number that have written since their last flush */
    unsigned wrote;   /* ... and that have written at all */
    uint64_t version; /* changes with the text; no two drafts have the same */
};

struct live_file {
    struct file *file;
    bool writes, append;
    bool wrote; /* the text, with others */
    bool dirty; /* ... since its last flush (file.dirty) */
};

/* ---- the queue (queue.h) ---- */

struct request;

struct queue {
    TAILQ_HEAD(requests, request) waiting; /* owned */
    struct request *running;               /* the first of them, or NULL */
    bool working;                          /* the worker has a turn */
    struct cond rest;                      /* signalled when `working` ends */
    struct pool_job worker;                /* runs while there are requests */
    struct pool_job tick;                  /* runs at `due` */
    struct pool_job watch;                 /* looks for signals to waiting programs */
    struct timespec first_at; /* the first edit that waits for `due`; tv_sec is 0 if none waits */
    struct timespec due;      /* CLOCK_MONOTONIC; tv_sec is 0 if nothing is due */
    bool removes;             /* only removals are due, which have not been collected yet */
    atomic_bool cancel;       /* a signal ended the wait for the running request */
};

struct live {
    struct live_options opt; /* constant */
    struct newest *newest;   /* not owned */
    struct edit_file *file;  /* not owned; the worker's */
    struct history
        *history;      /* not owned; set at the start; NULL: no history is kept. The worker's */
    bool unrecorded;   /* an edit could not be recorded, which was logged */
    uint64_t restores; /* for an undo, the state that it restores; else 0 */
    struct lock lock;  /* taken before the lock of `newest` */

    struct gguf *born;          /* a reference: the model's own file as it was opened */
    struct view disk;           /* references: the state of the model file */
    struct snapshot *state;     /* a reference: all accepted edits except removals */
    struct store *over;         /* a reference: the store of `state` */
    struct edit_change pending; /* from `disk` to `state` */
    bool busy;                  /* the worker uses `pending` or the file without the lock */
    uint64_t changes;           /* counts changes of `state` and of what is gone */
    uint64_t as_shown;          /* the newest view shows the state after so many changes */
    atomic_uint shown;          /* number of the newest snapshot */
    struct err trouble;         /* why pending edits could not be written; else code 0 */
    struct err unremoved;       /* why removals could not, which stops no timer; else code 0 */
    struct view old[3];         /* the worker's: replaced views, to be freed without the lock */
    bool unsettled; /* the last edit failed: edit_settle() brings or takes back the rest */
    bool unmapped;  /* readers use a mapping that is older than the last edit */

    struct table by_text, by_number;
    struct name *first, *last;
    size_t n_gone, n_errors;
    uint32_t given;    /* the next number for a key or file */
    uint64_t versions; /* the last version of a text */

    /* Tensors that a call has touched (objects.h). */
    struct {
        struct table by_number;
        TAILQ_HEAD(, object) fresh; /* in order of creation */
        size_t adding;              /* of these, those that are as good as tensors of the model */
        struct timespec due;        /* when they are judged; tv_sec is 0 if not by time */
        size_t n_gone, n_kept;      /* kept: of these, those that no write removes for now */
        atomic_bool any;            /* there are objects */
        time_t told;                /* the worker's: when progress was last reported; 0: never */
    } tensors;
    struct logs logs; /* of drafts of views */

    struct queue queue;
    char undo[512]; /* about the last undo; the same size as in struct err */
    bool started;
    bool ending; /* releases judge nothing */
    bool stop;   /* no more edits */
};

/* Log a line. Any thread may call this. */
#define live_log(l, ...) logger_log(&(l)->opt.log, __VA_ARGS__)

#endif
