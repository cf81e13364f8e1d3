/* SPDX-License-Identifier: MIT */
/*
 * Stands in for the kernel between programs and the tree: sends requests in the kernel's order and
 * with its locks, counts references to nodes as the kernel does, and releases and forgets late.
 * Each call reports to the oracle what its result implies.
 *
 * Each program has its own thread; another thread performs the late releases and forgets.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include "base/lock.h"
#include "run.h"

struct object; /* a file: a node that the tree has returned */

struct handle {
    struct tree_file *f;
    struct object *o;
    unsigned owners; /* number of duplicates and forks; 0: closed */
    bool writes, wrote, truncated, floats;
};

struct request {
    struct live_wait wait; /* must come first */
    struct kernel *k;
    bool busy, answered, stop;
    int result;
};

struct program {
    struct kernel *k;
    unsigned number;
    struct handle *slot[SLOTS];
    struct request request;
    bool signalled; /* a signal was sent; it may arrive during a later call */
    /* For a step that edits a tensor through the inode number of its directory: */
    uint32_t names_of;             /* mask of the tensor's possible names by now; 0: no such step */
    uint64_t content, type, shape; /* masks of the values that the step may write */
    int judges; /* 1 + the assignment that covers all values of its drafts during the step; or 0 */
    int numpy
        [2];     /* for a step that writes a NumPy view: 1 + the assignments of content and shape */
    bool shares; /* another program may have written the view at the same time */
    /* Mask of the names whose views the call truncates, perhaps through another node of the same
     * draft. */
    uint32_t cuts;
};

enum { OBJECTS = 1024, LATE = 512 };

struct object {
    uint64_t node, generation, lookups;
    int name, old_name; /* indices into names[]; -1: none */
    int origin;         /* 1 + the name before old_name; 0: none, or a tensor (see `came`) */
    int next_name;      /* index of the target while it is being renamed, else -1 */
    unsigned handles, writers, moving;
    unsigned opening;        /* number of opens in progress that truncate it */
    unsigned changes;        /* number of changes to its content or name */
    uint64_t content;        /* mask of the values that its draft may have */
    const struct handle *by; /* the handle that wrote last */
    uint64_t seen;           /* mask of its possible values since it last had no writer */
    uint64_t ever;           /* mask of the values that it may ever have had */
    bool dirty;              /* part of its content has not been accepted yet */
    bool writing;
    bool emptied;          /* it was truncated and has not been written since */
    uint64_t gone_at;      /* when its tensor was renamed or removed */
    bool leaves;           /* its tensor is being renamed or removed */
    bool moved;            /* it was renamed */
    bool doubt;            /* it may have been judged since it was written */
    uint8_t pages;         /* mask of the pages of its mapping that are not yet written */
    unsigned stored, at;   /* the token in those pages; `changes` when it was stored */
    struct handle *mapped; /* the handle that mapped it */
    unsigned judged;       /* number of flushes and syncs that have begun or ended */
    bool unsure;           /* it may have been renamed */
    bool spoilt;           /* a text that no key accepts was written to it */
    int last;              /* the last accepted assignment, or -1 */
    int going[8];          /* 1 + the assignments of its content by calls in progress; or 0 */
    struct lock lock;      /* the kernel's inode lock */
};

struct kernel {
    struct world *w;
    struct tree *t;
    struct lock lock; /* protects the members below */
    struct cond more;
    bool stop;
    bool rough; /* another program has changed the model: any error is allowed */
    bool gone;  /* the mount is ending: programs make no more calls */
    struct lock dir;
    struct object object[OBJECTS];
    unsigned objects;
    uint64_t created[NAMES];  /* time at which a create last began */
    unsigned creating[NAMES]; /* number of creates in progress */
    bool back[NAMES];    /* a removed name may have come back, because its next value was refused */
    bool removed[NAMES]; /* it was unlinked, and has not been created since */
    int came[NAMES];     /* 1 + the name from which a tensor was renamed to this one; or 0 */
    /* The value of a key that was renamed to a backup. The key reverts to this value if no other
     * value follows. */
    uint64_t before[NAMES];
    struct {
        struct tree_file *f; /* the file to release; NULL: a node is only forgotten */
        struct handle *h;
        uint64_t node, n;
        int name; /* name of the incomplete new tensor that the file belongs to, or -1 */
    } late[LATE];
    unsigned first_late, n_late;
    struct program program[ACTORS];
    unsigned busy; /* number of calls in progress */
    struct made_tensor {
        bool may;   /* there may be a new tensor that is not in the model yet */
        bool whole; /* it was complete when its k->changes equalled `changes` */
        unsigned changes;
        int of[3];     /* its assignments in progress */
        unsigned open; /* number of handles not yet released */
    } made[REGS];
    uint64_t begun[REGS];   /* until then, a tensor may have a NumPy header without values */
    unsigned changes[REGS]; /* number of changes to a tensor's name, type, shape or completeness */
    struct {
        int of; /* 1 + the last accepted assignment of the tensor's values; or 0 */
        unsigned changes;
    } accepted[REGS];
};

void kernel_init(struct kernel *k, struct world *w, struct tree *t);
/* Runs in a thread of its own: makes the late releases and forgets, until k->stop is set and none
 * is left. */
void *kernel_late(void *k);

/* Releases, without a close, the files that programs have open when the mount has ended. */
void kernel_drop(struct kernel *k);

/* An edited tensor has this many floats, all with the value of one token. */
enum { FLOATS = 3008, PAGE = 4096, PAGES = 3 };

/* For tensors.c: */
struct live_wait *kernel_begin(struct program *p);
int kernel_end(struct program *p, int r);
void kernel_expect(const struct program *p, const char *what, int r, bool good);
/*
 * Releases a file late, then forgets a node. f may be NULL, or node 0, to skip that part. name: the
 * name of the incomplete new tensor to which the file belongs, or -1.
 */
void kernel_later(struct kernel *k, struct tree_file *f, uint64_t node, int name);
/* Returns whether success means that the edit is durable. */
bool kernel_durable_close(const struct kernel *k);
/* Returns what an error says about an edit. */
enum outcome kernel_failed(const struct kernel *k, int r);
/* Records that a tensor's drafts may have these values, and may be judged. moving: 1 if a move of
 * the drafts begins now, -1 if it ends now, otherwise 0. */
void kernel_disturb(struct kernel *k, int name, uint64_t mask, int moving);
/* Returns whether any program is truncating a view of the tensor. */
bool kernel_cuts(const struct kernel *k, int name);
bool is_key(int name);
bool is_tensor(int name);
/* Removes or renames a tensor. */
void kernel_step_tensor(struct program *p, const struct step *s);

/* Performs a step of a program. A meaningless step (its slot is not open) has no effect. */
void kernel_step(struct program *p, const struct step *s);
/* Closes all handles of the program, as exit(2) does. */
void kernel_exit(struct program *p);
/* Sends the program a signal that stops it and interrupts the call in which it waits. With
 * `notify`, the tree is notified at once; otherwise it must discover the signal itself. */
void kernel_signal(struct kernel *k, unsigned program, bool notify);
/* Checks the file against what the oracle allows. */
void kernel_look_disk(struct kernel *k, const char *when);
void model_keys(const uint8_t *bytes, size_t n, unsigned token[KEYS]);
void check_model(struct world *w, const uint8_t *bytes, size_t n, uint64_t from, bool disk,
                 const char *when);
/* Checks metadata.json against what the oracle allows. */
void check_json(struct world *w, const char *text, uint64_t from);

#endif
