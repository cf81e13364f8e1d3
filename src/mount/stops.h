/* SPDX-License-Identifier: MIT */
/*
 * What a signal that is pending to a thread means. The kernel reports every signal to a program that
 * waits for a request, also those that it takes no notice of (a shell's SIGCHLD), and only the first.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_STOPS_H
#define MOUNT_STOPS_H

#include <stdbool.h>
#include <sys/types.h>

/* True if some signal is to stop the thread, of any process; or if that cannot be found out. */
bool stops_thread(pid_t thread);
/* The same of what /proc/TID/status holds, NUL-terminated. */
bool stops_by_status(const char *status);

#endif
