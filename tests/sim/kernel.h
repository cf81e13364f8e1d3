/* SPDX-License-Identifier: MIT */
/*
 * The kernel between programs and the tree: what it asks in which order, which locks it holds meanwhile,
 * what it knows of nodes, and that it releases and forgets late. Each call notes for the oracle what its
 * answer means.
 *
 * Threads: one for each program, and one for what comes late.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include "base/lock.h"
#include "run.h"

struct object; /* a file: a node that the tree gave */

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
    bool signalled; /* once; the signal may come to a later call */
};

enum { OBJECTS = 1024, LATE = 512 };

struct object {
    uint64_t node, generation, lookups;
    int name, old_name; /* of names[]; -1: none */
    int next_name;      /* of a rename that goes on; -1: none */
    unsigned handles, writers, moving;
    unsigned changes;        /* of its content, or of its name */
    uint64_t content;        /* the draft's: a mask */
    const struct handle *by; /* who wrote it */
    uint64_t seen;           /* all that it was since nobody wrote it */
    uint64_t ever;           /* all that was written to it */
    bool dirty;              /* not accepted */
    bool writing;            /* a write goes on */
    bool emptied;            /* by a truncation, and nothing written */
    uint64_t gone_at;        /* when its tensor was renamed or removed */
    bool leaves;             /* its tensor is being renamed or removed */
    bool moved;              /* it was renamed */
    bool doubt;              /* it may have been judged since it was written */
    bool unsure;             /* it may have been renamed */
    int last;                /* its last assignment */
    int going[8];            /* 1 + assignments of what it has, in calls that go on; or 0 */
    struct lock lock;        /* the kernel's, of the inode */
};

struct kernel {
    struct world *w;
    struct tree *t;
    struct lock lock; /* of what follows */
    struct cond more;
    bool stop;
    bool rough; /* what comes is unusual: any error may be answered */
    bool gone;  /* the mount ends: calls are not made any more */
    struct lock dir;
    struct object object[OBJECTS];
    unsigned objects;
    unsigned creating[NAMES]; /* calls that go on */
    bool back[NAMES]; /* what was removed may have come back: what should follow was refused */
    uint64_t
        before[NAMES]; /* what a key was when it was removed: it comes back if nothing follows */
    struct {
        struct tree_file *f; /* to be released; NULL: forgotten */
        struct handle *h;
        uint64_t node, n;
    } late[LATE];
    unsigned first_late, n_late;
    struct program program[ACTORS];
    unsigned busy; /* calls that go on */
};

void kernel_init(struct kernel *k, struct world *w, struct tree *t);
/* The thread that releases and forgets; it ends when all is done and k->stop. */
void *kernel_late(void *k);

/* After the end of the mount: what programs have open is released, without a close. */
void kernel_drop(struct kernel *k);

/* A tensor that is edited: so many floats, all the value of one token. */
enum { FLOATS = 3000 };
unsigned token_of_floats(const uint8_t *bytes, size_t n);

/* A step of a program. Steps without sense (a slot that is not open) do nothing. */
void kernel_step(struct program *p, const struct step *s);
/* All of its handles are closed: exit(2). */
void kernel_exit(struct program *p);
/* A signal that stops a program: it interrupts the call that it waits in. The tree is told at once, or finds
 * out. */
void kernel_signal(struct kernel *k, unsigned program, bool told);
/* Look at model.gguf, or at the file itself, and compare. */
void kernel_look_disk(struct kernel *k, const char *when);
void check_model(struct world *w, const uint8_t *bytes, size_t n, uint64_t from, bool disk,
                 const char *when);

#endif
