/* SPDX-License-Identifier: MIT */
/*
 * Does to tensors what programs do besides writing their views: conversions, shapes, new tensors,
 * files beside views, rm -r.
 *
 * A complete new tensor is added at a quiet moment. No answer reports the addition, so the tensor's
 * assignments stay in progress until a sync that began after the tensor was complete is answered.
 */
#ifndef TESTS_SIM_TENSORS_H
#define TESTS_SIM_TENSORS_H

#include "kernel.h"

void tensors_step(struct program *p, const struct step *s);
void tensors_list(struct program *p);

/* Records that a view may have these values: a new, incomplete tensor may get them. */
void tensors_written(struct kernel *k, int name, uint64_t mask);

/*
 * Begins and ends a rename or, if `next` is -1, a removal. Types and shapes move with the tensor.
 * So do steps in progress that reach it through the inode number of its directory.
 */
struct tensor_move {
    int from, next;
    int type, shape; /* their assignments, or -1 */
    bool making;     /* it may not yet be part of the model */
};
struct tensor_move tensors_move_begin(struct kernel *k, int from, int next);
/* made: the assignment of the content, or -1. */
void tensors_move_end(struct kernel *k, const struct tensor_move *m, int made, int r,
                      enum outcome how);

/* Returns a mask of the complete new tensors. */
uint32_t tensors_whole(const struct kernel *k);
/* Records that these tensors are in the model, except those touched since then. */
void tensors_added(struct kernel *k, uint32_t whole);
/* Returns whether any new tensor may be incomplete. */
bool tensors_unsettled(const struct kernel *k);

/* Return the token for the type or shape of a tensor in a model. */
unsigned token_of_type(uint32_t type);
unsigned token_of_shape(uint32_t n, const uint64_t *dims);
/* Write the values of a token as the given form stores them; find the token for such values. */
size_t tensors_bytes(unsigned form, unsigned token, uint8_t *dst);
unsigned tensors_token(uint32_t type, const uint8_t *bytes, size_t n);

#endif
