/* SPDX-License-Identifier: MIT */
/* check/cache: cache sizes of published models, computed by hand. */
#include "cu_test.h"

#include <stdio.h>
#include <string.h>

#include "check/cache.h"
#include "build_gguf.h"

/* A key without its architecture prefix. If `every` > 0, the value is an array with one item per
 * layer: `number` for the last of every `every` layers, `other` for the rest. */
struct key {
    const char *name;
    uint32_t number, every, other;
};

struct row {
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
static const struct row rows[] = {
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

static void put(struct build *b, const struct row *row, const struct key *k)
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
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
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
                put(&b, row, &plain[k]);
        for (size_t k = 0; k < 3 && row->more[k].name; k++)
            put(&b, row, &row->more[k]);
        bool valued = row->more[0].name && strstr(row->more[0].name, "value_length");
        if (row->key && !valued)
            put(&b, row, &(struct key){"attention.value_length", row->key, 0, 0});
        CLEANUP(parsed_free) struct parsed p = parse_build(&b, 0);
        CU_ASSERT_EQUAL(cache_of(p.g, &c), row->token > 0);
        CU_SAYS(c.token == row->token && c.whole == row->whole, "%s: %llu, %llu", row->arch,
                (unsigned long long)c.token, (unsigned long long)c.whole);
    }
}
