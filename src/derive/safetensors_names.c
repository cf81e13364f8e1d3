/* SPDX-License-Identifier: MIT */
/* Names in a safetensors file: see safetensors_names.h. */
#include "derive/safetensors_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "quant/quant.h"
#include "text/json.h"

/* ---- text ---- */

static bool is_utf8(const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    for (size_t i = 0, len; i < n; i += len)
        if (!(len = utf8_len(p + i, n - i)))
            return false;
    return true;
}

void utf8_percent(struct buf *out, uint8_t byte)
{
    buf_printf(out, "%%%02X", byte);
}

void utf8_replacement(struct buf *out, uint8_t byte)
{
    (void)byte;
    buf_str(out, "\xef\xbf\xbd");
}

/* The text itself if it is UTF-8, else in `room` with bytes that are not as `bad` writes them. */
static const char *as_utf8(const char *s, size_t *n, struct buf *room, utf8_bad_fn *bad)
{
    const uint8_t *p = (const uint8_t *)s;
    if (is_utf8(s, *n))
        return s;
    room->len = 0;
    for (size_t i = 0; i < *n;) {
        size_t len = utf8_len(p + i, *n - i);
        if (len)
            buf_add(room, p + i, len);
        else
            bad(room, p[i]);
        i += len ? len : 1;
    }
    *n = room->len;
    return (const char *)room->data;
}

void utf8_json(struct buf *out, struct buf *room, const char *s, size_t n, utf8_bad_fn *bad)
{
    const char *shown = as_utf8(s, &n, room, bad);
    if (shown != s && buf_error(room))
        out->err = buf_error(room);
    else
        json_string(out, shown, n);
}

/* ---- what is left out ---- */

/* Names of one kind, by number. */
struct names {
    const struct gguf *g;
    uint32_t n;
    const char *(*get)(const struct gguf *g, uint32_t i, size_t *n);
    utf8_bad_fn *bad;
};

static const char *tensor_name(const struct gguf *g, uint32_t i, size_t *n)
{
    *n = g->tensor[i].name_len;
    return gguf_name(g, &g->tensor[i]);
}

static const char *key_name(const struct gguf *g, uint32_t i, size_t *n)
{
    *n = g->kv[i].key_len;
    return gguf_key(g, &g->kv[i]);
}

static const char *shown(const struct names *all, uint32_t i, struct buf *room, size_t *n)
{
    const char *name = all->get(all->g, i, n);
    return as_utf8(name, n, room, all->bad);
}

/* The parser refuses names that are equal: they can be that only where they are written otherwise. */
static bool may_collide(const struct names *all)
{
    for (uint32_t i = 0; i < all->n; i++) {
        size_t n;
        const char *name = all->get(all->g, i, &n);
        if (!is_utf8(name, n))
            return true;
    }
    return false;
}

/* Leave out name i if one of those in the index is shown as it is; else add it. */
static int omit_double(const struct names *all, struct index *seen, uint32_t i, struct buf room[2],
                       bool *omit)
{
    size_t n, m;
    uint32_t other;
    const char *name = shown(all, i, &room[0], &n);
    if (buf_error(&room[0]))
        return buf_error(&room[0]);
    uint64_t hash = hash_name(name, n);
    for (struct probe at = index_probe(seen, hash); index_next(seen, &at, &other);) {
        const char *same = shown(all, other, &room[1], &m);
        if (buf_error(&room[1]))
            return buf_error(&room[1]);
        omit[i] |= m == n && memcmp(same, name, n) == 0;
    }
    if (!omit[i])
        index_insert(seen, hash, i);
    return 0;
}

/* Of names that are shown alike leave all but the first out. */
static int omit_doubles(const struct names *all, bool *omit)
{
    struct buf room[2] = {BUF_INIT, BUF_INIT};
    struct index seen = {0};
    if (!may_collide(all))
        return 0;
    int r = index_init(&seen, all->n);
    for (uint32_t i = 0; i < all->n && r == 0; i++)
        if (!omit[i])
            r = omit_double(all, &seen, i, room, omit);
    buf_free(&room[0]);
    buf_free(&room[1]);
    index_free(&seen);
    return r;
}

static bool is_one_of(const char *name, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (n == strlen(*list) && memcmp(name, *list, n) == 0)
            return true;
    return false;
}

static int omit_tensors(const struct gguf *g, struct left_out *l)
{
    static const char *const reserved[] = {"__metadata__", NULL};
    const struct names all = {g, g->n_tensors, tensor_name, utf8_percent};
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensor[i];
        l->tensor[i] = !quant_has_values(gguf_type(t), g->fmt.big) ||
                       is_one_of(gguf_name(g, t), t->name_len, reserved);
    }
    int r = omit_doubles(&all, l->tensor);
    for (uint32_t i = 0; i < g->n_tensors; i++)
        l->tensors |= l->tensor[i];
    return r;
}

/* Names that the metadata has for itself are left out too. */
static int omit_keys(const struct snapshot *s, struct left_out *l)
{
    static const char *const own[] = {"format", "ggufs.omitted", NULL};
    const struct gguf *g = s->gguf;
    const struct names all = {g, g->n_kv, key_name, utf8_replacement};
    for (uint32_t i = 0; i < g->n_kv; i++)
        l->key[i] = gguf_value(g, &g->kv[i]).type == GGUF_ARRAY || !snapshot_shows_key(s, i) ||
                    is_one_of(gguf_key(g, &g->kv[i]), g->kv[i].key_len, own);
    return omit_doubles(&all, l->key);
}

int left_out_find(const struct snapshot *g, struct left_out *ret)
{
    *ret = (struct left_out){.tensor = calloc((size_t)g->gguf->n_tensors + 1, sizeof(bool)),
                             .key = calloc((size_t)g->gguf->n_kv + 1, sizeof(bool))};
    if (!ret->tensor || !ret->key)
        return -ENOMEM;
    int r = omit_tensors(g->gguf, ret);
    return r < 0 ? r : omit_keys(g, ret);
}

void left_out_free(struct left_out *l)
{
    free(l->tensor);
    free(l->key);
}
