/* SPDX-License-Identifier: MIT */
/* check/check: a model that follows every rule, and models that each break one rule; the report on
 * models that break many, and on files that cannot be parsed. */
#include "cu_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "build_gguf.h"
#include "check/check.h"

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
