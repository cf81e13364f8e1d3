/* SPDX-License-Identifier: MIT */
/*
 * Changed tensors whose bytes cannot be mapped from where they lie (preview_bytes.h): copies of them, in
 * files without a name beside the model. They are made without the lock, so that only those wait for
 * the disk that need the snapshot:
 *
 *     do
 *         r = batch_freshen(l, &e);            -EAGAIN: it needs copies, and has noted which
 *     while (preview_again(l, &r, &e));        makes them
 *
 * Others may edit meanwhile. What is done again finds the copies that still fit: those of the same
 * content over the same bytes of the base.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_PREVIEW_COPY_H
#define LIVE_PREVIEW_COPY_H

#include "live/core.h"

/* A tensor's bytes in the base. */
struct below {
    struct mapped *m; /* NULL: it is new */
    uint64_t off;
    const struct edit_file *f; /* beside which a copy of it is made */
};

/* Bytes of a draft. 0, -EIO, -errno. Without the lock too. */
int preview_read(const struct edit_draft *d, uint64_t from, void *dst, size_t n);

/* The copy of a tensor: a reference. -EAGAIN: it is to be made; -ENOMEM with a line. */
int preview_copied(struct live *l, struct edit_content *k, const struct below *b,
                   struct mapped **ret, struct err *e);
/* A snapshot is made anew: what it needs is noted anew. */
void preview_copies_begin(struct live *l);
/* True: copies were missing and are there, so the caller is to try again; *r: 0. False: *r stands; or it is
 * why they could not be made. The lock may be given up. */
bool preview_again(struct live *l, int *r, struct err *e);
void preview_copies_free(struct preview_copies *c);

#endif
