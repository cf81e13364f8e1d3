/* SPDX-License-Identifier: MIT */
/*
 * What programs do to tensors besides writing their views: conversions, shapes, new tensors, files
 * beside views, rm -r.
 *
 * A complete new tensor is added at a quiet moment, which is not reported: its assignments stay in
 * progress until the answer to a sync that began after it.
 */
#ifndef TESTS_SIM_TENSORS_H
#define TESTS_SIM_TENSORS_H

#include "kernel.h"

void tensors_step(struct program *p, const struct step *s);
void tensors_list(struct program *p);

/* A view of it may have been written, with these values: it may be an incomplete new tensor. */
void tensors_written(struct kernel *k, int name, uint64_t mask);

/*
 * A rename or (next -1) a removal: types and shapes go with it, and so do steps in progress through
 * the number of its directory.
 */
struct tensor_move {
    int from, next;
    int type, shape; /* assignments; -1 */
    bool making;     /* it may not be part of the model */
};
struct tensor_move tensors_move_begin(struct kernel *k, int from, int next);
/* made: the assignment of its content, or -1. */
void tensors_move_end(struct kernel *k, const struct tensor_move *m, int made, int r,
                      enum outcome how);

/* Complete new tensors: a mask. Some of those are in the model, if they were not touched since. */
uint32_t tensors_whole(const struct kernel *k);
void tensors_added(struct kernel *k, uint32_t whole);
/* Some new tensor may be incomplete. */
bool tensors_unsettled(const struct kernel *k);

/* A tensor's type or shape in a model, as a token. */
unsigned token_of_type(uint32_t type);
unsigned token_of_shape(uint32_t n, const uint64_t *dims);
/* The values of a token as stored in a type, and the reverse. */
size_t tensors_bytes(unsigned form, unsigned token, uint8_t *dst);
unsigned tensors_token(uint32_t type, const uint8_t *bytes, size_t n);

#endif
