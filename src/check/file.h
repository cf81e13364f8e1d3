/* SPDX-License-Identifier: MIT */
/* A model file checked: opened, parsed as far as it goes, all rules applied. */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

/* Numbered as the command's exit status. Notes are no findings here. */
enum check_outcome { CHECK_CLEAN = 0, CHECK_FINDINGS = 1, CHECK_UNUSABLE = 2 };

struct check_options {
    bool values; /* look at every value of every tensor too */
    /* Of that: bytes done; by any thread, one at a time. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the file at `path` (symbolic links are followed; the name that is checked is the path's). A
 * header that an interrupted edit still has to write is applied in memory. Unusable is what a mount
 * refuses; the sink is told why, as an error of the rule "structure".
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif
