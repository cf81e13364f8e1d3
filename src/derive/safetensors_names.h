/* SPDX-License-Identifier: MIT */
/*
 * What of a model a safetensors file leaves out, and its names as UTF-8. Private to safetensors.c.
 *
 * Names must be UTF-8, without lone surrogates, and each stand once. Bytes that are not UTF-8 are written
 * otherwise (utf8_bad_fn). Where names come out the same by that, all but the first are left out.
 *
 * Threads: pure functions.
 */
#ifndef DERIVE_SAFETENSORS_NAMES_H
#define DERIVE_SAFETENSORS_NAMES_H

#include "base/buf.h"
#include "model/snapshot.h"

/* Writes a byte that is not UTF-8. */
typedef void utf8_bad_fn(struct buf *out, uint8_t byte);
void utf8_percent(struct buf *out, uint8_t byte);     /* %XX: of tensors' names */
void utf8_replacement(struct buf *out, uint8_t byte); /* U+FFFD: of keys and their texts */

/* A JSON string of n bytes, made in `room` where they are not UTF-8; an error of that is *out's. */
void utf8_json(struct buf *out, struct buf *room, const char *s, size_t n, utf8_bad_fn *bad);

struct left_out {
    bool *
        tensor; /* owned: of each: without values, named as the metadata, or named as an earlier one */
    bool *key;    /* owned: of each: an array, hidden, or named as what the metadata has already */
    bool tensors; /* some */
};

/* 0, -ENOMEM; free it in both cases. */
int left_out_find(const struct snapshot *g, struct left_out *ret);
void left_out_free(struct left_out *l);

#endif
