/* SPDX-License-Identifier: MIT */
/*
 * The content of helpers, which are files in a tensor's folder that are not views: see tensors.h.
 *
 * Threads: any.
 */
#ifndef LIVE_HELPERS_H
#define LIVE_HELPERS_H

#include "live/view.h"

/* Of struct view_kind. */
int helper_read(struct live *l, struct view_draft *d, uint64_t off, void *dst, size_t n,
                size_t *got);
int helper_write(struct live *l, struct view_draft *d, bool append, uint64_t off, const void *bytes,
                 size_t n);
int helper_truncate(struct live *l, struct view_draft *d, uint64_t size);

#endif
