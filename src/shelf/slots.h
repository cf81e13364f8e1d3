/* SPDX-License-Identifier: MIT */
/*
 * What the nodes of a shelf stand for, and the models that are open; private to the shelf.
 *
 * A slot stands for a name in the mount that is in no tree (place.h), such as a directory or a model,
 * as long as it is the same file (path, device, inode number, size and time) or only its own tree has
 * changed it. A slot ends when the kernel has forgotten its node and nothing uses it. Its number is
 * not used for anything else.
 *
 * The tree of a model is opened by the first call that needs it, and closed a minute after the last
 * use, or when room is needed. The next tree gives its nodes the same numbers if the files are the
 * same, and still can or cannot be edited; else the numbers are stale. A tree that is being edited
 * stays open until its file is replaced, or until the end.
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

struct shelf_slot {
    struct link by_id, by_key; /* protected */
    uint32_t id;               /* in the numbers of its nodes (tree/files.h); 0: the shelf's root */
    struct slots *slots;
    struct shelf_item is; /* what it stands for; `st` and `grant` are protected */
    /* Protected: */
    struct listing *names; /* reference: the entries of a directory as last listed, or NULL */
    struct tree *tree;     /* owned; NULL: the model is closed */
    uint64_t identity;     /* of the files that were open, and whether they could be edited; or 0 */
    struct shelf_slot *next; /* in the list of open models */
    unsigned uses;           /* number of calls and open files that use the slot */
    struct timespec used;    /* when the last use ended */
    uint64_t lookups;        /* number of the kernel's references */
    uint64_t made; /* the number of a look: earlier ones may have seen what was there before */
    bool spent;    /* another file is at its path, so its nodes are stale once closed */
};

struct slots {
    const struct paths *paths;
    const struct shelf_options *opt;
    struct lock lock; /* not held while a disk is accessed */
    /* Protected: */
    struct table by_id, by_key;
    uint32_t next;           /* the id to be given next */
    uint64_t looks;          /* number of looks at names, and of slots made, so far */
    struct shelf_slot *open; /* the open models */
    struct pool_job sweep;   /* closes idle models */
    bool sweeps;             /* `sweep` has joined the pool */
    uint64_t idle_max;       /* how many models stay open without use */
    int failed;              /* error of an edit that was lost when a model was closed */
};

void slots_init(struct slots *s, const struct paths *p, const struct shelf_options *o);
void slots_free(struct slots *s);
/* Stop using the slot of an open tree (at first none), and begin to use the next one's. Returns false
 * after the last. */
bool slots_next(struct slots *s, struct use *u);

/* Look at what an entry of a directory (NULL: the shelf's root) stands for now, begin to use its slot, and
 * count one more kernel reference to it. Returns 0, -ENOENT or another -errno. */
int slot_look_up(struct slots *s, const struct shelf_slot *folder, const struct entry *e,
                 struct use *ret);
/* Drop n of the kernel's references to the slot's own node. */
void slot_forget(struct shelf_slot *slot, uint64_t n);

/* Begin to use a slot. Its tree is in use, too, if it is open. Returns 0, or -ESTALE if there is no
 * such slot. */
int slot_hold(struct slots *s, uint32_t id, struct use *ret);
/* Open the tree of a slot in use, if it is not open. Returns 0, -ESTALE if the slot stands for a file
 * that is gone, or -errno with a message. */
int slot_open(struct use *u, struct err *e);
void slot_leave(struct use *u); /* u may be empty */
/* Get the facts about the slot's file or, with `look`, look at the file again. Returns 0, -ESTALE if a
 * directory was replaced, or another -errno. */
int slot_facts(struct shelf_slot *slot, bool look, struct stat *st, struct grant *g);
/* Get a reference to the entries that a directory shows now. Returns 0 or -errno. */
int slot_names(struct shelf_slot *slot, struct listing **ret);

/* The content of a mount (shelf.h). */
struct shelf {
    struct shelf_options opt;
    struct tree *one; /* owned: the model if it is mounted alone; NULL: a directory is mounted */
    bool store;       /* the mounted directory is a store */
    struct paths paths;
    struct slots slots;
};

#endif
