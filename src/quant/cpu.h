/* SPDX-License-Identifier: MIT */
/* Finds the kernel sets (set.h) that this machine supports. Private to the layer, its tests and
 * benchmarks. */
#ifndef QUANT_CPU_H
#define QUANT_CPU_H

#include "quant/set.h"

/* Return set i of those that this machine supports, which are ordered from the slowest to the
 * fastest: 0 is the generic one. Returns NULL after the last. */
const struct quant_set *quant_set_at(size_t i);

#endif
