/* SPDX-License-Identifier: MIT */
/*
 * Which tensors the model has, with all edits accepted, and what is known of their folders.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_TENSOR_H
#define LIVE_TENSOR_H

#include "edit/tensors.h"
#include "live/core.h"
#include "live/writer.h"

/* The tensor of a folder's name, also if it is doomed. -ENOENT. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret);
/* One that is doomed is removed from the model now: its name is given to another one. -EEXIST: it is not. */
int tensor_clear(struct live *l, const struct edit_tensor *t, struct err *e);
/* False: the change leaves the model without any tensor. */
bool tensors_left(const struct live *l);
/* Its object. NULL: no memory. */
struct object *tensor_object(struct live *l, uint32_t number);
/* Record a refused edit in the log and in user.gguf.error, unless the tensor is gone. Returns e->code. */
int tensor_refused(struct live *l, struct object *o, const struct err *e);
/* An operation on a tensor is part of the change now. As writer_accepted(). */
int tensor_accepted(struct live *l, struct object *o, struct live_wait *w);
/* Make the removals that are due part of what is accepted. 0, or why tensors are back. */
int tensors_remove_due(struct live *l);

/* Edits were given up: which tensors are there follows from what is stored now. */
void tensors_follow(struct live *l);
/* Drafts that were begun from what a batch gave its tensors can be accepted no more. */
void tensors_lost(struct live *l, const struct batch *b);
/* A batch was not written: the tensors that it names show why, and those that it added are lost. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);

/* It was written: what it removed is gone for good. Returns a list for view_drafts_end(), without the lock. */
struct draft *tensors_landed(struct live *l, const struct batch *b);

#endif
