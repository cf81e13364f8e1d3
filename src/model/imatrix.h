/* SPDX-License-Identifier: MIT */
/*
 * Reads an importance matrix, which says how much each column of a model's tensors matters to the
 * model's output. llama.cpp writes one after running the model, as a GGUF file or, before 2025, in
 * its own format (.dat). docs/format.md describes both.
 *
 * The parser trusts nothing in the file. All importances that it returns are finite and not
 * negative.
 *
 * Threads: any. An importance matrix is immutable once open.
 */
#ifndef MODEL_IMATRIX_H
#define MODEL_IMATRIX_H

#include "base/buf.h"
#include "gguf/gguf.h"
#include "quant/encode.h"

struct imatrix_row {
    char *name; /* owned: the tensor's name */
    size_t len;
    float *of; /* owned: one value per column, one matrix after another */
    uint64_t n;
};

struct imatrix {
    struct buf path; /* the requested path, made safe to print */
    struct imatrix_row *row;
    size_t n, cap;
};

/* Open a file or parse a source; messages call the source `path`. Returns 0, -EBADMSG (not an
 * importance matrix, damaged, or impossible values), -ENOMEM or -errno. */
int imatrix_open(const char *path, struct imatrix **ret, struct err *e);
int imatrix_parse(const struct source *s, const char *path, struct imatrix **ret, struct err *e);
void imatrix_free(struct imatrix *m); /* m may be NULL */

/* Return a tensor's row, or NULL if it has no row. m may be NULL. */
const struct imatrix_row *imatrix_find(const struct imatrix *m, const void *name, size_t n);
/* Get a row's importances for a tensor with these dimensions. Returns 0, or -EINVAL if the row
 * does not fit the tensor. */
int imatrix_fit(const struct imatrix_row *r, uint32_t n_dims, const uint64_t *dims,
                struct quant_importances *ret, struct err *e);

#endif
