/* SPDX-License-Identifier: MIT */
/* Where lines end: see lines.h. */
#include "derive/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/stats.h"

void hashes_line(const struct snapshot *g, uint32_t i, const char hex[DIGEST_HEX], struct buf *out)
{
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    size_t shard;
    (void)snapshot_offset(g, i, &shard);
    const char *file = g->shards ? g->shards->name[shard] : g->file;
    buf_str(out, "sha256    ");
    buf_add(out, hex, DIGEST_HEX);
    buf_str(out, "  ");
    show_all(out, file, strlen(file));
    buf_char(out, ':');
    show_all(out, gguf_name(g->gguf, t), t->name_len);
    buf_char(out, '\n');
}

static size_t line_size(const struct snapshot *g, enum lines_of what, uint32_t i)
{
    static const char hex[DIGEST_HEX];
    struct buf m = BUF_MEASURE;
    if (what == LINES_STATS)
        return stats_line_size(g->gguf, &g->gguf->tensor[i]);
    hashes_line(g, i, hex, &m);
    return m.len;
}

static void part_free(struct snapshot_part *part)
{
    free(part);
}

const struct lines *lines_get(struct snapshot *g, enum lines_of what)
{
    struct snapshot_part *known = snapshot_part(g, what);
    if (known)
        return (const struct lines *)known;
    uint32_t n = g->gguf->n_tensors;
    struct lines *l = malloc(sizeof(*l) + n * sizeof(l->end[0]));
    struct buf m = BUF_MEASURE;
    if (!l)
        return NULL;
    if (what == LINES_STATS)
        stats_head(&m);
    uint64_t at = m.len;
    l->part.free = part_free;
    l->head = at;
    for (uint32_t i = 0; i < n; i++)
        l->end[i] = at += line_size(g, what, i);
    return (const struct lines *)snapshot_add_part(g, what, &l->part);
}

uint64_t lines_size(const struct lines *l, const struct snapshot *g)
{
    return g->gguf->n_tensors ? l->end[g->gguf->n_tensors - 1] : l->head;
}

/* The first tensor whose line ends behind `off`. */
static uint32_t line_at(const struct lines *l, uint32_t n, uint64_t off)
{
    uint32_t low = 0, high = n;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (l->end[mid] > off)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

void lines_range(const struct lines *l, const struct snapshot *g, uint64_t off, uint64_t end,
                 uint32_t *first, uint32_t *last)
{
    uint32_t n = g->gguf->n_tensors;
    *first = line_at(l, n, off);
    *last = end <= l->head ? *first : (uint32_t)min_u64(n, (uint64_t)line_at(l, n, end - 1) + 1);
}
