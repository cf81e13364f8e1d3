/* SPDX-License-Identifier: MIT */
/*
 * ggufs --diff. The exit status is that of diff(1): 0 equal, 1 different, 2 trouble.
 */
#ifndef COMMAND_DIFF_H
#define COMMAND_DIFF_H

#include "command.h"

int command_diff(const struct command_args *a);

#endif
