/* SPDX-License-Identifier: MIT */
/*
 * A mutex that knows which thread holds it, so that "under the lock" can be asserted.
 *
 *     lock_take(&x->lock);
 *     assert(lock_held(&x->lock));
 *     lock_drop(&x->lock);
 *
 *     LOCKED(&x->lock);          held until the end of the block
 *
 * With NDEBUG it is a mutex and nothing more, and lock_held() must not be asked.
 */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <time.h>

struct lock {
    pthread_mutex_t mutex;
#ifndef NDEBUG
    atomic_bool held; /* true: by `holder` */
    _Atomic(pthread_t) holder;
#endif
};

static inline void lock_init(struct lock *l)
{
    *l = (struct lock){0};
    (void)pthread_mutex_init(&l->mutex, NULL);
}

static inline void lock_destroy(struct lock *l)
{
    (void)pthread_mutex_destroy(&l->mutex);
}

#ifndef NDEBUG

/* True if the calling thread holds it. */
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

static inline void lock_mark(struct lock *l)
{
    (void)l;
}

static inline void lock_unmark(struct lock *l)
{
    (void)l;
}

#endif

/* Must not be nested. */
static inline void lock_take(struct lock *l)
{
    assert(!lock_held(l));
    (void)pthread_mutex_lock(&l->mutex);
    lock_mark(l);
}

static inline void lock_drop(struct lock *l)
{
    lock_unmark(l);
    (void)pthread_mutex_unlock(&l->mutex);
}

static inline struct lock *lock_enter(struct lock *l)
{
    lock_take(l);
    return l;
}

static inline void lock_leave(struct lock *const *l)
{
    lock_drop(*l);
}

#define LOCKED(l) \
    __attribute__((unused, cleanup(lock_leave))) struct lock *const held_to_the_end = lock_enter(l)

/* Wait for a condition, at most until a time if there is one. The lock is given up meanwhile. */
static inline void lock_wait(struct lock *l, pthread_cond_t *c, const struct timespec *until)
{
    lock_unmark(l);
    if (until)
        (void)pthread_cond_timedwait(c, &l->mutex, until);
    else
        (void)pthread_cond_wait(c, &l->mutex);
    lock_mark(l);
}

#endif
