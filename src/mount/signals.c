/* SPDX-License-Identifier: MIT */
/* Handles signals that end a session: see signals.h. */
#include "mount/signals.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <unistd.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

static const int ending[] = {SIGTERM, SIGINT, SIGHUP};
#define ENDING (sizeof(ending) / sizeof(ending[0]))

/* The one session of the process, because a handler has no argument. */
static struct {
    struct fuse_session *_Atomic se;
    atomic_int came; /* the signal that arrived; 0: no signal yet */
    atomic_int wake; /* eventfd of the thread that calls signals_kick(); -1: not serving yet */
    pthread_t looping;
    atomic_bool serves;
} s;

static void wake(void)
{
    const int fd = atomic_load(&s.wake);
    if (fd >= 0)
        (void)!write(fd, &(uint64_t){1}, sizeof(uint64_t));
}

static void on_signal(int number)
{
    int none = 0, saved = errno;
    struct fuse_session *se = atomic_load(&s.se);
    (void)atomic_compare_exchange_strong(&s.came, &none, number);
    if (se)
        fuse_session_exit(se);
    if (none == 0) /* the first signal: the other thread interrupts until the loop has returned */
        wake();
    errno = saved;
}

bool signals_kick(void)
{
    const int came = atomic_load(&s.came);
    if (!came || !atomic_load(&s.serves))
        return false;
    (void)pthread_kill(s.looping, came);
    return true;
}

/* Set the handler. `flags` decides what happens to a call that a signal interrupts. */
static void handle(int flags)
{
    struct sigaction act = {.sa_handler = on_signal, .sa_flags = flags};
    (void)sigemptyset(&act.sa_mask);
    for (size_t i = 0; i < ENDING; i++) {
        struct sigaction was;
        /* Keep a signal ignored, as nohup(1) has set it. */
        if (sigaction(ending[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
            (void)sigaction(ending[i], &act, NULL);
    }
}

void signals_begin(struct fuse_session *se)
{
    atomic_store(&s.wake, -1);
    atomic_store(&s.came, 0);
    atomic_store(&s.se, se);
    /*
     * Restart calls, because libfuse takes an interrupted wait for its helper for a failed mount.
     */
    handle(SA_RESTART);
    (void)signal(SIGPIPE, SIG_IGN);
    /* Exceeding the file size limit should be an error (EFBIG) rather than end the process. */
    (void)signal(SIGXFSZ, SIG_IGN);
}

void signals_serve(int fd)
{
    s.looping = pthread_self();
    handle(0);
    atomic_store(&s.wake, fd);
    atomic_store(&s.serves, true);
    if (atomic_load(&s.came))
        wake();
}

bool signals_served(void)
{
    atomic_store(&s.serves, false);
    return atomic_load(&s.came) != 0;
}

void signals_end(void)
{
    atomic_store(&s.serves, false);
    for (size_t i = 0; i < ENDING; i++)
        (void)signal(ending[i], SIG_IGN);
    atomic_store(&s.se, NULL);
    atomic_store(&s.wake, -1);
}
