/* SPDX-License-Identifier: MIT */
/* Writes log lines to standard error or, once the process is a daemon, to syslog(3). Any thread may
 * call these functions. */
#ifndef MOUNT_LOG_H
#define MOUNT_LOG_H

#include <stddef.h>
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

/* ---- capturing standard error ---- */

/* Captures standard error, where libfuse and fusermount3 write why they failed, in a file in
 * memory. What other threads write meanwhile is lost. */
struct caught {
    int stderr_fd; /* the real standard error; -1: it is not captured */
    int file;
};

struct caught catch_begin(void);
/* Restore standard error. dst gets the last captured line, safe to print and without the name of the
 * program that wrote it. */
void catch_end(struct caught *c, char *dst, size_t size);

#endif
