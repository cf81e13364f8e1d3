/* SPDX-License-Identifier: MIT */
/*
 * Finds the files of a model that llama.cpp's splitting tools wrote as NAME-00001-of-00003.gguf and
 * its siblings, and merges them into one model.
 *
 *     r = shards_find(&s, "dir/x-00002-of-00003.gguf");    s.n is 3; 0 if the model is not split
 *     path = shards_path(&s, 0);                           "dir/x-00001-of-00003.gguf"
 *     shards_free(&s);
 *
 * Siblings are first looked for next to the given path, because in a cache the names are links to
 * files named by hash. If the first shard is not there, or the path does not have a shard's name,
 * siblings are looked for next to the link's target.
 *
 * The merged model looks like one file. It has the first shard's keys without `split.*`, and all
 * tensors in the order of the shards, laid out regularly with the first shard's alignment. Only its
 * header is built; tensor data stays in the shards' files.
 */
#ifndef MODEL_SHARDS_H
#define MODEL_SHARDS_H

#include "model/store.h"

struct shards {
    size_t n;   /* number of files, without those that are missing; 0 if the model is not split */
    size_t all; /* number of files that the names state */
    char *path; /* owned: the path up to and including NAME; if not split, the whole path */
    /* These lists are filled in by model_open_shards() (edit/open.h). */
    size_t *no;           /* owned: the files' numbers, counted from 0 */
    char **name;          /* owned: the names of the files */
    struct gguf **g;      /* owned references to the files' contents, until shards_release() */
    struct mapped **file; /* likewise for the mapped files; file[0] is NULL */
};

/* Length of "-00001-of-00003.gguf", which follows NAME. */
#define SPLIT_TAIL 20

/* Return the number of shards that a file's name states, or 0 if it is not a shard's name. */
size_t split_count(const char *name);

/* Find the files of a model, whether or not they exist. Returns 0 or -ENOMEM. */
int shards_find(struct shards *ret, const char *path);
/* The same by the name in the path alone, without looking at any file. */
int shards_named(struct shards *ret, const char *path);
void shards_free(struct shards *s);
/*
 * Release the files and contents. From then on only a store and a snapshot hold them, so files that
 * an edit replaces are not kept.
 */
void shards_release(struct shards *s);

/* Return the path of file i, counted from 0; the caller frees it. */
char *shards_path(const struct shards *s, size_t i);
/* Return the name of file i of n, given the name of any of them. The caller frees it. */
char *split_sibling(const char *name, size_t i, size_t n);

/* Check the split.* numbers, version and byte order of shard i (from 0) of n. Returns 0 or
 * -EBADMSG. */
int merge_check(const struct gguf *first, const struct gguf *shard, size_t i, size_t n,
                struct err *e);
/* Refuse a shard whose file is not named like a shard, because its siblings cannot be found. */
int merge_check_single(const struct gguf *g, struct err *e);
/* Check that a shard's split.tensors.count, if present, equals the total number of tensors. */
int merge_check_total(const struct gguf *shard, uint64_t total, struct err *e);
/*
 * Merge n checked shards. Returns 0, -EBADMSG (two shards have a tensor of the same name, or sizes
 * overflow), -EFBIG or -ENOMEM. The caller owns *ret.
 */
int merge_shards(const struct gguf *const *shard, size_t n, struct gguf **ret, struct err *e);

#endif
