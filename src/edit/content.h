/* SPDX-License-Identifier: MIT */
/*
 * What a tensor is to hold: its type, its shape, and where its bytes are that are not those of the
 * model below: in drafts.
 *
 * Threads: everything is immutable and counted; any.
 */
#ifndef EDIT_CONTENT_H
#define EDIT_CONTENT_H

#include <stdatomic.h>

#include "base/err.h"
#include "gguf/gguf.h"

#define EDIT_MAX_DIMS 4 /* of a shape that is made: ggml's limit */

struct edit_shape {
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[EDIT_MAX_DIMS]; /* as stored: the first varies fastest */
};

/*
 * Bytes of a tensor of this shape. 0; -EINVAL (no or more than 4 dimensions, one of them 0, a row
 * that is not a whole number of blocks, a size that overflows), -EOPNOTSUPP (an unknown type).
 */
int edit_shape_bytes(const struct edit_shape *s, uint64_t *ret, struct err *e);

/* A draft: a file or memory that does not change any more. */
struct edit_draft {
    atomic_uint refs;
    struct source src;        /* fd -1: src.mem points to all bytes */
    uint8_t *bytes;           /* owned: these; NULL: they are in a file, or those of `whole` */
    size_t room;              /* of `bytes` */
    struct edit_draft *whole; /* a reference: the draft whose file it is; NULL: it owns src.fd */
    /* Its file may become a journal (journal_adopt()), once: it has no name, its first EDIT_DRAFT_ROOM
     * bytes are not used, and it ends where src does. 0 or 1, and no
     * atomic_bool: gcc 12 calls libatomic to exchange one byte on riscv64. */
    atomic_uint lends;
};

#define EDIT_DRAFT_ROOM ((uint64_t)64 << 10)

struct edit_file;
/*
 * A file for a draft: without a name, beside the model; where the file system has none, one whose
 * name is removed at once. The descriptor, or -errno. Only what never changes of f is used.
 */
int edit_draft_open(const struct edit_file *f, struct err *e);

/* fd passes to it on success; regular, at least for reading. 0, -ENOMEM, -errno. */
int edit_draft_file(int fd, struct edit_draft **ret, struct err *e);
/* The first `size` bytes of the file of a draft that has grown, and grows no more there. NULL: no
 * memory. */
struct edit_draft *edit_draft_part(struct edit_draft *of, uint64_t size);
/* All drafts of a process that are in memory have no more bytes than this together: those of the norms of
 * a large model. */
#define EDIT_DRAFT_MEMORY ((uint64_t)64 << 20)
/* A draft of n zeros in memory, which the caller writes to. 0, -ENOMEM; -EFBIG: no more is to be in
 * memory. */
int edit_draft_memory(size_t n, struct edit_draft **ret);
struct edit_draft *edit_draft_ref(struct edit_draft *d);
void edit_draft_unref(struct edit_draft *d); /* may be NULL */

/* len > 0 bytes of a draft, from `src` on, that stand at byte `at` of the tensor. */
struct edit_piece {
    uint64_t at, len, src;
    struct edit_draft *draft; /* in a content: a reference */
};

struct edit_content {
    atomic_uint refs;
    struct edit_shape shape; /* n_dims 0: type and shape of the base */
    uint64_t nbytes;
    size_t n; /* pieces: in order, disjoint, inside of the tensor; bytes that none */
    struct edit_piece piece[]; /* of them has are those of the base */
};

struct edit_content *edit_content_ref(struct edit_content *k); /* may be NULL */
void edit_content_unref(struct edit_content *k);

/*
 * The content with `shape` and `nbytes` that has these pieces over those of `old` (NULL: none), which
 * are cut off behind nbytes. 0, -EINVAL (pieces that overlap, are out of order, empty or lie outside
 * of the tensor or of their draft), -ENOMEM.
 */
int edit_content_make(const struct edit_shape *shape, uint64_t nbytes,
                      const struct edit_content *old, const struct edit_piece *piece, size_t n,
                      struct edit_content **ret);
/* True if no byte is the base's. */
bool edit_content_covers(const struct edit_content *k);

#endif
