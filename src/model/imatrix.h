/* SPDX-License-Identifier: MIT */
/*
 * An importance matrix: of tensors of a model, how much each column matters to what the model
 * computes. llama.cpp writes one from a run of the model, as a GGUF file or, before 2025, as a list of
 * its own (.dat). docs/format.md has both.
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
    char *name; /* owned: of a tensor */
    size_t len;
    float *of; /* owned: of each column, matrices one after another */
    uint64_t n;
};

struct imatrix {
    struct buf path; /* as it was asked for, fit to print */
    struct imatrix_row *row;
    size_t n, cap;
    struct index names;
    uint64_t chunks; /* of text that it was made from; 0: not known */
};

/* 0, -EBADMSG (not an importance matrix, damaged, or values that cannot be), -ENOMEM, -errno; with a line. */
int imatrix_open(const char *path, struct imatrix **ret, struct err *e);
/* The same of bytes that are called `path` in lines. */
int imatrix_parse(const struct source *s, const char *path, struct imatrix **ret, struct err *e);
void imatrix_free(struct imatrix *m); /* may be NULL */

/* What it has of a tensor; NULL: nothing. m may be NULL. */
const struct imatrix_row *imatrix_find(const struct imatrix *m, const void *name, size_t n);
/*
 * A row as the importances of a tensor with these dimensions (none: one of 1). 0, -EINVAL with a line:
 * it is of another size.
 */
int imatrix_fit(const struct imatrix_row *r, uint32_t n_dims, const uint64_t *dims,
                struct quant_importances *ret, struct err *e);

#endif
