/* SPDX-License-Identifier: MIT */
/*
 * Searches tensors for NaN and infinity: see scan.h.
 *
 * Tensors are divided into pieces, the units of base/pool.h. A piece is decoded in chunks that fit
 * the first-level cache, where a quick pass checks that all values are finite. Only chunks that
 * fail the check are counted value by value.
 */
#include "check/scan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/pool.h"
#include "check/check.h"
#include "quant/types.h"

/* Numbers of elements: multiples of every block length (QUANT_MAX_BLOCK_LEN). */
enum { CHUNK = 6144, PIECE = 192 * CHUNK };
_Static_assert(CHUNK % QUANT_MAX_BLOCK_LEN == 0, "chunks are whole blocks");

/* ---- scales ---- */

enum scale_kind { NO_SCALE, HALVES, SINGLE, SPREAD_HALF, E8M0, UE4M3 };

/* Places of the scales in a type's blocks. `hidden`: a bad scale may not show in any value. */
static const struct scales {
    uint8_t kind, n, at[2];
    bool hidden;
} scales[QUANT_N_TYPES] = {
    [Q4_0_ID] = {HALVES, 1, {0}, false},        [Q4_1_ID] = {HALVES, 2, {0, 2}, false},
    [Q5_0_ID] = {HALVES, 1, {0}, false},        [Q5_1_ID] = {HALVES, 2, {0, 2}, false},
    [Q8_0_ID] = {HALVES, 1, {0}, false},        [Q8_1_ID] = {HALVES, 2, {0, 2}, true},
    [Q2_K_ID] = {HALVES, 2, {80, 82}, false},   [Q3_K_ID] = {HALVES, 1, {108}, false},
    [Q4_K_ID] = {HALVES, 2, {0, 2}, false},     [Q5_K_ID] = {HALVES, 2, {0, 2}, false},
    [Q6_K_ID] = {HALVES, 1, {208}, false},      [Q8_K_ID] = {SINGLE, 1, {0}, false},
    [IQ2_XXS_ID] = {HALVES, 1, {0}, false},     [IQ2_XS_ID] = {HALVES, 1, {0}, false},
    [IQ3_XXS_ID] = {HALVES, 1, {0}, false},     [IQ1_S_ID] = {HALVES, 1, {0}, false},
    [IQ4_NL_ID] = {HALVES, 1, {0}, false},      [IQ3_S_ID] = {HALVES, 1, {0}, false},
    [IQ2_S_ID] = {HALVES, 1, {0}, false},       [IQ4_XS_ID] = {HALVES, 1, {0}, false},
    [IQ1_M_ID] = {SPREAD_HALF, 1, {48}, false}, [TQ1_0_ID] = {HALVES, 1, {52}, false},
    [TQ2_0_ID] = {HALVES, 1, {64}, false},      [MXFP4_ID] = {E8M0, 1, {0}, true},
    [NVFP4_ID] = {UE4M3, 4, {0}, true},         [Q1_0_ID] = {HALVES, 1, {0}, false},
    [Q2_0_ID] = {HALVES, 1, {0}, false},
};

/* True if all bits of the exponent are set: infinite or NaN. */
static bool bad_half(uint16_t h)
{
    return (h & 0x7c00) == 0x7c00;
}

static bool bad_single(uint32_t u)
{
    return (u & 0x7f800000) == 0x7f800000;
}

static bool bad_scale(const struct scales *s, const uint8_t *block, bool big)
{
    bool bad = false;
    const uint8_t *p = block + s->at[0];
    switch (s->kind) {
    case HALVES:
        for (size_t i = 0; i < s->n; i++)
            bad |= bad_half(get_u16(block + s->at[i], big));
        return bad;
    case SINGLE:
        return bad_single(get_u32(p, big));
    case SPREAD_HALF: /* bits 8 to 15 of the half are in the high nibbles of the last two words */
        return (get_u16(p + 6, big) >> 12 << 12 & 0x7000) == 0x7000 &&
               (get_u16(p + 4, big) & 0xc000) == 0xc000;
    case E8M0: /* NaN by the OCP specification, but ggml reads it as 2^127 */
        return p[0] == 0xff;
    case UE4M3: /* NaN, but ggml reads it as 0 */
        for (size_t i = 0; i < s->n; i++)
            bad |= (p[i] & 0x7f) == 0x7f;
        return bad;
    default:
        return false;
    }
}

/* ---- a piece ---- */

struct piece {
    const struct quant_type *type;
    bool big;
    const uint8_t *data; /* data of the tensor */
    uint64_t first;      /* index of the first element, a multiple of the block's length */
    uint64_t n;          /* number of elements */
    float *room;         /* room for CHUNK floats */
    struct scan_result found;
};

static void count_at(struct scan_result *r, uint64_t element, uint64_t *counter)
{
    if (r->nan + r->inf + r->scales == 0)
        r->first = element;
    ++*counter;
}

static void count_floats(struct piece *p, uint64_t first, const uint8_t *floats, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u = get_u32(floats + 4 * i, false);
        if (bad_single(u))
            count_at(&p->found, first + i, u & 0x007fffff ? &p->found.nan : &p->found.inf);
    }
}

static void count_scales(struct piece *p, uint64_t first, size_t n)
{
    const struct quant_type *t = p->type;
    const struct scales *s = &scales[t->id];
    const uint8_t *block = p->data + first / t->block_len * t->block_bytes;
    for (size_t i = 0; s->kind != NO_SCALE && i < n; i += t->block_len, block += t->block_bytes)
        if (bad_scale(s, block, p->big))
            count_at(&p->found, first + i, &p->found.scales);
}

/* A finite double may be infinite as float32, so the doubles themselves are checked. */
static void scan_doubles(struct piece *p)
{
    for (uint64_t i = p->first; i < p->first + p->n; i++) {
        uint64_t u = get_u64(p->data + 8 * i, p->big);
        if ((u & 0x7ff0000000000000) == 0x7ff0000000000000)
            count_at(&p->found, i, u & 0x000fffffffffffff ? &p->found.nan : &p->found.inf);
    }
}

/* Runs under map_guard(). */
static int scan_piece(void *arg)
{
    struct piece *p = arg;
    bool as_is = p->type->id == F32_ID && !p->big;
    if (p->type->id == F64_ID) {
        scan_doubles(p);
        return 0;
    }
    for (uint64_t at = p->first, end = at + p->n; at < end; at += CHUNK) {
        size_t n = (size_t)min_u64(CHUNK, end - at);
        const uint8_t *floats = as_is ? p->data + 4 * at : (const uint8_t *)p->room;
        if (!as_is)
            quant_read_f32(p->type, p->big, p->data, 4 * at, 4 * n, p->room);
        bool finite = quant_all_finite(floats, n);
        if (!finite || scales[p->type->id].hidden)
            count_scales(p, at, n);
        if (!finite)
            count_floats(p, at, floats, n);
    }
    return 0;
}

/* ---- all of them ---- */

struct work {
    const struct scan *scan;
    struct scan_result *found;
    /* owned: the number of each tensor's first piece, then the number of pieces */
    uint64_t *begin;
    uint64_t total; /* in bytes */
    struct units units;
    uint64_t done; /* in bytes; protected by the lock, like the results */
};

static bool in_file(const struct map *m, const struct gguf_tensor *t)
{
    uint64_t end;
    return add_u64(t->off, t->nbytes, &end) && end <= m->size;
}

static bool is_integer(uint32_t id)
{
    return id == I8_ID || id == I16_ID || id == I32_ID || id == I64_ID;
}

/* True if the tensor can be scanned; otherwise records that it cannot. */
static bool scannable(const struct scan *s, const struct gguf_tensor *t, struct scan_result *r)
{
    const struct quant_type *type = gguf_type(t);
    r->unread = t->n_elem && (!quant_has_values(type, s->g->fmt.big) || !in_file(s->map, t));
    return !r->unread && t->n_elem && !is_integer(type->id);
}

/* Add the result of a piece; the pieces of a tensor may finish in any order. */
static void add_piece(struct work *w, uint32_t tensor, const struct piece *p)
{
    struct scan_result *r = &w->found[tensor];
    const struct scan_result *f = &p->found;
    LOCKED(&w->units.lock);
    bool had = r->nan || r->inf || r->scales, has = f->nan || f->inf || f->scales;
    if (has)
        r->first = had ? min_u64(r->first, f->first) : f->first;
    r->nan += f->nan;
    r->inf += f->inf;
    r->scales += f->scales;
    w->done += p->n / p->type->block_len * p->type->block_bytes;
}

/* Return the tensor to which a piece belongs: the last that begins at or before it, because tensors
 * without pieces come first. */
static uint32_t tensor_of(const struct work *w, uint64_t piece)
{
    return (uint32_t)upto_u64(w->begin, 0, sizeof(*w->begin), w->scan->g->n_tensors, piece) - 1;
}

static int scan_unit(void *arg, uint64_t unit, void *room)
{
    struct work *w = arg;
    const uint32_t i = tensor_of(w, unit);
    const struct gguf_tensor *t = &w->scan->g->tensor[i];
    struct piece p = {.type = gguf_type(t),
                      .big = w->scan->g->fmt.big,
                      .data = w->scan->map->data + t->off,
                      .first = (unit - w->begin[i]) * PIECE,
                      .room = room};
    p.n = min_u64(PIECE, t->n_elem - p.first);
    int r = map_guard(scan_piece, &p);
    if (r == 0)
        add_piece(w, i, &p);
    return r;
}

static void progress(void *arg, uint64_t done, uint64_t all)
{
    struct work *w = arg;
    (void)done;
    (void)all;
    lock_take(&w->units.lock);
    uint64_t bytes = w->done;
    lock_drop(&w->units.lock);
    w->scan->progress(w->scan->arg, bytes, w->total);
}

/* Return the number of bytes to scan. *end is the place in the file where the last of them end. */
static uint64_t measure(const struct scan *s, uint64_t *end)
{
    uint64_t total = 0;
    struct scan_result r;
    for (uint32_t i = 0; i < s->g->n_tensors; i++) {
        const struct gguf_tensor *t = &s->g->tensor[i];
        if (!scannable(s, t, &r))
            continue;
        total += t->nbytes;
        *end = max_u64(*end, t->off + t->nbytes);
    }
    return total;
}

uint64_t scan_bytes(const struct scan *s)
{
    uint64_t end = 0;
    return measure(s, &end);
}

int scan_run(const struct scan *s, struct scan_result *found)
{
    const uint32_t n = s->g->n_tensors;
    uint64_t end = 0;
    struct work w = {.scan = s, .found = found, .total = measure(s, &end)};
    const struct units_watch watch = {.progress = s->progress ? progress : NULL, .arg = &w};
    w.begin = calloc((size_t)n + 1, sizeof(*w.begin));
    if (!w.begin)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t elements =
            scannable(s, &s->g->tensor[i], &found[i]) ? s->g->tensor[i].n_elem : 0;
        w.begin[i + 1] = w.begin[i] + elements / PIECE + (elements % PIECE != 0);
    }
    w.units = (struct units){
        .n = w.begin[n], .unit = scan_unit, .arg = &w, .room = CHUNK * sizeof(float)};
    int r = w.units.n ? units_run(&w.units, &watch) : 0;
    free(w.begin);
    return r < 0 ? r : map_check(s->map, end);
}

static void tell_tensor(struct checker *c, uint32_t i, const struct scan_result *f)
{
    if (f->nan || f->inf || f->scales)
        report_tensor(c, CHECK_ERROR, i,
                      "%" PRIu64 " values are NaN, %" PRIu64 " are infinite, %" PRIu64
                      " blocks have such a scale; the first is at element %" PRIu64,
                      f->nan, f->inf, f->scales, f->first);
}

void scan_tell(const struct gguf *g, const char *label, const struct scan_result *found,
               check_sink *sink, void *arg)
{
    struct checker c = {.g = g, .label = label, .rule = CHECK_VALUES, .sink = sink, .arg = arg};
    uint32_t unread = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        tell_tensor(&c, i, &found[i]);
        unread += found[i].unread;
    }
    report_rest(&c);
    c.reported = 0;
    if (unread)
        report(&c, CHECK_NOTE, "tensors",
               "%" PRIu32 " of %" PRIu32 " have no values that can be checked", unread,
               g->n_tensors);
}
