/* SPDX-License-Identifier: MIT */
/*
 * The content of helpers, which are files in a tensor's folder that are not views: see tensors.h.
 *
 * Threads: any.
 */
#ifndef LIVE_HELPERS_H
#define LIVE_HELPERS_H

#include "live/view.h"

int helper_read(const struct view_draft *d, uint64_t off, void *dst, size_t n, size_t *got);
int helper_write(const struct live_view *h, uint64_t off, const void *bytes, size_t n);
int helper_truncate(const struct view_draft *d, uint64_t size);

#endif
