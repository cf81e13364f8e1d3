/* SPDX-License-Identifier: MIT */
/* Defines a tree. Finds the kinds of nodes, and their content in the newest state of the model or
 * in one that the kernel or an open file still refers to. Private to this layer. */
#ifndef TREE_NODES_H
#define TREE_NODES_H

#include "base/hash.h"
#include "base/lock.h"
#include "edit/history.h"
#include "edit/open.h"
#include "live/tensors.h"
#include "model/snapshot.h"
#include "tree/attr.h"
#include "tree/tree.h"

/* Reason why the tensors of a split model are read-only. */
#define MERGE_FIRST \
    "tensors of a split model are read-only: merge it first (cp model.gguf to a new name)"

/* Rows at the root that the tree handles itself. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/* The content of a node that the kernel knows or a program has open, kept in case the newest state
 * lacks it. */
struct held {
    struct link link; /* must come first */
    uint64_t key;     /* held_key() */
    unsigned opens;
    struct view
        kept; /* read by open files while the newest state lacks their content; else empty */
    /* For a whole-model view: a reference to its snapshot (NULL for a tensor), and the number of
     * the kernel's references. */
    struct snapshot *snap;
    uint64_t lookups;
};

struct tree {
    struct tree_options opt;
    /* the model's file, or its first file; during editing, the file of `live` */
    struct model_file model;
    struct edit_file opened; /* the state of that file when it was opened; do not use its fd */
    /* Owned: the same for the other files of a split model, at indices 1 to n_others - 1. */
    struct edit_file *others;
    size_t n_others;
    struct shards shards; /* if the model is split */
    bool merge_first;     /* editing tensors was requested, but the model is split */
    struct stat st;       /* stat of the model when it was opened */
    /* what all files of the model grant, and when that was checked (when_ms(); 0: never); protected
     * by the lock of `newest` */
    struct grant grant;
    long long looked;
    bool writable; /* metadata can be edited */
    char why[512]; /* why metadata cannot be edited; as large as a message in struct err */
    struct edit_options edit;
    atomic_uint open;  /* number of open files and directories */
    uint64_t identity; /* see tree_identity() */
    struct newest newest;
    struct work *work; /* owned: computes and keeps results for tensors */
    struct live *meta; /* owned: the content of metadata/, whether or not the model is edited */
    _Atomic(struct live *) live; /* equal to `meta` once editing has begun; until then NULL */
    atomic_bool rests;           /* no thread is beginning to edit */
    bool locked;                 /* the model's file is open for writing and locked */
    /* why editing could not begin; protected by the lock of `newest` */
    char refusal[512];
    struct history history; /* of `live`, if opt.history */
    /* Protected by the lock of `newest`, like the ids in `opened` and `others`: */
    /* whole-model views that the kernel knows, and open files of tensors */
    struct table held;
};

/* ---- the kinds of nodes ---- */

/* Return true if the node is this directory at the root. */
static inline bool node_is_folder(const struct node *n, uint32_t row)
{
    return n->kind == NODE_DIR && n->row == row;
}

/* Return the tensor that a node belongs to, or NULL if there is none. */
const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n);
uint64_t node_inode(const struct node *n); /* its st_ino */
/* Return the row of a node, or NULL if it has none (root, tensor directory, key). */
const struct row *node_row(const struct node *n);
/* Return true if the node is a row with one of these flags. */
bool node_has(const struct node *n, unsigned flags);
/* Return the argument for the functions of the node's row in this view. */
struct about node_about(const struct view *v, const struct node *n);
/* Return 0 if the node exists, -ESTALE if it existed earlier, or -ENOENT. For keys, live_attr()
 * checks this. */
int node_check(const struct tree *t, const struct snapshot *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* ---- the views of nodes ---- */

/* Get the view that a node shows; for NODE_WHOLE, it may belong to an older snapshot. May return
 * -ESTALE. */
int tree_view_of(struct tree *t, const struct node *n, struct view *ret);
/*
 * Get the view for a file being opened. *held may become NULL; release it with tree_let_go(). The
 * file is then read from tree_held_view(): from its own snapshot if it is a whole-model view, else
 * from the newest one that has this version of the tensor. `file` (or NULL) becomes the view's
 * `file`.
 */
int tree_hold_view(struct tree *t, const struct node *n, struct view *ret, struct held **held);
struct view tree_held_view(struct tree *t, const struct held *h, struct image *file);
void tree_let_go(struct tree *t, struct held **h);
/* Implements leaving() of struct newest: lets open files keep the views that they need. */
void tree_keep_views(void *tree, const struct snapshot *next);
/* Free everything held. */
void node_free(struct tree *t);
/* Count one more kernel reference to a node that is not a key. Returns 0 or -ENOMEM. */
int node_known(struct tree *t, const struct view *v, const struct node *n);
/* Drop `times` of the kernel's references. */
void node_forget(struct tree *t, const struct node *n, uint64_t times);

/* If the node shows the state of the mount, append that, as it is now. */
void node_state(struct tree *t, const struct node *n, struct buf *out);

#endif
