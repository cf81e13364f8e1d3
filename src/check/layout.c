/* SPDX-License-Identifier: MIT */
/* Rules about the container (version, alignment, location of the data, the bytes between tensors),
 * about tensors and about blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/err.h"
#include "check/needs.h"

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

/*
 * Return the first byte from `at` to `last` that is not in a hole of the file, or `last`. A sparse
 * file of a few blocks can claim exabytes of zeros between two tensors.
 */
static uint64_t skip_hole(const struct source *src, uint64_t at, uint64_t last)
{
    off_t data = src->fd < 0 ? (off_t)at : lseek(src->fd, (off_t)at, SEEK_DATA);
    /* ENXIO: only a hole is left; other errors: the file system does not report holes. */
    if (data < 0)
        return errno == ENXIO ? last : at;
    return min_u64((uint64_t)data, last);
}

/* Count whole pages, because the disk reads whole pages. Stretches come in file order. */
static bool may_read(struct checker *c, uint64_t first, uint64_t last)
{
    const uint64_t page = 4096;
    uint64_t from = max_u64(first / page, c->padding_page), upto = (last - 1) / page + 1;
    uint64_t cost = upto > from ? (upto - from) * page : 0;
    c->padding_cut |= c->padding_left < cost;
    if (c->padding_cut)
        return false;
    c->padding_left -= cost;
    c->padding_page = max_u64(upto, c->padding_page);
    return true;
}

/* Find the first nonzero byte, or `last` if all are zero or may_read() refuses the rest. */
static int find_nonzero(struct checker *c, uint64_t first, uint64_t last, uint64_t *ret)
{
    const struct source *src = c->m->src;
    uint8_t room[16384];
    *ret = last;
    for (size_t n; first < last; first += n) {
        if (last - first > sizeof(room))
            first = skip_hole(src, first, last);
        n = (size_t)min_u64(last - first, sizeof(room));
        if (n == 0 || !may_read(c, first, first + n))
            return 0;
        int r = src->read(src, first, room, n);
        if (r < 0)
            return r;
        for (size_t i = 0; i < n; i++)
            if (room[i]) {
                *ret = first + i;
                return 0;
            }
    }
    return 0;
}

static int zero(struct checker *c, uint64_t first, uint64_t last, const struct gguf_tensor *next)
{
    uint64_t at;
    (void)next;
    last = min_u64(last, c->g->file_size);
    if (first >= last)
        return 0;
    int r = find_nonzero(c, first, last, &at);
    if (r == 0 && at < last)
        report(c, CHECK_WARNING, at_bytes(c, first, last),
               "the padding is not all zero, first at byte %" PRIu64, at);
    return r;
}

static void rule_padding(struct checker *c)
{
    c->error = c->m->src ? each_stretch(c, zero) : 0;
    if (c->error == 0 && c->padding_cut)
        report(c, CHECK_NOTE, "padding", "only part of it was read; ggufs --check reads all of it");
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

/* Types added by the fork ik_llama.cpp. */
enum { FORK_FIRST = 97, FORK_LAST = 399 };

static void rule_tensor_type(struct checker *c, const struct gguf_tensor *t)
{
    const struct quant_type *type = gguf_type(t);
    if (!type && t->stored_id >= FORK_FIRST && t->stored_id <= FORK_LAST)
        report(c, CHECK_NOTE, at_tensor(c, c->at),
               "type %" PRIu32 " is specific to ik_llama.cpp: other readers refuse it",
               t->stored_id);
    else if (!type)
        report(c, CHECK_ERROR, at_tensor(c, c->at), "type %" PRIu32 " is not known", t->stored_id);
    else if (t->stored_id && t->name_len > 6 && memcmp(gguf_name(c->g, t), "rope_f", 6) == 0)
        report(c, CHECK_ERROR, at_tensor(c, c->at), "is %s, must be F32", type->name);
    else if (type->block_len == 0)
        report(c, CHECK_ERROR, at_tensor(c, c->at),
               "type %" PRIu32 " (%s) is retired: readers refuse it", t->stored_id, type->name);
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
        report(c, CHECK_ERROR, at_key(c, fact_arch_key(c->g, "block_count")),
               "%" PRIu64 " of %" PRIu64 " blocks %s no tensors; the first is blk.%" PRIu64,
               missing, count, missing == 1 ? "has" : "have", first);
}

/* ---- names that the specification lists ---- */

static const char *const base_layers[] = {"token_embd", "pos_embd", "output_norm", "output"};
static const char *const block_layers[] = {
    "attn_norm",    "attn_norm_2",  "attn_qkv",   "attn_q",   "attn_k",     "attn_v",
    "attn_output",  "ffn_norm",     "ffn_up",     "ffn_gate", "ffn_down",   "ffn_gate_inp",
    "ffn_gate_exp", "ffn_down_exp", "ffn_up_exp", "ssm_in",   "ssm_conv1d", "ssm_x",
    "ssm_a",        "ssm_d",        "ssm_dt",     "ssm_out",
};

/* "LAYER.weight" or "LAYER.bias"; state space models have matrices with neither suffix. */
static bool is_layer(const char *name, size_t n, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(list[i]);
        struct text end = {name + len, n - len};
        if (n < len || memcmp(name, list[i], len) != 0)
            continue;
        if (text_is(end, ".weight") || text_is(end, ".bias") ||
            (end.len == 0 && strncmp(list[i], "ssm_", 4) == 0))
            return true;
    }
    return false;
}

static bool is_known(const char *name, size_t n)
{
    uint64_t block;
    size_t rest;
    if (tensor_block(name, n, &block, &rest))
        return is_layer(name + rest, n - rest, block_layers, COUNT(block_layers));
    return is_layer(name, n, base_layers, COUNT(base_layers));
}

static void rule_known_name(struct checker *c)
{
    uint32_t n = 0, first = 0;
    for (uint32_t i = c->g->n_tensors; i-- > 0;) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        if (!is_known(gguf_name(c->g, t), t->name_len)) {
            n++;
            first = i;
        }
    }
    if (n)
        report(c, CHECK_NOTE, at_tensor(c, first),
               n == 1 ? "not in the specification"
                      : "not in the specification; %" PRIu32 " more like it",
               n - 1);
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
    {"tensor-type", CHECK_FILE, .tensor = rule_tensor_type},
    {"quantization-version", CHECK_WHOLE, .whole = rule_quantization},
    {"blocks", CHECK_WHOLE, .whole = rule_blocks},
    {"tensor-known", CHECK_WHOLE, .whole = rule_known_name},
    {0},
};
