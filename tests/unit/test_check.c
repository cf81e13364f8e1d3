/* SPDX-License-Identifier: MIT */
/* check/check: a model that keeps every rule, and for each rule models that break only it. */
#include "cu_main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "parsed.h"

enum { F32 = 0, Q4_0 = 2, TOKENS = 4, WIDTH = 32, NO_SUCH = 9999 };

static const char good_name[] = "Tiny-1K-v1.0-Q4_0.gguf";

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

/* In the order in which they are put; value 0: by the function. */
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
    {"llama.feed_forward_length", NULL, 64, NULL},
    {"llama.rope.dimension_count", NULL, 8, NULL},
    {"llama.attention.head_count", NULL, 4, NULL},
    {"llama.attention.layer_norm_rms_epsilon", NULL, 0, put_rms},
    {"tokenizer.ggml.tokens", NULL, 0, put_vocabulary},
    {"tokenizer.ggml.bos_token_id", NULL, 1, NULL},
};

static void put_keys(struct build *b, const char *without)
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

static void put_tensors(struct build *b)
{
    build_tensor(b, "token_embd.weight", F32, (uint64_t[]){WIDTH, TOKENS}, 2, NULL,
                 4 * WIDTH * TOKENS);
    build_tensor(b, "blk.0.attn_q.weight", Q4_0, (uint64_t[]){WIDTH, WIDTH}, 2, NULL, 18 * WIDTH);
}

/* ---- what breaks a rule ---- */

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
    small_tensor(b, "output.bias");
    b->no_tail = true;
}

static void dirty(struct build *b)
{
    small_tensor(b, "output.bias");
    b->pad_byte = 1;
}

static void align_4(struct build *b)
{
    b->alignment = 4;
    build_u32(b, "general.alignment", 4);
}

static void gap(struct build *b)
{
    build_tensor_at(b, "output.bias", F32, (uint64_t[]){8}, 1, 2048, NULL, 32);
}

static void swapped(struct build *b)
{
    build_tensor_at(b, "output.bias", F32, (uint64_t[]){8}, 1, 1120, NULL, 32);
    build_tensor_at(b, "output.weight", F32, (uint64_t[]){8}, 1, 1088, NULL, 32);
}

static void long_name(struct build *b)
{
    char name[66] = {0};
    memset(name, 'x', 65);
    small_tensor(b, name);
}

static void ggml_name(struct build *b)
{
    char name[65] = {0};
    memset(name, 'x', 64);
    small_tensor(b, name);
}

static void five_dims(struct build *b)
{
    build_tensor(b, "output.bias", F32, (uint64_t[]){3, 1, 1, 1, 1}, 5, NULL, 12);
}

static void unknown_type(struct build *b)
{
    build_tensor(b, "output.bias", NO_SUCH, (uint64_t[]){3}, 1, NULL, 32);
}

static void gone_type(struct build *b)
{
    build_tensor(b, "output.bias", 4, (uint64_t[]){32}, 1, NULL, 32);
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

static void odd_architecture(struct build *b)
{
    build_str(b, "general.architecture", "Llama 2");
}

static void dash_architecture(struct build *b)
{
    build_str(b, "general.architecture", "command-r");
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

static void far_token(struct build *b)
{
    build_u32(b, "tokenizer.ggml.eos_token_id", TOKENS);
}

static void other_vocabulary(struct build *b)
{
    build_u32(b, "llama.vocab_size", TOKENS + 1);
}

static void five_heads(struct build *b)
{
    build_u32(b, "llama.attention.head_count", 5);
}

static void five_long_heads(struct build *b)
{
    five_heads(b);
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
        build_item_num(b, GGUF_I32, 64);
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
    build_num(b, "llama.block_count", GGUF_U64, UINT64_MAX);
}

static void second_block(struct build *b)
{
    small_tensor(b, "blk.1.attn_norm.weight");
}

static void own_name(struct build *b)
{
    small_tensor(b, "rope_freqs.weight");
}

static void wrong_label(struct build *b)
{
    build_str(b, "general.size_label", "7B");
}

static void right_label(struct build *b)
{
    build_str(b, "general.size_label", "1K");
}

static void other_version(struct build *b)
{
    build_str(b, "general.version", "v2.0");
}

static void part_of_two(struct build *b)
{
    build_num(b, "split.no", GGUF_U16, 1);
    build_num(b, "split.count", GGUF_U16, 2);
}

/* ---- the table ---- */

struct row {
    const char *rule; /* the only one that tells something; NULL: none does */
    enum check_severity severity;
    const char *without; /* a key that is left out */
    void (*add)(struct build *b);
    const char *file; /* its name, if not the good one */
    uint8_t version;  /* if not 3 */
    bool big;
    uint8_t cut; /* bytes that the file lacks */
};

// clang-format off
static const struct row rows[] = {
    {.rule = NULL},
    {"missing", CHECK_ERROR, .cut = 40},
    {"version", CHECK_WARNING, .version = 1}, {.version = 2},
    {"version", CHECK_NOTE, .big = true},
    {"alignment", CHECK_WARNING, .add = align_4},
    {"order", CHECK_WARNING, .add = swapped},
    {"gaps", CHECK_WARNING, .add = gap},
    {"tail", CHECK_WARNING, .add = no_tail},
    {"trailing", CHECK_WARNING, .add = trailing},
    {"padding", CHECK_WARNING, .add = dirty},
    {"tensor-name", CHECK_ERROR, .add = long_name},
    {"tensor-name", CHECK_WARNING, .add = ggml_name},
    {"tensor-dims", CHECK_ERROR, .add = five_dims},
    {"tensor-type", CHECK_ERROR, .add = unknown_type},
    {"tensor-type", CHECK_ERROR, .add = gone_type},
    {"key-syntax", CHECK_WARNING, .add = upper_key},
    {"key-syntax", CHECK_ERROR, .add = no_key},
    {"key-type", CHECK_ERROR, .add = wrong_type},
    {"key-type", CHECK_ERROR, .without = "general.file_type", .add = wide_number},
    {NULL, 0, .without = "llama.context_length", .add = wide_count},
    {"utf8", CHECK_WARNING, .add = not_utf8},
    {"bool", CHECK_WARNING, .add = odd_bool},
    {"nested", CHECK_WARNING, .add = nested},
    {"architecture", CHECK_ERROR, .without = "general.architecture"},
    {"architecture", CHECK_WARNING, .without = "general.architecture", .add = odd_architecture},
    {"architecture", CHECK_NOTE, .without = "general.architecture", .add = dash_architecture},
    {"required", CHECK_ERROR, .without = "llama.context_length"},
    {"required", CHECK_ERROR, .without = "llama.attention.layer_norm_rms_epsilon"},
    {"quantization-version", CHECK_ERROR, .without = "general.quantization_version"},
    {"split", CHECK_ERROR, .add = half_split},
    {"split", CHECK_ERROR, .add = far_split},
    {"tokenizer-arrays", CHECK_ERROR, .add = few_scores},
    {"token-types", CHECK_WARNING, .add = odd_token_type}, {.add = token_types},
    {"token-ids", CHECK_ERROR, .add = far_token}, {.add = last_token},
    {"vocabulary", CHECK_WARNING, .add = other_vocabulary},
    {"heads", CHECK_ERROR, .without = "llama.attention.head_count", .add = five_heads},
    {NULL, 0, .without = "llama.attention.head_count", .add = five_long_heads},
    {"heads", CHECK_ERROR, .add = three_kv_heads},
    {"per-layer", CHECK_ERROR, .without = "llama.feed_forward_length", .add = two_lengths},
    {NULL, 0, .without = "llama.feed_forward_length", .add = one_length},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .add = two_blocks},
    {"blocks", CHECK_ERROR, .without = "llama.block_count", .add = many_blocks},
    {"blocks", CHECK_WARNING, .add = second_block},
    {"tensor-known", CHECK_NOTE, .add = own_name},
    {"size-label", CHECK_WARNING, .add = wrong_label}, {.add = right_label},
    {"file-name", CHECK_WARNING, .file = "model.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-7B-v1.0-Q4_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-1K-v1.0-Q5_0.gguf"},
    {"file-name", CHECK_WARNING, .file = "Tiny-1K-v1.0-Q4_0-00001-of-00002.gguf"},
    {"file-name", CHECK_WARNING, .add = part_of_two},
    {"file-name", CHECK_WARNING, .without = "general.version", .add = other_version},
    {.file = "Tiny-1K-Chat-v1.0.gguf"},
    {.file = "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
};
// clang-format on

#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* What a row's rule told, and what others did (notes of others do not count). */
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

static void run_row(const struct row *row)
{
    struct build b;
    struct told told = {.row = row};
    size_t n;
    struct gguf *g = NULL;
    build_init(&b, row->version ? row->version : 3, row->big);
    put_keys(&b, row->without);
    put_tensors(&b);
    if (row->add)
        row->add(&b);
    uint8_t *image = build_finish(&b, &n);
    struct source src = source_mem(image, n - row->cut);
    CU_ASSERT_EQUAL_FATAL(gguf_parse(&src, row->cut ? GGUF_PARTIAL : 0, &g, NULL), 0);
    struct check_model m = {.g = g, .src = &src, .file = row->file ? row->file : good_name};
    CU_ASSERT_EQUAL(check_rules(&m, sink, &told), 0);
    CU_ASSERT_EQUAL(told.other, 0);
    CU_ASSERT_EQUAL(told.own > 0, row->rule != NULL);
    CU_ASSERT_EQUAL(told.worst, row->severity);
    if (told.other || (told.own > 0) != (row->rule != NULL) || told.worst != row->severity)
        (void)printf("    row %d (%s)\n", (int)(row - rows), row->rule ? row->rule : "good");
    gguf_free(g);
    free(image);
}

static void test_rows(void)
{
    for (size_t i = 0; i < ROWS; i++)
        run_row(&rows[i]);
}

static void test_each_rule(void)
{
    for (size_t i = 0; check_rule_id(i); i++) {
        size_t k = 0;
        while (k < ROWS && (!rows[k].rule || strcmp(rows[k].rule, check_rule_id(i)) != 0))
            k++;
        CU_ASSERT_TRUE(k < ROWS);
    }
}

static CU_TestInfo tests[] = {
    {"a good model, and models that break one rule each", test_rows},
    {"no rule is without a model that breaks it", test_each_rule},
    CU_TEST_INFO_NULL,
};

CU_MAIN("check", tests)
