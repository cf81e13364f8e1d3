/* SPDX-License-Identifier: MIT */
/*
 * ggufs --info. Prints a text for each model, a table for folders, or a JSON array.
 * Exit status: 0, 1 if a model could not be read, 2 misused.
 */
#ifndef COMMAND_INFO_H
#define COMMAND_INFO_H

#include "command.h"

int command_info(const struct command_args *a);

#endif
