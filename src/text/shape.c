/* SPDX-License-Identifier: MIT */
/* What a JSON array holds: see shape.h. */
#include "text/shape.h"

#include <errno.h>

#include "base/bytes.h"
#include "gguf/gguf.h"
#include "text/scan.h"

static void add_integer(struct shape *s, const struct integer *v)
{
    uint64_t *most = v->minus ? &s->max_negative : &s->max;
    *most = max_u64(*most, v->magnitude);
    s->minus_zero |= v->minus && v->magnitude == 0;
    s->kinds |= SHAPE_INTEGER;
}

bool shape_add_word(struct shape *s, const uint8_t *word, size_t n)
{
    struct integer v;
    uint64_t bits;
    int r = scan_integer(word, n, &v);
    if (r == 0)
        add_integer(s, &v);
    else if (r == -ERANGE) {
        s->huge = true;
        s->kinds |= SHAPE_INTEGER;
    } else if (scan_is_float(word, n)) {
        s->wide |= scan_scalar(GGUF_F32, word, n, &bits) == -ERANGE;
        s->kinds |= SHAPE_FLOAT;
    } else if (scan_scalar(GGUF_BOOL, word, n, &bits) == 0)
        s->kinds |= SHAPE_BOOL;
    else
        return false;
    return true;
}

static int nested(struct reader *r, struct shape *s, unsigned depth);

static int add_array(struct reader *r, struct shape *s, unsigned depth)
{
    struct shape inner;
    uint32_t elem;
    int e = nested(r, &inner, depth + 1);
    if (e < 0)
        return e;
    s->kinds |= SHAPE_ARRAY;
    s->mixed |= inner.mixed || (inner.kinds && !shape_type(&inner, &elem));
    if (s->depth <= inner.depth)
        s->depth = inner.depth + 1;
    return 0;
}

static int add_item(struct reader *r, struct shape *s, unsigned depth)
{
    struct buf skipped = BUF_MEASURE;
    const uint8_t *word;
    size_t n;
    if (reader_at(r, '"')) {
        s->kinds |= SHAPE_STRING;
        return reader_string(r, &skipped);
    }
    if (reader_at(r, '['))
        return add_array(r, s, depth);
    int e = reader_word(r, &word, &n);
    if (e < 0 || shape_add_word(s, word, n))
        return e;
    char shown[SHOW_MAX];
    return reader_fail(r, -EINVAL, "'%s' is not a JSON value", show(shown, word, n));
}

static int nested(struct reader *r, struct shape *s, unsigned depth)
{
    int e;
    *s = (struct shape){.depth = 1};
    if (depth >= GGUF_MAX_DEPTH)
        return reader_fail(r, -EINVAL, "arrays are nested more than %d deep", GGUF_MAX_DEPTH);
    struct items it = items_begin_array(r);
    while ((e = items_next(&it)) > 0)
        if ((e = add_item(r, s, depth)) < 0)
            return e;
    return e;
}

int shape_array(struct reader *r, struct shape *s)
{
    return nested(r, s, 0);
}

static bool integers_fit(const struct shape *s, uint32_t type)
{
    struct integer low = {true, s->max_negative}, high = {false, s->max};
    return !s->huge && integer_fits(type, &low) && integer_fits(type, &high);
}

bool shape_fits(const struct shape *s, uint32_t elem)
{
    if (s->kinds == 0)
        return true;
    switch (gguf_types[elem].kind) {
    case GGUF_KIND_UINT:
    case GGUF_KIND_INT:
        return s->kinds == SHAPE_INTEGER && integers_fit(s, elem);
    case GGUF_KIND_FLOAT:
        return !(elem == GGUF_F32 && s->wide) &&
               !(s->kinds & ~(unsigned)(SHAPE_INTEGER | SHAPE_FLOAT));
    case GGUF_KIND_BOOL:
        return s->kinds == SHAPE_BOOL;
    case GGUF_KIND_STRING:
        return s->kinds == SHAPE_STRING;
    default:
        return s->kinds == SHAPE_ARRAY;
    }
}

bool shape_type(const struct shape *s, uint32_t *elem)
{
    static const uint8_t order[] = {GGUF_U32, GGUF_I32,    GGUF_U64,  GGUF_I64,  GGUF_F32,
                                    GGUF_F64, GGUF_STRING, GGUF_BOOL, GGUF_ARRAY};
    /*
     * Integers that no integer type holds are not silently rounded to floats. Only floats hold -0.
     */
    bool integers = s->kinds == SHAPE_INTEGER, floats = s->minus_zero && !s->huge;
    for (size_t i = 0; s->kinds && i < sizeof(order); i++) {
        bool is_float = gguf_types[order[i]].kind == GGUF_KIND_FLOAT;
        if ((integers && is_float != floats) || !shape_fits(s, order[i]))
            continue;
        *elem = order[i];
        return true;
    }
    return false;
}
