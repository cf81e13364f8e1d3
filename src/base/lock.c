/* SPDX-License-Identifier: MIT */
/* Starts threads and names them: see lock.h. */
#include "base/lock.h"

#include <signal.h>

int thread_start(struct thread *t, void *(*run)(void *arg), void *arg)
{
    sigset_t all, old;
    pthread_t id;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGBUS);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&id, NULL, run, arg);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (r == 0 && t)
        t->id = id;
    else if (r == 0)
        (void)pthread_detach(id);
    return r;
}

void thread_join(const struct thread *t)
{
    (void)pthread_join(t->id, NULL);
}

void thread_name(const char *name)
{
    (void)pthread_setname_np(pthread_self(), name);
}
