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
    char name[GGUF_TYPE_NAME_MAX];
    (void)t;
    const char *before = "{\n";
    for (uint32_t i = 0; i < m->n_kv; i++) {
        struct gguf_value v = gguf_value(m, &m->kv[i]);
        if (!snapshot_shows_key(g, i))
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

void tensors_json(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    const struct gguf *m = g->gguf;
    size_t shard;
    (void)t;
    buf_str(out, "[");
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        uint64_t off = snapshot_offset(g, i, &shard);
        t = &m->tensor[i];
        buf_str(out, i ? ",\n{\"name\": " : "\n{\"name\": ");
        json_string(out, gguf_name(m, t), t->name_len);
        buf_str(out, ", \"type\": \"");
        fact_type_name(t, out);
        buf_str(out, "\", \"shape\": [");
        fact_shape(g->gguf, t, ", ", out);
        buf_printf(out, "], \"offset\": %" PRIu64 ", \"nbytes\": %" PRIu64, off, t->nbytes);
        if (g->shards) {
            buf_str(out, ", \"shard\": ");
            json_string(out, g->shards->name[shard], strlen(g->shards->name[shard]));
        }
        buf_char(out, '}');
    }
    buf_str(out, "\n]\n");
}

void tensors_txt(const struct snapshot *g, const struct gguf_tensor *t, struct buf *out)
{
    (void)t;
    table_text(g, out);
}
