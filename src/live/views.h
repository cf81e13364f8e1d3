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

/* Open a view. Writes are ignored if it is computed, or the values of a new tensor that has `raw`.
 * Returns -EBUSY if another view of the tensor has unaccepted writes, or -ESTALE if the tensor is
 * gone. */
int live_view_open(struct live *l, uint32_t tensor, enum tensor_view view, int flags,
                   struct live_view **ret);
/* Return 0, or a number if the kernel's pages of this view may be outdated as it is opened: the kernel
 * then drops them before open(2) returns. */
uint64_t live_view_cold(struct live *l, uint32_t tensor, enum tensor_view view);
/* A handle goes with which the kernel dropped them: what it has is right, if that was the newest number. */
void live_view_warm(struct live *l, uint32_t tensor, enum tensor_view view, uint64_t cold);
/* Get the size of a view's draft. Returns false if it has none. */
bool live_view_size(struct live *l, uint32_t tensor, enum tensor_view view, uint64_t *ret);

/* Read a view that is being written. v: the state from which bytes that were not written are read if
 * the tensor was removed. Returns -ESTALE if nothing was written, or a header alone waited too long. */
int live_view_read(struct live *l, uint32_t tensor, enum tensor_view view, const struct view *v,
                   uint64_t off, void *dst, size_t n, size_t *got);
/* Write to a view. A complete line of a text is judged immediately, and w waits for it. */
int live_view_write(struct live *l, struct live_view *h, uint64_t off, const void *bytes, size_t n,
                    struct live_wait *w);
int live_view_truncate(struct live *l, struct live_view *h, uint64_t size);
int live_view_flush(struct live *l, struct live_view *h, struct live_wait *w);
/* h: NULL for a handle that only reads. */
int live_view_fsync(struct live *l, struct live_view *h, struct live_wait *w);
void live_view_release(struct live *l, struct live_view *h);

/* ---- for this layer: with the lock of `struct live` ---- */

struct object;

/* Drop the header of an array that has waited long enough for the rest, or however long, and say so. */
void object_expire(struct live *l, struct object *o, bool all);
void views_expire(struct live *l, bool all); /* of all tensors */
/* A fresh tensor was added: drop what was judged, and have judged what was flushed since. Drops and
 * retakes the lock. */
void views_added(struct live *l, struct object *o);

#endif
