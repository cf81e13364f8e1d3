/* SPDX-License-Identifier: MIT */
/*
 * Writes log lines to standard error in the foreground, to syslog(3) as a daemon. The destination
 * is the only global state; it changes once, when the daemon leaves its terminal. Threads: any.
 */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <stddef.h>
#include <syslog.h>

/*
 * Log a line, without newline. priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO or LOG_DEBUG.
 */
void log_line(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Log a line that needs no formatting. */
void log_plain(int priority, const char *line);
/* Send all later lines to syslog. */
void log_to_syslog(void);
/* Send libfuse's own messages to the same log. */
void log_take_libfuse(void);

/* ---- standard error captured ---- */

/*
 * Captures standard error, where libfuse and fusermount3 write the reasons of failures. To report a
 * reason in one line, their output goes to a file in memory.
 *
 * Threads: standard error belongs to the whole process, so call these only before threads are
 * started; catch_last() may be called by any.
 */
struct caught {
    int stderr_fd; /* the real standard error, or -1: it is not captured */
    int file;
};

struct caught catch_begin(void);
/* Restore standard error. dst gets the last captured line, like from catch_last(). */
void catch_end(struct caught *c, char *dst, size_t size);

/* Copy the last line of such a file (-1: empty), safe to print and without the writer's name. */
void catch_last(int file, char *dst, size_t size);

#endif
