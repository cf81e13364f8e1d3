/* SPDX-License-Identifier: MIT */
/*
 * What was written to `raw` of a tensor, sealed to be judged: the draft's file with it, to which
 * nothing is written any more, over the base that the draft had. Pieces of an edit are ranges of that
 * file, so that bytes are not copied. What is written to the draft meanwhile lies in a new file over
 * it (tensor_draft.h).
 *
 * Threads: immutable and counted; any.
 */
#ifndef LIVE_TENSOR_SEAL_H
#define LIVE_TENSOR_SEAL_H

#include "base/bits.h"
#include "edit/file.h"
#include "live/tensor_base.h"

#define TENSOR_GRANULE 4096

struct tensor_seal {
    atomic_uint refs;
    struct tensor_base *base; /* a reference */
    struct edit_draft *file;  /* a reference: as long as the view, with holes */
    struct bits present;      /* granules that are in the file */
    uint64_t cut;             /* other bytes are the base's up to here, and zeros behind it */
    uint64_t shift;           /* of the view's first byte in the file */
};

/* All references, and the bits, pass to it. NULL: no memory (they stay the caller's). */
struct tensor_seal *tensor_seal_make(struct tensor_base *base, struct edit_draft *file,
                                     struct bits *present, uint64_t cut, uint64_t shift);
struct tensor_seal *tensor_seal_ref(struct tensor_seal *s); /* may be NULL */
void tensor_seal_unref(struct tensor_seal *s);              /* may be NULL */

/* The bytes at `off` that come from one place, at most n. *held: the file. */
uint64_t tensor_seal_stretch(const struct tensor_seal *s, uint64_t off, uint64_t n, bool *held);
/* Bytes [off, off + n) of the view. 0, -EIO, -errno. */
int tensor_seal_read(const struct tensor_seal *s, uint64_t off, uint8_t *dst, size_t n);

#endif
