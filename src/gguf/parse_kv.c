/* SPDX-License-Identifier: MIT */
/* The key-values of a header: see cursor.h; docs/format.md draws an entry. */
#include "gguf/cursor.h"

#include "base/buf.h"

/* Version 1 had the types up to arrays; u64, i64 and f64 came with version 2. */
static bool type_known(const struct cursor *c, uint64_t type)
{
    return c->fmt.version == 1 ? type <= GGUF_ARRAY : type < GGUF_VALUE_TYPES;
}

/* The fewest bytes that an element of the type can take. */
static uint64_t least_bytes(const struct cursor *c, uint64_t type)
{
    if (type == GGUF_STRING)
        return c->fmt.len_width;
    if (type == GGUF_ARRAY)
        return (uint64_t)c->fmt.len_width + 4;
    return gguf_types[type].width;
}

static int skip_value(struct cursor *c, uint64_t type, unsigned depth);

/* The head of an array: element type, then count (in the first draft the other way round). */
static int array_head(struct cursor *c, uint64_t *elem, uint64_t *count)
{
    uint64_t at = c->pos, bytes, type_at = c->fmt.draft ? at + 4 : at;
    int r = 0;
    if (c->fmt.draft)
        r = cursor_uint(c, 4, "array length", count);
    if (r == 0)
        r = cursor_uint(c, 4, "array element type", elem);
    if (r == 0 && !c->fmt.draft)
        r = cursor_uint(c, c->fmt.len_width, "array length", count);
    if (r < 0)
        return r;
    if (!type_known(c, *elem))
        return cursor_fail(c, -EBADMSG, "array element type", type_at, "%llu is not a value type",
                           (unsigned long long)*elem);
    if (*count > GGUF_MAX_COUNT || !mul_u64(*count, least_bytes(c, *elem), &bytes) ||
        bytes > cursor_left(c))
        return cursor_fail(c, -EBADMSG, "array length", c->fmt.draft ? at : at + 4,
                           "%llu elements of type %s do not fit into the %llu bytes left%s",
                           (unsigned long long)*count, gguf_types[*elem].name,
                           (unsigned long long)cursor_left(c),
                           *count > GGUF_MAX_COUNT ? "" : CURSOR_CUT);
    return 0;
}

static int skip_array(struct cursor *c, unsigned depth)
{
    uint64_t elem = 0, count = 0, off, len;
    if (depth >= GGUF_MAX_DEPTH)
        return cursor_fail(c, -EBADMSG, "array", c->pos, "nested more than %d deep",
                           GGUF_MAX_DEPTH);
    int r = array_head(c, &elem, &count);
    if (r < 0)
        return r;
    if (gguf_types[elem].width) {
        uint64_t bytes = count * gguf_types[elem].width;
        r = cursor_need(c, bytes, "array elements");
        c->pos += r < 0 ? 0 : bytes;
        return r;
    }
    for (uint64_t i = 0; i < count && r == 0; i++)
        r = elem == GGUF_STRING ? cursor_string(c, "array string length", &off, &len)
                                : skip_value(c, elem, depth + 1);
    return r;
}

static int skip_value(struct cursor *c, uint64_t type, unsigned depth)
{
    uint64_t off, len;
    if (type == GGUF_ARRAY)
        return skip_array(c, depth);
    if (type == GGUF_STRING)
        return cursor_string(c, "string length", &off, &len);
    int r = cursor_need(c, gguf_types[type].width, "value");
    c->pos += r < 0 ? 0 : gguf_types[type].width;
    return r;
}

/* The first draft declares a value's length in bytes; it must be the actual length. */
static int draft_length(struct cursor *c, uint64_t *ret)
{
    return c->fmt.draft ? cursor_uint(c, 4, "value length", ret) : 0;
}

static int parse_entry(struct cursor *c, struct gguf_kv *kv)
{
    uint64_t len, type = 0, declared = 0;
    kv->off = c->pos;
    int r = cursor_string(c, "key length", &kv->key_off, &len);
    if (r < 0)
        return r;
    kv->key_len = (uint32_t)len;
    c->name_off = kv->key_off;
    c->name_len = len;
    if (len == 0)
        return cursor_fail(c, -EBADMSG, "key length", kv->off, "the key is empty");
    r = draft_length(c, &declared);
    if (r == 0)
        r = cursor_uint(c, 4, "value type", &type);
    if (r < 0)
        return r;
    if (!type_known(c, type))
        return cursor_fail(c, -EBADMSG, "value type", c->pos - 4, "%llu is not a value type",
                           (unsigned long long)type);
    kv->type = (uint32_t)type;
    kv->val_off = c->pos;
    r = skip_value(c, type, 0);
    kv->end = c->pos;
    if (r == 0 && c->fmt.draft && declared != kv->end - kv->val_off)
        return cursor_fail(c, -EBADMSG, "value length", kv->val_off - 8,
                           "declared length %llu, actual %llu bytes", (unsigned long long)declared,
                           (unsigned long long)(kv->end - kv->val_off));
    return r;
}

int parse_keys(struct cursor *c, struct gguf *g, uint64_t n)
{
    size_t cap = 0;
    c->item = "key";
    for (uint64_t i = 0; i < n; i++) {
        c->item_no = i;
        c->name_len = 0;
        /* The list grows with what was parsed, not with the count in the file. */
        int r = array_grow(&g->kv, &cap, g->n_kv, sizeof(*g->kv));
        if (r < 0)
            return cursor_fail(c, r, "entry", c->pos, "no memory");
        r = parse_entry(c, &g->kv[g->n_kv]);
        if (r < 0)
            return r;
        g->n_kv++;
    }
    c->item = NULL;
    return 0;
}
