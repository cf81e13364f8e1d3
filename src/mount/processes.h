/* SPDX-License-Identifier: MIT */
/*
 * Finds other processes through /proc: daemons of ggufs, and the locks that a process holds. Only
 * root sees processes of other users and of containers, or nobody does.
 *
 * No file system is accessed, so a mount that hangs does no harm: only links and descriptions in
 * /proc are read.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_PROCESSES_H
#define MOUNT_PROCESSES_H

#include <stdint.h>

#include "mount/daemon.h"
#include "shelf/mounts.h"

struct process {
    long pid;
    uid_t uid;
    int fd; /* owned: to read its status again */
    struct daemon_status status;
};

struct processes {
    struct process *process; /* owned */
    size_t n, cap;
};

/* All daemons of ggufs that can be seen, except this process. 0, -errno. Free in both cases. */
int processes_find(struct processes *ps);
void processes_free(struct processes *ps);
/* The daemon that serves a mount; NULL: it cannot be seen. A process that claims to serve it must
 * belong to the mount's owner, or to root. */
struct process *processes_of(const struct processes *ps, const struct mount *m);
/* The mount of a daemon; NULL: not in this list. */
const struct mount *process_mount(const struct mounts *ms, const struct process *p);

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
/* True if the process holds an exclusive flock(2) on it. */
bool process_locks(long pid, const struct file_id *id);

#endif
