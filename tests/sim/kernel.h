/* SPDX-License-Identifier: MIT */
/*
 * Stands for the kernel between programs and the tree: sends requests in its order and with its locks, knows nodes as
 * it does, and releases and forgets late. Each call reports to the oracle what its answer means.
 *
 * Threads: each program has one, and what happens late has one.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include "base/lock.h"
#include "run.h"

struct object; /* a file: a node that the tree has returned */

struct handle {
    struct tree_file *f;
    struct object *o;
    unsigned owners; /* duplicates and forks; 0: closed */
    bool writes, wrote, truncated, floats;
};

struct request {
    struct live_wait wait; /* first */
    struct kernel *k;
    bool busy, answered, stop;
    int result;
};

struct program {
    struct kernel *k;
    unsigned number;
    struct handle *slot[SLOTS];
    struct request request;
    bool signalled; /* at some time: the signal may arrive during a later call */
    /* For a step that edits a tensor by the number of its directory: the names that the tensor may have by now, ... */
    uint32_t names_of; /* a mask; 0: no such step */
    /* ... and what the step may write. */
    uint64_t content, type, shape;
    int judges; /* 1 + the assignment of all that drafts of it have meanwhile; or 0 */
    uint32_t
        cuts; /* a mask of names: the call truncates a view, perhaps through another node of one draft */
};

enum { OBJECTS = 1024, LATE = 512 };

struct object {
    uint64_t node, generation, lookups;
    int name, old_name; /* of names[]; -1: none */
    int next_name;      /* while it is being renamed; -1: it is not */
    unsigned handles, writers, moving;
    unsigned changes;        /* how often its content or its name has changed */
    uint64_t content;        /* what its draft may have: a mask */
    const struct handle *by; /* the last writer */
    uint64_t seen;           /* what it may have had since it was last without a writer */
    uint64_t ever;           /* what it may ever have had */
    bool dirty;              /* part of it is not accepted */
    bool writing;            /* a write is in progress */
    bool emptied;            /* it was truncated, and not written since */
    uint64_t gone_at;        /* when its tensor was renamed or removed */
    bool leaves;             /* its tensor is being renamed or removed */
    bool moved;              /* it was renamed */
    bool doubt;              /* it may have been judged since it was written */
    uint8_t pages;           /* of a mapping, not yet written: a mask */
    unsigned stored, at;     /* their token; `changes` when they were stored */
    struct handle *mapped;   /* by this handle */
    unsigned judged;         /* flushes and syncs that have begun or ended */
    bool unsure;             /* it may have been renamed */
    int last;                /* the last assignment that was accepted; -1 */
    int going
        [8]; /* the assignments of its content, plus 1, by calls in progress; 0: no such call */
    struct lock lock; /* the kernel's inode lock */
};

struct kernel {
    struct world *w;
    struct tree *t;
    struct lock lock; /* of what follows */
    struct cond more;
    bool stop;
    bool rough; /* another program has changed the model: any error is allowed */
    bool gone;  /* the mount ends: programs make no more calls */
    struct lock dir;
    struct object object[OBJECTS];
    unsigned objects;
    uint64_t created[NAMES];  /* when a create was last called */
    unsigned creating[NAMES]; /* creates in progress */
    bool back[NAMES];    /* a removed name may have come back, because its next value was refused */
    bool removed[NAMES]; /* unlinked, and not created since */
    int came[NAMES];     /* 1 + the tensor's name before it was renamed to this; or 0 */
    uint64_t before
        [NAMES]; /* the value of a key that is out of the way: it comes back if no other follows */
    struct {
        struct tree_file *f; /* to be released; NULL: only forgotten */
        struct handle *h;
        uint64_t node, n;
        int name; /* of a new tensor that is not complete; -1 */
    } late[LATE];
    unsigned first_late, n_late;
    struct program program[ACTORS];
    unsigned busy; /* calls in progress */
    struct made_tensor {
        bool may;         /* there may be a new tensor that is not in the model yet */
        bool whole;       /* it is complete, unless `changes` differs */
        unsigned changes; /* of k->changes */
        int of[3];        /* assignments in progress */
        unsigned open;    /* handles not yet released */
    } made[REGS];
    unsigned changes[REGS]; /* how often a tensor's name, type, shape or completeness has changed */
    struct {
        int of; /* 1 + the last accepted assignment of its values; or 0 */
        unsigned changes;
    } accepted[REGS];
};

void kernel_init(struct kernel *k, struct world *w, struct tree *t);
/* Releases and forgets, in a thread of its own, until k->stop is set and nothing is left. */
void *kernel_late(void *k);

/* Releases what programs have open when the mount has ended, without a close. */
void kernel_drop(struct kernel *k);

/* A tensor that is edited has this many floats, all with the value of one token. */
enum { FLOATS = 3008, PAGE = 4096, PAGES = 3 };

/* For tensors.c: */
struct live_wait *kernel_begin(struct program *p);
int kernel_end(struct program *p, int r);
void kernel_expect(const struct program *p, const char *what, int r, bool good);
/*
 * Releases a file late, then forgets a node; f NULL, node 0: only the other. name: of the incomplete new tensor to
 * which the file belongs, or -1.
 */
void kernel_later(struct kernel *k, struct tree_file *f, uint64_t node, int name);
/* Returns whether an answer without an error means that the edit is durable. */
bool kernel_durable_close(const struct kernel *k);
/* Returns what an error means for an edit. */
enum outcome kernel_failed(const struct kernel *k, int r);
/* Notes that drafts of a tensor may have these values, and be judged. moving: 1, from now on; -1, until now. */
void kernel_disturb(struct kernel *k, int name, uint64_t mask, int moving);
/* Returns whether some program is truncating a view of the tensor. */
bool kernel_cuts(const struct kernel *k, int name);
bool is_key(int name);
bool is_tensor(int name);
/* Removes or renames a tensor. */
void kernel_step_tensor(struct program *p, const struct step *s);

/* Does a step of a program. A step without a meaning (its slot is not open) does nothing. */
void kernel_step(struct program *p, const struct step *s);
/* Closes all handles of the program, as exit(2) does. */
void kernel_exit(struct program *p);
/*
 * Sends the program a signal that stops it and interrupts the call in which it waits. notify: the tree is notified at
 * once; otherwise it finds out.
 */
void kernel_signal(struct kernel *k, unsigned program, bool notify);
/* Compares the file with what the oracle allows. */
void kernel_look_disk(struct kernel *k, const char *when);
void model_keys(const uint8_t *bytes, size_t n, unsigned token[KEYS]);
void check_model(struct world *w, const uint8_t *bytes, size_t n, uint64_t from, bool disk,
                 const char *when);
/* The same for metadata.json. */
void check_json(struct world *w, const char *text, uint64_t from);

#endif
