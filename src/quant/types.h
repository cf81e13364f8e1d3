/* SPDX-License-Identifier: MIT */
/*
 * The only list of tensor types, with the id, name, geometry and big-endian form of each, and
 * whether its values can be encoded. The rows of the table (set.c), the kernels' constants
 * (Q4_0_LEN, Q4_0_BYTES, ...) and their prototypes are generated from it, so they cannot disagree.
 *
 * To add a type, add a line here and a DECODER() in a family file (kernel.h explains how). Unless
 * its line says DECODE, it also needs an encoder (pack.h).
 */
#ifndef QUANT_TYPES_H
#define QUANT_TYPES_H

/*
 * The fields of more than one byte, and the scales that can be NaN or infinite: plain elements of w
 * bytes; binary16 or binary32 scales at the given offsets; one binary16 in the high nibbles of four
 * words; bytes that are E8M0 or UE4M3. A big-endian file stores all of them reversed, byte by byte,
 * unless NO_FORM follows: then no big-endian form was ever agreed on.
 */
#define PLAIN(w) .swap_width = (w), .swap_count = (w) > 1
#define HALF(at) .scale = QUANT_HALVES, .swap_width = 2, .swap_count = 1, .swap_at = {(at)}
#define HALF2(at, at2) \
    .scale = QUANT_HALVES, .swap_width = 2, .swap_count = 2, .swap_at = {(at), (at2)}
#define SINGLE .scale = QUANT_SINGLE
#define SPREAD(at) .scale = QUANT_SPREAD, .swap_at = {(at)}
#define E8M0 .scale = QUANT_E8M0
#define UE4M3 .scale = QUANT_UE4M3
#define NO_FORM .big_unknown = true

/*
 * TYPE(id, name, elements, bytes, ways, fields) is a type, GONE(id, name) a retired id.
 * `ways` is BOTH for a decoder and an encoder; WEIGH if the encoder uses importances; NEED if it
 * requires them, because its blocks would otherwise be poor; DECODE for a decoder only: types of
 * intermediate results, which models do not contain (Q8_1, Q8_K).
 */
// clang-format off
#define QUANT_TYPES(TYPE, GONE)                                      \
    TYPE( 0, F32,       1,   4, BOTH,   PLAIN(4))                    \
    TYPE( 1, F16,       1,   2, BOTH,   PLAIN(2))                    \
    TYPE( 2, Q4_0,     32,  18, WEIGH,  HALF(0))                     \
    TYPE( 3, Q4_1,     32,  20, WEIGH,  HALF2(0, 2))                 \
    GONE( 4, Q4_2)                                                   \
    GONE( 5, Q4_3)                                                   \
    TYPE( 6, Q5_0,     32,  22, WEIGH,  HALF(0), NO_FORM)            \
    TYPE( 7, Q5_1,     32,  24, WEIGH,  HALF2(0, 2), NO_FORM)        \
    TYPE( 8, Q8_0,     32,  34, BOTH,   HALF(0))                     \
    TYPE( 9, Q8_1,     32,  36, DECODE, HALF2(0, 2))                 \
    TYPE(10, Q2_K,    256,  84, WEIGH,  HALF2(80, 82))               \
    TYPE(11, Q3_K,    256, 110, WEIGH,  HALF(108))                   \
    TYPE(12, Q4_K,    256, 144, WEIGH,  HALF2(0, 2))                 \
    TYPE(13, Q5_K,    256, 176, WEIGH,  HALF2(0, 2))                 \
    TYPE(14, Q6_K,    256, 210, WEIGH,  HALF(208))                   \
    TYPE(15, Q8_K,    256, 292, DECODE, SINGLE, NO_FORM)             \
    TYPE(16, IQ2_XXS, 256,  66, NEED,   HALF(0), NO_FORM)            \
    TYPE(17, IQ2_XS,  256,  74, NEED,   HALF(0), NO_FORM)            \
    TYPE(18, IQ3_XXS, 256,  98, WEIGH,  HALF(0), NO_FORM)            \
    TYPE(19, IQ1_S,   256,  50, NEED,   HALF(0), NO_FORM)            \
    TYPE(20, IQ4_NL,   32,  18, WEIGH,  HALF(0))                     \
    TYPE(21, IQ3_S,   256, 110, WEIGH,  HALF(0))                     \
    TYPE(22, IQ2_S,   256,  82, WEIGH,  HALF(0))                     \
    TYPE(23, IQ4_XS,  256, 136, WEIGH,  HALF(0), NO_FORM)            \
    TYPE(24, I8,        1,   1, BOTH,   PLAIN(1))                    \
    TYPE(25, I16,       1,   2, BOTH,   PLAIN(2))                    \
    TYPE(26, I32,       1,   4, BOTH,   PLAIN(4))                    \
    TYPE(27, I64,       1,   8, BOTH,   PLAIN(8))                    \
    TYPE(28, F64,       1,   8, BOTH,   PLAIN(8))                    \
    TYPE(29, IQ1_M,   256,  56, WEIGH,  SPREAD(48), NO_FORM)         \
    TYPE(30, BF16,      1,   2, BOTH,   PLAIN(2))                    \
    GONE(31, Q4_0_4_4)                                               \
    GONE(32, Q4_0_4_8)                                               \
    GONE(33, Q4_0_8_8)                                               \
    TYPE(34, TQ1_0,   256,  54, BOTH,   HALF(52))                    \
    TYPE(35, TQ2_0,   256,  66, BOTH,   HALF(64))                    \
    GONE(36, IQ4_NL_4_4)                                             \
    GONE(37, IQ4_NL_4_8)                                             \
    GONE(38, IQ4_NL_8_8)                                             \
    TYPE(39, MXFP4,    32,  17, BOTH,   E8M0)                        \
    TYPE(40, NVFP4,    64,  36, BOTH,   UE4M3)                       \
    TYPE(41, Q1_0,    128,  18, BOTH,   HALF(0))                     \
    TYPE(42, Q2_0,     64,  18, BOTH,   HALF(0))
// clang-format on

/* The ids have no gaps, so that they can index the table. */
#define QUANT_ID(id, T, len, bytes, ...) T##_ID = (id),
#define QUANT_GONE_ID(id, T) T##_ID = (id),
enum { QUANT_TYPES(QUANT_ID, QUANT_GONE_ID) QUANT_N_TYPES };
#define QUANT_ONE(...) +1
_Static_assert(0 QUANT_TYPES(QUANT_ONE, QUANT_ONE) == QUANT_N_TYPES, "an id is left out");
#undef QUANT_ONE
#undef QUANT_ID
#undef QUANT_GONE_ID

#define QUANT_GEOMETRY(id, T, len, bytes, ...) T##_LEN = (len), T##_BYTES = (bytes),
#define QUANT_NONE(id, T)
enum { QUANT_TYPES(QUANT_GEOMETRY, QUANT_NONE) };
#undef QUANT_GEOMETRY
#undef QUANT_NONE

#endif
