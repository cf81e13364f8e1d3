/* SPDX-License-Identifier: MIT */
/*
 * What /proc says about processes and locks. Only root sees all of it, and in some cases nobody
 * does.
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

#include "shelf/mounts.h"

/* Read the beginning of a short file of /proc as text. Returns its length; 0: it cannot be read. */
size_t proc_read(const char *path, char *dst, size_t size);

/* Wait until a process has ended, at most some milliseconds; -1: forever. True: it has. */
bool process_wait(long pid, int ms);

/* Name of a process, safe to print; "" if it does not exist. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);

/* True if it is stopped (SIGSTOP, a debugger): it answers nothing. */
bool process_stopped(long pid);

/* Name of a user, or the number if the user has no name. */
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
/* The process that holds such a lock; 0: none is visible. */
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

/* ---- uses of a mount ---- */

/* Finds the processes that use a mount, without accessing the mount. */

/*
 * Append "process 12 (bash), process 34 (vim) and 5 more", safe to print: processes with an open
 * file, a mapping, a working directory or a program there, if this process may see them; and mounts
 * inside it. Appends nothing if it is not in use. Errors stay in the buf. Returns true if it is
 * used by anything but another process of this program: an --unmount has the mount open for a
 * moment.
 */
bool mount_users(const struct mounts *ms, const struct mount *m, struct buf *out);

/*
 * The same for other mount namespaces that still contain a mount that has gone from this one: the
 * visible processes in them. True if there are any. `again`: its daemon still serves, some time
 * after the first check; then also true if the kernel still knows the device, whose number may
 * belong to another mount if this one has really ended.
 */
bool mount_lives_on(const struct mount *gone, bool again, struct buf *out);

#endif
