/* SPDX-License-Identifier: MIT */
/*
 * The files of a split model, opened (model/split.h finds them). They pass to the first
 * snapshot and its store: shards_release().
 *
 * Threads: immutable once opened.
 */
#ifndef MODEL_SHARDS_H
#define MODEL_SHARDS_H

#include "model/split.h"
#include "model/store.h"

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
