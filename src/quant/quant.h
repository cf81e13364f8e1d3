/* SPDX-License-Identifier: MIT */
/*
 * The element formats of GGML tensors. Converts blocks of bytes to float32 and back, in memory
 * only.
 *
 * A tensor's elements are stored in blocks of `block_len` elements that are consecutive in the
 * fastest dimension. Each block occupies `block_bytes` bytes, and there are no gaps. One table
 * holds the id, name, geometry, decoder and encoder of every type, so that they cannot disagree
 * (types.h). To add a type, add a row and its functions. The type ids and block layouts are those
 * of ggml in 2026; each family file draws its blocks.
 *
 * Values are correctly rounded float32, and equal those of ggml's own dequantisation to the last
 * bit. The sign and payload of a NaN are unspecified. F32 and BF16 keep their bits, as does F16,
 * except that a signalling NaN becomes quiet.
 *
 * Blocks encoded without importances match ggml's quantisers to the last bit, except for IQ1 to
 * IQ3. A block that ggml leaves undefined, because its scale has an infinite inverse, is stored
 * with the codes for zeros; it decodes to zeros in either case. For most types, decoding and
 * re-encoding does not reproduce the block, so a block should be encoded only if one of its values
 * has changed (quant_write()).
 *
 * Everything is constant after quant_init(), so any thread may call these functions.
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Size of the largest block in elements and in bytes, over all types (checked by the tests). */
#define QUANT_MAX_BLOCK_LEN 256
#define QUANT_MAX_BLOCK_BYTES 512

/*
 * Decodes n whole little-endian blocks at src (any alignment) into n * block_len host floats at dst
 * (aligned to 4 bytes). Reads nothing outside the blocks.
 */
typedef void quant_decode_fn(const uint8_t *src, size_t n, float *dst);

/*
 * Encodes n * block_len host floats at src (aligned to 4 bytes) as n whole little-endian blocks at
 * dst (any alignment, no overlap). `weight` holds the importance of each value (finite, not
 * negative), or is NULL. Returns the number of encoded blocks: n, or fewer if the type cannot store
 * the values of the next block; dst is undefined from there on.
 */
typedef size_t quant_encode_fn(const float *src, const float *weight, size_t n, uint8_t *dst);

/* Whether an encoder ignores importances, uses them, or requires them. */
enum quant_weighs { QUANT_IGNORES, QUANT_WEIGHS, QUANT_NEEDS };

/* The scales of a block that can be NaN or infinite. */
enum quant_scale {
    QUANT_NO_SCALE,
    QUANT_HALVES,
    QUANT_SINGLE,
    QUANT_SPREAD,
    QUANT_E8M0,
    QUANT_UE4M3
};

struct quant_type {
    uint32_t id;             /* ggml's type id, as in tensor infos */
    const char *name;        /* ggml's name in upper case: "Q4_K", "IQ2_XXS", "F32" */
    uint16_t block_len;      /* elements in a block; 0: a removed id of unknown layout */
    uint16_t block_bytes;    /* bytes in a block */
    quant_decode_fn *decode; /* NULL for removed ids */
    quant_encode_fn *encode; /* NULL for removed ids and types that can only be written raw */
    uint8_t weighs;          /* enum quant_weighs */
    uint8_t scale;           /* enum quant_scale */
    /*
     * The fields that a big-endian file stores reversed: `swap_count` fields of `swap_width` bytes,
     * at the offsets `swap_at`, which are also those of the scales. big_unknown: no big-endian form
     * was ever agreed on for the type's multi-byte fields, so the type has no values in a big-endian
     * file.
     */
    uint8_t swap_width;
    uint8_t swap_count;
    uint16_t swap_at[2];
    bool big_unknown;
};

/* Return the row of a type id, including removed ids (block_len 0), or NULL for an unknown id. */
const struct quant_type *quant_find(uint32_t id);

/* Return true if values of this type (NULL: an unknown type) can be shown as float32. */
bool quant_has_values(const struct quant_type *t, bool big);
/*
 * A form in which a view shows a tensor's values: little-endian, float32 or narrowed to a 16-bit
 * float (rounded to nearest, ties to even; a value that is too large becomes infinite, a NaN stays
 * a NaN).
 */
struct quant_form {
    unsigned width;    /* bytes per value; 0: the size of an element of the tensor's type */
    uint32_t same;     /* the type whose little-endian data already has this form */
    uint64_t infinity; /* the bits of infinity */
    const char *descr; /* NumPy's name for the form, or NULL */
    /* Converts n host floats to host values of `width` bytes. NULL: they need no conversion. */
    void (*make)(const float *src, size_t n, void *dst);
};

/* The bytes of a value in the widest form. */
#define QUANT_WIDEST 4

extern const struct quant_form quant_f32, quant_f16, quant_bf16;
/* Elements as stored, but little-endian: for types with one element per block. */
extern const struct quant_form quant_stored;

/*
 * Read bytes [off, off + n) of the stream of a tensor's values in a form into dst (any alignment).
 * `data` is the tensor's first block, `big` its byte order. Only blocks in the range are read.
 * Elements stored in the form are copied bit for bit. The caller has checked the range and
 * quant_has_values().
 */
void quant_read(const struct quant_form *f, const struct quant_type *t, bool big,
                const uint8_t *data, uint64_t off, size_t n, void *dst);

/*
 * Compute the range [*first, *last) of stored bytes that a read of [off, off + n) needs, in a
 * stream of values of `width` bytes. The range is counted from the tensor's first block, and is
 * empty if n is 0. The caller has checked off and n.
 */
void quant_extent(const struct quant_type *t, unsigned width, uint64_t off, size_t n,
                  uint64_t *first, uint64_t *last);

/* Return true if none of n little-endian float32 values (any alignment) is a NaN or infinite. */
bool quant_all_finite(const uint8_t *floats, size_t n);

/* Measures of the distance between two lists of values. All sums are in double. */
struct quant_distance {
    double squares_a, squares_b, products; /* sums of a * a, b * b, a * b */
    double squares;                        /* sum of (a - b) * (a - b) */
    double max;                            /* maximum of |a - b| */
    uint64_t differ;                       /* number of values that differ */
};
/* Add n pairs of finite host floats to *ret. The last bits of sums depend on n, but not on the
 * machine. */
void quant_distance(const float *a, const float *b, size_t n, struct quant_distance *ret);

/* Decode n blocks in either byte order to n * block_len host floats. */
void quant_decode(const struct quant_type *t, bool big, const uint8_t *src, size_t n, float *dst);
/* In n blocks, reverse each field that the two byte orders store differently. */
void quant_swap(const struct quant_type *t, uint8_t *blocks, size_t n);

/* Choose the fastest kernels for this machine. Optional; call this before threads start. */
void quant_init(void);

/* For tests and benchmarks: use this kernel set (set.h). Call this before threads start. */
struct quant_set;
void quant_use(const struct quant_set *s);
/* Return set i of the sets that this machine supports, sorted from the slowest (0, the generic set)
 * to the fastest, or NULL after the last. */
const struct quant_set *quant_set_at(size_t i);

#endif
