/* SPDX-License-Identifier: MIT */
/* Builds models for the tests of rules: see check_rows.h. */
#include "check_rows.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, TOKENS = 4, WIDTH = 32, INNER = 2, NO_SUCH = 9999 };

/* ---- the good model ---- */

static void put_vocabulary(struct build *b)
{
    build_array(b, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_str(b, (const char *[]){"<unk>", "<s>", "</s>", "a"}[i]);
}

static void put_rms(struct build *b)
{
    build_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

/* Keys in the order in which they are added. A value of 0 is set by the function below. */
static const struct {
    const char *key;
    const char *text;
    uint32_t number;
    void (*put)(struct build *b);
} good_keys[] = {
    {"general.architecture", "llama", 0, NULL},
    {"general.name", "Tiny", 0, NULL},
    {"general.version", "1.0", 0, NULL},
    {"general.file_type", NULL, 2, NULL},
    {"general.quantization_version", NULL, 2, NULL},
    {"llama.context_length", NULL, 64, NULL},
    {"llama.embedding_length", NULL, WIDTH, NULL},
    {"llama.block_count", NULL, 1, NULL},
    {"llama.feed_forward_length", NULL, INNER, NULL},
    {"llama.rope.dimension_count", NULL, 8, NULL},
    {"llama.attention.head_count", NULL, 4, NULL},
    {"llama.attention.head_count_kv", NULL, 2, NULL},
    {"llama.attention.layer_norm_rms_epsilon", NULL, 0, put_rms},
    {"tokenizer.ggml.model", "llama", 0, NULL},
    {"tokenizer.ggml.tokens", NULL, 0, put_vocabulary},
    {"tokenizer.ggml.bos_token_id", NULL, 1, NULL},
};

void check_put_keys(struct build *b, const char *without)
{
    for (size_t i = 0; i < sizeof(good_keys) / sizeof(good_keys[0]); i++) {
        if (without && strcmp(good_keys[i].key, without) == 0)
            continue;
        if (good_keys[i].put)
            good_keys[i].put(b);
        else if (good_keys[i].text)
            build_str(b, good_keys[i].key, good_keys[i].text);
        else
            build_u32(b, good_keys[i].key, good_keys[i].number);
    }
}

/* Data that is not zero, and finite in the types used here. */
static const uint8_t *some_data(void)
{
    static uint8_t data[4 * WIDTH * WIDTH];
    memset(data, 0x3f, sizeof(data));
    return data;
}

static void put_f32(struct build *b, const char *without, const char *name, uint64_t x, uint64_t y)
{
    if (!without || strcmp(name, without) != 0)
        build_tensor(b, name, F32, (uint64_t[]){x, y}, y ? 2 : 1, some_data(), 4 * x * (y ? y : 1));
}

static void put_block(struct build *b, const char *without, int number)
{
    static const struct {
        const char *name;
        uint64_t x, y;
    } rows[] = {
        {"attn_norm", WIDTH, 0},  {"attn_k", WIDTH, WIDTH / 2},  {"attn_v", WIDTH, WIDTH / 2},
        {"ffn_norm", WIDTH, 0},   {"attn_output", WIDTH, WIDTH}, {"ffn_gate", WIDTH, INNER},
        {"ffn_up", WIDTH, INNER}, {"ffn_down", INNER, WIDTH},
    };
    char name[64];
    (void)snprintf(name, sizeof(name), "blk.%d.attn_q.weight", number);
    build_tensor(b, name, Q4_0, (uint64_t[]){WIDTH, WIDTH}, 2, some_data(), 18 * WIDTH);
    for (size_t i = 0; i < COUNT(rows); i++) {
        (void)snprintf(name, sizeof(name), "blk.%d.%s.weight", number, rows[i].name);
        put_f32(b, without, name, rows[i].x, rows[i].y);
    }
}

void check_put_tensors(struct build *b, const char *without)
{
    put_f32(b, without, "token_embd.weight", WIDTH, TOKENS);
    put_f32(b, without, "output_norm.weight", WIDTH, 0);
    put_block(b, without, 0);
}

/* ---- models that break a rule ---- */

static void small_tensor(struct build *b, const char *name)
{
    build_tensor(b, name, F32, (uint64_t[]){3}, 1, NULL, 12);
}

static void trailing(struct build *b)
{
    buf_zero(&b->data, 32);
}

static void no_tail(struct build *b)
{
    small_tensor(b, "d2t");
    b->no_tail = true;
}

static void dirty(struct build *b)
{
    small_tensor(b, "d2t");
    b->pad_byte = 1;
}

static void align_4(struct build *b)
{
    b->alignment = 4;
    build_u32(b, "general.alignment", 4);
}

/* Number of data bytes in the valid model. */
enum { DATA = 10432 };

static void gap(struct build *b)
{
    build_tensor_at(b, "d2t", F32, (uint64_t[]){8}, 1, DATA + 960, NULL, 32);
}

static void swapped(struct build *b)
{
    build_tensor_at(b, "d2t", F32, (uint64_t[]){8}, 1, DATA + 32, NULL, 32);
    build_tensor_at(b, "d2t.weight", F32, (uint64_t[]){8}, 1, DATA, NULL, 32);
}

/* Add a tensor whose name is n bytes long and, but for its length, known. */
static void put_named(struct build *b, size_t n)
{
    static const char end[] = ".attn_norm.bias";
    char name[96] = "blk.";
    memset(name + 4, '0', n - 4 - strlen(end));
    (void)strcpy(name + n - strlen(end), end);
    small_tensor(b, name);
}

static void long_name(struct build *b)
{
    put_named(b, 65);
}

static void ggml_name(struct build *b)
{
    put_named(b, 64);
}

static void five_dims(struct build *b)
{
    build_tensor(b, "d2t", F32, (uint64_t[]){3, 1, 1, 1, 1}, 5, NULL, 12);
}

static void unknown_type(struct build *b)
{
    build_tensor(b, "d2t", NO_SUCH, (uint64_t[]){3}, 1, NULL, 32);
}

static void forked_type(struct build *b)
{
    build_tensor(b, "d2t", 137, (uint64_t[]){3}, 1, NULL, 32);
}

static void gone_type(struct build *b)
{
    build_tensor(b, "d2t", 4, (uint64_t[]){32}, 1, NULL, 32);
}

static void upper_key(struct build *b)
{
    build_u32(b, "my.Key", 1);
}

static void no_key(struct build *b)
{
    build_u32(b, "my..key", 1);
}

static void wrong_type(struct build *b)
{
    build_u32(b, "general.license", 1);
}

static void wide_count(struct build *b)
{
    build_num(b, "llama.context_length", GGUF_U64, 64);
}

/* llama.cpp does not read them for this architecture. */
static void unread_keys(struct build *b)
{
    build_num(b, "llama.ssm.inner_size", GGUF_U64, 5);
    build_u32(b, "llama.full_attention_interval", 0);
    build_array(b, "llama.attention.recurrent_layers", GGUF_BOOL, 2);
    build_item_num(b, GGUF_BOOL, 0);
    build_item_num(b, GGUF_BOOL, 0);
}

static void wide_number(struct build *b)
{
    build_num(b, "general.file_type", GGUF_U64, 2);
}

static void not_utf8(struct build *b)
{
    build_str(b, "general.description", "\xff");
}

static void odd_bool(struct build *b)
{
    build_raw(b, "my.flag", strlen("my.flag"), GGUF_BOOL, "\2", 1);
}

static void nested(struct build *b)
{
    build_array(b, "my.list", GGUF_ARRAY, 1);
    build_item_array(b, GGUF_U8, 0);
}

static void matrix(struct build *b)
{
    build_str(b, "general.type", "imatrix");
}

static void odd_architecture(struct build *b)
{
    build_str(b, "general.architecture", "Llama 2");
}

static void dash_architecture(struct build *b)
{
    build_str(b, "general.architecture", "llama-x");
    build_u32(b, "llama-x.block_count", 1);
}

static void half_split(struct build *b)
{
    build_num(b, "split.no", GGUF_U16, 0);
}

static void far_split(struct build *b)
{
    build_num(b, "split.no", GGUF_U16, 1);
    build_num(b, "split.count", GGUF_U16, 1);
}

static void few_scores(struct build *b)
{
    build_array(b, "tokenizer.ggml.scores", GGUF_F32, TOKENS - 1);
    for (int i = 0; i < TOKENS - 1; i++)
        build_item_num(b, GGUF_F32, 0);
}

static void put_token_types(struct build *b, uint32_t last)
{
    build_array(b, "tokenizer.ggml.token_type", GGUF_I32, TOKENS);
    for (int i = 0; i < TOKENS - 1; i++)
        build_item_num(b, GGUF_I32, 1);
    build_item_num(b, GGUF_I32, last);
}

static void token_types(struct build *b)
{
    put_token_types(b, 6);
}

static void odd_token_type(struct build *b)
{
    put_token_types(b, 7);
}

static void last_token(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", TOKENS - 1);
}

static void absent_token(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", UINT32_MAX);
}

static void far_token(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", TOKENS);
}

static void other_vocabulary(struct build *b)
{
    build_u32(b, "llama.vocab_size", TOKENS + 1);
}

static void output_of(struct build *b, uint64_t rows)
{
    put_f32(b, NULL, "output.weight", WIDTH, rows);
}

static void short_output(struct build *b)
{
    output_of(b, TOKENS - 1);
}

static void whole_output(struct build *b)
{
    output_of(b, TOKENS);
}

static void six_heads(struct build *b)
{
    build_u32(b, "llama.attention.head_count", 6);
}

static void six_long_heads(struct build *b)
{
    six_heads(b);
    build_u32(b, "llama.attention.key_length", 8);
}

static void three_kv_heads(struct build *b)
{
    build_u32(b, "llama.attention.head_count_kv", 3);
}

static void put_lengths(struct build *b, uint32_t n)
{
    build_array(b, "llama.feed_forward_length", GGUF_I32, n);
    for (uint32_t i = 0; i < n; i++)
        build_item_num(b, GGUF_I32, INNER);
}

static void one_length(struct build *b)
{
    put_lengths(b, 1);
}

static void two_lengths(struct build *b)
{
    put_lengths(b, 2);
}

static void two_blocks(struct build *b)
{
    build_u32(b, "llama.block_count", 2);
}

static void many_blocks(struct build *b)
{
    build_u32(b, "llama.block_count", UINT32_MAX);
}

static void second_block(struct build *b)
{
    put_block(b, NULL, 1);
}

static void own_name(struct build *b)
{
    put_f32(b, NULL, "mm.0.weight", 4, 0);
}

static void slip_name(struct build *b)
{
    put_f32(b, NULL, "blk.0.attn_qq.weight", 4, 0);
}

static void rope_freqs(struct build *b)
{
    put_f32(b, NULL, "rope_freqs.weight", 4, 0);
}

static void short_bias(struct build *b)
{
    build_tensor(b, "blk.0.attn_q.bias", Q4_0, (uint64_t[]){WIDTH}, 1, NULL, 18);
}

static void half_norm(struct build *b)
{
    build_tensor(b, "blk.0.attn_norm.weight", F16, (uint64_t[]){WIDTH}, 1, NULL, 2 * WIDTH);
}

static void block_norm(struct build *b)
{
    build_tensor(b, "output_norm.weight", Q4_0, (uint64_t[]){WIDTH}, 1, NULL, 18);
}

static void unlike_key(struct build *b)
{
    build_u32(b, "general.nmae", 1);
    build_u32(b, "llama.contxt_length", 4096);
}

static void own_key(struct build *b)
{
    build_u32(b, "llama.my_number", 1);
    build_u32(b, "my.contxt_length", 1);
}

static void other_length(struct build *b)
{
    build_array(b, "llama.feed_forward_length", GGUF_I64, 1);
    build_item_num(b, GGUF_I64, INNER);
}

static void empty_tokens(struct build *b)
{
    build_array(b, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_str(b, (const char *[]){"", "a", "", "b"}[i]);
}

static void no_attention(struct build *b)
{
    build_str(b, "general.architecture", "mamba");
    build_u32(b, "mamba.context_length", 64);
    build_u32(b, "mamba.embedding_length", WIDTH);
    build_u32(b, "mamba.block_count", 1);
    build_u32(b, "mamba.attention.head_count", 6);
    build_u32(b, "mamba.attention.head_count_kv", 4);
    build_f32(b, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    build_u32(b, "mamba.ssm.conv_kernel", 4);
    build_u32(b, "mamba.ssm.inner_size", WIDTH);
    build_u32(b, "mamba.ssm.state_size", 8);
    build_u32(b, "mamba.ssm.time_step_rank", 8);
}

static void told_type(struct build *b, uint32_t type)
{
    build_u32(b, "general.file_type", type);
}

/* The embeddings are F32, but most bytes are not. */
static void told_f32(struct build *b)
{
    told_type(b, 0);
    build_tensor(b, "d2t.weight", Q4_0, (uint64_t[]){WIDTH, WIDTH * WIDTH}, 2, NULL,
                 18 * WIDTH * WIDTH);
}

static void told_q8(struct build *b)
{
    told_type(b, 7);
}

/* Rows of 32 values have no whole block of Q6_K, so another type takes its place. */
static void told_q6_k(struct build *b)
{
    told_type(b, 18);
}

static void wrong_label(struct build *b)
{
    build_str(b, "general.size_label", "7B");
}

static void right_label(struct build *b)
{
    build_str(b, "general.size_label", "3.5K");
}

static void put_template(struct build *b, const char *text)
{
    build_str(b, "tokenizer.chat_template.tool_use", text);
}

static void whole_template(struct build *b)
{
    put_template(b,
                 "{# '%} #}{%- for m in messages %}{% set x = '{{ %}' %}{% set y %}{{ m['a}}'] }}"
                 "{% endset -%}{% if m %}<s>{{ '<|' + m + '|>' }}{% endif %}{% endfor %}");
}

static void open_template(struct build *b)
{
    put_template(b, "{% if x %}{{ x }");
}

static void endless_template(struct build *b)
{
    put_template(b, "{% for m in messages %}{{ m }}");
}

static void crossed_template(struct build *b)
{
    put_template(b, "{% for m in messages %}{{ m }}{% endif %}");
}

static void other_template(struct build *b)
{
    put_template(b, "{{ '<|im_end|>' }}");
}

static void silent_template(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", 2);
    put_template(b, "{% for m in messages %}{{ m['content'] }}{% endfor %}");
}

static void ended_template(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", 2); /* </s> */
    put_template(b, "{{ messages[0]['content'] + '</s>' }}");
}

static void other_tokenizer(struct build *b)
{
    build_str(b, "tokenizer.ggml.model", "foo");
}

static void put_bpe(struct build *b, const char *pre)
{
    build_str(b, "tokenizer.ggml.model", "gpt2");
    build_str(b, "tokenizer.ggml.pre", pre);
}

static void no_merges(struct build *b)
{
    put_bpe(b, "llama-bpe");
}

static void put_merges(struct build *b)
{
    build_array(b, "tokenizer.ggml.merges", GGUF_STRING, 1);
    build_item_str(b, "a b");
}

static void newline_merges(struct build *b)
{
    build_array(b, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_str(b, (const char *[]){"<unk>", "<s>", "</s>", "<0x0A>"}[i]);
    put_merges(b);
}

static void with_merges(struct build *b)
{
    no_merges(b);
    put_merges(b);
}

static void other_pre(struct build *b)
{
    put_bpe(b, "foo");
    put_merges(b);
}

static void same_tokens(struct build *b)
{
    build_array(b, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_str(b, (const char *[]){"<unk>", "a", "</s>", "a"}[i]);
}

static void wide_embedding(struct build *b)
{
    build_u32(b, "llama.embedding_length", 2 * WIDTH);
    build_u32(b, "llama.attention.key_length", 8);
    build_u32(b, "llama.attention.value_length", 8);
}

static void no_scaling(struct build *b)
{
    build_str(b, "llama.rope.scaling.type", "foo");
}

static void yarn(struct build *b)
{
    build_str(b, "llama.rope.scaling.type", "yarn");
}

static void few_experts(struct build *b)
{
    build_u32(b, "llama.expert_used_count", 2);
}

static void untold_experts(struct build *b)
{
    build_u32(b, "llama.expert_count", 2);
}

static void no_expert(struct build *b)
{
    build_u32(b, "llama.expert_count", 2);
    build_u32(b, "llama.expert_used_count", 0);
}

static void put_sections(struct build *b, uint32_t type, uint64_t n)
{
    build_str(b, "general.architecture", "qwen2vl");
    build_u32(b, "qwen2vl.context_length", 64);
    build_u32(b, "qwen2vl.embedding_length", WIDTH);
    build_u32(b, "qwen2vl.block_count", 1);
    build_u32(b, "qwen2vl.feed_forward_length", INNER);
    build_u32(b, "qwen2vl.attention.head_count", 4);
    build_f32(b, "qwen2vl.attention.layer_norm_rms_epsilon", 1e-5f);
    build_array(b, "qwen2vl.rope.dimension_sections", type, n);
    for (uint64_t i = 0; i < n; i++)
        build_item_num(b, type, 2);
}

static void three_sections(struct build *b)
{
    put_sections(b, GGUF_I32, 3);
}

static void four_sections(struct build *b)
{
    put_sections(b, GGUF_I32, 4);
}

static void unsigned_sections(struct build *b)
{
    put_sections(b, GGUF_U32, 4);
}

static void wide_sections(struct build *b)
{
    put_sections(b, GGUF_I64, 4);
}

static void half_turned(struct build *b)
{
    build_u32(b, "llama.rope.dimension_count", 4);
}

static void signed_counts(struct build *b)
{
    build_num(b, "quantize.imatrix.entries_count", GGUF_I32, 1);
    build_num(b, "quantize.imatrix.chunks_count", GGUF_U32, 1);
}

static void other_version(struct build *b)
{
    build_str(b, "general.version", "v2.0");
}

static void first_of_two(struct build *b)
{
    build_num(b, "split.no", GGUF_U16, 0);
    build_num(b, "split.count", GGUF_U16, 2);
}

static void first_with_total(struct build *b)
{
    first_of_two(b);
    build_num(b, "split.tensors.count", GGUF_I32, 4);
}

static void part_of_two(struct build *b)
{
    build_num(b, "split.no", GGUF_U16, 1);
    build_num(b, "split.count", GGUF_U16, 2);
}

/* ---- models that narrowly keep a rule ---- */

static void align_64(struct build *b)
{
    b->alignment = 64;
    build_u32(b, "general.alignment", 64);
}

static void padded(struct build *b)
{
    small_tensor(b, "d2t");
    small_tensor(b, "d2t.weight");
}

static void longest_name(struct build *b)
{
    put_named(b, 63);
}

static void four_dims(struct build *b)
{
    build_tensor(b, "d2t", F32, (uint64_t[]){3, 1, 1, 1}, 4, NULL, 12);
}

static void last_type(struct build *b)
{
    build_tensor(b, "d2t", 42, (uint64_t[]){64}, 1, NULL, 18); /* Q2_0 */
}

static void snake_key(struct build *b)
{
    build_u32(b, "my_2.key_3", 1);
}

static void utf8(struct build *b)
{
    build_str(b, "general.description", "\xc3\xbc \xf0\x9f\x98\x80");
}

static void plain_bool(struct build *b)
{
    build_raw(b, "my.flag", strlen("my.flag"), GGUF_BOOL, "\1", 1);
}

static void flat(struct build *b)
{
    build_array(b, "my.list", GGUF_U8, 1);
    build_item_num(b, GGUF_U8, 1);
}

static void all_scores(struct build *b)
{
    build_array(b, "tokenizer.ggml.scores", GGUF_F32, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_num(b, GGUF_F32, 0);
}

static void same_vocabulary(struct build *b)
{
    build_u32(b, "llama.vocab_size", TOKENS);
}

static void two_kv_heads(struct build *b)
{
    build_u32(b, "llama.attention.head_count_kv", 2);
}

static void both_blocks(struct build *b)
{
    two_blocks(b);
    second_block(b);
}

/* ---- the table ---- */

/* A file name that says nothing about the model. */
#define HASH "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// clang-format off
const struct check_row check_rows[] = {
    {.keeps = " missing version order trailing tail key-type architecture required"
              " quantization-version tensor-missing "},
    {.keeps = " alignment ", .add = align_64},
    {.keeps = " gaps padding ", .add = padded},
    {.keeps = " tensor-name ", .add = longest_name},
    {.keeps = " tensor-dims ", .add = four_dims},
    {.keeps = " tensor-type ", .add = last_type},
    {.keeps = " key-syntax ", .add = snake_key},
    {.keeps = " utf8 ", .add = utf8},
    {.keeps = " bool ", .add = plain_bool},
    {.keeps = " nested ", .add = flat},
    {.keeps = " tokenizer-arrays ", .add = all_scores},
    {.keeps = " vocabulary ", .add = same_vocabulary},
    {.keeps = " heads ", .without = "llama.attention.head_count_kv", .add = two_kv_heads},
    {.keeps = " blocks ", .without = "llama.block_count", .add = both_blocks, .file = HASH},
    {"missing", CHECK_ERROR, .cut = 40},
    {"version", CHECK_WARNING, .version = 1}, {.version = 2},
    {"version", CHECK_NOTE, .big = true},
    {"alignment", CHECK_WARNING, .add = align_4},
    {"order", CHECK_ERROR, .add = swapped},
    {"gaps", CHECK_ERROR, .add = gap},
    {"tail", CHECK_WARNING, .add = no_tail},
    {"trailing", CHECK_WARNING, .add = trailing},
    {"padding", CHECK_WARNING, .add = dirty},
    {"tensor-name", CHECK_ERROR, .add = long_name},
    {"tensor-name", CHECK_WARNING, .add = ggml_name},
    {"tensor-dims", CHECK_ERROR, .add = five_dims},
    {"tensor-type", CHECK_ERROR, .add = unknown_type},
    {"tensor-type", CHECK_ERROR, .add = gone_type},
    {"tensor-type", CHECK_NOTE, .add = forked_type},
    {"key-syntax", CHECK_WARNING, .add = upper_key},
    {"key-syntax", CHECK_ERROR, .add = no_key},
    {"key-type", CHECK_WARNING, .add = wrong_type}, {"key-type", CHECK_WARNING, .add = unread_keys},
    {"key-type", CHECK_ERROR, .without = "general.file_type", .add = wide_number},
    {"key-type", CHECK_ERROR, .without = "llama.context_length", .add = wide_count},
    {"key-type", CHECK_ERROR, .without = "llama.feed_forward_length", .add = other_length},
    {.add = signed_counts},
    {"key-slip", CHECK_WARNING, .add = unlike_key}, {.keeps = " key-slip ", .add = own_key},
    {"utf8", CHECK_WARNING, .add = not_utf8},
    {"bool", CHECK_WARNING, .add = odd_bool},
    {"nested", CHECK_ERROR, .add = nested},
    {"architecture", CHECK_ERROR, .without = "general.architecture"},
    {.bare = true, .file = HASH, .without = "general.architecture", .add = matrix},
    {"architecture", CHECK_ERROR, .without = "general.architecture", .add = odd_architecture},
    {"architecture", CHECK_NOTE, .without = "general.architecture", .add = dash_architecture},
    {"required", CHECK_ERROR, .without = "llama.context_length"},
    {"required", CHECK_ERROR, .without = "llama.attention.layer_norm_rms_epsilon"},
    {"quantization-version", CHECK_WARNING, .without = "general.quantization_version"},
    {"split", CHECK_ERROR, .add = half_split},
    {"split", CHECK_ERROR, .add = far_split},
    {"split", CHECK_ERROR, .add = first_of_two, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {.keeps = " split ", .add = first_with_total, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {.add = part_of_two, .file = "Tiny-3.5K-v1.0-Q4_0-00002-of-00002.gguf"},
    {"tokenizer-arrays", CHECK_ERROR, .add = few_scores},
    {"token-types", CHECK_WARNING, .add = odd_token_type}, {.keeps = " token-types ", .add = token_types},
    {"token-ids", CHECK_WARNING, .add = far_token}, {.keeps = " token-ids ", .add = last_token},
    {.add = absent_token},
    {"vocabulary", CHECK_WARNING, .add = other_vocabulary},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .add = other_tokenizer},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .add = no_merges},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .add = other_pre},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.tokens", .add = same_tokens},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.model", .add = with_merges},
    {"tokenizer", CHECK_ERROR, .add = put_merges},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.tokens", .add = newline_merges},
    {.without = "tokenizer.ggml.tokens", .add = empty_tokens},
    {"chat-template", CHECK_ERROR, .add = open_template},
    {"chat-template", CHECK_ERROR, .add = endless_template},
    {"chat-template", CHECK_ERROR, .add = crossed_template},
    {"chat-template", CHECK_WARNING, .add = other_template},
    {"chat-template", CHECK_WARNING, .add = silent_template},
    {.keeps = " chat-template ", .add = ended_template},
    {.keeps = " chat-template ", .add = whole_template},
    {"tensor-missing", CHECK_ERROR, .lacks = "output_norm.weight"},
    {"tensor-missing", CHECK_ERROR, .lacks = "blk.0.attn_v.weight"},
    {"tensor-shape", CHECK_ERROR, .add = short_output}, {.keeps = " tensor-shape ", .add = whole_output},
    {"tensor-shape", CHECK_ERROR, .without = "llama.embedding_length", .add = wide_embedding},
    {"key-value", CHECK_ERROR, .add = no_scaling}, {.keeps = " key-value ", .add = yarn},
    {"key-value", CHECK_ERROR, .add = few_experts},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .add = no_expert},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .add = untold_experts},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .add = three_sections},
    {.bare = true, .file = HASH, .without = "general.architecture", .add = four_sections},
    {.bare = true, .file = HASH, .without = "general.architecture", .add = unsigned_sections},
    {"key-type", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .add = wide_sections},
    {"key-value", CHECK_ERROR, .without = "llama.rope.dimension_count", .add = half_turned},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count", .add = six_heads},
    {NULL, 0, .bare = true, .file = HASH, .without = "llama.attention.head_count", .add = six_long_heads},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count_kv", .add = three_kv_heads},
    {NULL, 0, .bare = true, .file = HASH, .without = "general.architecture", .add = no_attention},
    {"per-layer", CHECK_ERROR, .without = "llama.feed_forward_length", .add = two_lengths},
    {.keeps = " per-layer ", .without = "llama.feed_forward_length", .add = one_length},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .add = two_blocks},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .add = many_blocks},
    {"blocks", CHECK_ERROR, .add = second_block, .file = HASH},
    {"tensor-known", CHECK_ERROR, .add = own_name}, {"tensor-known", CHECK_ERROR, .add = slip_name},
    {.keeps = " tensor-known tensor-plain ", .add = rope_freqs},
    {"tensor-plain", CHECK_ERROR, .add = short_bias},
    {"tensor-plain", CHECK_ERROR, .lacks = "output_norm.weight", .add = block_norm},
    {"tensor-plain", CHECK_WARNING, .lacks = "blk.0.attn_norm.weight", .add = half_norm},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .add = told_f32, .file = HASH},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .add = told_q8, .file = HASH},
    {.keeps = " file-type ", .without = "general.file_type", .add = told_q6_k, .file = HASH},
    {"size-label", CHECK_WARNING, .add = wrong_label}, {.keeps = " size-label ", .add = right_label},
    {"file-name", CHECK_NOTE, .file = "model.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-7B-v1.0-Q4_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-3.5K-v1.0-Q5_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {"file-name", CHECK_NOTE, .without = "general.version", .add = other_version},
    {.keeps = " file-name ", .file = "Tiny-3.5K-Chat-v1.0.gguf"},
    {.file = HASH},
};
// clang-format on

const size_t n_check_rows = sizeof(check_rows) / sizeof(check_rows[0]);
