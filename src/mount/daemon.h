/* SPDX-License-Identifier: MIT */
/*
 * What a daemon says of itself to other processes of ggufs: a file in memory that lives as long as
 * the process, found through /proc by processes with the right to look into it (of the same user, or root).
 *
 *     int fd = daemon_begin(mountpoint);       before the model is locked
 *     daemon_serve(fd, &facts, attribute);     in the process that serves
 *     daemon_leave(fd);                        the session has ended
 *     daemon_end(fd, &e, lost);                everything is written, or given up
 *
 * The text only grows, a line at a time: "WORD VALUE\n", paths with octal escapes as in
 * /proc/self/mountinfo. A reader takes whole lines, so that it never sees a torn one.
 *
 * Threads: the writer's calls come from one thread. Readers may be any.
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

/* Bytes of lines about lost edits that a daemon leaves: more than a person reads. */
#define DAEMON_LOST_MAX (64u << 10)

struct daemon_facts {
    const char *model;     /* the real path */
    const char *read_only; /* why it is read-only; NULL: read-write */
    dev_t dev;             /* of the mount */
};

/* ---- in the daemon; fd -1: nothing is done ---- */

/* The descriptor, or -1: other processes then know less. */
int daemon_begin(const char *mountpoint);
/* Also the value of DAEMON_XATTR. */
void daemon_serve(int fd, const struct daemon_facts *facts, char text[DAEMON_TEXT_MAX]);
/* Nothing is served any more; what is pending is still to be written. */
void daemon_leave(int fd);
/*
 * How it went (e->code 0: well), and the edits that are not in the file: lines, or NULL. The
 * descriptor stays open until the process ends: as long as it holds the lock it can be found.
 */
void daemon_end(int fd, const struct err *e, const char *lost);

/* ---- in other processes ---- */

enum daemon_state { DAEMON_STARTING, DAEMON_SERVING, DAEMON_LEAVING, DAEMON_ENDED };

/* What a daemon has said: not to be trusted, and to be escaped before it is printed. */
struct daemon_status {
    enum daemon_state state;
    long pid;        /* 0: not known */
    dev_t dev;       /* 0: not known */
    char *at;        /* the mount point; owned, these may be NULL */
    char *model;     /* */
    char *read_only; /* why */
    char *failed;    /* of DAEMON_ENDED: why it did not end well; NULL: it did */
    struct buf lost; /* of DAEMON_ENDED: lines */
};

/* Open the file behind /proc/PID/fd/FD, if that is a daemon's. The descriptor, or -errno. */
int daemon_open(long pid, int fd);
/* 0, -EBADMSG, -errno. Free the status in both cases. */
int daemon_read(int fd, struct daemon_status *ret);
void daemon_status_free(struct daemon_status *s);

#endif
