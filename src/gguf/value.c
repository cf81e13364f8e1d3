/* SPDX-License-Identifier: MIT */
/* Metadata values and keys: see value.h. */
#include "gguf/value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- keys ---- */

/* Generated from keys.tsv, sorted by pattern. */
const struct key_row key_table[] = {
#include "gguf/key-table.inc"
};

const size_t key_table_len = sizeof(key_table) / sizeof(key_table[0]);

/* First segments that are not architecture names. */
static const char *const reserved[] = {"general",  "tokenizer", "split", "adapter",   "imatrix",
                                       "quantize", "clip",      "ggufs", "diffusion", "xielu"};

static bool equals(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(s, word, n) == 0;
}

static bool is_architecture(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (equals(s, n, reserved[i]))
            return false;
    return n > 0;
}

static bool is_numeric(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0;
}

static int by_pattern(const void *pattern, const void *row)
{
    return strcmp(pattern, ((const struct key_row *)row)->pattern);
}

const struct key_row *key_find(const char *key, size_t n)
{
    static const char named[] = "tokenizer.chat_template.";
    char pattern[128]; /* longer than any row's */
    size_t at = 0;
    if (n == 0 || n > KEY_MAX || memchr(key, '{', n) || memchr(key, '\0', n))
        return NULL;
    for (size_t i = 0, len; i <= n; i += len + 1) {
        const char *word = key + i, *dot = memchr(word, '.', n - i);
        len = dot ? (size_t)(dot - word) : n - i;
        if (i == 0 && is_architecture(word, len))
            word = "[arch]";
        else if (len && i == strlen(named) && memcmp(key, named, i) == 0)
            word = "{name}";
        else if (is_numeric(word, len))
            word = "{i}";
        const size_t size = word == key + i ? len : strlen(word);
        if (at + size + 1 > sizeof(pattern))
            return NULL;
        memcpy(pattern + at, word, size);
        at += size + 1;
        pattern[at - 1] = '.';
    }
    pattern[at - 1] = '\0';
    return bsearch(pattern, key_table, key_table_len, sizeof(key_table[0]), by_pattern);
}

/* Accept u32 and i32 in a per-layer array of integers or bools, and where KEY_SIGN says so, because
 * writers and readers mix these types; llama.cpp refuses every other integer type there. */
static bool elem_fits(const struct key_row *row, uint32_t elem)
{
    const bool floats = row->elem == GGUF_F32, mixed = elem == GGUF_U32 || elem == GGUF_I32;
    return elem == row->elem || ((row->flags & (KEY_PER_LAYER | KEY_SIGN)) && !floats && mixed);
}

bool key_type_fits(const struct key_row *row, uint32_t type, uint32_t elem)
{
    if (type == GGUF_ARRAY)
        return (row->type == GGUF_ARRAY || (row->flags & KEY_PER_LAYER)) && elem_fits(row, elem);
    return type == row->type || ((row->flags & KEY_SIGN) && type == GGUF_I32);
}

static bool is_lower_snake(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_lenient(char c)
{
    return is_lower_snake(c) || (c >= 'A' && c <= 'Z') || c == '-';
}

static bool segments_of(const char *key, size_t n, bool (*allowed)(char))
{
    if (n == 0 || n > KEY_MAX)
        return false;
    bool empty = true; /* the current segment is empty so far */
    for (size_t i = 0; i < n; i++) {
        if (key[i] == '.' ? empty : !allowed(key[i]))
            return false;
        empty = key[i] == '.';
    }
    return !empty;
}

bool key_valid(const char *key, size_t n)
{
    return segments_of(key, n, is_lenient);
}

bool key_lower_snake(const char *key, size_t n)
{
    return segments_of(key, n, is_lower_snake);
}

bool key_is_own(const char *key, size_t n)
{
    return equals(key, n, KEY_RESERVE) || text_begins((struct text){key, n}, KEY_SPLIT_PREFIX);
}
