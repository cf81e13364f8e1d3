/* SPDX-License-Identifier: MIT */
/*
 * The files of a split model: NAME-00001-of-00003.gguf and its siblings, as the splitting tools of
 * llama.cpp name them. The first is the one that is edited; the others are opened once and stay.
 *
 * Siblings are found beside the path that was given, before links are followed: in caches the
 * names are links to files that are called by a hash.
 *
 * Threads: immutable once opened.
 */
#ifndef TREE_SHARDS_H
#define TREE_SHARDS_H

#include "tree/store.h"

struct shards {
    size_t n;             /* files; 0: the model is not split */
    char *prefix;         /* owned: path up to NAME */
    char **name;          /* owned: file names */
    struct gguf **g;      /* owned; that of the first, which changes, is NULL */
    struct mapped **file; /* owned references; the first is NULL */
};

/*
 * If `path` has the name of a shard: 0 with s->n files to be opened, and the first one's path in
 * *first (free() it). 0 with s->n 0 if it has not. -ENOMEM.
 */
int shards_find(struct shards *s, const char *path, char **first);
/*
 * Open and check all but the first, of which g is what it holds; parse_flags as of gguf_parse().
 * -EBADMSG, -ENOENT, -ENODATA ... with a line that names the file.
 */
int shards_open(struct shards *s, const struct gguf *g, unsigned parse_flags, struct err *e);
void shards_free(struct shards *s);

/* The model that all of them make, when the first holds g; *ret is the caller's. */
int shards_merge(const struct shards *s, const struct gguf *g, struct gguf **ret, struct err *e);
/* The store of all of them, when the first holds g and is `first`. 0, -ENOMEM. */
int shards_store(const struct shards *s, const struct gguf *g, struct mapped *first,
                 struct store **ret);

#endif
