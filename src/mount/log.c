/* SPDX-License-Identifier: MIT */
/* Writes the log: see log.h. */
#include "mount/log.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
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

void log_line(int priority, const char *fmt, ...)
{
    char line[LOG_LINE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    log_plain(priority, line);
}

void log_to_syslog(void)
{
    openlog("ggufs", LOG_PID, LOG_DAEMON);
    atomic_store(&daemonized, true);
}

static void on_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

/* libfuse uses syslog's levels. */
static void on_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
    char line[LOG_LINE_MAX];
    (void)vsnprintf(line, sizeof(line), fmt, ap);
    line[strcspn(line, "\n")] = '\0';
    log_plain((int)level, line);
}

void log_take_libfuse(void)
{
    fuse_set_log_func(on_libfuse);
}

/* ---- capturing standard error ---- */

struct caught catch_begin(void)
{
    struct caught c = {.file = memfd_create("ggufs-stderr", MFD_CLOEXEC)};
    (void)fflush(stderr);
    c.stderr_fd = c.file < 0 ? -1 : fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    if (c.stderr_fd >= 0)
        (void)dup2(c.file, STDERR_FILENO);
    return c;
}

void catch_end(struct caught *c, char *dst, size_t size)
{
    static const char *const writers[] = {"ggufs: ", "fuse: ", "fusermount3: "};
    char all[2048];
    (void)fflush(stderr);
    ssize_t n = c->file < 0 ? 0 : pread(c->file, all, sizeof(all) - 1, 0);
    if (c->stderr_fd >= 0) {
        (void)dup2(c->stderr_fd, STDERR_FILENO);
        (void)close(c->stderr_fd);
    }
    if (c->file >= 0)
        (void)close(c->file);
    while (n > 0 && all[n - 1] == '\n')
        n--;
    all[n > 0 ? n : 0] = '\0';
    const char *line = strrchr(all, '\n');
    line = line ? line + 1 : all;
    for (size_t i = 0; i < COUNT(writers); i++)
        if (strncmp(line, writers[i], strlen(writers[i])) == 0)
            line += strlen(writers[i]);
    (void)show_in(dst, size, line, strlen(line));
}
