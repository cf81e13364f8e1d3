/* SPDX-License-Identifier: MIT */
/* ggufs --check[=full] [--json] MODEL... */
#ifndef COMMAND_CHECK_H
#define COMMAND_CHECK_H

#include <stdbool.h>

/* If an option before the first file is --check or --check=full: run it, set *status, true. */
bool command_check(int argc, char **argv, int *status);

#endif
