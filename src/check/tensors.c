/* SPDX-License-Identifier: MIT */
/* Rules about tensors: names, dimensions, types, blocks. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/count.h"
#include "base/utf8.h"
#include "model/facts.h"
#include "check/needs.h"

/* Lengths of names in bytes; ggml has room for 63 and a NUL. */
enum { NAME_SPEC = 64, NAME_GGML = 63, DIMS_SPEC = 4 };

static bool all_utf8(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    for (size_t i = 0, len; i < n; i += len)
        if ((len = utf8_len(p + i, n - i)) == 0)
            return false;
    return true;
}

static int rule_tensor_name(struct checker *c)
{
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        const char *name = gguf_name(c->g, t);
        (void)where_tensor(c->g, i, where);
        if (t->name_len > NAME_SPEC)
            report(c, CHECK_ERROR, where, "a name of %" PRIu32 " bytes, at most %d are allowed",
                   t->name_len, NAME_SPEC);
        else if (t->name_len > NAME_GGML)
            report(c, CHECK_WARNING, where, "a name of %" PRIu32 " bytes, ggml accepts at most %d",
                   t->name_len, NAME_GGML);
        if (t->name_len == 0)
            report(c, CHECK_WARNING, where, "the name is empty");
        if (memchr(name, 0, t->name_len))
            report(c, CHECK_WARNING, where, "a NUL in the name: ggml sees only what is before it");
        if (!all_utf8(name, t->name_len))
            report(c, CHECK_WARNING, where, "the name is not UTF-8");
    }
    return 0;
}

static int rule_tensor_dims(struct checker *c)
{
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_tensors; i++)
        if (c->g->tensor[i].n_dims > DIMS_SPEC)
            report(c, CHECK_ERROR, where_tensor(c->g, i, where),
                   "%" PRIu32 " dimensions, at most %d are allowed", c->g->tensor[i].n_dims,
                   DIMS_SPEC);
    return 0;
}

/* Types that a known fork has added. */
enum { FORK_FIRST = 97, FORK_LAST = 399 };

static int rule_tensor_type(struct checker *c)
{
    char where[WHERE_MAX];
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        const struct quant_type *type = gguf_type(t);
        if (!type && t->stored_id >= FORK_FIRST && t->stored_id <= FORK_LAST)
            report(c, CHECK_NOTE, where_tensor(c->g, i, where),
                   "type %" PRIu32 " is one of ik_llama.cpp: other readers refuse it",
                   t->stored_id);
        else if (!type)
            report(c, CHECK_ERROR, where_tensor(c->g, i, where), "type %" PRIu32 " is not known",
                   t->stored_id);
        else if (t->stored_id && t->name_len > 6 && memcmp(gguf_name(c->g, t), "rope_f", 6) == 0)
            report(c, CHECK_ERROR, where_tensor(c->g, i, where), "is %s, must be F32", type->name);
        else if (type->block_len == 0)
            report(c, CHECK_ERROR, where_tensor(c->g, i, where),
                   "type %" PRIu32 " (%s) is retired: readers refuse it", t->stored_id, type->name);
    }
    return 0;
}

static int rule_quantization(struct checker *c)
{
    char where[WHERE_MAX];
    uint64_t version;
    if (fact_uint(c->g, "general.quantization_version", &version))
        return 0;
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct quant_type *type = gguf_type(&c->g->tensor[i]);
        if (!type || type->block_len <= 1)
            continue;
        if (!fact_later_shard(c->g))
            report(c, CHECK_WARNING, where_tensor(c->g, i, where),
                   "is %s, without general.quantization_version", type->name);
        break;
    }
    return 0;
}

/* ---- blocks ---- */

/* Mark each block from `begin` on that has a tensor. Returns the highest block, UINT64_MAX: no blocks. */
static uint64_t mark_blocks(struct checker *c, uint64_t count, uint64_t begin, bool *seen,
                            uint64_t room)
{
    char where[WHERE_MAX];
    uint64_t n, last = UINT64_MAX;
    size_t rest;
    for (uint32_t i = 0; i < c->g->n_tensors; i++) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        if (!tensor_block(gguf_name(c->g, t), t->name_len, &n, &rest))
            continue;
        last = last == UINT64_MAX || n > last ? n : last;
        if (n >= count)
            report(c, CHECK_ERROR, where_tensor(c->g, i, where),
                   "belongs to block %" PRIu64 ", but block_count is %" PRIu64, n, count);
        if (n >= begin && n - begin < room)
            seen[n - begin] = true;
    }
    return last;
}

static int rule_blocks(struct checker *c)
{
    char where[WHERE_MAX];
    uint64_t count, missing = 0, first = 0, begin = needs_first_block(c->g);
    if (!fact_arch_uint(c->g, "block_count", &count) || c->g->n_tensors == 0)
        return 0;
    const uint64_t blocks = count - begin;
    uint64_t room = blocks < c->g->n_tensors ? blocks : c->g->n_tensors;
    bool *seen = calloc((size_t)room + 1, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
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
    (void)where_key(c->g, fact_arch_key(c->g, "block_count"), where);
    if (missing && last != UINT64_MAX && !fact_shard(c->g) && fact_is_model(c->g))
        report(c, CHECK_ERROR, where,
               "%" PRIu64 " of %" PRIu64 " blocks have no tensor, the first is blk.%" PRIu64,
               missing, count, first);
    return 0;
}

/* ---- names that the specification lists ---- */

static const char *const base_layers[] = {"token_embd", "pos_embd", "output_norm", "output"};
static const char *const block_layers[] = {
    "attn_norm",    "attn_norm_2",  "attn_qkv",   "attn_q",   "attn_k",     "attn_v",
    "attn_output",  "ffn_norm",     "ffn_up",     "ffn_gate", "ffn_down",   "ffn_gate_inp",
    "ffn_gate_exp", "ffn_down_exp", "ffn_up_exp", "ssm_in",   "ssm_conv1d", "ssm_x",
    "ssm_a",        "ssm_d",        "ssm_dt",     "ssm_out",
};

/* "LAYER.weight", "LAYER.bias"; state space models have matrices with neither. */
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

static int rule_known_name(struct checker *c)
{
    char where[WHERE_MAX];
    uint32_t n = 0, first = 0;
    for (uint32_t i = c->g->n_tensors; i-- > 0;) {
        const struct gguf_tensor *t = &c->g->tensor[i];
        if (!is_known(gguf_name(c->g, t), t->name_len)) {
            n++;
            first = i;
        }
    }
    if (n)
        report(c, CHECK_NOTE, where_tensor(c->g, first, where),
               n == 1 ? "the specification lacks it"
                      : "the specification lacks it, and %" PRIu32 " more",
               n - 1);
    return 0;
}

const struct rule tensors_rules[] = {
    {"tensor-name", rule_tensor_name, CHECK_FILE},
    {"tensor-dims", rule_tensor_dims, CHECK_FILE},
    {"tensor-type", rule_tensor_type, CHECK_FILE},
    {"quantization-version", rule_quantization, CHECK_WHOLE},
    {"blocks", rule_blocks, CHECK_WHOLE},
    {"tensor-known", rule_known_name, CHECK_WHOLE},
    {0},
};
