/* SPDX-License-Identifier: MIT */
/*
 * A generation: one state of the model file, parsed and mapped, immutable and counted.
 *
 * The tree shows the newest generation; whoever reads holds a reference for as long as it uses the
 * bytes. An edit makes a new generation and never changes an old one. Tensor bytes are the same in
 * all of them. Room for models of several files: a tensor's bytes are asked for with gen_data(),
 * never by arithmetic on the one mapping.
 *
 * Threads: any; what is cached (sizes of texts) is atomic.
 */
#ifndef TREE_GEN_H
#define TREE_GEN_H

#include <stdatomic.h>
#include <sys/stat.h>

#include "base/map.h"
#include "gguf/gguf.h"

struct gen {
    atomic_uint refs;
    uint64_t number;   /* 0 for the first generation of a mount */
    int fd;            /* owned: the model file, for reading */
    struct stat st;    /* of the model file when it was opened */
    struct gguf *gguf; /* owned */
    struct map map;    /* the whole file */
    /* Names too long for a file name, by the hash of their file names. */
    struct index long_keys;
    struct index long_tensors;
    _Atomic(uint64_t) *key_size; /* owned: size of each key's text + 1, 0 while unknown */
    _Atomic(uint64_t) *row_size; /* owned: the same for the rendered files at the root */
};

/* Parse and map the open file `fd`, which passes to the generation on success. */
int gen_open(int fd, unsigned parse_flags, uint64_t number, struct gen **ret, struct err *e);
struct gen *gen_ref(struct gen *g);
void gen_unref(struct gen *g);
/* For CLEANUP(). */
void gen_unrefp(struct gen **g);

/* The number of the key or tensor with this file name, UINT32_MAX if there is none. */
uint32_t gen_find_key(const struct gen *g, const char *file);
uint32_t gen_find_tensor(const struct gen *g, const char *file);

/* A tensor's stored bytes in the mapping; NULL if any of [first, last) is not in the file. */
const uint8_t *gen_data(const struct gen *g, const struct gguf_tensor *t, uint64_t first,
                        uint64_t last);

/* -EIO if the file has been cut since, so that its first `end` bytes are not all there. */
int gen_check(const struct gen *g, uint64_t end);

#endif
