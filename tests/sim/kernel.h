/* SPDX-License-Identifier: MIT */
/*
 * Stands in for the kernel between programs and the tree: sends requests in the kernel's order and
 * with its locks, counts references to nodes as the kernel does, and releases and forgets late.
 * The oracle hears of each call and of its answer.
 *
 * Each program has its own thread; another thread performs the late releases and forgets.
 */
#ifndef TESTS_SIM_KERNEL_H
#define TESTS_SIM_KERNEL_H

#include "base/lock.h"
#include "run.h"

/* A node that the tree has returned. */
struct object {
    uint64_t node, lookups;
    unsigned handles;
    bool written;     /* a handle may have written it, or it was truncated */
    struct lock lock; /* the kernel's inode lock */
};

struct handle {
    struct tree_file *f;
    struct object *o;
    unsigned owners; /* number of duplicates and forks; 0: closed */
    bool writes;
    unsigned number; /* the oracle's */
    /* Of a tensor's view: */
    int8_t tensor; /* NOT_OF_TENSOR: of a key */
    uint8_t kind, form;
    bool is_short; /* truncated, and not written since */
    bool half;     /* opened while the view showed half a tensor, which had not been judged */
    bool ended;    /* a signal ended the judgement of its line */
    bool failed;   /* a write or flush was refused */
    int repeats;   /* the error of a write that its flushes repeat, or 0 */
    uint32_t opened;
};
enum { NOT_OF_TENSOR = -1 };
enum { RAW, VALUES, LINE };

struct program {
    struct live_wait wait; /* of its call; must come first */
    struct kernel *k;
    unsigned number;
    bool busy, answered, stop;
    bool alone;       /* its call lets no other run beside it */
    bool keys;        /* the oracle for keys knows its call */
    bool signalled;   /* a signal was sent; it may arrive during a later call */
    unsigned signals; /* ... those that are on the way */
    int result;
    struct handle *slot[SLOTS];
};

enum { OBJECTS = 1024, LATE = 512 };

struct kernel {
    struct world *w;
    struct tree *t;
    struct lock lock; /* protects the members below */
    struct cond more;
    bool stop;
    bool rough;               /* another program has changed the model: any error is allowed */
    bool gone;                /* the mount is ending: programs make no more calls */
    bool alone;               /* so no other call begins */
    unsigned busy;            /* number of calls in progress */
    struct lock dir, tensors; /* of metadata/, and of tensors/ and what is in it */
    struct object object[OBJECTS];
    unsigned objects;
    bool used[HANDLES];
    struct {
        struct handle *h; /* to be released; NULL: a node is only forgotten */
        uint64_t node, n;
    } late[LATE];
    unsigned first_late, n_late;
    struct program program[CALLERS]; /* the last one releases and forgets */
};

void kernel_init(struct kernel *k, struct world *w, struct tree *t);
/* Runs in a thread of its own: makes the late releases and forgets, until k->stop is set and none
 * is left. */
void *kernel_late(void *k);
/* Releases, without a close, the files that programs have open when the mount has ended. */
void kernel_drop(struct kernel *k);

/* Performs a step of a program. A meaningless step (its slot is not open) has no effect. */
void kernel_step(struct program *p, const struct step *s);
/* Closes all handles of the program, as exit(2) does. */
void kernel_exit(struct program *p);
/* Sends the program a signal that stops it and interrupts the call in which it waits. With
 * `notify`, the tree is notified at once; otherwise it must discover the signal itself. */
void kernel_signal(struct kernel *k, unsigned program, bool notify);
/* Checks the file against what the oracles allow. */
void kernel_look_disk(struct kernel *k, const char *when);

/* ---- for tensors.c ---- */

/* Begins a call on a tensor, and ends it; returns its result. The call itself takes p->wait. */
void kernel_begin(struct program *p);
int kernel_end(struct program *p, int r);
#define KERNEL_CALL(p, call) (kernel_begin(p), kernel_end(p, (call)))
struct object *kernel_object(struct kernel *k, uint64_t node);
/* Returns NULL if there are too many. The second function drops one that could not be opened. */
struct handle *kernel_handle(struct kernel *k, bool writes);
void kernel_unopened(struct kernel *k, struct handle *h);
/* Queues a release or a forget for the thread that performs them late. */
void kernel_later(struct kernel *k, struct handle *h, uint64_t node, uint64_t n);
/* Lists a directory. times[i]: how often it has names[i]. */
int kernel_list(struct kernel *k, uint64_t folder, unsigned times[NAMES]);
/* Reads a file from its beginning. */
ssize_t kernel_read(struct tree_file *f, size_t room, void *dst);

#endif
