/* SPDX-License-Identifier: MIT */
/*
 * Reads facts about processes and locks from /proc. Only root can see all of them, and some are
 * hidden even from root.
 *
 * Accesses no other file system, so a hanging mount does no harm.
 *
 * Any thread may call these functions; they keep no state.
 */
#ifndef MOUNT_PROCESSES_H
#define MOUNT_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Read the beginning of a short file in /proc as text. Returns its length, or 0 if it cannot be
 * read. */
size_t proc_read(const char *path, char *dst, size_t size);

/* Bytes to read from /proc/PID/fdinfo/N: enough for a dozen locks. */
#define PROC_INFO_MAX 2048

/*
 * Call fn for each number in a directory in /proc until fn returns false. Returns true if it did.
 */
bool proc_each(const char *folder, bool (*fn)(void *arg, long number), void *arg);

/* Wait up to `ms` milliseconds (-1: forever) for a process to end. Returns true if it has ended. */
bool process_wait(long pid, int ms);

/* Size of a buffer for the name of a process or user. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);

/* Return true if the process is stopped (SIGSTOP, a debugger) and so answers nothing. */
bool process_stopped(long pid);

/* Write the user's name, or the number if there is no name, to dst. Returns dst. */
const char *user_name(char dst[PROCESS_NAME_MAX], long uid);

/* A locked file, as /proc/PID/fdinfo and /proc/locks identify it. */
struct file_id {
    unsigned major, minor;
    uint64_t ino;
};

/* Identify an open file of this process. Returns false if that is not possible. */
bool file_id_of(int fd, struct file_id *ret);
/* Return true if this process holds an exclusive flock(2) on the file. */
bool file_is_locked_here(const struct file_id *id);
/* Return the process that holds an exclusive flock(2) on the file, or 0 if none is visible. */
long file_locked_by(const struct file_id *id);

/* ---- pending signals ---- */

/*
 * Interprets a thread's pending signals. While a program waits for a request, the kernel reports
 * only its first signal, even one that it ignores (such as a shell's SIGCHLD).
 *
 * Any thread may call these functions; they keep no state.
 */

/* Return true if a signal should stop the thread, which may belong to any process, or if that
 * cannot be determined. */
bool stops_thread(pid_t thread);
/* Return the same, given the content of /proc/TID/status, NUL-terminated. */
bool stops_by_status(const char *status);

#endif
