/* SPDX-License-Identifier: MIT */
/*
 * What llama.cpp (August 2026) needs in a model, by architecture. Found by loading models with it.
 *
 * Lists are words with single blanks between. The name of a tensor ends in ".weight" if it does not
 * end in ".bias"; "~" at its end stands for nothing. Threads: everything is constant.
 */
#ifndef CHECK_NEEDS_H
#define CHECK_NEEDS_H

#include "check/check.h"

/* The N of "blk.N.rest" and where the rest begins; false if the name has another form. */
bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest);
/* True if the word is in the list. */
bool needs_list(const char *list, struct text word);
/* True if the tables have the architecture. */
bool needs_know(struct text arch);
/* True if they apply to the tensors of this model. */
bool needs_apply(const struct gguf *g);
/* The model's first block: not 0 in a file that has only blocks for predicting tokens. */
uint64_t needs_first_block(const struct gguf *g);
/* The rule about keys without which a model is refused. */
void rule_required(struct checker *c);

#endif
