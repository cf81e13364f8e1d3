/* SPDX-License-Identifier: MIT */
/*
 * ggufs --diff. Exit status as diff(1): 0 the same, 1 different, 2 trouble.
 */
#ifndef COMMAND_DIFF_H
#define COMMAND_DIFF_H

#include "command.h"

int command_diff(const struct command_args *a);

#endif
