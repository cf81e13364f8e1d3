/* SPDX-License-Identifier: MIT */
/* The functions that replace system calls and pthreads at link time (-Wl,--wrap): see scheduler.h
 * and disk.h. */
#ifndef TESTS_SIM_HOOKS_H
#define TESTS_SIM_HOOKS_H

#include <pthread.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>

#include "edit/commit.h"

/* The simulator's own allocations do not fail, and are not counted (alloc.h). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void __real_free(void *p);

#define HOOK(type, name, ...)        \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__);

HOOK(int, clock_gettime, clockid_t clock, struct timespec *ret)
HOOK(int, nanosleep, const struct timespec *t, struct timespec *left)
HOOK(ssize_t, getrandom, void *dst, size_t n, unsigned flags)
HOOK(int, pthread_mutex_lock, pthread_mutex_t *m)
HOOK(int, pthread_mutex_unlock, pthread_mutex_t *m)
HOOK(int, pthread_cond_wait, pthread_cond_t *c, pthread_mutex_t *m)
HOOK(int, pthread_cond_clockwait, pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
     const struct timespec *t)
HOOK(int, pthread_cond_signal, pthread_cond_t *c)
HOOK(int, pthread_cond_broadcast, pthread_cond_t *c)
HOOK(int, pthread_create, pthread_t *id, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
HOOK(int, pthread_join, pthread_t id, void **ret)
HOOK(int, pthread_once, pthread_once_t *once, void (*fn)(void))
HOOK(int, fstat64, int fd, struct stat *ret)
HOOK(int, stat64, const char *path, struct stat *ret)
HOOK(int, fstatat64, int dir, const char *name, struct stat *ret, int flags)
HOOK(int, fstatvfs64, int fd, struct statvfs *ret)
HOOK(int, edit_commit, struct edit_file *f, const struct edit_plan *p, const struct edit_options *o,
     const struct edit_hooks *h, struct edit_result *ret, struct err *e)

#endif
