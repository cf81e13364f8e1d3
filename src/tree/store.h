/* SPDX-License-Identifier: MIT */
/*
 * A store: an open, mapped model file and where in it each tensor's data lies.
 *
 * Tensor bytes are the same in all generations, so every reader takes them from the newest store,
 * and no file that was replaced is kept alive. Room for models of several files: a tensor's bytes
 * are asked for with store_data(), never by arithmetic on the one mapping.
 *
 * Threads: immutable and counted; any.
 */
#ifndef TREE_STORE_H
#define TREE_STORE_H

#include <stdatomic.h>

#include "base/map.h"
#include "gguf/gguf.h"

struct store {
    atomic_uint refs;
    int fd;         /* owned: the model file, for reading */
    struct map map; /* the whole file */
    uint64_t *off;  /* owned: of each tensor's data in the file */
};

/* Map the first `size` bytes of fd, laid out as g tells. fd passes to the store on success. */
int store_open(int fd, uint64_t size, const struct gguf *g, struct store **ret, struct err *e);
struct store *store_ref(struct store *s);
void store_unref(struct store *s);

/* Bytes [first, last) of tensor i's data in the mapping; NULL if they are not all in the file. */
const uint8_t *store_data(const struct store *s, uint32_t i, uint64_t first, uint64_t last);
/* -EIO if the file has been cut since, so that these bytes are not all there any more. */
int store_check(const struct store *s, uint32_t i, uint64_t last);

#endif
