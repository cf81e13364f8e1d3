/* SPDX-License-Identifier: MIT */
/*
 * Opens, writes and closes views of tensors. live.h explains results, waits and threads; tensors.h
 * applies as well.
 *
 * All writing handles of a view share its draft. As long as the draft is not accepted, the view
 * shows it to all programs that have the view open, because they share the kernel's pages.
 */
#ifndef LIVE_VIEWS_H
#define LIVE_VIEWS_H

#include "live/tensors.h"

struct live_view; /* an open view */

/* Open a view, given by its tensor's number and its row in the directory. view: TENSOR_ASIDE if
 * writes are ignored. Returns -EBUSY if another view of the tensor has unaccepted writes, or
 * -ESTALE if the tensor is gone. */
int live_view_open(struct live *l, uint32_t tensor, uint32_t row, enum tensor_view view, int flags,
                   struct live_view **ret);
/* True if the kernel's pages of this view may be outdated; false the next time. */
bool live_view_cold(struct live *l, uint32_t tensor, uint32_t row);
/* Get the size of a view's draft. Returns false if it has none. */
bool live_view_size(struct live *l, uint32_t tensor, enum tensor_view view, uint64_t *ret);

/* Read a view that is being written. v: the state from which bytes that were not written are read.
 * Returns -ESTALE if nothing was written, or a header alone waited too long. */
int live_view_read(struct live *l, uint32_t tensor, enum tensor_view view, const struct view *v,
                   uint64_t off, void *dst, size_t n, size_t *got);
/* Write to a view. A complete line of a text is judged immediately, and w waits for it. */
int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w);
int live_view_truncate(struct live *l, struct live_view *h, uint64_t size);
/* Handle fallocate(2). Returns -EOPNOTSUPP if the view is shorter: posix_fallocate(3) then writes
 * zeros. */
int live_view_allocate(struct live *l, struct live_view *h, uint64_t off, uint64_t n,
                       bool keep_size);
int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w);
int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w);
void live_view_release(struct live *l, struct live_view *h);
/* Handle fsync of a view that is open for reading: judge what any program wrote to it, and write
 * everything that was accepted. */
int live_tensor_fsync(struct live *l, uint32_t number, struct live_wait *w);

/* ---- for this layer: with the lock of `struct live` ---- */

struct object;

/* A fresh tensor was added, with what had been written to it before `epoch` or was copied since:
 * drop that, and have judged what was flushed since. Drops and retakes the lock. */
void views_added(struct live *l, struct object *o, uint64_t epoch);

#endif
