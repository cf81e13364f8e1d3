/* SPDX-License-Identifier: MIT */
/*
 * Shows the model as a safetensors file that the official reader accepts:
 *
 *     u64       length of the header, at most SAFETENSORS_HEADER_MOST
 *     header    {"__metadata__": {text: text, ...}, NAME: {"dtype", "shape", "data_offsets"}, ...},
 *               then spaces up to the next multiple of 4096 in the file
 *     data      tensors without gaps, the largest element types first, so that each is aligned
 *
 * Names that are not UTF-8 have %XX for the offending bytes. Tensors without values, a tensor named
 * "__metadata__", and all but the first of the tensors whose names become equal are omitted, and
 * listed in the metadata under "ggufs.omitted" (a JSON array). Keys have U+FFFD for bytes that are
 * not UTF-8; if their names become equal, only the first key is shown. If the keys make the header
 * too long, the longest are omitted.
 *
 * Any thread may call this function. The image is kept with the snapshot.
 */
#ifndef DERIVE_SAFETENSORS_H
#define DERIVE_SAFETENSORS_H

#include "model/snapshot.h"

#define SAFETENSORS_HEADER_MOST ((uint64_t)100000000)

enum safetensors_as {
    SAFETENSORS_OWN, /* floats and integers as stored, all other types as F32 */
    SAFETENSORS_F32, /* integers as stored, all other values in one type */
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
};

/* Get a reference to the image of the file. Returns 0, -EFBIG (the header is too long even without keys,
 * or the file is too large) or -ENOMEM. */
int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret);

#endif
