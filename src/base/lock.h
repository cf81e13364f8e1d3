/* SPDX-License-Identifier: MIT */
/*
 * Threads, times, counted objects, and a mutex that knows its holder, so that code can assert that
 * it holds the lock.
 *
 *     lock_take(&x->lock);
 *     assert(lock_held(&x->lock));
 *     lock_drop(&x->lock);
 *
 *     LOCKED(&x->lock);          held until the end of the block
 *
 * With NDEBUG the lock is a plain mutex, and lock_held() must not be called.
 *
 *     while (!x->ready && lock_wait(&x->lock, &x->changed, &until))
 *         ;
 *
 * Nothing above base calls pthread_*() or reads a clock itself. tests/sim replaces these functions
 * when it is linked, and decides which thread runs next.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

struct lock {
    pthread_mutex_t mutex;
#ifndef NDEBUG
    atomic_bool held; /* by `holder` */
    _Atomic(pthread_t) holder;
#endif
};

#define LOCK_INIT                          \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }

static inline void lock_init(struct lock *l)
{
    *l = (struct lock)LOCK_INIT;
}

static inline void lock_destroy(struct lock *l)
{
    (void)pthread_mutex_destroy(&l->mutex);
}

#ifndef NDEBUG

/* Return true if the calling thread holds the lock. */
static inline bool lock_held(const struct lock *l)
{
    return atomic_load(&l->held) && pthread_equal(atomic_load(&l->holder), pthread_self());
}

static inline void lock_mark(struct lock *l)
{
    atomic_store(&l->holder, pthread_self());
    atomic_store(&l->held, true);
}

static inline void lock_unmark(struct lock *l)
{
    assert(lock_held(l));
    atomic_store(&l->held, false);
}

#else

#define lock_mark(l) ((void)(l))
#define lock_unmark(l) ((void)(l))

#endif

/* Take the lock, and return it. It is not recursive. */
static inline struct lock *lock_take(struct lock *l)
{
    assert(!lock_held(l));
    (void)pthread_mutex_lock(&l->mutex);
    lock_mark(l);
    return l;
}

static inline void lock_drop(struct lock *l)
{
    lock_unmark(l);
    (void)pthread_mutex_unlock(&l->mutex);
}

static inline void lock_leave(struct lock *const *l)
{
    lock_drop(*l);
}

#define LOCKED(l) \
    __attribute__((unused, cleanup(lock_leave))) struct lock *const held_to_the_end = lock_take(l)

/* A condition variable, used with a struct lock. Times are those of CLOCK_MONOTONIC. */
struct cond {
    pthread_cond_t cond;
};

#define COND_INIT                        \
    {                                    \
        .cond = PTHREAD_COND_INITIALIZER \
    }

/* Wake one waiting thread. */
static inline void cond_signal(struct cond *c)
{
    (void)pthread_cond_signal(&c->cond);
}

static inline void cond_broadcast(struct cond *c)
{
    (void)pthread_cond_broadcast(&c->cond);
}

/* Release the lock, wait for a condition until the time `until` (NULL: forever), and take the lock
 * again. Returns false on timeout; true may also mean a spurious wakeup. */
static inline bool lock_wait(struct lock *l, struct cond *c, const struct timespec *until)
{
    int r = 0;
    lock_unmark(l);
    if (until)
        r = pthread_cond_clockwait(&c->cond, &l->mutex, CLOCK_MONOTONIC, until);
    else
        (void)pthread_cond_wait(&c->cond, &l->mutex);
    lock_mark(l);
    return r == 0;
}

/* ---- threads, and what is done once ---- */

struct thread {
    pthread_t id;
};

/* Start a thread that blocks all signals except the one for a lost page (map.h), because the main
 * thread handles the others. If `t` is NULL, the thread is never joined. Returns 0 or -errno. */
int thread_start(struct thread *t, void *(*run)(void *arg), void *arg);
void thread_join(const struct thread *t);
/* Name the calling thread, in at most 15 bytes. By default, a thread has its creator's name. */
void thread_name(const char *name);

struct once {
    pthread_once_t once;
};
#define ONCE_INIT         \
    {                     \
        PTHREAD_ONCE_INIT \
    }

/* Call `run` the first time; other callers wait until it has returned. */
static inline void once_run(struct once *o, void (*run)(void))
{
    (void)pthread_once(&o->once, run);
}

/* ---- times of CLOCK_MONOTONIC ---- */

static inline struct timespec when_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return t;
}

static inline long long when_ms(void)
{
    const struct timespec t = when_now();
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

/* Return the time of day, for times that are shown or stored. The clock may be set back. */
static inline struct timespec when_date(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return t;
}

static inline void when_sleep(unsigned ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static inline bool when_before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Return the time this many milliseconds later. */
static inline struct timespec when_later(const struct timespec *t, unsigned ms)
{
    const long long ns = t->tv_nsec + ms % 1000 * 1000000LL;
    return (struct timespec){t->tv_sec + ms / 1000 + ns / 1000000000, (long)(ns % 1000000000)};
}

static inline struct timespec when_after(unsigned ms)
{
    const struct timespec now = when_now();
    return when_later(&now, ms);
}

/* Return true if the time was at least this many seconds ago. */
static inline bool when_past(const struct timespec *t, time_t seconds)
{
    struct timespec now = when_now();
    now.tv_sec -= seconds;
    return !when_before(&now, t);
}

/*
 * ---- counted objects ----
 *
 * They have a member `refs`, an atomic_uint, which is 1 when they are made. REF(p) takes a reference
 * and returns p. REF_DROP(p) gives one back, and is true if it was the last, so that the object must
 * be freed. p may be NULL.
 */
#define REF(p) ((__typeof__(p))ref_take((p), offsetof(__typeof__(*(p)), refs)))
#define REF_DROP(p) ref_drop((p), offsetof(__typeof__(*(p)), refs))

static inline void *ref_take(void *p, size_t refs)
{
    if (p)
        atomic_fetch_add((atomic_uint *)(void *)((char *)p + refs), 1);
    return p;
}

static inline bool ref_drop(void *p, size_t refs)
{
    return p && atomic_fetch_sub((atomic_uint *)(void *)((char *)p + refs), 1) == 1;
}

#endif
