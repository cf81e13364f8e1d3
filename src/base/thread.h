/* SPDX-License-Identifier: MIT */
/*
 * Threads, and what is done once. Nothing above base calls pthread_create() and the like: see lock.h.
 *
 *     r = thread_start(&t, run, arg);
 *     thread_join(&t);
 */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

struct thread {
    pthread_t id;
};

/*
 * Signals are for the main thread, but for that of a page that is gone (map.h): a new thread blocks all
 * others. t NULL: nobody joins it. 0, -errno.
 */
int thread_start(struct thread *t, void *(*run)(void *arg), void *arg);
void thread_join(const struct thread *t);
/* The name of the calling thread, of at most 15 bytes: else it has that of the one that began it. */
void thread_name(const char *name);

struct once {
    pthread_once_t once;
};
#define ONCE_INIT         \
    {                     \
        PTHREAD_ONCE_INIT \
    }

/* The first call runs it; others wait until it has. */
static inline void once_run(struct once *o, void (*run)(void))
{
    (void)pthread_once(&o->once, run);
}

#endif
