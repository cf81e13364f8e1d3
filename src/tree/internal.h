/* SPDX-License-Identifier: MIT */
/* What the files of the tree layer share; private to it. */
#ifndef TREE_INTERNAL_H
#define TREE_INTERNAL_H

#include <pthread.h>

#include "tree/tree.h"

/* Rows of the root that the tree itself knows. */
enum { ROOT_METADATA = 0, ROOT_TENSORS = 1 };

struct tree {
    struct tree_options opt;
    char *path; /* owned: the model's real path */
    pthread_mutex_t lock;
    struct gen *gen; /* a reference to the newest generation; protected by lock */
    unsigned odd;    /* of the first generation, for the warnings */
};

/* A reference to the newest generation. */
struct gen *tree_gen(struct tree *t);

/* The tensor that a node belongs to, NULL if it belongs to none. */
const struct gguf_tensor *node_tensor(const struct gen *g, const struct node *n);
/* The row of a node, NULL if it is none (root, tensor folder, key). */
const struct row *node_row(const struct node *n);
/* -ENOENT if there is no such node in the generation. */
int node_check(const struct gen *g, const struct node *n);
bool node_is_dir(const struct node *n);

/* A node's entry: number and attributes. */
int node_entry(const struct tree *t, const struct gen *g, uint64_t ino, struct tree_entry *ret);

/* The text of a metadata key, and its size (cached). */
void key_text(const struct gen *g, uint32_t key, struct buf *out);

#endif
