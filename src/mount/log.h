/* SPDX-License-Identifier: MIT */
/* Writes log lines to standard error or, once the process is a daemon, to syslog(3). Any thread may
 * call these functions. */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <syslog.h>

/* Log a line, given without its newline. `priority` is LOG_ERR, LOG_WARNING, LOG_NOTICE, LOG_INFO
 * or LOG_DEBUG. */
void log_line(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Log a line that needs no formatting. */
void log_plain(int priority, const char *line);
/* Send all later lines to syslog. */
void log_to_syslog(void);
/* Send libfuse's own messages to the same log. */
void log_take_libfuse(void);

#endif
