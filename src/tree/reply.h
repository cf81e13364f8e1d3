/* SPDX-License-Identifier: MIT */
/* The answer to a read: its bytes, or where they are. Threads: an answer belongs to one. */
#ifndef TREE_REPLY_H
#define TREE_REPLY_H

#include "derive/work.h"
#include "live/live.h"
#include "model/store.h"

/* An answer to a read. */
struct reply {
    const uint8_t *bytes; /* in `scratch`, the text of the open file, or `mapped` */
    size_t len;
    uint8_t *scratch;       /* given by the caller: room for as many bytes as were asked for */
    struct mapped *mapped;  /* owned reference; NULL if the bytes are elsewhere */
    uint64_t end;           /* of the bytes in `mapped` */
    struct work *work;      /* by the tree: what is computed of the model */
    struct live_wait *wait; /* by the caller: a read may wait until what it shows is computed */
};

/*
 * The most bytes of a file that are copied to scratch to answer a read: a copy that stays in the
 * processor's second cache (1 MiB on most) makes the kernel's faster by what it costs.
 */
#define REPLY_COPY_MAX ((size_t)256 << 10)

/* n more bytes of the answer, to be filled, or copied from p; or all of it, at `first`. */
uint8_t *reply_room(struct reply *r, size_t n);
void reply_copy(struct reply *r, const void *p, size_t n);
void reply_point(struct reply *r, struct mapped *m, uint64_t first, size_t n);

#endif
