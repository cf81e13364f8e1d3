/* SPDX-License-Identifier: MIT */
/*
 * The log: lines to standard error in the foreground, to syslog(3) as a daemon. The destination is
 * the only global state; it changes once, when the daemon leaves its terminal.
 * Threads: any.
 */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <syslog.h>

/*
 * Log a line, without newline; priority: LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO or LOG_DEBUG.
 */
void log_line(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Log a line that needs no formatting. */
void log_plain(int priority, const char *line);
/* Send all later lines to syslog. */
void log_to_syslog(void);
/* Send libfuse's own messages to the same log. */
void log_take_libfuse(void);

#endif
