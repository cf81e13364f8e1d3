/* SPDX-License-Identifier: MIT */
/* ggufs --diff. The exit status is like that of diff(1): 0 if equal, 1 if different, 2 in case of
 * trouble. */
#ifndef COMMAND_DIFF_H
#define COMMAND_DIFF_H

#include "command.h"

int command_diff(const struct command_args *a);

#endif
