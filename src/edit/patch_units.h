/* SPDX-License-Identifier: MIT */
/* The units of a journal of bytes of tensors, for the files that implement patch.h. */
#ifndef EDIT_PATCH_UNITS_H
#define EDIT_PATCH_UNITS_H

#include "edit/patch.h"

#define PATCH_FIXED 64 /* bytes of the first part of the head */
#define PATCH_RANGE 24 /* and of a range */
#define PATCH_ROW ((size_t)(PATCH_UNIT / PATCH_SECTOR * 8)) /* bytes of a row of the table */

/* Units that are read, summed and written at once. */
#define PATCH_UNITS ((size_t)16)
#define PATCH_STRETCH (PATCH_UNITS * PATCH_UNIT)

/* Units of one range, in memory. */
struct patch_stretch {
    uint64_t no, at; /* of its first unit in the journal, and of its first byte in the model */
    uint64_t src;    /* of its first new byte in the journal */
    size_t n, old_n; /* its bytes after and before */
    size_t units;
    uint8_t row[PATCH_UNITS * PATCH_ROW];
    uint8_t old[PATCH_STRETCH], new[PATCH_STRETCH];
};

typedef int patch_fn(void *arg, struct patch_stretch *u);

/* Stretches from which on all processors write them. */
#define PATCH_LARGE 8

/* Which units stretch i is of. */
void patch_find(const struct patch *p, uint64_t i, struct patch_stretch *u);
/* Call fn with all units in order, until it returns other than 0. 0, -ENOMEM, what fn returned. */
int patch_each(const struct patch *p, patch_fn *fn, void *arg);

/* The sum of n bytes; `before`: the sum that it continues, or 0. The sum of the old bytes of sector i of a
 * stretch, which has n of them. The sum of its unit i. */
uint64_t patch_sum(uint64_t before, const void *bytes, size_t n);
uint64_t patch_sector_sum(const uint8_t *old, size_t n, size_t i);
uint64_t patch_unit_sum(const struct patch_stretch *u, size_t i);

/* Number the units, and stretches, of the ranges. */
void patch_number(struct patch *p);
/* Bytes of the rest of the head. */
uint64_t patch_rest_bytes(const struct patch *p, size_t name_len);

#endif
