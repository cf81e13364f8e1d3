/* SPDX-License-Identifier: MIT */
/* Log lines of a library: see logger.h. */
#include "base/logger.h"

#include <stdarg.h>
#include <stdio.h>

void logger_log(const struct logger *l, int priority, const char *fmt, ...)
{
    char line[1024];
    const char *label = l->label ? l->label : "";
    va_list ap;
    if (!l->line)
        return;
    int n = snprintf(line, sizeof(line) / 2, "%s%s", label, l->label ? ": " : "");
    size_t at = n < 0 ? 0 : (size_t)n < sizeof(line) / 2 ? (size_t)n : sizeof(line) / 2 - 1;
    va_start(ap, fmt);
    (void)vsnprintf(line + at, sizeof(line) - at, fmt, ap);
    va_end(ap);
    l->line(priority, line);
}
