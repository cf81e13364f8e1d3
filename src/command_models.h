/* SPDX-License-Identifier: MIT */
/* Commands that inspect models without mounting them. */
#ifndef COMMAND_MODELS_H
#define COMMAND_MODELS_H

#include "command.h"

/*
 * ggufs --info: a text for each model, a table for directories, or a JSON array. Exit status: 0, 1
 * if a model could not be read, 2 misused.
 */
int command_info(const struct command_args *a);
/*
 * ggufs --check. Exit status: 0 no errors (with --strict: nor warnings), 1 errors,
 * 2 unusable or misused.
 */
int command_check(const struct command_args *a);

#endif
