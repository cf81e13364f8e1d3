/* SPDX-License-Identifier: MIT */
/*
 * A store: the open, mapped files of a model and where in them each tensor's data lies. There is one file, or one per
 * shard. Accepted edits that are not in the file yet lie over it, in drafts (content.h), and are read like everything
 * else.
 *
 * Tensor bytes are the same in all snapshots with the same table of tensors (ids.h), so every reader takes them from
 * the newest store, and no replaced file is kept alive.
 *
 * Threads: immutable and counted; any.
 */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include <stdatomic.h>

#include "base/map.h"
#include "model/content.h"

/* An open file, mapped completely. Counted. */
struct mapped {
    atomic_uint refs;
    int fd;             /* owned */
    atomic_bool cut;    /* a check has failed: the file is shorter than it was */
    bool far;           /* far_file() */
    struct far_run run; /* reads of a far file */
    struct map map;
};

/* Map the first `size` bytes of fd, which it takes over on success. */
int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e);
struct mapped *mapped_ref(struct mapped *m);
void mapped_unref(struct mapped *m);
/*
 * Announce that bytes [off, off + n) are about to be read through the mapping, in a part that ends at `end`. Without
 * this the read works too, but page by page if the file is on another machine (base/map.h).
 */
static inline void mapped_want(struct mapped *m, uint64_t off, uint64_t n, uint64_t end)
{
    if (m->far)
        (void)far_want(&m->run, &m->map, off, n, end);
}
/* Like map_check(); sets `cut` if it fails. */
int mapped_check(struct mapped *m, uint64_t end);
/* Copy bytes [off, off + n) under map_guard(). 0, -EIO (the file was cut, or is shorter). */
int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n);
/* The same within a part that ends at `end`, as for mapped_want(). */
int mapped_copy_of(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end);
/* The file as a source, which must not outlive it; and the file behind such a source, NULL for other sources. */
struct source mapped_source(struct mapped *m);
struct mapped *mapped_of(const struct source *s);

struct store {
    atomic_uint refs;
    struct mapped **file; /* owned references, in the order of shards */
    size_t files;
    struct place_in_store *place; /* owned: one per tensor, in the order of the model */
    size_t n;                     /* tensors */
};

struct place_in_store {
    uint64_t off; /* of its data in the file */
    uint32_t file;
    uint32_t shard;              /* which of the model's files it belongs to */
    struct tensor_content *over; /* a reference: bytes that replace those of the file; or NULL */
};

/*
 * A store of n files, each laid out as in g[i]. Their tensors, one file after another, are the model's. Takes its own
 * references. 0, -ENOMEM.
 */
int store_make(struct mapped *const *file, const struct gguf *const *g, size_t n,
               struct store **ret);
/* A store of these files and places (copied). Takes its own references. 0, -ENOMEM. */
int store_of(struct mapped *const *file, size_t files, const struct place_in_store *place, size_t n,
             struct store **ret);
struct store *store_ref(struct store *s);
void store_unref(struct store *s);

/* The mapping that holds all of bytes [off, off + n) of tensor i, at *at; NULL: some of them are in drafts. */
struct mapped *store_mapped(const struct store *s, uint32_t i, uint64_t off, uint64_t n,
                            uint64_t *at);
/*
 * Read bytes [off, off + n) of tensor i, which has `end` bytes (mapped_want()). 0, -EIO (the file was cut, or is
 * shorter), -errno of a draft.
 */
int store_read(const struct store *s, uint32_t i, uint64_t off, void *dst, size_t n, uint64_t end);
/*
 * The same for callers that decode: *ret points to byte `first`, either in the mapping, to be read under map_guard()
 * and then checked with store_check(), or in *room, to be freed, if the bytes are not all there. An empty range lies
 * in no file, wherever the tensor is. 0, -ENOMEM, as above.
 */
int store_bytes(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t end,
                uint8_t **room, const uint8_t **ret);
/* How many of tensor i's n bytes exist, counting from the first. */
uint64_t store_there(const struct store *s, uint32_t i, uint64_t n);
/* -EIO if the file was cut since, so that these bytes no longer all exist. */
int store_check(const struct store *s, uint32_t i, uint64_t first, uint64_t last);
/* True if a file is known to have been cut. */
bool store_cut(const struct store *s);

#endif
