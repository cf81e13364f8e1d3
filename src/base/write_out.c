/* SPDX-License-Identifier: MIT */
/* Bytes on their way to the disk: see write_out.h. */
#include "base/write_out.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/crew.h"

/* Jobs that wait or run: more would only be late. */
#define WAITING_MOST 8
/* Milliseconds after which the jobs of other files do not wait for one: a disk may hang. */
#define PATIENCE 100

struct range {
    struct crew_job job; /* first: turn() gets its address */
    const struct sys *sys;
    int fd;
    uint64_t off, n;
    void *owner;
    void (*release)(void *owner);
};

static struct crew
    *crew; /* made once, never freed: its thread may be at work when the process ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint waiting;

static void make_crew(void)
{
    if (crew_make("write out", PATIENCE, &crew) < 0)
        crew = NULL;
}

static bool turn(struct crew_job *j, struct timespec *again)
{
    struct range *r = (struct range *)j;
    (void)again;
    sys_begin_sync(r->sys, r->fd, r->off, r->n);
    (void)atomic_fetch_sub(&waiting, 1);
    r->release(r->owner);
    free(r);
    return false;
}

static bool begin(const struct range *what)
{
    struct range *r = malloc(sizeof(*r));
    if (!r)
        return false;
    *r = *what;
    bool begun = crew_do(crew, &r->job, turn) == 0;
    if (!begun)
        free(r);
    return begun;
}

void write_out(const struct sys *s, int fd, uint64_t off, uint64_t n, void *owner,
               void (*release)(void *owner))
{
    const struct range r = {
        .sys = s, .fd = fd, .off = off, .n = n, .owner = owner, .release = release};
    if (s->begin_sync && pthread_once(&once, make_crew) == 0 && crew) {
        if (atomic_fetch_add(&waiting, 1) < WAITING_MOST && begin(&r))
            return;
        (void)atomic_fetch_sub(&waiting, 1);
    }
    release(owner);
}
