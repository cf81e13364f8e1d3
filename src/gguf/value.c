/* SPDX-License-Identifier: MIT */
/* Metadata values and keys: see value.h. */
#include "gguf/value.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/lock.h"

const struct gguf_type_row gguf_types[GGUF_VALUE_TYPES] = {
    [GGUF_U8] = {"u8", 1, GGUF_KIND_UINT},           [GGUF_I8] = {"i8", 1, GGUF_KIND_INT},
    [GGUF_U16] = {"u16", 2, GGUF_KIND_UINT},         [GGUF_I16] = {"i16", 2, GGUF_KIND_INT},
    [GGUF_U32] = {"u32", 4, GGUF_KIND_UINT},         [GGUF_I32] = {"i32", 4, GGUF_KIND_INT},
    [GGUF_F32] = {"f32", 4, GGUF_KIND_FLOAT},        [GGUF_BOOL] = {"bool", 1, GGUF_KIND_BOOL},
    [GGUF_STRING] = {"string", 0, GGUF_KIND_STRING}, [GGUF_ARRAY] = {"array", 0, GGUF_KIND_ARRAY},
    [GGUF_U64] = {"u64", 8, GGUF_KIND_UINT},         [GGUF_I64] = {"i64", 8, GGUF_KIND_INT},
    [GGUF_F64] = {"f64", 8, GGUF_KIND_FLOAT},
};

/* Read the head of an array: element type, then count (in the first draft, count first). */
static struct gguf_value array_at(const struct gguf_format *fmt, const uint8_t *p)
{
    size_t count_at = fmt->draft ? 0 : 4, elem_at = fmt->draft ? 4 : 0;
    return (struct gguf_value){
        .fmt = fmt,
        .type = GGUF_ARRAY,
        .elem = (uint8_t)get_u32(p + elem_at, fmt->big),
        .count = get_uint(p + count_at, fmt->len_width, fmt->big),
        .data = p + 4 + fmt->len_width,
    };
}

struct gguf_value gguf_value_at(const struct gguf_format *fmt, uint32_t type, const uint8_t *p)
{
    struct gguf_value v = {.fmt = fmt, .type = (uint8_t)type, .data = p};
    if (type == GGUF_ARRAY)
        return array_at(fmt, p);
    if (type != GGUF_STRING) {
        v.len = gguf_types[type].width;
        return v;
    }
    v.len = get_uint(p, fmt->len_width, fmt->big) - (fmt->nul ? 1 : 0);
    v.data = p + fmt->len_width;
    return v;
}

struct gguf_walk gguf_walk(const struct gguf_value *array)
{
    return (struct gguf_walk){array->fmt, array->data, array->count, array->elem};
}

bool gguf_next(struct gguf_walk *w, struct gguf_value *item)
{
    if (w->left == 0)
        return false;
    w->left--;
    *item = gguf_value_at(w->fmt, w->elem, w->at);
    w->at = gguf_value_end(item);
    return true;
}

const uint8_t *gguf_value_end(const struct gguf_value *v)
{
    if (v->type == GGUF_STRING)
        return v->data + v->len + (v->fmt->nul ? 1 : 0);
    if (v->type != GGUF_ARRAY)
        return v->data + v->len;
    if (gguf_types[v->elem].width)
        return v->data + v->count * gguf_types[v->elem].width;
    struct gguf_walk w = gguf_walk(v);
    struct gguf_value item;
    while (gguf_next(&w, &item))
        ;
    return w.at;
}

uint64_t gguf_uint(const struct gguf_value *v)
{
    return get_uint(v->data, (size_t)v->len, v->fmt->big);
}

int64_t gguf_int(const struct gguf_value *v)
{
    uint64_t u = gguf_uint(v);
    switch (v->len) {
    case 1:
        return (int8_t)u;
    case 2:
        return (int16_t)u;
    case 4:
        return (int32_t)u;
    default:
        return (int64_t)u;
    }
}

double gguf_float(const struct gguf_value *v)
{
    uint64_t bits = gguf_uint(v);
    if (v->len == sizeof(double)) {
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    uint32_t low = (uint32_t)bits;
    float f;
    memcpy(&f, &low, sizeof(f));
    return (double)f;
}

const char *gguf_type_name(const struct gguf_value *v, char dst[GGUF_TYPE_NAME_MAX])
{
    if (v->type == GGUF_ARRAY)
        (void)snprintf(dst, GGUF_TYPE_NAME_MAX, "array[%s]", gguf_types[v->elem].name);
    else
        (void)snprintf(dst, GGUF_TYPE_NAME_MAX, "%s", gguf_types[v->type].name);
    return dst;
}

/* ---- keys ---- */

/* Shorthands for the types in the rows. */
#define STR GGUF_STRING, 0, 0
#define BOOL GGUF_BOOL, 0, 0
#define U16 GGUF_U16, 0, 0
#define U32 GGUF_U32, 0, 0
#define I32 GGUF_I32, 0, 0
#define F32 GGUF_F32, 0, 0
#define AMOUNT GGUF_U32, 0, KEY_COUNT
#define COUNTS GGUF_U32, GGUF_I32, KEY_COUNT | KEY_PER_LAYER
#define PATTERN GGUF_U32, GGUF_BOOL, KEY_PER_LAYER
#define SIGN GGUF_U32, 0, KEY_SIGN
#define FLOATS GGUF_F32, GGUF_F32, KEY_PER_LAYER
#define STRS GGUF_ARRAY, GGUF_STRING, 0
#define BOOLS GGUF_ARRAY, GGUF_BOOL, 0
#define U8S GGUF_ARRAY, GGUF_U8, 0
#define U32S GGUF_ARRAY, GGUF_U32, 0
#define I32S GGUF_ARRAY, GGUF_I32, 0
#define F32S GGUF_ARRAY, GGUF_F32, 0

// clang-format off
const struct key_row key_table[] = {
    /* General information */
    {"general.architecture", STR}, {"general.type", STR}, {"general.quantization_version", U32},
    {"general.alignment", U32}, {"general.file_type", U32}, {"general.name", STR},
    {"general.author", STR}, {"general.version", STR}, {"general.organization", STR},
    {"general.basename", STR}, {"general.finetune", STR}, {"general.description", STR},
    {"general.quantized_by", STR}, {"general.size_label", STR}, {"general.license", STR},
    {"general.license.name", STR}, {"general.license.link", STR}, {"general.url", STR},
    {"general.doi", STR}, {"general.uuid", STR}, {"general.repo_url", STR}, {"general.tags", STRS},
    {"general.languages", STRS}, {"general.datasets", STRS}, {"general.source.url", STR},
    {"general.source.doi", STR}, {"general.source.uuid", STR}, {"general.source.repo_url", STR},
    {"general.source.huggingface.repository", STR}, {"general.base_model.count", U32},
    {"general.base_model.{i}.name", STR}, {"general.base_model.{i}.author", STR},
    {"general.base_model.{i}.version", STR}, {"general.base_model.{i}.organization", STR},
    {"general.base_model.{i}.description", STR}, {"general.base_model.{i}.url", STR},
    {"general.base_model.{i}.doi", STR}, {"general.base_model.{i}.uuid", STR},
    {"general.base_model.{i}.repo_url", STR}, {"general.dataset.count", U32},
    {"general.dataset.{i}.name", STR}, {"general.dataset.{i}.author", STR},
    {"general.dataset.{i}.version", STR}, {"general.dataset.{i}.organization", STR},
    {"general.dataset.{i}.description", STR}, {"general.dataset.{i}.url", STR},
    {"general.dataset.{i}.doi", STR}, {"general.dataset.{i}.uuid", STR},
    {"general.dataset.{i}.repo_url", STR},
    /* Recommended sampling */
    {"general.sampling.sequence", STR}, {"general.sampling.top_k", I32},
    {"general.sampling.penalty_last_n", I32}, {"general.sampling.mirostat", I32},
    {"general.sampling.top_p", F32}, {"general.sampling.min_p", F32},
    {"general.sampling.xtc_probability", F32}, {"general.sampling.xtc_threshold", F32},
    {"general.sampling.temp", F32}, {"general.sampling.penalty_repeat", F32},
    {"general.sampling.mirostat_tau", F32}, {"general.sampling.mirostat_eta", F32},
    /* All architectures */
    {"[arch].context_length", AMOUNT}, {"[arch].embedding_length", AMOUNT},
    {"[arch].block_count", AMOUNT}, {"[arch].vocab_size", AMOUNT},
    {"[arch].feed_forward_length", COUNTS}, {"[arch].use_parallel_residual", BOOL},
    {"[arch].expert_weights_norm", BOOL}, {"[arch].swin_norm", BOOL},
    {"[arch].tensor_data_layout", STR}, {"[arch].expert_count", U32},
    {"[arch].expert_used_count", U32}, {"[arch].expert_shared_count", U32},
    {"[arch].expert_group_count", U32}, {"[arch].expert_group_used_count", U32},
    {"[arch].expert_gating_func", U32}, {"[arch].experts_per_group", U32},
    {"[arch].expert_feed_forward_length", U32}, {"[arch].expert_shared_feed_forward_length", U32},
    {"[arch].expert_chunk_feed_forward_length", U32}, {"[arch].moe_every_n_layers", U32},
    {"[arch].moe_latent_size", U32}, {"[arch].interleave_moe_layer_step", U32},
    {"[arch].nextn_predict_layers", U32}, {"[arch].n_deepstack_layers", U32},
    {"[arch].leading_dense_block_count", U32}, {"[arch].full_attention_interval", U32},
    {"[arch].embedding_length_out", U32}, {"[arch].embedding_length_per_layer_input", U32},
    {"[arch].features_length", U32}, {"[arch].pooling_type", U32},
    {"[arch].decoder_start_token_id", SIGN}, {"[arch].decoder_block_count", U32},
    {"[arch].rescale_every_n_layers", U32}, {"[arch].time_mix_extra_dim", U32},
    {"[arch].time_decay_extra_dim", U32}, {"[arch].token_shift_count", U32},
    {"[arch].architecture_version", U32}, {"[arch].altup.active_idx", U32},
    {"[arch].altup.num_inputs", U32}, {"[arch].expert_weights_scale", F32},
    {"[arch].expert_group_scale", F32}, {"[arch].logit_scale", F32},
    {"[arch].attn_logit_softcapping", F32}, {"[arch].router_logit_softcapping", F32},
    {"[arch].final_logit_softcapping", F32}, {"[arch].residual_scale", F32},
    {"[arch].embedding_scale", F32}, {"[arch].activation_sparsity_scale", F32S},
    {"[arch].swiglu_clamp_exp", FLOATS}, {"[arch].swiglu_clamp_shexp", FLOATS},
    {"[arch].hidden_activation", STR}, {"[arch].activation.situ_beta", F32},
    {"[arch].activation.situ_linear_beta", F32}, {"[arch].expert_latent_length", U32},
    {"[arch].dense_2_feat_in", U32}, {"[arch].dense_2_feat_out", U32},
    {"[arch].dense_3_feat_in", U32}, {"[arch].dense_3_feat_out", U32},
    {"[arch].deepstack_mapping", I32S}, {"[arch].hash_layer_count", U32},
    {"[arch].num_loops", U32}, {"[arch].skip_loop_final_norm", BOOL}, {"[arch].block_size", U32},
    {"[arch].selector_rank", U32}, {"[arch].selector_top_k", U32}, {"[arch].target_layers", I32S},
    {"[arch].target_hidden_size", U32}, {"[arch].norm_before_fc", BOOL},
    {"[arch].norm_before_residual", BOOL}, {"[arch].conv_group_size", U32},
    {"[arch].conv_kernel_size", U32}, {"[arch].adapters.count", U32},
    {"[arch].adapters.lora_rank", U32}, {"[arch].adapters.router_gain", F32},
    {"[arch].adapters.token_ids_activate", I32S}, {"[arch].adapters.token_ids_substitute", I32S},
    {"[arch].hyper_connection.count", U32}, {"[arch].hyper_connection.epsilon", F32},
    {"[arch].hyper_connection.low_rank", U32}, {"[arch].hyper_connection.magnitude", F32},
    {"[arch].hyper_connection.sinkhorn_iterations", U32}, {"[arch].hrm.h_cycles", U32},
    {"[arch].hrm.l_cycles", U32}, {"[arch].hrm.layers_per_stack", U32},
    {"[arch].hrm.prefix_lm", BOOL},
    /* Attention */
    {"[arch].attention.head_count", COUNTS}, {"[arch].attention.head_count_kv", COUNTS},
    {"[arch].attention.key_length", U32}, {"[arch].attention.value_length", U32},
    {"[arch].attention.key_length_mla", U32}, {"[arch].attention.value_length_mla", U32},
    {"[arch].attention.key_length_swa", U32}, {"[arch].attention.value_length_swa", U32},
    {"[arch].attention.sliding_window", U32}, {"[arch].attention.shared_kv_layers", U32},
    {"[arch].attention.group_norm_groups", U32}, {"[arch].attention.q_lora_rank", U32},
    {"[arch].attention.kv_lora_rank", U32}, {"[arch].attention.decay_lora_rank", U32},
    {"[arch].attention.iclr_lora_rank", U32},
    {"[arch].attention.value_residual_mix_lora_rank", U32},
    {"[arch].attention.gate_lora_rank", U32}, {"[arch].attention.relative_buckets_count", U32},
    {"[arch].attention.temperature_length", U32}, {"[arch].attention.indexer.head_count", U32},
    {"[arch].attention.indexer.key_length", U32}, {"[arch].attention.indexer.top_k", U32},
    {"[arch].attention.indexer.block_size", U32},
    {"[arch].attention.indexer.local_blocks", U32}, {"[arch].attention.indexer.types", PATTERN},
    {"[arch].attention.key_length_mla_swa", U32}, {"[arch].attention.value_length_mla_swa", U32},
    {"[arch].attention.kv_lora_rank_swa", U32}, {"[arch].attention.output_group_count", U32},
    {"[arch].attention.output_lora_rank", U32}, {"[arch].attention.recurrent_layers", PATTERN},
    {"[arch].attention.compress_ratios", I32S},
    {"[arch].attention.compress_rope_freq_base", F32}, {"[arch].attention.value_scale", F32},
    {"[arch].attn_res.block_size", U32},
    {"[arch].attention.sliding_window_pattern", PATTERN}, {"[arch].attention.max_alibi_bias", F32},
    {"[arch].attention.alibi_bias_max", F32}, {"[arch].attention.clamp_kqv", F32},
    {"[arch].attention.clip_kqv", F32}, {"[arch].attention.layer_norm_epsilon", F32},
    {"[arch].attention.layer_norm_rms_epsilon", F32}, {"[arch].attention.group_norm_epsilon", F32},
    {"[arch].attention.scale", F32}, {"[arch].attention.output_scale", F32},
    {"[arch].attention.temperature_scale", F32}, {"[arch].attention.causal", BOOL},
    {"[arch].attention.use_norm", BOOL},
    /* Positional encoding */
    {"[arch].rope.dimension_count", AMOUNT}, {"[arch].rope.dimension_count_swa", U32},
    {"[arch].rope.scaling.original_context_length", U32}, {"[arch].rope.dimension_sections", I32S | KEY_SIGN},
    {"[arch].rope.freq_base", F32}, {"[arch].rope.freq_base_swa", F32}, {"[arch].rope.scale", F32},
    {"[arch].rope.scale_linear", F32}, {"[arch].rope.scaling.factor", F32},
    {"[arch].rope.scaling.alpha", F32}, {"[arch].rope.scaling.attn_factor", F32},
    {"[arch].rope.scaling.yarn_log_multiplier", F32}, {"[arch].rope.scaling.yarn_ext_factor", F32},
    {"[arch].rope.scaling.yarn_attn_factor", F32}, {"[arch].rope.scaling.yarn_beta_fast", F32},
    {"[arch].rope.scaling.yarn_beta_slow", F32}, {"[arch].rope.scaling.type", STR},
    {"[arch].rope.scaling.finetuned", BOOL},
    /* Recurrent, convolutional and other layers */
    {"[arch].ssm.conv_kernel", U32}, {"[arch].ssm.inner_size", U32}, {"[arch].ssm.state_size", U32},
    {"[arch].ssm.time_step_rank", U32}, {"[arch].ssm.group_count", U32},
    {"[arch].ssm.dt_b_c_rms", BOOL}, {"[arch].kda.head_dim", U32}, {"[arch].kda.safe_gate", BOOL},
    {"[arch].kda.gate_lower_bound", F32}, {"[arch].wkv.head_size", U32},
    {"[arch].posnet.embedding_length", U32}, {"[arch].posnet.block_count", U32},
    {"[arch].convnext.embedding_length", U32}, {"[arch].convnext.block_count", U32},
    {"[arch].shortconv.l_cache", U32}, {"[arch].classifier.output_labels", STRS},
    /* Encoder and decoder (whisper) */
    {"[arch].encoder.context_length", AMOUNT}, {"[arch].encoder.embedding_length", AMOUNT},
    {"[arch].encoder.block_count", AMOUNT}, {"[arch].encoder.mels_count", AMOUNT},
    {"[arch].encoder.attention.head_count", AMOUNT}, {"[arch].decoder.context_length", AMOUNT},
    {"[arch].decoder.embedding_length", AMOUNT}, {"[arch].decoder.block_count", AMOUNT},
    {"[arch].decoder.attention.head_count", AMOUNT},
    /* Tokenizer. Writers spell one key "seperator"; the specification spells it "separator" */
    {"tokenizer.ggml.model", STR}, {"tokenizer.ggml.pre", STR}, {"tokenizer.ggml.tokens", STRS},
    {"tokenizer.ggml.merges", STRS}, {"tokenizer.ggml.added_tokens", STRS},
    {"tokenizer.ggml.scores", F32S}, {"tokenizer.ggml.token_type", I32S},
    {"tokenizer.ggml.precompiled_charsmap", U8S}, {"tokenizer.ggml.token_type_count", U32},
    {"tokenizer.ggml.bos_token_id", U32}, {"tokenizer.ggml.eos_token_id", U32},
    {"tokenizer.ggml.eot_token_id", U32}, {"tokenizer.ggml.eom_token_id", U32},
    {"tokenizer.ggml.unknown_token_id", U32}, {"tokenizer.ggml.separator_token_id", U32},
    {"tokenizer.ggml.seperator_token_id", U32}, {"tokenizer.ggml.padding_token_id", U32},
    {"tokenizer.ggml.mask_token_id", U32}, {"tokenizer.ggml.cls_token_id", U32},
    {"tokenizer.ggml.fim_pre_token_id", U32}, {"tokenizer.ggml.fim_suf_token_id", U32},
    {"tokenizer.ggml.fim_mid_token_id", U32}, {"tokenizer.ggml.fim_pad_token_id", U32},
    {"tokenizer.ggml.fim_rep_token_id", U32}, {"tokenizer.ggml.fim_sep_token_id", U32},
    {"tokenizer.ggml.prefix_token_id", U32}, {"tokenizer.ggml.suffix_token_id", U32},
    {"tokenizer.ggml.middle_token_id", U32}, {"tokenizer.ggml.add_bos_token", BOOL},
    {"tokenizer.ggml.add_eos_token", BOOL}, {"tokenizer.ggml.add_sep_token", BOOL},
    {"tokenizer.ggml.add_space_prefix", BOOL}, {"tokenizer.ggml.remove_extra_whitespaces", BOOL},
    {"tokenizer.ggml.suppress_tokens", I32S}, {"tokenizer.ggml.normalizer.lowercase", BOOL},
    {"tokenizer.ggml.normalizer.strip_accents", BOOL}, {"tokenizer.huggingface.json", STR}, {"tokenizer.rwkv.world", STR},
    {"tokenizer.chat_template", STR}, {"tokenizer.chat_template.{name}", STR},
    {"tokenizer.chat_templates", STRS},
    /* Split models */
    {"split.no", U16}, {"split.count", U16}, {"split.tensors.count", I32},
    /* Adapters, importance matrices, quantisation */
    {"adapter.type", STR}, {"adapter.lora.task_name", STR}, {"adapter.lora.prompt_prefix", STR},
    {"adapter.lora.alpha", F32}, {"adapter.alora.invocation_tokens", U32S},
    {"imatrix.chunk_count", U32}, {"imatrix.chunk_size", U32}, {"imatrix.datasets", STRS},
    {"quantize.imatrix.file", STR}, {"quantize.imatrix.dataset", STR},
    {"quantize.imatrix.entries_count", SIGN}, {"quantize.imatrix.chunks_count", SIGN},
    /* Vision and audio */
    {"clip.projector_type", STR}, {"clip.vision.projector_type", STR},
    {"clip.audio.projector_type", STR}, {"clip.has_vision_encoder", BOOL},
    {"clip.has_audio_encoder", BOOL}, {"clip.has_llava_projector", BOOL}, {"clip.use_gelu", BOOL},
    {"clip.use_silu", BOOL}, {"clip.vision.image_size", U32}, {"clip.vision.image_min_pixels", U32},
    {"clip.vision.image_max_pixels", U32}, {"clip.vision.preproc_min_tiles", U32},
    {"clip.vision.preproc_max_tiles", U32}, {"clip.vision.preproc_image_size", U32},
    {"clip.vision.patch_size", U32}, {"clip.vision.embedding_length", U32},
    {"clip.vision.feed_forward_length", U32}, {"clip.vision.projection_dim", U32},
    {"clip.vision.block_count", U32}, {"clip.vision.spatial_merge_size", U32},
    {"clip.vision.n_wa_pattern", U32}, {"clip.vision.window_size", U32},
    {"clip.vision.attention.head_count", U32}, {"clip.vision.projector.scale_factor", U32},
    {"clip.vision.sam.block_count", U32}, {"clip.vision.sam.embedding_length", U32},
    {"clip.vision.sam.head_count", U32}, {"clip.vision.attention.layer_norm_epsilon", F32},
    {"clip.vision.image_mean", F32S}, {"clip.vision.image_std", F32S},
    {"clip.vision.wa_layer_indexes", I32S}, {"clip.vision.is_deepstack_layers", BOOLS},
    {"clip.audio.num_mel_bins", U32}, {"clip.audio.embedding_length", U32},
    {"clip.audio.feed_forward_length", U32}, {"clip.audio.projection_dim", U32},
    {"clip.audio.block_count", U32}, {"clip.audio.subsampling_factor", U32},
    {"clip.audio.attention.head_count", U32}, {"clip.audio.projector.stack_factor", U32},
    {"clip.audio.attention.layer_norm_epsilon", F32}, {"diffusion.shift_logits", BOOL},
    {"xielu.alpha_p", FLOATS}, {"xielu.alpha_n", FLOATS}, {"xielu.beta", FLOATS}, {"xielu.eps", FLOATS},
};
// clang-format on

const size_t key_table_len = sizeof(key_table) / sizeof(key_table[0]);

/* First segments that are not architecture names. */
static const char *const reserved[] = {"general", "tokenizer", "split", "adapter",
                                       "imatrix", "quantize",  "clip",  "ggufs"};

static bool equals(const char *s, size_t n, const char *word)
{
    return n == strlen(word) && memcmp(s, word, n) == 0;
}

static bool is_architecture(const char *s, size_t n)
{
    for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
        if (equals(s, n, reserved[i]))
            return false;
    return n > 0;
}

static bool is_numeric(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] < '0' || s[i] > '9')
            return false;
    return n > 0;
}

static bool segment_matches(const char *pattern, size_t pn, const char *s, size_t n)
{
    if (equals(pattern, pn, "[arch]"))
        return is_architecture(s, n);
    if (equals(pattern, pn, "{i}"))
        return is_numeric(s, n);
    if (equals(pattern, pn, "{name}"))
        return n > 0;
    return pn == n && memcmp(pattern, s, n) == 0;
}

/* Return the length of the first segment, up to a dot or the end. */
static size_t segment(const char *s, size_t n)
{
    const char *dot = memchr(s, '.', n);
    return dot ? (size_t)(dot - s) : n;
}

static bool matches(const char *pattern, const char *key, size_t n)
{
    for (size_t left = strlen(pattern);;) {
        size_t ps = segment(pattern, left), ks = segment(key, n);
        if (!segment_matches(pattern, ps, key, ks))
            return false;
        if (ps == left || ks == n)
            return ps == left && ks == n;
        pattern += ps + 1;
        left -= ps + 1;
        key += ks + 1;
        n -= ks + 1;
    }
}

/* Chains of rows whose last segments have the same hash. Rows are numbered from 1; 0 ends a
 * chain. */
static uint16_t first_row[256], next_row[sizeof(key_table) / sizeof(key_table[0])];

/* Return the hash of the last segment, or 0 for a placeholder, which matches many segments. */
static uint8_t hash_last(const char *s, size_t n)
{
    uint32_t h = 1;
    if (n && s[n - 1] == '}')
        return 0;
    for (; n && s[n - 1] != '.'; n--)
        h = h * 31 + (uint8_t)s[n - 1];
    return (uint8_t)(1 + (h ^ h >> 8 ^ h >> 16) % 255);
}

static void link_rows(void)
{
    for (size_t i = key_table_len; i-- > 0;) {
        uint8_t h = hash_last(key_table[i].pattern, strlen(key_table[i].pattern));
        next_row[i] = first_row[h];
        first_row[h] = (uint16_t)(i + 1);
    }
}

const struct key_row *key_find(const char *key, size_t n)
{
    static struct once linked = ONCE_INIT;
    if (n == 0 || n > KEY_MAX) /* without this, every row would search a huge key for dots */
        return NULL;
    once_run(&linked, link_rows);
    const uint16_t chains[] = {first_row[hash_last(key, n)], first_row[0]};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = chains[k]; i; i = next_row[i - 1])
            if (matches(key_table[i - 1].pattern, key, n))
                return &key_table[i - 1];
    return NULL;
}

/* Accept u32 and i32 in a per-layer array of integers or bools, and where KEY_SIGN says so, because
 * writers and readers mix these types; llama.cpp refuses every other integer type there. */
static bool elem_fits(const struct key_row *row, uint32_t elem)
{
    const bool floats = row->elem == GGUF_F32, mixed = elem == GGUF_U32 || elem == GGUF_I32;
    return elem == row->elem || ((row->flags & (KEY_PER_LAYER | KEY_SIGN)) && !floats && mixed);
}

bool key_type_fits(const struct key_row *row, uint32_t type, uint32_t elem)
{
    if (type == GGUF_ARRAY)
        return (row->type == GGUF_ARRAY || (row->flags & KEY_PER_LAYER)) && elem_fits(row, elem);
    return type == row->type || ((row->flags & KEY_SIGN) && type == GGUF_I32);
}

static bool is_lower_snake(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_lenient(char c)
{
    return is_lower_snake(c) || (c >= 'A' && c <= 'Z') || c == '-';
}

static bool segments_of(const char *key, size_t n, bool (*allowed)(char))
{
    if (n == 0 || n > KEY_MAX)
        return false;
    bool empty = true; /* the current segment is empty so far */
    for (size_t i = 0; i < n; i++) {
        if (key[i] == '.' ? empty : !allowed(key[i]))
            return false;
        empty = key[i] == '.';
    }
    return !empty;
}

bool key_valid(const char *key, size_t n)
{
    return segments_of(key, n, is_lenient);
}

bool key_lower_snake(const char *key, size_t n)
{
    return segments_of(key, n, is_lower_snake);
}

bool key_is_own(const char *key, size_t n)
{
    return equals(key, n, KEY_RESERVE) || text_begins((struct text){key, n}, KEY_SPLIT_PREFIX);
}
