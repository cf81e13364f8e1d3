/* SPDX-License-Identifier: MIT */
/*
 * The element formats of GGML tensors: blocks of bytes to float32. Knows no files.
 *
 * A tensor's elements are stored in blocks of `block_len` consecutive elements (of the fastest
 * dimension), each block `block_bytes` bytes, without gaps. One table holds id, name, geometry and
 * decoder of every type, so that they cannot disagree (types.h); adding a row and its decode
 * function is how the program learns a type. Source of the facts: ggml's type ids and block layouts
 * as of 2026; each family file draws its blocks.
 *
 * Values are the correctly rounded float32 that ggml's own dequantisation gives, to the last bit;
 * a NaN is a NaN of unspecified sign and payload. Of F32 and BF16 the bits are kept, of F16 too but
 * that a signalling NaN becomes quiet.
 *
 * Threads: everything is constant after quant_init(); functions may be called from any thread.
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The largest block, in elements and bytes, of any row of the table (checked by the tests). */
#define QUANT_MAX_BLOCK_LEN 256
#define QUANT_MAX_BLOCK_BYTES 512

/*
 * Decode n whole little-endian blocks at src (any alignment) into n * block_len host floats at
 * dst (aligned to 4 bytes). Reads nothing outside of the blocks.
 */
typedef void quant_decode_fn(const uint8_t *src, size_t n, float *dst);

struct quant_type {
    uint32_t id;             /* ggml's type id, as in tensor infos */
    const char *name;        /* ggml's name in upper case: "Q4_K", "IQ2_XXS", "F32" */
    uint16_t block_len;      /* elements in a block; 0: a removed id, of which nothing is known */
    uint16_t block_bytes;    /* bytes in a block */
    quant_decode_fn *decode; /* NULL for removed ids */
    /*
     * What byte-swapping a block means in a big-endian file: `swap_width` bytes wide fields at the
     * `swap_at` offsets (swap_count of them). swap_count 0: nothing to swap. big_unknown: the type
     * has multi-byte fields for which no big-endian form was ever agreed, so there are no values.
     */
    uint8_t swap_width;
    uint8_t swap_count;
    uint16_t swap_at[2];
    bool big_unknown;
};

/* The row of a type id, also for removed ids (block_len 0); NULL for an unknown id. */
const struct quant_type *quant_find(uint32_t id);

/* True if the values of this type (NULL: of an unknown type) can be shown as float32. */
bool quant_has_values(const struct quant_type *t, bool big);

/*
 * Bytes [off, off + n) of the tensor's values seen as a stream of little-endian float32, into dst
 * (any alignment). `data` is the tensor's first block, `big` its byte order. Only the blocks that
 * the range touches are read. The caller has checked the range and quant_has_values().
 */
void quant_read_f32(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                    size_t n, void *dst);

/*
 * The same with the values narrowed to 16 bits: a stream of little-endian binary16 or bfloat16.
 * The float32 value is rounded to nearest, ties to even; what is too large becomes infinite; a NaN
 * stays one. Elements stored in that very format pass through bit for bit.
 */
void quant_read_f16(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                    size_t n, void *dst);
void quant_read_bf16(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                     size_t n, void *dst);

/*
 * The range of stored bytes [*first, *last), counted from the tensor's first block, that reading
 * [off, off + n) of a stream of values of `width` bytes each (f32: 4; f16, bf16: 2) touches; empty
 * for n = 0. The caller has checked the range.
 */
void quant_extent(const struct quant_type *t, unsigned width, uint64_t off, size_t n,
                  uint64_t *first, uint64_t *last);

static inline void quant_extent_f32(const struct quant_type *t, uint64_t off, size_t n,
                                    uint64_t *first, uint64_t *last)
{
    quant_extent(t, 4, off, n, first, last);
}

/* n host floats narrowed to binary16 or bfloat16 (host uint16_t), rounded as above. No overlap. */
void quant_f32_to_f16(const float *src, size_t n, uint16_t *dst);
void quant_f32_to_bf16(const float *src, size_t n, uint16_t *dst);

/* True if none of n little-endian float32 (any alignment) is NaN or infinite. */
bool quant_all_finite(const uint8_t *floats, size_t n);

/* Choose the fastest decoders for this machine; before threads start. Optional. */
void quant_init(void);

#endif
