/* SPDX-License-Identifier: MIT */
/* A model that satisfies every rule of --check, and rows that each change one property of it. */
#ifndef TESTS_LIB_CHECK_ROWS_H
#define TESTS_LIB_CHECK_ROWS_H

#include "build_gguf.h"
#include "check/check.h"

#define CHECK_GOOD_NAME "Tiny-3.5K-v1.0-Q4_0.gguf"

struct check_row {
    const char *rule; /* the only rule with a finding; NULL: no finding */
    enum check_severity severity;
    const char *without; /* key to omit */
    const char *lacks;   /* tensor to omit */
    void (*add)(struct build *b);
    const char *file; /* file name, if not the valid model's */
    uint8_t version;  /* version, if not 3 */
    bool big;
    bool bare;   /* no tensors */
    uint8_t cut; /* bytes cut off the end of the file */
    /* Ids of rules that apply to the model and are satisfied, each id between blanks. */
    const char *keeps;
};

extern const struct check_row check_rows[];
extern const size_t n_check_rows;

/* Add all of the valid model's keys, or tensors, except `without` (NULL: no exception). */
void check_put_keys(struct build *b, const char *without);
void check_put_tensors(struct build *b, const char *without);

#endif
