/* SPDX-License-Identifier: MIT */
/*
 * New tensors: directories made in tensors/ that are not tensors yet (objects.h). Their files are drafts without a
 * base (view.h), which stay when they are closed. When no program has one open for writing and NEW_QUIET seconds have
 * passed, at fsync of a directory and at the end, the writer's thread judges it as a whole (tensor_judge.h); then it
 * is a tensor of the model, with the same number. If a program opens or changes it meanwhile, it is judged again once
 * it is quiet.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_NEW_TENSOR_H
#define LIVE_NEW_TENSOR_H

#include "live/view.h"

#define NEW_QUIET 2
/*
 * Milliseconds that a sync of a directory waits for closed handles to be released: the kernel sends the release
 * separately, and another thread may receive it. A mapping may delay it further.
 */
#define NEW_RELEASE 5000

/* The new tensor with this number, or directory name; or NULL. */
struct object *new_tensor(const struct live *l, uint32_t number);
struct object *new_tensor_named(const struct live *l, const char *file);
/* Check a new name: 0, -EINVAL, -ENAMETOOLONG. */
int new_tensor_check_name(const char *name, size_t n);
/* Its draft of a view; NULL: the view was not written. Removes a draft, and what follows from it. */
struct draft *new_tensor_draft(const struct object *o, uint32_t row);
void new_tensor_take_out(struct live *l, struct object *o, struct draft *d);
/* True if a view is ignored: it is computed, or holds values while there is `raw`. */
bool new_tensor_leaves(const struct object *o, enum tensor_view view);
/* What is known about a removed one goes with its last draft. */
void new_tensor_reap(struct live *l, struct object *o);
/* Something was written, or a writable handle is gone. */
void new_tensor_touch(struct live *l, struct object *o);
/*
 * One of these handles was closed, or written after it was; under the caller's lock. The last one is released, closed
 * or not.
 */
void new_tensor_closed(struct live *l, struct object *o, bool closed);
void new_tensor_released(struct live *l, struct object *o, bool closed);
/* A text was written to `type` or `shape`. 0, TENSOR_SHORT, -errno with a line. */
int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n, bool end,
                    struct err *e);
/* rename(2), rmdir(2), even while it is judged. */
int new_tensor_rename(struct live *l, struct object *o, const char *name, size_t n);
void new_tensor_remove(struct live *l, struct object *o);

/*
 * Its handles, or the end of the mount, may change whether it is due: a list, ordered by `last`, has those that were
 * written and have no writable handle, or at the end all of them.
 */
void new_tensor_queue(struct live *l, struct object *o);
/* The end of the mount has come. */
void new_tensors_hurry(struct live *l);

/* When one is due to be judged; NULL: none. */
const struct timespec *new_tensors_due_at(const struct live *l);
bool new_tensors_due(const struct live *l);
/* Judge what is due. The lock is released meanwhile. 0, or why one could not be added. */
int new_tensors_judge(struct live *l);

#endif
