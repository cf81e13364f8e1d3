/* SPDX-License-Identifier: MIT */
/*
 * Tables of facts: what llama.cpp needs of a model, by architecture. Found by loading models with it, of August 2026.
 *
 * Lists are words with single blanks between. The name of a tensor ends in ".weight" if it does not
 * end in ".bias"; "~" at its end stands for nothing. Threads: everything is constant.
 */
#ifndef CHECK_NEEDS_H
#define CHECK_NEEDS_H

#include <stddef.h>

#include "check/rule.h"
#include "model/facts.h"

/*
 * The tensors that must be there. "(a b|c)": one of the alternatives, each a list that may be empty.
 */
struct need_tensors {
    const char *block; /* each block has them: "blk", "enc.blk", "dec.blk"; "": the model has */
    const char *archs;
    const char *tensors;
};
extern const struct need_tensors need_tensors[];
extern const size_t need_tensors_len;

/*
 * The dimensions that keys give a tensor, in the order of the file: "E,HK+2GV". A letter is a key
 * (shape.c); letters beside each other are multiplied; "|" is between alternatives; "": not known.
 * Sorted by tensor, the row of all other architectures last.
 */
struct need_shape {
    const char *tensor; /* without its block; "." before one that is in no block */
    const char *dims;
    const char *archs; /* NULL: all others */
};
extern const struct need_shape need_shapes[];
extern const size_t need_shapes_len;

/* Keys without which a model is refused, or can have no tensor that fits. */
struct need_key {
    const char *key;   /* after the architecture */
    const char *archs; /* "! a b": all but these */
    const char *
        unless; /* a tensor of the first block; where it is there the key need not be. NULL: none */
};
extern const struct need_key need_keys[];
extern const size_t need_keys_len;

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
/* The name of a tensor as in struct need_shape, and its block. False: too long for the table. */
#define NEED_NAME_MAX 80
bool needs_name(const char *name, size_t n, uint64_t *block, char dst[NEED_NAME_MAX]);

#endif
