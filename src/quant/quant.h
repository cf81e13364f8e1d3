/* SPDX-License-Identifier: MIT */
/*
 * The element formats of GGML tensors: blocks of bytes to float32 and back, in memory only.
 *
 * A tensor's elements are stored in blocks of `block_len` consecutive elements (of the fastest
 * dimension), each block `block_bytes` bytes, without gaps. One table holds id, name, geometry,
 * decoder and encoder of every type, so that they cannot disagree (types.h). A new type is a row
 * and its functions. Source of the facts: ggml's type ids and block layouts as of 2026; each family
 * file draws its blocks.
 *
 * Values are the correctly rounded float32 that ggml's own dequantisation gives, to the last bit.
 * The sign and payload of a NaN are unspecified. F32 and BF16 keep their bits, and so does F16,
 * except that a signalling NaN becomes quiet.
 *
 * Blocks encoded without importances match ggml's quantisers to the last bit, except for IQ1 to IQ3. Where ggml
 * leaves a block undefined (a scale whose inverse is infinite), it gets the codes of zeros; it decodes to zeros
 * anyway. For most types, decoding and re-encoding does not give back the same block, so only blocks in which a value
 * changed may be encoded (quant_write()).
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

/*
 * Encode n whole blocks: n * block_len host floats at src (aligned to 4 bytes) into little-endian blocks at dst (any
 * alignment, no overlap). `weight`: the importance of each value, finite and not negative; NULL: unknown. Returns how
 * many blocks were encoded: n, or fewer if the type cannot store the values of the next block; dst is undefined from
 * there on.
 */
typedef size_t quant_encode_fn(const float *src, const float *weight, size_t n, uint8_t *dst);

/* What an encoder does with importances: ignores them, uses them, or cannot do without them. */
enum quant_weighs { QUANT_IGNORES, QUANT_WEIGHS, QUANT_NEEDS };

struct quant_type {
    uint32_t id;             /* ggml's type id, as in tensor infos */
    const char *name;        /* ggml's name in upper case: "Q4_K", "IQ2_XXS", "F32" */
    uint16_t block_len;      /* elements in a block; 0: a removed id of unknown layout */
    uint16_t block_bytes;    /* bytes in a block */
    quant_decode_fn *decode; /* NULL for removed ids */
    quant_encode_fn *encode; /* NULL for those, and where only raw bytes can be stored */
    uint8_t weighs;          /* enum quant_weighs */
    /*
     * The fields that a big-endian file stores reversed: swap_count fields of `swap_width` bytes,
     * at the offsets `swap_at`. big_unknown: the type has multi-byte fields for which no big-endian
     * form was ever agreed, so it has no values there.
     */
    uint8_t swap_width;
    uint8_t swap_count;
    uint16_t swap_at[2];
    bool big_unknown;
};

/* The row of a type id, including removed ids (block_len 0); NULL for an unknown id. */
const struct quant_type *quant_find(uint32_t id);

/* True if the values of this type (NULL: an unknown type) can be shown as float32. */
bool quant_has_values(const struct quant_type *t, bool big);
/*
 * Read bytes [off, off + n) of the tensor's values, seen as a stream of little-endian float32, into dst (any
 * alignment). `data` is the tensor's first block, `big` its byte order. Only the blocks that the range touches are
 * read. The caller has checked the range and quant_has_values().
 */
void quant_read_f32(const struct quant_type *t, bool big, const uint8_t *data, uint64_t off,
                    size_t n, void *dst);

/*
 * The same with the values narrowed to 16 bits: a stream of little-endian binary16 or bfloat16. The float32 value is
 * rounded to nearest, ties to even; too large a value becomes infinite; a NaN stays a NaN. Elements stored in that
 * very format pass through bit for bit.
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

/* n host floats narrowed to binary16 or bfloat16 (host uint16_t), rounded as above. No overlap. */
void quant_f32_to_f16(const float *src, size_t n, uint16_t *dst);
void quant_f32_to_bf16(const float *src, size_t n, uint16_t *dst);

/* True if none of the n little-endian float32 values (any alignment) is NaN or infinite. */
bool quant_all_finite(const uint8_t *floats, size_t n);

/* For n > 0 finite host floats. Sums are in double; their last bits depend on n, not on the machine. */
struct quant_extremes {
    float min, max;
    uint64_t zeros;
};
struct quant_extremes quant_extremes(const float *x, size_t n);
double quant_sum(const float *x, size_t n);
/* The sum of the squared distances from the mean. */
double quant_sum_squares(const float *x, size_t n, double mean);
/* How far apart two lists of values are. All sums are in double. */
struct quant_distance {
    double squares_a, squares_b, products; /* sums of a * a, b * b, a * b */
    double squares;                        /* of (a - b) * (a - b) */
    double max;                            /* the greatest of |a - b| */
    uint64_t differ;                       /* how many values differ */
};
/* Add n pairs of finite host floats. */
void quant_distance(const float *a, const float *b, size_t n, struct quant_distance *ret);
/* The sum of the fourth powers of these distances. */
double quant_sum_fourth(const float *x, size_t n, double mean);
/*
 * Count n finite host floats by their distance from the mean, in quarters of a standard deviation std > 0: from -6 to
 * 6, each bin including its lower edge mean + std * (i - QUANT_BINS / 2) / 4, exactly; the first and last bins also
 * hold everything beyond. Adds to count.
 */
#define QUANT_BINS 50
void quant_bins(const float *x, size_t n, double mean, double std, uint64_t count[QUANT_BINS]);

/* Reverse each field of n blocks that files of the other byte order have reversed. */
void quant_swap(const struct quant_type *t, uint8_t *blocks, size_t n);

/* Choose the fastest decoders for this machine; before threads start. Optional. */
void quant_init(void);

struct quant_set;
/* Use this kernel set (set.h) from now on; before threads start. */
void quant_use(const struct quant_set *s);

#endif
