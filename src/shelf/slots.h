/* SPDX-License-Identifier: MIT */
/*
 * The slots of a shelf; private to the shelf.
 *
 * A slot is a directory, a text of a store, or one state of one model's file (or files): its
 * location, and what identified it when it was found, or when its own edits were written. It
 * outlives the tree that is opened for a model, so that node numbers stay valid (the next tree
 * continues from them), and what `--unmount` must name is known. It ends when the tree is closed
 * and the kernel has forgotten its nodes. The number of a model is reused after all others, that of
 * a directory or text never; st_ino depends on the location and the state of the file, and is never
 * another one's.
 *
 * Threads: members marked so are protected by the lock of the reach; all others are constant.
 */
#ifndef SHELF_SLOTS_H
#define SHELF_SLOTS_H

#include <pthread.h>
#include <time.h>

#include "base/pool.h"
#include "shelf/place.h"
#include "shelf/shelf.h"
#include "base/hash.h"

/* Seconds without use after which a model is closed; how often this is checked. */
#define SLOT_IDLE 60
#define SLOT_SWEEP 5
/* Milliseconds that closing a model may take before others are closed, or opened, in parallel. */
#define SLOT_PATIENCE 1000
/* Models that are kept open without use: each takes some descriptors. */
#define SLOTS_IDLE_MAX 64
/* The limit on descriptors of unused models: this fraction of those the process may have, and at most this many. */
#define SLOTS_FILES_PART 2
#define SLOTS_FILES_MOST 448
/* Models that are always kept open: a program that has looked a name up is about to open it. */
#define SLOTS_IDLE_LEAST 8
/* Seconds before another attempt to open a model that could not be opened. */
#define SLOT_RETRY 2

struct slot {
    struct link by_node, by_key; /* protected */
    uint64_t node;               /* the number of its own node; for a model, its directory */
    enum item_kind kind;
    struct place place; /* ITEM_FOLDER */
    /* for st_ino: a hash of the path and of what identified the file when it was found */
    uint64_t seed;
    char *path;           /* owned; where it is opened */
    char *real;           /* owned; the real path; NULL if there was none */
    size_t shards, above; /* as in struct item, and these: */
    bool store, behind;
    /* Protected: */
    uint64_t stamp;        /* hash of what identifies the file, or all files */
    struct tree_left left; /* from the previous tree; constant while in use */
    struct buf notes;      /* while it is closed: edits that did not reach the file (live/live.h) */
    bool replaced;         /* another file was found at its path: close it at once */
    uint64_t rights;       /* the last result of tree_look(); 0: never called */
    bool told;             /* the kernel knows them */
    struct stat st;
    struct grant grant;     /* its access rights, ... */
    struct timespec looked; /* ... and when they were checked */
    char *why;              /* owned; why it cannot be opened; NULL: it can, as far as is known */
    time_t failed;          /* when that was; 0: it was found when the name was looked up */
    struct tree *tree;      /* owned; NULL: it is closed */
    struct slots *slots;
    struct slot *prev, *next; /* among open models, and those being closed */
    struct pool_job closing;
    unsigned uses;    /* calls and open files */
    time_t used;      /* last */
    uint64_t lookups; /* references of the kernel */
    bool busy;        /* a thread is opening or closing it */
    bool spent;       /* the file was changed: the next lookup makes another slot */
};

struct slots {
    struct reach *reach;
    const struct shelf_options *opt;
    struct cond done;             /* busy has ended, or so has the last use */
    struct table by_node, by_key; /* a path has a slot for each state of its file */
    uint32_t last;                /* the slot last given to a model */
    uint32_t last_other;          /* the node last given to a directory or text */
    struct slot *first, *end;     /* the open ones, in order of last use */
    size_t files_most;            /* the most descriptors that unused ones may take */
    struct pool_job sweep;        /* closes idle models */
    bool sweeps;                  /* it has joined */
    bool stop;                    /* nothing is served any more: everything is closed */
    int failed;                   /* the error of an edit that was lost when a model was closed */
    bool finished;                /* all were closed, and ... */
    struct buf unsaved;           /* ... these lines name the edits that are not in the files */
};

/* Return the path beside which the files of a split model are. */
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

/* The open models. Under the lock. */
struct opened {
    unsigned n, rest, closing;   /* all; open and unused; being closed */
    size_t files, closing_files; /* approximate descriptors of all, and of those being closed */
    struct slot *oldest;         /* the least recently used of the unused ones */
};
struct opened slots_opened(const struct slots *s);
static inline bool slot_rests(const struct slot *slot)
{
    return slot->tree && !slot->busy && !slot->uses;
}

void slots_init(struct slots *s, struct reach *r, const struct shelf_options *o);
/* Add a line for each edit that did not reach its file, by model and key. */
void slots_unsaved(struct slots *s, struct buf *out);
/* Close everything, when nothing is served any more. Returns 0, or why an edit was lost. */
int slots_finish(struct slots *s);
/* Call this for each open tree, without the lock. Returns 0 or -ENOMEM. */
int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg);
void slots_free(struct slots *s);

/* Get the node of an item that was found, whose paths and place pass to it; the kernel gets one
 * more reference to it. Returns 0 or -ENOMEM. */
int slot_of(struct slots *s, struct item *i, uint64_t *ret);
/* Count one more reference of the kernel to a node of a slot in use; the second function drops n
 * references to one. */
void slot_known(struct slot *slot);
void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n);

/* Begin to use a slot, without opening it. -ESTALE: it does not exist. */
int slot_hold(struct slots *s, uint64_t node, struct use *ret);
/*
 * The same with its tree, which is opened if it is closed. -ESTALE: the file was changed; -errno:
 * it cannot be opened, for the reason in e, which may be NULL.
 */
int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e);
void slot_leave(struct use *u); /* of nothing, possibly */
/* Set the current rights of an open slot (tree_look()): true if they differ from those known. */
bool slot_look(struct slot *slot, uint64_t rights);
/* True once for each true result of slot_look(). */
bool slot_tell(struct slot *slot);
/* Get the facts about the slot's file. Its rights are checked again if the last check was over a
 * second ago. */
void slot_facts(struct slot *slot, struct stat *st, struct grant *g);

/* Seconds for which the rights of what was found count as known. */
#define LOOK_AGAIN 1
/* Find a slot by its own node. Under the lock. */
struct slot *slots_at(const struct slots *s, uint64_t node);
#define SLOT_OF(l, member) ((struct slot *)((char *)(l)-offsetof(struct slot, member)))

/* The content of a mount (shelf.h). */
struct shelf {
    struct shelf_options opt;
    struct tree *one;         /* owned: a model that is mounted alone; NULL: it is a directory */
    _Atomic(uint64_t) rights; /* its last tree_look(); 0: never */
    bool store;               /* the mounted directory is a store */
    struct reach reach;
    struct slots slots;
};

#endif
