/* SPDX-License-Identifier: MIT */
/*
 * Reads facts about processes and locks from /proc. Only root sees all of it, and in some cases
 * nobody does.
 *
 * No file system is accessed, so a hanging mount does no harm.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_PROCESSES_H
#define MOUNT_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Read the beginning of a short file of /proc as text. Returns its length, or 0 if it cannot be
 * read. */
size_t proc_read(const char *path, char *dst, size_t size);

/* Bytes of /proc/PID/fdinfo/N: long enough for a dozen locks. */
#define PROC_INFO_MAX 2048

/* Call fn for each number in a directory of /proc until it returns false. Returns true if it
 * did. */
bool proc_each(const char *folder, bool (*fn)(void *arg, long number), void *arg);

/* Wait up to `ms` milliseconds (-1: forever) until a process has ended. True if it has. */
bool process_wait(long pid, int ms);

/* The size of a buffer for the name of a process or user. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);

/* True if the process is stopped (SIGSTOP, a debugger) and so answers nothing. */
bool process_stopped(long pid);

/* Write the user's name to dst, or the number if the user has no name. Returns dst. */
const char *user_name(char dst[PROCESS_NAME_MAX], long uid);

/* The file of a lock, as /proc/PID/fdinfo and /proc/locks identify it. */
struct file_id {
    unsigned major, minor;
    uint64_t ino;
};

/* Identify an open file of this process. False if that is not possible. */
bool file_id_of(int fd, struct file_id *ret);
/* True if this process holds an exclusive flock(2) on it. */
bool file_is_locked_here(const struct file_id *id);
/* Return the process that holds an exclusive flock(2) on the file, or 0 if none is visible. */
long file_locked_by(const struct file_id *id);

/* ---- pending signals ---- */

/*
 * The meaning of a thread's pending signals. The kernel reports every signal to a program that
 * waits for a request, even ignored ones (a shell's SIGCHLD), and only the first.
 *
 * Threads: any; no state.
 */

/* True if some signal should stop the thread, of any process, or if that cannot be determined. */
bool stops_thread(pid_t thread);
/* The same for the content of /proc/TID/status, NUL-terminated. */
bool stops_by_status(const char *status);

#endif
