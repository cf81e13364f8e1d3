/* SPDX-License-Identifier: MIT */
/* Numbers of nodes from one tree to the next: see renumber.h. */
#include "shelf/renumber.h"

#include <errno.h>
#include <stdlib.h>

/* Half of all numbers: what a tree adds to them while it is open is far less. */
#define MOST (UINT32_MAX / 2)

void renumber_free(struct renumber *r)
{
    ids_unref(r->ids);
    *r = RENUMBER_NONE;
}

static uint32_t tensor_out(const struct renumber *r, uint32_t number, bool version)
{
    if (r->tensors == 0)
        return number;
    if (number >= r->n)
        return number - r->n + r->tensors;
    const struct tensor_id id = ids_of(r->ids, number);
    return version ? id.version : id.number;
}

/* What the tensors have that a tree has left. */
static int ids_after(const struct renumber *r, struct tree_left *left, struct ids **ret)
{
    if (r->tensors == 0) {
        *ret = ids_ref(left->ids);
        return 0;
    }
    struct tensor_id *of = malloc(((size_t)left->n + 1) * sizeof(*of));
    if (!of)
        return -ENOMEM;
    for (uint32_t i = 0; i < left->n; i++) {
        const struct tensor_id id = ids_of(left->ids, i);
        of[i] =
            (struct tensor_id){tensor_out(r, id.number, false), tensor_out(r, id.version, true)};
    }
    int e = ids_make(of, left->n, ret);
    free(of);
    return e;
}

static int tensors_after(struct renumber *r, struct tree_left *left)
{
    struct ids *ids = NULL;
    uint32_t next = tensor_out(r, left->tensors, false);
    if (!left->ids && left->tensors == left->n)
        return 0; /* they have the numbers that they began with */
    if (next > MOST)
        return -EOVERFLOW;
    int e = ids_after(r, left, &ids);
    if (e < 0)
        return e;
    ids_unref(r->ids);
    r->ids = ids;
    r->tensors = next;
    r->n = left->n;
    return 0;
}

int renumber_after(struct renumber *r, struct tree_left *left)
{
    int e = r->wholes > MOST || r->keys > MOST ? -EOVERFLOW : tensors_after(r, left);
    if (e == 0) {
        r->wholes += left->wholes;
        r->keys += left->keys;
    }
    ids_unref(left->ids);
    left->ids = NULL;
    return e;
}

static uint64_t out(const struct renumber *r, uint64_t local, bool ino)
{
    struct node n = ino_node(local);
    if (n.kind == NODE_WHOLE)
        n.number += r->wholes;
    else if (n.kind == NODE_KEY)
        n.number += r->keys;
    else if (n.kind == NODE_TENSOR || n.kind == NODE_TENSOR_FILE)
        n.number = tensor_out(r, n.number, n.kind == NODE_TENSOR_FILE && !ino);
    else
        return local;
    return ino_of(&n);
}

uint64_t renumber_out(const struct renumber *r, uint64_t local)
{
    return out(r, local, false);
}

uint64_t renumber_ino(const struct renumber *r, uint64_t ino)
{
    return out(r, ino, true);
}

static bool minus(uint32_t *number, uint32_t before)
{
    bool known = *number >= before;
    *number -= before;
    return known;
}

static bool tensor_in(const struct renumber *r, uint32_t *number, bool version)
{
    if (r->tensors == 0)
        return true;
    uint32_t i =
        version ? ids_find_version(r->ids, r->n, *number) : ids_find(r->ids, r->n, *number);
    if (i == IDS_NONE) {
        bool known = minus(number, r->tensors);
        *number += r->n;
        return known;
    }
    *number = i;
    return true;
}

bool renumber_in(const struct renumber *r, uint64_t node, uint64_t *local)
{
    struct node n = ino_node(node);
    bool known = true;
    if (n.kind == NODE_WHOLE)
        known = minus(&n.number, r->wholes);
    else if (n.kind == NODE_KEY)
        known = minus(&n.number, r->keys);
    else if (n.kind == NODE_TENSOR || n.kind == NODE_TENSOR_FILE)
        known = tensor_in(r, &n.number, n.kind == NODE_TENSOR_FILE);
    *local = n.kind == NODE_ROOT || n.kind == NODE_DIR || n.kind == NODE_NONE ? node : ino_of(&n);
    return known;
}
