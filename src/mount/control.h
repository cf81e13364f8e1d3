/* SPDX-License-Identifier: MIT */
/*
 * A daemon's control socket, through which other processes of ggufs read its status and send it
 * requests.
 *
 *     r = control_begin(mountpoint, &handles, &c, &e);   before the serving process locks the model
 *     control_serve(c, &facts, shelf);                  it is mounted
 *     control_leave(c);                                 the session has ended
 *     control_end(c, &e, lost, backups);                everything is written or has failed
 *     control_close(c);                                 the model is closed and its lock free
 *
 * The socket's name is abstract, so it can be reached from every mount namespace: CONTROL_PREFIX, a
 * hash of the mount point and a random number. Only the daemon's user and root get answers. A client
 * sends one line:
 *
 *     watch [MAJOR:MINOR:INODE]   the status, "holds" if the process has locked this file, "now";
 *                                 then more of the status as it arrives, until the model is closed
 *     sync                        write the accepted edits
 *     has PLACE                   no text; succeeds if this model exists (shelf_ask())
 *     undo NUMBER PLACE           like --undo; 0 means the last state
 *     history PLACE               like --history
 *     clear PLACE                 like --history=clear
 *
 * A status consists of lines "WORD VALUE", in which paths have octal escapes as in
 * /proc/self/mountinfo; lines are only ever added. Other requests are answered with optional text
 * and a last line "end ERRNO MESSAGE".
 *
 * The mount may leave the daemon's mount namespace while another namespace keeps it alive ("gone").
 * Pending edits are then written. Once nothing is open for writing, further edits are refused and
 * the model's lock is released ("free"; until then "held").
 *
 * A thread answers the clients, unmounts a mount that nobody uses (`-o idle=`), and interrupts the
 * session's loop after a signal; others do the long tasks. Calls come from one thread, unless stated
 * otherwise.
 */
#ifndef MOUNT_CONTROL_H
#define MOUNT_CONTROL_H

#include <sys/types.h>

#include "base/err.h"
#include "mount/ops.h"
#include "shelf/shelf.h"

/* Socket names begin with this, followed by 16 hexadecimal digits of control_place() and "-". */
#define CONTROL_PREFIX "ggufs-"
uint64_t control_place(const char *mountpoint);

/* Limit in bytes on the lines about lost edits. */
#define CONTROL_LOST_MAX ((size_t)64 << 10)
/* Limit in bytes on a request, whose path may have every byte escaped. */
#define CONTROL_LINE_MAX ((size_t)20 << 10)

struct control;
/* The texts must live until control_leave(). */
struct control_facts {
    const char *at;        /* the mount point, as currently known */
    const char *model;     /* the real path */
    const char *read_only; /* why it is read-only; NULL: read-write */
    dev_t dev;             /* the mount's device; 0: unknown */
    unsigned idle;         /* seconds without open files after which it is unmounted; 0: never */
};

/* Begin to listen. `h` holds the mount's handles. If no socket can be made, commands do not find the
 * daemon. */
int control_begin(const char *mountpoint, struct handles *h, struct control **ret, struct err *e);
void control_serve(struct control *c, const struct control_facts *facts, struct shelf *s);
/* Return the eventfd that wakes the socket's thread, which then calls signals_kick(). */
int control_wake_fd(const struct control *c);
/* Call fn in another thread. control_leave() waits for it. Returns false if no thread is available
 * or nothing is served. Any thread may call this. */
bool control_do(struct control *c, void (*fn)(void *arg), void *arg);
/* Note that the mount is no longer served, and wait for the requests that have begun. Returns 0, or
 * the -errno with which an edit was lost after the mount had left this mount namespace. */
int control_leave(struct control *c);
/* Add the outcome to the status: the reason of a failure (e, or NULL), the edits that did not reach
 * the file, and the backups that were made. */
void control_end(struct control *c, const struct err *e, const struct buf *lost,
                 const struct buf *backups);
/* Close the socket, so that clients stop waiting even if a hanging disk keeps the process from
 * ending. `c` may be NULL. */
void control_close(struct control *c);

/*
 * ---- the signals that end a session: SIGTERM, SIGINT and SIGHUP ----
 *
 * Whenever one arrives, the session's loop returns, and the process goes on. libfuse's own handlers
 * set a flag that its loop checks before it waits, so a signal between the check and the wait would
 * have no effect until the next request. So the handler wakes the control thread, which interrupts
 * the wait until the loop has returned. Until the session is served, a signal interrupts no call;
 * mounting completes, and the loop then ends immediately.
 *
 *     signals_begin(se);            before the process detaches: from here on no signal is lost
 *     signals_serve(fd);            in the serving process; this thread runs the loop
 *     ... the loop ...
 *     signals_served();             it has returned
 *     signals_end();                pending edits are written
 */
void signals_begin(struct fuse_session *se);
/* `fd` is an eventfd that stays open until signals_end() or the end of the process. */
void signals_serve(int fd);
/* Interrupt the loop's wait if a signal has arrived. Returns true if this must be called again in a
 * few milliseconds. */
bool signals_kick(void);
/* Return true if a signal arrived while the session was served. */
bool signals_served(void);
/* Ignore the signals until the process ends, as its exit status is decided. */
void signals_end(void);

#endif
