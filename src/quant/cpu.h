/* SPDX-License-Identifier: MIT */
/* Which kernel sets (set.h) this machine supports. Private to the layer, its tests and
 * benchmarks. */
#ifndef QUANT_CPU_H
#define QUANT_CPU_H

#include "quant/set.h"

/* Return the sets that this machine supports, slowest first: [0] is generic, NULL follows the
 * last. */
const struct quant_set *quant_set_at(size_t i);

#endif
