/* SPDX-License-Identifier: MIT */
/* Writes files with a line per tensor: see table.h. */
#include "derive/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "derive/stats.h"
#include "model/facts.h"

/* A role consists of the tensors in all blocks that have the same name apart from the block's
 * number. */
enum { ROLES_MOST = 256, TYPES_MOST = 8, ROLE_LEN = 64 };

struct role {
    char name[ROLE_LEN];
    struct {
        const struct gguf_tensor *first;
        uint64_t tensors;
    } type[TYPES_MOST];
    uint64_t bytes;
};

static void share(uint64_t bytes, double all, struct buf *out)
{
    buf_printf(out, "%.2f%%", all > 0 ? 100 * (double)bytes / all : 0);
}

/* Write the name of a tensor's role, such as "attn_q" for "blk.7.attn_q.weight". */
static void role_name(const struct gguf *g, const struct gguf_tensor *t, char dst[ROLE_LEN])
{
    static const char weight[] = ".weight";
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    show_all(&name, gguf_name(g, t), t->name_len);
    buf_char(&name, '\0');
    *dst = '\0';
    if (buf_error(&name))
        return;
    (void)snprintf(dst, ROLE_LEN, "%s", name.len > ROLE_LEN ? "(others)" : (const char *)name.data);
    char *block = strstr(dst, "blk."), *end = strstr(dst, weight);
    if (end && end[strlen(weight)] == '\0')
        *end = '\0';
    if (block && (block == dst || block[-1] == '.')) {
        size_t digits = strspn(block + 4, "0123456789");
        if (digits && block[4 + digits] == '.')
            memmove(block, block + 5 + digits, strlen(block + 5 + digits) + 1);
    }
}

/* Count a tensor. If there is no room for another role, count it with the last role. */
static void add_role(struct role *role, size_t *n, const struct gguf *g,
                     const struct gguf_tensor *t)
{
    char name[ROLE_LEN];
    size_t i = 0, k = 0;
    role_name(g, t, name);
    while (i < *n && strcmp(role[i].name, name) != 0)
        i++;
    if (i == ROLES_MOST)
        (void)snprintf(role[--i].name, ROLE_LEN, "(others)");
    else if (i == *n)
        (void)snprintf(role[(*n)++].name, ROLE_LEN, "%s", name);
    while (k < TYPES_MOST - 1 && role[i].type[k].first &&
           role[i].type[k].first->type_id != t->type_id)
        k++;
    role[i].type[k].first = role[i].type[k].first ? role[i].type[k].first : t;
    role[i].type[k].tensors++;
    role[i].bytes += t->nbytes;
}

/* Write a line for each role, such as "ffn_down  16 x Q6_K, 16 x Q4_K  123456  26.10%". */
static void add_roles(const struct gguf *g, double all, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT, room = BUF_INIT;
    struct role *role = (struct role *)(void *)buf_extend(&room, ROLES_MOST * sizeof(*role));
    size_t n = 0;
    if (!role) {
        out->err = buf_error(&room);
        return;
    }
    memset(role, 0, ROLES_MOST * sizeof(*role));
    for (uint32_t i = 0; i < g->n_tensors; i++)
        add_role(role, &n, g, &g->tensor[i]);
    buf_str(&lines, "ROLE\tTENSORS\tBYTES\tSHARE\n");
    for (size_t i = 0; i < n; i++) {
        buf_printf(&lines, "%s\t", role[i].name);
        for (size_t k = 0; k < TYPES_MOST && role[i].type[k].first; k++) {
            buf_printf(&lines, "%s%" PRIu64 " x ", k ? ", " : "", role[i].type[k].tensors);
            fact_type_name(role[i].type[k].first, &lines);
        }
        buf_printf(&lines, "\t%" PRIu64 "\t", role[i].bytes);
        share(role[i].bytes, all, &lines);
        buf_char(&lines, '\n');
    }
    buf_table(&lines, "llrr", TABLE_NAME_MOST, out);
}

void table_text(const struct snapshot *g, struct buf *out)
{
    CLEANUP(buf_free) struct buf lines = BUF_INIT;
    double all = 0;
    size_t shard;
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++)
        all += (double)g->gguf->tensor[i].nbytes;
    buf_printf(&lines, "NAME\tTYPE\tSHAPE\tBYTES\tSHARE%s\n", g->shards ? "\tSHARD" : "");
    for (uint32_t i = 0; i < g->gguf->n_tensors; i++) {
        const struct gguf_tensor *t = &g->gguf->tensor[i];
        show_all(&lines, gguf_name(g->gguf, t), t->name_len);
        buf_char(&lines, '\t');
        fact_type_name(t, &lines);
        buf_char(&lines, '\t');
        fact_shape(g->gguf, t, " ", &lines);
        buf_printf(&lines, "\t%" PRIu64 "\t", t->nbytes);
        share(t->nbytes, all, &lines);
        (void)snapshot_offset(g, i, &shard);
        if (g->shards)
            buf_printf(&lines, "\t%zu", shard + 1);
        buf_char(&lines, '\n');
    }
    buf_table(&lines, g->shards ? "lllrrr" : "lllrr", TABLE_NAME_MOST, out);
    buf_char(out, '\n');
    add_roles(g->gguf, all, out);
}

/* ---- ends of lines ---- */

void hashes_line(const struct snapshot *g, uint32_t i, const char *hex, struct buf *out)
{
    const struct gguf_tensor *t = &g->gguf->tensor[i];
    size_t shard;
    (void)snapshot_offset(g, i, &shard);
    const char *file = g->shards ? g->shards->name[shard] : g->file;
    buf_str(out, "sha256    ");
    buf_add(out, hex, HASH_HEX);
    buf_str(out, "  ");
    show_all(out, file, strlen(file));
    buf_char(out, ':');
    show_all(out, gguf_name(g->gguf, t), t->name_len);
    buf_char(out, '\n');
}

static size_t line_size(const struct snapshot *g, enum derived what, uint32_t i)
{
    static const char hex[HASH_HEX];
    struct buf m = BUF_MEASURE;
    if (what == DERIVED_MOMENTS)
        return stats_line_size(g->gguf, &g->gguf->tensor[i]);
    hashes_line(g, i, hex, &m);
    return m.len;
}

static void part_free(struct snapshot_part *part)
{
    free(part);
}

_Static_assert((int)DERIVED_SHA256 < LINES_SLOTS && (int)DERIVED_MOMENTS < LINES_SLOTS, "slots");

const struct lines *lines_get(struct snapshot *g, enum derived what)
{
    struct snapshot_part *known = snapshot_part(g, what);
    if (known)
        return (const struct lines *)known;
    uint32_t n = g->gguf->n_tensors;
    struct lines *l = malloc(sizeof(*l) + n * sizeof(l->end[0]));
    struct buf m = BUF_MEASURE;
    if (!l)
        return NULL;
    if (what == DERIVED_MOMENTS)
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

/* Return the index of the first tensor whose line ends after `off`. */
static uint32_t line_at(const struct lines *l, uint32_t n, uint64_t off)
{
    return (uint32_t)upto_u64(l->end, 0, sizeof(l->end[0]), n, off);
}

void lines_range(const struct lines *l, const struct snapshot *g, uint64_t off, uint64_t end,
                 uint32_t *first, uint32_t *last)
{
    uint32_t n = g->gguf->n_tensors;
    *first = line_at(l, n, off);
    *last = end <= l->head ? *first : (uint32_t)min_u64(n, (uint64_t)line_at(l, n, end - 1) + 1);
}
