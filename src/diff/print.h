/* SPDX-License-Identifier: MIT */
/*
 * Prints the differences between two models, as text for a terminal and as JSON. Names and values
 * are made safe to print.
 *
 * The sink gets the text in parts, so it is never in memory as a whole. Any thread may print.
 */
#ifndef DIFF_PRINT_H
#define DIFF_PRINT_H

#include "base/buf.h"
#include "diff/tensors.h"

struct diff {
    const struct side *side[2]; /* A and B */
    bool keys_wanted, tensors_wanted;
    struct pairs keys, tensors;
    struct tensor_diff *of; /* one per pair of tensors */
};

bool diff_is_same(const struct diff *d);

typedef void diff_sink(void *arg, const struct buf *text);

/* Print text. Returns 0 or -ENOMEM. */
int diff_text(const struct diff *d, bool colours, diff_sink *sink, void *arg);
/* Print one object, without a final newline. all: include equal items. Returns 0 or -ENOMEM. */
int diff_json(const struct diff *d, bool all, diff_sink *sink, void *arg);

#endif
