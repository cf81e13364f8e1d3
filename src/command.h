/* SPDX-License-Identifier: MIT */
/* The commands besides mounting: ggufs --COMMAND ARGUMENT... */
#ifndef COMMAND_H
#define COMMAND_H

#include <stdbool.h>

/* If the first argument names a command: run it, set *status to the process's, return true. */
bool command_run(int argc, char **argv, int *status);

#endif
