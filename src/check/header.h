/* SPDX-License-Identifier: MIT */
/*
 * The header of a model in files, without a mount: of a split model all are read, and merged. Of an
 * incomplete one the header must be whole. A header that an interrupted edit still has to write is
 * applied in memory. Nothing but headers is read.
 */
#ifndef CHECK_HEADER_H
#define CHECK_HEADER_H

#include "gguf/gguf.h"

struct header {
    struct gguf *g;   /* owned */
    size_t shards;    /* files of a split model; 0: it is not split */
    uint64_t missing; /* bytes of tensor data that are not in the files */
};

/* Of a split model any file may be given. 0, or -errno with a line, as a mount would print it. */
int header_open(const char *path, struct header *ret, struct err *e);
void header_free(struct header *h);

#endif
