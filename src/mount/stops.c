/* SPDX-License-Identifier: MIT */
/* Pending signals: see stops.h. */
#include "mount/stops.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(signal) ((uint64_t)1 << ((signal)-1))

/* These stop a program also by a handler. */
#define ASKS (BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGTERM))
/* Without a handler all others end it. */
#define HARMLESS                                                                               \
    (BIT(SIGCHLD) | BIT(SIGCONT) | BIT(SIGURG) | BIT(SIGWINCH) | BIT(SIGSTOP) | BIT(SIGTSTP) | \
     BIT(SIGTTIN) | BIT(SIGTTOU))

/* Read the set of signals in the line NAME of a status. False: the status has no such line. */
static bool find(const char *status, const char *name, uint64_t *ret)
{
    const char *at = strstr(status, name);
    if (at)
        *ret = strtoull(at + strlen(name), NULL, 16);
    return at;
}

bool stops_by_status(const char *status)
{
    uint64_t own, shared, blocked, ignored, caught;
    if (!find(status, "\nSigPnd:", &own) || !find(status, "\nShdPnd:", &shared) ||
        !find(status, "\nSigBlk:", &blocked) || !find(status, "\nSigIgn:", &ignored) ||
        !find(status, "\nSigCgt:", &caught))
        return true;
    uint64_t pending = (own | shared) & ~blocked & ~ignored;
    return pending & (ASKS | ~(caught | HARMLESS));
}

bool stops_thread(pid_t thread)
{
    char path[64], status[8192];
    size_t n = 0;
    ssize_t got = 0;
    if (thread <= 0) /* of another container */
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%ld/status", (long)thread);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return true;
    while (n < sizeof(status) - 1 && (got = read(fd, status + n, sizeof(status) - 1 - n)) > 0)
        n += (size_t)got;
    (void)close(fd);
    status[n] = '\0';
    return stops_by_status(status);
}
