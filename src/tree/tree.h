/* SPDX-License-Identifier: MIT */
/*
 * The file system, without libfuse: a model as a tree of directories and files.
 *
 * Calling sequence: tree_open() -> any number of the other calls, from any thread -> tree_close().
 * Files are named by node numbers (files.h); the root is INO_ROOT. Functions return 0, or -errno
 * with the meaning it has for the system call of the same name; on failure they leave their outputs
 * untouched.
 */
#ifndef TREE_TREE_H
#define TREE_TREE_H

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/err.h"
#include "live/live.h"
#include "tree/files.h"
#include "text/name.h"

struct model_file;
struct tree;

struct tree_options {
    bool read_only;       /* never edit, even if the file is writable */
    const char *why;      /* reason for read_only; NULL: -o ro was given. Not owned */
    bool edit_hash_names; /* also edit a file whose name is a hash of its content */
    enum live_commit commit;
    enum edit_strategy strategy;
    uint64_t reserve;              /* as in struct edit_options */
    const char *backup;            /* as in struct edit_options */
    bool tensors;                  /* also edit tensors */
    const struct imatrix *imatrix; /* as in struct live_options */
    bool late; /* take the writer's lock and apply a journal only at the first edit */
    /* Called if another process has locked the model, `name` in the directory `dir`. Returns true to
     * try again, perhaps after waiting; otherwise *why names the process. May be NULL. */
    bool (*wait)(void *arg, int dir, const char *name, struct err *why);
    void *wait_arg;
    /* Finds a file of the model by its path, in place of model_find() (edit/open.h). May be NULL. */
    int (*find)(void *arg, const char *path, struct model_file *m, struct err *e);
    void *find_arg;
    struct logger log;                /* may be called from any thread */
    bool partial;                     /* show an incomplete download */
    uint32_t slot;                    /* in the numbers of the nodes (files.h) */
    enum files_views views;           /* determines which files directories list */
    unsigned history;                 /* number of states of the keys to keep; 0: none */
    bool set_uid, set_gid, set_umask; /* override the attributes of the model's file */
    uid_t uid;
    gid_t gid;
    mode_t umask;
};

/* Longer than any mount exists, in seconds. */
#define TREE_FOREVER 1e9

struct tree_entry {
    uint64_t node;
    uint64_t generation; /* changes each time a node number is reused */
    struct stat attr;
    /* The seconds for which the kernel may keep the meaning of the name and the attributes of the
     * node: 0, 1 or TREE_FOREVER. Changes that it has requested itself it knows. */
    double name_for, attr_for;
};

/* Open the model at `path` (symbolic links are followed). The process can fork until the first
 * edit, which starts threads. */
int tree_open(const char *path, const struct tree_options *o, struct tree **ret, struct err *e);
/* Write pending edits. Returns 0, or -errno if an edit was lost (the reason is logged). */
int tree_finish(struct tree *t);
/* Append what backup there is of the model as it was before the first edit, if any. */
void tree_backup(const struct tree *t, struct buf *out);
void tree_close(struct tree *t);

/* Return true if nothing is open and closing the tree would lose nothing but helpers. */
bool tree_idle(struct tree *t);
/* Return what edits the model, for calls that need nothing else of the tree. */
struct live *tree_live(const struct tree *t);
/* Return true if another program changed a file of the model. Accesses the disk. */
bool tree_changed(struct tree *t);
/* Return true if this is the directory of the model's file, or of the first of its files. */
bool tree_lies_in(const struct tree *t, int dir);
/* Return a number that changes when a file of the model does. */
uint64_t tree_identity(const struct tree *t);
/* Add one more open file of the model, in order, to the identity computed so far (initially 0), and
 * return the result. */
uint64_t tree_identity_with(uint64_t identity, const struct stat *st);
/* Return true if editing has begun; from then on, either this tree or another program may have
 * changed the file. */
bool tree_edited(const struct tree *t);

/* Return true if metadata can be edited. */
bool tree_writable(const struct tree *t);
const char *tree_why_not(const struct tree *t);

/* Return the model's real path; it is valid until tree_close(). */
const char *tree_path(const struct tree *t);

/*
 * A call whose answer the calling thread waits for:
 *
 *     struct tree_call c = TREE_CALL;
 *     r = tree_call_end(&c, tree_fsyncdir(t, &c.wait));
 */
struct tree_call {
    struct live_wait wait; /* must come first */
    atomic_bool answered;
    int result;
};
#define TREE_CALL                   \
    {                               \
        .wait.done = tree_call_done \
    }
void tree_call_done(struct live_wait *w, int result);
/* Return the final result of a call that returned r. */
int tree_call_end(struct tree_call *c, int r);

int tree_statfs(struct tree *t, struct statvfs *ret);

/* Answer the waiting `request` with -EINTR. Accepted edits are written nevertheless. */
void tree_interrupt(struct tree *t, const void *request);

/* Answer waiting reads with -EINTR and stop computing. Call this before the mount ends. */
void tree_stop(struct tree *t);

/* ---- private to this layer ---- */

/* Begin editing if it has not begun. Call before each edit to t->meta. Returns 0, -EROFS, -EBUSY
 * (another process has the lock) or another -errno. */
int begin_editing(struct tree *t);

#endif
