/* SPDX-License-Identifier: MIT */
/*
 * The content of helpers, which are files in a tensor's folder that are not views: see tensors.h. One
 * that was renamed over a view while it was open has that view's draft behind it from then on, for all
 * handles and mappings that it has.
 *
 * Threads: any.
 */
#ifndef LIVE_TENSOR_HELPERS_H
#define LIVE_TENSOR_HELPERS_H

#include "live/view.h"

/* Of struct draft_kind. */
int helper_read(struct live *l, struct draft *d, uint64_t off, void *dst, size_t n, size_t *got);
int helper_write(struct live *l, struct draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n);
int helper_truncate(struct live *l, struct draft *d, uint64_t size);

/* A handle was flushed, or synced. Returns the handle of the view that has its bytes, or NULL. */
struct live_view *helper_flushed(struct live *l, struct live_view *h);
/* A handle is gone. Returns that of the view, if it was the last one: for live_view_release(). With the lock. */
struct live_view *helper_released(struct draft *d, const struct live_view *h);

#endif
