/* SPDX-License-Identifier: MIT */
/*
 * The file system, without libfuse: a model as a tree of directories and files.
 *
 * Calling sequence: tree_open() -> any number of the other calls, from any threads -> tree_close(). Files are named
 * by node numbers (ino.h); the root is INO_ROOT. Functions return 0 or -errno with the meaning it has for the system
 * call of the same name, and leave outputs untouched on failure.
 */
#ifndef TREE_TREE_H
#define TREE_TREE_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "live/live.h"
#include "tree/files.h"
#include "tree/ino.h"
#include "text/name.h"

struct tree;

struct tree_options {
    bool read_only;  /* do not edit, whatever the file allows */
    const char *why; /* why read_only; NULL: -o ro was given. Not owned */
    /* the real path of the directory that others may search; NULL: the model's. Not owned */
    const char *base;
    bool edit_hash_names; /* also edit a file whose name is a hash of its content */
    enum live_commit commit;
    enum edit_strategy strategy;
    uint64_t reserve; /* as in struct edit_options */
    bool break_hardlinks;
    const char *backup;            /* as in struct edit_options */
    bool tensors;                  /* also edit tensors */
    const struct imatrix *imatrix; /* as in struct live_options */
    bool late; /* take the writer's lock, and apply a journal, only with the first edit */
    /*
     * Called before the model, `name` in the directory `dir`, is opened, and again if its lock was refused (busy):
     * wait for a process that is about to release the lock. True: open it, or try again; false: the process keeps the
     * lock, and *why names it. May be NULL.
     */
    bool (*wait)(void *arg, int dir, const char *name, bool busy, struct err *why);
    void *wait_arg;
    /*
     * Called when a first edit was refused the lock of this file: get another tree of this process, which holds it,
     * closed. True: try again; false: that did not help, and *why may say why. May be NULL.
     */
    bool (*refused)(void *arg, dev_t dev, ino_t ino, struct err *why);
    void *refused_arg;
    /* from a tree that had the same files open, or NULL; not owned */
    const struct tree_left *before;
    struct logger log;                /* called by any thread */
    bool partial;                     /* show an incomplete download */
    enum files_views views;           /* which files directories list */
    unsigned history;                 /* states of the keys to keep; 0: none */
    bool set_uid, set_gid, set_umask; /* override the attributes of the model's file */
    uid_t uid;
    gid_t gid;
    mode_t umask;
};

struct tree_entry {
    uint64_t node;
    uint64_t generation; /* changes each time a node number is reused */
    struct stat attr;
    /* requests of the kernel aside, the name will never change its meaning in this mount ... */
    bool fixed;
    bool lasting; /* ... and nor will the attributes of the node */
    bool steady;  /* they may be shown a second late ... */
    bool slow;    /* ... and so may the name's meaning */
};

/*
 * Open the model at `path` (symbolic links are followed). The thread that writes is started with the first edit (all
 * trees share it): a process may fork before that.
 */
int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e);
/* Start writing pending edits, for tree_finish() of many trees. No edit may follow. */
void tree_hurry(struct tree *t);
/* Write pending edits. Returns 0, or why an edit was lost (logged). */
int tree_finish(struct tree *t);
/*
 * Call before releasing the handles that programs may still have open after a signal or a forced unmount: anything
 * that no flush, fsync or release has judged is dropped, and the old values stay.
 */
void tree_abandon(struct tree *t);
/*
 * After tree_finish(): append a line for each edit that did not reach the file, and for each file
 * dropped because it is not a key.
 */
void tree_unsaved(struct tree *t, struct buf *out);
/* After tree_finish(): append a line for each backup that was made. */
void tree_backups(const struct tree *t, struct buf *out);
void tree_close(struct tree *t);

/*
 * For a mount of many models, which closes an unused tree and opens it again when needed.
 * tree_idle(): true if nothing is open, and closing it would lose nothing except, if `helpers`
 * allows it, helpers in metadata/ and beside views. tree_identity(): returns a number that changes
 * when a file of the model does. tree_leave(): returns the facts that the next tree of the same
 * files needs so that no node number changes its meaning.
 */
bool tree_idle(struct tree *t, bool helpers);
struct tree_left {
    uint64_t identity;     /* of the files as this tree left them */
    uint32_t wholes, keys; /* the next tree's first numbers for whole-model views and for keys */
    struct ids *ids;       /* a reference: the tensors of the state it left */
    uint32_t n, tensors;   /* how many there are; the number of the next new tensor */
};
void tree_leave(struct tree *t, struct tree_left *ret);
/* True if so many numbers were used that the next tree may run out. */
bool tree_is_full(const struct tree_left *l);
/* Notes (live/live.h) of edits that did not reach the file, to be handed over, too. */
void tree_notes(struct tree *t, struct buf *notes);
/* Call before using a tree: takes the notes that another tree has left. */
void tree_recall(struct tree *t, struct buf *notes);
/* True if this file is being edited, so that the tree has the writer's lock. */
bool tree_edits(struct tree *t, dev_t dev, ino_t ino);
/* True if another program changed the model's file. Accesses the disk. */
bool tree_changed(struct tree *t);
uint64_t tree_identity(const struct tree *t);
/* Return the identity computed so far, from 0 on, with one more open file of the model, in
 * order. */
uint64_t tree_identity_with(uint64_t identity, const struct stat *st);
/* True if editing has begun: then another program may have changed the file, or this tree. */
bool tree_edited(const struct tree *t);

/* True if metadata can be edited. */
bool tree_writable(const struct tree *t);
const char *tree_why_not(const struct tree *t);

/* Return the model's real path, which is valid until tree_close(). */
const char *tree_path(const struct tree *t);
/* Return a line for the log about an anomaly of the model: call with i = 0, 1, ... until NULL. */
const char *tree_warning(const struct tree *t, unsigned i);

/*
 * Call before a call that looks at a node or opens one: checks the rights of the model's file at most once a second.
 * Returns a hash of what nodes show of them: if it has changed, the kernel has to drop the attributes of each node
 * that it may know: tree_nodes().
 */
uint64_t tree_look(struct tree *t);
void tree_nodes(struct tree *t, void (*call)(void *arg, uint64_t node), void *arg);

int tree_statfs(struct tree *t, struct statvfs *ret);

/* Stop the program that waits with `request`, which is answered with -EINTR. Accepted edits are
 * written nevertheless. */
void tree_interrupt(struct tree *t, const void *request);

/* Call this before the end: it answers waiting reads with -EINTR, and stops computing. */
void tree_stop(struct tree *t);

#endif
