/* SPDX-License-Identifier: MIT */
/*
 * Split models: the names of their files, NAME-00001-of-00003.gguf and its siblings, as llama.cpp's tools for
 * splitting write them; opening the files; and merging them into one model.
 *
 *     r = split_find("dir/x-00002-of-00003.gguf", &s);     s.n is 3; 0 if the model is not split
 *     path = split_path(&s, 0);                            "dir/x-00001-of-00003.gguf"
 *     split_free(&s);
 *
 * Siblings are looked for next to the given path first: in caches the names are links to files named by hash. If the
 * first shard is not there, or the link does not have a shard's name, they are looked for next to the link's target.
 *
 * The merged model looks like one file: the first shard's keys without `split.*`, and all tensors in the order of the
 * shards, laid out regularly with the first shard's alignment. Only its header is built; tensor data stays in its
 * files.
 *
 * Threads: immutable once found or opened; merging is pure.
 */
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/store.h"

struct split {
    size_t n;     /* files; 0: the model is not split */
    char *prefix; /* owned: path up to and including NAME; NULL if it is not split */
};

/* Bytes of "-00001-of-00003.gguf", which follows NAME. */
#define SPLIT_TAIL 20

/* Return the number of files according to one file's name, or 0 if it is not the name of a
 * shard. */
size_t split_count(const char *name);

/* Find the files of a split model. Returns 0, even if the model is not split or does not exist, or
 * -ENOMEM. */
int split_find(const char *path, struct split *ret);
void split_free(struct split *s);

/* Return the path of file number i, from 0. i == n is one too many, and must not exist. The caller
 * frees it. */
char *split_path(const struct split *s, size_t i);
/* The same without directories. */
char *split_name(const struct split *s, size_t i);
/* Return the name of file i of n, given the name of any of them. The caller frees it. */
char *split_sibling(const char *name, size_t i, size_t n);

/* ---- as one model ---- */

/* Check shard number i (from 0) of n: split.no, split.count, and the first's version and byte order. 0, -EBADMSG. */
int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e);
/* Refuse a file that is a shard by its keys, but not by its name, because its siblings cannot be found. 0, -EBADMSG. */
int merge_check_single(const struct gguf *g, struct err *e);
/* Check that a shard's split.tensors.count, if present, is the number of tensors in all shards. 0, -EBADMSG. */
int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e);
/*
 * Merge n checked shards. Returns 0, -EBADMSG (two shards have a tensor of the same name, sizes
 * overflow), -EFBIG or -ENOMEM. The caller owns *ret.
 */
int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e);

/* ---- the files opened ---- */

/* The first snapshot and its store take them over: shards_release(). */
struct shards {
    size_t n;             /* files; 0: the model is not split */
    struct split split;   /* owned: their paths */
    char **name;          /* owned: the names of the opened files */
    struct gguf **g;      /* owned references: the models as opened; the first is NULL */
    struct mapped **file; /* owned references, until shards_release(); the first is NULL */
};

/*
 * If `path` has the name of a shard, set s->n to the number of files to open, and *first to the
 * first one's path, which the caller frees; otherwise set s->n to 0. Returns 0 or -ENOMEM.
 */
int shards_find(struct shards *s, const char *path, char **first);
void shards_free(struct shards *s);
/* Release the files, which the store has from now on, so that a replaced file is not kept open. */
void shards_release(struct shards *s);

/* Merge the shards, with g as the first. The caller owns *ret. */
int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e);

#endif
