/* SPDX-License-Identifier: MIT */
/*
 * The code books for the IQ types. An entry holds eight codes (four in the three-bit types), one
 * per byte, with the first in the lowest byte. codebook.tsv has them packed.
 */
#ifndef QUANT_CODEBOOK_H
#define QUANT_CODEBOOK_H

#include <stdint.h>

extern const uint64_t iq1s_grid[2048];  /* -1, 0, 1: IQ1_S, IQ1_M */
extern const uint64_t iq2xxs_grid[256]; /* 8, 25, 43 */
extern const uint64_t iq2xs_grid[512];
extern const uint64_t iq2s_grid[1024];
extern const uint32_t iq3xxs_grid[256]; /* 4, 12, 20, 28, 36, 44, 52, 62 */
extern const uint32_t iq3s_grid[512];   /* 1, 3, ... 15 */

#endif
