/* SPDX-License-Identifier: MIT */
/* The table of types with the kernels of one set: see set.h and types.h. */
#include "quant/kernel.h"
#include "quant/set.h"

#define ENCODE_BOTH(T) .encode = IN_SET(encode_##T)
#define ENCODE_WEIGH(T) ENCODE_BOTH(T), .weighs = QUANT_WEIGHS
#define ENCODE_NEED(T) ENCODE_BOTH(T), .weighs = QUANT_NEEDS
#define ENCODE_DECODE(T) .encode = NULL

#define ROW(i, T, len, bytes, ways, ...) \
    [i] = {.id = (i),                    \
           .name = #T,                   \
           .block_len = (len),           \
           .block_bytes = (bytes),       \
           .decode = IN_SET(decode_##T), \
           ENCODE_##ways(T),             \
           __VA_ARGS__},
#define ROW_GONE(i, T) [i] = {.id = (i), .name = #T},

static const struct quant_type types[QUANT_N_TYPES] = {QUANT_TYPES(ROW, ROW_GONE)};

#define STRING(x) #x
#define STRING_OF(x) STRING(x)

const struct quant_set IN_SET(quant_set) = {
    .name = STRING_OF(QUANT_SET),
    .types = types,
    .f32_to_f16 = IN_SET(narrow_f16),
    .f32_to_bf16 = IN_SET(narrow_bf16),
    .all_finite = IN_SET(all_finite),
    .extremes = IN_SET(extremes),
    .sum = IN_SET(sum),
    .sum_squares = IN_SET(sum_squares),
    .distance = IN_SET(distance),
    .sum_fourth = IN_SET(sum_fourth),
    .bins = IN_SET(bins),
};
