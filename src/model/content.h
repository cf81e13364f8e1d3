/* SPDX-License-Identifier: MIT */
/*
 * The edited content of a tensor: its type, its shape, and the bytes that replace those of the model, which lie in
 * logs.
 *
 * Threads: everything is immutable and counted; any.
 */
#ifndef MODEL_CONTENT_H
#define MODEL_CONTENT_H

#include <stdatomic.h>

#include "base/err.h"
#include "gguf/gguf.h"

#define TENSOR_MAX_DIMS 4 /* for a new shape: ggml's limit */

struct tensor_shape {
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; /* as stored: the first varies fastest */
};

/*
 * Bytes of a tensor of this shape. 0; -EINVAL (no or more than 4 dimensions, one of them 0, a row
 * that is not a whole number of blocks, a size that overflows), -EOPNOTSUPP (an unknown type).
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
 * A log on a file whose present bytes count as taken. On success it owns fd, which must be a regular file open at
 * least for reading. 0, -ENOMEM, -errno.
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
 * The content with `shape` and `nbytes` that has these pieces over those of `old` (NULL: none), which are cut off at
 * nbytes. 0, -EINVAL (pieces that overlap, are out of order, empty, or lie outside the tensor or their log), -ENOMEM.
 */
int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret);
/*
 * How many bytes from `off` on, at most n > 0, come from one place: *ret, a piece; NULL: the base. k may be NULL:
 * everything is the base's.
 */
uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret);
/* Read bytes [off, off + n) of the tensor, all within the piece. 0, -EIO, -errno. */
int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n);
/* True if no byte comes from the base. */
bool tensor_content_covers(const struct tensor_content *k);

#endif
