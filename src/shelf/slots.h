/* SPDX-License-Identifier: MIT */
/*
 * What a shelf shows; private to the shelf.
 *
 * A slot is a folder, a text of a store, or one state of one model's file (or files): where it is, and what
 * identified it when it was found, or when its own edits were written. It outlives the tree that is opened for a model, so
 * that node numbers stay true (the next tree goes on from those), and what `--unmount` has to name is known. It is gone when the tree is closed and
 * the kernel has forgotten its nodes. The number of a model is given again after all others, that of a folder or text
 * never; st_ino follows from where it is and the state of the file, and is never another one's.
 *
 * Threads: what is marked so is protected by the lock of the slots; all else is constant.
 */
#ifndef SHELF_SLOTS_H
#define SHELF_SLOTS_H

#include <pthread.h>
#include <time.h>

#include "base/pool.h"
#include "shelf/place.h"
#include "shelf/shelf.h"
#include "base/hash.h"

/* Seconds without use after which a model is closed; how often that is looked at. */
#define SLOT_IDLE 60
#define SLOT_SWEEP 5
/* Milliseconds that one may take to close before others are closed beside it, and opened. */
#define SLOT_PATIENCE 1000
/* Models that are kept open although nothing in them is in use: each takes some descriptors. */
#define SLOTS_IDLE_MAX 64
/* Descriptors that models may take which are not in use: a part of so many of those that the process may have, and no more
 * than that. */
#define SLOTS_FILES_PART 2
#define SLOTS_FILES_MOST 448
/* Models that are kept open in either case: a program that has looked a name up is about to open it. */
#define SLOTS_IDLE_LEAST 8
/* Seconds for which a model that could not be opened is not tried again. */
#define SLOT_RETRY 2

struct slot {
    struct link by_node, by_key, by_way; /* protected */
    uint64_t node;                       /* the number of its own node: of a model its folder */
    enum item_kind kind;
    struct place place; /* ITEM_FOLDER */
    uint64_t
        seed;   /* of st_ino: a hash of the path and what identified the file when it was found */
    char *path; /* owned; where it is opened */
    char *real; /* owned; the real path; NULL if there was none */
    size_t shards, above; /* as of struct item, and these: */
    bool store, behind;
    /* Protected: */
    uint64_t stamp;         /* hash of what identifies the file, or all files */
    struct tree_left left;  /* by the tree before; constant while it is in use */
    struct buf notes;       /* while it is closed: what is not in the file (live/unsaved.h) */
    bool replaced;          /* another file was found at its path: it is closed at once */
    uint64_t rights;        /* tree_look() of the last time; 0: never */
    bool told;              /* the kernel knows them */
    uint64_t way;           /* by which it was found last; 0: none */
    struct timespec found;  /* when that was */
    struct timespec looked; /* when `granted` was found */
    struct stat st;
    struct granted granted; /* its access rights, as of the last lookup */
    char *why;              /* owned; why it cannot be opened; NULL: it can, as far as is known */
    time_t failed;          /* when that was; 0: it was found when the name was looked up */
    struct tree *tree;      /* owned; NULL: it is closed */
    struct slots *slots;
    struct slot *prev, *next; /* of the open ones, and those that are being closed */
    struct pool_job closing;
    unsigned uses;    /* calls and open files */
    time_t used;      /* last */
    uint64_t lookups; /* that the kernel did not forget */
    bool busy;        /* a thread opens or closes it */
    bool spent;       /* the file was changed: the next lookup makes another slot */
};

struct slots {
    struct reach *reach;
    const struct shelf_options *opt;
    struct lock lock;
    struct cond done;             /* busy ended, or the last use */
    struct table by_node, by_key; /* a path has a slot for each state of its file */
    struct table by_way;
    uint32_t last;            /* slot that was given to a model */
    uint32_t last_other;      /* node of a folder or text */
    struct slot *first, *end; /* of the open ones, by their last use */
    size_t files_most;        /* descriptors that these may take where they are not in use */
    struct pool_job sweep;    /* closes what is idle */
    bool sweeps;              /* it has joined */
    bool stop;          /* nothing is served any more: what is closed, is closed in any case */
    int failed;         /* of an edit, when a model was closed */
    bool finished;      /* all were closed, and ... */
    struct buf unsaved; /* ... these are the lines of what is not in the files */
};

/* A path beside which the files of a split model are. */
static inline const char *slot_files(const struct slot *slot)
{
    return slot->behind ? slot->real : slot->path;
}

/* st_ino of what has this number in it. */
static inline uint64_t slot_ino(const struct slot *slot, uint64_t local)
{
    if (slot->node == INO_ROOT)
        return INO_ROOT;
    return xxh64(slot->seed, &local, sizeof(local)) >>
           1; /* positive also where a program takes it as signed */
}

/* The open ones. Under the lock. */
struct opened {
    unsigned n, rest, closing;   /* all; open and not in use; being closed */
    size_t files, closing_files; /* descriptors that all take, about; and the latter */
    struct slot *oldest;         /* of those that rest the one that was used least lately */
};
struct opened slots_opened(const struct slots *s);
static inline bool slot_rests(const struct slot *slot)
{
    return slot->tree && !slot->busy && !slot->uses;
}

void slots_init(struct slots *s, struct reach *r, const struct shelf_options *o);
/* Add a line for each edit that is not in its file, by model and key. */
void slots_unsaved(struct slots *s, struct buf *out);
/* Close all, when nothing is served any more: 0, or why an edit was lost. */
int slots_finish(struct slots *s);
/* Call this for each open tree, without the lock. 0, -ENOMEM. */
int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg);
void slots_free(struct slots *s);

/* A hash of a folder's node and a name in it, by which a model is found. */
uint64_t slot_way(uint64_t folder, const char *name);
/* The node of an item that was found, whose paths and place pass to it; the kernel gets one more reference to it. way: 0
 * if it is not a model. 0, -ENOMEM. */
int slot_of(struct slots *s, struct item *i, uint64_t way, uint64_t *ret);
/* The same of a model that was found by this way within the last second, if the file there is still the same, which one look
 * shows. False: look it up. */
bool slot_again(struct slots *s, uint64_t way, uint64_t *ret);
/* The kernel gets one more reference to a node of a slot in use; loses n of them to one. */
void slot_known(struct slot *slot);
void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n);

/* Begin to use a slot, without opening it. -ESTALE: there is no such slot. */
int slot_hold(struct slots *s, uint64_t node, struct use *ret);
/* The same with its tree, which is opened if it is closed. -ESTALE: the file was changed; -errno: it cannot
 * be opened: e, which may be NULL, has the reason. */
int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e);
void slot_leave(struct use *u); /* may be of nothing */
/* The rights of an open slot are these now (tree_look()): true if others were known. */
bool slot_look(struct slot *slot, uint64_t rights);
/* True once for each time that slot_look() was. */
bool slot_tell(struct slot *slot);
/* What is known of its file, whose rights are looked at again if that was over a second ago. */
void slot_facts(struct slot *slot, struct stat *st, struct grant *g);

/* Seconds for which the rights of what was found are taken as known. */
#define LOOK_AGAIN 1
/* By its own node. Under the lock. */
struct slot *slots_at(const struct slots *s, uint64_t node);
#define SLOT_OF(l, member) ((struct slot *)((char *)(l)-offsetof(struct slot, member)))

/* What a mount shows (shelf.h). */
struct shelf {
    struct shelf_options opt;
    struct tree *one;         /* owned: a model that is mounted alone; NULL: it is a folder */
    _Atomic(uint64_t) rights; /* its tree_look() of the last time; 0: never */
    bool store;               /* the folder is a store when it is mounted */
    struct reach reach;
    struct slots slots;
};

#endif
