/* SPDX-License-Identifier: MIT */
/* Writes the log: see log.h. */
#include "mount/log.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

#define LOG_LINE_MAX 1024 /* size in bytes; every syslogd accepts lines of this size */

static atomic_bool daemonized;

void log_plain(int priority, const char *line)
{
    /* Names in the line are already safe to print. This call also makes libfuse's text safe, and a
     * character that was cut off at the end of the line. */
    char safe[LOG_LINE_MAX];
    (void)show_in(safe, sizeof(safe), line, strlen(line));
    if (atomic_load(&daemonized))
        syslog(priority, "%s", safe);
    else
        (void)fprintf(stderr, "ggufs: %s\n", safe);
}

/* Also for libfuse, whose levels are syslog's. */
__attribute__((format(printf, 2, 0))) static void log_va(enum fuse_log_level priority,
                                                         const char *fmt, va_list ap)
{
    char line[LOG_LINE_MAX];
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    log_plain((int)priority, line);
}

void log_line(int priority, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_va((enum fuse_log_level)priority, fmt, ap);
    va_end(ap);
}

void log_to_syslog(void)
{
    openlog("ggufs", LOG_PID, LOG_DAEMON);
    atomic_store(&daemonized, true);
}

void log_take_libfuse(void)
{
    fuse_set_log_func(log_va);
}
