/* SPDX-License-Identifier: MIT */
/* Signals that end a session: see signals.h. */
#include "mount/signals.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
#define ENDING (sizeof(ending) / sizeof(ending[0]))

/* The one session of the process: a handler has no argument. */
static struct {
    struct fuse_session *_Atomic se;
    atomic_int came; /* the signal; 0: none */
    sem_t wake;      /* posted by the handler, and at the end */
    pthread_t looping, kicking;
    bool kicks;
    atomic_bool serves;
} s;

static void on_signal(int number)
{
    int none = 0, saved = errno;
    struct fuse_session *se = atomic_load(&s.se);
    (void)atomic_compare_exchange_strong(&s.came, &none, number);
    if (se)
        fuse_session_exit(se);
    if (none == 0)
        (void)sem_post(&s.wake);
    errno = saved;
}

/* After a signal: interrupt each wait of the loop, until the loop has returned. */
static void *kick(void *arg)
{
    const struct timespec moment = {.tv_nsec = 5000000};
    (void)arg;
    while (sem_wait(&s.wake) < 0)
        ;
    while (atomic_load(&s.serves) && atomic_load(&s.came)) {
        (void)pthread_kill(s.looping, atomic_load(&s.came));
        (void)nanosleep(&moment, NULL);
    }
    return NULL;
}

/* `flags`: what becomes of a call that a signal interrupts. */
static void handle(int flags)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
    (void)sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < ENDING; i++) {
        struct sigaction was;
        if (sigaction(ending[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN) /* as of nohup(1) */
            (void)sigaction(ending[i], &act, NULL);
    }
}

void signals_begin(struct fuse_session *se)
{
    (void)sem_init(&s.wake, 0, 0);
    atomic_store(&s.came, 0);
    atomic_store(&s.se, se);
    /* libfuse takes a helper that it cannot wait for as a failed mount. */
    handle(SA_RESTART);
    (void)signal(SIGPIPE, SIG_IGN);
    /* A write over the limit on file sizes is an error (EFBIG), and must not end the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

int signals_serve(struct err *e)
{
    sigset_t all, old;
    s.looping = pthread_self();
    handle(0);
    atomic_store(&s.serves, true);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int r = -pthread_create(&s.kicking, NULL, kick, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    s.kicks = r == 0;
    return r < 0 ? err_set(e, r, "cannot start a thread: %s", strerror(-r)) : 0;
}

bool signals_served(void)
{
    atomic_store(&s.serves, false);
    return atomic_load(&s.came) != 0;
}

void signals_end(void)
{
    atomic_store(&s.serves, false);
    (void)sem_post(&s.wake);
    if (s.kicks)
        (void)pthread_join(s.kicking, NULL);
    s.kicks = false;
    for (size_t i = 0; i < ENDING; i++)
        (void)signal(ending[i], SIG_IGN);
    atomic_store(&s.se, NULL);
    (void)sem_destroy(&s.wake);
}
