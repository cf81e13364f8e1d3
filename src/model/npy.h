/* SPDX-License-Identifier: MIT */
/*
 * Reads and writes the header of NumPy's file format: magic, version, the length of the rest, and a
 * Python dict padded with spaces and terminated by a newline, so that the data begins at a multiple
 * of 64. Writes format 1.0; reads 1.0, 2.0 and 3.0. All functions are pure.
 */
#ifndef MODEL_NPY_H
#define MODEL_NPY_H

#include "base/buf.h"
#include "base/err.h"

enum {
    NPY_MAX_DIMS = 4,       /* ggml's limit, for arrays that become tensors */
    NPY_MAX_HEADER = 65536, /* longest accepted header; NumPy's is usually 128 bytes long */
};

struct npy {
    uint32_t header;             /* size of the header in bytes; the data starts there */
    uint32_t width;              /* bytes per value: 4 (`<f4`), 2 (`<f2`) or 8 (`<f8`) */
    bool fortran;                /* the values are in Fortran order */
    uint32_t n_dims;             /* 1 to NPY_MAX_DIMS */
    uint64_t dims[NPY_MAX_DIMS]; /* the first varies fastest, the reverse of NumPy's order */
    uint64_t n_elem;
};

/* Return the size of a file with this array. */
static inline uint64_t npy_size(const struct npy *npy)
{
    return npy->header + npy->n_elem * npy->width;
}

/* Append the header for an array of this type, with dims as in struct npy. Returns its length. */
size_t npy_header(struct buf *out, const char *descr, uint32_t n_dims, const uint64_t *dims);

/* Returned by npy_parse() if more bytes could complete the header. */
#define NPY_MORE 1
/*
 * Parse the header at the start of n bytes. Returns 0, NPY_MORE or -EINVAL (not a header, or not
 * an array of floats that a tensor can hold). Rank 0 becomes one dimension of 1.
 */
int npy_parse(const uint8_t *p, size_t n, struct npy *ret, struct err *e);

#endif
