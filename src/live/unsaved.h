/* SPDX-License-Identifier: MIT */
/*
 * Notes about edits that did not reach the file: a path in the model (without "metadata/") and the reason, as
 * consecutive NUL-terminated texts. So they can outlive the open model (live_recall()).
 *
 *     for (struct note n = {0}; unsaved_next(&notes, &n);) ... n.path, n.why ...
 *
 * Threads: those of the buffer.
 */
#ifndef LIVE_UNSAVED_H
#define LIVE_UNSAVED_H

#include <stdbool.h>

#include "base/buf.h"

/* Precedes the path of a tensor. */
#define UNSAVED_TENSOR "tensors/"

struct note {
    const char *path, *why;
    size_t next; /* where the next one is */
};

void unsaved_add(struct buf *notes, const char *folder, const char *name, const char *why);
/* False: there are no more. */
bool unsaved_next(const struct buf *notes, struct note *n);
/* A line for each: "PATH: WHY". */
void unsaved_lines(const struct buf *notes, struct buf *out);

#endif
