/* SPDX-License-Identifier: MIT */
/*
 * What a person asks first about a model: one table of facts (summary.c), shown as lines
 * ("label:          value"), as members of a JSON object, and as a line of a table of models.
 *
 * Threads: pure functions of an immutable model.
 */
#ifndef CHECK_SUMMARY_H
#define CHECK_SUMMARY_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "text/json.h"

struct summary {
    const struct gguf *g; /* of a split model: merged */
    const char *file;     /* the name of its file, without folders */
    size_t shards;        /* files of a split model; 0: it is not split */
    uint64_t missing;     /* bytes of tensor data that are not in the files */
};

/* Columns of a line before its value. */
#define SUMMARY_LABEL 17

void summary_text(const struct summary *s, struct buf *out);
/* "4.2 GiB", or plain bytes below 1 KiB. */
void summary_size(struct buf *out, uint64_t bytes);

/* Add a member for each fact to an object. */
void summary_json(const struct summary *s, struct json *j);

/*
 * Columns of a table of models: the head of number i, NULL past the last, and the cell ("-": none).
 */
const char *summary_head(size_t i);
void summary_cell(const struct summary *s, size_t i, struct buf *out);

#endif
