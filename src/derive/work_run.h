/* SPDX-License-Identifier: MIT */
/*
 * How work is done: wishes, tasks and threads. Private to work.c.
 *
 * A wish (struct want) goes over its tensors: it starts tasks ahead, at most as many as there are
 * threads, and is answered when it has passed the last tensor whose result is kept. Threads take
 * units of the tasks in turn.
 *
 * Threads: the caller has the lock, unless a function says otherwise.
 */
#ifndef DERIVE_WORK_RUN_H
#define DERIVE_WORK_RUN_H

#include "base/lock.h"
#include "derive/task.h"
#include "derive/work.h"

struct want {
    struct want *next;
    struct view view; /* references */
    enum derived what;
    uint32_t first; /* of the tensors, and of those that are held */
    uint32_t ready; /* all tensors before are kept and held, or left out */
    uint32_t start; /* all tensors before have been started */
    uint32_t last;
    int err;
    struct work_waiter waiter;
};

struct work {
    struct lock lock;
    struct cond idle; /* no thread is left */
    struct cond more; /* there may be something to do for threads that linger */
    /* Protected by the lock: */
    struct kept kept;
    struct want *wants;        /* the one whose turn it is first */
    struct task *tasks;        /* the same */
    unsigned n_tasks, n_aside; /* aside are not among n_tasks */
    unsigned threads, threads_most, lingering;
    bool ending;
    uint64_t computed;
};

/* What is kept of tensor i is kept under this. Needs no lock. */
struct kept_key work_key(const struct view *v, uint32_t i);
/* References to what tensors are read from. Needs no lock. */
struct view work_same_view(const struct view *v);

/* Add a wish at the end of a list. */
void work_push_want(struct want **list, struct want *want);
/* Pass what is kept already, and hold it. True: the wish is to be answered. */
bool work_is_ready(struct work *w, struct want *want);
/* Hold nothing for the wish any more. */
void work_let_go(struct work *w, struct want *want);
/* Answer all wishes of a list that nobody else has, which hold nothing, and free them. Not under the
 * lock. */
void work_answer(struct want *list);
/* Put tasks aside that no wish needs any more. */
void work_put_aside(struct work *w);
/* Go on with tasks that are aside and that this wish needs. */
void work_take_up(struct work *w, const struct want *want);
/* Give up all tasks: there are no wishes any more. */
void work_give_up(struct work *w);
/* Start one thread more, unless the process has enough and this work has one. It ends when there is nothing
 * to do and nothing aside. 0, -errno. */
int work_start_thread(struct work *w);

#endif
