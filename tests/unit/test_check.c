/* SPDX-License-Identifier: MIT */
/* check/check: a model that follows every rule, and models that each break one rule. */
#include "cu_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "check/check.h"

enum { F32 = 0, F16 = 1, Q4_0 = 2, TOKENS = 4, WIDTH = 32, INNER = 2, NO_SUCH = 9999 };

/* A change of the good model, and what is found then. */
struct row {
    const char *rule; /* the only rule with a finding; NULL: no finding */
    enum check_severity severity;
    const char *without; /* key to omit */
    const char *lacks;   /* tensor to omit */
    struct {
        const char *key;
        uint32_t type;
        uint64_t number;
        const char *text; /* NULL: a number */
    } put[3];             /* keys to add */
    struct {
        const char *name;
        uint32_t type;
        uint64_t bytes, dims[5];
    } tensor; /* a tensor to add */
    struct {
        const char *key;
        uint32_t type;
        uint64_t n, item[4];
    } list;                       /* an array of numbers to add */
    const char *tokens[TOKENS];   /* the vocabulary, if not the good model's */
    uint32_t alignment;           /* general.alignment to add */
    bool no_tail, dirty;          /* the padding at the end is missing, or not zero */
    size_t trailing;              /* zeros after the data */
    void (*add)(struct build *b); /* what else to add */
    const char *file;             /* file name, if not the good model's */
    uint8_t version;              /* version, if not 3 */
    bool big;
    bool bare;   /* no tensors */
    uint8_t cut; /* bytes cut off the end of the file */
    /* Ids of rules that apply to the model and are satisfied, each id between blanks. */
    const char *keeps;
};

#define NUM(key, type, n)  \
    {                      \
        key, type, n, NULL \
    }
#define U32(key, n) NUM(key, GGUF_U32, n)
#define STR(key, text)            \
    {                             \
        key, GGUF_STRING, 0, text \
    }

#define TENSOR(name, type, bytes, ...) \
    {                                  \
        name, type, bytes,             \
        {                              \
            __VA_ARGS__                \
        }                              \
    }

#define LIST(key, type, n, ...) \
    {                           \
        key, type, n,           \
        {                       \
            __VA_ARGS__         \
        }                       \
    }

#define GOOD_NAME "Tiny-3.5K-v1.0-Q4_0.gguf"

/* ---- the good model ---- */

static void put_tokens(struct build *b, const char *const *text)
{
    build_array(b, "tokenizer.ggml.tokens", GGUF_STRING, TOKENS);
    for (int i = 0; i < TOKENS; i++)
        build_item_str(b, text[i]);
}

static void put_vocabulary(struct build *b)
{
    put_tokens(b, (const char *[]){"<unk>", "<s>", "</s>", "a"});
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

static void put_good_keys(struct build *b, const char *without)
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

static void put_good_tensors(struct build *b, const char *without)
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

/* llama.cpp does not read them for this architecture. */
static void unread_keys(struct build *b)
{
    build_text(b, "llama.ssm.inner_size:u64=5|llama.full_attention_interval:u32=0|"
                  "llama.attention.recurrent_layers:array=bool[0,0]");
}

static void nested(struct build *b)
{
    build_array(b, "my.list", GGUF_ARRAY, 1);
    build_item_array(b, GGUF_U8, 0);
}

static void odd_bool(struct build *b)
{
    build_raw(b, "my.flag", strlen("my.flag"), GGUF_BOOL, "\2", 1);
}

static void second_block(struct build *b)
{
    put_block(b, NULL, 1);
}

static void no_attention(struct build *b)
{
    build_text(b, "general.architecture=mamba|mamba.context_length:u32=64");
    build_u32(b, "mamba.embedding_length", WIDTH);
    build_text(b, "mamba.block_count:u32=1|mamba.attention.head_count:u32=6|"
                  "mamba.attention.head_count_kv:u32=4");
    build_f32(b, "mamba.attention.layer_norm_rms_epsilon", 1e-5f);
    build_u32(b, "mamba.ssm.conv_kernel", 4);
    build_u32(b, "mamba.ssm.inner_size", WIDTH);
    build_text(b, "mamba.ssm.state_size:u32=8|mamba.ssm.time_step_rank:u32=8");
}

static void has_sections(struct build *b)
{
    build_text(b, "general.architecture=qwen2vl|qwen2vl.context_length:u32=64");
    build_u32(b, "qwen2vl.embedding_length", WIDTH);
    build_u32(b, "qwen2vl.block_count", 1);
    build_u32(b, "qwen2vl.feed_forward_length", INNER);
    build_u32(b, "qwen2vl.attention.head_count", 4);
    build_f32(b, "qwen2vl.attention.layer_norm_rms_epsilon", 1e-5f);
}

static void put_merges(struct build *b)
{
    build_text(b, "tokenizer.ggml.merges:array=string[a b]");
}

/* ---- models that narrowly keep a rule ---- */

static void padded(struct build *b)
{
    small_tensor(b, "d2t");
    small_tensor(b, "d2t.weight");
}

static void longest_name(struct build *b)
{
    put_named(b, 63);
}

static void plain_bool(struct build *b)
{
    build_raw(b, "my.flag", strlen("my.flag"), GGUF_BOOL, "\1", 1);
}

/* ---- the table ---- */

/* A file name that says nothing about the model. */
#define HASH "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// clang-format off
static const struct row rows[] = {
    {.keeps = " missing version order trailing tail key-type architecture required"
              " quantization-version tensor-missing "},
    {.keeps = " alignment ", .alignment = 64},
    {.keeps = " gaps padding ", .add = padded},
    {.keeps = " tensor-name ", .add = longest_name},
    {.keeps = " tensor-dims ", .tensor = TENSOR("d2t", F32, 12, 3, 1, 1, 1)},
    {.keeps = " tensor-type ", .tensor = TENSOR("d2t", 42, 18, 64) /* Q2_0 */},
    {.keeps = " key-syntax ", .put = {U32("my_2.key_3", 1)}},
    {.keeps = " utf8 ", .put = {STR("general.description", "\xc3\xbc \xf0\x9f\x98\x80")}},
    {.keeps = " bool ", .add = plain_bool},
    {.keeps = " nested ", .list = LIST("my.list", GGUF_U8, 1, 1)},
    {.keeps = " tokenizer-arrays ", .list = LIST("tokenizer.ggml.scores", GGUF_F32, TOKENS, 0)},
    {.keeps = " vocabulary ", .put = {U32("llama.vocab_size", TOKENS)}},
    {.keeps = " heads ", .without = "llama.attention.head_count_kv", .put = {U32("llama.attention.head_count_kv", 2)}},
    {.keeps = " blocks ", .without = "llama.block_count", .put = {U32("llama.block_count", 2)}, .add = second_block, .file = HASH},
    {"missing", CHECK_ERROR, .cut = 40},
    {"version", CHECK_WARNING, .version = 1}, {.version = 2},
    {"version", CHECK_NOTE, .big = true},
    {"alignment", CHECK_WARNING, .alignment = 4},
    {"order", CHECK_ERROR, .add = swapped},
    {"gaps", CHECK_ERROR, .add = gap},
    {"tail", CHECK_WARNING, .tensor = TENSOR("d2t", F32, 12, 3), .no_tail = true},
    {"trailing", CHECK_WARNING, .trailing = 32},
    {"padding", CHECK_WARNING, .tensor = TENSOR("d2t", F32, 12, 3), .dirty = true},
    {"tensor-name", CHECK_ERROR, .add = long_name},
    {"tensor-name", CHECK_WARNING, .add = ggml_name},
    {"tensor-dims", CHECK_ERROR, .tensor = TENSOR("d2t", F32, 12, 3, 1, 1, 1, 1)},
    {"tensor-type", CHECK_ERROR, .tensor = TENSOR("d2t", NO_SUCH, 32, 3)},
    {"tensor-type", CHECK_ERROR, .tensor = TENSOR("d2t", 4, 32, 32)},
    {"tensor-type", CHECK_NOTE, .tensor = TENSOR("d2t", 137, 32, 3)},
    {"key-syntax", CHECK_WARNING, .put = {U32("my.Key", 1)}},
    {"key-syntax", CHECK_ERROR, .put = {U32("my..key", 1)}},
    {"key-syntax", CHECK_ERROR, .put = {U32(".key", 1)}},
    {"key-type", CHECK_WARNING, .put = {U32("general.license", 1)}}, {"key-type", CHECK_WARNING, .add = unread_keys},
    {"key-type", CHECK_ERROR, .without = "general.file_type", .put = {NUM("general.file_type", GGUF_U64, 2)}},
    {"key-type", CHECK_ERROR, .without = "llama.context_length", .put = {NUM("llama.context_length", GGUF_U64, 64)}},
    {"key-type", CHECK_ERROR, .without = "llama.feed_forward_length", .list = LIST("llama.feed_forward_length", GGUF_I64, 1, INNER)},
    {.put = {NUM("quantize.imatrix.entries_count", GGUF_I32, 1), NUM("quantize.imatrix.chunks_count", GGUF_U32, 1)}},
    {"key-slip", CHECK_WARNING, .put = {U32("general.nmae", 1), U32("llama.contxt_length", 4096)}}, {.keeps = " key-slip ", .put = {U32("llama.my_number", 1), U32("my.contxt_length", 1)}},
    {"utf8", CHECK_WARNING, .put = {STR("general.description", "\xff")}},
    {"bool", CHECK_WARNING, .add = odd_bool},
    {"nested", CHECK_ERROR, .add = nested},
    {"architecture", CHECK_ERROR, .without = "general.architecture"},
    {.bare = true, .file = HASH, .without = "general.architecture", .put = {STR("general.type", "imatrix")}},
    {"architecture", CHECK_ERROR, .without = "general.architecture", .put = {STR("general.architecture", "Llama 2")}},
    {"architecture", CHECK_NOTE, .without = "general.architecture", .put = {STR("general.architecture", "llama-x"), U32("llama-x.block_count", 1)}},
    {"required", CHECK_ERROR, .without = "llama.context_length"},
    {"required", CHECK_ERROR, .without = "llama.attention.layer_norm_rms_epsilon"},
    {"quantization-version", CHECK_WARNING, .without = "general.quantization_version"},
    {"split", CHECK_ERROR, .put = {NUM("split.no", GGUF_U16, 0)}},
    {"split", CHECK_ERROR, .put = {NUM("split.no", GGUF_U16, 1), NUM("split.count", GGUF_U16, 1)}},
    {"split", CHECK_ERROR, .put = {NUM("split.no", GGUF_U16, 0), NUM("split.count", GGUF_U16, 2)}, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {.keeps = " split ", .put = {NUM("split.no", GGUF_U16, 0), NUM("split.count", GGUF_U16, 2), NUM("split.tensors.count", GGUF_I32, 4)}, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {.put = {NUM("split.no", GGUF_U16, 1), NUM("split.count", GGUF_U16, 2)}, .file = "Tiny-3.5K-v1.0-Q4_0-00002-of-00002.gguf"},
    {"tokenizer-arrays", CHECK_ERROR, .list = LIST("tokenizer.ggml.scores", GGUF_F32, TOKENS - 1, 0)},
    {"token-types", CHECK_WARNING, .list = LIST("tokenizer.ggml.token_type", GGUF_I32, TOKENS, 1, 1, 1, 7)}, {.keeps = " token-types ", .list = LIST("tokenizer.ggml.token_type", GGUF_I32, TOKENS, 1, 1, 1, 6)},
    {"token-ids", CHECK_WARNING, .put = {U32("tokenizer.ggml.eos_token_id", TOKENS)}}, {.keeps = " token-ids ", .put = {U32("tokenizer.ggml.eos_token_id", TOKENS - 1)}},
    {.put = {U32("tokenizer.ggml.eos_token_id", UINT32_MAX)}},
    {"vocabulary", CHECK_WARNING, .put = {U32("llama.vocab_size", TOKENS + 1)}},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .put = {STR("tokenizer.ggml.model", "foo")}},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .put = {STR("tokenizer.ggml.model", "gpt2"), STR("tokenizer.ggml.pre", "llama-bpe")}},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .put = {STR("tokenizer.ggml.model", "gpt2"), STR("tokenizer.ggml.pre", "foo")}, .add = put_merges},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.tokens", .tokens = {"<unk>", "a", "</s>", "a"}},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.model", .put = {STR("tokenizer.ggml.model", "gpt2"), STR("tokenizer.ggml.pre", "llama-bpe")}, .add = put_merges},
    {"tokenizer", CHECK_ERROR, .add = put_merges},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.tokens", .tokens = {"<unk>", "<s>", "</s>", "<0x0A>"}, .add = put_merges},
    {.without = "tokenizer.ggml.tokens", .tokens = {"", "a", "", "b"}},
    {"chat-template", CHECK_ERROR, .put = {STR("tokenizer.chat_template.tool_use", "{% if x %}{{ x }")}},
    {"chat-template", CHECK_ERROR, .put = {STR("tokenizer.chat_template.tool_use", "{% for m in messages %}{{ m }}")}},
    {"chat-template", CHECK_ERROR, .put = {STR("tokenizer.chat_template.tool_use", "{% for m in messages %}{{ m }}{% endif %}")}},
    {"chat-template", CHECK_WARNING, .put = {STR("tokenizer.chat_template.tool_use", "{{ '<|im_end|>' }}")}},
    {"chat-template", CHECK_WARNING, .put = {U32("tokenizer.ggml.eos_token_id", 2), STR("tokenizer.chat_template.tool_use", "{% for m in messages %}{{ m['content'] }}{% endfor %}")}},
    {.keeps = " chat-template ", .put = {U32("tokenizer.ggml.eos_token_id", 2), STR("tokenizer.chat_template.tool_use", "{{ messages[0]['content'] + '</s>' }}")}},
    {.keeps = " chat-template ", .put = {STR("tokenizer.chat_template.tool_use", "{# '%} #}{%- for m in messages %}{% set x = '{{ %}' %}{% set y %}{{ m['a}}'] }}{% endset -%}{% if m %}<s>{{ '<|' + m + '|>' }}{% endif %}{% endfor %}")}},
    {"tensor-missing", CHECK_ERROR, .lacks = "output_norm.weight"},
    {"tensor-missing", CHECK_ERROR, .lacks = "blk.0.attn_v.weight"},
    {"tensor-shape", CHECK_ERROR, .tensor = TENSOR("output.weight", F32, 4 * WIDTH * (TOKENS - 1), WIDTH, TOKENS - 1)}, {.keeps = " tensor-shape ", .tensor = TENSOR("output.weight", F32, 4 * WIDTH * TOKENS, WIDTH, TOKENS)},
    {"tensor-shape", CHECK_ERROR, .without = "llama.embedding_length", .put = {U32("llama.embedding_length", 2 * WIDTH), U32("llama.attention.key_length", 8), U32("llama.attention.value_length", 8)}},
    {"key-value", CHECK_ERROR, .put = {STR("llama.rope.scaling.type", "foo")}}, {.keeps = " key-value ", .put = {STR("llama.rope.scaling.type", "yarn")}},
    {"key-value", CHECK_ERROR, .put = {U32("llama.expert_used_count", 2)}},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .put = {U32("llama.expert_count", 2), U32("llama.expert_used_count", 0)}},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .put = {U32("llama.expert_count", 2)}},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .add = has_sections, .list = LIST("qwen2vl.rope.dimension_sections", GGUF_I32, 3, 2, 2, 2, 2)},
    {.bare = true, .file = HASH, .without = "general.architecture", .add = has_sections, .list = LIST("qwen2vl.rope.dimension_sections", GGUF_I32, 4, 2, 2, 2, 2)},
    {.bare = true, .file = HASH, .without = "general.architecture", .add = has_sections, .list = LIST("qwen2vl.rope.dimension_sections", GGUF_U32, 4, 2, 2, 2, 2)},
    {"key-type", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .add = has_sections, .list = LIST("qwen2vl.rope.dimension_sections", GGUF_I64, 4, 2, 2, 2, 2)},
    {"key-value", CHECK_ERROR, .without = "llama.rope.dimension_count", .put = {U32("llama.rope.dimension_count", 4)}},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count", .put = {U32("llama.attention.head_count", 6)}},
    {NULL, 0, .bare = true, .file = HASH, .without = "llama.attention.head_count", .put = {U32("llama.attention.head_count", 6), U32("llama.attention.key_length", 8)}},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count_kv", .put = {U32("llama.attention.head_count_kv", 3)}},
    {NULL, 0, .bare = true, .file = HASH, .without = "general.architecture", .add = no_attention},
    {"per-layer", CHECK_ERROR, .without = "llama.feed_forward_length", .list = LIST("llama.feed_forward_length", GGUF_I32, 2, INNER, INNER)},
    {.keeps = " per-layer ", .without = "llama.feed_forward_length", .list = LIST("llama.feed_forward_length", GGUF_I32, 1, INNER)},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .put = {U32("llama.block_count", 2)}},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .put = {U32("llama.block_count", UINT32_MAX)}},
    {"blocks", CHECK_ERROR, .add = second_block, .file = HASH},
    {"tensor-known", CHECK_ERROR, .tensor = TENSOR("mm.0.weight", F32, 16, 4)}, {"tensor-known", CHECK_ERROR, .tensor = TENSOR("blk.0.attn_qq.weight", F32, 16, 4)},
    {.keeps = " tensor-known tensor-plain ", .tensor = TENSOR("rope_freqs.weight", F32, 16, 4)},
    {"tensor-plain", CHECK_ERROR, .tensor = TENSOR("blk.0.attn_q.bias", Q4_0, 18, WIDTH)},
    {"tensor-plain", CHECK_ERROR, .lacks = "output_norm.weight", .tensor = TENSOR("output_norm.weight", Q4_0, 18, WIDTH)},
    {"tensor-plain", CHECK_WARNING, .lacks = "blk.0.attn_norm.weight", .tensor = TENSOR("blk.0.attn_norm.weight", F16, 2 * WIDTH, WIDTH)},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .put = {U32("general.file_type", 0)}, .tensor = TENSOR("d2t.weight", Q4_0, 18 * WIDTH * WIDTH, WIDTH, WIDTH * WIDTH), .file = HASH},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .put = {U32("general.file_type", 7)}, .file = HASH},
    {.keeps = " file-type ", .without = "general.file_type", .put = {U32("general.file_type", 18)}, .file = HASH},
    {"size-label", CHECK_WARNING, .put = {STR("general.size_label", "7B")}}, {.keeps = " size-label ", .put = {STR("general.size_label", "3.5K")}},
    {"file-name", CHECK_NOTE, .file = "model.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-7B-v1.0-Q4_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-3.5K-v1.0-Q5_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf"},
    {.keeps = " file-name ", .file = "Tiny-3.5K-Chat-v1.0.gguf"},
    {.file = HASH},
};
// clang-format on

/* ---- the test ---- */

/* Numbers of findings: of the row's rule, and of all other rules (not counting notes). */
struct told {
    const struct row *row;
    unsigned own, other;
    enum check_severity worst;
};

static void sink(void *arg, const struct check_finding *f)
{
    struct told *t = arg;
    CU_ASSERT_NOT_EQUAL(f->what[0], '\0');
    CU_ASSERT_PTR_NULL(strchr(f->what, '\n'));
    if (t->row->rule && strcmp(f->rule, t->row->rule) == 0) {
        t->own++;
        t->worst = f->severity > t->worst ? f->severity : t->worst;
    } else if (f->severity != CHECK_NOTE) {
        t->other++;
        (void)printf("    unexpected: %s: %s (%s)\n", f->rule, f->what, f->where);
    }
}

/* Each rule applies either to files or to models. Checking files and models separately therefore
 * reports the same findings as checking both at once, and no finding twice. */
static void in_scopes(struct check_model *m, const struct told *all)
{
    struct told file = {.row = all->row}, whole = {.row = all->row};
    m->scope = CHECK_FILE;
    CU_ASSERT_EQUAL(check_rules(m, sink, &file), 0);
    m->scope = CHECK_WHOLE;
    CU_ASSERT_EQUAL(check_rules(m, sink, &whole), 0);
    CU_ASSERT_EQUAL(file.own + whole.own, all->own);
    CU_ASSERT_TRUE(file.own == 0 || whole.own == 0);
}

static void run_row(const struct row *row)
{
    struct told told = {.row = row};
    size_t n;
    CLEANUP(gguf_drop) struct gguf *g = NULL;
    struct build b = build_of(row->version ? row->version : 3, row->big);
    put_good_keys(&b, row->without);
    if (!row->bare)
        put_good_tensors(&b, row->lacks);
    for (size_t i = 0; i < COUNT(row->put) && row->put[i].key; i++)
        if (row->put[i].text)
            build_str(&b, row->put[i].key, row->put[i].text);
        else
            build_num(&b, row->put[i].key, row->put[i].type, row->put[i].number);
    uint32_t n_dims = 0;
    while (n_dims < COUNT(row->tensor.dims) && row->tensor.dims[n_dims])
        n_dims++;
    if (row->tensor.name)
        build_tensor(&b, row->tensor.name, row->tensor.type, row->tensor.dims, n_dims, NULL,
                     row->tensor.bytes);
    if (row->tokens[0])
        put_tokens(&b, row->tokens);
    if (row->add)
        row->add(&b);
    if (row->list.key)
        build_array(&b, row->list.key, row->list.type, row->list.n);
    for (uint64_t i = 0; i < row->list.n; i++)
        build_item_num(&b, row->list.type, row->list.item[i]);
    if (row->alignment)
        build_u32(&b, "general.alignment", row->alignment);
    b.alignment = row->alignment ? row->alignment : b.alignment;
    b.no_tail = row->no_tail;
    b.pad_byte = row->dirty;
    buf_zero(&b.data, row->trailing);
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source src = source_mem(image, n - row->cut);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, row->cut ? GGUF_PARTIAL : 0, &g, NULL), 0);
    struct check_model m = {.g = g, .src = &src, .file = row->file ? row->file : GOOD_NAME};
    CU_ASSERT_EQUAL(check_rules(&m, sink, &told), 0);
    CU_SAYS(!told.other && (told.own > 0) == (row->rule != NULL) && told.worst == row->severity,
            "row %d (%s)", (int)(row - rows), row->rule ? row->rule : "good");
    in_scopes(&m, &told);
}

TEST("a good model passes, and a model that breaks a rule is reported")
{
    for (size_t i = 0; i < COUNT(rows); i++)
        run_row(&rows[i]);
}

static bool breaks(const struct row *row, const char *rule)
{
    return row->rule && strcmp(row->rule, rule) == 0;
}

static bool keeps(const struct row *row, const char *rule)
{
    char word[64];
    (void)snprintf(word, sizeof(word), " %s ", rule);
    return row->keeps && strstr(row->keeps, word);
}

static bool any(const char *rule, bool (*is)(const struct row *row, const char *rule))
{
    for (size_t k = 0; k < COUNT(rows); k++)
        if (is(&rows[k], rule))
            return true;
    (void)printf("    no row for %s\n", rule);
    return false;
}

TEST("every rule has a model that breaks it and one that keeps it")
{
    for (size_t i = 0; strcmp(check_any_rule_id(i), CHECK_STRUCTURE) != 0; i++) {
        CU_ASSERT_TRUE(any(check_any_rule_id(i), breaks));
        CU_ASSERT_TRUE(any(check_any_rule_id(i), keeps));
    }
}
