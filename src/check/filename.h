/* SPDX-License-Identifier: MIT */
/*
 * The GGUF naming convention:
 *
 *     [SIDECAR-]BASENAME-SIZELABEL[-FINETUNE]-VERSION[-ENCODING][-TYPE][-SHARD].gguf
 *
 * Source: the GGUF specification, "GGUF Naming Convention". Parts consist of words joined by "-":
 *   SIDECAR   "mmproj" or "mtp"
 *   BASENAME  words of letters and digits that begin with a letter, or of digits only; the first
 *             may also begin with a digit
 *   SIZELABEL "7B", "3.8B" or "8x7B", optionally with a word such as "A3B" or "ContextLength4k"
 *   FINETUNE  words of letters and digits
 *   VERSION   "v1.0"; ENCODING "Q4_K_M"; TYPE "LoRA" or "vocab"; SHARD "00003-of-00009"
 * Blanks count as letters. Name, size label and version are required.
 *
 * All functions are pure.
 */
#ifndef CHECK_FILENAME_H
#define CHECK_FILENAME_H

#include "model/facts.h"

/* The parts that tell facts about a model. */
enum file_part { PART_SIZE, PART_ENCODING, PART_SHARD, FILE_PARTS };

/* True for a name in a store that names files by a hash of their content: an edit would make the
 * name wrong. */
bool file_name_is_hash(const char *name);

/* Parse a name: `at` of a part is NULL if it is missing. Returns false if the name does not follow the
 * convention. */
bool file_name_parse(const char *name, struct text part[FILE_PARTS]);

/* Parse "8x7B-Word4k": experts 8 (0: not given), params 7e9. Returns false if it is not a size
 * label. */
bool file_size_parse(struct text label, uint64_t *experts, double *params);

/* True if a label is close to the number of parameters. Writers round the number, and count
 * parameters in different ways. */
bool file_size_fits(struct text label, const struct params *p);

/* Suggest a name, based on the model's keys and tensors, that follows the convention. The
 * suggested name always parses. */
void file_name_suggest(const struct gguf *g, struct buf *out);

#endif
