/* SPDX-License-Identifier: MIT */
/*
 * The differences between two models, as text for a terminal and as JSON. Names and values are made safe to print.
 *
 * The text goes to a sink in parts and is never held as a whole. Threads: any.
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

/* 0, -ENOMEM. */
int diff_text(const struct diff *d, bool colours, diff_sink *sink, void *arg);
/* One object, without a final newline. all: include what is the same. 0, -ENOMEM. */
int diff_json(const struct diff *d, bool all, diff_sink *sink, void *arg);

#endif
