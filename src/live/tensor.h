/* SPDX-License-Identifier: MIT */
/*
 * Which tensors the model has, with all edits accepted, and what is known about their directories.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_TENSOR_H
#define LIVE_TENSOR_H

#include "edit/tensors.h"
#include "live/core.h"
#include "live/writer.h"

/* The tensor with this directory name, even if it is doomed. -ENOENT. */
int tensor_find(const struct live *l, const char *file, struct edit_tensor *ret);
/* Remove a doomed tensor from the model now, because its name is given to another. -EEXIST: it is not doomed. */
int tensor_clear(struct live *l, const struct edit_tensor *t, struct err *e);
/*
 * Remove the doomed tensors from the change, up to an edit_undo(); but not if no tensor would be left, because then
 * all of them come back. True if it removed any.
 */
bool tensors_remove_doomed(struct live *l);
/* Its object. NULL: no memory. */
struct object *tensor_object(struct live *l, uint32_t number);
/* Record a refused edit in the log and in user.gguf.error, unless the tensor is gone. Returns e->code. */
int tensor_refused(struct live *l, struct object *o, const struct err *e);
/* An operation on a tensor is part of the change now. Like writer_accepted(). */
int tensor_accepted(struct live *l, struct object *o, struct live_wait *w);
/* Accept the removals that are due. 0, or why tensors came back. */
int tensors_remove_due(struct live *l);

/* Edits were given up: which tensors exist is derived from what is stored now. */
void tensors_follow(struct live *l);
/* Drafts begun from what a batch gave its tensors can no longer be accepted. */
void tensors_lost(struct live *l, const struct batch *b);
/* A batch was not written: the tensors that it names show why, and those that it added are lost. */
void tensors_failed(struct live *l, const struct batch *b, const struct err *e);

/* It was written: what it removed is gone for good. Returns a list for view_drafts_end(), without the lock. */
struct draft *tensors_landed(struct live *l, const struct batch *b);

#endif
