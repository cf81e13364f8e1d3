/* SPDX-License-Identifier: MIT */
/* Files that are rendered as a whole: a tensor's shape, type and offset, and the views of the
 * whole model. See files.h. */
#include "tree/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tree/json.h"

void shape_numpy(const struct gen *g, const struct gguf_tensor *t, const char *between,
                 struct buf *out)
{
    for (uint32_t i = t->n_dims; i-- > 0;)
        buf_printf(out, "%" PRIu64 "%s", gguf_dim(g->gguf, t, i), i ? between : "");
}

void type_name(const struct gguf_tensor *t, struct buf *out)
{
    const struct quant_type *type = gguf_type(t);
    if (type && type->block_len)
        buf_str(out, type->name);
    else
        buf_printf(out, "unknown:%" PRIu32, t->stored_id);
}

void shape_text(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    shape_numpy(g, t, " ", out);
    buf_char(out, '\n');
}

void type_text(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)g;
    type_name(t, out);
    buf_char(out, '\n');
}

void offset_text(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    buf_printf(out, "%" PRIu64 "\n", gen_offset(g, gen_tensor_no(g, t), &shard));
}

void shard_text(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    (void)gen_offset(g, gen_tensor_no(g, t), &shard);
    buf_printf(out, "%s\n", g->shards->name[shard]);
}

void metadata_json(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    char name[GGUF_TYPE_NAME_MAX];
    (void)t;
    const char *before = "{\n";
    for (uint32_t i = 0; i < m->n_kv; i++) {
        struct gguf_value v = gguf_value(m, &m->kv[i]);
        if (!gen_shows_key(g, i))
            continue;
        buf_str(out, before);
        before = ",\n";
        json_string(out, gguf_key(m, &m->kv[i]), m->kv[i].key_len);
        buf_printf(out, ": {\"type\": \"%s\", \"value\": ", gguf_type_name(&v, name));
        json_value(out, &v);
        buf_char(out, '}');
    }
    buf_str(out, before[0] == '{' ? "{\n}\n" : "\n}\n");
}

void tensors_json(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    size_t shard;
    (void)t;
    buf_str(out, "[");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        uint64_t off = gen_offset(g, i, &shard);
        t = &m->tensor[i];
        buf_str(out, i ? ",\n{\"name\": " : "\n{\"name\": ");
        json_string(out, gguf_name(m, t), t->name_len);
        buf_str(out, ", \"type\": \"");
        type_name(t, out);
        buf_str(out, "\", \"shape\": [");
        shape_numpy(g, t, ", ", out);
        buf_printf(out, "], \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64, off, t->nbytes);
        if (g->shards) {
            buf_str(out, ", \"shard\": ");
            json_string(out, g->shards->name[shard], strlen(g->shards->name[shard]));
        }
        buf_char(out, '}');
    }
    buf_str(out, "\n]\n");
}

/* ---- info ---- */

/* A string key's text made safe for a terminal, or "-". */
static const char *string_key(const struct gguf *m, const char *key, char dst[SHOW_MAX])
{
    uint32_t i = gguf_find_key(m, key, strlen(key));
    struct gguf_value v;
    if (i == UINT32_MAX)
        return "-";
    v = gguf_value(m, &m->kv[i]);
    return v.type == GGUF_STRING ? show(dst, v.data, (size_t)v.len) : "-";
}

/* "4.2 GiB", or plain bytes below 1 KiB. */
static void size_text(struct buf *out, uint64_t bytes)
{
    static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;
    for (; v >= 1024 && u < sizeof(unit) / sizeof(unit[0]) - 1; u++)
        v /= 1024;
    buf_printf(out, u ? "%.1f %s" : "%.0f %s", v, unit[u]);
}

struct share {
    uint32_t id; /* of the type, as stored */
    uint64_t tensors;
    uint64_t bytes;
    const struct gguf_tensor *first;
};

static int by_bytes(const void *a, const void *b)
{
    const struct share *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Add a tensor to its type's share. There are few types; a hostile file's many are cut. */
#define SHARES_MAX 64
static size_t add_share(struct share *s, size_t n, const struct gguf_tensor *t)
{
    size_t i = 0;
    while (i < n && s[i].id != t->stored_id)
        i++;
    if (i == SHARES_MAX)
        return n;
    if (i == n)
        s[n++] = (struct share){.id = t->stored_id, .first = t};
    s[i].tensors++;
    s[i].bytes += t->nbytes;
    return n;
}

static void info_types(const struct gguf *m, struct buf *out)
{
    struct share s[SHARES_MAX];
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_tensors; i++)
        n = add_share(s, n, &m->tensor[i]);
    qsort(s, n, sizeof(s[0]), by_bytes);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%-15s", i ? "" : "types:");
        type_name(s[i].first, out);
        buf_printf(out, "  %" PRIu64 " tensors, ", s[i].tensors);
        size_text(out, s[i].bytes);
        buf_char(out, '\n');
    }
}

void info_text(const struct gen *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    char name[SHOW_MAX];
    uint64_t params = 0;
    (void)t;
    for (uint32_t i = 0; i < m->n_tensors; i++)
        params += m->tensor[i].n_elem;
    buf_printf(out, "name:          %s\n", string_key(m, "general.name", name));
    buf_printf(out, "architecture:  %s\n", string_key(m, "general.architecture", name));
    buf_printf(out, "format:        GGUF version %u%s, %s-endian\n", m->fmt.version,
               m->fmt.draft ? " (first draft)" : "", m->fmt.big ? "big" : "little");
    buf_str(out, "size:          ");
    size_text(out, m->file_size);
    buf_printf(out, " (%" PRIu64 " bytes)\n", m->file_size);
    buf_printf(out, "parameters:    %" PRIu64 "\n", params);
    buf_printf(out, "keys:          %" PRIu32 "\n", m->n_kv);
    buf_printf(out, "tensors:       %" PRIu32 "\n", m->n_tensors);
    info_types(m, out);
    buf_printf(out, "alignment:     %" PRIu64 "\n", m->alignment);
    buf_printf(out, "data offset:   %" PRIu64 "\n", m->data_off);
}
