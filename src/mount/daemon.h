/* SPDX-License-Identifier: MIT */
/*
 * A daemon's status, for other processes of ggufs: a file in memory that lives as long as the
 * process. Processes with the right to look into it (of the same user, or root) find it through
 * /proc.
 *
 *     int fd = daemon_begin(mountpoint);       before the model is locked
 *     daemon_serve(fd, &facts, attribute);     in the process that serves
 *     daemon_leave(fd);                        the session has ended
 *     daemon_end(fd, &e, lost, backups);       everything is written, or has failed
 *     daemon_close(fd);                        the model is closed, and its lock free
 *
 * The text only grows, a line at a time: "WORD VALUE\n", paths with octal escapes as in
 * /proc/self/mountinfo. A reader uses whole lines only, so it never sees part of one.
 *
 * Threads: the writer's calls come from one thread. Readers may use any.
 */
#ifndef MOUNT_DAEMON_H
#define MOUNT_DAEMON_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/* The attribute of the mount's root: "PID FD". Not listed. */
#define DAEMON_XATTR "user.ggufs.daemon"
#define DAEMON_TEXT_MAX 32

/* /proc/PID/comm of a process of ggufs, however the program was started. */
#define DAEMON_COMM "ggufs"

/* Limit on the lines about lost edits, in bytes: more than a person reads. */
#define DAEMON_LOST_MAX (64u << 10)

struct daemon_facts {
    const char *at;        /* the mount point, as it is known by now */
    const char *model;     /* the real path */
    const char *read_only; /* why it is read-only; NULL: read-write */
    dev_t dev;             /* of the mount */
};

/* ---- in the daemon; with fd -1 the calls do nothing ---- */

/* The descriptor, or -1: other processes then cannot see the status. */
int daemon_begin(const char *mountpoint);
/* Publish the facts; text gets the value of DAEMON_XATTR. */
void daemon_serve(int fd, const struct daemon_facts *facts, char text[DAEMON_TEXT_MAX]);
/* The mount is no longer served; pending edits still have to be written. */
void daemon_leave(int fd);
/*
 * Publish the outcome (e: why it failed, or NULL), the edits that are not in the file, and the backups that
 * were made: lines, or NULL.
 * The descriptor stays open until the process ends, so that the process can be found as long as it
 * holds the lock.
 */
void daemon_end(int fd, const struct err *e, const char *lost, const char *backups);
/* Nothing is left to wait for. The process itself may not be able to end: a thread of it that waits for a
 * disk that does not answer cannot be killed. */
void daemon_close(int fd);

/* ---- in other processes ---- */

enum daemon_state { DAEMON_STARTING, DAEMON_SERVING, DAEMON_LEAVING, DAEMON_ENDED, DAEMON_CLOSED };

/* The status as it was read. Do not trust it, and escape it before printing. */
struct daemon_status {
    enum daemon_state state;
    long pid;        /* 0: not known */
    dev_t dev;       /* 0: not known */
    char *at;        /* the mount point; owned, these may be NULL */
    char *model;     /* */
    char *read_only; /* why */
    char *failed;    /* from DAEMON_ENDED on: why it failed; NULL: it succeeded */
    struct buf lost; /* from DAEMON_ENDED on: lines */
    struct buf backups;
};

/* Open the file behind /proc/PID/fd/FD, if it is a daemon's status. The descriptor, or -errno. */
int daemon_open(long pid, int fd);
/* 0, -EBADMSG, -errno. Free the status in both cases. */
int daemon_read(int fd, struct daemon_status *ret);
void daemon_status_free(struct daemon_status *s);

#endif
