/* SPDX-License-Identifier: MIT */
/* Finds the kernel sets that this machine can run: see cpu.h. */
#include "quant/cpu.h"

#ifdef QUANT_X86
#include <cpuid.h>

/* __builtin_cpu_supports() checks that the system saves the registers, but not every compiler knows
 * F16C. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && has_f16c();
}

/* Return true if the processor has the AVX-512 extensions that servers have had since 2017, which
 * always come with AVX2. */
static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct quant_set *quant_set_at(size_t i)
{
    const struct quant_set *usable[] = {&quant_set_generic, NULL, NULL};
#ifdef QUANT_X86
    usable[1] = has_avx2() ? &quant_set_avx2 : NULL;
    usable[2] = has_avx512() ? &quant_set_avx512 : NULL;
#endif
    return i < sizeof(usable) / sizeof(usable[0]) ? usable[i] : NULL;
}
