/* SPDX-License-Identifier: MIT */
/*
 * Errands: small work for a thread of its own that may be left out. Nothing depends on an errand: it
 * makes later work shorter. So none is begun while many wait or run, as when a disk hangs.
 *
 *     static struct errands syncs = ERRANDS_INIT("sync");
 *     struct range { struct errand errand; int fd; } r = {{.run = sync, .owner = x, .release = unref}, fd};
 *     if (!errand_send(&syncs, &r.errand, sizeof(r)))
 *         ...
 *
 * Threads: any. The thread is started when it is first needed, and stays: a process may fork before.
 */
#ifndef BASE_ERRAND_H
#define BASE_ERRAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/lock.h"
#include "base/crew.h"

/* Errands that wait or run: more would only be late. */
#define ERRANDS_MOST 8

/* A queue with its thread. Static: the thread may be at work when the process ends. */
struct errands {
    const char *name; /* of the thread, at most 15 bytes */
    struct lock lock;
    struct crew *crew; /* protected by `lock`; NULL until it is needed; never freed */
    atomic_uint waiting;
};

#define ERRANDS_INIT(name)       \
    {                            \
        name, LOCK_INIT, NULL, 0 \
    }

/* The first member of a struct that has what run() needs. */
struct errand {
    struct crew_job job;   /* the queue's */
    struct errands *queue; /* set by it */
    void (*run)(struct errand *e);
    void *owner;
    void (*release)(void *owner); /* after run() */
};

/*
 * Have a copy of e, which begins a struct of `size` bytes, run by the queue's thread. False: it is left
 * out, because many wait, or for lack of memory or of a thread; release() is not called then.
 */
bool errand_send(struct errands *queue, const struct errand *e, size_t size);

#endif
