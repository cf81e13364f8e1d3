/* SPDX-License-Identifier: MIT */
/* Typed metadata values: see value.h. */
#include "gguf/value.h"

#include <stdio.h>

#include "base/bytes.h"

const struct gguf_type_row gguf_types[GGUF_VALUE_TYPES] = {
    [GGUF_U8] = {"u8", 1, GGUF_KIND_UINT},           [GGUF_I8] = {"i8", 1, GGUF_KIND_INT},
    [GGUF_U16] = {"u16", 2, GGUF_KIND_UINT},         [GGUF_I16] = {"i16", 2, GGUF_KIND_INT},
    [GGUF_U32] = {"u32", 4, GGUF_KIND_UINT},         [GGUF_I32] = {"i32", 4, GGUF_KIND_INT},
    [GGUF_F32] = {"f32", 4, GGUF_KIND_FLOAT},        [GGUF_BOOL] = {"bool", 1, GGUF_KIND_BOOL},
    [GGUF_STRING] = {"string", 0, GGUF_KIND_STRING}, [GGUF_ARRAY] = {"array", 0, GGUF_KIND_ARRAY},
    [GGUF_U64] = {"u64", 8, GGUF_KIND_UINT},         [GGUF_I64] = {"i64", 8, GGUF_KIND_INT},
    [GGUF_F64] = {"f64", 8, GGUF_KIND_FLOAT},
};

/* Read the head of an array: element type, then count (in the first draft, count first). */
static struct gguf_value array_at(const struct gguf_format *fmt, const uint8_t *p)
{
    size_t count_at = fmt->draft ? 0 : 4, elem_at = fmt->draft ? 4 : 0;
    return (struct gguf_value){
        .fmt = fmt,
        .type = GGUF_ARRAY,
        .elem = (uint8_t)get_u32(p + elem_at, fmt->big),
        .count = get_uint(p + count_at, fmt->len_width, fmt->big),
        .data = p + 4 + fmt->len_width,
    };
}

struct gguf_value gguf_value_at(const struct gguf_format *fmt, uint32_t type, const uint8_t *p)
{
    struct gguf_value v = {.fmt = fmt, .type = (uint8_t)type, .data = p};
    if (type == GGUF_ARRAY)
        return array_at(fmt, p);
    if (type != GGUF_STRING) {
        v.len = gguf_types[type].width;
        return v;
    }
    v.len = get_uint(p, fmt->len_width, fmt->big) - (fmt->nul ? 1 : 0);
    v.data = p + fmt->len_width;
    return v;
}

struct gguf_walk gguf_walk(const struct gguf_value *array)
{
    return (struct gguf_walk){array->fmt, array->data, array->count, array->elem};
}

bool gguf_next(struct gguf_walk *w, struct gguf_value *item)
{
    if (w->left == 0)
        return false;
    w->left--;
    *item = gguf_value_at(w->fmt, w->elem, w->at);
    w->at = gguf_value_end(item);
    return true;
}

const uint8_t *gguf_value_end(const struct gguf_value *v)
{
    if (v->type == GGUF_STRING)
        return v->data + v->len + (v->fmt->nul ? 1 : 0);
    if (v->type != GGUF_ARRAY)
        return v->data + v->len;
    if (gguf_types[v->elem].width)
        return v->data + v->count * gguf_types[v->elem].width;
    struct gguf_walk w = gguf_walk(v);
    struct gguf_value item;
    while (gguf_next(&w, &item))
        ;
    return w.at;
}

uint64_t gguf_uint(const struct gguf_value *v)
{
    return get_uint(v->data, (size_t)v->len, v->fmt->big);
}

int64_t gguf_int(const struct gguf_value *v)
{
    uint64_t u = gguf_uint(v);
    switch (v->len) {
    case 1:
        return (int8_t)u;
    case 2:
        return (int16_t)u;
    case 4:
        return (int32_t)u;
    default:
        return (int64_t)u;
    }
}

double gguf_float(const struct gguf_value *v)
{
    uint64_t bits = gguf_uint(v);
    if (v->len == sizeof(double)) {
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof(f));
    return (double)f;
}

const char *gguf_type_name(const struct gguf_value *v, char dst[GGUF_TYPE_NAME_MAX])
{
    if (v->type == GGUF_ARRAY)
        (void)snprintf(dst, GGUF_TYPE_NAME_MAX, "array[%s]", gguf_types[v->elem].name);
    else
        (void)snprintf(dst, GGUF_TYPE_NAME_MAX, "%s", gguf_types[v->type].name);
    return dst;
}
