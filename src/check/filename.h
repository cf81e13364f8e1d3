/* SPDX-License-Identifier: MIT */
/*
 * The GGUF naming convention:
 *
 *     [SIDECAR-]BASENAME-SIZELABEL[-FINETUNE]-VERSION[-ENCODING][-TYPE][-SHARD].gguf
 *
 * Source: the GGUF specification, "GGUF Naming Convention". Parts are made of words with "-"
 * between:
 *   SIDECAR   "mmproj" or "mtp"
 *   BASENAME  words of letters and digits that begin with a letter, or of digits alone; the first
 *             may be any
 *   SIZELABEL "7B", "3.8B", "8x7B", and one word more such as "A3B" or "ContextLength4k"
 *   FINETUNE  words of letters and digits
 *   VERSION   "v1.0"; ENCODING "Q4_K_M"; TYPE "LoRA" or "vocab"; SHARD "00003-of-00009"
 * Blanks count as letters. Name, size label and version must be there.
 *
 * Threads: pure functions.
 */
#ifndef CHECK_FILENAME_H
#define CHECK_FILENAME_H

#include "model/facts.h"

enum file_part {
    PART_SIDECAR,
    PART_BASE,
    PART_SIZE,
    PART_FINETUNE,
    PART_VERSION,
    PART_ENCODING,
    PART_TYPE,
    PART_SHARD,
    FILE_PARTS
};

/* "Sidecar", "BaseName", ... as the specification calls them. */
extern const char *const file_part_name[FILE_PARTS];

struct file_name {
    struct text part[FILE_PARTS]; /* in the name that was parsed; at NULL where it has none */
};

/* A name in a store that calls files by the hash of their content: an edit would make it a lie. */
bool file_name_is_hash(const char *name);

/* False if the name does not follow the convention (*ret is untouched). */
bool file_name_parse(const char *name, struct file_name *ret);

/* "8x7B-Word4k": experts 8 (0: not told), params 7e9. False if it is no size label. */
bool file_size_parse(struct text label, uint64_t *experts, double *params);
/* "00003-of-00009". False if it is no shard. */
bool file_shard_parse(struct text shard, uint64_t *number, uint64_t *count);

/* True if a label is near the number of parameters: rounding and what is counted differ. */
bool file_size_fits(struct text label, const struct params *p);

/* The name that the convention gives a model, from its keys and tensors. Parses by construction. */
void file_name_suggest(const struct gguf *g, struct buf *out);
/* What the keys and tensors say of one part, NUL-terminated; "" where they say nothing. */
void file_part_suggest(const struct gguf *g, enum file_part part, struct buf *out);

#endif
