/* SPDX-License-Identifier: MIT */
/*
 * Reads blocks as streams of values: see quant.h.
 *
 * A read [off, off + n) of a stream covers a run of whole blocks between two partial ones. Whole
 * blocks are decoded straight into the caller's memory, partial ones via the stack. If the caller's
 * memory is not aligned like the stream, all blocks go via the stack.
 */
#include "quant/quant.h"

#include <string.h>
#ifdef QUANT_X86
#include <cpuid.h>
#endif

#include "base/bytes.h"
#include "base/lock.h"
#include "quant/set.h"
#include "quant/types.h"

/* Sizes of buffers on the stack: in floats for values, in bytes for swapped blocks. */
enum { VALUE_ROOM = 1024, SWAP_ROOM = 2048 };

/* ---- the kernel sets ---- */

#ifdef QUANT_X86
/* __builtin_cpu_supports() also checks that the system saves the registers, but not every
 * compiler lets it check for F16C. */
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
    return i < COUNT(usable) ? usable[i] : NULL;
}

static const struct quant_set *set = &quant_set_generic;

void quant_use(const struct quant_set *s)
{
    set = s;
}

static void use_best(void)
{
    for (size_t i = 0; quant_set_at(i); i++)
        quant_use(quant_set_at(i));
}

/* Choose only once, because threads may be decoding when a second model is opened. */
void quant_init(void)
{
    static struct once once = ONCE_INIT;
    once_run(&once, use_best);
}

const struct quant_type *quant_find(uint32_t id)
{
    return id < QUANT_N_TYPES ? &set->types[id] : NULL;
}

bool quant_has_values(const struct quant_type *t, bool big)
{
    return t && t->decode && !(big && t->big_unknown);
}

void quant_distance(const float *a, const float *b, size_t n, struct quant_distance *ret)
{
    set->distance(a, b, n, ret);
}

bool quant_all_finite(const uint8_t *floats, size_t n)
{
    return set->all_finite(floats, n);
}

/* ---- blocks ---- */

void quant_swap(const struct quant_type *t, uint8_t *blocks, size_t n)
{
    for (size_t i = 0; t->swap_count && !t->big_unknown && i < n; i++)
        for (size_t k = 0; k < t->swap_count; k++) {
            uint8_t *p = blocks + i * t->block_bytes + t->swap_at[k];
            put_uint(p, get_uint(p, t->swap_width, true), t->swap_width, false);
        }
}

void quant_decode(const struct quant_type *t, bool big, const uint8_t *src, size_t n, float *dst)
{
    uint8_t room[SWAP_ROOM];
    const size_t most = sizeof(room) / t->block_bytes;
    if (!big || t->swap_count == 0) {
        t->decode(src, n, dst);
        return;
    }
    for (size_t k; n > 0; n -= k) {
        k = n < most ? n : most;
        memcpy(room, src, k * t->block_bytes);
        quant_swap(t, room, k);
        t->decode(room, k, dst);
        src += k * t->block_bytes;
        dst += k * t->block_len;
    }
}

/* ---- streams ---- */

static void make_f16(const float *src, size_t n, void *dst)
{
    set->f32_to_f16(src, n, dst);
}

static void make_bf16(const float *src, size_t n, void *dst)
{
    set->f32_to_bf16(src, n, dst);
}

#define FORM(name, width, ...)                                                  \
    _Static_assert((width) <= QUANT_WIDEST, "wider than QUANT_WIDEST: " #name); \
    const struct quant_form quant_##name = {width, __VA_ARGS__};
FORM(f32, 4, F32_ID, 0x7f800000, "<f4", NULL)
FORM(f16, 2, F16_ID, 0x7c00, "<f2", make_f16)
FORM(bf16, 2, BF16_ID, 0x7f80, NULL, make_bf16)
FORM(stored, 0, UINT32_MAX, 0, NULL, NULL)

/* A tensor's blocks, and the form of its values. */
struct stream {
    const struct quant_form *form;
    const struct quant_type *type;
    bool big;
    size_t width; /* bytes per value */
};

static void fill_f32(const struct stream *s, const uint8_t *src, size_t n, uint8_t *dst)
{
    quant_decode(s->type, s->big, src, n, (float *)(void *)dst);
    for (size_t i = 0; HOST_BIG && i < n * s->type->block_len; i++)
        put_u32(dst + 4 * i, get_u32(dst + 4 * i, true), false);
}

static void fill_made(const struct stream *s, const uint8_t *src, size_t n, uint8_t *dst)
{
    float value[VALUE_ROOM];
    const size_t most = VALUE_ROOM / s->type->block_len;
    for (size_t k; n > 0; n -= k) {
        k = n < most ? n : most;
        const size_t values = k * s->type->block_len;
        quant_decode(s->type, s->big, src, k, value);
        s->form->make(value, values, dst);
        for (size_t i = 0; HOST_BIG && i < values * s->width; i += s->width)
            put_uint(dst + i, get_uint(dst + i, s->width, true), s->width, false);
        src += k * s->type->block_bytes;
        dst += values * s->width;
    }
}

/* Decode n blocks to values. dst is aligned to their width. */
static void fill(const struct stream *s, const uint8_t *src, size_t n, uint8_t *dst)
{
    if (s->form == &quant_f32) {
        fill_f32(s, src, n, dst);
    } else if (s->form->make && s->form->same != s->type->id) {
        fill_made(s, src, n, dst);
    } else {
        for (size_t at = 0; at < n * s->width; at += s->width)
            put_uint(dst + at, get_uint(src + at, s->width, s->big), s->width, false);
    }
}

void quant_read(const struct quant_form *f, const struct quant_type *t, bool big,
                const uint8_t *data, uint64_t off, size_t n, void *dst)
{
    const struct stream s = {f, t, big, f->width ? f->width : t->block_bytes};
    const size_t per_block = s.width * t->block_len;
    const size_t at_once = VALUE_ROOM * sizeof(float) / per_block * per_block;
    const bool aligned = ((uintptr_t)dst - (uintptr_t)off) % s.width == 0;
    const uint8_t *src = data + off / per_block * t->block_bytes;
    uint8_t *to = dst;
    size_t skip = (size_t)(off % per_block);
    while (n > 0) {
        size_t done = n / per_block * per_block; /* decode whole blocks straight to the answer */
        if (aligned && skip == 0 && done > 0) {
            fill(&s, src, done / per_block, to);
        } else { /* decode via the stack */
            _Alignas(8) float room[VALUE_ROOM];
            size_t end = aligned ? per_block : at_once;
            done = n < end - skip ? n : end - skip;
            fill(&s, src, (skip + done + per_block - 1) / per_block, (uint8_t *)room);
            memcpy(to, (const uint8_t *)room + skip, done);
        }
        src += (skip + done) / per_block * t->block_bytes;
        to += done;
        n -= done;
        skip = 0;
    }
}

void quant_extent(const struct quant_type *t, unsigned width, uint64_t off, size_t n,
                  uint64_t *first, uint64_t *last)
{
    const uint64_t per_block = (uint64_t)width * t->block_len;
    *first = off / per_block * t->block_bytes;
    *last = n == 0 ? *first : ((off + n - 1) / per_block + 1) * t->block_bytes;
}
