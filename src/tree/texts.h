/* SPDX-License-Identifier: MIT */
/*
 * Texts that are shown as a whole, rendered once for all handles that show the same: a key or a
 * view of the whole, in one snapshot. A text exists for as long as a handle holds it; it keeps
 * nothing else alive, neither the snapshot nor its file.
 *
 * Threads: any. A caller that comes while a text is being rendered waits for it, and for no other.
 */
#ifndef TREE_TEXTS_H
#define TREE_TEXTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/pool.h"

struct rendered {
    struct link link; /* first; protected by in->lock, as refs is */
    struct texts *in;
    uint64_t snap, node;
    unsigned refs; /* handles that hold it, or wait for it */
    atomic_bool made;
    struct buf bytes; /* once made: constant */
};

struct texts {
    struct lock lock;
    struct rendered *kept; /* a reference, or NULL; protected by lock */
    struct table all;
};

void texts_init(struct texts *l);
void texts_free(struct texts *l); /* when nobody holds a text any more */

/*
 * The text of a node in a snapshot, made by render(arg, ...) if nobody has it. 0 and a reference
 * for rendered_unref(); -ENOMEM, or what render() left as the buf's error.
 */
int texts_get(struct texts *l, uint64_t snap, uint64_t node,
              void (*render)(const void *arg, struct buf *out), const void *arg,
              struct rendered **ret);
/*
 * The same, and the text stays until that of a later snapshot is kept: one in all, for what takes
 * long to make, or may not be the same twice because it reads the disk.
 */
int texts_keep(struct texts *l, uint64_t snap, uint64_t node,
               void (*render)(const void *arg, struct buf *out), const void *arg,
               struct rendered **ret);
void rendered_unref(struct rendered *x); /* may be NULL */

#endif
