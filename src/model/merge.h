/* SPDX-License-Identifier: MIT */
/*
 * The shards of a split model as one model, as if they were one file. Pure: only the header is
 * made, tensor data stays in its files.
 *
 * The merged model has the first shard's keys without `split.*`, all tensors in the order of the
 * shards, laid out regularly to the first shard's alignment.
 */
#ifndef MODEL_MERGE_H
#define MODEL_MERGE_H

#include "gguf/gguf.h"

/*
 * Check shard number i (from 0) of n: split.no and split.count, and that version and byte order are
 * those of the first. 0, -EBADMSG with a line.
 */
int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e);
/* Check that a file without the name of a shard is not one by its keys: nobody finds the others. 0,
 * -EBADMSG with a line. */
int merge_check_single(const struct gguf *g, struct err *e);
/*
 * Check that a shard's split.tensors.count, if present, is the number of tensors in all shards. 0,
 * -EBADMSG with a line.
 */
int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e);
/*
 * Merge n shards that were checked. 0; -EBADMSG (split.tensors.count is wrong, two of them have a
 * tensor of the same name, sizes overflow), -EFBIG, -ENOMEM. The caller owns *ret.
 */
int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e);

#endif
