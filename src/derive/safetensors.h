/* SPDX-License-Identifier: MIT */
/*
 * The model as a safetensors file, as the official reader takes it:
 *
 *     u64       length of the header, at most SAFETENSORS_HEADER_MOST
 *     header    {"__metadata__": {text: text, ...}, NAME: {"dtype", "shape", "data_offsets"}, ...},
 *               then spaces up to a multiple of 4096 of the file
 *     data      tensors without gaps, the largest element types first, so that each is aligned
 *
 * Names that are not UTF-8 have %XX for the offending bytes. Tensors without values, a tensor named "__metadata__",
 * and all but the first whose names come out the same are left out, and listed in the metadata under "ggufs.omitted"
 * (a JSON array). If names of keys come out the same (U+FFFD for bytes that are not UTF-8), the first key is shown.
 * If keys make the header too long, the longest are left out.
 *
 * Threads: any. Results are kept with the snapshot: the size once it is first requested, the image once the file is
 * first opened.
 */
#ifndef DERIVE_SAFETENSORS_H
#define DERIVE_SAFETENSORS_H

#include "model/snapshot.h"

#define SAFETENSORS_HEADER_MOST ((uint64_t)100000000)

enum safetensors_as {
    SAFETENSORS_OWN, /* floats and integers as they are stored, everything else as F32 */
    SAFETENSORS_F32, /* all but integers in one type */
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
};

/* Bytes of the file. 0, -EFBIG (impossible: the header is too long even without keys), -ENOMEM. */
int safetensors_size(struct snapshot *g, enum safetensors_as as, uint64_t *ret);
/* A reference to the file. 0, -EFBIG, -ENOMEM. */
int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret);

#endif
