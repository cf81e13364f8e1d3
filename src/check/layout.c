/* SPDX-License-Identifier: MIT */
/* Rules about the container (version, alignment, location of the data, the bytes between tensors),
 * about tensors and about blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "check/needs.h"
#include "quant/types.h"

static void rule_missing(struct checker *c)
{
    const struct gguf *g = c->g;
    if (g->anomalies & GGUF_ANOMALY_PARTIAL && !c->m->faults_reported)
        report(c, CHECK_ERROR, "end of file", "%" PRIu64 " bytes of data are missing",
               g->data_end - g->file_size);
}

static void rule_version(struct checker *c)
{
    const struct gguf_format *f = &c->g->fmt;
    if (f->version == 1)
        report(c, CHECK_WARNING, "version", "version 1%s: current readers refuse it",
               f->draft ? " as first drafted" : "");
    if (f->nul)
        report(c, CHECK_WARNING, "strings", "every string's length counts a trailing NUL");
    if (f->big)
        report(c, CHECK_NOTE, "version", "big-endian");
}

static void rule_alignment(struct checker *c)
{
    if (c->g->alignment % 8)
        report(c, CHECK_WARNING, "key 'general.alignment'", "must be a multiple of 8, is %" PRIu64,
               c->g->alignment);
}

static void rule_order(struct checker *c)
{
    if (c->g->anomalies & GGUF_ANOMALY_ORDER)
        report(c, CHECK_ERROR, "data section",
               "tensor data is not in the order of the tensor infos: ggml refuses it");
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a, *const *y = b;
    if ((*x)->off != (*y)->off)
        return (*x)->off < (*y)->off ? -1 : 1;
    return *x < *y ? -1 : 1;
}

/* Return the tensors that have data, in the order of their data, or NULL if memory runs out. The
 * caller frees the list. */
static const struct gguf_tensor **sorted(const struct gguf *g, size_t *n)
{
    const struct gguf_tensor **list = malloc(((size_t)g->n_tensors + 1) * sizeof(*list));
    *n = 0;
    for (uint32_t i = 0; list && i < g->n_tensors; i++)
        if (g->tensor[i].nbytes)
            list[(*n)++] = &g->tensor[i];
    if (list)
        qsort((void *)list, *n, sizeof(*list), by_offset);
    return list;
}

/* Called for each stretch between the header, the tensors' data and the end of the file. */
typedef int stretch_fn(struct checker *c, uint64_t first, uint64_t last,
                       const struct gguf_tensor *next);

static int each_stretch(struct checker *c, stretch_fn *fn)
{
    const struct gguf *g = c->g;
    size_t n;
    const struct gguf_tensor **list = sorted(g, &n);
    uint64_t at = g->head_len, end = g->file_size, padded;
    int r = list ? 0 : -ENOMEM;
    for (size_t i = 0; i < n && r == 0; i++) {
        if (list[i]->off > at)
            r = fn(c, at, list[i]->off, list[i]);
        at = max_u64(at, list[i]->off + list[i]->nbytes);
    }
    if (align_u64(at, g->alignment, &padded) && r == 0 && at < end)
        r = fn(c, at, min_u64(padded, end), NULL);
    free((void *)list);
    return r;
}

static int gap(struct checker *c, uint64_t first, uint64_t last, const struct gguf_tensor *next)
{
    uint64_t padded;
    if (next && align_u64(first, c->g->alignment, &padded) && last > padded)
        report(c, CHECK_ERROR, at_tensor(c, (uint32_t)(next - c->g->tensor)),
               "begins at byte %" PRIu64 ", %" PRIu64 " bytes late: ggml refuses gaps", last,
               last - padded);
    return 0;
}

static void rule_gaps(struct checker *c)
{
    c->error = each_stretch(c, gap);
}

static void rule_tail(struct checker *c)
{
    if (c->g->anomalies & GGUF_ANOMALY_NO_TAIL && !(c->g->anomalies & GGUF_ANOMALY_PARTIAL))
        report(c, CHECK_WARNING, "end of file",
               "the padding after the last tensor is missing: some readers require it");
}

static void rule_trailing(struct checker *c)
{
    const struct gguf *g = c->g;
    uint64_t padded;
    if (g->anomalies & GGUF_ANOMALY_TRAILING && align_u64(g->data_end, g->alignment, &padded))
        report(c, CHECK_WARNING, at_bytes(c, padded, g->file_size),
               "%" PRIu64 " extra byte%s after the data", g->file_size - padded,
               g->file_size - padded == 1 ? "" : "s");
}

static int zero(struct checker *c, uint64_t first, uint64_t last, const struct gguf_tensor *next)
{
    uint8_t room[16384];
    (void)next;
    last = min_u64(last, c->g->file_size);
    for (uint64_t at = first, n; at < last && c->padding_left; at += n) {
        n = min_u64(min_u64(last - at, sizeof(room)), c->padding_left);
        c->padding_left -= n;
        int r = c->m->src->read(c->m->src, at, room, (size_t)n);
        if (r < 0)
            return r;
        if (!is_zero(room, (size_t)n)) {
            report(c, CHECK_WARNING, at_bytes(c, first, last), "the padding is not all zero");
            return 0;
        }
    }
    return 0;
}

/* A sparse file of a few blocks can claim exabytes of zeros between two tensors, and `ls -l` waits for
 * the findings, perhaps over a slow network. */
#define PADDING_MOST ((uint64_t)16 << 20)

static void rule_padding(struct checker *c)
{
    c->padding_left = PADDING_MOST;
    c->error = c->m->src ? each_stretch(c, zero) : 0;
    if (c->padding_left == 0)
        report(c, CHECK_NOTE, "padding", "only part of it was read");
}

/* ---- tensors ---- */

/* Limits on the length of a name in bytes and on the number of dimensions; ggml has room for 63
 * bytes and a NUL. */
enum { NAME_SPEC = 64, NAME_GGML = 63, DIMS_SPEC = 4 };

static void rule_tensor_name(struct checker *c, const struct gguf_tensor *t)
{
    const char *name = gguf_name(c->g, t);
    if (t->name_len > NAME_SPEC)
        report(c, CHECK_ERROR, at_tensor(c, c->at),
               "the name is %" PRIu32 " bytes long; at most %d are allowed", t->name_len,
               NAME_SPEC);
    else if (t->name_len > NAME_GGML)
        report(c, CHECK_WARNING, at_tensor(c, c->at),
               "the name is %" PRIu32 " bytes long; ggml accepts at most %d", t->name_len,
               NAME_GGML);
    if (t->name_len == 0)
        report(c, CHECK_WARNING, at_tensor(c, c->at), "the name is empty");
    if (memchr(name, 0, t->name_len))
        report(c, CHECK_WARNING, at_tensor(c, c->at),
               "the name contains a NUL: ggml sees only what precedes it");
    if (utf8_run(name, t->name_len) < t->name_len)
        report(c, CHECK_WARNING, at_tensor(c, c->at), "the name is not UTF-8");
}

static void rule_tensor_dims(struct checker *c, const struct gguf_tensor *t)
{
    if (t->n_dims > DIMS_SPEC)
        report(c, CHECK_ERROR, at_tensor(c, c->at),
               "has %" PRIu32 " dimensions; at most %d are allowed", t->n_dims, DIMS_SPEC);
}

/* Types of forks. ik_llama.cpp has those from FORK_FIRST to FORK_LAST that no row names; one over 200
 * has the rows of the type 200 below it interleaved. */
enum { FORK_FIRST = 97, FORK_LAST = 399, FORK_ROWS = 200 };

static const struct {
    uint8_t id;
    const char *name;
} forked[] = {
    {133, "Q6_0"},   {134, "IQ1_BN"}, {135, "IQ2_BN"},  {137, "IQ2_K"},  {138, "IQ3_K"},
    {139, "IQ4_K"},  {140, "IQ5_K"},  {141, "IQ6_K"},   {142, "PQ2_0"},  {143, "PTQ1_0"},
    {144, "IQ4_KS"}, {145, "IQ2_KS"}, {146, "IQ4_KSS"}, {152, "IQ5_KS"}, {153, "IQ2_KT"},
    {154, "IQ3_KT"}, {155, "IQ4_KT"}, {156, "IQ3_KS"},  {157, "IQ2_KL"}, {158, "IQ1_KT"},
};

/* Write "IQ4_KS" or "Q4_K with interleaved rows", or "a type of a fork" if its name is unknown. */
static void fork_name(uint32_t id, char dst[64])
{
    const bool rows = id > FORK_ROWS;
    const uint32_t base = rows ? id - FORK_ROWS : id;
    const struct quant_type *type = rows ? quant_find(base) : NULL;
    const char *name = type && type->block_len ? type->name : NULL;
    for (size_t i = 0; i < COUNT(forked); i++)
        name = forked[i].id == base ? forked[i].name : name;
    if (name)
        (void)snprintf(dst, 64, "%s%s", name, rows ? " with interleaved rows" : "");
    else
        (void)snprintf(dst, 64, "a type of a fork");
}

/* Report each unknown or retired type once. */
static void rule_tensor_type(struct checker *c)
{
    struct share share[SHARES_MAX];
    const size_t n = fact_shares(c->g, share);
    char name[64], many[32];
    for (size_t i = 0; i < n; i++) {
        const struct quant_type *type = gguf_type(share[i].first);
        const uint32_t id = share[i].id;
        const char *where = at_tensor(c, (uint32_t)(share[i].first - c->g->tensor));
        if (type && type->block_len)
            continue;
        (void)snprintf(many, sizeof(many), " (%" PRIu64 " tensors)", share[i].tensors);
        if (share[i].tensors == 1)
            many[0] = '\0';
        fork_name(id, name);
        if (type)
            report(c, CHECK_ERROR, where, "type %" PRIu32 " (%s) is retired: readers refuse it%s",
                   id, type->name, many);
        else if (id < FORK_FIRST || id > FORK_LAST)
            report(c, CHECK_ERROR, where, "type %" PRIu32 " is not known%s", id, many);
        else
            report(c, CHECK_NOTE, where, "is %s (type %" PRIu32 "), which only %s reads%s", name,
                   id, id == 142 || id == 143 ? "PrismML's llama.cpp" : "ik_llama.cpp", many);
    }
}

/*
 * llama.cpp multiplies and adds norms, biases and the like only as F32. It loads others, and aborts
 * at the first token.
 */
static void rule_plain(struct checker *c, const struct gguf_tensor *t)
{
    const struct text name = gguf_name_of(c->g, false, c->at);
    const struct quant_type *type = gguf_type(t);
    if (!type || !type->block_len || t->type_id == F32_ID)
        return;
    const bool rope = text_begins(name, "rope_f");
    if (!rope && !text_ends(name, ".bias") && !text_ends(name, ".ssm_a") &&
        !text_ends(name, ".ssm_d") && !memmem(name.at, name.len, "norm", 4) &&
        !memmem(name.at, name.len, "_mix_ln", 7))
        return;
    if (!fact_is_model(c->g))
        return;
    report(c, rope || type->block_len > 1 ? CHECK_ERROR : CHECK_WARNING, at_tensor(c, c->at),
           "is %s, but llama.cpp needs F32", type->name);
}

static void rule_quantization(struct checker *c)
{
    uint64_t version;
    if (fact_uint(c->g, "general.quantization_version", &version))
        return;
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct quant_type *type = gguf_type(&c->g->tensor[i]);
        if (!type || type->block_len <= 1)
            continue;
        if (!fact_later_shard(c->g))
            report(c, CHECK_WARNING, at_tensor(c, i),
                   "is %s, but general.quantization_version is missing", type->name);
        break;
    }
}

/* ---- blocks ---- */

/* Starting at block `begin`, mark each block that has a tensor. Returns the highest such block,
 * or UINT64_MAX if there is none. */
static uint64_t mark_blocks(struct checker *c, uint64_t count, uint64_t begin, bool *seen,
                            uint64_t room)
{
    uint64_t n, last = UINT64_MAX;
    size_t rest;
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        if (!tensor_block(gguf_name(c->g, t), t->name_len, &n, &rest))
            continue;
        last = last == UINT64_MAX || n > last ? n : last;
        if (n >= count)
            report(c, CHECK_ERROR, at_tensor(c, i),
                   "belongs to block %" PRIu64 ", but block_count is %" PRIu64, n, count);
        if (n >= begin && n - begin < room)
            seen[n - begin] = true;
    }
    return last;
}

static void rule_blocks(struct checker *c)
{
    uint64_t count, missing = 0, first = 0, begin = needs_first_block(c->g);
    if (!fact_arch_uint(c->g, "block_count", &count) || c->g->n_tensors == 0)
        return;
    const uint64_t blocks = count - begin;
    uint64_t room = blocks < c->g->n_tensors ? blocks : c->g->n_tensors;
    bool *seen = calloc((size_t)room + 1, sizeof(*seen));
    c->error = seen ? 0 : -ENOMEM;
    if (!seen)
        return;
    uint64_t last = mark_blocks(c, count, begin, seen, room);
    for (uint64_t i = room; i-- > 0;)
        if (!seen[i]) {
            missing++;
            first = begin + i;
        }
    free(seen);
    if (missing == 0 && blocks > room) /* more blocks than tensors */
        first = begin + room;
    missing += blocks - room;
    if (missing && last != UINT64_MAX && !fact_shard(c->g) && fact_is_model(c->g))
        report(c, needs_ahead(c, first) ? CHECK_WARNING : CHECK_ERROR,
               at_key(c, fact_arch_key(c->g, "block_count")),
               "%" PRIu64 " of %" PRIu64 " blocks %s no tensors; the first is blk.%" PRIu64,
               missing, count, missing == 1 ? "has" : "have", first);
}

const struct rule layout_rules[] = {
    {"missing", CHECK_FILE, .whole = rule_missing},
    {"version", CHECK_FILE, .whole = rule_version},
    {"alignment", CHECK_FILE, .whole = rule_alignment},
    {"order", CHECK_FILE, .whole = rule_order},
    {"gaps", CHECK_FILE, .whole = rule_gaps},
    {"tail", CHECK_FILE, .whole = rule_tail},
    {"trailing", CHECK_FILE, .whole = rule_trailing},
    {"padding", CHECK_FILE, .whole = rule_padding},
    {"tensor-name", CHECK_FILE, .tensor = rule_tensor_name},
    {"tensor-dims", CHECK_FILE, .tensor = rule_tensor_dims},
    {"tensor-type", CHECK_FILE, .whole = rule_tensor_type},
    {"tensor-plain", CHECK_FILE, .tensor = rule_plain},
    {"quantization-version", CHECK_WHOLE, .whole = rule_quantization},
    {"blocks", CHECK_WHOLE, .whole = rule_blocks},
    {0},
};
