/* SPDX-License-Identifier: MIT */
/*
 * Converts blocks of one type to blocks of another: see convert.h.
 *
 * Float32 can hold every value of most types, but not of the wide types: I32, I64 and F64. If the
 * target can hold values that float32 cannot, values of wide types are converted one by one.
 */
#include "quant/convert.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/blocks.h"
#include "quant/encode.h"
#include "quant/types.h"

/* Number of elements converted at once: whole blocks of any type. */
enum { VALUE_ROOM = 4096 };
_Static_assert(VALUE_ROOM % QUANT_MAX_BLOCK_LEN == 0, "parts are whole blocks");

struct conversion {
    const struct quant_type *from, *to;
    bool big;
    const struct quant_importances *imp;
};

static bool is_wide(uint32_t id)
{
    return id == I32_ID || id == I64_ID || id == F64_ID;
}

static bool is_exact(uint32_t id)
{
    return id == I8_ID || id == I16_ID || is_wide(id);
}

static struct quant_value wide_value(const struct conversion *c, const uint8_t *src, size_t i)
{
    const uint8_t *p = src + i * c->from->block_bytes;
    struct quant_value v = {.kind = c->from->id == F64_ID ? QUANT_DOUBLE : QUANT_INTEGER};
    const uint64_t bits = get_uint(p, c->from->block_bytes, c->big);
    if (v.kind == QUANT_DOUBLE)
        memcpy(&v.f64, &bits, sizeof(v.f64));
    else
        v.i64 = c->from->id == I32_ID ? (int32_t)bits : (int64_t)bits;
    return v;
}

bool quant_is_wide(const struct quant_type *t)
{
    return is_wide(t->id);
}

double quant_wide_value(const struct quant_type *t, bool big, const uint8_t *data, uint64_t i)
{
    const struct conversion c = {.from = t, .big = big};
    const struct quant_value v = wide_value(&c, data, (size_t)i);
    return v.kind == QUANT_DOUBLE ? v.f64 : (double)v.i64;
}

/* ---- value by value ---- */

/* Store an integer. Returns false if the type cannot hold it. F64 accepts every integer and rounds
 * it, as the other float types do. */
static bool put_integer(const struct conversion *c, int64_t x, uint8_t *p)
{
    const size_t width = c->to->block_bytes;
    const int64_t top = INT64_MAX >> (64 - 8 * width);
    const double rounded = (double)x;
    uint64_t bits = (uint64_t)x;
    if (c->to->id == F64_ID)
        memcpy(&bits, &rounded, sizeof(bits));
    else if (x > top || x < -top - 1)
        return false;
    put_uint(p, bits, width, c->big);
    return true;
}

/* Convert to an integer type. -0 becomes 0; a NaN is in no range, so it is refused. */
static bool put_double(const struct conversion *c, double x, uint8_t *p)
{
    return x >= -0x1p63 && x < 0x1p63 && (double)(int64_t)x == x && put_integer(c, (int64_t)x, p);
}

static int convert_exact(const struct conversion *c, const uint8_t *src, size_t n, uint8_t *dst,
                         struct quant_fault *fault)
{
    for (size_t i = 0; i < n; i++) {
        const struct quant_value v = wide_value(c, src, i);
        uint8_t *p = dst + i * c->to->block_bytes;
        const bool whole = v.kind == QUANT_INTEGER;
        if (whole ? put_integer(c, v.i64, p) : put_double(c, v.f64, p))
            continue;
        fault->element = i;
        return whole || isfinite(v.f64) ? -ERANGE : -EDOM;
    }
    return 0;
}

/* ---- by float32 ---- */

/* Return the index of the first finite double that becomes infinite as float32, or n. */
static size_t first_overflow(const struct conversion *c, const uint8_t *src, const float *value,
                             size_t n)
{
    size_t i = 0;
    if (c->from->id != F64_ID)
        return n;
    while (i < n && (isfinite(value[i]) || !isfinite(wide_value(c, src, i).f64)))
        i++;
    return i;
}

/* Convert at most VALUE_ROOM values, starting at number `first`. */
static int convert_float(const struct conversion *c, size_t first, const uint8_t *src, size_t n,
                         uint8_t *dst, struct quant_fault *fault)
{
    float value[VALUE_ROOM];
    struct quant_importances imp = c->imp ? *c->imp : (struct quant_importances){0};
    imp.first += first;
    quant_decode(c->from, c->big, src, n / c->from->block_len, value);
    const size_t fit = first_overflow(c, src, value, n);
    const int r = quant_encode(c->to, c->big, value, fit / c->to->block_len, dst,
                               c->imp ? &imp : NULL, fault);
    if (r || fit == n)
        return r;
    fault->element = fit;
    return -ERANGE;
}

/* ---- all of them ---- */

int quant_convert(const struct quant_type *from, const struct quant_type *to, bool big,
                  const uint8_t *src, size_t n, uint8_t *dst, const struct quant_importances *imp,
                  struct quant_fault *fault)
{
    const struct conversion c = {from, to, big, imp};
    const bool exact = is_wide(from->id) && is_exact(to->id);
    if (from->id == to->id) {
        memcpy(dst, src, n / from->block_len * from->block_bytes);
        return 0;
    }
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < VALUE_ROOM ? n - at : VALUE_ROOM;
        const uint8_t *part = src + at / from->block_len * from->block_bytes;
        uint8_t *made = dst + at / to->block_len * to->block_bytes;
        const int r = exact ? convert_exact(&c, part, k, made, fault)
                            : convert_float(&c, at, part, k, made, fault);
        if (r == 0)
            continue;
        if (is_wide(from->id))
            fault->value = wide_value(&c, part, (size_t)fault->element);
        fault->element += at;
        return r;
    }
    return 0;
}
