/* SPDX-License-Identifier: MIT */
/*
 * Shows the model as a safetensors file that the official reader accepts:
 *
 *     u64       length of the header, at most SAFETENSORS_HEADER_MOST
 *     header    {"__metadata__": {text: text, ...}, NAME: {"dtype", "shape", "data_offsets"}, ...},
 *               then spaces up to the next multiple of 4096 in the file
 *     data      tensors without gaps, the largest element types first, so that each is aligned
 *
 * Tensors without values, tensors whose name is not UTF-8, and one named "__metadata__" are omitted,
 * and listed in the metadata under "ggufs.omitted" (a JSON array). The metadata has all keys that are
 * no arrays, and whose names are UTF-8, as text, unless it is longer than SAFETENSORS_TEXT_MOST. Bytes that
 * are not UTF-8 are shown as U+FFFD.
 *
 * Any thread may call this function. The image is kept with the snapshot.
 */
#ifndef DERIVE_SAFETENSORS_H
#define DERIVE_SAFETENSORS_H

#include "model/snapshot.h"

#define SAFETENSORS_HEADER_MOST ((uint64_t)100000000)
#define SAFETENSORS_TEXT_MOST ((uint64_t)1 << 20)

enum safetensors_as {
    SAFETENSORS_OWN, /* floats and integers as stored, all other types as F32 */
    SAFETENSORS_F32, /* integers as stored, all other values in one type */
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
};

/* Get a reference to the image of the file. Returns 0, -EFBIG (the header is too long, or the file is
 * too large) or -ENOMEM. */
int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret);

#endif
