/* SPDX-License-Identifier: MIT */
/*
 * A directory with a model of one tensor, for tests that write to the tensor.
 *
 *     struct tensor_dir x;
 *     tensor_dir_make(&x, Q8_0_ID, false, SHAPE(256, 3), raw);         raw NULL: random
 *     ... x.f, x.base, x.raw ...
 *     tensor_dir_free(&x);
 */
#ifndef TESTS_LIB_TENSOR_DIR_H
#define TESTS_LIB_TENSOR_DIR_H

#include "faultsys.h"
#include "live/draft.h"
#include "live/tensor_judge.h"
#include "model_dir.h"

struct tensor_dir {
    char path[64];
    int dir;
    struct faultsys fs; /* used after tensor_dir_fault() */
    struct edit_file f; /* only directory and name are set */
    struct gguf *g;
    struct store *store;
    struct tensor_base *base; /* the tensor as stored in the file */
    uint8_t *raw;             /* bytes of the tensor */
    size_t n;
    struct logs logs; /* logs of drafts */
    struct lock lock; /* protects `logs` */
};

void tensor_dir_make(struct tensor_dir *x, uint32_t type, bool big, const uint64_t *dims,
                     uint32_t n_dims, const uint8_t *raw);
void tensor_dir_free(struct tensor_dir *x);
/* Send calls through x->fs from now on. Calls are counted correctly only on one thread, so use
 * tensors that take one unit of work. */
void tensor_dir_fault(struct tensor_dir *x, enum fault_mode mode, unsigned n, int error);
/* Encode n small whole numbers as this type. The caller frees the result. */
uint8_t *tensor_dir_encode(uint32_t type, bool big, size_t n);
/* Make a little-endian model whose tensor has the values of tensor_dir_encode(). */
void tensor_dir_sane(struct tensor_dir *x, uint32_t type, const uint64_t *dims, uint32_t n_dims);

/* Return the tensor that results from applying the edit to `now`. */
struct tensor_base *tensor_dir_after(const struct tensor_dir *x, const struct tensor_base *now,
                                     const struct tensor_edit *edit);
/* Return all bytes of a tensor's view. The caller frees them. */
uint8_t *tensor_dir_bytes(const struct tensor_base *base, enum tensor_view view, size_t *n);

/* Seed for random data. */
extern uint64_t tensor_dir_seed;
uint64_t tensor_dir_draw(uint64_t n);

#endif
