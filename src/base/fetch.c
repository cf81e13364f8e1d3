/* SPDX-License-Identifier: MIT */
/* Mapped pages, brought into memory: see fetch.h. */
#include "base/fetch.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/errand.h"

struct stretch {
    struct errand errand; /* first: fetch() gets its address */
    uint8_t *at;
    size_t n;
};

static struct errands errands = ERRANDS_INIT("fetch");

/* Each page: where the kernel has marked one, a touch of it begins the next readahead. */
static int touch(void *arg)
{
    const struct stretch *s = arg;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t done = 0; done < s->n; done += page)
        (void)*(const volatile uint8_t *)(s->at + done);
    return 0;
}

/* What cannot be fetched fails again for the thread that needs it, which reports it. */
static void fetch(struct errand *e)
{
    sigset_t bus;
    /* Threads of a crew block all signals, and a fault whose signal is blocked ends the process. */
    (void)sigemptyset(&bus);
    (void)sigaddset(&bus, SIGBUS);
    (void)pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
    (void)map_guard(touch, e);
}

/* By the last page: reads in order have brought in what is before it, or nothing has. */
static bool is_there(uint8_t *at, size_t n, size_t page)
{
    unsigned char there = 0;
    return mincore(at + (n - 1) / page * page, 1, &there) < 0 || there & 1;
}

bool fetch_pages(const struct map *m, uint64_t off, uint64_t n, void *owner,
                 void (*release)(void *owner))
{
    if (n == 0 || off > m->size || n > m->size - off)
        return false;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = off / page * page;
    uint8_t *at = (uint8_t *)(uintptr_t)m->data + first;
    n += off - first;
    const struct stretch s = {
        .errand = {.run = fetch, .owner = owner, .release = release}, .at = at, .n = (size_t)n};
    return !is_there(at, s.n, (size_t)page) && errand_send(&errands, &s.errand, sizeof(s));
}
