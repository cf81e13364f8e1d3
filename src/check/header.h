/* SPDX-License-Identifier: MIT */
/*
 * The header of a model, without a mount. The headers of a split model are all read, and merged. An
 * incomplete model must have a complete header. A header that an interrupted edit still has to
 * write is applied in memory. Only headers are read.
 */
#ifndef CHECK_HEADER_H
#define CHECK_HEADER_H

#include "gguf/gguf.h"

struct header {
    struct gguf *g;   /* owned */
    size_t shards;    /* files of a split model; 0: it is not split */
    uint64_t missing; /* bytes of tensor data that are not in the files */
};

/* Any file of a split model may be given. 0, or -errno with the line that a mount would print. */
int header_open(const char *path, struct header *ret, struct err *e);
void header_free(struct header *h);

#endif
