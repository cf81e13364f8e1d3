/* SPDX-License-Identifier: MIT */
/*
 * A daemon's control socket: other processes of ggufs ask for its status, and have it do what commands are for.
 *
 *     r = control_begin(mountpoint, &c, &e);   before the model is locked, in the process that serves
 *     control_serve(c, &facts, shelf);         it is mounted
 *     control_leave(c);                        the session has ended
 *     control_end(c, &e, lost, backups);       everything is written, or has failed
 *     control_close(c);                        the model is closed, and its lock free
 *
 * The socket's name is abstract: it is gone with the process, whichever folders exist, and can be reached from
 * each mount namespace. It has CONTROL_PREFIX, a hash of the mount point and a random number. Only the daemon's user
 * and root are answered, whatever they know. A client sends one line:
 *
 *     watch [MAJOR:MINOR:INODE]   the status, "holds" if the process has locked this file, "now"; then more of
 *                                 the status as it comes, until the model is closed
 *     sync                        write what is accepted
 *     has PLACE                   nothing: is this model there (shelf_ask())?
 *     undo NUMBER PLACE           as --undo; 0: the last state
 *     history PLACE               as --history
 *     clear PLACE                 as --history=clear
 *
 * The thread also unmounts a mount that nobody uses (`-o idle=`), and interrupts the session's loop after a signal.
 * The mount may leave the daemon's mount namespace while another namespace keeps it alive ("gone"). The thread then has
 * pending edits written. Once nothing is open for writing it refuses further edits and releases the model's lock ("free";
 * "held": not yet).
 *
 * A status is lines "WORD VALUE", paths with octal escapes as in /proc/self/mountinfo; it only grows. Other
 * requests are answered with text, if any, and a last line "end ERRNO MESSAGE".
 *
 * Threads: the calls come from one thread, but where it says otherwise. A thread of its own answers; what may take long is done by others.
 */
#ifndef MOUNT_CONTROL_H
#define MOUNT_CONTROL_H

#include <sys/types.h>

#include "base/err.h"
#include "mount/handle.h"
#include "shelf/shelf.h"

/* Names of sockets begin with that, and with 16 hexadecimal digits of control_place() and "-". */
#define CONTROL_PREFIX "ggufs-"
uint64_t control_place(const char *mountpoint);

/* Limit on the lines about lost edits, in bytes: more than a person reads. */
#define CONTROL_LOST_MAX ((size_t)64 << 10)
/* Of a request: a path of which each byte is escaped. */
#define CONTROL_LINE_MAX ((size_t)20 << 10)

struct control;
/* Texts stay until control_leave(). */
struct control_facts {
    const char *at;        /* the mount point, as it is known by now */
    const char *model;     /* the real path */
    const char *read_only; /* why it is read-only; NULL: read-write */
    dev_t dev;             /* of the mount; 0: not known */
    unsigned idle; /* seconds after which it is unmounted if nothing is open, or was; 0: never */
};

/* Where no socket can be made the log says so: commands do not find the daemon, all else works. 0, -ENOMEM, -EAGAIN. */
int control_begin(const char *mountpoint, struct control **ret, struct err *e);
void control_serve(struct control *c, const struct control_facts *facts, struct shelf *s,
                   struct handles *h);
/* An eventfd that wakes its thread, which then calls signals_kick(). */
int control_wake_fd(const struct control *c);
/* Have fn called by another thread. control_leave() waits for it. False: no thread can, or nothing is served. Any thread. */
bool control_do(struct control *c, void (*fn)(void *arg), void *arg);
/* The mount is no longer served; pending edits still have to be written. Requests that were begun are waited for. 0, or
 * why an edit was lost when the mount had left this mount namespace. */
int control_leave(struct control *c);
/* The outcome (e: why it failed, or NULL), the edits that are not in the file, and the backups that were made: lines. */
void control_end(struct control *c, const struct err *e, const struct buf *lost,
                 const struct buf *backups);
/* Nothing is left to wait for. The process itself may not be able to end: a thread of it that waits for a disk that
 * does not answer cannot be killed. May be NULL. */
void control_close(struct control *c);

#endif
