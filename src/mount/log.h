/* SPDX-License-Identifier: MIT */
/*
 * The log: lines to standard error in the foreground, to syslog(3) as a daemon. The only state of
 * the process is where lines go; it changes once, when the daemon leaves its terminal.
 * Threads: any.
 */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <syslog.h>

/* A line, without newline; `priority` is LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO or LOG_DEBUG. */
void log_line(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same for a line that is ready. */
void log_plain(int priority, const char *line);
/* From now on to syslog. */
void log_to_syslog(void);
/* libfuse's own messages go the same way from now on. */
void log_take_libfuse(void);

#endif
