/* SPDX-License-Identifier: MIT */
/*
 * A daemon's control socket: through it other processes of ggufs read its status and send it
 * requests.
 *
 *     r = control_begin(mountpoint, &handles, &c, &e);   before the model is locked, in the process that serves
 *     control_serve(c, &facts, shelf);                  it is mounted
 *     control_leave(c);                                 the session has ended
 *     control_end(c, &e, lost, backups);                everything is written, or has failed
 *     control_close(c);                                 the model is closed, and its lock free
 *
 * The socket's name is abstract: it disappears with the process, depends on no directory, and can
 * be reached from each mount namespace. It consists of CONTROL_PREFIX, a hash of the mount point
 * and a random number. Only the daemon's user and root get answers. A client sends one line:
 *
 *     watch [MAJOR:MINOR:INODE]   the status, "holds" if the process has locked this file, "now"; then more of
 *                                 the status as it comes, until the model is closed
 *     sync                        write what is accepted
 *     has PLACE                   nothing: does this model exist (shelf_ask())?
 *     undo NUMBER PLACE           as --undo; 0: the last state
 *     history PLACE               as --history
 *     clear PLACE                 as --history=clear
 *
 * The thread also unmounts a mount that nobody uses (`-o idle=`), and interrupts the session's loop after a signal.
 * The mount may leave the daemon's mount namespace while another namespace keeps it alive ("gone"). Pending edits are
 * then written. Once nothing is open for writing, further edits are refused and the model's lock is released ("free";
 * "held": not yet).
 *
 * A status consists of lines "WORD VALUE", with octal escapes in paths as in /proc/self/mountinfo; it only grows.
 * Other requests are answered with optional text and a last line "end ERRNO MESSAGE".
 *
 * Threads: calls come from one thread, unless stated otherwise. A separate thread answers; long
 * tasks are done by others.
 */
#ifndef MOUNT_CONTROL_H
#define MOUNT_CONTROL_H

#include <sys/types.h>

#include "base/err.h"
#include "mount/handle.h"
#include "shelf/shelf.h"

/* Names of sockets begin with this, 16 hexadecimal digits of control_place(), and "-". */
#define CONTROL_PREFIX "ggufs-"
uint64_t control_place(const char *mountpoint);

/* Limit on the lines about lost edits, in bytes: more than anybody reads. */
#define CONTROL_LOST_MAX ((size_t)64 << 10)
/* Limit on a request's line in bytes: enough for a path with every byte escaped. */
#define CONTROL_LINE_MAX ((size_t)20 << 10)

struct control;
/* The texts must live until control_leave(). */
struct control_facts {
    const char *at;        /* the mount point, as currently known */
    const char *model;     /* the real path */
    const char *read_only; /* why it is read-only; NULL: read-write */
    dev_t dev;             /* of the mount; 0: unknown */
    unsigned idle;         /* seconds without open files after which it is unmounted; 0: never */
};

/*
 * Begin to listen. The handles are those of the mount, and their lock is the control's, too. If no
 * socket can be made, that is logged: commands then do not find the daemon, but everything else
 * works. Returns 0, -ENOMEM or -EAGAIN.
 */
int control_begin(const char *mountpoint, struct handles *h, struct control **ret, struct err *e);
void control_serve(struct control *c, const struct control_facts *facts, struct shelf *s);
/* Return the eventfd that wakes the socket's thread, which then calls signals_kick(). */
int control_wake_fd(const struct control *c);
/* Call fn in another thread. control_leave() waits for it. False if no thread is available, or
 * nothing is served. Any thread. */
bool control_do(struct control *c, void (*fn)(void *arg), void *arg);
/*
 * Note that the mount is no longer served, while pending edits still have to be written. Waits for
 * the requests that have begun. Returns 0, or the reason why an edit was lost after the mount had
 * left this mount namespace.
 */
int control_leave(struct control *c);
/* Add the outcome to the status: why it failed (e, or NULL), and lines about the edits that did not
 * reach the file and about the backups made. */
void control_end(struct control *c, const struct err *e, const struct buf *lost,
                 const struct buf *backups);
/*
 * Close the socket: clients have nothing left to wait for, even if the process itself cannot end
 * because a thread waits for a hanging disk. `c` may be NULL.
 */
void control_close(struct control *c);

#endif
