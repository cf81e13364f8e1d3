/* SPDX-License-Identifier: MIT */
/*
 * What programs do to tensors but write their views: conversions, shapes, new ones, files beside views, rm -r.
 *
 * A tensor that is in the making is added when it is quiet, which nobody is told: its assignments go on until a sync
 * that came after it answers.
 */
#ifndef TESTS_SIM_TENSORS_H
#define TESTS_SIM_TENSORS_H

#include "kernel.h"

void tensors_step(struct program *p, const struct step *s);
void tensors_list(struct program *p);

/* A view of it may have been written, with these values: it may be in the making. */
void tensors_written(struct kernel *k, int name, uint64_t mask);

/* A rename or (next -1) a removal: types and shapes go with it, and what is being done by the number of its folder. */
struct tensor_move {
    int from, next;
    int type, shape; /* assignments; -1 */
    bool making;     /* it may not be part of the model */
};
struct tensor_move tensors_move_begin(struct kernel *k, int from, int next);
/* made: the assignment of its content, or -1. */
void tensors_move_end(struct kernel *k, const struct tensor_move *m, int made, int r,
                      enum outcome how);

/* New tensors that are whole: a mask. Of those some are in the model, if nothing was done to them since. */
uint32_t tensors_whole(const struct kernel *k);
void tensors_added(struct kernel *k, uint32_t whole);
/* Some tensor may be in the making. */
bool tensors_unsettled(const struct kernel *k);

/* What a model's bytes say of a tensor's type or shape: a token. */
unsigned token_of_type(uint32_t type);
unsigned token_of_shape(uint32_t n, const uint64_t *dims);
/* The values of a token as they are stored in a type, and the other way round. */
size_t tensors_bytes(unsigned form, unsigned token, uint8_t *dst);
unsigned tensors_token(uint32_t type, const uint8_t *bytes, size_t n);

#endif
