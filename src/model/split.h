/* SPDX-License-Identifier: MIT */
/*
 * Split models: the names of their files, NAME-00001-of-00003.gguf and its siblings, as the splitting
 * tools of llama.cpp write them; the files opened; and all of them as one model.
 *
 *     r = split_find("dir/x-00002-of-00003.gguf", &s);     s.n is 3; 0 if the model is not split
 *     path = split_path(&s, 0);                            "dir/x-00001-of-00003.gguf"
 *     split_free(&s);
 *
 * Siblings are looked for beside the given path, before links are followed: in caches the names are
 * links to files whose names are hashes. If the first shard does not exist there, or the link does
 * not have a shard's name, they are looked for beside the target of the link.
 *
 * The merged model is as if they were one file: it has the first shard's keys without `split.*`, all tensors in the order
 * of the shards, laid out regularly to the first shard's alignment. Only its header is made, tensor data stays in its files.
 *
 * Threads: immutable once found or opened; merging is pure.
 */
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include "model/store.h"

struct split {
    size_t n;     /* files; 0: the model is not split */
    char *prefix; /* owned: path up to NAME; NULL if it is not split */
};

/* Bytes of "-00001-of-00003.gguf", which stands behind NAME. */
#define SPLIT_TAIL 20

/* The number of files that the name of one of them gives; 0: it is not one of a split model. */
size_t split_count(const char *name);

/* 0, also if the model is not split or does not exist; -ENOMEM. */
int split_find(const char *path, struct split *ret);
void split_free(struct split *s);

/* The path of file number i, from 0; i == n is the one that must not be there. free() it. */
char *split_path(const struct split *s, size_t i);
/* The same without folders. */
char *split_name(const struct split *s, size_t i);
/* The name of file i of n, given that of any of them. free() it. */
char *split_sibling(const char *name, size_t i, size_t n);

/* ---- as one model ---- */

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

/* ---- the files opened ---- */

/* They pass to the first snapshot and its store: shards_release(). */
struct shards {
    size_t n;             /* files; 0: the model is not split */
    struct split split;   /* owned: their paths */
    char **name;          /* owned: file names, of those that were opened */
    struct gguf **g;      /* owned references: as they were opened; the first is NULL */
    struct mapped **file; /* owned references, until shards_release(); the first is NULL */
};

/*
 * If `path` is a shard by its name: 0 with s->n files to be opened, and the first one's path in
 * *first (free() it). 0 with s->n 0 if it has not. -ENOMEM.
 */
int shards_find(struct shards *s, const char *path, char **first);
void shards_free(struct shards *s);
/* A store has the files from now on: one that is replaced is not kept open. */
void shards_release(struct shards *s);

/* The model that all of them make, when the first holds g; *ret is the caller's. */
int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e);

#endif
