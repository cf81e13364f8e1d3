/* SPDX-License-Identifier: MIT */
/*
 * The cache of keys and values that a running model needs, in F16: layer by layer, as llama.cpp
 * allocates it. Recurrent layers, and layers that use another layer's cache, have none; latent
 * attention keeps only keys.
 */
#ifndef CHECK_CACHE_H
#define CHECK_CACHE_H

#include "gguf/gguf.h"

struct cache {
    uint64_t token; /* bytes of a token in all layers */
    uint64_t whole; /* bytes for the whole context; 0: the keys do not determine it */
};

/* Compute the size of the cache. Returns false if the model has none, or the keys do not determine
 * it. */
bool cache_of(const struct gguf *g, struct cache *ret);

#endif
