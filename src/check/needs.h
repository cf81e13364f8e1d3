/* SPDX-License-Identifier: MIT */
/*
 * The keys and tensors that llama.cpp (August 2026) requires, by architecture, determined by
 * loading models with it.
 *
 * Lists are words separated by single blanks. The names of tensors end in ".weight" unless they end
 * in ".bias"; a "~" at the end means neither. Everything is constant.
 */
#ifndef CHECK_NEEDS_H
#define CHECK_NEEDS_H

#include "check/check.h"

/* Find N in "blk.N.rest", and the offset of "rest". Returns false if the name has a different
 * form. */
bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest);
/* True if the word is in the list. */
bool needs_list(const char *list, struct text word);
/* The same for a list of needs.tsv. */
bool needs_listed(const char *name, struct text word);
/* True if it is known that no model of this architecture makes llama.cpp read the key. */
bool needs_unread(struct text arch, struct text key);
/* True if the tables contain this architecture. */
bool needs_know(struct text arch);
/* True if the tables apply to the tensors of this model. */
bool needs_apply(const struct gguf *g);
/* Return the number of the model's first block, which is not 0 in a file that contains only the
 * blocks for multi-token prediction. */
uint64_t needs_first_block(const struct gguf *g);
/* True for a block for multi-token prediction that the architecture can do without. */
bool needs_ahead(const struct checker *c, uint64_t block);
/* Of every `period` layers, all but the first or the last have a sliding window. */
struct need_window {
    const char *arch;
    unsigned period;
    bool first;
    unsigned length; /* of the window if no key specifies it; 0: no window */
};
/* Return the row of an architecture, or NULL. */
const struct need_window *needs_window(struct text arch);
void rule_required(struct checker *c);

#endif
