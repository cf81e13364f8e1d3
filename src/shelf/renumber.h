/* SPDX-License-Identifier: MIT */
/*
 * Numbers of nodes in a model that is closed after edits and opened again: each tree counts its keys,
 * tensors and views of the whole from 0, and to the kernel no number of before may mean something else.
 *
 *     r = renumber_after(&n, &left);              the tree was closed: tree_leave()
 *     node = renumber_out(&n, local);             of the tree that is open now, to the kernel
 *     known = renumber_in(&n, node, &local);      and back
 *
 * Tensors keep their numbers, so that a process may stay in the folder of one. Keys and views of the
 * whole get others: the kernel looks up their names at each use.
 *
 * Threads: constant while a tree is open.
 */
#ifndef SHELF_RENUMBER_H
#define SHELF_RENUMBER_H

#include <stdbool.h>

#include "tree/tree.h"

struct renumber {
    uint32_t wholes, keys; /* added to the tree's own */
    uint32_t n;            /* tensors that it began with */
    uint32_t tensors;      /* what the first that it adds gets; 0: tensors have its own numbers */
    struct ids *ids;       /* a reference: what those that it began with get; NULL: their own */
};

#define RENUMBER_NONE ((struct renumber){0})

/* Takes the reference in `left`. 0; -ENOMEM, -EOVERFLOW: the next tree needs another slot. */
int renumber_after(struct renumber *r, struct tree_left *left);
void renumber_free(struct renumber *r);

uint64_t renumber_out(const struct renumber *r, uint64_t local);
/* The same of a st_ino: a tensor's file has that of the tensor, in each version. */
uint64_t renumber_ino(const struct renumber *r, uint64_t ino);
/* False: the tree that is open now does not have it. */
bool renumber_in(const struct renumber *r, uint64_t node, uint64_t *local);

#endif
