/* SPDX-License-Identifier: MIT */
/*
 * The model as a safetensors file, as the official reader takes it:
 *
 *     u64       length of the header, at most SAFETENSORS_HEADER_MOST
 *     header    {"__metadata__": {text: text, ...}, NAME: {"dtype", "shape", "data_offsets"}, ...},
 *               then spaces up to a multiple of 4096 of the file
 *     data      tensors without gaps, those of the largest elements first, so that each is aligned
 *
 * Names that are not UTF-8 have %XX for the bytes at fault. Left out, and named in the metadata under
 * "ggufs.omitted" (a JSON array), are tensors without values, one named "__metadata__", and a later
 * one whose name comes out the same as another's. Of keys whose names come out the same (U+FFFD for bytes
 * that are not UTF-8) the first is shown. Of keys that make the header too long the longest are left out.
 *
 * Threads: any. What is made of a snapshot is kept with it: its size when that is first asked for,
 * its image when the file is first opened.
 */
#ifndef DERIVE_SAFETENSORS_H
#define DERIVE_SAFETENSORS_H

#include "model/snapshot.h"

#define SAFETENSORS_HEADER_MOST ((uint64_t)100000000)

enum safetensors_as {
    SAFETENSORS_OWN, /* floats and integers as they are stored, all else as F32 */
    SAFETENSORS_F32, /* all but integers in one type */
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
};

/* Bytes of the file. 0, -EFBIG: there can be none (without any keys the header is too long), -ENOMEM. */
int safetensors_size(struct snapshot *g, enum safetensors_as as, uint64_t *ret);
/* A reference to the file. 0, -EFBIG, -ENOMEM. */
int safetensors_image(struct snapshot *g, enum safetensors_as as, struct image **ret);

#endif
