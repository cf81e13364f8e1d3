/* SPDX-License-Identifier: MIT */
/*
 * Handles signals that end a session: SIGTERM, SIGINT, SIGHUP. Each makes the session's loop
 * return, whenever it arrives, and never ends the process. libfuse's own handlers set a flag that
 * its loop checks before it waits: a signal between the two would have no effect until the next
 * request. Until the session is served, a signal interrupts no call: mounting completes, and the
 * loop ends immediately.
 *
 *     signals_begin(se);            before the process detaches: from here on no signal is lost
 *     signals_serve(fd);            in the serving process; this thread runs the loop
 *     ... the loop ...
 *     signals_served();             it has returned
 *     signals_end();                pending edits are written
 *
 * A signal may arrive between the loop's check of the flag and its wait. So another thread, which
 * the handler wakes, interrupts the wait until the loop has returned (signals_kick()).
 *
 * Threads: all other calls come from one thread; one session for each process.
 */
#ifndef MOUNT_SIGNALS_H
#define MOUNT_SIGNALS_H

#include <stdbool.h>

struct fuse_session;

void signals_begin(struct fuse_session *se);
/* fd: an eventfd that stays open until the process ends or the other thread has stopped kicking. */
void signals_serve(int fd);
/* Interrupt the wait of the loop, if a signal arrived. Returns true if it must be called again in a
 * few milliseconds. */
bool signals_kick(void);
/* True if a signal arrived while the session was served. */
bool signals_served(void);
/* Ignore the signals until the process ends, because the exit status is decided. */
void signals_end(void);

#endif
