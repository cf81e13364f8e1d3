/* SPDX-License-Identifier: MIT */
/*
 * The names of a split model's files: NAME-00001-of-00003.gguf and its siblings, as the splitting
 * tools of llama.cpp write them.
 *
 *     r = split_find("dir/x-00002-of-00003.gguf", &s);     s.n is 3; 0 if the model is not split
 *     path = split_path(&s, 0);                            "dir/x-00001-of-00003.gguf"
 *     split_free(&s);
 *
 * Siblings are looked for beside the given path, before links are followed: in caches the names are
 * links to files whose names are hashes. If the first shard does not exist there, or the link does
 * not have a shard's name, they are looked for beside the target of the link.
 *
 * Threads: immutable once found.
 */
#ifndef MODEL_SPLIT_H
#define MODEL_SPLIT_H

#include <stddef.h>

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

#endif
