/* SPDX-License-Identifier: MIT */
/*
 * An image is made of segments that supply the bytes of a file that does not exist on disk in that
 * form.
 *
 *     struct image *im = image_new(g);
 *     image_add_memory(im, head, n);
 *     image_add_tensor(im, 0, 0, nbytes);            ... the next begins where the last one ends
 *     image_add_zeros(im, padding);
 *     r = image_end(im);                             0, or the first error of any of these calls
 *     r = image_read(im, store, off, dst, n);
 *     image_unref(im);
 *
 * Images are the new file of a plan, `model.gguf`, the merged model of shards, and a file read
 * through a journal.
 *
 * Invariants of every image (checked by image_end()):
 *  I1. Segments are in order and not empty, cover [0, size) without gaps or overlaps, and size is
 *      at most INT64_MAX.
 *  I2. Adjacent segments that continue each other are merged.
 *  I3. A range of a tensor or of its values lies within it. A range of a file may extend past its
 *      end; those bytes are missing, as are bytes of a tensor that the store does not have in full.
 *
 * Ownership: bytes in memory, `g` and the sources of files belong to the caller and must outlive
 * the image, except for memory passed to image_own() and mapped sources. Threads: once image_end()
 * has been called, an image is immutable and reference-counted, and any thread may use it.
 */
#ifndef MODEL_IMAGE_H
#define MODEL_IMAGE_H

#include "model/store.h"

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
        uint64_t src;            /* FILE, TENSOR: offset of its first byte there */
        const uint8_t *bytes;    /* MEMORY */
        const struct form *form; /* VALUES: the form */
    };
};

struct image {
    atomic_uint refs;
    int err;             /* 0, or why a segment could not be added */
    uint64_t size;       /* in bytes */
    struct segment *seg; /* owned */
    size_t n, cap;
    struct source *file; /* owned array; a file whose read is NULL reads as zeros */
    size_t files, cap_files;
    const struct gguf *g; /* the model that has the tensors; NULL: no tensors */
    void *own;            /* owned: memory of segments; or NULL */
    uint8_t count[8];     /* the key count of a header without the reserve */
};

/* Make an empty image with one reference. Returns NULL if out of memory. */
struct image *image_new(const struct gguf *g);
struct image *image_ref(struct image *im);
void image_unref(struct image *im); /* may be NULL */

/*
 * Add a file and return its number. The image takes a reference to a mapped source
 * (mapped_source()).
 */
uint32_t image_file(struct image *im, struct source src);
/* Let the image own `memory` and free it at its end (one allocation per image). */
void image_own(struct image *im, void *memory);

/* Add a segment at the end; an empty one adds nothing. Errors are kept for image_end(). */
void image_add_memory(struct image *im, const void *bytes, uint64_t n);
void image_add_file(struct image *im, uint32_t file, uint64_t off, uint64_t n);
void image_add_tensor(struct image *im, uint32_t i, uint64_t off, uint64_t n);
/* Add all values of tensor i in a form, as stored bytes if these are the same. */
void image_add_values(struct image *im, uint32_t i, const struct form *form);
void image_add_zeros(struct image *im, uint64_t n);
/* Check the image. Returns 0, -ENOMEM, -EFBIG (I1) or -EINVAL (I3). */
int image_end(struct image *im);

/* Add the header of a model as it is shown, without `ggufs.reserve`, which is never shown. */
void image_add_header(struct image *im, const struct gguf *g);
/* Return true if the header has a reserve to hide. */
bool image_hides(const struct gguf *g);
/* Return how many bytes earlier the data starts in the model as shown than in the file. */
uint64_t image_cut(const struct gguf *g);
/*
 * Make the image of a model as it is shown, a regular layout of its header, its tensors and zeros.
 * Returns 0 or -errno.
 */
int image_of_model(const struct gguf *g, struct image **ret);

/* Return the segment that holds byte `off` (below the size). */
const struct segment *image_at(const struct image *im, uint64_t off);

/*
 * Read bytes [off, off + n) into dst. Tensors are read from the store; if that is NULL they read as
 * zeros, which suffices for parsers because they ignore data. Returns 0, -EIO (missing or cut) or
 * -errno from a source.
 */
int image_read(const struct image *im, const struct store *s, uint64_t off, void *dst, size_t n);
/*
 * Return the mapping that holds all of [off, off + n), and set *at to its offset there, so that
 * answers need no copy. Returns NULL if no mapping does.
 */
struct mapped *image_mapped(const struct image *im, const struct store *s, uint64_t off, size_t n,
                            uint64_t *at);

/* Return the image as a source, which reads without a store. The image must outlive it. */
struct source image_source(const struct image *im);

#endif
