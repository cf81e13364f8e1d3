/* SPDX-License-Identifier: MIT */
/*
 * An importance matrix: how much each column of a model's tensors matters to what the model computes. llama.cpp
 * writes one from a run of the model, as a GGUF file or, before 2025, in a format of its own (.dat). docs/format.md
 * describes both.
 *
 * Nothing in the file is trusted. All importances are finite and not negative.
 *
 * Threads: immutable once it is open; any.
 */
#ifndef MODEL_IMATRIX_H
#define MODEL_IMATRIX_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "quant/encode.h"

struct imatrix_row {
    char *name; /* owned: the tensor's name */
    size_t len;
    float *of; /* owned: one value per column, matrices one after another */
    uint64_t n;
};

struct imatrix {
    struct buf path; /* as requested, made safe to print */
    struct imatrix_row *row;
    size_t n, cap;
    struct index names;
    uint64_t chunks; /* chunks of text it was made from; 0: unknown */
};

/* 0, -EBADMSG (not an importance matrix, damaged, or impossible values), -ENOMEM, -errno; fills in *e. */
int imatrix_open(const char *path, struct imatrix **ret, struct err *e);
/* The same for bytes from memory or a file; error lines call them `path`. */
int imatrix_parse(const struct source *s, const char *path, struct imatrix **ret, struct err *e);
void imatrix_free(struct imatrix *m); /* may be NULL */

/* The row for a tensor; NULL: there is none. m may be NULL. */
const struct imatrix_row *imatrix_find(const struct imatrix *m, const void *name, size_t n);
/*
 * A row as the importances of a tensor with these dimensions (none: a single 1). 0, or -EINVAL with a line if it has
 * another size.
 */
int imatrix_fit(const struct imatrix_row *r, uint32_t n_dims, const uint64_t *dims,
                struct quant_importances *ret, struct err *e);

#endif
