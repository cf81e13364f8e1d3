/* SPDX-License-Identifier: MIT */
/* A tree. Private to this layer; it has no functions of its own. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include "base/hash.h"
#include "base/lock.h"
#include "edit/history_job.h"
#include "edit/open.h"
#include "live/tensors.h"
#include "model/newest.h"
#include "tree/rights.h"
#include "tree/tree.h"

/* Why tensors of a split model are read-only. */
#define MERGE_FIRST \
    "tensors of a split model are read-only: merge it first (cp model.gguf to a new name)"

/* Rows of the root that the tree itself knows. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/* What a node shows that the kernel knows or a program has open, where the newest state may lack it. */
struct held {
    struct link link;
    uint64_t key;          /* held_key() in nodes.c */
    struct snapshot *snap; /* a view of the whole: a reference, what it shows; of a tensor: NULL */
    char *state;           /* owned: what is said of the mount, where it is shown */
    uint64_t lookups;      /* a view of the whole: the kernel's references */
    unsigned opens;        /* open files */
    /* Of a tensor: rows of views that were opened to be written: what files show then may be a draft's. */
    _Atomic uint32_t written;
    /* The same: rows that a lookup has shown by this node because they were being written, though it is older. */
    uint32_t looked;
    struct view kept; /* what they are read from, if the newest state lacks it; else empty */
};

struct tree {
    struct tree_options opt;
    struct model_file model; /* its file, or the first of them; if it is edited that of `live` */
    struct edit_file opened; /* what that was when it was opened; its fd is not to be used */
    /* Owned: the same of each other file of a split model, but number 0; and how many, with that. */
    struct edit_file *others;
    size_t n_others;
    atomic_size_t look;   /* where begin_is_changed() goes on */
    char *name;           /* owned: what the file was called, by a link perhaps */
    struct shards shards; /* if the model is split */
    bool merge_first;     /* tensors were to be edited, but the model is split */
    struct stat st;       /* of the model when it was opened */
    struct rights rights; /* owners and bits of what is shown; protected by the lock of `newest` */
    atomic_llong looked;  /* when these were asked for: milliseconds of when_now() ... */
    atomic_flag looks;    /* ... which a thread does just now */
    bool writable;        /* metadata can be edited */
    char why[512];        /* why it is not; as long as a line of struct err */
    struct edit_options edit;
    atomic_uint open;  /* files and folders */
    uint64_t identity; /* tree_identity() */
    struct newest newest;
    struct work *work; /* owned: what is computed of tensors */
    struct live *meta; /* owned: what metadata/ shows, whether or not the model is edited */
    /*
     * The same, as what is edited. NULL: the tree is read-only, or its first edit has not come yet. A
     * view that is taken before this is found to be NULL is of the first snapshot.
     */
    _Atomic(struct live *) live;
    bool locked;           /* the model's file is open for writing, with the lock */
    struct lock beginning; /* held while editing begins; protects locked */
    atomic_uint begun;     /* attempts of that, times 2; odd while one goes on */
    char refusal[512];     /* why it could not be begun; protected by the lock of `newest` */
    struct buf notes;      /* of a tree before, which live_recall() does not take; the same lock */
    struct history_job *history; /* of `live`; NULL: none is kept */
    /* Protected by the lock of `newest`, as is the id of `opened` and `others`: */
    struct table held; /* views of the whole that the kernel knows, open files of tensors */
    uint32_t states;   /* numbers given to views of the state of the mount, and the last: */
    char *state;       /* owned: its text ... */
    uint32_t state_snap;
    bool state_plain;   /* ... of a mount where nothing was done */
    unsigned anomalies; /* of the first snapshot, for the warnings */
    uint32_t wholes;    /* the number of the first snapshot */
    uint32_t keys;      /* the same of the first key: `live` counts from 0 */
};

/* What a number means: that of a key as `live` has it. */
static inline struct node tree_node(const struct tree *t, uint64_t ino)
{
    struct node n = ino_node(ino);
    n.number -= n.kind == NODE_KEY ? t->keys : 0;
    return n;
}

#endif
