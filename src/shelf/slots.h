/* SPDX-License-Identifier: MIT */
/*
 * The slots of a shelf; private to the shelf.
 *
 * A slot represents a directory, a text file in a store, or one state of one model's file (or
 * files). A slot outlives the tree that is opened for its model, so that node numbers stay valid
 * (the next tree continues from them), and so that edits that `--unmount` must report are
 * remembered. A slot ends when its tree is closed, nothing remains to be reported, and the kernel
 * has forgotten its nodes. The number of a model's slot is reused only after all other numbers have
 * been used. The number of a directory or text file is never reused.
 *
 * Members marked as protected are protected by mount_lock; all other members are constant.
 */
#ifndef SHELF_SLOTS_H
#define SHELF_SLOTS_H

#include <time.h>

#include "base/pool.h"
#include "shelf/place.h"
#include "shelf/shelf.h"
#include "base/hash.h"

/* Seconds without use after which a model is closed, and seconds between checks for such models. */
#define SLOT_IDLE 60
#define SLOT_SWEEP 5
/* Milliseconds to wait for a model to be closed. */
#define SLOT_PATIENCE 1000
/* Maximum number of models that are kept open without use. */
#define SLOTS_IDLE_MAX 64
/* Number of descriptors of open models beyond which unused models are closed. If half of the
 * process's own limit is less, that half is used instead. */
#define SLOTS_FILES_MOST 448
/* Number of unused models that are kept open even beyond that limit, because a program that has
 * looked up a name is about to open it. */
#define SLOTS_IDLE_LEAST 8
/* Seconds before another attempt to open a model that could not be opened. */
#define SLOT_RETRY 2

struct slot {
    struct link by_node, by_key; /* protected */
    uint64_t node; /* number of the slot's own node; for a model, that of its directory */
    enum item_kind kind;
    struct place place; /* for ITEM_FOLDER */
    /* for st_ino: hash of the path and of what identified the file when it was found */
    uint64_t seed;
    char *path;           /* owned; the path by which the file is opened */
    char *real;           /* owned; the real path, or NULL if it is not known */
    size_t shards, above; /* as in struct item, like `store` and `behind` */
    bool store, behind;
    /* Protected: */
    uint64_t stamp;        /* hash of what identifies the file, or all files of a split model */
    struct tree_left left; /* what the previous tree left; constant while the slot is in use */
    /* while the model is closed: edits that did not reach the file (live/live.h) */
    struct buf notes;
    /* a different file was found at this path, so the model is closed as soon as it is unused */
    bool replaced;
    uint64_t rights; /* last result of tree_look(); 0: never called */
    struct stat st;
    struct grant grant;     /* access rights of the file */
    struct timespec looked; /* when `grant` was last checked */
    char *why;              /* owned; why the model cannot be opened; NULL: no known reason */
    /* when opening the model failed; 0: it did not fail, or the error was found at the lookup */
    time_t failed;
    struct tree *tree; /* owned; NULL: the model is closed */
    struct slots *slots;
    struct slot *prev, *next; /* neighbours in the list of models that are open or being closed */
    struct pool_job closing;
    unsigned uses;    /* number of calls and open files that use the slot */
    time_t used;      /* when the slot was last used */
    uint64_t lookups; /* number of the kernel's references */
    bool busy;        /* a thread is opening or closing the model */
    /* the file was changed or node numbers are running out, so the next lookup makes a new slot */
    bool spent;
};

struct slots {
    struct reach *reach;
    const struct shelf_options *opt;
    struct cond done;             /* signalled when a slot is no longer busy or used */
    struct table by_node, by_key; /* by_key contains a slot for each state of the file at a path */
    uint32_t last;                /* number of the slot last given to a model */
    uint32_t last_other;          /* number last given to a directory or text file */
    struct slot *first, *end;     /* the open slots, the least recently used first */
    size_t files_most; /* maximum number of descriptors, beyond which unused models are closed */
    struct pool_job sweep; /* closes idle models */
    bool sweeps;           /* `sweep` has joined the pool */
    bool stop;             /* the mount is no longer served, so everything is closed */
    int failed;            /* error of an edit that was lost when a model was closed */
};

/* Return a path whose directory contains the files of a split model. */
static inline const char *slot_files(const struct slot *slot)
{
    return slot->behind ? slot->real : slot->path;
}

/* Return the st_ino of the node with this number in the slot. */
static inline uint64_t slot_ino(const struct slot *slot, uint64_t local)
{
    if (slot->node == INO_ROOT)
        return INO_ROOT;
    return xxh64(slot->seed, &local, sizeof(local)) >>
           1; /* positive even for a program that treats it as signed */
}

/* Facts about the open models, including those being closed. Call slots_opened() with the lock
 * held. */
struct opened {
    /* numbers of models: all, unused, and being closed */
    unsigned n, rest, closing;
    /* maximum numbers of descriptors: for all models, and for those being closed */
    size_t files, closing_files;
    struct slot *oldest; /* the least recently used of the unused models */
};
struct opened slots_opened(const struct slots *s);
static inline bool slot_rests(const struct slot *slot)
{
    return slot->tree && !slot->busy && !slot->uses;
}

void slots_init(struct slots *s, struct reach *r, const struct shelf_options *o);
/* Add a line for each edit that did not reach its file, naming the model and the key. */
void slots_unsaved(struct slots *s, struct buf *out);
/* Close everything when the mount is no longer served. Returns 0, or -errno if an edit was lost. */
int slots_finish(struct slots *s);
/* Call a function for each open tree, without the lock held. Returns 0 or -ENOMEM. */
int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg);
void slots_free(struct slots *s);

/* Get the node of an item that was found, and count one more kernel reference to the node. A new
 * slot takes the item's paths and place. Returns 0 or -ENOMEM. */
int slot_of(struct slots *s, struct item *i, uint64_t *ret);
/* Count one more kernel reference to a node whose slot is in use. The second function drops n
 * references to any node. */
void slot_known(struct slot *slot);
void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n);

/* Begin to use a slot without opening its model. Returns 0, or -ESTALE if the slot does not
 * exist. */
int slot_hold(struct slots *s, uint64_t node, struct use *ret);
/* Begin to use a slot with its tree, opening the tree if necessary. Returns 0, -ESTALE if the slot
 * does not exist or the file was changed, or -errno with a message. */
int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e);
void slot_leave(struct use *u); /* u may be empty */
/* Record the current rights of an open slot, as returned by tree_look(). Returns true if they
 * differ from the previous ones. */
bool slot_look(struct slot *slot, uint64_t rights);
/* Get the facts about the slot's file. Its rights are checked again if the last check was more than
 * a second ago. */
void slot_facts(struct slot *slot, struct stat *st, struct grant *g);

/* Seconds after which the rights of a file that was found are checked again. */
#define LOOK_AGAIN 1
/* Find a slot by the number of its own node. Call with the lock held. */
struct slot *slots_at(const struct slots *s, uint64_t node);
#define SLOT_OF(l, member) ((struct slot *)((char *)(l)-offsetof(struct slot, member)))

/* The content of a mount (shelf.h). */
struct shelf {
    struct shelf_options opt;
    struct tree *one; /* owned: the model if it is mounted alone; NULL: a directory is mounted */
    _Atomic(uint64_t) rights; /* last result of tree_look() for `one`; 0: never called */
    bool store;               /* the mounted directory is a store */
    struct reach reach;
    struct slots slots;
};

#endif
