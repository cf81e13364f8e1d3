/* SPDX-License-Identifier: MIT */
/*
 * A daemon's control socket, through which other ggufs processes read its status and send it
 * requests.
 *
 *     r = control_begin(mountpoint, &handles, &c, &e);   before the serving process locks the model
 *     control_serve(c, &facts, shelf);                  once it is mounted
 *     control_ends(c);                                  optional: the session is about to end
 *     control_leave(c);                                 once its loop has ended
 *     control_rest(c);                                  before the models are closed
 *     control_end(c, &e, lost, backups);                once everything is written or has failed
 *     control_close(c);                                 once the model is closed and unlocked
 *
 * The socket is abstract, so it can be reached from every mount namespace. Its name consists of
 * CONTROL_PREFIX, a hash of the mount point and a random number. Only the daemon's user and root
 * get answers. A client sends one line:
 *
 *     watch [MAJOR:MINOR:INODE]   send the status, "holds" if the process has locked this file, and
 *                                 "now"; then send new lines until the model is closed
 *     sync                        write the accepted edits
 *     has PLACE                   succeed, without text, if this model exists (shelf_ask())
 *     undo NUMBER PLACE           like --undo; 0 means the state before the last edits
 *     history PLACE               like --history
 *     clear PLACE                 like --history=clear
 *
 * A status consists of lines "WORD VALUE", in which paths have octal escapes as in
 * /proc/self/mountinfo; lines are added but never changed. The answer to any other request consists
 * of optional text and a last line "end ERRNO MESSAGE".
 *
 * The mount may leave the daemon's mount namespace while another namespace keeps it alive ("gone").
 * Pending edits are then written. Once nothing is open for writing, further edits are refused and
 * the model's lock is released ("free"; until then "held").
 *
 * After a signal or the end of the connection, a hung request or task keeps the session from
 * ending. If control_rest() has not returned after two seconds, another thread takes the mount down
 * and writes accepted edits.
 *
 * One thread answers the clients, unmounts an idle mount (`-o idle=`), and interrupts the session's
 * loop after a signal. Long tasks run in other threads. Only one thread may call these functions,
 * unless stated otherwise.
 */
#ifndef MOUNT_CONTROL_H
#define MOUNT_CONTROL_H

#include <sys/types.h>

#include "base/err.h"
#include "mount/ops.h"
#include "shelf/shelf.h"

/* A socket's name consists of this prefix, control_place() as 16 hexadecimal digits, "-", and a
 * random number. */
#define CONTROL_PREFIX "ggufs-"
uint64_t control_place(const char *mountpoint);

/* Maximum size in bytes of the lines about lost edits, and of those about backups. */
#define CONTROL_LOST_MAX ((size_t)64 << 10)
/* Maximum size in bytes of a request, enough for a path in which every byte is escaped. */
#define CONTROL_LINE_MAX ((size_t)20 << 10)

struct control;
/* The pointers must stay valid until control_rest(). */
struct control_facts {
    const char *at;        /* the mount point; its real path if known */
    const char *model;     /* the model's real path */
    const char *read_only; /* why the mount is read-only; NULL: it is read-write */
    dev_t dev;             /* the mount's device; 0: unknown */
    unsigned idle;         /* seconds without open files before the mount is removed; 0: never */
    /* Ends the connection and unmounts, but only once, whichever threads call it; may be NULL. */
    void (*leave)(void *arg);
    void *leave_arg;
};

/* Start listening. `h` holds the mount's handles. Without a socket, commands cannot find the
 * daemon. */
int control_begin(const char *mountpoint, struct handles *h, struct control **ret, struct err *e);
void control_serve(struct control *c, const struct control_facts *facts, struct shelf *s);
/* Return the eventfd that wakes the socket's thread, which then calls signals_kick(). */
int control_wake_fd(const struct control *c);
/* Call fn in another thread. control_rest() waits until fn returns. Returns false if no thread is
 * available or the mount is not being served. Any thread may call this. */
bool control_do(struct control *c, void (*fn)(void *arg), void *arg);
/* Record that the connection to the kernel has ended. Any thread may call this. */
void control_ends(struct control *c);
/* Record that the mount is no longer served. No more requests or tasks begin. */
void control_leave(struct control *c);
/* Wait for the requests and tasks that have begun. Returns 0, or -errno if an edit was lost when a
 * task wrote accepted edits because the mount was gone. */
int control_rest(struct control *c);
/* Add the outcome to the status: the reason for a failure (`e`; NULL: no failure), the edits that
 * did not reach the file, and the backups that were made. */
void control_end(struct control *c, const struct err *e, const struct buf *lost,
                 const struct buf *backups);
/* Close the socket, so that clients stop waiting even if a hung disk keeps the process from ending.
 * `c` may be NULL. */
void control_close(struct control *c);

/*
 * ---- the signals that end a session: SIGTERM, SIGINT and SIGHUP ----
 *
 * When one arrives, the session's loop returns and the process continues. libfuse's own handlers
 * only set a flag, which its loop checks before it waits, so a signal between the check and the
 * wait would have no effect until the next request. The handler here also wakes the control thread,
 * which interrupts the wait repeatedly until the loop has returned. Before the session is served, a
 * signal does not interrupt any call: mounting completes, and the loop then ends immediately.
 *
 *     signals_begin(se);            before the process detaches: from here on no signal is lost
 *     signals_serve(fd);            in the serving process, by the thread that runs the loop
 *     ... the loop ...
 *     signals_served();             the loop has returned
 *     signals_end();                pending edits have been written
 */
void signals_begin(struct fuse_session *se);
/* `fd` is an eventfd that stays open until signals_end() or the end of the process. */
void signals_serve(int fd);
/* Interrupt the loop's wait if a signal has arrived. Returns true if this must be called again in a
 * few milliseconds. */
bool signals_kick(void);
/* Stop interrupting the loop's wait. Returns true if a signal has arrived since signals_begin(). */
bool signals_served(void);
/* Ignore the signals until the process ends, because its exit status is already decided. */
void signals_end(void);

#endif
