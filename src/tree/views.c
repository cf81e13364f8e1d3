/* SPDX-License-Identifier: MIT */
/* Files that are rendered as a whole: a tensor's shape, type and offset, and the views of the
 * whole model. See files.h. */
#include "tree/files.h"

#include <inttypes.h>

#include "derive/table.h"
#include "model/facts.h"
#include "text/json.h"

void shape_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    fact_shape(g->gguf, t, " ", out);
    buf_char(out, '\n');
}

void type_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)g;
    fact_type_name(t, out);
    buf_char(out, '\n');
}

void offset_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    buf_printf(out, "%" PRIu64 "\n", snapshot_offset(g, snapshot_tensor_no(g, t), &shard));
}

void shard_text(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    size_t shard;
    (void)snapshot_offset(g, snapshot_tensor_no(g, t), &shard);
    buf_printf(out, "%s\n", g->shards->name[shard]);
}

void metadata_json(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    struct json all = {.out = out};
    char name[GGUF_TYPE_NAME_MAX];
    (void)t;
    json_begin(&all, NULL, "{\n");
    for (uint32_t i = 0; i < m->n_kv; i++) {
        struct gguf_value v = gguf_value(m, &m->kv[i]);
        struct json j = {.out = out};
        if (!snapshot_shows_key(g, i))
            continue;
        json_string(json_item(&all, NULL), gguf_key(m, &m->kv[i]), m->kv[i].key_len);
        buf_str(out, ": ");
        json_begin(&j, NULL, "{");
        json_text(&j, "type", gguf_type_name(&v, name));
        json_value(json_item(&j, "value"), &v);
        json_end(&j);
    }
    json_end(&all);
    buf_char(out, '\n');
}

void tensors_json(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    struct json j = {.out = out};
    size_t shard;
    json_begin(&j, NULL, "[\n");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const uint64_t off = snapshot_offset(g, i, &shard);
        t = &m->tensor[i];
        json_begin(&j, NULL, "{");
        json_string(json_item(&j, "name"), gguf_name(m, t), t->name_len);
        buf_char(json_item(&j, "type"), '"');
        fact_type_name(t, out);
        buf_char(out, '"');
        buf_char(json_item(&j, "shape"), '[');
        fact_shape(g->gguf, t, ", ", out);
        buf_char(out, ']');
        buf_printf(json_item(&j, "offset"), "%" PRIu64, off);
        buf_printf(json_item(&j, "nbytes"), "%" PRIu64, t->nbytes);
        if (g->shards)
            json_text(&j, "shard", g->shards->name[shard]);
        json_end(&j);
    }
    json_end(&j);
    buf_char(out, '\n');
}

void tensors_txt(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)t;
    table_text(g, out);
}
