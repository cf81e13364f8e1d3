/* SPDX-License-Identifier: MIT */
/*
 * Reads facts from a model's keys and tensors: single values by key, the number of parameters, the
 * mix of types. A key of an unexpected type counts as missing.
 *
 * Threads: any. All functions are pure; the model is immutable.
 */
#ifndef MODEL_FACTS_H
#define MODEL_FACTS_H

#include "base/buf.h"
#include "gguf/gguf.h"

/* Get the value of a key. Returns false if the key does not exist. */
bool fact_value(const struct gguf *g, const char *key, struct gguf_value *ret);
/* Return the text of a string key. Its `at` is NULL if the key does not exist. */
struct text fact_text(const struct gguf *g, const char *key);
/* Get the value of an integer key. Returns false if it is missing or negative. */
bool fact_uint(const struct gguf *g, const char *key, uint64_t *ret);
bool fact_value_uint(const struct gguf_value *v, uint64_t *ret);

/*
 * fact_arch_key() returns the number of the architecture's key `name` ("block_count" finds
 * "llama.block_count"), or UINT32_MAX. fact_arch_uint() gets the key's value, like fact_uint().
 */
uint32_t fact_arch_key(const struct gguf *g, const char *name);
bool fact_arch_uint(const struct gguf *g, const char *name, uint64_t *ret);
/* Get the value of key number `key` for a layer. Its value may be an array. Bools are 0 and 1. */
bool fact_layer_uint(const struct gguf *g, uint32_t key, uint64_t layer, uint64_t *ret);

/* Get the number of tokens, from tokenizer.ggml.tokens or [arch].vocab_size. */
bool fact_vocabulary(const struct gguf *g, uint64_t *ret);

/* fact_shard() returns true for any shard of a split model, fact_later_shard() for any but the
 * first. Later shards lack the model's keys. */
bool fact_shard(const struct gguf *g);
bool fact_later_shard(const struct gguf *g);
/* Return true if general.type is "model" or missing. */
bool fact_is_model(const struct gguf *g);

/* Counts of parameters, that is, of elements in all tensors. */
struct params {
    uint64_t total;
    uint64_t one;     /* like total, but with only one of the experts */
    uint64_t experts; /* number of experts, or 0 */
};
struct params fact_params(const struct gguf *g);

/* Write a label such as "8x7.2B" (8 experts) or "7.2B". Numbers are rounded to two or three digits,
 * without trailing zeros after the point. */
#define SIZE_LABEL_MAX 48
void fact_size_label(const struct params *p, char dst[SIZE_LABEL_MAX]);
void fact_count_label(uint64_t n, char dst[SIZE_LABEL_MAX]);

/* Totals for the tensors of one type. Types with the most bytes come first. */
struct share {
    uint32_t id; /* id of the type, as stored */
    uint64_t tensors;
    uint64_t bytes;
    const struct gguf_tensor *first;
};
/* Maximum number of types listed. Real models have only a few. */
#define SHARES_MAX 64
size_t fact_shares(const struct gguf *g, struct share dst[SHARES_MAX]);

/* Return the name of general.file_type's value, such as "Q4_K_M" for 15, or NULL if it has no
 * name. */
const char *fact_file_type(const struct gguf *g);
/* Return false if the tensors contradict general.file_type. */
bool fact_file_type_fits(const struct gguf *g);
/* Write the name of general.file_type or, if it is missing or does not fit, of the type that takes
 * the most bytes. Writes nothing if there are no tensors either. */
void fact_encoding(const struct gguf *g, struct buf *out);

/* Write the type's name, such as "Q4_K", or "unknown:NNN" for a retired or unknown id. */
void fact_type_name(const struct gguf_tensor *t, struct buf *out);

/* Write the dimensions in NumPy's order, the reverse of the stored one, separated by `between`. */
void fact_shape(const struct gguf *g, const struct gguf_tensor *t, const char *between,
                struct buf *out);

/* Write the index of value `at` (as stored) in NumPy's order. */
void fact_index(const struct gguf *g, const struct gguf_tensor *t, uint64_t at, const char *between,
                struct buf *out);

#endif
