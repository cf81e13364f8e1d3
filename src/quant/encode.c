/* SPDX-License-Identifier: MIT */
/*
 * Encodes values as blocks in either byte order, finds the value at fault, writes new values over
 * old blocks, and converts blocks: see encode.h. The encoders in the family files handle whole
 * little-endian blocks and report only which block failed.
 */
#include "quant/encode.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "quant/types.h"

/* Size in floats of the stack buffer for values; every block length divides it. */
enum { VALUE_ROOM = 4096 };
_Static_assert(VALUE_ROOM % QUANT_MAX_BLOCK_LEN == 0, "parts are whole blocks");

bool quant_can_encode(const struct quant_type *t, bool big)
{
    return t && t->encode && !(big && t->big_unknown);
}

static int encode_fail(struct quant_fault *fault, int code, const float *src, size_t element)
{
    *fault = (struct quant_fault){element, {.f32 = src[element], .kind = QUANT_FLOAT}};
    return code;
}

/* Find the value at fault in a block that cannot be stored. */
static int block_fault(const float *src, size_t first, size_t len, struct quant_fault *fault)
{
    size_t worst = first;
    for (size_t i = first; i < first + len; i++) {
        if (!isfinite(src[i]))
            return encode_fail(fault, -EDOM, src, i);
        worst = fabsf(src[i]) > fabsf(src[worst]) ? i : worst;
    }
    return encode_fail(fault, -ERANGE, src, worst);
}

/* Run the encoder on stretches of blocks whose importances are contiguous. */
static size_t encode_stretches(const struct quant_type *t, const struct quant_importances *imp,
                               const float *src, size_t n, uint8_t *dst)
{
    const size_t len = t->block_len;
    size_t done = 0;
    if (!imp || t->weighs == QUANT_IGNORES)
        return t->encode(src, NULL, n, dst);
    while (done < n) {
        const uint64_t at = imp->first + done * len, column = at % imp->columns;
        const float *weight = imp->of + at / imp->matrix * imp->columns + column;
        const size_t k = (size_t)min_u64(n - done, (imp->columns - column) / len);
        const size_t got = t->encode(src + done * len, weight, k, dst + done * t->block_bytes);
        done += got;
        if (got < k || k == 0)
            break;
    }
    return done;
}

int quant_encode(const struct quant_type *t, bool big, const float *src, size_t n, uint8_t *dst,
                 const struct quant_importances *imp, struct quant_fault *fault)
{
    if (n == 0)
        return 0;
    if (!quant_can_encode(t, big) || (t->weighs == QUANT_NEEDS && !imp))
        return encode_fail(fault, -EOPNOTSUPP, src, 0);
    const size_t done = encode_stretches(t, imp, src, n, dst);
    if (done < n)
        return block_fault(src, done * t->block_len, t->block_len, fault);
    if (big)
        quant_swap(t, dst, n);
    return 0;
}

/* Convert n values of a view to host floats. */
static void widen(const struct quant_form *view, const uint8_t *values, size_t n, float *dst)
{
    quant_find(view->same)->decode(values, n, dst);
}

/* The blocks that a call writes, and the format of the values. */
struct encode_target {
    const struct quant_type *type;
    bool big;
    const struct quant_form *view;
    const struct quant_importances *imp;
};

/* Encode n changed blocks, at most VALUE_ROOM values, starting at element `first` of the given
 * values. */
static int write_run(const struct encode_target *to, size_t first, const uint8_t *values, size_t n,
                     uint8_t *dst, struct quant_fault *fault)
{
    float value[VALUE_ROOM];
    struct quant_importances imp = to->imp ? *to->imp : (struct quant_importances){0};
    imp.first += first;
    widen(to->view, values, n * to->type->block_len, value);
    return quant_encode(to->type, to->big, value, n, dst, to->imp ? &imp : NULL, fault);
}

/* Compare two values. A NaN that comes from a block's scale equals any NaN, because its bits are
 * unspecified. */
static bool same_value(const struct encode_target *to, const uint8_t *shown, const uint8_t *value)
{
    const struct quant_form *v = to->view;
    const uint64_t a = get_uint(shown, v->width, false), b = get_uint(value, v->width, false);
    const uint64_t size = ((uint64_t)1 << (8 * v->width - 1)) - 1; /* all bits except the sign */
    return a == b ||
           (to->type->block_len > 1 && (a & size) > v->infinity && (b & size) > v->infinity);
}

/* Return the index of the first value in a block that differs from the value shown, or block_len if
 * all are equal. */
static size_t first_change(const struct encode_target *to, const uint8_t *shown,
                           const uint8_t *values)
{
    const size_t width = to->view->width, len = to->type->block_len;
    size_t i = 0;
    if (memcmp(shown, values, len * width) == 0)
        return len;
    while (i < len && same_value(to, shown + i * width, values + i * width))
        i++;
    return i;
}

/*
 * Encode the changed blocks among n blocks, one run of adjacent blocks at a time. `shown` holds the
 * old blocks' values as the view shows them. Without an encoder, the first value that differs is at
 * fault.
 */
static int write_changed(const struct encode_target *to, size_t first, const uint8_t *shown,
                         const uint8_t *values, size_t n, uint8_t *dst, struct quant_fault *fault)
{
    const size_t width = to->view->width, len = to->type->block_len, block = width * len;
    for (size_t i = 0, end; i < n; i = end + 1) {
        while (i < n && first_change(to, shown + i * block, values + i * block) == len)
            i++;
        for (end = i; end < n; end++)
            if (first_change(to, shown + end * block, values + end * block) == len)
                break;
        const uint8_t *run = values + i * block;
        int r =
            write_run(to, first + i * len, run, end - i, dst + i * to->type->block_bytes, fault);
        if (r == -EOPNOTSUPP) {
            fault->element = first_change(to, shown + i * block, run);
            widen(to->view, run + fault->element * width, 1, &fault->value.f32);
        }
        fault->element += r ? i * len : 0;
        if (r)
            return r;
    }
    return 0;
}

/* Write at most VALUE_ROOM values. */
static int write_part(const struct encode_target *to, size_t first, const uint8_t *old,
                      const uint8_t *values, size_t n, uint8_t *dst, struct quant_fault *fault)
{
    const size_t bytes = n * to->type->block_len * to->view->width;
    _Alignas(8) uint8_t shown[VALUE_ROOM * QUANT_WIDEST];
    if (!old)
        return write_run(to, first, values, n, dst, fault);
    quant_read(to->view, to->type, to->big, old, 0, bytes, shown);
    if (dst != old)
        memcpy(dst, old, n * to->type->block_bytes);
    return write_changed(to, first, shown, values, n, dst, fault);
}

int quant_write(const struct quant_type *t, bool big, const struct quant_form *view,
                const uint8_t *old, const uint8_t *values, size_t n, uint8_t *dst,
                const struct quant_importances *imp, struct quant_fault *fault)
{
    const struct encode_target to = {t, big, view, imp};
    const size_t width = view->width, most = VALUE_ROOM / t->block_len;
    if (t->id == view->same) {
        for (size_t i = 0; i < n; i++)
            put_uint(dst + i * width, get_uint(values + i * width, width, false), width, big);
        return 0;
    }
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < most ? n - at : most;
        const size_t byte = at * t->block_bytes;
        int r = write_part(&to, at * t->block_len, old ? old + byte : NULL,
                           values + at * t->block_len * width, k, dst + byte, fault);
        if (r) {
            fault->element += at * t->block_len;
            return r;
        }
    }
    return 0;
}

/*
 * ---- from one type to another ----
 *
 * Float32 can hold every value of most types, but not those of the wide types: I32, I64 and F64. If
 * the target can hold values that float32 cannot, values of wide types are converted one by one.
 */

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

/* Convert to an integer type. -0 becomes 0; a NaN is outside every range, so it is refused. */
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

/* Convert at most VALUE_ROOM values, starting at index `first`. */
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
