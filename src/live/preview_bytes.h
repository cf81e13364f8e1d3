/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a tensor that are changed and not on the disk, as one mapping: see preview.h.
 *
 * Threads: with the lock of `struct live`.
 */
#ifndef LIVE_PREVIEW_BYTES_H
#define LIVE_PREVIEW_BYTES_H

#include "live/preview_copy.h"

/* Map what a content makes of them: t->m, off, of_model. 0; -EAGAIN (they are to be copied first:
 * preview_copy.h); -errno with a line. */
int preview_map(struct live *l, struct edit_content *k, const struct below *below,
                struct preview_tensor *t, struct err *e);

#endif
