/* SPDX-License-Identifier: MIT */
/*
 * Handles the signals that end a session: SIGTERM, SIGINT and SIGHUP. Whenever one arrives, it
 * makes the session's loop return, and it never ends the process. libfuse's own handlers set a flag
 * that its loop checks before it waits, so a signal between the check and the wait would have no
 * effect until the next request. Until the session is served, a signal interrupts no call; mounting
 * completes, and the loop then ends immediately.
 *
 *     signals_begin(se);            before the process detaches: from here on no signal is lost
 *     signals_serve(fd);            in the serving process; this thread runs the loop
 *     ... the loop ...
 *     signals_served();             it has returned
 *     signals_end();                pending edits are written
 *
 * As a signal may arrive between the loop's check and its wait, the handler wakes another thread,
 * which keeps interrupting the wait (signals_kick()) until the loop has returned.
 *
 * All other calls come from one thread. A process has only one session.
 */
#ifndef MOUNT_SIGNALS_H
#define MOUNT_SIGNALS_H

#include <stdbool.h>

struct fuse_session;

void signals_begin(struct fuse_session *se);
/* `fd` is an eventfd that stays open until the process ends or the other thread has stopped
 * kicking. */
void signals_serve(int fd);
/* Interrupt the loop's wait if a signal has arrived. Returns true if this must be called again in a
 * few milliseconds. */
bool signals_kick(void);
/* Return true if a signal arrived while the session was served. */
bool signals_served(void);
/* Ignore the signals until the process ends, as its exit status is decided. */
void signals_end(void);

#endif
