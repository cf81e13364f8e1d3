/* SPDX-License-Identifier: MIT */
/* Work that may be left out: see errand.h. */
#include "base/errand.h"

#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

/* Milliseconds after which the errands of other files do not wait for one: a disk may hang. */
#define PATIENCE 100

/* NULL: no memory. */
static struct crew *crew_of(struct errands *queue)
{
    lock_take(&queue->lock);
    if (!queue->crew && crew_make(queue->name, PATIENCE, &queue->crew) < 0)
        queue->crew = NULL;
    struct crew *crew = queue->crew;
    lock_drop(&queue->lock);
    return crew;
}

/* It counts as one that runs until run() has ended; what release() begins may be the next. */
static bool turn(struct crew_job *j, struct timespec *again)
{
    struct errand *e = (struct errand *)j;
    (void)again;
    e->run(e);
    (void)atomic_fetch_sub(&e->queue->waiting, 1);
    e->release(e->owner);
    free(e);
    return false;
}

static bool begin(struct errands *queue, const struct errand *e, size_t size)
{
    struct crew *crew = crew_of(queue);
    struct errand *own = crew ? malloc(size) : NULL;
    if (!own)
        return false;
    memcpy(own, e, size);
    own->queue = queue;
    bool begun = crew_do(crew, &own->job, turn) == 0;
    if (!begun)
        free(own);
    return begun;
}

bool errand_send(struct errands *queue, const struct errand *e, size_t size)
{
    bool begun = atomic_fetch_add(&queue->waiting, 1) < ERRANDS_MOST && begin(queue, e, size);
    if (!begun)
        (void)atomic_fetch_sub(&queue->waiting, 1);
    return begun;
}
