/* SPDX-License-Identifier: MIT */
/*
 * Check a model: open it, parse it as far as possible, apply all rules. For a split model that
 * means all its files: each by the rules about files, and merged by those about models.
 */
#ifndef CHECK_FILE_H
#define CHECK_FILE_H

#include "check/check.h"

/* The worst finding of a model, not counting notes; worse is higher. */
enum check_outcome { CHECK_CLEAN, CHECK_WARNINGS, CHECK_ERRORS, CHECK_UNUSABLE };

struct check_options {
    bool values; /* also check every value of every tensor */
    /* Ids of rules whose findings are left out, with commas between, or NULL; not those that make a model unusable. */
    const char *ignore;
    /*
     * Reports the bytes of tensors already checked. Called by any thread, one at a time. May be
     * NULL.
     */
    void (*progress)(void *arg, uint64_t done, uint64_t total);
    void *arg;
};

/*
 * Check the model at `path`. Symbolic links are followed, but the name is checked as in the path.
 * Any file of a split model may be given; model/split.h explains how the others are found. A header
 * that an interrupted edit still has to write is applied in memory. Unusable means that a mount
 * refuses the model. The sink gets the reason as an error of the rule "structure", or "split" if
 * the files do not fit together. A finding is labelled with the path of its file; a finding about a
 * whole split model with the path of the first file.
 */
enum check_outcome check_file(const char *path, const struct check_options *o, check_sink *sink,
                              void *arg);

#endif
