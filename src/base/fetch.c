/* SPDX-License-Identifier: MIT */
/* Mapped pages, brought into memory: see fetch.h. */
#include "base/fetch.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/crew.h"

/* Jobs that wait or run: more would only be late. */
#define WAITING_MOST 8
/* Milliseconds after which the jobs of other files do not wait for one: a disk may hang. */
#define PATIENCE 100

struct fetch {
    struct crew_job job; /* first: turn() gets its address */
    uint8_t *at;
    size_t n;
    void *owner;
    void (*release)(void *owner);
};

static struct crew
    *crew; /* made once, never freed: its thread may be at work when the process ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint waiting;

static void make_crew(void)
{
    if (crew_make("fetch", PATIENCE, &crew) < 0)
        crew = NULL;
}

/* Each page: where the kernel has marked one, a touch of it begins the next readahead. */
static int touch(void *arg)
{
    const struct fetch *f = arg;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t done = 0; done < f->n; done += page)
        (void)*(const volatile uint8_t *)(f->at + done);
    return 0;
}

/* What cannot be fetched fails again for the thread that needs it, which reports it. */
static bool turn(struct crew_job *j, struct timespec *again)
{
    struct fetch *f = (struct fetch *)j;
    sigset_t bus;
    (void)again;
    /* Threads of a crew block all signals, and a fault whose signal is blocked ends the process. */
    (void)sigemptyset(&bus);
    (void)sigaddset(&bus, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    (void)map_guard(touch, f);
    f->release(f->owner);
    free(f);
    (void)atomic_fetch_sub(&waiting, 1);
    return false;
}

/* By the last page: reads in order have brought in what is before it, or nothing has. */
static bool is_there(uint8_t *at, size_t n, size_t page)
{
    unsigned char there = 0;
    return mincore(at + (n - 1) / page * page, 1, &there) < 0 || there & 1;
}

static bool begin(uint8_t *at, size_t n, void *owner, void (*release)(void *owner))
{
    struct fetch *f = malloc(sizeof(*f));
    if (!f)
        return false;
    *f = (struct fetch){.at = at, .n = n, .owner = owner, .release = release};
    bool begun = crew_do(crew, &f->job, turn) == 0;
    if (!begun)
        free(f);
    return begun;
}

bool fetch_pages(const struct map *m, uint64_t off, uint64_t n, void *owner,
                 void (*release)(void *owner))
{
    if (n == 0 || off > m->size || n > m->size - off)
        return false;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = off / page * page;
    uint8_t *at = (uint8_t *)(uintptr_t)m->data + first;
    n += off - first;
    if (is_there(at, (size_t)n, (size_t)page) || pthread_once(&once, make_crew) != 0 || !crew)
        return false;
    bool begun =
        atomic_fetch_add(&waiting, 1) < WAITING_MOST && begin(at, (size_t)n, owner, release);
    if (!begun)
        (void)atomic_fetch_sub(&waiting, 1);
    return begun;
}
