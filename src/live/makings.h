/* SPDX-License-Identifier: MIT */
/*
 * Tensors in the making: folders that were made in tensors/ and are not tensors yet. Their files are
 * drafts without a base (view.h), which stay when they are closed. When no program writes one and
 * MAKING_QUIET seconds have passed, at fsync of a folder and at the end, it is judged as a whole
 * (tensor_judge.h), by the writer's thread; then it is a tensor of the model, with the same number. What a program
 * has opened or changed meanwhile is not judged by that: it is judged again when it is quiet.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_MAKINGS_H
#define LIVE_MAKINGS_H

#include "live/view.h"

#define MAKING_QUIET 2
/* Milliseconds for which a sync of a folder waits for handles to be released that were closed: the kernel
 * sends the release by itself, and another thread may take it. A mapping is not released so soon. */
#define MAKING_RELEASE 5000

struct making {
    size_t place;        /* in live.makings */
    struct making *next; /* in live.makings_added, or live.makings_gone */
    /* In its bucket of live.made_name, or of live.made_lost. */
    struct making *same;
    struct making *due_next, *due_before; /* in live.due_making, if it is ... */
    bool due;                             /* ... in there */
    uint32_t number;
    char file[TREE_NAME_MAX + 1]; /* the folder's name */
    char name[TREE_NAME_MAX + 1];
    size_t len;
    bool gone; /* removed, or a tensor by now: to be found by its drafts alone */
    bool removed;
    bool has_type, has_shape;
    uint32_t type;
    struct tensor_shape shape;
    uint32_t aside;       /* rows that were written, and are left aside */
    unsigned open;        /* handles that may write; and of them ... */
    unsigned unclosed;    /* ... those that were not closed since they were written */
    bool closing;         /* it counts in live.closing */
    bool dirty;           /* written since it was judged */
    struct timespec last; /* CLOCK_MONOTONIC: when something was written */
    bool lost;            /* it was added, and could not be written */
    struct err why;       /* what it lacks, or why it cannot be a tensor, or could not be written */
};

struct making *making_named(const struct live *l, const char *file);
/* Something was written, or a handle that may write is gone. */
void making_touch(struct live *l, struct making *m);
/* One of these handles was closed, or written after it was: under the lock of the caller. The last one is
 * released: closed or not. */
void making_closed(struct live *l, struct making *m, bool closed);
void making_released(struct live *l, struct making *m, bool closed);
/* A text was written to `type` or `shape`. 0, TENSOR_SHORT, -errno with a line. */
int making_text(struct live *l, struct draft *d, bool end, struct err *e);

/* What follows is of programs. As the system calls; and: rename: the name that the folder's stands
 * for. */
int making_rename(struct live *l, struct making *m, const char *file, const char *name, size_t n);
/* Also while it is judged. */
int making_drop(struct live *l, struct making *m);

/* Its handles or the end of the mount may change whether it is to be judged: those that were written, and
 * that no handle may write, or all at the end, are in a list in the order of `last`. */
void making_queue(struct live *l, struct making *m);
/* The end of the mount has come. */
void makings_hurry(struct live *l);

/* When one is to be judged; NULL: none is. */
const struct timespec *makings_due_at(const struct live *l);
bool makings_due(const struct live *l);
/* Judge what is due. The lock is given up meanwhile. 0, or why one could not be added. */
int makings_judge(struct live *l);
/* What was added is on the disk; or is not, why. */
void makings_settle(struct live *l, const struct err *why);
void makings_free(struct live *l);

#endif
