/* SPDX-License-Identifier: MIT */
/*
 * New tensors: folders that were made in tensors/ and are not tensors yet (objects.h). Their files are
 * drafts without a base (view.h), which stay when they are closed. When no program writes one and
 * NEW_QUIET seconds have passed, at fsync of a folder and at the end, it is judged as a whole
 * (tensor_judge.h), by the writer's thread; then it is a tensor of the model, with the same number. What a program
 * has opened or changed meanwhile is not judged by that: it is judged again when it is quiet.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_NEW_TENSOR_H
#define LIVE_NEW_TENSOR_H

#include "live/view.h"

#define NEW_QUIET 2
/* Milliseconds for which a sync of a folder waits for handles to be released that were closed: the kernel
 * sends the release by itself, and another thread may take it. A mapping is not released so soon. */
#define NEW_RELEASE 5000

/* The new one of this number, or folder's name; or NULL. */
struct object *new_tensor(const struct live *l, uint32_t number);
struct object *new_tensor_named(const struct live *l, const char *file);
/* Whether it can have this name: 0, -EINVAL, -ENAMETOOLONG. */
int new_tensor_check_name(const char *name, size_t n);
/* Its draft of a view; NULL: nothing was written to that. That goes, and what follows from it. */
struct draft *new_tensor_draft(const struct object *o, uint32_t row);
void new_tensor_take_out(struct live *l, struct object *o, struct draft *d);
/* A view is left aside: it is computed, or values beside `raw`. */
bool new_tensor_leaves(const struct object *o, enum tensor_view view);
/* What is known of one that was removed goes with its last draft. */
void new_tensor_reap(struct live *l, struct object *o);
/* Something was written, or a handle that may write is gone. */
void new_tensor_touch(struct live *l, struct object *o);
/* One of these handles was closed, or written after it was: under the lock of the caller. The last one is
 * released: closed or not. */
void new_tensor_closed(struct live *l, struct object *o, bool closed);
void new_tensor_released(struct live *l, struct object *o, bool closed);
/* A text was written to `type` or `shape`. 0, TENSOR_SHORT, -errno with a line. */
int new_tensor_text(struct live *l, const struct draft *d, const char *text, size_t n, bool end,
                    struct err *e);
/* rename(2), rmdir(2), also while it is judged. */
int new_tensor_rename(struct live *l, struct object *o, const char *name, size_t n);
void new_tensor_remove(struct live *l, struct object *o);

/* Its handles or the end of the mount may change whether it is to be judged: those that were written, and
 * that no handle may write, or all at the end, are in a list in the order of `last`. */
void new_tensor_queue(struct live *l, struct object *o);
/* The end of the mount has come. */
void new_tensors_hurry(struct live *l);

/* When one is to be judged; NULL: none is. */
const struct timespec *new_tensors_due_at(const struct live *l);
bool new_tensors_due(const struct live *l);
/* Judge what is due. The lock is given up meanwhile. 0, or why one could not be added. */
int new_tensors_judge(struct live *l);

#endif
