/* SPDX-License-Identifier: MIT */
/* Defines a tree. Private to this layer; this header has no functions of its own. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include "base/hash.h"
#include "base/lock.h"
#include "edit/history.h"
#include "edit/open.h"
#include "live/tensors.h"
#include "model/snapshot.h"
#include "tree/rights.h"
#include "tree/tree.h"

/* Reason why the tensors of a split model are read-only. */
#define MERGE_FIRST \
    "tensors of a split model are read-only: merge it first (cp model.gguf to a new name)"

/* Rows at the root that the tree handles itself. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/* The content of a node that the kernel knows or a program has open, kept in case the newest state
 * lacks it. */
struct held {
    struct link link;
    uint64_t key; /* result of held_key() in nodes.c */
    /* for a view of the whole: a reference to its snapshot; for a tensor: NULL */
    struct snapshot *snap;
    char *state;      /* owned: text of the state of the mount, if the node shows it */
    uint64_t lookups; /* for a view of the whole: number of the kernel's references */
    unsigned opens;   /* number of open files */
    /* for a tensor: rows of views opened for writing, so that files may show a draft */
    _Atomic uint32_t written;
    /* for a tensor: rows that a lookup has shown with this older node because they were being
     * written */
    uint32_t looked;
    /* the view that open files are read from if the newest state lacks their content; else empty */
    struct view kept;
};

struct tree {
    struct tree_options opt;
    /* the model's file, or the first one; while the model is edited, that of `live` */
    struct model_file model;
    struct edit_file opened; /* the state of that file when it was opened; do not use its fd */
    /* Owned: the same for each other file of a split model, indexed from 1. The number of files
     * that follows includes the first. */
    struct edit_file *others;
    size_t n_others;
    atomic_size_t look;   /* where begin_is_changed() continues */
    struct shards shards; /* if the model is split */
    bool merge_first;     /* editing tensors was requested, but the model is split */
    struct stat st;       /* stat of the model when it was opened */
    struct rights rights; /* owners and bits that nodes show; protected by the lock of `newest` */
    /* set while a thread is checking the rights; that thread alone uses `looked` */
    atomic_flag looks;
    long long looked; /* when the rights were last checked, in milliseconds of when_now() */
    bool writable;    /* metadata can be edited */
    char why[512];    /* why metadata cannot be edited; as long as a line of struct err */
    struct edit_options edit;
    atomic_uint open;  /* number of open files and directories */
    uint64_t identity; /* see tree_identity() */
    struct newest newest;
    struct work *work; /* owned: computes and keeps results for tensors */
    struct live *meta; /* owned: the content of metadata/, whether or not the model is edited */
    /* Equal to `meta` once editing has begun. NULL: the tree is read-only, or its first edit has
     * not come yet. If this is NULL after a view was taken, that view is of the first snapshot. */
    _Atomic(struct live *) live;
    bool locked;           /* the model's file is open for writing and locked */
    struct lock beginning; /* held while editing begins; protects `locked` */
    atomic_uint begun;     /* twice the number of attempts to begin; odd while one is in progress */
    /* why editing could not begin; protected by the lock of `newest` */
    char refusal[512];
    struct buf notes; /* notes from a previous tree that live_recall() did not take; same lock */
    struct history_job *history; /* history of `live`; NULL: no history is kept */
    /* Protected by the lock of `newest`, like the ids in `opened` and `others`: */
    /* views of the whole that the kernel knows, and open files of tensors */
    struct table held;
    uint32_t states; /* number of the newest view of the state of the mount */
    char *state;     /* owned: the text of that view */
    uint32_t state_snap;
    bool state_plain;   /* `state` describes a mount without edits */
    unsigned anomalies; /* anomalies of the first snapshot, for the warnings */
    uint32_t wholes;    /* number of the first snapshot */
    uint32_t keys;      /* number of the first key; `live` counts from 0 */
};

/* Return the meaning of a node number. A key gets the number that it has in `live`. */
static inline struct node tree_node(const struct tree *t, uint64_t ino)
{
    struct node n = ino_node(ino);
    n.number -= n.kind == NODE_KEY ? t->keys : 0;
    return n;
}

#endif
