/* SPDX-License-Identifier: MIT */
/*
 * The commands other than mounting: ggufs --COMMAND[=VALUE] [OPTION...] OPERAND...
 *
 * All share one parser and one table of options (mount/options.h). Options may precede the command,
 * and may follow operands up to "--".
 */
#ifndef COMMAND_H
#define COMMAND_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "mount/options.h"

struct command_given {
    enum option_id id;
    const char *value; /* the text after "="; NULL: the option has no value */
};

struct command_args {
    const char *value; /* the text after the command's "="; NULL: not given */
    struct command_given *option;
    size_t n_options;
    char **operand; /* at least one, if the command takes operands */
    int n;          /* number of operands, within the command's limits */
};

/* Print to standard output. An empty `text` may have NULL data. */
void command_print(const struct buf *text);
/* Print "ggufs: NAME: WHY" to standard error, after earlier output. `name` is NULL or already safe
 * to print. Returns `status`. */
int command_failed(const char *name, const char *why, int status);
/* Print "ggufs: COMMAND: WHY (see ggufs --help)" to standard error. Returns -1. */
int command_misused(const char *command, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Return the name of a model: its label, relative to the directory. */
struct model_path;
const char *command_label(const struct model_path *m, const char *folder);
/* Show how far a command is, on a terminal: "WHAT: 12 %". Without a `what`, clear that line. One
 * thread at a time may call this. */
void command_progress(void *what, uint64_t done, uint64_t total);

#endif
