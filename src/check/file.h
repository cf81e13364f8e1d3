/* SPDX-License-Identifier: MIT */
/*
 * A model checked: opened, parsed as far as it goes, all rules applied. Of a split model all files
 * are: each by the rules of files, and merged by those of models.
 */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

/* What the worst finding of a model is, notes aside; the worse the higher. */
enum check_outcome { CHECK_CLEAN, CHECK_WARNINGS, CHECK_ERRORS, CHECK_UNUSABLE };

struct check_options {
    bool values; /* look at every value of every tensor too */
    /* Ids of rules whose findings are left out; not those that make a model unusable. */
    const char *const *ignore;
    size_t n_ignore;
    /* Of that: bytes done; by any thread, one at a time. May be NULL. */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path` (symbolic links are followed; the name that is checked is the path's);
 * of a split model any file may be given, and the others are found as model/split.h tells. A header
 * that an interrupted edit still has to write is applied in memory. Unusable is what a mount
 * refuses; the sink is told why, as an error of the rule "structure", or "split" where the files do
 * not go together. Findings are labelled by the path of the file that they are about; those of a
 * split model as a whole by the first file's.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif
