/* SPDX-License-Identifier: MIT */
/* Preloaded into a program, this library intercepts syslog(3): each line is appended to the file
 * that LOGTAP names, followed by a NUL, and does not reach the system log. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void syslog(int priority, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void __syslog_chk(int priority, int flag, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void tap(const char *fmt, va_list ap) __attribute__((format(printf, 1, 0)));

static void tap(const char *fmt, va_list ap)
{
    char line[65536];
    const char *name = getenv("LOGTAP");
    int n = vsnprintf(line, sizeof(line), fmt, ap);
    int fd = name ? open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (n < 0 || (size_t)n >= sizeof(line) || fd < 0 || write(fd, line, (size_t)n + 1) < 0)
        abort();
    (void)close(fd);
}

void syslog(int priority, const char *fmt, ...)
{
    va_list ap;
    (void)priority;
    va_start(ap, fmt);
    tap(fmt, ap);
    va_end(ap);
}

/* A program built with _FORTIFY_SOURCE calls this function instead. */
void __syslog_chk(int priority, int flag, const char *fmt, ...)
{
    va_list ap;
    (void)priority;
    (void)flag;
    va_start(ap, fmt);
    tap(fmt, ap);
    va_end(ap);
}
