/* SPDX-License-Identifier: MIT */
/*
 * Other processes, looked at through /proc: daemons of ggufs, and what a process holds. Those of
 * other users, and of containers, are seen by root alone, or not at all.
 *
 * Nothing is asked of a file system, so that a mount that hangs does no harm: only links are read,
 * and descriptions.
 *
 * Threads: any; no state.
 */
#ifndef MOUNT_PROCESSES_H
#define MOUNT_PROCESSES_H

#include <stdint.h>

#include "mount/daemon.h"
#include "mount/mounts.h"

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

/* All daemons of ggufs that can be seen, but this process. 0, -errno. Free in both cases. */
int processes_find(struct processes *ps);
void processes_free(struct processes *ps);
/* The daemon that serves a mount; NULL: it cannot be seen. A process that claims to be it must
 * belong to the mount's owner, or to root. */
struct process *processes_of(const struct processes *ps, const struct mount *m);
/* A mount of a daemon; NULL: it is not in this list. */
const struct mount *process_mount(const struct mounts *ms, const struct process *p);

/* Each number in a folder of /proc, until fn returns false. 0: it never did; 1: it did; -errno. */
int processes_each(const char *folder, bool (*fn)(void *arg, long number), void *arg);

/* Name of a process, safe to print; "" if it does not exist. */
#define PROCESS_NAME_MAX 64
const char *process_name(char dst[PROCESS_NAME_MAX], long pid);

/* Name of a user, or the number of a user without a name. */
const char *user_name(char dst[PROCESS_NAME_MAX], long uid);

/* What a lock is on, as /proc/PID/fdinfo and /proc/locks write it. */
struct file_id {
    unsigned major, minor;
    uint64_t ino;
};

/* Of an open file of this process. False: it cannot be found out. */
bool file_id_of(int fd, struct file_id *ret);
/* Whether the process holds an exclusive flock(2) on it. */
bool process_locks(long pid, const struct file_id *id);

#endif
