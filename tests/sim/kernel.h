/* SPDX-License-Identifier: MIT */
/*
 * The kernel between programs and the tree: the order of its requests, the locks it holds
 * meanwhile, what it knows about nodes, and its late releases and forgets. Each call notes for the
 * oracle what its answer means.
 *
 * Threads: one for each program, and one for what happens late.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include "base/lock.h"
#include "run.h"

struct object; /* a file: a node returned by the tree */

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
    bool signalled; /* once; the signal may come during a later call */
    /*
     * A step that edits a tensor by the number of its directory: the names that it may have by now,
     * and its possible results.
     */
    uint32_t names_of; /* a mask; 0: there is none */
    uint64_t content, type, shape;
    int judges; /* 1 + the assignment of everything in drafts of it meanwhile; or 0 */
    /* of names, in that call: a view is truncated, perhaps through another node of one draft */
    uint32_t cuts;
};

enum { OBJECTS = 1024, LATE = 512 };

struct object {
    uint64_t node, generation, lookups;
    int name, old_name; /* of names[]; -1: none */
    int next_name;      /* of a rename in progress; -1: none */
    unsigned handles, writers, moving;
    unsigned changes;        /* of its content, or of its name */
    uint64_t content;        /* the draft's: a mask */
    const struct handle *by; /* the last writer */
    uint64_t seen;           /* everything it was since it last had no writer */
    uint64_t ever;           /* everything that was written to it */
    bool dirty;              /* not accepted */
    bool writing;            /* a write is in progress */
    bool emptied;            /* by a truncation, and nothing written */
    uint64_t gone_at;        /* when its tensor was renamed or removed */
    bool leaves;             /* its tensor is being renamed or removed */
    bool moved;              /* it was renamed */
    bool doubt;              /* it may have been judged since it was written */
    uint8_t pages;           /* of mappings, to be written: a mask */
    unsigned stored, at;     /* their token; `changes` when they were stored */
    struct handle *mapped;   /* by this handle */
    unsigned judged;         /* flushes and syncs that have begun or ended */
    bool unsure;             /* it may have been renamed */
    int last;                /* its last assignment */
    int going[8];            /* 1 + assignments of its content, in calls in progress; or 0 */
    struct lock lock;        /* the kernel's inode lock */
};

struct kernel {
    struct world *w;
    struct tree *t;
    struct lock lock; /* of what follows */
    struct cond more;
    bool stop;
    bool rough; /* circumstances are unusual: any error is allowed */
    bool gone;  /* the mount ends: no more calls are made */
    struct lock dir;
    struct object object[OBJECTS];
    unsigned objects;
    uint64_t created[NAMES];  /* when that was called last */
    unsigned creating[NAMES]; /* calls in progress */
    bool back[NAMES];       /* a removed name may have come back: what should follow was refused */
    bool removed[NAMES];    /* by unlink(2), and not created again */
    int came[NAMES];        /* 1 + the tensor's name before it was renamed to this; or 0 */
    uint64_t before[NAMES]; /* a removed key's value: it comes back if nothing follows */
    struct {
        struct tree_file *f; /* to be released; NULL: only forgotten */
        struct handle *h;
        uint64_t node, n;
        int name; /* of a new tensor that is not complete; -1 */
    } late[LATE];
    unsigned first_late, n_late;
    struct program program[ACTORS];
    unsigned busy; /* calls in progress */
    /* For tensors: */
    struct made_tensor {
        bool may;         /* an incomplete one exists, or existed and may be gone */
        bool whole;       /* it is complete, unless `changes` differs */
        unsigned changes; /* of k->changes */
        int of[3];        /* assignments in progress */
        unsigned open;    /* handles not yet released */
    } made[REGS];
    unsigned changes[REGS]; /* of a tensor's name, type, shape or completeness */
    struct {
        int of; /* 1 + the last accepted assignment of its values; or 0 */
        unsigned changes;
    } accepted[REGS];
};

void kernel_init(struct kernel *k, struct world *w, struct tree *t);
/* The thread that releases and forgets; it ends when everything is done and k->stop is set. */
void *kernel_late(void *k);

/* After the end of the mount: what programs have open is released, without a close. */
void kernel_drop(struct kernel *k);

/* A tensor that is edited: that many floats, all the value of one token. */
enum { FLOATS = 3008, PAGE = 4096, PAGES = 3 };

/* For tensors.c: */
struct live_wait *kernel_begin(struct program *p);
int kernel_end(struct program *p, int r);
void kernel_expect(const struct program *p, const char *what, int r, bool good);
/*
 * A file to be released late, and a node to be forgotten then; either may be missing. name: of an
 * incomplete new tensor, or -1.
 */
void kernel_later(struct kernel *k, struct tree_file *f, uint64_t node, int name);
/* An answer means that an edit is durable. */
bool kernel_durable_close(const struct kernel *k);
/* The meaning of an error. */
enum outcome kernel_failed(const struct kernel *k, int r);
/* Drafts of a tensor may have this value, and be judged. moving: 1, from now on; -1, until now. */
void kernel_disturb(struct kernel *k, int name, uint64_t mask, int moving);
/* Some program truncates a view of this tensor. */
bool kernel_cuts(const struct kernel *k, int name);
bool is_key(int name);
bool is_tensor(int name);
/* rm, mv of a tensor. */
void kernel_step_tensor(struct program *p, const struct step *s);

/* A step of a program. Meaningless steps (a slot that is not open) do nothing. */
void kernel_step(struct program *p, const struct step *s);
/* All its handles are closed, as by exit(2). */
void kernel_exit(struct program *p);
/*
 * A signal that stops a program: it interrupts the call in which it waits. The tree is notified
 * immediately, or finds out.
 */
void kernel_signal(struct kernel *k, unsigned program, bool told);
/* Read model.gguf, or the file itself, and compare. */
void kernel_look_disk(struct kernel *k, const char *when);
void model_keys(const uint8_t *bytes, size_t n, unsigned token[KEYS]);
void check_model(struct world *w, const uint8_t *bytes, size_t n, uint64_t from, bool disk,
                 const char *when);

#endif
