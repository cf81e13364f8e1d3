/* SPDX-License-Identifier: MIT */
/*
 * Finds and reads the bytes of a model's tensors.
 *
 *  - Logs are unnamed files that drafts write to.
 *  - Contents replace a tensor's type, shape and bytes in an edit. Their bytes are in logs.
 *  - Stores are the open, mapped files of a model (one file, or one per shard), with the place of
 *    each tensor's data in them. Accepted edits that have not landed in the file yet are laid over
 *    it as contents, and are read like everything else.
 *  - Forms turn the values of a tensor of any type into a stream of bytes.
 *  - Images are whole files that do not exist on disk in that form.
 *
 * Tensor bytes are the same in all snapshots with the same table of tensors (snapshot.h), so every
 * reader reads them from the newest store, and no replaced file is kept alive.
 *
 * Threads: any. Objects are immutable and reference-counted.
 */
#ifndef MODEL_STORE_H
#define MODEL_STORE_H

#include <stdatomic.h>

#include "base/err.h"
#include "base/map.h"
#include "gguf/gguf.h"

/* ---- contents ---- */

#define TENSOR_MAX_DIMS 4 /* ggml's limit, applied to new shapes */

struct tensor_shape {
    uint32_t type; /* ggml's id */
    uint32_t n_dims;
    uint64_t dims[TENSOR_MAX_DIMS]; /* as stored, so the first varies fastest */
};

/*
 * Compute the size in bytes of a tensor of this shape. Returns 0, -EINVAL (an impossible shape) or
 * -EOPNOTSUPP (an unknown type).
 */
int tensor_shape_bytes(const struct tensor_shape *s, uint64_t *ret, struct err *e);

struct sys;

/*
 * A log is an unnamed file that drafts write to. Space is taken only at the end of the file and is
 * never reused, so bytes that a piece refers to never change.
 */
struct log {
    struct log *next; /* its owner's */
    atomic_uint refs;
    struct source src;     /* the file; see log_source() for its size */
    _Atomic(uint64_t) end; /* number of bytes taken so far */
    atomic_int lost;       /* the error of a write to the disk that failed, or 0 */
};

/* No file system has larger blocks. */
#define LOG_BLOCK ((uint64_t)64 << 10)

/* Make a log on a regular file, whose existing bytes count as taken. On success the log owns fd. */
int log_make(int fd, struct log **ret, struct err *e);
void log_unref(struct log *s); /* s may be NULL */
/*
 * Reserve n bytes, and return their offset. It is `phase` bytes past a multiple of LOG_BLOCK, so
 * that they can be cloned to an offset with the same phase; small ranges simply go to the end.
 */
uint64_t log_take(struct log *s, uint64_t n, uint64_t phase);
static inline uint64_t log_end(const struct log *s)
{
    return atomic_load(&s->end);
}
struct source log_source(const struct log *s);
/*
 * Check that no bytes that were read from the log were lost before: the kernel may drop a page
 * whose write to the disk failed. So a log need not be synced before its bytes are used, only
 * checked afterwards. sync: so that none is lost later either. Returns 0, or -errno each time from
 * then on.
 */
int log_check(struct log *s, const struct sys *sys, bool sync, struct err *e);

/* A range of a log, `len` > 0 bytes from `src`, that replaces the tensor's bytes from `at`. */
struct tensor_piece {
    uint64_t at, len, src;
    struct log *log; /* a reference, if the piece is part of a content */
};

struct tensor_content {
    atomic_uint refs;
    atomic_bool safe;          /* the pieces are on the disk */
    struct tensor_shape shape; /* if n_dims is 0, type and shape are the base's */
    uint64_t nbytes;
    uint64_t fresh; /* total size of the pieces in bytes */
    size_t n;       /* number of pieces */
    /* in order, disjoint, within the tensor; bytes outside the pieces come from the base */
    struct tensor_piece piece[];
};

void tensor_content_unref(struct tensor_content *k); /* k may be NULL */

/*
 * Make a content with `shape` and `nbytes` from these pieces, laid over those of `old`, which are
 * cut off at nbytes; old may be NULL. Returns 0, -EINVAL (pieces overlap, are out of order or
 * empty, or lie outside the tensor or their log) or -ENOMEM.
 */
int tensor_content_make(const struct tensor_shape *shape, uint64_t nbytes,
                        const struct tensor_content *old, const struct tensor_piece *piece,
                        size_t n, struct tensor_content **ret);
/*
 * Return how many of the n > 0 bytes at `off` come from the same origin, one piece or the base.
 * *ret: the piece; NULL: the base. If k is NULL, everything comes from the base.
 */
uint64_t tensor_content_stretch(const struct tensor_content *k, uint64_t off, uint64_t n,
                                const struct tensor_piece **ret);
/* Read bytes [off, off + n) of the tensor, which must lie within the piece. */
int tensor_piece_read(const struct tensor_piece *p, uint64_t off, void *dst, size_t n);
/* Return true if no byte comes from the base. */
bool tensor_content_covers(const struct tensor_content *k);

/* ---- stores ---- */

/* An open file, mapped completely. Reference-counted. */
struct mapped {
    atomic_uint refs;
    int fd;             /* owned */
    atomic_bool cut;    /* a check has found the file truncated */
    bool far;           /* result of far_file() */
    struct far_run run; /* state of reads from a far file */
    struct map map;
};

/* Map the first `size` bytes of a duplicate of fd. Returns 0, -ENOMEM or -errno. */
int mapped_open(int fd, uint64_t size, struct mapped **ret, struct err *e);
void mapped_unref(struct mapped *m);
/*
 * Announce that bytes [off, off + n) are about to be read through the mapping, as part of a range
 * that ends at `end`. Reads also work without this, but page by page if the file is on another
 * machine (base/map.h).
 */
static inline void mapped_want(struct mapped *m, uint64_t off, uint64_t n, uint64_t end)
{
    if (m->far)
        (void)far_want(&m->run, &m->map, off, n, end);
}
/* Call map_check(), and set `cut` if it fails. */
int mapped_check(struct mapped *m, uint64_t end);
/* Copy bytes [off, off + n). end: as for mapped_want(). Returns 0 or -EIO (the file lacks them). */
int mapped_copy(struct mapped *m, uint64_t off, void *dst, size_t n, uint64_t end);
/* Return the file as a source, which must not outlive the file. */
struct source mapped_source(struct mapped *m);

struct store {
    atomic_uint refs;
    struct mapped **file; /* owned references, in shard order */
    size_t files;
    struct place_in_store *place; /* owned: one per tensor, in the model's order */
    size_t n;                     /* number of tensors */
};

struct place_in_store {
    uint64_t off; /* offset of the tensor's data in the file */
    uint32_t file;
    uint32_t shard;              /* the shard that the tensor belongs to */
    struct tensor_content *over; /* a reference: bytes that replace the file's; or NULL */
};

/*
 * store_new() makes a store of these files, with places for n tensors that the caller fills in; it
 * returns NULL if out of memory. store_make() makes a store of n files, of which `first` (NULL:
 * file[0]) is the first. g[i] describes the layout of file i, and the tensors of each file follow
 * those of the previous file. It returns 0 or -ENOMEM. Both take their own references to files.
 */
struct store *store_new(struct mapped *first, struct mapped *const *file, size_t files, size_t n);
int store_make(struct mapped *first, struct mapped *const *file, const struct gguf *const *g,
               size_t n, struct store **ret);
void store_unref(struct store *s);

/*
 * Return the mapping that holds all of bytes [off, off + n) of tensor i, and set *at to their
 * offset in it. Returns NULL if some of them are in drafts.
 */
struct mapped *store_mapped(const struct store *s, uint32_t i, uint64_t off, uint64_t n,
                            uint64_t *at);
/*
 * Read bytes [off, off + n) of tensor i, which has `end` bytes. Returns 0, -EIO (the file lacks
 * them) or -errno from a log.
 */
int store_read(const struct store *s, uint32_t i, uint64_t off, void *dst, size_t n, uint64_t end);
/*
 * Get bytes [first, last) of tensor i for decoding. If a mapping has them all, *ret points into it;
 * the caller reads them under map_guard() and then calls store_check(). Otherwise *ret points into
 * *room, which the caller frees. Returns 0, -ENOMEM, or the error of store_read().
 */
int store_bytes(const struct store *s, uint32_t i, uint64_t first, uint64_t last, uint64_t end,
                uint8_t **room, const uint8_t **ret);
/* Return how many of the first n bytes of tensor i the file has. */
uint64_t store_there(const struct store *s, uint32_t i, uint64_t n);
/* Return -EIO if the file has since been truncated and no longer has these bytes. */
int store_check(const struct store *s, uint32_t i, uint64_t first, uint64_t last);
/* Return true if a file is known to have been truncated. */
bool store_cut(const struct store *s);

/* ---- forms ---- */

/* Return false if the stored bytes already have this form. */
bool form_decodes(const struct quant_form *f, const struct gguf *g, const struct gguf_tensor *t);
/* Return the size in bytes of all values of a tensor. */
uint64_t form_size(const struct quant_form *f, const struct gguf_tensor *t);
/*
 * Read bytes [off, off + n) of the values of tensor i, decoding only the blocks that they touch.
 * The caller has checked quant_has_values(). Returns what store_read() returns.
 */
int form_read(const struct quant_form *f, const struct gguf *g, const struct store *s, uint32_t i,
              uint64_t off, void *dst, size_t n);

/*
 * ---- images ----
 *
 * An image is made of segments, which supply its bytes.
 *
 *     struct image *im = image_new(g);
 *     image_add_memory(im, head, n);
 *     image_add_tensor(im, 0, 0, nbytes);            ... the next begins where the last one ends
 *     image_add_zeros(im, padding);
 *     r = image_end(im);                             0, or the first error of any of these calls
 *     r = image_read(im, store, off, dst, n);
 *     image_unref(im);
 *
 * Images serve as the new file of a plan, `model.gguf`, and the merged model of shards.
 *
 * Invariants of every image (checked by image_end()):
 *  I1. Segments are in order, are not empty, and cover [0, size) without gaps or overlaps. size is
 *      at most INT64_MAX.
 *  I2. Adjacent segments that continue each other are merged.
 *  I3. A range of a tensor or of its values lies within it. A range of a file may extend past its
 *      end; those bytes are missing, as are the bytes of a tensor that the store lacks.
 *
 * Bytes in memory, `g` and the sources of files belong to the caller and must outlive the image,
 * except for memory passed to image_own() and mapped sources. Once image_end() has been called, an
 * image is immutable.
 */

enum image_from {
    IMAGE_MEMORY, /* bytes in memory */
    IMAGE_FILE,   /* a range of file number `no` of the image */
    IMAGE_TENSOR, /* a range of tensor number `no` as it is stored */
    IMAGE_VALUES, /* all values of tensor number `no` in a form */
    IMAGE_ZERO,
};

struct segment {
    enum image_from from;
    uint32_t no;  /* number of the file or tensor */
    uint64_t at;  /* offset in the image */
    uint64_t len; /* bytes, > 0 */
    union {
        uint64_t src;                  /* FILE, TENSOR: offset in the file or tensor */
        const uint8_t *bytes;          /* MEMORY */
        const struct quant_form *form; /* VALUES: the form */
    };
};

struct image {
    atomic_uint refs;
    int err;             /* 0, or the -errno of the first segment that could not be added */
    uint64_t size;       /* in bytes */
    struct segment *seg; /* owned */
    size_t n, cap;
    struct source *file; /* owned array; a file whose read is NULL reads as zeros */
    size_t files, cap_files;
    const struct gguf *g; /* the model that has the tensors; NULL: no tensors */
    void *own;            /* owned: memory that segments use; or NULL */
    uint8_t count[8];     /* the header's key count without the reserve */
};

/* Make an empty image with one reference. Returns NULL if out of memory. */
struct image *image_new(const struct gguf *g);
void image_unref(struct image *im); /* im may be NULL, here and below */

/* Add a file and return its number. The image takes a reference to a mapped source. */
uint32_t image_file(struct image *im, struct source src);
/* Make the image own `memory`, which is freed with it (one allocation per image). */
void image_own(struct image *im, void *memory);

/* Add a segment at the end; an empty one is ignored. image_end() reports any error. */
void image_add_memory(struct image *im, const void *bytes, uint64_t n);
void image_add_file(struct image *im, uint32_t file, uint64_t off, uint64_t n);
void image_add_tensor(struct image *im, uint32_t i, uint64_t off, uint64_t n);
/* Add all values of tensor i in a form, or the stored bytes if these already have that form. */
void image_add_values(struct image *im, uint32_t i, const struct quant_form *form);
void image_add_zeros(struct image *im, uint64_t n);
/* Check the image. Returns 0, -ENOMEM, -EFBIG (I1) or -EINVAL (I3). */
int image_end(struct image *im);

/* Add a model's header as users see it, that is, without `ggufs.reserve`. */
void image_add_header(struct image *im, const struct gguf *g);
/* Return true if the header has a reserve to hide. */
bool image_hides(const struct gguf *g);
/* Return the offset of the data in the file minus its offset in the model as shown. */
uint64_t image_cut(const struct gguf *g);
/* Make the image of a model as it is shown: header, tensors, and zeros between them. */
int image_of_model(const struct gguf *g, struct image **ret);

/* Return the segment that holds byte `off`, which must be less than the size. */
const struct segment *image_at(const struct image *im, uint64_t off);

/*
 * Read bytes [off, off + n). Without a store, tensors read as zeros, which is enough for parsers,
 * because they ignore data. Returns 0, -EIO (bytes are missing) or -errno from a source.
 */
int image_read(const struct image *im, const struct store *s, uint64_t off, void *dst, size_t n);
/*
 * Return the mapping that holds all of [off, off + n), and set *at to the offset of these bytes in
 * it, so that they can be sent without a copy. Returns NULL if no mapping holds them all.
 */
struct mapped *image_mapped(const struct image *im, const struct store *s, uint64_t off, size_t n,
                            uint64_t *at);

/* Return the image as a source, which reads without a store. The image must outlive it. */
struct source image_source(const struct image *im);

#endif
