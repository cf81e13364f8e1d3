/* SPDX-License-Identifier: MIT */
/*
 * Split models. Handles the names of their files, NAME-00001-of-00003.gguf and its siblings as
 * written by llama.cpp's splitting tools, opens the files, and merges them into one model.
 *
 *     r = split_find("dir/x-00002-of-00003.gguf", &s);     s.n is 3; 0 if the model is not split
 *     path = split_path(&s, 0);                            "dir/x-00001-of-00003.gguf"
 *     split_free(&s);
 *
 * Siblings are looked for next to the given path first, because in caches the names are links to
 * files named by hash. If the first shard is not there, or the link does not have a shard's name,
 * siblings are looked for next to the link's target.
 *
 * The merged model looks like one file. It has the first shard's keys without `split.*`, and all
 * tensors in the order of the shards, laid out regularly with the first shard's alignment. Only its
 * header is built; tensor data stays in the shards' files.
 *
 * Threads: any. Objects are immutable once found or opened, and merging is pure.
 */
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/store.h"

struct split {
    size_t n;     /* files; 0: the model is not split */
    char *prefix; /* owned: path up to and including NAME; NULL if not split */
};

/* Length of "-00001-of-00003.gguf", which follows NAME. */
#define SPLIT_TAIL 20

/* Return the number of files that a file's name states, or 0 if it is not a shard's name. */
size_t split_count(const char *name);

/* Find the files of a split model. Returns 0, even if the model is not split or does not exist, or
 * -ENOMEM. */
int split_find(const char *path, struct split *ret);
void split_free(struct split *s);

/*
 * Return the path of file number i, counting from 0. i == n gives the path of one file too many,
 * which must not exist. The caller frees the path.
 */
char *split_path(const struct split *s, size_t i);
/* Return the same path without directories. */
char *split_name(const struct split *s, size_t i);
/* Return the name of file i of n, given the name of any of them. The caller frees it. */
char *split_sibling(const char *name, size_t i, size_t n);

/* ---- as one model ---- */

/*
 * Check that shard number i (from 0) of n has the right split.no and split.count, and the first
 * shard's version and byte order. Returns 0 or -EBADMSG.
 */
int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e);
/*
 * Refuse a file that is a shard by its keys but not by its name, because its siblings cannot be
 * found. Returns 0 or -EBADMSG.
 */
int merge_check_single(const struct gguf *g, struct err *e);
/*
 * Check that a shard's split.tensors.count, if present, is the number of tensors in all shards.
 * Returns 0 or -EBADMSG.
 */
int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e);
/*
 * Merge n checked shards. Returns 0, -EBADMSG (two shards have a tensor of the same name, or sizes
 * overflow), -EFBIG or -ENOMEM. The caller owns *ret.
 */
int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e);

/* ---- the files opened ---- */

/*
 * The opened files of a split model, until the first snapshot and its store take them over
 * (shards_release()).
 */
struct shards {
    size_t n;             /* files; 0: the model is not split */
    struct split split;   /* owned: their paths */
    char **name;          /* owned: the names of the opened files */
    struct gguf **g;      /* owned references: the files' contents as opened; the first is NULL */
    struct mapped **file; /* owned references, until shards_release(); the first is NULL */
};

/*
 * If `path` has a shard's name, set s->n to the number of files to open and *first to the path of
 * the first, which the caller frees. Otherwise set s->n to 0. Returns 0 or -ENOMEM.
 */
int shards_find(struct shards *s, const char *path, char **first);
void shards_free(struct shards *s);
/* Release the files so that a replaced one is not kept open. From then on the store holds them. */
void shards_release(struct shards *s);

/* Merge the shards, using g as the first. The caller owns *ret. */
int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e);

#endif
