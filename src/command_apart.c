/* SPDX-License-Identifier: MIT */
/* A command in a process of its own: see command.h. */
#include "command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Milliseconds that a process has to end which has nothing more to do. */
#define PATIENCE 1000

/* In the child: it may not end after that, and a reader of its output does not wait for it. */
static void run(int (*fn)(const struct command_args *a), const struct command_args *a, int out)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int status = fn(a);
    uint8_t byte = (uint8_t)status;
    (void)fflush(NULL);
    (void)close(STDIN_FILENO);
    (void)close(STDOUT_FILENO);
    (void)close(STDERR_FILENO);
    (void)!write(out, &byte, 1);
    exit(status);
}

/* Wait until the child ends, at most some milliseconds; -1: for ever. Its exit status; -1: it goes on. */
static int ended(pid_t pid, int ms)
{
    int status = 0;
    struct pollfd p = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    while (p.fd >= 0 && poll(&p, 1, ms) < 0 && errno == EINTR)
        ;
    if (p.fd >= 0)
        (void)close(p.fd);
    pid_t r;
    while ((r = waitpid(pid, &status, ms < 0 ? 0 : WNOHANG)) < 0 && errno == EINTR)
        ;
    if (r != pid)
        return -1;
    if (WIFSIGNALED(status)) { /* this process ends in the same way */
        (void)signal(WTERMSIG(status), SIG_DFL);
        (void)raise(WTERMSIG(status));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int command_apart(int (*fn)(const struct command_args *a), const struct command_args *a)
{
    int end[2];
    uint8_t status = 1;
    ssize_t n;
    if (pipe2(end, O_CLOEXEC) < 0)
        return fn(a);
    pid_t pid = fork();
    if (pid == 0)
        run(fn, a, end[1]);
    (void)close(end[1]);
    if (pid < 0) {
        (void)close(end[0]);
        return fn(a);
    }
    do
        n = read(end[0], &status, 1);
    while (n < 0 && errno == EINTR);
    (void)close(end[0]);
    int other = ended(pid, n == 1 ? PATIENCE : -1);
    return other >= 0 ? other : status;
}
