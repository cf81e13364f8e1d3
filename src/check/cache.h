/* SPDX-License-Identifier: MIT */
/*
 * The cache that a running model needs, in F16: layer by layer, as llama.cpp allocates it.
 * Recurrent layers, and layers that use another layer's cache, need no cache; latent attention
 * keeps only keys.
 */
#ifndef CHECK_CACHE_H
#define CHECK_CACHE_H

#include "gguf/gguf.h"

struct cache {
    uint64_t token; /* bytes per token, in all layers together */
    uint64_t whole; /* bytes for the whole context; 0: the keys do not determine it */
};

/* Compute the size of the cache. Returns false if the model has none, or if its keys do not
 * determine the size. */
bool cache_of(const struct gguf *g, struct cache *ret);

#endif
