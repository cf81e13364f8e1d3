/* SPDX-License-Identifier: MIT */
/*
 * The main facts about a model, in one table (summary.c). They are shown as lines ("label: value"),
 * as members of a JSON object, and as a line of a table of models.
 *
 * All are pure functions of an immutable model.
 */
#ifndef CHECK_SUMMARY_H
#define CHECK_SUMMARY_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "text/json.h"

struct summary {
    const struct gguf *g; /* merged if the model is split */
    const char *file;     /* file name without directories */
    size_t shards;        /* number of files of a split model; 0: not split */
    uint64_t missing;     /* number of bytes of tensor data missing from the files */
};

/* Width of a label in columns. */
#define SUMMARY_LABEL 17

void summary_text(const struct summary *s, struct buf *out);
/* Append "4.2 GiB", or plain bytes below 1 KiB. */
void summary_size(struct buf *out, uint64_t bytes);

/* Add a member for each fact to an object. */
void summary_json(const struct summary *s, struct json *j);

/* Return the head of column i of a table of models, or NULL past the last column. The second
 * function writes a cell ("-" without a value). */
const char *summary_head(size_t i);
void summary_cell(const struct summary *s, size_t i, struct buf *out);

#endif
