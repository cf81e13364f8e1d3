/* SPDX-License-Identifier: MIT */
/*
 * What /proc says of processes, and of locks. Only root sees all of it, or nobody does.
 *
 * No file system is accessed, so a mount that hangs does no harm.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_PROCESSES_H
#define MOUNT_PROCESSES_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Call fn for each number in a folder of /proc, until it returns false. 0: it never did; 1: it did;
 * -errno.
 */
int processes_each(const char *folder, bool (*fn)(void *arg, long number), void *arg);

/* Name of a process, safe to print; "" if it does not exist. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);

/* True if it is stopped (SIGSTOP, a debugger): it answers nobody. */
bool process_stopped(long pid);

/* Name of a user, or the number of a user without a name. */
const char *user_name(char dst[PROCESS_NAME_MAX], long uid);

/* The file of a lock, as /proc/PID/fdinfo and /proc/locks identify it. */
struct file_id {
    unsigned major, minor;
    uint64_t ino;
};

/* Identify an open file of this process. False: not possible. */
bool file_id_of(int fd, struct file_id *ret);
/* True if this process holds an exclusive flock(2) on it. */
bool file_is_locked_here(const struct file_id *id);
/* The process that has taken one; 0: none that can be seen. */
long file_locked_by(const struct file_id *id);

#endif
