/* SPDX-License-Identifier: MIT */
/*
 * What a tensor is to hold: its type, its shape, and where its bytes are that are not those of the
 * model below: in logs.
 *
 * Threads: everything is immutable and counted; any.
 */
#ifndef MODEL_CONTENT_H
#define MODEL_CONTENT_H

#include <stdatomic.h>

#include "base/err.h"
#include "gguf/gguf.h"

#define TENSOR_MAX_DIMS 4 /* of a shape that is made: ggml's limit */

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
 * A log: a file without a name to which drafts write. Room in it is taken once, at its end, so that bytes which a
 * piece refers to never change. It may become the journal of an edit (edit/journal.h); no more room is taken in it
 * then.
 */
struct log {
    atomic_uint refs;
    struct source src;      /* its size is that of log_source() */
    _Atomic(uint64_t) end;  /* bytes that are taken; and LOG_CLOSED */
    _Atomic(uint64_t) used; /* how many were written */
};

#define LOG_CLOSED ((uint64_t)1 << 63)
/* Its first bytes are not taken: they are for the head of a journal. */
#define LOG_ROOM ((uint64_t)64 << 10)

/* A log of a file, whose bytes are taken. fd passes to it on success; regular, at least for reading. 0, -ENOMEM,
 * -errno. */
int log_make(int fd, struct log **ret, struct err *e);
struct log *log_ref(struct log *s);
void log_unref(struct log *s); /* may be NULL */
/*
 * Reserve n bytes at *at without writing them. *at is `phase` bytes after a multiple of LOG_ROOM, so that they can be
 * cloned to a place with the same phase; a few bytes go to the end. -EBUSY: it is closed.
 */
int log_take(struct log *s, uint64_t n, uint64_t phase, uint64_t *at);
/* No more can be taken from now on; *end: how many were. False: it was closed before. */
bool log_close(struct log *s, uint64_t *end);
static inline uint64_t log_end(const struct log *s)
{
    return atomic_load(&s->end) & ~LOG_CLOSED;
}
struct source log_source(const struct log *s);

/* len > 0 bytes of a log, from `src` on, that stand at byte `at` of the tensor. */
struct tensor_piece {
    uint64_t at, len, src;
    struct log *log; /* in a content: a reference */
};

struct tensor_content {
    atomic_uint refs;
    struct tensor_shape shape; /* n_dims 0: type and shape of the base */
    uint64_t nbytes;
    uint64_t fresh; /* of all pieces */
    size_t n;       /* pieces: in order, disjoint, inside of the tensor; bytes that none */
    struct tensor_piece piece[]; /* of them has are those of the base */
};

struct tensor_content *tensor_content_ref(struct tensor_content *k); /* may be NULL */
void tensor_content_unref(struct tensor_content *k);

/*
 * The content with `shape` and `nbytes` that has these pieces over those of `old` (NULL: none), which
 * are cut off behind nbytes. 0, -EINVAL (pieces that overlap, are out of order, empty or lie outside
 * of the tensor or of their log), -ENOMEM.
 */
int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret);
/* How many bytes from `off` on, at most n > 0, come from one place: *ret, a piece; NULL: the base. k may be
 * NULL: all are the base's. */
uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret);
/* Bytes [off, off + n) of the tensor, which a piece has. 0, -EIO, -errno. */
int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n);
/* True if no byte is the base's. */
bool tensor_content_covers(const struct tensor_content *k);

#endif
