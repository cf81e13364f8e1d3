/* SPDX-License-Identifier: MIT */
/* Calls made by another process: see aside.h. */
#include "mount/aside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Read what the process writes until it ends. 0, -ETIMEDOUT, -errno. */
static int listen_to(int fd, int ms, struct buf *said)
{
    char part[512];
    size_t n = 0;
    for (long end = now() + ms, left; (left = end - now()) >= 0;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)left);
        ssize_t got = ready > 0 ? read(fd, part, sizeof(part)) : -1;
        if (got == 0)
            return 0;
        if (ready == 0)
            break;
        if (got < 0 && errno != EINTR)
            return -errno;
        n += got > 0 ? (size_t)got : 0;
        if (n > ASIDE_MOST)
            return -EMSGSIZE;
        if (said && got > 0)
            buf_add(said, part, (size_t)got);
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

int aside(int (*fn)(const void *arg, int out), const void *arg, int ms, struct buf *said)
{
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    int r = pid < 0 ? -errno : 0;
    if (pid == 0)
        call(fn, arg, ends[1]);
    (void)close(ends[1]);
    if (r == 0)
        r = listen_to(ends[0], ms, said);
    (void)close(ends[0]);
    if (pid < 0)
        return r;
    if (r < 0) /* it may not end before the daemon does, so do not wait for it */
        (void)kill(pid, SIGKILL);
    if (waitpid(pid, &status, r < 0 ? WNOHANG : 0) != pid || !WIFEXITED(status))
        return r < 0 ? r : -ECHILD;
    return r < 0 ? r : WEXITSTATUS(status);
}
