/* SPDX-License-Identifier: MIT */
/* tensors.txt: see table.h. */
#include "derive/table.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "model/facts.h"

struct widths {
    size_t name, type, shape, off, bytes; /* columns of a terminal */
};

/* Bytes that continue a character take no column. */
static size_t columns(const uint8_t *p, size_t n)
{
    size_t ret = 0;
    for (size_t i = 0; i < n; i++)
        ret += (p[i] & 0xc0) != 0x80;
    return ret;
}

/* What was written since `from`, padded to the column; then what divides columns. */
static void pad(struct buf *line, size_t from, size_t width)
{
    size_t n = line->data ? columns(line->data + from, line->len - from) : 0;
    for (n = n < width ? width - n : 0; n > 0; n--)
        buf_char(line, ' ');
    buf_str(line, "  ");
}

static size_t widest(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Short texts of a tensor, made in `room`, which is reused. */
static void measure(const struct snapshot *g, uint32_t i, struct buf *room, struct widths *w)
{
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    size_t shard;
    room->len = 0;
    show_all(room, gguf_name(g->gguf, t), t->name_len);
    size_t name = room->data ? columns(room->data, room->len) : 0;
    if (name <= TABLE_NAME_MOST)
        w->name = widest(w->name, name);
    room->len = 0;
    fact_type_name(t, room);
    w->type = widest(w->type, room->len);
    room->len = 0;
    fact_shape(g->gguf, t, " ", room);
    if (room->len <= TABLE_NAME_MOST)
        w->shape = widest(w->shape, room->len);
    w->off = widest(w->off, digits_u64(snapshot_offset(g, i, &shard)));
    w->bytes = widest(w->bytes, digits_u64(t->nbytes));
}

static void head(const struct snapshot *g, const struct widths *w, struct buf *out)
{
    buf_printf(out, "%-*s  %-*s  %-*s  %*s  %*s%s\n", (int)w->name, "NAME", (int)w->type, "TYPE",
               (int)w->shape, "SHAPE", (int)w->off, "OFFSET", (int)w->bytes, "BYTES",
               g->shards ? "  SHARD" : "");
}

static void line(const struct snapshot *g, uint32_t i, const struct widths *w, struct buf *room,
                 struct buf *out)
{
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    size_t shard;
    uint64_t off = snapshot_offset(g, i, &shard);
    room->len = 0;
    show_all(room, gguf_name(g->gguf, t), t->name_len);
    pad(room, 0, w->name);
    size_t at = room->len;
    fact_type_name(t, room);
    pad(room, at, w->type);
    at = room->len;
    fact_shape(g->gguf, t, " ", room);
    pad(room, at, w->shape);
    buf_printf(room, "%*" PRIu64 "  %*" PRIu64, (int)w->off, off, (int)w->bytes, t->nbytes);
    if (g->shards) {
        buf_str(room, "  ");
        show_all(room, g->shards->name[shard], strlen(g->shards->name[shard]));
    }
    buf_char(room, '\n');
    buf_add(out, room->data, room->len);
}

void table_text(const struct snapshot *g, struct buf *out)
{
    CLEANUP(buf_free) struct buf room = BUF_INIT;
    struct widths w = {4, 4, 5, 6, 5}; /* of the head */
    uint32_t n = g->gguf->n_tensors;
    for (uint32_t i = 0; i < n; i++)
        measure(g, i, &room, &w);
    head(g, &w, out);
    for (uint32_t i = 0; i < n && !buf_error(&room); i++)
        line(g, i, &w, &room, out);
    if (buf_error(&room) && !out->err)
        out->err = buf_error(&room);
}
