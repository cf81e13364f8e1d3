/* SPDX-License-Identifier: MIT */
/*
 * The file system, without libfuse: a model as a tree of folders and files.
 *
 * Calling sequence: tree_open() -> any number of the other calls, from any threads -> tree_close().
 * Files are named by node numbers (ino.h); the root is INO_ROOT. Functions return 0 or -errno with
 * the meaning that the system call of the same name has, and leave outputs untouched on failure.
 */
#ifndef TREE_TREE_H
#define TREE_TREE_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "base/logger.h"
#include "live/live.h"
#include "tree/files.h"
#include "tree/ino.h"
#include "text/name.h"

struct tree;

struct tree_options {
    bool read_only;       /* do not edit, whatever the file allows */
    const char *why;      /* why read_only; NULL: by -o ro. Not owned */
    const char *base;     /* the real folder that others may search; NULL: the model's. Not owned */
    bool edit_hash_names; /* edit also a file whose name is a hash of its content */
    enum live_commit commit;
    enum edit_strategy strategy;
    uint64_t reserve; /* as in struct edit_options */
    bool break_hardlinks;
    const char *backup;            /* as in struct edit_options */
    bool tensors;                  /* edit tensors too */
    const struct imatrix *imatrix; /* as in struct live_options */
    bool late; /* the writer's lock is taken, and a journal applied, with the first edit only */
    /*
     * Called before the model, `name` in the folder `dir`, is opened, and again when its lock was
     * refused (busy): wait for a process that is about to give the lock up. True: open it, or try
     * again; false: it keeps the lock, and *why names it. May be NULL.
     */
    bool (*wait)(void *arg, int dir, const char *name, bool busy, struct err *why);
    void *wait_arg;
    /*
     * Called when a first edit was refused the lock of this file: have another tree of this process,
     * which holds it, closed. True: try again; false: that did not help, and *why may say why. May be
     * NULL.
     */
    bool (*refused)(void *arg, dev_t dev, ino_t ino, struct err *why);
    void *refused_arg;
    const struct tree_left *before; /* of a tree that had the same files open, or NULL; not owned */
    struct logger log;              /* called by any thread */
    bool partial;                   /* show an incomplete download */
    enum files_views views;         /* which files folders list */
    unsigned history;               /* states of the keys that are kept; 0: none */
    bool set_uid, set_gid, set_umask; /* override what derives from the model file */
    uid_t uid;
    gid_t gid;
    mode_t umask;
};

struct tree_entry {
    uint64_t node;
    uint64_t generation; /* differs each time that a node number is used again */
    struct stat attr;
    bool fixed;   /* what the name means will never change in this mount, but by requests of the
                   kernel ... */
    bool lasting; /* ... nor will the attributes of the node */
    bool steady;  /* they may be shown a second late ... */
    bool slow;    /* ... and so may what the name means */
};

/* Open the model at `path` (symbolic links are followed). The thread that writes is started with the
 * first edit (of all trees that share one): a process may fork before that. */
int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e);
/* Begin to write what is pending; for tree_finish() of many trees. No edit comes after that. */
void tree_hurry(struct tree *t);
/* Write what is pending. 0, or why an edit was lost (it was logged). */
int tree_finish(struct tree *t);
/*
 * Before the handles of a tree are released that programs may still have open (a signal, an unmount
 * by force): what no flush, fsync or release has judged is dropped, the old values stay.
 */
void tree_abandon(struct tree *t);
/* After tree_finish(): a line for each edit that is not in the file and for each file that is dropped
 * because it is not a key. */
void tree_unsaved(struct tree *t, struct buf *out);
/* Append a line for each backup that was made, after tree_finish(). */
void tree_backups(const struct tree *t, struct buf *out);
void tree_close(struct tree *t);

/*
 * For a mount of many models, which closes a tree that is not used and opens it again when it is
 * asked for. tree_idle(): nothing is open, and to close it would lose nothing but, if they may be lost,
 * helpers in metadata/ and beside views. tree_identity(): a number that is another one when a file of the
 * model is. tree_leave(): what the next tree of the same files needs so that no number of a node
 * changes its meaning.
 */
bool tree_idle(struct tree *t, bool helpers);
struct tree_left {
    uint64_t identity; /* of the files as this tree left them */
    uint32_t wholes,
        keys;        /* the first numbers of the next one, for views of the whole and for keys */
    struct ids *ids; /* a reference: the tensors of what it left */
    uint32_t n, tensors; /* how many these are; the next number that a tensor gets */
};
void tree_leave(struct tree *t, struct tree_left *ret);
/* True if so many numbers were given that the next tree may not have enough. */
static inline bool tree_is_full(const struct tree_left *l)
{
    const uint32_t most = UINT32_MAX / 2;
    return l->wholes > most || l->keys > most || l->tensors > most;
}
/* Notes (live/unsaved.h) of what is not in the file: to be handed over, too. */
void tree_notes(struct tree *t, struct buf *notes);
/* Before anything else is done with a tree: those that another one has left, which it takes. */
void tree_recall(struct tree *t, struct buf *notes);
/* True if this is the file that is edited, so that it has the writer's lock. */
bool tree_edits(struct tree *t, dev_t dev, ino_t ino);
/* True if another program changed the model's file. The disk is asked. */
bool tree_changed(struct tree *t);
uint64_t tree_identity(const struct tree *t);
/* How it comes about: from 0, with each file of the model that is open, in order. */
uint64_t tree_identity_with(uint64_t identity, const struct stat *st);
/* True if editing has begun: then another program may have changed the file, or this tree. */
bool tree_edited(const struct tree *t);

/* True if metadata can be edited; if not, why. */
bool tree_writable(const struct tree *t);
const char *tree_why_not(const struct tree *t);

/* The model's real path; good until tree_close(). */
const char *tree_path(const struct tree *t);
/* Lines for the log about what is unusual in the model: call until NULL, from i = 0. */
const char *tree_warning(const struct tree *t, unsigned i);

/*
 * Before a call that looks at a node, or opens one: at most once a second the rights of the model's file
 * are looked at. Returns a hash of what nodes show of them: where it is another one than before, the kernel has
 * to drop the attributes of each node that it may know: tree_nodes().
 */
uint64_t tree_look(struct tree *t);
void tree_nodes(struct tree *t, void (*call)(void *arg, uint64_t node), void *arg);

int tree_statfs(struct tree *t, struct statvfs *ret);

/* The program that waits with `request` is to stop: -EINTR. What was accepted is written nevertheless. */
void tree_interrupt(struct tree *t, const void *request);

/* Before the end: reads that wait are answered with -EINTR, and nothing is computed any more. */
void tree_stop(struct tree *t);

#endif
