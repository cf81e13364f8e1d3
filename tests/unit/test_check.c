/* SPDX-License-Identifier: MIT */
/* check/: a model that follows every rule, and models that each break one rule; the report on models
 * that break many, and on files that cannot be parsed; cache sizes of published models, computed by
 * hand; parsing and generating file names by the naming convention; NaN and infinity, in values and in
 * scales, in every type that can have them. */
#include "cu_test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "check/cache.h"
#include "check/check.h"
#include "check/filename.h"
#include "quant/types.h"

enum { F32 = 0, Q4_0 = 2, TOKENS = 4, WIDTH = 32, INNER = 2 };

/* A change of the good model, and what is found then. */
struct row {
    const char *rule; /* the only rule with a finding; NULL: no finding */
    enum check_severity severity;
    const char *without;     /* key to omit */
    const char *lacks;       /* tensor to omit */
    const char *text;        /* keys and tensors to add */
    const char *key, *value; /* a string with a | to add */
    uint32_t alignment;      /* general.alignment to add */
    bool no_tail, dirty;     /* the padding at the end is missing, or not zero */
    size_t trailing;         /* zeros after the data */
    bool second_block;
    const char *file; /* file name, if not the good model's */
    uint8_t version;  /* version, if not 3 */
    bool big;
    bool bare;   /* no tensors */
    uint8_t cut; /* bytes cut off the end of the file */
    /* Ids of rules that apply to the model and are satisfied, each id between blanks. */
    const char *keeps;
};

#define GOOD_NAME "Tiny-3.5K-v1.0-Q4_0.gguf"

/* ---- the good model ---- */

#define GOOD_KEYS                                                                                \
    "general.architecture=llama|general.name=Tiny|general.version=1.0|general.file_type:u32=2|"  \
    "general.quantization_version:u32=2|llama.context_length:u32=64|"                            \
    "llama.embedding_length:u32=32|llama.block_count:u32=1|llama.feed_forward_length:u32=2|"     \
    "llama.rope.dimension_count:u32=8|llama.attention.head_count:u32=4|"                         \
    "llama.attention.head_count_kv:u32=2|llama.attention.layer_norm_rms_epsilon:f32=0x3727c5ac|" \
    "tokenizer.ggml.model=llama|tokenizer.ggml.tokens:array=string[<unk>,<s>,</s>,a]|"           \
    "tokenizer.ggml.bos_token_id:u32=1"

static void put_good_keys(struct build *b, const char *without)
{
    char item[128];
    const size_t n = without ? strlen(without) : 0;
    for (const char *p = GOOD_KEYS, *end; *p; p = *end ? end + 1 : end) {
        end = strchrnul(p, '|');
        (void)snprintf(item, sizeof(item), "%.*s", (int)(end - p), p);
        if (!without || strncmp(item, without, n) != 0 || !strchr(":=", item[n]))
            build_text(b, item);
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

/* ---- what is added to it ---- */

/* A tensor whose name has 63 bytes, and as many more, and is known but for its length. */
#define NAMED(more) ">blk.00000000000000000000000000000000000000000000" more ".attn_norm.bias F32 3"
#define MAMBA                                                                                    \
    "general.architecture=mamba|mamba.context_length:u32=64|mamba.embedding_length:u32=32|"      \
    "mamba.block_count:u32=1|mamba.attention.head_count:u32=6|"                                  \
    "mamba.attention.head_count_kv:u32=4|mamba.attention.layer_norm_rms_epsilon:f32=0x3727c5ac|" \
    "mamba.ssm.conv_kernel:u32=4|mamba.ssm.inner_size:u32=32|mamba.ssm.state_size:u32=8|"        \
    "mamba.ssm.time_step_rank:u32=8"
#define QWEN2VL                                                                                   \
    "general.architecture=qwen2vl|qwen2vl.context_length:u32=64|qwen2vl.embedding_length:u32=32|" \
    "qwen2vl.block_count:u32=1|qwen2vl.feed_forward_length:u32=2|"                                \
    "qwen2vl.attention.head_count:u32=4|qwen2vl.attention.layer_norm_rms_epsilon:f32=0x3727c5ac"

/* ---- the table ---- */

/* A file name that says nothing about the model. */
#define HASH "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// clang-format off
static const struct row rows[] = {
    {.keeps = " missing version order trailing tail key-type architecture required"
              " quantization-version tensor-missing "},
    {.keeps = " alignment ", .alignment = 64},
    {.keeps = " gaps padding ", .text = ">d2t F32 3|>d2t.weight F32 3"},
    {.keeps = " tensor-name ", .text = NAMED("")},
    {.keeps = " tensor-dims ", .text = ">d2t F32 3x1x1x1"},
    {.keeps = " tensor-type ", .text = ">d2t 42 64 18"},
    {.keeps = " key-syntax ", .text = "my_2.key_3:u32=1"},
    {.keeps = " utf8 ", .text = "general.description=\xc3\xbc \xf0\x9f\x98\x80"},
    {.keeps = " bool ", .text = "my.flag:bool=1"},
    {.keeps = " nested ", .text = "my.list:array=u8[1]"},
    {.keeps = " tokenizer-arrays ", .text = "tokenizer.ggml.scores:array=f32[0,0,0,0]"},
    {.keeps = " vocabulary ", .text = "llama.vocab_size:u32=4"},
    {.keeps = " heads ", .without = "llama.attention.head_count_kv", .text = "llama.attention.head_count_kv:u32=2"},
    {.keeps = " blocks ", .without = "llama.block_count", .second_block = true, .file = HASH, .text = "llama.block_count:u32=2"},
    {"missing", CHECK_ERROR, .cut = 40},
    {"version", CHECK_WARNING, .version = 1}, {.version = 2},
    {"version", CHECK_NOTE, .big = true},
    {"alignment", CHECK_WARNING, .alignment = 4},
    {"order", CHECK_ERROR, .text = ">d2t F32 8 32 10464|>d2t.weight F32 8 32 10432"},
    {"gaps", CHECK_ERROR, .text = ">d2t F32 8 32 11392"},
    {"tail", CHECK_WARNING, .no_tail = true, .text = ">d2t F32 3"},
    {"trailing", CHECK_WARNING, .trailing = 32},
    {"padding", CHECK_WARNING, .dirty = true, .text = ">d2t F32 3"},
    {"tensor-name", CHECK_ERROR, .text = NAMED("00")},
    {"tensor-name", CHECK_WARNING, .text = NAMED("0")},
    {"tensor-dims", CHECK_ERROR, .text = ">d2t F32 3x1x1x1x1"},
    {"tensor-type", CHECK_ERROR, .text = ">d2t 9999 3 32"},
    {"tensor-type", CHECK_ERROR, .text = ">d2t 4 32 32"},
    {"tensor-type", CHECK_NOTE, .text = ">d2t 137 3 32"},
    {"key-syntax", CHECK_WARNING, .text = "my.Key:u32=1"},
    {"key-syntax", CHECK_ERROR, .text = "my..key:u32=1"},
    {"key-syntax", CHECK_ERROR, .text = ".key:u32=1"},
    {"key-type", CHECK_WARNING, .text = "general.license:u32=1"}, {"key-type", CHECK_WARNING, .text = "llama.ssm.inner_size:u64=5|llama.full_attention_interval:u32=0|llama.attention.recurrent_layers:array=bool[0,0]"},
    {"key-type", CHECK_ERROR, .without = "general.file_type", .text = "general.file_type:u64=2"},
    {"key-type", CHECK_ERROR, .without = "llama.context_length", .text = "llama.context_length:u64=64"},
    {"key-type", CHECK_ERROR, .without = "llama.feed_forward_length", .text = "llama.feed_forward_length:array=i64[2]"},
    {.text = "quantize.imatrix.entries_count:i32=1|quantize.imatrix.chunks_count:u32=1"},
    {"key-slip", CHECK_WARNING, .text = "general.nmae:u32=1|llama.contxt_length:u32=4096"}, {.keeps = " key-slip ", .text = "llama.my_number:u32=1|my.contxt_length:u32=1"},
    {"utf8", CHECK_WARNING, .text = "general.description=\xff"},
    {"bool", CHECK_WARNING, .text = "my.flag:bool=2"},
    {"nested", CHECK_ERROR, .text = "my.list:array=array[u8[]]"},
    {"architecture", CHECK_ERROR, .without = "general.architecture"},
    {.bare = true, .file = HASH, .without = "general.architecture", .text = "general.type=imatrix"},
    {"architecture", CHECK_ERROR, .without = "general.architecture", .text = "general.architecture=Llama 2"},
    {"architecture", CHECK_NOTE, .without = "general.architecture", .text = "general.architecture=llama-x|llama-x.block_count:u32=1"},
    {"required", CHECK_ERROR, .without = "llama.context_length"},
    {"required", CHECK_ERROR, .without = "llama.attention.layer_norm_rms_epsilon"},
    {"quantization-version", CHECK_WARNING, .without = "general.quantization_version"},
    {"split", CHECK_ERROR, .text = "split.no:u16=0"},
    {"split", CHECK_ERROR, .text = "split.no:u16=1|split.count:u16=1"},
    {"split", CHECK_ERROR, .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf", .text = "split.no:u16=0|split.count:u16=2"},
    {.keeps = " split ", .file = "Tiny-3.5K-v1.0-Q4_0-00001-of-00002.gguf", .text = "split.no:u16=0|split.count:u16=2|split.tensors.count:i32=4"},
    {.file = "Tiny-3.5K-v1.0-Q4_0-00002-of-00002.gguf", .text = "split.no:u16=1|split.count:u16=2"},
    {"tokenizer-arrays", CHECK_ERROR, .text = "tokenizer.ggml.scores:array=f32[0,0,0]"},
    {"token-types", CHECK_WARNING, .text = "tokenizer.ggml.token_type:array=i32[1,1,1,7]"}, {.keeps = " token-types ", .text = "tokenizer.ggml.token_type:array=i32[1,1,1,6]"},
    {"token-ids", CHECK_WARNING, .text = "tokenizer.ggml.eos_token_id:u32=4"}, {.keeps = " token-ids ", .text = "tokenizer.ggml.eos_token_id:u32=3"},
    {.text = "tokenizer.ggml.eos_token_id:u32=4294967295"},
    {"vocabulary", CHECK_WARNING, .text = "llama.vocab_size:u32=5"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .text = "tokenizer.ggml.model=foo"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .text = "tokenizer.ggml.model=gpt2|tokenizer.ggml.pre=llama-bpe"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.model", .text = "tokenizer.ggml.model=gpt2|tokenizer.ggml.pre=foo|tokenizer.ggml.merges:array=string[a b]"},
    {"tokenizer", CHECK_ERROR, .without = "tokenizer.ggml.tokens", .text = "tokenizer.ggml.tokens:array=string[<unk>,a,</s>,a]"},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.model", .text = "tokenizer.ggml.model=gpt2|tokenizer.ggml.pre=llama-bpe|tokenizer.ggml.merges:array=string[a b]"},
    {"tokenizer", CHECK_ERROR, .text = "tokenizer.ggml.merges:array=string[a b]"},
    {.keeps = " tokenizer ", .without = "tokenizer.ggml.tokens", .text = "tokenizer.ggml.tokens:array=string[<unk>,<s>,</s>,<0x0A>]|tokenizer.ggml.merges:array=string[a b]"},
    {.without = "tokenizer.ggml.tokens", .text = "tokenizer.ggml.tokens:array=string[,a,,b]"},
    {"chat-template", CHECK_ERROR, .text = "tokenizer.chat_template.tool_use={% if x %}{{ x }"},
    {"chat-template", CHECK_ERROR, .text = "tokenizer.chat_template.tool_use={% for m in messages %}{{ m }}"},
    {"chat-template", CHECK_ERROR, .text = "tokenizer.chat_template.tool_use={% for m in messages %}{{ m }}{% endif %}"},
    {"chat-template", CHECK_WARNING, .key = "tokenizer.chat_template.tool_use", .value = "{{ '<|im_end|>' }}"},
    {"chat-template", CHECK_WARNING, .text = "tokenizer.ggml.eos_token_id:u32=2|tokenizer.chat_template.tool_use={% for m in messages %}{{ m['content'] }}{% endfor %}"},
    {.keeps = " chat-template ", .text = "tokenizer.ggml.eos_token_id:u32=2|tokenizer.chat_template.tool_use={{ messages[0]['content'] + '</s>' }}"},
    {.keeps = " chat-template ", .key = "tokenizer.chat_template.tool_use", .value = "{# '%} #}{%- for m in messages %}{% set x = '{{ %}' %}{% set y %}{{ m['a}}'] }}{% endset -%}{% if m %}<s>{{ '<|' + m + '|>' }}{% endif %}{% endfor %}"},
    {"tensor-missing", CHECK_ERROR, .lacks = "output_norm.weight"},
    {"tensor-missing", CHECK_ERROR, .lacks = "blk.0.attn_v.weight"},
    {"tensor-shape", CHECK_ERROR, .text = ">output.weight F32 32x3"}, {.keeps = " tensor-shape ", .text = ">output.weight F32 32x4"},
    {"tensor-shape", CHECK_ERROR, .without = "llama.embedding_length", .text = "llama.embedding_length:u32=64|llama.attention.key_length:u32=8|llama.attention.value_length:u32=8"},
    {"key-value", CHECK_ERROR, .text = "llama.rope.scaling.type=foo"}, {.keeps = " key-value ", .text = "llama.rope.scaling.type=yarn"},
    {"key-value", CHECK_ERROR, .text = "llama.expert_used_count:u32=2"},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .text = "llama.expert_count:u32=2|llama.expert_used_count:u32=0"},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .text = "llama.expert_count:u32=2"},
    {"key-value", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .text = QWEN2VL "|qwen2vl.rope.dimension_sections:array=i32[2,2,2]"},
    {.bare = true, .file = HASH, .without = "general.architecture", .text = QWEN2VL "|qwen2vl.rope.dimension_sections:array=i32[2,2,2,2]"},
    {.bare = true, .file = HASH, .without = "general.architecture", .text = QWEN2VL "|qwen2vl.rope.dimension_sections:array=u32[2,2,2,2]"},
    {"key-type", CHECK_ERROR, .bare = true, .file = HASH, .without = "general.architecture", .text = QWEN2VL "|qwen2vl.rope.dimension_sections:array=i64[2,2,2,2]"},
    {"key-value", CHECK_ERROR, .without = "llama.rope.dimension_count", .text = "llama.rope.dimension_count:u32=4"},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count", .text = "llama.attention.head_count:u32=6"},
    {NULL, 0, .bare = true, .file = HASH, .without = "llama.attention.head_count", .text = "llama.attention.head_count:u32=6|llama.attention.key_length:u32=8"},
    {"heads", CHECK_ERROR, .bare = true, .file = HASH, .without = "llama.attention.head_count_kv", .text = "llama.attention.head_count_kv:u32=3"},
    {NULL, 0, .bare = true, .file = HASH, .without = "general.architecture", .text = MAMBA},
    {"per-layer", CHECK_ERROR, .without = "llama.feed_forward_length", .text = "llama.feed_forward_length:array=i32[2,2]"},
    {.keeps = " per-layer ", .without = "llama.feed_forward_length", .text = "llama.feed_forward_length:array=i32[2]"},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .text = "llama.block_count:u32=2"},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .text = "llama.block_count:u32=4294967295"},
    {"blocks", CHECK_ERROR, .second_block = true, .file = HASH},
    {"tensor-known", CHECK_ERROR, .text = ">mm.0.weight F32 4"}, {"tensor-known", CHECK_ERROR, .text = ">blk.0.attn_qq.weight F32 4"},
    {.keeps = " tensor-known tensor-plain ", .text = ">rope_freqs.weight F32 4"},
    {"tensor-plain", CHECK_ERROR, .text = ">blk.0.attn_q.bias Q4_0 32"},
    {"tensor-plain", CHECK_ERROR, .lacks = "output_norm.weight", .text = ">output_norm.weight Q4_0 32"},
    {"tensor-plain", CHECK_WARNING, .lacks = "blk.0.attn_norm.weight", .text = ">blk.0.attn_norm.weight F16 32"},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .file = HASH, .text = "general.file_type:u32=0|>d2t.weight Q4_0 32x1024"},
    {"file-type", CHECK_WARNING, .without = "general.file_type", .file = HASH, .text = "general.file_type:u32=7"},
    {.keeps = " file-type ", .without = "general.file_type", .file = HASH, .text = "general.file_type:u32=18"},
    {"size-label", CHECK_WARNING, .text = "general.size_label=7B"}, {.keeps = " size-label ", .text = "general.size_label=3.5K"},
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
    if (row->second_block)
        put_block(&b, NULL, 1);
    if (row->text)
        build_text(&b, row->text);
    if (row->key)
        build_str(&b, row->key, row->value);
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

TEST("a template that repeats a token takes no more time than one that is as long")
{
    enum { BEFORE = 4 << 20, TIMES = 100000, TOKEN = 5 };
    CLEANUP(free_it) char *text = malloc(BEFORE + TIMES * TOKEN + 1);
    memset(text, 'a', BEFORE);
    for (size_t i = 0; i < TIMES; i++)
        (void)strcpy(text + BEFORE + i * TOKEN, "<|x|>");
    const clock_t begin = clock();
    run_row(&(struct row){"chat-template", CHECK_WARNING, .key = "tokenizer.chat_template.a",
                          .value = text});
    CU_ASSERT_TRUE(clock() - begin < 5 * CLOCKS_PER_SEC);
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

/* ---- the number of findings per rule is limited ---- */

static void count(void *arg, const struct check_finding *f)
{
    unsigned *n = arg;
    if (strcmp(f->rule, "key-syntax") != 0)
        return;
    if (++*n > CHECK_MOST)
        CU_ASSERT_STRING_EQUAL(f->what, "5 more of these");
}

TEST("the findings of one rule are limited")
{
    unsigned n = 0;
    char key[16];
    struct build b = build_of(3, false);
    for (int i = 0; i < CHECK_MOST + 5; i++) {
        (void)snprintf(key, sizeof(key), "K.%d", i);
        build_u32(&b, key, 1);
    }
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    struct check_model m = {.g = p.g};
    CU_ASSERT_EQUAL(check_rules(&m, count, &n), 0);
    CU_ASSERT_EQUAL(n, CHECK_MOST + 1);
}

/* ---- architectures ---- */

struct wanted {
    unsigned n;
    const char *key;
};

static void required(void *arg, const struct check_finding *f)
{
    struct wanted *w = arg;
    if (strcmp(f->rule, "required") != 0)
        return;
    w->n++;
    CU_ASSERT_TRUE(!w->key || strstr(f->what, w->key));
}

/* Check how many required keys are reported for each architecture if the model has none of them. */
TEST("missing required keys of each architecture are counted")
{
    static const struct {
        const char *arch;
        unsigned n;
    } want[] = {{"llama", 6}, {"mpt", 6},     {"gptneox", 7}, {"gptj", 6},
                {"gpt2", 6},  {"bloom", 6},   {"falcon", 6},  {"mamba", 8},
                {"rwkv", 4},  {"whisper", 9}, {"other", 0}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct wanted w = {0, want[i].arch};
        struct build b = build_of(3, false);
        build_str(&b, "general.architecture", want[i].arch);
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(check_rules(&(struct check_model){.g = p.g}, required, &w), 0);
        CU_ASSERT_EQUAL(w.n, want[i].n);
    }
}

/* ---- faults after which the parser continues ---- */

struct faults {
    unsigned n;
    char all[2048];
};

static void on_fault(void *arg, const struct err *e)
{
    struct faults *f = arg;
    f->n++;
    CU_ASSERT_TRUE(e->where > 0 && strncmp(e->msg + e->where, ": ", 2) == 0);
    (void)strncat(f->all, e->msg, e->where);
    (void)strcat(f->all, "\n");
}

TEST("the parser continues after a fault, and reports every one")
{
    struct faults f = {0};
    struct gguf *g = NULL;
    struct err e = {0};
    size_t n;
    struct build b = build_of(3, false);
    build_text(&b, "a.b:u32=1|general.alignment:u32=24|a.b:u32=2|>t F32 16 64 0|>u F32 16 64 32|"
                   ">v F32 2 8 100|>w Q4_0 31 8 128");
    CLEANUP(free_it) uint8_t *image = build_finish(&b, &n);
    struct source s = source_mem(image, n);
    CU_ASSERT_EQUAL(gguf_parse(&s, 0, &g, &e), -EBADMSG);
    CU_ASSERT_EQUAL_FATAL(gguf_parse_faults(&s, on_fault, &f, &g, &e), 0);
    CU_ASSERT_STRING_EQUAL(f.all, "tensor 3 'w': dimension at byte 207\n"
                                  "key 2 'a.b': name at byte 84\n"
                                  "key 1 'general.alignment': value at byte 72\n"
                                  "tensor 2 'v': offset at byte 186\n"
                                  "tensor 1 'u': offset at byte 153\n");
    CU_ASSERT_EQUAL(g->n_kv, 3);
    CU_ASSERT_EQUAL(g->n_tensors, 4);
    CU_ASSERT_EQUAL(g->alignment, 32);
    CU_ASSERT_EQUAL(g->tensor[3].n_elem, 0);
    gguf_free(g);
    s = source_mem(image, 30); /* the file ends inside a key, so nothing can be read */
    CU_ASSERT_EQUAL(gguf_parse_faults(&s, on_fault, &f, &g, &e), -EBADMSG);
}

/* ==== cache sizes ==== */

/* A key without its architecture prefix. If `every` > 0, the value is an array with one item per
 * layer: `number` for the last of every `every` layers, `other` for the rest. */
struct key {
    const char *name;
    uint32_t number, every, other;
};

struct cache_row {
    const char *arch;
    uint32_t layers, context, width, heads, heads_kv, key; /* 0: the model lacks the key */
    struct key more[3];
    uint64_t token, whole;
};

#define WINDOW(n)                           \
    {                                       \
        "attention.sliding_window", n, 0, 0 \
    }
// clang-format off
static const struct cache_row caches[] = {
    /* the context times 32 layers * 8 heads * (128 + 128) * 2 bytes */
    {"llama", 32, 8192, 4096, 32, 8, 0, {{0}}, 131072, 131072 * 8192ULL},
    {"qwen2", 28, 32768, 3584, 28, 4, 0, {{0}}, 28 * 4 * 256 * 2, 28 * 4 * 256 * 2 * 32768ULL},
    /* every head has its own keys */
    {"phi2", 32, 2048, 2560, 32, 0, 0, {{0}}, 32 * 32 * 160 * 2, 32 * 32 * 160 * 2 * 2048ULL},
    /* key_length differs from the head's share of the embedding */
    {"qwen3", 36, 40960, 2560, 32, 8, 128, {{0}}, 36 * 8 * 256 * 2, 36 * 8 * 256 * 2 * 40960ULL},
    /* 13 layers keep all 8192 positions; the other 13 keep only those in the window */
    {"gemma2", 26, 8192, 2304, 8, 4, 256, {WINDOW(4096)}, 26 * 4 * 512 * 2, 13 * 4096ULL * (8192 + 4096)},
    /* 5 of 34 layers (6, 12, 18, 24, 30) keep all positions; the other 29 keep a window of 1024; a
     * position takes 4096 bytes per layer */
    {"gemma3", 34, 131072, 2560, 8, 4, 256, {WINDOW(1024)}, 34 * 4096, 4096ULL * (5 * 131072 + 29 * 1024)},
    /* 12 layers of each kind; 8 heads of 64 + 64 take 2048 bytes */
    {"gpt-oss", 24, 131072, 2880, 64, 8, 64, {WINDOW(128)}, 24 * 2048, 2048ULL * 12 * (131072 + 128)},
    /* 10 of 40 layers keep all positions */
    {"cohere2", 40, 8192, 4096, 32, 8, 128, {WINDOW(4096)}, 40 * 4096, 4096ULL * (10 * 8192 + 30 * 4096)},
    /* 12 of 48 layers keep all positions; the others keep 8192 each */
    {"llama4", 48, 262144, 5120, 40, 8, 128, {{0}}, 48 * 4096, 4096ULL * (12 * 262144ULL + 36 * 8192)},
    /* the first of every four layers keeps all positions: 8 of 32 */
    {"smallthinker", 32, 16384, 1536, 12, 2, 128, {WINDOW(4096)}, 32 * 1024, 1024ULL * (8 * 16384 + 24 * 4096)},
    /* no window is declared, so all layers keep all positions */
    {"olmo2", 32, 4096, 4096, 32, 0, 0, {{0}}, 32 * 32 * 256 * 2, 32 * 32 * 256 * 2 * 4096ULL},
    /* latent attention without values: 27 layers * 1 head * (512 + 64) */
    {"deepseek2", 27, 163840, 2048, 16, 1, 576, {{"attention.key_length_mla", 192, 0, 0}}, 27 * 576 * 2, 27 * 576 * 2 * 163840ULL},
    /* the same model without latent attention: 16 heads of 192 and 128 */
    {"deepseek2", 27, 163840, 2048, 16, 16, 192, {{"attention.value_length", 128, 0, 0}, {"attention.key_length_mla", 0, 0, 0}}, 27 * 16 * 320 * 2, 27 * 16 * 320 * 2 * 163840ULL},
    /* the same, plus keys that select tokens: 61 * (576 + 128) */
    {"deepseek32", 61, 163840, 7168, 128, 1, 576, {{"attention.key_length_mla", 192, 0, 0}, {"attention.indexer.key_length", 128, 0, 0}}, 61 * 704 * 2, 61 * 704 * 2 * 163840ULL},
    /* 12 of 48 layers have attention, with 2 heads of 256 + 256 */
    {"qwen3next", 48, 262144, 2048, 16, 2, 256, {{"full_attention_interval", 4, 0, 0}}, 12 * 2048, 12 * 2048 * 262144ULL},
    /* according to the array, the last of every four layers has attention: 8 of 32 */
    {"qwen35", 32, 262144, 2560, 16, 4, 256, {{"attention.recurrent_layers", 0, 4, 1}}, 8 * 4096, 8 * 4096 * 262144ULL},
    /* 4 of 32 layers have KV heads, each 8 heads of 128 + 128 */
    {"jamba", 32, 262144, 4096, 32, 0, 128, {{"attention.head_count_kv", 8, 8, 0}}, 4 * 4096, 4 * 4096 * 262144ULL},
    /* the last of every eight of 80 layers has attention */
    {"minimax-01", 80, 4096, 6144, 64, 8, 128, {{"attention.recurrent_layers", 0, 8, 1}}, 10 * 4096, 10 * 4096 * 4096ULL},
    /* the last 15 of 35 layers share the caches of earlier layers; of the first 20, every fifth
     * keeps all positions */
    {"gemma3n", 35, 32768, 2048, 8, 2, 256, {WINDOW(512), {"attention.shared_kv_layers", 15, 0, 0}}, 20 * 2048, 2048ULL * (4 * 32768 + 16 * 512)},
    /* the last of 47 layers is used only for prediction, so 46 count */
    {"glm4moe", 47, 131072, 4096, 96, 8, 128, {{"nextn_predict_layers", 1, 0, 0}}, 46 * 4096, 46 * 4096 * 131072ULL},
    /* the model does not declare which layers have windows */
    {"exaone4", 64, 131072, 5120, 40, 8, 128, {WINDOW(4096)}, 64 * 4096, 0},
    /* this architecture has no cache */
    {"mamba", 48, 1048576, 2048, 0, 0, 0, {{0}}, 0, 0},
    {"bert", 12, 512, 384, 12, 0, 0, {{0}}, 0, 0},
};
// clang-format on

static void put_sized(struct build *b, const struct cache_row *row, const struct key *k)
{
    char name[80];
    (void)snprintf(name, sizeof(name), "%s.%s", row->arch, k->name);
    if (k->every == 0) {
        build_u32(b, name, k->number);
        return;
    }
    build_array(b, name, GGUF_I32, row->layers);
    for (uint32_t i = 0; i < row->layers; i++)
        build_item_num(b, GGUF_I32, (i + 1) % k->every == 0 ? k->number : k->other);
}

TEST("cache sizes of published models equal those computed by hand")
{
    for (size_t i = 0; i < sizeof(caches) / sizeof(caches[0]); i++) {
        const struct cache_row *row = &caches[i];
        const struct key plain[] = {{"block_count", row->layers, 0, 0},
                                    {"context_length", row->context, 0, 0},
                                    {"embedding_length", row->width, 0, 0},
                                    {"attention.head_count", row->heads, 0, 0},
                                    {"attention.head_count_kv", row->heads_kv, 0, 0},
                                    {"attention.key_length", row->key, 0, 0}};
        struct cache c = {0};
        struct build b = build_of(3, false);
        build_str(&b, "general.architecture", row->arch);
        for (size_t k = 0; k < sizeof(plain) / sizeof(plain[0]); k++)
            if (plain[k].number)
                put_sized(&b, row, &plain[k]);
        for (size_t k = 0; k < 3 && row->more[k].name; k++)
            put_sized(&b, row, &row->more[k]);
        bool valued = row->more[0].name && strstr(row->more[0].name, "value_length");
        if (row->key && !valued)
            put_sized(&b, row, &(struct key){"attention.value_length", row->key, 0, 0});
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(cache_of(p.g, &c), row->token > 0);
        CU_SAYS(c.token == row->token && c.whole == row->whole, "%s: %llu, %llu", row->arch,
                (unsigned long long)c.token, (unsigned long long)c.whole);
    }
}

/* ==== file names ==== */

/* size, encoding, shard; "" if absent */
static const struct {
    const char *name;
    const char *part[FILE_PARTS];
} good[] = {
    /* examples from the specification */
    {"Mixtral-8x7B-v0.1-KQ2.gguf", {"8x7B", "KQ2", ""}},
    {"Grok-100B-v1.0-Q4_0-00003-of-00009.gguf", {"100B", "Q4_0", "00003-of-00009"}},
    {"Hermes-2-Pro-Llama-3-8B-v1.0-F16.gguf", {"8B", "F16", ""}},
    {"Phi-3-mini-3.8B-ContextLength4k-instruct-v1.0.gguf", {"3.8B-ContextLength4k", "", ""}},
    {"mtp-Qwen3-27B-v1.0-Q4_K_M.gguf", {"27B", "Q4_K_M", ""}},
    {"mmproj-Qwen2-VL-7B-v1.0-F16.gguf", {"7B", "F16", ""}},
    /* other names */
    {"A-7B-v1.gguf", {"7B", "", ""}},
    {"A-7B-v1.2.3-LoRA.gguf", {"7B", "", ""}},
    {"A-7B-v1-Q8_0-vocab.gguf", {"7B", "Q8_0", ""}},
    {"A B-7B-v1.gguf", {"7B", "", ""}},
    {"A-30B-A3B-Chat-2-v1.gguf", {"30B-A3B", "", ""}},
    {"A-7B-v1-v2.gguf", {"7B", "", ""}},
    {"A-7B-v1.0-v2.gguf", {"7B", "v2", ""}},
    {"7B-8B-v1.gguf", {"8B", "", ""}},
    {"mtp-7B-v1.gguf", {"7B", "", ""}},
    {"mtp-A-7B-v1.gguf", {"7B", "", ""}},
};

static const char *const bad[] = {
    "not-a-known-arrangement.gguf", /* from the specification */
    "",
    ".gguf",
    "A-7B-v1",
    "A-7B-v1.bin",
    "A-7B.gguf",
    "A-v1.gguf",
    "7B-v1.gguf",
    "A-7B-1.0.gguf",
    "Hermes-2-Pro-Llama-3-8B-F16.gguf",
    "Qwen2.5-7B-v1.gguf",
    "A-7-v1.gguf",
    "A-7BB-v1.gguf",
    "A-7B-v1-LoRAx.gguf",
    "A-7B-v1-Q8_0-0003-of-0009.gguf",
    "A-7B-v1-F16-Q8.gguf",
    "A_B-7B-v1.gguf",
    "A-7B-C_D-v1.gguf",
    "A-7B-v.gguf",
    "A-7B-v1..gguf",
    "A-7B-v1.x.gguf",
    "A-x7B-v1.gguf",
};

TEST("names that follow the convention are parsed")
{
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct text part[FILE_PARTS];
        CU_ASSERT_TRUE_FATAL(file_name_parse(good[i].name, part));
        for (int k = 0; k < FILE_PARTS; k++) {
            const char *want = good[i].part[k];
            CU_ASSERT_EQUAL(part[k].at != NULL, want[0] != '\0');
            CU_ASSERT_TRUE(!part[k].at || text_is(part[k], want));
        }
    }
}

TEST("names that do not follow the convention are refused")
{
    struct text part[FILE_PARTS];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_FALSE(file_name_parse(bad[i], part));
    char dashes[600];
    memset(dashes, '-', sizeof(dashes));
    memcpy(dashes + sizeof(dashes) - 6, ".gguf", 6);
    CU_ASSERT_FALSE(file_name_parse(dashes, part));
}

TEST("size labels are parsed")
{
    static const struct {
        const char *label;
        uint64_t experts;
        double params;
    } want[] = {{"7B", 0, 7e9},
                {"3.8B", 0, 3.8e9},
                {"8x7B", 8, 7e9},
                {"100M", 0, 100e6},
                {"1.5K-A2b", 0, 1500},
                {"2T", 0, 2e12},
                {"99999999999999999999999x7B", UINT64_MAX, 7e9}};
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        uint64_t experts = 99;
        double params = 0;
        struct text t = {want[i].label, strlen(want[i].label)};
        CU_ASSERT_TRUE(file_size_parse(t, &experts, &params));
        CU_ASSERT_EQUAL(experts, want[i].experts);
        CU_ASSERT_TRUE(fabs(params / want[i].params - 1) < 1e-12);
    }
    uint64_t experts;
    double params;
    CU_ASSERT_FALSE(file_size_parse((struct text){"7Z", 2}, &experts, &params));
    CU_ASSERT_FALSE(file_size_parse((struct text){"B", 1}, &experts, &params));
}

TEST("size labels are compared with the number of parameters")
{
    struct params dense = {7241732096, 7241732096, 0}, mixed = {46702792704, 7241732096, 8};
    CU_ASSERT_TRUE(file_size_fits((struct text){"7B", 2}, &dense));
    CU_ASSERT_FALSE(file_size_fits((struct text){"13B", 3}, &dense));
    CU_ASSERT_FALSE(file_size_fits((struct text){"8x7B", 4}, &dense));
    CU_ASSERT_TRUE(file_size_fits((struct text){"8x7B", 4}, &mixed));
    CU_ASSERT_FALSE(file_size_fits((struct text){"4x7B", 4}, &mixed));
    CU_ASSERT_TRUE(file_size_fits((struct text){"47B", 3}, &mixed));
}

/* ---- suggestions ---- */

static void suggests(struct build *b, const char *want)
{
    CLEANUP(buf_free) struct buf name = BUF_INIT;
    struct text part[FILE_PARTS];
    CLEANUP(parsed_free) struct parsed p = parse_build(b, 0);
    file_name_suggest(p.g, &name);
    buf_char(&name, '\0');
    CU_ASSERT_STRING_EQUAL((const char *)name.data, want);
    CU_ASSERT_TRUE(file_name_parse((const char *)name.data, part));
}

TEST("a name is suggested from the keys")
{
    struct build b = build_of(3, false);
    suggests(&b, "model-0K-v1.0.gguf");

    b = build_of(3, false);
    build_text(&b, "general.name=My Model 7b v2.5 (beta)|>t F32 1000");
    suggests(&b, "My-Model-v2-5-beta-1K-v1.0-F32.gguf");

    b = build_of(3, false);
    build_text(&b, "general.basename=Hermes 2 Pro|general.name=not this|general.size_label=1.1K|"
                   "general.finetune=chat, 4k|general.version=2.1|general.file_type:u32=15|"
                   "split.no:u16=2|split.count:u16=9|>t F32 1000");
    suggests(&b, "Hermes-2-Pro-1.1K-chat-4k-v2.1-Q4_K_M-00003-of-00009.gguf");

    b = build_of(3, false); /* a label that contradicts the parameter count */
    build_text(&b, "general.type=adapter|general.version=new");
    build_str(&b, "general.basename", "\xff/..");
    build_text(&b, "general.architecture=llama|general.size_label=7B|>t 9999 1000 4000");
    suggests(&b, "llama-1K-v1.0-LoRA.gguf");

    b = build_of(3, false);
    build_text(&b, "general.name=mistral|tokenizer.ggml.tokens:array=string[]");
    suggests(&b, "mistral-0K-v1.0-vocab.gguf");
}

#define HEX16 "0123456789abcdef"

/* A SHA-256 is recognised in upper or lower case, with or without ollama's prefix. 63 or 65 digits
 * are not a hash. */
TEST("names that are a hash are recognised")
{
    CU_ASSERT_TRUE(file_name_is_hash(HEX16 HEX16 HEX16 HEX16));
    CU_ASSERT_TRUE(file_name_is_hash("sha256-" HEX16 HEX16 HEX16 "0123456789ABCDEF"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 "0123456789abcde"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 HEX16 "0"));
    CU_ASSERT_FALSE(file_name_is_hash(HEX16 HEX16 HEX16 "0123456789abcdeg"));
    CU_ASSERT_FALSE(file_name_is_hash("sha256-"));
}

/* ==== values ==== */

/* Damage to one block in the middle: `n` bytes at `at`. */
static const struct spoil {
    uint32_t id;
    uint8_t at, n, bytes[8];
    bool nan, inf, scale; /* expected findings; nan, inf: in any value */
} spoils[] = {
    {F32_ID, 0, 4, {0, 0, 0x80, 0x7f}, false, true, false},
    {F32_ID, 0, 4, {1, 0, 0x80, 0xff}, true, false, false},
    {F16_ID, 0, 2, {0, 0xfc}, false, true, false},
    {F16_ID, 0, 2, {0, 0x7e}, true, false, false},
    {BF16_ID, 0, 2, {0x80, 0x7f}, false, true, false},
    {BF16_ID, 0, 2, {0xc0, 0x7f}, true, false, false},
    {F64_ID, 0, 8, {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, false, true, false},
    {F64_ID, 0, 8, {1, 0, 0, 0, 0, 0, 0xf0, 0x7f}, true, false, false},
    {F64_ID, 0, 8, {0, 0, 0, 0, 0, 0, 0xe0, 0x7f}, false, false, false}, /* beyond float32 */
    {I32_ID, 0, 4, {0, 0, 0x80, 0x7f}, false, false, false},
    {Q4_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q4_1_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q5_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q5_1_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q8_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q8_1_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q8_1_ID, 2, 2, {0, 0x7c}, false, false, true}, /* the sum affects no value */
    {Q2_K_ID, 80, 2, {0, 0x7e}, true, false, true},
    {Q2_K_ID, 82, 2, {0, 0x7e}, true, false, true},
    {Q3_K_ID, 108, 2, {0, 0x7e}, true, false, true},
    {Q4_K_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q4_K_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q5_K_ID, 2, 2, {0, 0x7e}, true, false, true},
    {Q6_K_ID, 208, 2, {0, 0x7e}, true, false, true},
    {Q8_K_ID, 0, 4, {0, 0, 0xc0, 0x7f}, true, false, true},
    {IQ2_XXS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ2_XS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ2_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ3_XXS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ3_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ1_S_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ1_M_ID, 48, 8, {0, 0, 0, 0, 0, 0xe0, 0, 0x70}, true, false, true},
    {IQ4_NL_ID, 0, 2, {0, 0x7e}, true, false, true},
    {IQ4_XS_ID, 0, 2, {0, 0x7e}, true, false, true},
    {TQ1_0_ID, 52, 2, {0, 0x7e}, true, false, true},
    {TQ2_0_ID, 64, 2, {0, 0x7e}, true, false, true},
    {MXFP4_ID, 0, 1, {0xff}, false, false, true},
    {NVFP4_ID, 3, 1, {0x7f}, false, false, true},
    {Q1_0_ID, 0, 2, {0, 0x7e}, true, false, true},
    {Q2_0_ID, 0, 2, {0, 0x7e}, true, false, true},
};

enum { BLOCKS = 301, SPOILT = 217 };

/* Return the findings in the first tensor; the second one must have none. */
static struct scan_result scan_one(struct parsed *p)
{
    struct scan_result found[2] = {{0}};
    const struct source src = source_mem(p->image, p->size);
    CU_ASSERT_EQUAL(scan_run(p->g, &src, NULL, found), 0);
    CU_ASSERT_FALSE(found[1].nan || found[1].inf || found[1].scales || found[1].unread);
    return found[0];
}

static struct scan_result scan_blocks(uint32_t id, const uint8_t *bytes, bool big)
{
    const struct quant_type *t = quant_find(id);
    struct build b = build_of(3, big);
    build_tensor(&b, "t", id, (uint64_t[]){t->block_len, BLOCKS}, 2, bytes,
                 (size_t)BLOCKS * t->block_bytes);
    build_tensor(&b, "u", I8_ID, (uint64_t[]){3}, 1, "abc", 3);
    struct parsed p = parse_build(&b, 0);
    struct scan_result r = scan_one(&p);
    parsed_free(&p);
    return r;
}

TEST("bad values and scales of each type are counted")
{
    for (size_t i = 0; i < COUNT(spoils); i++) {
        const struct spoil *s = &spoils[i];
        const struct quant_type *t = quant_find(s->id);
        CLEANUP(free_it) uint8_t *bytes = calloc(BLOCKS, t->block_bytes);
        CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
        struct scan_result r = scan_blocks(s->id, bytes, false);
        CU_ASSERT_FALSE(r.nan || r.inf || r.scales || r.unread);
        memcpy(bytes + SPOILT * t->block_bytes + s->at, s->bytes, s->n);
        r = scan_blocks(s->id, bytes, false);
        CU_ASSERT_EQUAL(r.nan > 0, s->nan);
        CU_ASSERT_EQUAL(r.inf > 0, s->inf);
        CU_ASSERT_EQUAL(r.scales, s->scale);
        CU_ASSERT_TRUE(r.nan + r.inf <= t->block_len);
        if (s->nan || s->inf || s->scale)
            CU_ASSERT_EQUAL(r.first / t->block_len, SPOILT);
    }
}

/* The table above contains every type with scales. */
TEST("every type with scales is tested")
{
    for (uint32_t id = 0; quant_find(id); id++) {
        size_t k = 0;
        while (k < COUNT(spoils) && spoils[k].id != id)
            k++;
        CU_ASSERT_TRUE(spoils[k % (COUNT(spoils))].id == id || quant_find(id)->block_len <= 1);
    }
}

/* A big-endian file, and one with a type that has no values in such files. */
TEST("big-endian files are scanned")
{
    CLEANUP(free_it) uint8_t *bytes = calloc(BLOCKS, 34);
    put_u16(bytes + 5 * 34, 0x7e00, true);
    struct scan_result r = scan_blocks(Q8_0_ID, bytes, true);
    CU_ASSERT_EQUAL(r.nan, 32);
    CU_ASSERT_EQUAL(r.scales, 1);
    CU_ASSERT_EQUAL(r.first, 5 * 32);
    r = scan_blocks(Q5_0_ID, bytes, true);
    CU_ASSERT_TRUE(r.unread);
}

/* Several pieces each have a finding. The one that comes first in the tensor is reported. */
TEST("the first finding of several pieces is reported")
{
    enum { N = 3000000 };
    CLEANUP(free_it) uint8_t *bytes = calloc(N, 4);
    CU_ASSERT_PTR_NOT_NULL_FATAL(bytes);
    for (size_t i = 123457; i < N; i += 1000000)
        put_u32(bytes + 4 * i, 0x7f800000 + (uint32_t)(i & 2), false);
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){N}, 1, bytes, 4 * (size_t)N);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    struct scan_result r = scan_one(&p);
    CU_ASSERT_EQUAL(r.inf, 3);
    CU_ASSERT_EQUAL(r.first, 123457);
}

TEST("data is truncated during a scan")
{
    struct source src;
    struct scan_result found[1] = {{0}};
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){5000}, 1, NULL, 20000);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    int fd = memfd_create("model", MFD_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(write(fd, p.image, p.size), (ssize_t)p.size);
    CU_ASSERT_EQUAL_FATAL(source_fd(fd, &src, NULL), 0);
    CU_ASSERT_EQUAL_FATAL(ftruncate(fd, 100), 0);
    CU_ASSERT_EQUAL(scan_run(p.g, &src, NULL, found), -EIO);
    (void)close(fd);
}

/* Missing data is not read. */
TEST("missing data is not read")
{
    struct build b = build_of(3, false);
    build_tensor(&b, "t", F32_ID, (uint64_t[]){1000}, 1, NULL, 4000);
    CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
    p.size -= 100;
    CU_ASSERT_TRUE(scan_one(&p).unread);
}
