/* SPDX-License-Identifier: MIT */
/*
 * Where a library's log lines go: to a function that the caller supplies, each line prefixed with a label that names
 * the model.
 *
 * Threads: any, if the function may be called by any.
 */
#ifndef BASE_LOGGER_H
#define BASE_LOGGER_H

struct logger {
    void (*line)(int priority, const char *line); /* syslog(3)'s levels. NULL: lines are dropped */
    const char *label; /* not owned; "LABEL: " comes first. May be NULL */
};

void logger_log(const struct logger *l, int priority, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
