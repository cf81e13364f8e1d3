/* SPDX-License-Identifier: MIT */
/* --history and --undo. Of a mounted model the daemon does what is asked. */
#ifndef COMMAND_HISTORY_H
#define COMMAND_HISTORY_H

#include "command.h"

int command_history(const struct command_args *a);
int command_undo(const struct command_args *a);

#endif
