/* SPDX-License-Identifier: MIT */
/* What the files of the tree layer share; private to it. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include "base/hash.h"
#include "base/lock.h"
#include "edit/history_job.h"
#include "edit/open.h"
#include "live/tensors.h"
#include "model/newest.h"
#include "tree/rights.h"
#include "tree/state.h"
#include "tree/tree.h"

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

/* Open the model's file: for writing if it is to be edited and can be, and not late. */
int begin_open(struct tree *t, struct err *e);
/* The same of the other files of a split model, for model_open_shards(). */
struct model_opener begin_opener(struct tree *t);
void begin_close(struct tree *t);
/* Why tensors are read-only then. */
#define MERGE_FIRST \
    "tensors of a split model are read-only: merge it first (cp model.gguf to a new name)"
/*
 * True if another program changed a file of the model: of those that `l` does not edit; NULL: none is
 * edited yet. The disk is asked, of a model of very many files for some of them, in turn.
 */
bool begin_is_changed(struct tree *t, const struct live *l);
/* What is shown of metadata/, before anything is edited. 0, -ENOMEM. */
int begin_live(struct tree *t);
/* It is parsed: it may be one that cannot be edited. */
void begin_parsed(struct tree *t);
/*
 * Before each edit: *ret is what is edited. -EROFS, -EBUSY (another process has the lock), -errno.
 */
int begin_editing(struct tree *t, struct live **ret);

/* Make a snapshot of the accepted edits, unless one exists. Rarely fails. */
int tree_freshen(struct tree *t, bool whole, struct view *ret);

/* The view that a node shows: an older snapshot for NODE_WHOLE, and n->state is set. -ESTALE. */
int tree_view_of(struct tree *t, struct node *n, struct view *ret);
/*
 * The same for a file that is opened. *held may be NULL; tree_let_go() it. From then on
 * tree_held_view() is what the file is read from: for a view of the whole its own snapshot, for a
 * tensor the newest that has that version of it; with `file` as the view's, which may be NULL.
 */
int tree_hold_view(struct tree *t, struct node *n, struct view *ret, struct held **held);
struct view tree_held_view(struct tree *t, const struct held *h, struct image *file);
void tree_let_go(struct tree *t, struct held *h);
/* A lookup has shown a draft by this node, which is not the newest; and whether one has since this was asked last. */
void node_looked(struct tree *t, const struct node *n);
bool node_was_looked(struct tree *t, const struct node *n);
/* A view was opened to be written: open files of this node show what is written. */
void node_written(struct tree *t, const struct node *n);
/* struct newest's leaving(): open files keep the views that they need. */
void tree_keep_views(void *tree, const struct snapshot *next);
/* The state of the mount that a node shows. */
void node_state(struct tree *t, const struct node *n, struct buf *out);
/* Free what is held. */
void node_free(struct tree *t);
/* The kernel gets a reference to a node that is not a key; to that of the state of the mount as it is now, which n becomes.
 * 0, -ENOMEM, -EOVERFLOW. */
int node_known(struct tree *t, const struct view *v, struct node *n);
/* The kernel drops so many of them. */
void node_forget(struct tree *t, const struct node *n, uint64_t times);

/* The tensor that a node belongs to, NULL if it belongs to none. */
const struct gguf_tensor *node_tensor(const struct snapshot *g, const struct node *n);
/* A node's st_ino. It exists in the snapshot. */
uint64_t node_inode(const struct snapshot *g, const struct node *n);
/* The row of a node; NULL: not a row (root, tensor folder, key). */
const struct row *node_row(const struct node *n);
/* -ENOENT if there is no such node, -ESTALE if there was once; keys_attr() says that of keys. */
int node_check(const struct tree *t, const struct snapshot *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* The entry of a node that is not a key. Views of the whole are measured. */
int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret);
/* The same of any node, with what `a` says of it. -EOVERFLOW. */
int node_entry_as(struct tree *t, const struct view *v, const struct node *n,
                  const struct live_attr *a, struct tree_entry *ret);
/* Numbers and type, which is all that a plain listing has. */
void brief_entry(uint64_t ino, uint64_t inode, mode_t type, struct tree_entry *ret);

/* metadata/: keys.c. */
int keys_entry(struct tree *t, const struct live_attr *a, struct tree_entry *ret);
int keys_lookup(struct tree *t, const char *name, struct tree_entry *ret);
/* f may be NULL: an open file of it. */
int keys_attr(struct tree *t, uint32_t number, const struct tree_file *f, struct tree_entry *ret);
void keys_forget(struct tree *t, uint32_t number, uint64_t n);
int keys_list(struct tree *t, struct live_list *list);
/* As live_list_at(). */
int keys_list_at(struct tree *t, const struct live_list *list, uint64_t *i, bool attrs,
                 char name[TREE_NAME_MAX + 1], struct tree_entry *ret);
int keys_open(struct tree *t, struct tree_file *f, int flags);
int keys_create(struct tree *t, struct live *l, const char *name, int flags, struct tree_entry *ret,
                struct tree_file **file);
int keys_facts(struct tree *t, uint32_t number, struct live_facts *ret);
int keys_forgive(struct tree *t, uint32_t number);

/* Open the file of a node that is not a key. */
int row_open(struct tree *t, struct tree_file *f, int flags);
/* The text of a row, but for the state of the mount, which follows it in some. */
void render_row(const struct tree *t, const struct view *v, const struct node *n, struct buf *out);
void render_state(struct tree *t, const struct node *n, struct buf *out);

#endif
