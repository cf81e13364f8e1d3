/* SPDX-License-Identifier: MIT */
/* What the files of the tree layer share; private to it. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "edit/commit.h"
#include "edit/file.h"
#include "tree/held.h"
#include "tree/helper.h"
#include "tree/keys.h"
#include "tree/rights.h"
#include "tree/texts.h"
#include "tree/tree.h"

/* Rows of the root that the tree itself knows. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

/*
 * Edits that are accepted and not yet durable. All protected by the tree's lock.
 *
 * An edit is first asked for: the writer's thread asks the disk whether it can be written. Until
 * then it can be taken back (STAGE_NEW in keys.h).
 */
struct pending {
    struct edit_change change; /* since `flight` if that is set, else since `disk` */
    struct edit_plan plan;     /* of the change, if `planned` is its version */
    uint64_t planned;
    uint64_t batch;       /* differs for each batch */
    struct kfile **fresh; /* owned: pinned, what edits of STAGE_NEW are of */
    size_t n_fresh, cap_fresh;
    struct tree_wait *asking; /* requests that wait for the disk's answer */
    struct tree_wait *waits;  /* requests that wait until it is durable */
    unsigned edits;           /* accepted since nothing was pending */
    struct tree_wait
        *owner;             /* the request that waits, if this batch is its edit alone; else NULL */
    bool asked;             /* the disk was asked, and then */
    enum edit_strategy how; /* what it said */
};

struct writer {
    pthread_t thread;
    bool started;
    pthread_cond_t wake;
    bool stop;
    bool due_set;
    struct timespec first;          /* CLOCK_MONOTONIC: the first edit that waits for due */
    struct timespec due;            /* the same: when to write what no request waits for */
    struct gen *disk;               /* a reference: what the model file holds */
    struct gen *flight;             /* a reference: what is being written, or NULL */
    struct tree_wait *flight_waits; /* requests that wait for that */
    struct tree_wait *flight_owner; /* as pending.owner */
    size_t flight_edits;            /* keys that it changes */
    bool flight_slow;               /* it is a copy of a large model */
    struct tree_wait *asked;        /* requests whose question the thread is asking just now */
    struct pending next;
    int failed;         /* 0, or why a write that no request waited for failed; reported once */
    bool freeing;       /* the file that was replaced last still takes its room */
    unsigned losses;    /* how often accepted edits were given up */
    atomic_bool cancel; /* stops a copy */
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
    bool odd_names;        /* some key has a NUL in it */
    char why[512];         /* why it is not; as long as a line of struct err */
    struct edit_file file; /* the writer's; while nothing is written, protected by lock */
    struct edit_options edit;
    struct texts texts; /* that open files show */
    /*
     * Two locks. now_lock is held for a few reference counts, never while anything is rendered,
     * measured, planned or asked of the disk: all that reads of tensor data need. `lock` protects
     * what is being edited. Order: lock, then now_lock.
     */
    pthread_mutex_t now_lock;
    struct view now; /* the newest generation that was made, and store: written under both locks */
    struct timespec changed; /* the last edit; as `now` */
    /* Protected by now_lock: */
    struct held_table held; /* views of the whole that the kernel knows */
    uint32_t states;        /* numbers given to views of the state of the mount, and the last: */
    uint32_t state, state_gen;
    pthread_mutex_t lock;
    /* Protected by lock: */
    atomic_bool stale;    /* edits were accepted that are not in now.gen; written under lock */
    bool ending;          /* drafts that were not judged yet are dropped */
    uint32_t generations; /* made after the first */
    uint64_t ranks;       /* given to keys */
    struct keys keys;     /* if writable */
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
int tree_gen(struct tree *t, struct gguf *own, uint32_t number, const struct timespec *mtime,
             struct gen **ret, struct err *e);
/* Put it in the place of the newest: a reference, taken on success. Under the lock. 0, -ENOMEM. */
int tree_adopt(struct tree *t, struct gen *gen);
/* Make a generation of what was accepted, if there is none yet. Takes the lock; rarely fails. */
int tree_freshen(struct tree *t);
int tree_freshen_locked(struct tree *t, struct err *e);
/* The store of the edited file as it is now, which `own` tells the layout of. */
int tree_store(struct tree *t, const struct gguf *own, struct store **ret, struct err *e);

/* References to the newest generation and store. Free with view_free(). */
struct view tree_view(struct tree *t);
/* The view that a node shows: an older generation for NODE_WHOLE, and n->state is set. -ESTALE. */
int tree_view_of(struct tree *t, struct node *n, struct view *ret);
/* Number a view that shows the state of the mount: as the one before if the state is the same. */
int node_number_state(struct tree *t, const struct gen *g, struct node *n);
/* The kernel gets a reference to a node that is not a key. 0, -ENOMEM. */
int node_known(struct tree *t, const struct view *v, const struct node *n);

/* The tensor that a node belongs to, NULL if it belongs to none. */
const struct gguf_tensor *node_tensor(const struct gen *g, const struct node *n);
/* The row of a node, NULL if it is none (root, tensor folder, key). */
const struct row *node_row(const struct node *n);
/* -ENOENT if there is no such node. Keys of a writable tree: under its lock. */
int node_check(const struct tree *t, const struct gen *g, const struct node *n);
bool node_is_dir(const struct node *n);

/*
 * A node's entry. Views of the whole are measured: not under the lock. Under the tree's lock if it
 * is writable and the node is a key: such an entry has no size yet.
 */
int node_entry(struct tree *t, const struct view *v, const struct node *n, struct tree_entry *ret);
void entry_size(struct tree_entry *e, uint64_t size);

/* The size of a key's file: found under the lock, measured without it. */
struct key_size {
    uint64_t known;     /* of bytes in memory, or: */
    struct shown shown; /* references: what is to be measured */
};
struct key_size key_size_of(const struct tree *t, uint32_t number);
/* Set the size of its entry; s is freed. */
void key_size_set(struct key_size *s, struct tree_entry *e);

/* The text of a view of the whole that is rendered, and shared: made now if there is none. 0 and a
 * reference, or -errno. */
int render_shared(struct tree *t, const struct view *v, const struct node *n,
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
    struct image *image; /* a reference: the file of gen when it was opened, or NULL */
    struct kfile *kf;    /* of a writable tree's metadata file, if it is one that was touched */
    struct draft *draft; /* shared: what it writes; NULL if it does not */
    bool append;         /* each write goes to the end */
    bool wrote;          /* something of the draft is by this handle */
    bool cut;            /* when it was opened, the model's file was known to have been cut */
    bool piecewise;      /* answered piecewise: see files.h */
    bool decodes;        /* piecewise, from tensor values */
    bool gaps;           /* piecewise, and some of it is missing: of an incomplete model */
};

/*
 * Open and close a metadata file of a writable tree. Under the lock. unready: why the model cannot
 * be edited just now (writer_ready()), code 0 if it can.
 */
int write_open(struct tree *t, struct tree_file *f, int flags, const struct err *unready);
void write_release(struct tree *t, struct tree_file *f);

/* ---- drafts: all under the tree's lock ---- */

/* One more writer of a file; its draft is made if there is none. */
int draft_join(struct tree *t, struct tree_file *file, struct kfile *f, bool truncate,
               const struct err *unready);
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
/* A write was refused: so is the draft, and what of it was accepted before is taken back. */
int draft_refuse(struct tree *t, struct draft *d, const struct err *e);
/* A file got no value: a key that is stored is back, a new one goes. */
void draft_no_value(struct tree *t, struct kfile *f);
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
/* A file that is neither a key nor a known helper was written: log that it is not saved. */
#define TREE_STRAY "it is not a key name (keys have a dot)"
void tree_stray(const struct tree *t, const struct kfile *f);

/*
 * Whether the text of a draft, or a continuation of it, can be the value of its key, as far as that
 * is cheap to tell. at_once: all of the text was written by one write, so that it is parsed if it
 * looks whole; who writes by echo learns of a failure only here, for shells do not look at what
 * close(2) gives. 0, or -errno with a line.
 */
int draft_judge(const struct tree *t, const struct kfile *f, bool at_once, struct err *e);
/* Whether a text that is no value yet may become one if more is written: it ends within a line. */
bool draft_may_go_on(const struct tree *t, const struct kfile *f);

/* ---- edits: all under the tree's lock ---- */

/* True if the model, with all edits accepted, has the key. */
bool edits_stored(const struct tree *t, const struct kfile *f);
/* The value of file number `number` there: references for shown_free(). */
struct shown edits_shown(const struct tree *t, uint32_t number);
/* The type of the value that is to come, as far as it is known before there is a text. */
struct typed edits_known_type(const struct tree *t, const struct kfile *f);
/* The type that this text is to have. */
struct typed edits_type(const struct tree *t, const struct kfile *f, const struct buf *text);

/* The bytes that a kfile shows until they are accepted or refused, or as a helper; NULL: those of
 * its key. */
struct buf *kfile_bytes(struct kfile *f);

/*
 * Take a text as the value of a key. 1: it is accepted; 0: it is what the file shows already;
 * -errno with a line in *e. What was accepted goes to writer_accepted().
 */
int edits_accept(struct tree *t, struct kfile *f, const struct buf *text, struct err *e);
/* Give a key the value that it had once; none: it is removed. As edits_accept(). */
int edits_restore(struct tree *t, struct kfile *f, const struct shown *value, struct err *e);
/* Rename a key to one that is not stored, or change a type. As edits_accept(). */
int edits_rename(struct tree *t, struct kfile *from, struct kfile *to, struct err *e);
int edits_retype(struct tree *t, struct kfile *f, struct typed type, struct err *e);
/* Remove a key. As edits_accept(). */
int edits_remove(struct tree *t, struct kfile *f, struct err *e);
/* Make the removals that are due part of what is accepted. 0, or why keys are back. */
int edits_remove_due(struct tree *t);
/* A value was refused: for the log and for user.gguf.error. Returns e->code. */
int edits_refused(struct tree *t, struct kfile *f, const struct err *e);

/* ---- what is pending: all under the tree's lock ---- */

/* Begin a batch on what is in flight, else on what is on disk. */
void pending_init(struct tree *t);
void pending_free(struct pending *p);
/* An edit of f (pinned from here on) is part of the change now. `other` may be NULL. */
void pending_note(struct tree *t, struct kfile *f, struct kfile *other);
/* Room for pending_note() and moves_add(), before anything is changed. 0, -ENOMEM. */
int pending_room(struct tree *t);
/* The first n edits that were asked for can be written; or all that were asked for cannot. */
void pending_keep(struct tree *t, size_t ops, size_t fresh, size_t moved);
void pending_take_back(struct tree *t, const struct err *e);
/* Drop what is pending. */
void pending_drop(struct tree *t);
/* What was in flight (`failed`) was not written: what was accepted since moves to what is on disk. */
void pending_rebase(struct tree *t, const struct edit_change *failed);

/* Renames that are pending (struct moved in keys.h). */
int moves_room(struct keys *k);
void moves_add(struct keys *k, struct kfile *from, struct kfile *to);
void moves_stage(struct keys *k, enum stage from, enum stage to);
/* The edits of a stage were written, or given up: then what they moved goes back. */
void moves_land(struct tree *t, enum stage stage, bool written);

int writer_start(struct tree *t, struct err *e);
/* Write what is pending, end the thread. 0, or why something was not written. */
int writer_stop(struct tree *t);
/* Whether the model could be edited at this moment; asked before there is an edit, since shells do
 * not look at what close(2) returns. Not under the lock: it asks the disk. */
void writer_ready(struct tree *t, struct err *e);
/* What identifies the model's file, to ask the disk about it without the lock. False while an edit
 * is being written. Under the lock; ret->fd is not set. */
bool writer_file(const struct tree *t, struct edit_file *ret);
/* Something was accepted: wait until it is durable, or until the disk was asked whether it can be
 * written, by the commit mode. w NULL: no request waits. 0, TREE_PARKED. */
int writer_accepted(struct tree *t, struct tree_wait *w);
/*
 * Wait until all that was accepted is durable. own: the edit accepted last is by who waits.
 * 0: it is already; -errno: an earlier failure.
 */
int writer_sync(struct tree *t, struct tree_wait *w, bool own);
/* Seconds after which a removal or a mere truncation is written: most often a value follows. */
#define WRITER_SOON 1
/* Have it written in `seconds`, at the latest WRITER_LATEST after the first edit. */
#define WRITER_LATEST 10
void writer_later(struct tree *t, unsigned seconds);

#endif
