/* SPDX-License-Identifier: MIT */
/* Mapped files and the guard against pages that disappear: see map.h. */
#include "base/map.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>

#include "base/bytes.h"

int map_open(struct map *m, int fd, uint64_t size)
{
    *m = (struct map){.fd = fd};
    if (size == 0)
        return 0;
    if (size > SIZE_MAX)
        return -EFBIG;
    void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return -errno;
    m->data = p;
    m->size = m->own = size;
    return 0;
}

void map_close(struct map *m)
{
    if (m->data)
        (void)munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (struct map){.fd = -1};
}

int map_check(const struct map *m, uint64_t end)
{
    struct stat st;
    if (end > m->own)
        end = m->own;
    if (fstat(m->fd, &st) < 0 || st.st_size < 0)
        return -EIO;
    return (uint64_t)st.st_size < end ? -EIO : 0;
}

/* Where the thread's guarded read continues after SIGBUS; NULL outside of map_guard(). */
static _Thread_local sigjmp_buf *volatile escape;

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    const ucontext_t *before = context;
    /* Only a fault (si_code > 0), not a signal sent by a process, ends a guarded read. */
    if (escape && info->si_code > 0) {
        /* The jump does not restore the signal mask, and the handler's must not stay in force. */
        (void)pthread_sigmask(SIG_SETMASK, &before->uc_sigmask, NULL);
        siglongjmp(*escape, 1);
    }
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

int map_guard(int (*fn)(void *arg), void *arg)
{
    sigjmp_buf here;
    /* Saving the mask would cost a system call each time; the handler restores it instead. */
    if (sigsetjmp(here, 0)) {
        escape = NULL;
        return -EIO;
    }
    escape = &here;
    int r = fn(arg);
    escape = NULL;
    return r;
}

struct copying {
    void *dst;
    const void *src;
    size_t n;
};

static int copy(void *arg)
{
    const struct copying *c = arg;
    memcpy(c->dst, c->src, c->n);
    return 0;
}

int map_copy(void *dst, const void *src, size_t n)
{
    struct copying c = {dst, src, n};
    return n > 0 ? map_guard(copy, &c) : 0;
}

int map_guard_init(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};
    (void)sigemptyset(&sa.sa_mask);
    return sigaction(SIGBUS, &sa, NULL) < 0 ? -errno : 0;
}
