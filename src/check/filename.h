/* SPDX-License-Identifier: MIT */
/*
 * The GGUF naming convention:
 *
 *     [SIDECAR-]BASENAME-SIZELABEL[-FINETUNE]-VERSION[-ENCODING][-TYPE][-SHARD].gguf
 *
 * Source: the GGUF specification, "GGUF Naming Convention". Parts are made of words joined by "-":
 *   SIDECAR   "mmproj" or "mtp"
 *   BASENAME  words of letters and digits that begin with a letter, or of digits only; the first may be any
 *   SIZELABEL "7B", "3.8B", "8x7B", and one word more such as "A3B" or "ContextLength4k"
 *   FINETUNE  words of letters and digits
 *   VERSION   "v1.0"; ENCODING "Q4_K_M"; TYPE "LoRA" or "vocab"; SHARD "00003-of-00009"
 * Blanks count as letters. Name, size label and version are required.
 *
 * Threads: pure functions.
 */
#ifndef CHECK_FILENAME_H
#define CHECK_FILENAME_H

#include "model/facts.h"
#include "text/json.h"

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
    struct text part[FILE_PARTS]; /* from the parsed name; at is NULL if the part is missing */
};

/* True for a name in a store that names files by a hash of their content, which an edit would break. */
bool file_name_is_hash(const char *name);

/* Parse a name. False if it does not follow the convention (*ret is unchanged). */
bool file_name_parse(const char *name, struct file_name *ret);

/* The parts of a file name (without directories) as an object, or null if the name does not follow the convention. */
void file_name_json(struct json *j, const char *name, const char *file);

/* "8x7B-Word4k": experts 8 (0: not given), params 7e9. False if it is not a size label. */
bool file_size_parse(struct text label, uint64_t *experts, double *params);

/* True if a label is close to the number of parameters: writers round, and count differently. */
bool file_size_fits(struct text label, const struct params *p);

/* The name the convention gives a model, from its keys and tensors. It always parses. */
void file_name_suggest(const struct gguf *g, struct buf *out);

#endif
