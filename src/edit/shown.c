/* SPDX-License-Identifier: MIT */
/* The values of keys: see shown.h. */
#include "edit/shown.h"

#include <string.h>

#include "text/text.h"

void shown_free(struct shown *s)
{
    snapshot_unref(s->snap);
    edit_value_unref(s->value);
    *s = SHOWN_NONE;
}

bool shown_value(const struct shown *s, struct gguf_value *ret)
{
    if (!s->snap)
        return false;
    const struct gguf *g = s->snap->gguf;
    *ret = s->value ? gguf_value_at(&g->fmt, s->value->type, s->value->bytes.data)
                    : gguf_value(g, &g->kv[s->kv]);
    return true;
}

const uint8_t *shown_bytes(const struct shown *s, size_t *n)
{
    if (s->value) {
        *n = s->value->bytes.len;
        return s->value->bytes.data;
    }
    const struct gguf_kv *kv = &s->snap->gguf->kv[s->kv];
    *n = (size_t)(kv->end - kv->val_off);
    return s->snap->gguf->head + kv->val_off;
}

bool shown_is(const struct shown *s, uint32_t type, const struct buf *bytes)
{
    struct gguf_value v;
    size_t n;
    if (!shown_value(s, &v) || v.type != type)
        return false;
    const uint8_t *at = shown_bytes(s, &n);
    return n == bytes->len && memcmp(at, bytes->data, n) == 0;
}

void shown_text(const struct shown *s, struct buf *out)
{
    struct gguf_value v;
    if (shown_value(s, &v))
        text_value(out, &v);
}

uint64_t shown_size(const struct shown *s)
{
    if (!s->snap)
        return 0;
    _Atomic(uint64_t) *cache = s->value ? &s->value->cached : &s->snap->key_size[s->kv];
    uint64_t known = atomic_load_explicit(cache, memory_order_relaxed);
    if (known)
        return known - 1;
    struct buf m = BUF_MEASURE;
    shown_text(s, &m);
    atomic_store_explicit(cache, m.len + 1, memory_order_relaxed);
    return m.len;
}

/* Snapshot numbers stay far below the bit that marks numbers of values. */
uint64_t shown_id(const struct shown *s)
{
    return s->value ? UINT64_C(1) << 63 | s->value->id : s->snap->number;
}
