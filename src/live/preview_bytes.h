/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a tensor that are changed and not on the disk, as one mapping: see preview.h.
 *
 * Threads: with the lock of `struct live`.
 */
#ifndef LIVE_PREVIEW_BYTES_H
#define LIVE_PREVIEW_BYTES_H

#include "live/core.h"

/* A tensor's bytes in the base. */
struct below {
    struct mapped *m; /* NULL: it is new */
    uint64_t off;
    const struct edit_file *f; /* beside which a copy of it is made */
};

/* Map what a content makes of them: t->m, off, of_model. 0, -errno with a line. */
int preview_map(const struct edit_content *k, const struct below *below, struct preview_tensor *t,
                struct err *e);

#endif
