/* SPDX-License-Identifier: MIT */
/*
 * What the nodes of a shelf stand for, and the models that are open; private to the shelf.
 *
 * A slot stands for a name in the mount: a directory, a text file in a store, or a model, as long
 * as it is the same file (path, device, inode number, size and time) or only its own tree has
 * changed it. A slot ends when the kernel has forgotten its node and nothing uses it. Its number is
 * not used for anything else.
 *
 * The tree of a model is opened by the first call that needs it, and closed a minute after the last
 * use, or when room is needed. The next tree gives its nodes the same numbers if the files are the
 * same; else the numbers are stale. A tree that is being edited stays open until its file is
 * replaced, or until the end.
 *
 * Members marked as protected are protected by the lock of struct slots; all other members are constant.
 */
#ifndef SHELF_SLOTS_H
#define SHELF_SLOTS_H

#include <time.h>

#include "base/hash.h"
#include "base/lock.h"
#include "base/pool.h"
#include "shelf/place.h"
#include "shelf/shelf.h"

/* Seconds without use after which a model is closed, and seconds between checks for such models. */
#define SLOT_IDLE 60
#define SLOT_SWEEP 5
/* Maximum number of models that are kept open without use. */
#define SLOTS_IDLE_MAX 64
/* Seconds before another attempt to open a model that could not be opened. */
#define SLOT_RETRY 2
/* Seconds for which the facts about a file that was found are valid. */
#define SLOT_FRESH 1

struct slot {
    struct link by_node, by_key; /* protected */
    uint64_t node; /* number of the slot's own node; for a model, that of its directory */
    enum item_kind kind;
    bool store; /* as in struct item, like the next five */
    bool behind;
    size_t shards;
    struct place place;
    char *path, *real; /* owned; `real` may be NULL */
    uint64_t stamp;    /* item_stamp() */
    struct slots *slots;
    /* Protected: */
    uint64_t identity; /* tree_identity() of the model's first tree; 0: not opened yet */
    struct stat st;
    struct grant grant;
    struct timespec looked;   /* when these two were last checked */
    char *why;                /* owned; why the model cannot be opened; NULL: no known reason */
    time_t failed;            /* when opening it failed; 0: `why` is from the lookup */
    struct tree *tree;        /* owned; NULL: the model is closed */
    struct slot *prev, *next; /* the open models */
    unsigned uses;            /* number of calls and open files that use the slot */
    time_t used;              /* when it was last used */
    uint64_t lookups;         /* number of the kernel's references */
    bool busy;                /* a thread is opening or closing the model */
    bool spent;               /* another file is at its path, so its nodes are stale once closed */
};

struct slots {
    const struct paths *paths;
    const struct shelf_options *opt;
    struct lock lock; /* not held while a disk is accessed */
    /* Protected: */
    struct cond done; /* signalled when a slot is no longer busy */
    struct table by_node, by_key;
    uint32_t last;            /* number last given to a model */
    uint64_t last_other;      /* number last given to a directory or text file */
    struct slot *first, *end; /* the open models, the least recently used first */
    struct pool_job sweep;    /* closes idle models */
    bool sweeps;              /* `sweep` has joined the pool */
    int failed;               /* error of an edit that was lost when a model was closed */
};

/* Return a path beside which the files of a split model lie. */
static inline const char *slot_files(const struct slot *slot)
{
    return slot->behind ? slot->real : slot->path;
}

void slots_init(struct slots *s, const struct paths *p, const struct shelf_options *o);
/* Write pending edits of all models. Returns 0, or -errno if an edit was lost. */
int slots_finish(struct slots *s);
void slots_free(struct slots *s);
/* Call a function for each open tree, without the lock held. Returns 0 or -ENOMEM. */
int slots_each(struct slots *s, void (*call)(const struct use *u, void *arg), void *arg);

/* Get the node of an item that was found, and count one more kernel reference to it. A new slot
 * takes the item's paths and place. Returns 0 or -errno. */
int slot_of(struct slots *s, struct item *i, uint64_t *ret);
/* Drop n of the kernel's references to a node: a slot's own, or one in its tree. */
void slot_forget(struct slots *s, uint64_t node, uint64_t local, uint64_t n);

/* Begin to use a slot without opening its model. Returns 0, or -ESTALE if it does not exist. */
int slot_hold(struct slots *s, uint64_t node, struct use *ret);
/* Begin to use a slot with its tree, opening the tree if necessary. Returns 0, -ESTALE if the slot
 * does not exist or stands for a file that is gone, or -errno with a message. */
int slot_use(struct slots *s, uint64_t node, struct use *ret, struct err *e);
void slot_leave(struct use *u); /* u may be empty */
/* Get the facts about the slot's file; checks them again if they are too old. */
void slot_facts(struct slot *slot, struct stat *st, struct grant *g);

/* The content of a mount (shelf.h). */
struct shelf {
    struct shelf_options opt;
    struct tree *one; /* owned: the model if it is mounted alone; NULL: a directory is mounted */
    bool store;       /* the mounted directory is a store */
    struct paths paths;
    struct listings listings;
    struct slots slots;
};

#endif
