/* SPDX-License-Identifier: MIT */
/* What the files of the tree layer share; private to it. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "edit/commit.h"
#include "edit/file.h"
#include "tree/helper.h"
#include "tree/keys.h"
#include "tree/rights.h"
#include "tree/texts.h"
#include "tree/tree.h"

/* Rows of the root that the tree itself knows. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/* How much a pending change held: what it is cut back to. */
struct mark {
    size_t ops, bytes, notes;
};

/* Edits that are accepted and not yet durable. All protected by the tree's lock. */
struct pending {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* of the change; its new model is the newest generation's */
    struct mark last;          /* before the edit that was accepted last */
    struct buf notes;          /* a line for the log for each operation, NUL-terminated */
    struct tree_wait *waits;   /* who waits for it */
    unsigned edits;            /* accepted */
    struct tree_wait *owner;   /* who made the one edit that it is, and waits; else NULL */
};

struct writer {
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    bool stop;
    bool due_set;
    struct timespec due;            /* CLOCK_MONOTONIC: when to write what nobody waits for */
    struct gen *disk;               /* a reference: what the model file holds */
    struct gen *flight;             /* a reference: what is being written, or NULL */
    struct tree_wait *flight_waits; /* who waits for that */
    struct tree_wait *flight_owner; /* as pending.owner */
    unsigned flight_edits;          /* accepted edits in it */
    struct pending next;
    int failed;         /* 0, or why a write that nobody waited for failed; told once */
    bool freeing;       /* the file that was replaced last still takes its room */
    unsigned losses;    /* how often accepted edits were given up */
    atomic_bool cancel; /* stops a copy */
};

/* A generation that the kernel has a node of, or had while it was the newest. */
struct held {
    struct gen *gen; /* a reference */
    uint64_t lookups;
};

struct tree {
    struct tree_options opt;
    char *path;            /* owned: the model's real path */
    char *name;            /* owned: what the file was called, by a link perhaps */
    int dir;               /* of its folder */
    struct shards shards;  /* if the model is split */
    struct stat st;        /* of the model when it was opened */
    struct rights rights;  /* owners and bits of what is shown; as it was opened */
    bool writable;         /* metadata can be edited */
    char why[512];         /* why it is not; as long as a line of struct err */
    struct edit_file file; /* the writer's; while nothing is written, protected by lock */
    struct edit_options edit;
    struct texts texts; /* that open files show */
    pthread_mutex_t lock;
    /* Protected by lock: */
    struct view now; /* the newest generation and store */
    uint64_t generations;
    struct held *held;
    size_t n_held, cap_held;
    struct keys keys; /* if writable */
    struct writer writer;
    unsigned odd; /* of the first generation, for the warnings */
};

/* Log a line, if somebody wants it. */
void tree_log(const struct tree *t, int priority, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * A generation of what the edited file holds, which passes to it in any case: merged with the
 * other shards of a split model.
 */
int tree_gen(struct tree *t, struct gguf *own, uint64_t number, const struct timespec *mtime,
             struct gen **ret, struct err *e);
/* The store of the edited file as it is now, which `own` tells the layout of. */
int tree_store(struct tree *t, const struct gguf *own, struct store **ret, struct err *e);

/* References to the newest generation and store. Free with view_free(). */
struct view tree_view(struct tree *t);
/* The view that a node shows: an older generation for NODE_WHOLE. -ENOENT, -ESTALE. */
int tree_view_of(struct tree *t, const struct node *n, struct view *ret);

/* The tensor that a node belongs to, NULL if it belongs to none. */
const struct gguf_tensor *node_tensor(const struct gen *g, const struct node *n);
/* The row of a node, NULL if it is none (root, tensor folder, key). */
const struct row *node_row(const struct node *n);
/* -ENOENT if there is no such node. Keys of a writable tree: under its lock. */
int node_check(const struct tree *t, const struct gen *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* A node's entry. Under the tree's lock if it is writable and the node is a key. Views of the whole
 * are measured: not under the lock. */
int node_entry(struct tree *t, const struct view *v, uint64_t ino, struct tree_entry *ret);
void entry_size(struct tree_entry *e, uint64_t size);

/* The text of key number kv of a generation, and its size (measured once). */
void key_text(const struct gen *g, uint32_t kv, struct buf *out);
uint64_t key_size(const struct gen *g, uint32_t kv);

/*
 * The text of a node that is rendered as a whole, and shared: made now if there is none. kv: of a
 * key's file. 0 and a reference, or -errno.
 */
int render_shared(struct tree *t, const struct view *v, const struct node *n, uint32_t kv,
                  struct rendered **ret);

/* An open file. */
struct tree_file {
    struct node node;
    const struct row *row; /* NULL for metadata files */
    bool cacheable;
    /*
     * What is rendered as a whole is rendered when it is opened and does not change from then on.
     * A view of the whole keeps its generation; tensor data comes from the newest store at each
     * read.
     */
    struct rendered *shared; /* a reference: the text, or NULL and it is in: */
    struct buf text;         /* its own: small ones, and what has no number of a generation */
    bool rendered;
    struct gen *gen;     /* NODE_WHOLE: a reference */
    struct mapped *pin;  /* a reference: what gen pinned when it was opened, or NULL */
    struct kfile *kf;    /* of a writable tree's metadata file, if it is one that was touched */
    struct draft *draft; /* shared: what it writes; NULL if it does not */
    bool append;         /* each write goes to the end */
    bool wrote;          /* something of the draft is by this handle */
    bool cut;            /* when it was opened, the model's file was known to have been cut */
    bool piecewise;      /* answered piecewise: see files.h */
    bool decodes;        /* piecewise, from tensor values */
    bool gaps;           /* piecewise, and some of it is missing: of an incomplete model */
};

/* Open and close a metadata file of a writable tree. Under the lock. */
int write_open(struct tree *t, struct tree_file *f, int flags);
void write_release(struct tree *t, struct tree_file *f);

/* ---- drafts: all under the tree's lock ---- */

/* One more writer of a file; its draft is made if there is none. */
int draft_join(struct tree *t, struct tree_file *file, struct kfile *f, bool truncate);
/* A writer goes; with the last one the draft ends. */
void draft_leave(struct tree *t, struct draft *d);
/* Before a draft is written at `off`, or made `off` bytes long: who goes beyond the end of what was
 * accepted has seen the stored text, and means that. 0, -errno. */
int draft_reach(const struct tree *t, struct draft *d, uint64_t off);
void draft_truncate(struct tree *t, struct draft *d);
/*
 * Accept what was written. 1: it is to be written to disk; 0: nothing is; -errno. again: also what
 * was accepted before, if edits were given up since (an error, a signal).
 */
int draft_settle(struct tree *t, struct draft *d, bool again);
/* At the end: what was truncated and closed, but the kernel did not tell the release any more. */
void draft_finish(struct tree *t);
/* A file gives its draft away (NULL: it has none), to be given to a file: what that had changes
 * nothing any more. */
struct draft *draft_take(struct kfile *f);
void draft_give(struct draft *d, struct kfile *f);
/* The file is removed or replaced: its draft changes nothing any more. */
void draft_drop(struct kfile *f);

/* In memory only. */
bool kfile_is_helper(const struct kfile *f);

/* 0 if names in this folder may be changed: it is metadata/ of a writable tree. -EROFS, -EACCES. */
int metadata_folder(const struct tree *t, uint64_t folder);
/* What a file name in metadata/ is. */
enum name_class tree_classify(struct tree *t, const char *name);
/* A file that is no key and no known helper was written: tell that it is not saved. */
void tree_stray(const struct tree *t, const struct kfile *f);

/*
 * Whether the text of a draft, or a continuation of it, can be the value of its key, as far as that
 * is cheap to tell. at_once: all of the text was written by one write, so that it is parsed if it
 * looks whole; who writes by echo learns of a failure only here, for shells do not look at what
 * close(2) gives. 0, or -errno with a line.
 */
int draft_judge(const struct tree *t, const struct kfile *f, bool at_once, struct err *e);

/* ---- edits: all under the tree's lock ---- */

/* The key's value in the newest generation; false if it is in none. */
bool edits_value(const struct tree *t, const struct kfile *f, struct gguf_value *ret);
/* The type of the value that is to come, as far as it is known before there is a text. */
bool edits_known_type(const struct tree *t, const struct kfile *f, uint32_t *type, uint32_t *elem);
/* The type that this text is to have. */
void edits_type(const struct tree *t, const struct kfile *f, const struct buf *text, uint32_t *type,
                uint32_t *elem);

/* The bytes that a kfile shows until they are accepted or refused, or as a helper; NULL: those of
 * its key. */
struct buf *kfile_bytes(struct kfile *f);

/*
 * Take a text as the value of a key. 1: it is part of the newest generation now; 0: it is what the
 * file shows already; -errno with a line in *e.
 */
int edits_accept(struct tree *t, struct kfile *f, const struct buf *text, struct err *e);
/* Rename a key to another that is in no generation, or change a type. As edits_accept(). */
int edits_rename(struct tree *t, struct kfile *from, struct kfile *to, struct err *e);
int edits_retype(struct tree *t, struct kfile *f, uint32_t type, uint32_t elem, struct err *e);
/* Make the removals that are due part of the newest generation. 0, or why the keys are back. */
int edits_remove_due(struct tree *t);
/* What is pending now; and back to what it was before the edit that was accepted last. */
struct mark edits_mark(const struct tree *t);
void edits_take_back(struct tree *t);
/* Drop what is pending. */
void edits_drop(struct tree *t);
/* Back to what is on disk, plus what was accepted since. */
void edits_rebase(struct tree *t);
/* Remember type and place of a key of the newest generation. */
int edits_remember(struct tree *t, struct kfile *f);
/* A value was refused: for the log and for user.gguf.error. Returns e->code. */
int edits_refused(struct tree *t, struct kfile *f, const struct err *e);

int writer_start(struct tree *t, struct err *e);
/* Write what is pending, end the thread. 0, or why something was not written. */
int writer_stop(struct tree *t);
/* Whether the model could be edited at this moment; told before there is an edit, since shells do
 * not look at what close(2) gives. While a write goes on, which finds out by itself: 0. */
int writer_ready(const struct tree *t, struct err *e);
/* Something was accepted: wait for it, or have it written later, by the commit mode. */
int writer_accepted(struct tree *t, struct tree_wait *w, struct err *e);
/*
 * Wait until all that was accepted is durable. own: the edit accepted last is by who waits.
 * 0: it is already; -errno: an earlier failure.
 */
int writer_sync(struct tree *t, struct tree_wait *w, bool own);
/* Seconds after which a removal or a mere truncation is written: most often a value follows. */
#define WRITER_SOON 1
/* Have it written in `seconds`, if nobody asks for it before. */
void writer_later(struct tree *t, unsigned seconds);

#endif
