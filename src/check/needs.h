/* SPDX-License-Identifier: MIT */
/*
 * Tables of facts: what llama.cpp needs of a model, by architecture. Found by loading models with it, of August 2026.
 *
 * Lists are words with single blanks between. The name of a tensor ends in ".weight" if it does not
 * end in ".bias"; "~" at its end stands for nothing. Threads: everything is constant.
 */
#ifndef CHECK_NEEDS_H
#define CHECK_NEEDS_H

#include "check/check.h"

/* The N of "blk.N.rest" and the place of the rest; false if the name has another form. */
bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest);
/* True if the word is in the list. */
bool needs_list(const char *list, struct text word);
/* True if the tables have the architecture. */
bool needs_know(struct text arch);
/* True if they say something about the tensors of this model. */
bool needs_apply(const struct gguf *g);
/* The first block that the model has: not 0 of a file with nothing but blocks that predict tokens. */
uint64_t needs_first_block(const struct gguf *g);
/* The rule about keys without which a model is refused. */
void rule_required(struct checker *c);

#endif
