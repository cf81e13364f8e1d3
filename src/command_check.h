/* SPDX-License-Identifier: MIT */
/*
 * ggufs --check. Exit status: 0 no errors (with --strict: nor warnings), 1 errors,
 * 2 unusable or misused.
 */
#ifndef COMMAND_CHECK_H
#define COMMAND_CHECK_H

#include "command.h"

int command_check(const struct command_args *a);

#endif
