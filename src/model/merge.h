/* SPDX-License-Identifier: MIT */
/*
 * The shards of a split model as one model: what a reader would see if they were one file. Pure:
 * nothing but the header is made, tensor data stays where it is.
 *
 * The merged model has the first shard's keys without `split.*`, all tensors in the order of the
 * shards, laid out regularly to the first shard's alignment.
 */
#ifndef MODEL_MERGE_H
#define MODEL_MERGE_H

#include "gguf/gguf.h"

/*
 * Check that shard number i (from 0) of n is one: split.no, split.count, and version and byte order
 * those of the first. 0, -EBADMSG with a line.
 */
int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e);
/*
 * Check that a shard's split.tensors.count, where it has one, is what all of them have. 0, -EBADMSG
 * with a line.
 */
int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e);
/*
 * Merge n shards that were checked. 0; -EBADMSG (split.tensors.count is not what they have, a
 * tensor's name is in two of them, sizes overflow), -EFBIG, -ENOMEM. *ret is the caller's.
 */
int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e);

#endif
