/* SPDX-License-Identifier: MIT */
/* Defines a tree. Private to this layer; this header has no functions of its own. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include "base/hash.h"
#include "base/lock.h"
#include "edit/history_job.h"
#include "edit/open.h"
#include "live/tensors.h"
#include "model/snapshot.h"
#include "tree/rights.h"
#include "tree/tree.h"

/* Reason why tensors of a split model are read-only. */
#define MERGE_FIRST \
    "tensors of a split model are read-only: merge it first (cp model.gguf to a new name)"

/* Rows of the root that the tree handles itself. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/* The content of a node that the kernel knows or a program has open, in case the newest state lacks
 * it. */
struct held {
    struct link link;
    uint64_t key; /* result of held_key() in nodes.c */
    /* For a view of the whole: a reference to its snapshot; for a tensor: NULL. */
    struct snapshot *snap;
    char *state;      /* owned: the state of the mount, if the node shows it */
    uint64_t lookups; /* for a view of the whole: number of the kernel's references */
    unsigned opens;   /* number of open files */
    /* For a tensor: rows of views that were opened for writing, so that files may show a draft. */
    _Atomic uint32_t written;
    /* For a tensor: rows that a lookup has shown with this older node because they were being
     * written. */
    uint32_t looked;
    /* The view that they are read from, if the newest state lacks it; else empty. */
    struct view kept;
};

struct tree {
    struct tree_options opt;
    struct model_file model; /* its file, or the first one; if it is edited, that of `live` */
    struct edit_file opened; /* what that file was when it was opened; do not use its fd */
    /*
     * Owned: the same for each other file of a split model, indexed from number 1; and how many files there are,
     * including the first.
     */
    struct edit_file *others;
    size_t n_others;
    atomic_size_t look;   /* where begin_is_changed() continues */
    struct shards shards; /* if the model is split */
    bool merge_first;     /* editing tensors was requested, but the model is split */
    struct stat st;       /* of the model when it was opened */
    struct rights rights; /* owners and bits of what is shown; protected by the lock of `newest` */
    atomic_flag looks;    /* a thread is checking these just now, and it alone uses: */
    long long looked;     /* when they were last checked: milliseconds of when_now() */
    bool writable;        /* metadata can be edited */
    char why[512];        /* why it cannot; as long as a line of struct err */
    struct edit_options edit;
    atomic_uint open;  /* files and directories */
    uint64_t identity; /* tree_identity() */
    struct newest newest;
    struct work *work; /* owned: results computed for tensors */
    struct live *meta; /* owned: what metadata/ shows, whether or not the model is edited */
    /*
     * The same, once editing has begun. NULL: the tree is read-only, or its first edit has not come yet. A view taken
     * before this was seen as NULL belongs to the first snapshot.
     */
    _Atomic(struct live *) live;
    bool locked;           /* the model's file is open for writing and locked */
    struct lock beginning; /* held while editing begins; protects locked */
    atomic_uint begun;     /* number of attempts to begin, times 2; odd while one is in progress */
    /* The reason why editing could not begin; protected by the lock of `newest`. */
    char refusal[512];
    struct buf notes; /* notes from a previous tree that live_recall() does not take; same lock */
    struct history_job *history; /* history of `live`; NULL: no history is kept */
    /* Protected by the lock of `newest`, like the ids in `opened` and `others`: */
    struct table held; /* views of the whole that the kernel knows, and open files of tensors */
    uint32_t states;   /* number of views of the state of the mount, and the last one: */
    char *state;       /* owned: its text ... */
    uint32_t state_snap;
    bool state_plain;   /* ... for a mount without edits */
    unsigned anomalies; /* anomalies of the first snapshot, for the warnings */
    uint32_t wholes;    /* the number of the first snapshot */
    uint32_t keys;      /* the number of the first key: `live` counts from 0 */
};

/* Return the meaning of a node number; a key's is that of `live`. */
static inline struct node tree_node(const struct tree *t, uint64_t ino)
{
    struct node n = ino_node(ino);
    n.number -= n.kind == NODE_KEY ? t->keys : 0;
    return n;
}

#endif
