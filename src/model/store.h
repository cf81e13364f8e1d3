/* SPDX-License-Identifier: MIT */
/*
 * Where the bytes of a model's tensors are.
 *
 *  - Logs: files without a name that drafts write to.
 *  - Contents: what an edit put in place of a tensor's type, shape and bytes; the bytes are in logs.
 *  - Stores: the open, mapped files of a model, one or one per shard, and where in them each tensor's data lies.
 *    Accepted edits that are not in the file yet lie over it, as contents, and are read like everything else.
 *  - Forms: a tensor's values as a stream of bytes, whatever its type.
 *
 * Tensor bytes are the same in all snapshots with the same table of tensors (snapshot.h), so every reader takes them
 * from the newest store, and no replaced file is kept alive.
 *
 * Threads: immutable and counted; any.
 */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/map.h"
#include "gguf/gguf.h"

/* ---- contents ---- */

#define TENSOR_MAX_DIMS 4 /* for a new shape: ggml's limit */

struct tensor_shape {
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; /* as stored: the first varies fastest */
};

/*
 * Compute the bytes of a tensor of this shape. Returns 0, -EINVAL (no or more than 4 dimensions,
 * one of them 0, a row that is not a whole number of blocks, a size that overflows) or -EOPNOTSUPP
 * (an unknown type).
 */
int tensor_shape_bytes(const struct tensor_shape *s, uint64_t *ret, struct err *e);

/*
 * A log: a file without a name that drafts write to. Space is only ever taken at its end, and only once, so bytes
 * that a piece refers to never change. It may become the journal of an edit (edit/journal.h); after that no more
 * space is taken.
 */
struct log {
    atomic_uint refs;
    struct source src;      /* its size is that of log_source() */
    _Atomic(uint64_t) end;  /* bytes taken so far; and LOG_CLOSED */
    _Atomic(uint64_t) used; /* how many were written */
};

#define LOG_CLOSED ((uint64_t)1 << 63)
/* The first bytes are never taken: they are for the head of a journal. */
#define LOG_ROOM ((uint64_t)64 << 10)

/*
 * Make a log on a file whose present bytes count as taken. On success it owns fd, which must be a
 * regular file open at least for reading. Returns 0, -ENOMEM or -errno.
 */
int log_make(int fd, struct log **ret, struct err *e);
struct log *log_ref(struct log *s);
void log_unref(struct log *s); /* may be NULL */
/*
 * Reserve n bytes at *at without writing them. *at is `phase` bytes past a multiple of LOG_ROOM, so that they can be
 * cloned to a place with the same phase; small ranges simply go to the end. -EBUSY: the log is closed.
 */
int log_take(struct log *s, uint64_t n, uint64_t phase, uint64_t *at);
/* Allow no more to be taken. *end: how many bytes were. False: it was closed before. */
bool log_close(struct log *s, uint64_t *end);
static inline uint64_t log_end(const struct log *s)
{
    return atomic_load(&s->end) & ~LOG_CLOSED;
}
struct source log_source(const struct log *s);

/* len > 0 bytes of a log, starting at `src`, that replace those at byte `at` of the tensor. */
struct tensor_piece {
    uint64_t at, len, src;
    struct log *log; /* in a content: a reference */
};

struct tensor_content {
    atomic_uint refs;
    struct tensor_shape shape; /* n_dims 0: type and shape of the base */
    uint64_t nbytes;
    uint64_t fresh; /* bytes in all pieces */
    size_t n;       /* pieces: in order, disjoint, within the tensor; all other bytes */
    struct tensor_piece piece[]; /* come from the base */
};

struct tensor_content *tensor_content_ref(struct tensor_content *k); /* may be NULL */
void tensor_content_unref(struct tensor_content *k);

/*
 * Make the content with `shape` and `nbytes` that has these pieces over those of `old` (NULL:
 * none), which are cut off at nbytes. Returns 0, -EINVAL (pieces that overlap, are out of order,
 * empty, or lie outside the tensor or their log) or -ENOMEM.
 */
int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret);
/*
 * Return how many bytes from `off` on, at most n > 0, come from one place: *ret, a piece; NULL: the
 * base. k may be NULL: everything is the base's.
 */
uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret);
/* Read bytes [off, off + n) of the tensor, all within the piece. 0, -EIO, -errno. */
int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n);
/* True if no byte comes from the base. */
bool tensor_content_covers(const struct tensor_content *k);

/* ---- stores ---- */

/* An open file that is mapped completely. References are counted. */
struct mapped {
    atomic_uint refs;
    int fd;             /* owned */
    atomic_bool cut;    /* a check has failed: the file is shorter than it was */
    bool far;           /* far_file() */
    struct far_run run; /* reads of a far file */
    struct map map;
};

/* Map the first `size` bytes of a duplicate of fd. 0, -ENOMEM, -errno. */
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
/* Copy bytes [off, off + n) under map_guard(); end: as for mapped_want(). 0, -EIO (the file was cut, or is shorter). */
int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end);
/* Return the file as a source, which must not outlive it. The second function returns the file
 * behind such a source, or NULL for other sources. */
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
 * Make a store of n files, each laid out as in g[i]. Their tensors, one file after another, are the
 * model's. Takes its own references. Returns 0 or -ENOMEM.
 */
int store_make(struct mapped *const *file, const struct gguf *const *g, size_t n,
               struct store **ret);
/* Make a store of these files and places (copied). Takes its own references. Returns 0 or
 * -ENOMEM. */
int store_of(struct mapped *const *file, size_t files, const struct place_in_store *place, size_t n,
             struct store **ret);
struct store *store_ref(struct store *s);
void store_unref(struct store *s);

/* Return the mapping that holds all of bytes [off, off + n) of tensor i, at *at, or NULL if some of
 * them are in drafts. */
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
/* Return how many of tensor i's n bytes exist, counting from the first. */
uint64_t store_there(const struct store *s, uint32_t i, uint64_t n);
/* Return -EIO if the file was truncated since, so that these bytes no longer all exist. */
int store_check(const struct store *s, uint32_t i, uint64_t first, uint64_t last);
/* True if a file is known to have been cut. */
bool store_cut(const struct store *s);

/* ---- forms ---- */

/*
 * Values are decoded from the mapping under map_guard(), only the blocks that a range touches. The file's size is
 * checked afterwards, because a page beyond the end of a truncated file reads as zeros without a signal.
 */
struct form {
    unsigned width;    /* bytes of a value; 0: the width of an element of the tensor's type */
    uint32_t same;     /* the ggml type whose little-endian data already has this form */
    const char *descr; /* NumPy's name for it; NULL: it has none */
    void (*read)(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off, size_t n,
                 void *dst);
};

extern const struct form form_f32, form_f16, form_bf16;
/* For types with one element per block (floats and integers): the elements as stored, but little-endian. */
extern const struct form form_stored;

/* False if the stored bytes already have this form. */
bool form_decodes(const struct form *f, const struct gguf *g, const struct gguf_tensor *t);
/* Return the size in bytes of all values of a tensor. */
uint64_t form_size(const struct form *f, const struct gguf_tensor *t);
/*
 * Read bytes [off, off + n) of the values of tensor i, within form_size(), into dst. The caller has checked
 * quant_has_values(). 0, -EIO (the file was truncated, or lacks these bytes).
 */
int form_read(const struct form *f, const struct gguf *g, const struct store *s, uint32_t i,
              uint64_t off, void *dst, size_t n);

#endif
