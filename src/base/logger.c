/* SPDX-License-Identifier: MIT */
/* Log lines of a library: see logger.h. */
#include "base/logger.h"

#include <stdio.h>

void logger_vlog(const struct logger *l, int priority, const char *fmt, va_list ap)
{
    char line[1024];
    const char *label = l->label ? l->label : "";
    if (!l->line)
        return;
    int n = snprintf(line, sizeof(line) / 2, "%s%s", label, l->label ? ": " : "");
    size_t at = n < 0 ? 0 : (size_t)n < sizeof(line) / 2 ? (size_t)n : sizeof(line) / 2 - 1;
    (void)vsnprintf(line + at, sizeof(line) - at, fmt, ap);
    l->line(priority, line);
}

void logger_log(const struct logger *l, int priority, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    logger_vlog(l, priority, fmt, ap);
    va_end(ap);
}
