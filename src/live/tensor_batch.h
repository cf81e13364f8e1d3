/* SPDX-License-Identifier: MIT */
/*
 * Edits of tensors that are accepted: see tensors.h for those that programs ask for.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_TENSOR_BATCH_H
#define LIVE_TENSOR_BATCH_H

#include "live/tensor.h"
#include "live/writer.h"

/* An operation on a tensor is part of the change now: f is its folder. As writer_accepted(). */
int tensor_accepted(struct live *l, struct folder *f, struct live_wait *w);
/* Make the removals that are due part of what is accepted. 0, or why tensors are back. */
int tensors_remove_due(struct live *l);

#endif
