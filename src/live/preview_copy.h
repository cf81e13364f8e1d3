/* SPDX-License-Identifier: MIT */
/*
 * Mappings of changed tensors (preview_bytes.h), and copies of those that cannot be mapped, in files
 * without a name beside the model. They are made without the lock, so that only those wait for
 * the disk that need the snapshot:
 *
 *     do
 *         r = batch_freshen(l, &e);            -EAGAIN: it needs some, and has noted which
 *     while (preview_again(l, &r, &e));        makes them
 *
 * Others may edit meanwhile. What is done again finds those that still fit: of the same
 * content over the same bytes of the base.
 *
 * Threads: all functions are called with the lock of `struct live`.
 */
#ifndef LIVE_PREVIEW_COPY_H
#define LIVE_PREVIEW_COPY_H

#include "live/core.h"

/* The bytes of a tensor: with a reference. -EAGAIN: they are to be made; -ENOMEM, -errno with a line. */
int preview_map(struct live *l, struct edit_content *k, const struct below *b,
                struct shown_bytes *ret, struct err *e);
/* A snapshot is made anew: what it needs is noted anew. */
void preview_copies_begin(struct live *l);
/* True: copies were missing and are there, so the caller is to try again; *r: 0. False: *r stands; or it is
 * why they could not be made. The lock may be given up. */
bool preview_again(struct live *l, int *r, struct err *e);
void preview_copies_free(struct preview_copies *c);

#endif
