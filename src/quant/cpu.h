/* SPDX-License-Identifier: MIT */
/* Which kernel sets (set.h) this machine can run. Private to the layer, its tests and benchmarks. */
#ifndef QUANT_CPU_H
#define QUANT_CPU_H

#include "quant/set.h"

/* The sets that this machine can run, slowest first; [0] is generic. NULL past the last. */
const struct quant_set *quant_set_at(size_t i);

#endif
