/* SPDX-License-Identifier: MIT */
/*
 * The main facts about a model, in one table (summary.c). They are shown as lines ("label: value"),
 * as members of a JSON object, and as a line of a table of models.
 *
 * Except for summary_open(), all functions are pure functions of an immutable model.
 */
#ifndef CHECK_SUMMARY_H
#define CHECK_SUMMARY_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "text/json.h"

struct summary {
    struct gguf *g;   /* merged if the model is split */
    const char *file; /* file name without directories */
    size_t shards;    /* number of files of a split model; 0: not split */
    size_t absent;    /* how many of them do not exist */
    uint64_t missing; /* number of bytes of tensor data missing from the files */
};

/* Width of a label in columns. */
#define SUMMARY_LABEL 17

void summary_text(const struct summary *s, struct buf *out);
/* Append "4.2 GiB", or plain bytes below 1 KiB. */
void summary_size(struct buf *out, uint64_t bytes);

/* Add a member for each fact to an object. */
void summary_json(const struct summary *s, struct json *j);

/* The columns of a table of models, and a model's cells ("-" without a value), each after a tab. */
#define SUMMARY_HEAD "\tARCHITECTURE\tPARAMETERS\tSIZE\tTYPE\tCONTEXT"
void summary_row(const struct summary *s, struct buf *out);

/*
 * Read only the headers of the model at `path`, which may be a pipe (edit/open.h). What is missing
 * of the first header, and other files of a split model that are missing, are no failure. Returns
 * 0, or -errno with the message that a mount would print. The caller frees ret->g.
 */
int summary_open(const char *path, struct summary *ret, struct err *e);
/* Return the number of bytes of tensor data missing from the file. */
uint64_t summary_missing(const struct gguf *g);

#endif
