/* SPDX-License-Identifier: MIT */
/* Calls made by another process: see aside.h. */
#include "mount/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/when.h"

static long now(void)
{
    struct timespec t = when_now();
    return (long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* What the other process writes. */
struct heard {
    int fd;
    size_t n;
    struct buf *said; /* may be NULL */
};

/* Read what the process writes until it ends. 0, -ETIMEDOUT, -errno. */
static int listen_to(struct heard *h, int ms)
{
    char part[512];
    for (long end = now() + ms, left; (left = end - now()) >= 0;) {
        struct pollfd p = {.fd = h->fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)left);
        ssize_t got = ready > 0 ? read(h->fd, part, sizeof(part)) : -1;
        if (got == 0)
            return 0;
        if (ready == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -errno;
        h->n += got > 0 ? (size_t)got : 0;
        if (h->n > ASIDE_MOST)
            return -EMSGSIZE;
        if (h->said && got > 0)
            buf_add(h->said, part, (size_t)got);
    }
    return -ETIMEDOUT;
}

/* A reader of the command's output does not wait for a process that hangs. */
static void call(int (*fn)(const void *arg, int out), const void *arg, int out)
{
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    (void)close(STDERR_FILENO);
    _exit(fn(arg, out));
}

int aside_watched(int (*fn)(const void *arg, int out), const void *arg, int ms,
                  bool (*still)(const void *arg), struct buf *said)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    struct heard h = {.fd = ends[0], .said = said};
    pid_t pid = fork();
    int r = pid < 0 ? -errno : 0;
    if (pid == 0) {
        if (still)
            (void)prctl(PR_SET_PDEATHSIG, SIGINT);
        call(fn, arg, ends[1]);
    }
    (void)close(ends[1]);
    if (r == 0)
        do
            r = listen_to(&h, ms);
        while (r == -ETIMEDOUT && still && still(arg));
    (void)close(ends[0]);
    if (pid < 0)
        return r;
    if (r < 0) /* it may not end before the daemon does, so do not wait for it */
        (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, r < 0 ? WNOHANG : 0) != pid || !WIFEXITED(status))
        return r < 0 ? r : -ECHILD;
    return r < 0 ? r : WEXITSTATUS(status);
}

int aside(int (*fn)(const void *arg, int out), const void *arg, int ms, struct buf *said)
{
    return aside_watched(fn, arg, ms, NULL, said);
}
