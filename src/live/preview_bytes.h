/* SPDX-License-Identifier: MIT */
/*
 * Bytes of a tensor that are changed and not on the disk, as one mapping: see preview.h.
 *
 * Threads: any, without a lock: the disk is asked.
 */
#ifndef LIVE_PREVIEW_BYTES_H
#define LIVE_PREVIEW_BYTES_H

#include "edit/content.h"
#include "edit/file.h"
#include "model/store.h"

/* A tensor's bytes in the base. */
struct below {
    struct mapped *m; /* NULL: it is new, or none of them stays */
    uint64_t off;
    uint64_t in; /* bytes of a page before the tensor: drafts have them in pages as the model has */
    const struct edit_file *f; /* beside which a copy of it is made */
};

/* A tensor's bytes. */
struct shown_bytes {
    struct mapped *m;
    uint64_t off;
    bool of_model; /* pages of the model's file are among them */
};

/* Bytes of a draft, to memory or to pages of the model: if these have disappeared, -EIO. 0, -errno. */
int preview_read(const struct edit_file *f, const struct edit_draft *d, uint64_t from, void *dst,
                 size_t n);

/* True: preview_bytes_map() asks no disk. */
bool preview_bytes_at_hand(const struct edit_content *k, const struct below *b);
/* Map what a content that has pieces makes of them. 0; 1: they cannot be mapped, but copied; -errno with a
 * line. */
int preview_bytes_map(const struct edit_content *k, const struct below *b, struct shown_bytes *ret,
                      struct err *e);

#endif
