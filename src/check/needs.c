/* SPDX-License-Identifier: MIT */
/* What models need, by architecture: see needs.h. */
#include "check/needs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/count.h"

// clang-format off
const struct need_tensors need_tensors[] = {
    {"",
     "afmoe arcee arctic bailingmoe3 bitnet chameleon chatglm cogvlm cohere2 cohere2moe "
     "command-r deci deepseek deepseek2 deepseek2-ocr deepseek32 dots3note dream ernie4_5 "
     "ernie4_5-moe eurobert exaone exaone4 falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma4 "
     "glm-dsa glm4 glm4moe granite granite_swa granitehybrid granitemoe grok grovemoe "
     "hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 jamba laguna llada llama llama-embed llama4 "
     "maincoder mamba mamba2 minicpm minicpm3 minimax-01 mistral3 mistral4 mpt nanbeige "
     "nemotron_h nemotron_h_moe openelm paddleocr pangu-embedded phi3 plamo2 plamo3 plm qwen2 "
     "qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3tts qwen3vl qwen3vlmoe refact rnd1 "
     "seed_oss smallthinker smollm3 step35",
     "output_norm token_embd"},
    {"",
     "apertus arwkv7 baichuan bailingmoe bailingmoe2 dbrx dots1 exaone-moe gpt-oss internlm2 "
     "kimi-k3 kimi-linear llada-moe maple mimo2 minimax-m2 minimax-m3 muse-glimmer olmo2 olmoe "
     "plamo qwen qwen2moe rwkv6qwen2 xverse",
     "output output_norm token_embd"},
    {"", "gptneox jais nemotron orion stablelm", "output output_norm output_norm.bias token_embd"},
    {"", "falcon jais2 pockettts starcoder2", "output_norm output_norm.bias token_embd"},
    {"", "jina-bert-v3 nomic-bert nomic-bert-moe",
     "token_embd token_embd_norm token_embd_norm.bias"},
    {"", "neo-bert t5encoder", "enc.output_norm token_embd"},
    {"", "phi2 phimoe", "output output.bias output_norm output_norm.bias token_embd"},
    {"", "gpt2 starcoder", "output_norm output_norm.bias position_embd token_embd"},
    {"", "lfm2 lfm2moe", "token_embd token_embd_norm"},
    {"", "gemma3n",
     "altup_proj altup_unembd_proj output_norm per_layer_model_proj per_layer_proj_norm "
     "per_layer_token_embd token_embd"},
    {"", "t5", "dec.output_norm enc.output_norm token_embd"},
    {"", "hy_v4", "output output_hc_base output_hc_fn output_hc_scale output_norm token_embd"},
    {"", "codeshell", "output output_norm output_norm.bias"},
    {"", "rwkv7",
     "output output_norm output_norm.bias token_embd token_embd_norm token_embd_norm.bias"},
    {"", "talkie", "output token_embd"},
    {"", "bloom", "output_norm output_norm.bias token_embd token_embd_norm token_embd_norm.bias"},
    {"", "modern-bert", "output_norm token_embd token_embd_norm"},
    {"", "bert", "position_embd token_embd token_embd_norm token_embd_norm.bias"},
    {"", "olmo", "token_embd"},
    {"", "jina-bert-v2", "token_embd token_embd_norm token_embd_norm.bias token_types"},
    {"blk",
     "baichuan dream ernie4_5 eurobert exaone gemma internlm2 llada nanbeige paddleocr qwen2 "
     "qwen2vl smollm3 xverse",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_norm ffn_up"},
    {"blk", "chameleon hunyuan-dense hunyuan_vl maincoder qwen3 qwen3tts qwen3vl",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down ffn_gate "
     "ffn_norm ffn_up"},
    {"blk", "llada-moe maple olmoe qwen3moe qwen3vlmoe rnd1",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down_exps "
     "ffn_gate_exps ffn_gate_inp ffn_norm ffn_up_exps"},
    {"blk", "llama llama-embed minicpm mistral3 refact",
     "attn_norm attn_q attn_k attn_v attn_output ffn_norm (ffn_down ffn_gate "
     "ffn_up|ffn_down_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "bloom gpt2 gptneox starcoder",
     "attn_norm attn_qkv attn_output attn_norm.bias attn_output.bias attn_qkv.bias ffn_down "
     "ffn_down.bias ffn_norm ffn_norm.bias ffn_up ffn_up.bias"},
    {"blk", "codeshell jais2 starcoder2",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias attn_output.bias ffn_down "
     "ffn_down.bias ffn_norm ffn_norm.bias ffn_up ffn_up.bias"},
    {"blk", "cohere2 command-r plamo",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_up"},
    {"blk", "deepseek deepseek2-ocr llama4",
     "attn_norm attn_q attn_k attn_v attn_output ffn_norm (ffn_down ffn_gate "
     "ffn_up|ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp)"},
    {"blk", "ernie4_5-moe granite granitemoe",
     "attn_norm attn_q attn_k attn_v attn_output ffn_norm (ffn_down ffn_gate "
     "ffn_up|ffn_down_exps ffn_down_shexp ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp|ffn_down_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "arcee chatglm",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_norm ffn_up"},
    {"blk", "bert jina-bert-v3",
     "attn_q attn_k attn_v attn_output attn_output_norm attn_output_norm.bias ffn_down ffn_up "
     "layer_output_norm layer_output_norm.bias"},
    {"blk", "deepseek2 mistral4",
     "attn_norm attn_kv_a_mqa attn_kv_a_norm attn_output ffn_norm (attn_k_b attn_v_b|attn_kv_b) "
     "(attn_q|attn_q_a attn_q_a_norm attn_q_b) (ffn_down ffn_gate ffn_up|ffn_down_exps "
     "ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp)"},
    {"blk", "dots1 exaone-moe",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_norm (ffn_down "
     "ffn_gate ffn_up|ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp "
     "ffn_up_exps ffn_up_shexp)"},
    {"blk", "exaone4 olmo2",
     "attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down ffn_gate ffn_up "
     "post_attention_norm post_ffw_norm"},
    {"blk", "gemma-embedding gemma3",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down ffn_gate "
     "ffn_norm ffn_up post_attention_norm post_ffw_norm"},
    {"blk", "mimo2 step35", "attn_norm attn_q attn_k attn_v attn_output ffn_norm"},
    {"blk", "mpt neo-bert", "attn_norm attn_qkv attn_output ffn_down ffn_norm ffn_up"},
    {"blk", "nemotron_h nemotron_h_moe",
     "attn_norm (attn_q attn_k attn_v attn_output|ssm_a~ ssm_conv1d ssm_dt.bias ssm_d~ ssm_in "
     "ssm_norm ssm_out)"},
    {"enc.blk", "t5 t5encoder", "attn_norm attn_q attn_k attn_v attn_o ffn_down ffn_norm ffn_up"},
    {"blk", "afmoe",
     "attn_norm attn_q attn_k attn_v attn_output attn_gate attn_k_norm attn_q_norm ffn_norm "
     "post_attention_norm post_ffw_norm (exp_probs_b.bias ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp|exp_probs_b.bias "
     "ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_up_exps|ffn_down ffn_gate ffn_up)"},
    {"blk", "apertus",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down ffn_norm "
     "ffn_up"},
    {"blk", "arctic",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_down_exps ffn_gate ffn_gate_exps "
     "ffn_gate_inp ffn_norm ffn_norm_exps ffn_up ffn_up_exps"},
    {"blk", "arwkv7",
     "attn_norm ffn_down ffn_gate ffn_norm ffn_up time_mix_a0 time_mix_a1 time_mix_a2 "
     "time_mix_k_a time_mix_k_k time_mix_key time_mix_lerp_fused time_mix_output time_mix_r_k "
     "time_mix_receptance time_mix_v0 time_mix_v1 time_mix_v2 time_mix_value time_mix_w0 "
     "time_mix_w1 time_mix_w2"},
    {"blk", "bailingmoe",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down_exps ffn_down_shexp ffn_gate_exps "
     "ffn_gate_inp ffn_gate_shexp ffn_norm ffn_up_exps ffn_up_shexp"},
    {"blk", "bailingmoe2",
     "attn_norm attn_qkv attn_output attn_k_norm attn_q_norm ffn_norm (ffn_down ffn_gate "
     "ffn_up|ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp)"},
    {"blk", "bailingmoe3",
     "attn_norm attn_output ffn_norm (attn_gate attn_k_b attn_kv_a_mqa attn_kv_a_norm attn_q_a "
     "attn_q_a_norm attn_q_b attn_v_b|attn_q attn_gate attn_k_b attn_kv_a_mqa attn_kv_a_norm "
     "attn_v_b|attn_q attn_k attn_v ssm_a~ ssm_beta ssm_conv1d_k ssm_conv1d_q ssm_conv1d_v "
     "ssm_dt.bias ssm_f_a ssm_g_a ssm_norm) (exp_probs_b.bias ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp|ffn_down ffn_gate "
     "ffn_up)"},
    {"blk", "bitnet",
     "attn_norm attn_q attn_k attn_v attn_output attn_sub_norm ffn_down ffn_gate ffn_norm "
     "ffn_sub_norm ffn_up"},
    {"blk", "cogvlm",
     "attn_norm attn_qkv attn_output ffn_down ffn_gate ffn_norm ffn_up vis_attn_output "
     "vis_attn_qkv vis_down vis_gate vis_up"},
    {"blk", "cohere2moe",
     "attn_norm attn_q attn_k attn_v attn_output (ffn_down ffn_gate ffn_up|ffn_down_exps "
     "ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp|ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "dbrx",
     "attn_norm attn_qkv attn_output attn_output_norm ffn_down_exps ffn_gate_exps ffn_gate_inp "
     "ffn_up_exps"},
    {"blk", "deci",
     "attn_norm attn_output (|attn_q attn_k attn_v) (|ffn_down ffn_gate ffn_norm ffn_up)"},
    {"blk", "deepseek32",
     "attn_norm attn_output attn_k_b attn_kv_a_mqa attn_kv_a_norm attn_q_a attn_q_a_norm "
     "attn_q_b attn_v_b ffn_norm indexer.attn_k indexer.attn_q_b indexer.k_norm "
     "indexer.k_norm.bias indexer.proj (ffn_down ffn_gate ffn_up|ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp)"},
    {"blk", "dots3note",
     "attn_norm attn_output attn_gate attn_k_b attn_k_norm attn_kv_a_mqa attn_kv_a_norm attn_q_a "
     "attn_q_a_norm attn_q_b attn_v_b ffn_norm indexer.attn_k indexer.attn_q_b indexer.k_norm "
     "indexer.k_norm.bias indexer.proj (exp_probs_b.bias ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp|ffn_down ffn_gate "
     "ffn_up)"},
    {"blk", "falcon", "attn_norm attn_qkv attn_output attn_norm.bias ffn_down ffn_up"},
    {"blk", "falcon-h1",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_norm~ ffn_up ssm_a~ "
     "ssm_conv1d ssm_dt.bias ssm_d~ ssm_in ssm_out"},
    {"blk", "gemma2",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_norm ffn_up "
     "post_attention_norm post_ffw_norm"},
    {"blk", "gemma3n",
     "attn_norm attn_q attn_k attn_v attn_output altup_correct_coef altup_correct_scale "
     "altup_predict_coef altup_router altup_router_norm attn_k_norm attn_q_norm ffn_down "
     "ffn_gate ffn_norm ffn_up inp_gate laurel_l laurel_post_norm laurel_r post_attention_norm "
     "post_ffw_norm post_norm proj"},
    {"blk", "gemma4",
     "attn_norm attn_q attn_k attn_output attn_k_norm attn_q_norm ffn_down ffn_gate ffn_norm "
     "ffn_up post_attention_norm post_ffw_norm (|inp_gate post_norm proj)"},
    {"blk", "glm-dsa",
     "attn_norm attn_output attn_k_b attn_kv_a_mqa attn_kv_a_norm attn_q_a attn_q_a_norm "
     "attn_q_b attn_v_b ffn_norm (ffn_down ffn_gate ffn_up|ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp)"},
    {"blk", "glm4",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_norm ffn_up post_attention_norm "
     "post_ffw_norm"},
    {"blk", "glm4moe",
     "attn_norm attn_q attn_k attn_v attn_output post_attention_norm (exp_probs_b.bias "
     "ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp|exp_probs_b.bias ffn_down_exps ffn_gate_exps ffn_gate_inp "
     "ffn_up_exps|ffn_down ffn_gate ffn_up)"},
    {"blk", "gpt-oss",
     "attn_norm attn_q attn_k attn_v attn_output attn_output.bias attn_sinks ffn_down_exps "
     "ffn_down_exps.bias ffn_gate_exps ffn_gate_exps.bias ffn_gate_inp ffn_gate_inp.bias "
     "ffn_up_exps ffn_up_exps.bias post_attention_norm"},
    {"blk", "granite_swa",
     "attn_norm attn_q attn_k attn_v attn_output attn_sinks ffn_norm (ffn_down ffn_gate "
     "ffn_up|ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_up_exps "
     "ffn_up_shexp|ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "granitehybrid",
     "attn_norm ffn_norm (attn_q attn_k attn_v attn_output|ssm_a~ ssm_conv1d ssm_dt.bias ssm_d~ "
     "ssm_in ssm_norm ssm_out) (ffn_down ffn_gate ffn_up|ffn_down_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "grok",
     "attn_norm attn_q attn_k attn_v attn_output attn_output_norm ffn_down_exps ffn_gate_inp "
     "ffn_norm ffn_up_exps post_ffw_norm"},
    {"blk", "grovemoe",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down_chexps "
     "ffn_down_exps ffn_gate_chexps ffn_gate_exps ffn_gate_inp ffn_norm ffn_up_chexps "
     "ffn_up_exps"},
    {"blk", "hunyuan-moe",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_down_exps "
     "ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_norm ffn_up_exps ffn_up_shexp"},
    {"blk", "hy_v3",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_norm"},
    {"blk", "hy_v4",
     "attn_norm attn_output attn_gate attn_k_b attn_kv_a_mqa attn_kv_a_norm attn_q_a "
     "attn_q_a_norm attn_q_b attn_sinks attn_v_b ffn_norm hc_attn_base hc_attn_fn hc_attn_scale "
     "hc_ffn_base hc_ffn_fn hc_ffn_scale (ffn_down ffn_gate ffn_up|ffn_down_exps ffn_down_shexp "
     "ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps ffn_up_shexp)"},
    {"blk", "jais",
     "attn_norm attn_qkv attn_output attn_norm.bias attn_output.bias attn_qkv.bias ffn_down "
     "ffn_down.bias ffn_gate ffn_gate.bias ffn_norm ffn_norm.bias ffn_up ffn_up.bias"},
    {"blk", "jamba",
     "attn_norm ffn_down ffn_gate ffn_norm ffn_up (attn_q attn_k attn_v attn_output|ssm_a~ "
     "ssm_b_norm ssm_c_norm ssm_conv1d ssm_conv1d.bias ssm_dt ssm_dt.bias ssm_dt_norm ssm_d~ "
     "ssm_in ssm_out ssm_x)"},
    {"blk", "jina-bert-v2",
     "attn_q attn_k attn_v attn_output attn_output.bias attn_output_norm attn_output_norm.bias "
     "ffn_down ffn_down.bias ffn_up layer_output_norm layer_output_norm.bias"},
    {"blk", "kimi-k3",
     "attn_norm attn_q attn_output ffn_norm (attn_k attn_v attn_res_score ssm_a~ ssm_beta "
     "ssm_conv1d_k ssm_conv1d_q ssm_conv1d_v ssm_dt.bias ssm_f_a ssm_f_b ssm_g ssm_norm|attn_k_b "
     "attn_kv_a_mqa attn_kv_a_norm attn_res_score attn_v_b|attn_k_b attn_kv_a_mqa attn_kv_a_norm "
     "attn_v_b) (exp_probs_b.bias ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_res_score "
     "ffn_routed_down ffn_routed_up ffn_up_exps|exp_probs_b.bias ffn_down_exps ffn_gate_exps "
     "ffn_gate_inp ffn_res_score ffn_up_exps|exp_probs_b.bias ffn_down_exps ffn_gate_exps "
     "ffn_gate_inp ffn_routed_down ffn_routed_up ffn_up_exps|ffn_down ffn_gate ffn_res_score "
     "ffn_up|ffn_down ffn_gate ffn_up)"},
    {"blk", "kimi-linear",
     "attn_norm attn_q attn_output ffn_norm (attn_k attn_v ssm_a~ ssm_beta ssm_conv1d_k "
     "ssm_conv1d_q ssm_conv1d_v ssm_dt.bias ssm_f_a ssm_f_b ssm_g_a ssm_g_b ssm_norm|attn_k_b "
     "attn_kv_a_mqa attn_kv_a_norm attn_v_b) (exp_probs_b.bias ffn_down_exps ffn_gate_exps "
     "ffn_gate_inp ffn_up_exps|ffn_down ffn_gate ffn_up)"},
    {"blk", "laguna",
     "attn_norm attn_q attn_k attn_v attn_output attn_gate attn_k_norm attn_q_norm ffn_norm "
     "(exp_probs_b.bias ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp "
     "ffn_up_exps ffn_up_shexp|ffn_down ffn_gate ffn_up)"},
    {"blk", "lfm2",
     "attn_norm ffn_down ffn_gate ffn_norm ffn_up (attn_q attn_k attn_v attn_output attn_k_norm "
     "attn_q_norm|shortconv.conv shortconv.in_proj shortconv.out_proj)"},
    {"blk", "lfm2moe",
     "attn_norm ffn_norm (attn_q attn_k attn_v attn_output attn_k_norm "
     "attn_q_norm|shortconv.conv shortconv.in_proj shortconv.out_proj) (exp_probs_b.bias "
     "ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_up_exps|ffn_down ffn_gate ffn_up)"},
    {"blk", "mamba",
     "attn_norm ssm_a~ ssm_conv1d ssm_conv1d.bias ssm_dt ssm_dt.bias ssm_d~ ssm_in ssm_out ssm_x"},
    {"blk", "mamba2",
     "attn_norm ssm_a~ ssm_conv1d ssm_conv1d.bias ssm_dt.bias ssm_d~ ssm_in ssm_norm ssm_out"},
    {"blk", "minicpm3",
     "attn_norm attn_output attn_kv_a_mqa attn_kv_a_norm attn_kv_b attn_q_a attn_q_a_norm "
     "attn_q_b ffn_down ffn_gate ffn_norm ffn_up"},
    {"blk", "minimax-01",
     "attn_norm attn_output ffn_down_exps ffn_gate_inp ffn_norm ffn_up_exps (attn_q attn_k "
     "attn_v|attn_qkv attn_gate attn_norm_2)"},
    {"blk", "minimax-m2",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm exp_probs_b.bias "
     "ffn_down_exps ffn_gate_exps ffn_gate_inp ffn_norm ffn_up_exps"},
    {"blk", "minimax-m3",
     "attn_norm attn_q attn_k attn_v attn_output attn_k_norm attn_q_norm ffn_norm "
     "(|indexer.k_norm indexer.k_proj indexer.q_norm indexer.q_proj) (exp_probs_b.bias "
     "ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_shexp ffn_up_exps "
     "ffn_up_shexp|ffn_down ffn_gate ffn_up)"},
    {"blk", "modern-bert", "attn_qkv attn_output ffn_down ffn_norm ffn_up (|attn_norm)"},
    {"blk", "muse-glimmer",
     "attn_norm attn_q attn_k attn_v attn_output attn_gate attn_k_norm attn_q_norm ffn_down "
     "ffn_gate ffn_norm ffn_up post_attention_norm post_ffw_norm"},
    {"blk", "nemotron",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias ffn_down ffn_norm ffn_norm.bias "
     "ffn_up"},
    {"blk", "nomic-bert",
     "attn_q attn_k attn_v attn_output attn_output_norm attn_output_norm.bias ffn_down ffn_gate "
     "ffn_up layer_output_norm layer_output_norm.bias"},
    {"blk", "nomic-bert-moe",
     "attn_q attn_k attn_v attn_output attn_output_norm attn_output_norm.bias layer_output_norm "
     "layer_output_norm.bias (ffn_down ffn_up|ffn_down_exps ffn_gate_inp ffn_up_exps)"},
    {"blk", "olmo", "attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_up"},
    {"blk", "openelm",
     "attn_norm attn_qkv attn_output attn_k_norm attn_q_norm ffn_down ffn_gate ffn_norm ffn_up"},
    {"blk", "orion",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias ffn_down ffn_gate ffn_norm "
     "ffn_norm.bias ffn_up"},
    {"blk", "pangu-embedded",
     "attn_norm attn_q attn_k attn_v attn_output attn_output.bias ffn_down ffn_gate ffn_norm "
     "ffn_up"},
    {"blk", "phi2",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias attn_output.bias ffn_down "
     "ffn_down.bias ffn_up ffn_up.bias"},
    {"blk", "phi3", "attn_norm attn_output ffn_down ffn_norm ffn_up"},
    {"blk", "phimoe",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias attn_output.bias ffn_down_exps "
     "ffn_gate_exps ffn_gate_inp ffn_norm ffn_norm.bias ffn_up_exps"},
    {"blk", "plamo2",
     "attn_norm ffn_down ffn_norm ffn_up post_attention_norm~ post_ffw_norm~ (attn_qkv "
     "attn_output attn_k_norm attn_q_norm|ssm_a~ ssm_b_norm~ ssm_c_norm~ ssm_conv1d ssm_dt "
     "ssm_dt.bias ssm_dt_norm~ ssm_d~ ssm_in ssm_out ssm_x)"},
    {"blk", "plamo3",
     "attn_norm attn_qkv attn_output attn_k_norm attn_q_norm ffn_down ffn_norm ffn_up "
     "post_attention_norm~ post_ffw_norm~"},
    {"blk", "plm",
     "attn_norm attn_q attn_output attn_kv_a_mqa attn_kv_a_norm attn_kv_b ffn_down ffn_norm "
     "ffn_up"},
    {"blk", "pockettts",
     "attn_norm attn_output attn_norm.bias ffn_down ffn_norm ffn_norm.bias ffn_up"},
    {"blk", "qwen",
     "attn_norm attn_qkv attn_output attn_qkv.bias ffn_down ffn_gate ffn_norm ffn_up"},
    {"blk", "qwen2moe",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down_exps ffn_down_shexp ffn_gate_exps "
     "ffn_gate_inp ffn_gate_inp_shexp ffn_gate_shexp ffn_norm ffn_up_exps ffn_up_shexp"},
    {"blk", "qwen35",
     "attn_norm ffn_down ffn_gate ffn_up post_attention_norm (attn_q attn_k attn_v attn_output "
     "attn_k_norm attn_q_norm|ssm_alpha ssm_a~ ssm_beta ssm_conv1d ssm_dt.bias ssm_norm ssm_out)"},
    {"blk", "qwen35moe",
     "attn_norm ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_inp_shexp "
     "ffn_gate_shexp ffn_up_exps ffn_up_shexp post_attention_norm (attn_q attn_k attn_v "
     "attn_output attn_k_norm attn_q_norm|ssm_alpha ssm_a~ ssm_beta ssm_conv1d ssm_dt.bias "
     "ssm_norm ssm_out)"},
    {"blk", "qwen3next",
     "attn_norm ffn_down_exps ffn_down_shexp ffn_gate_exps ffn_gate_inp ffn_gate_inp_shexp "
     "ffn_gate_shexp ffn_up_exps ffn_up_shexp post_attention_norm (attn_q attn_k attn_v "
     "attn_output attn_k_norm attn_q_norm|ssm_a~ ssm_ba ssm_conv1d ssm_dt.bias ssm_norm ssm_out)"},
    {"blk", "rwkv6qwen2",
     "attn_norm ffn_down ffn_gate ffn_norm ffn_up time_mix_decay time_mix_decay_w1 "
     "time_mix_decay_w2 time_mix_gate time_mix_key time_mix_lerp_fused time_mix_lerp_x "
     "time_mix_output time_mix_receptance time_mix_value time_mix_w1 time_mix_w2"},
    {"blk", "rwkv7",
     "attn_norm attn_norm.bias attn_norm_2 attn_norm_2.bias channel_mix_key channel_mix_lerp_k "
     "channel_mix_value time_mix_a0 time_mix_a1 time_mix_a2 time_mix_g1 time_mix_g2 time_mix_k_a "
     "time_mix_k_k time_mix_key time_mix_lerp_fused time_mix_ln time_mix_ln.bias time_mix_output "
     "time_mix_r_k time_mix_receptance time_mix_v0 time_mix_v1 time_mix_v2 time_mix_value "
     "time_mix_w0 time_mix_w1 time_mix_w2"},
    {"blk", "seed_oss",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down ffn_gate ffn_up post_attention_norm"},
    {"blk", "smallthinker",
     "attn_norm attn_q attn_k attn_v attn_output ffn_down_exps ffn_gate_exps ffn_gate_inp "
     "ffn_norm ffn_up_exps"},
    {"blk", "stablelm",
     "attn_norm attn_q attn_k attn_v attn_output attn_norm.bias ffn_down ffn_gate ffn_up"},
    {"dec.blk", "t5",
     "attn_norm attn_q attn_k attn_v attn_o cross_attn_k cross_attn_norm cross_attn_o "
     "cross_attn_q cross_attn_v ffn_down ffn_norm ffn_up"},
    {"blk", "talkie",
     "attn_q attn_k attn_v attn_output attn_q_norm ffn_down ffn_gate ffn_up layer_output_scale"},
};

const struct need_shape need_shapes[] = {
    {".altup_proj", "E,E,3", NULL}, {".altup_unembd_proj", "E,E,3", NULL},
    {".cls", "E,1", "jina-bert-v2"},
    {".cls", "E,E", NULL},
    {".cls.bias", "1", "jina-bert-v2"},
    {".cls.bias", "E", NULL}, {".cls.norm", "E", NULL}, {".cls.output", "E,1", NULL},
    {".cls.output.bias", "1", NULL}, {".dec.output_norm", "E", NULL},
    {".enc.output_norm", "E", NULL},
    {".output", "", "qwen3tts"},
    {".output", "E,N", NULL}, {".output.bias", "N", NULL}, {".output_hc_scale", "1", NULL},
    {".output_norm", "E", NULL}, {".output_norm.bias", "E", NULL},
    {".output_res_score", "E", NULL},
    {".per_layer_proj_norm", "", "gemma3n"},
    {".per_layer_proj_norm", "p", NULL}, {".position_embd", "E,C", NULL},
    {".rope_factors_long", "", "phimoe"},
    {".rope_factors_long", "R/2", NULL},
    {".rope_factors_short", "", "phimoe"},
    {".rope_factors_short", "R/2", NULL},
    {".rope_freqs", "", "step35"},
    {".rope_freqs", "K/2", "gemma4"},
    {".rope_freqs", "R/2", NULL}, {".token_embd", "E,N", NULL}, {".token_embd_norm", "E", NULL},
    {".token_embd_norm.bias", "E", NULL}, {".token_types", "E,2", NULL},
    {"altup_correct_coef", "4,4", NULL}, {"altup_correct_scale", "E", NULL},
    {"altup_predict_coef", "4,44", NULL}, {"altup_router", "E,4", NULL},
    {"altup_router_norm", "E", NULL},
    {"attn_gate", "E,HK", "afmoe minimax-01 muse-glimmer"},
    {"attn_gate", "E,Hv", "hy_v4"},
    {"attn_gate", "E,H|E,st", "kimi-k3"},
    {"attn_gate", "E,st", "qwen35 qwen35moe qwen3next"},
    {"attn_gate", "E,H", NULL},
    {"attn_k", "E,E", "bailingmoe3 deepseek2-ocr kimi-k3 kimi-linear"},
    {"attn_k", "E,GK",
     "afmoe arcee chatglm deci exaone exaone-moe exaone4 falcon-h1 gemma gemma-embedding gemma2 "
     "gemma3 gemma3n gemma4 glm4 glm4moe granite granite_swa granitehybrid granitemoe "
     "hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 jais2 laguna llada llama llama-embed llama4 "
     "maple mimo2 minicpm minimax-01 mistral3 muse-glimmer nanbeige nemotron_h nemotron_h_moe "
     "pangu-embedded qwen35 qwen35moe qwen3next refact seed_oss smollm3 step35 t5 t5encoder"},
    {"attn_k", "E,GR", "bailingmoe gpt-oss"},
    {"attn_k", "E,HK", "dots1"},
    {"attn_k", "E,GV", NULL},
    {"attn_k.bias", "E", "bailingmoe3 deepseek2-ocr kimi-k3 kimi-linear"},
    {"attn_k.bias", "GK",
     "afmoe arcee chatglm deci exaone exaone-moe exaone4 falcon-h1 gemma gemma-embedding gemma2 "
     "gemma3 gemma3n glm4 glm4moe granite granite_swa granitehybrid granitemoe hunyuan-dense "
     "hunyuan-moe hunyuan_vl hy_v3 jais2 laguna llada llama llama-embed llama4 maple mimo2 "
     "minicpm minimax-01 mistral3 muse-glimmer nanbeige nemotron_h nemotron_h_moe pangu-embedded "
     "qwen35 qwen35moe qwen3next refact seed_oss smollm3 step35"},
    {"attn_k.bias", "GR", "bailingmoe gpt-oss"},
    {"attn_k.bias", "HK", "dots1"},
    {"attn_k.bias", "GV", NULL}, {"attn_k.scale~", "1", NULL},
    {"attn_k_b", "", "bailingmoe3 dots3note kimi-k3 kimi-linear"},
    {"attn_k_b", "k-R,r,H", NULL},
    {"attn_k_norm", "", "olmo2"},
    {"attn_k_norm", "E", "jina-bert-v2 mpt olmoe"},
    {"attn_k_norm", "GK", "minimax-m2"},
    {"attn_k_norm", "K,G", "chameleon plamo2 stablelm"},
    {"attn_k_norm", "R", "dots3note"},
    {"attn_k_norm", "K", NULL},
    {"attn_k_norm.bias", "K", "apertus"},
    {"attn_k_norm.bias", "K,G", "chameleon"},
    {"attn_k_norm.bias", "E", NULL},
    {"attn_kv_a_mqa", "", "dots3note"},
    {"attn_kv_a_mqa", "E,R+r", NULL},
    {"attn_kv_a_norm", "", "dots3note"},
    {"attn_kv_a_norm", "r", NULL},
    {"attn_kv_b", "", "minicpm3 plm"},
    {"attn_kv_b", "r,HK-HR+HV|r,Hk-HR+Hv", "kimi-k3 kimi-linear"},
    {"attn_kv_b", "r,HK-HR+HV", NULL}, {"attn_norm", "E", NULL}, {"attn_norm.bias", "E", NULL},
    {"attn_norm_2", "HK", "minimax-01"},
    {"attn_norm_2", "E", NULL}, {"attn_norm_2.bias", "E", NULL}, {"attn_o", "GV,E", NULL},
    {"attn_output", "", "dots3note"},
    {"attn_output", "E,E",
     "arctic baichuan bert bitnet bloom chameleon chatglm codeshell cohere2 command-r dbrx "
     "deepseek deepseek2-ocr dream eurobert exaone4 falcon gpt2 gptneox grok internlm2 jais "
     "jamba jina-bert-v2 jina-bert-v3 lfm2 lfm2moe llada-moe modern-bert mpt nemotron neo-bert "
     "nomic-bert nomic-bert-moe olmo olmo2 olmoe orion phi2 phi3 phimoe plamo pockettts qwen "
     "qwen2 qwen2moe qwen2vl stablelm starcoder starcoder2 xverse"},
    {"attn_output", "HR,E", "bailingmoe gpt-oss"},
    {"attn_output", "HV,E", "mimo2 plamo3 step35"},
    {"attn_output", "HV,E|Hv,E", "bailingmoe3 deepseek2 kimi-k3 kimi-linear mistral4"},
    {"attn_output", "Hv,E", "deepseek32 glm-dsa hy_v4 minicpm3 plamo2 plm"},
    {"attn_output", "HK,E", NULL}, {"attn_output.bias", "E", NULL},
    {"attn_output.scale~", "1", NULL}, {"attn_output_norm", "E", NULL},
    {"attn_output_norm.bias", "E", NULL},
    {"attn_q", "", "kimi-k3 kimi-linear"},
    {"attn_q", "E,2HK", "qwen35 qwen35moe qwen3next"},
    {"attn_q", "E,E",
     "arctic baichuan bert bitnet chameleon codeshell cohere2 command-r deepseek deepseek2-ocr "
     "dream eurobert grok internlm2 jamba jina-bert-v2 jina-bert-v3 lfm2 lfm2moe llada-moe "
     "nemotron nomic-bert nomic-bert-moe olmo olmo2 olmoe orion phi2 phi3 phimoe plamo pockettts "
     "qwen2 qwen2moe qwen2vl stablelm starcoder2 xverse"},
    {"attn_q", "E,E|E,Hk", "bailingmoe3"},
    {"attn_q", "E,GK", "t5 t5encoder"},
    {"attn_q", "E,HR", "bailingmoe gpt-oss"},
    {"attn_q", "E,Hk", "deepseek2 mistral4"},
    {"attn_q", "E,HK", NULL},
    {"attn_q.bias", "2HK", "qwen35 qwen35moe qwen3next"},
    {"attn_q.bias", "E",
     "arctic baichuan bailingmoe3 bert chameleon codeshell cohere2 command-r deepseek "
     "deepseek2-ocr dream eurobert grok internlm2 jamba jina-bert-v2 jina-bert-v3 kimi-k3 "
     "kimi-linear lfm2 lfm2moe llada-moe nemotron nomic-bert nomic-bert-moe olmo olmo2 olmoe "
     "orion phi2 phi3 phimoe plamo pockettts qwen2 qwen2moe qwen2vl stablelm starcoder2 xverse"},
    {"attn_q.bias", "HR", "bailingmoe gpt-oss"},
    {"attn_q.bias", "HK", NULL}, {"attn_q.scale~", "1", NULL}, {"attn_q_a", "E,q", NULL},
    {"attn_q_a_norm", "q", NULL},
    {"attn_q_b", "", "dots3note"},
    {"attn_q_b", "q,HK|q,Hk", "bailingmoe3 deepseek2 mistral4"},
    {"attn_q_b", "q,Hk", NULL},
    {"attn_q_norm", "1,H", "talkie"},
    {"attn_q_norm", "E", "jina-bert-v2 mpt olmo2 olmoe"},
    {"attn_q_norm", "HK", "minimax-m2"},
    {"attn_q_norm", "K,H", "chameleon plamo2 stablelm"},
    {"attn_q_norm", "K", NULL},
    {"attn_q_norm.bias", "K", "apertus"},
    {"attn_q_norm.bias", "K,H", "chameleon"},
    {"attn_q_norm.bias", "E", NULL},
    {"attn_qkv", "", "qwen35 qwen35moe qwen3next"},
    {"attn_qkv", "E,3E", "bailingmoe3 deepseek2-ocr kimi-k3 kimi-linear modern-bert qwen"},
    {"attn_qkv", "E,3HK", "cogvlm dots1"},
    {"attn_qkv", "E,3HK|E,HK+GK+GV", "minimax-01"},
    {"attn_qkv", "E,HK+2GK", "exaone-moe maple openelm seed_oss"},
    {"attn_qkv", "E,HK+2GV",
     "apertus cohere2moe ernie4_5 ernie4_5-moe grovemoe maincoder minimax-m2 minimax-m3 "
     "paddleocr qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe rnd1 smallthinker talkie"},
    {"attn_qkv", "E,HK+GK+GV",
     "afmoe arcee chatglm deci exaone exaone4 falcon-h1 gemma gemma-embedding gemma2 gemma3 "
     "gemma3n gemma4 glm4 glm4moe granite granite_swa granitehybrid granitemoe hunyuan-dense "
     "hunyuan-moe hunyuan_vl hy_v3 jais2 laguna llada llama llama-embed llama4 minicpm mistral3 "
     "muse-glimmer nanbeige nemotron_h nemotron_h_moe pangu-embedded plamo2 plamo3 refact "
     "smollm3"},
    {"attn_qkv", "E,HK+GK+GV|E,ts+2gs", "mimo2 step35"},
    {"attn_qkv", "E,HR+2GR", "bailingmoe gpt-oss"},
    {"attn_qkv", "E,2GV+E", NULL},
    {"attn_qkv.bias", "3E", "qwen"},
    {"attn_qkv.bias", "4E", "qwen35 qwen35moe"},
    {"attn_qkv.bias", "2GV+E", NULL}, {"attn_rel_b", "H,b", NULL}, {"attn_res_score", "E", NULL},
    {"attn_sinks", "H", NULL}, {"attn_sub_norm", "E", NULL},
    {"attn_v", "E,E", "bailingmoe3 deepseek2-ocr kimi-k3 kimi-linear"},
    {"attn_v", "E,GK", "exaone-moe maple seed_oss"},
    {"attn_v", "E,GR", "bailingmoe gpt-oss"},
    {"attn_v", "E,HK", "dots1"},
    {"attn_v", "E,GV", NULL},
    {"attn_v.bias", "E", "bailingmoe3 deepseek2-ocr kimi-k3 kimi-linear"},
    {"attn_v.bias", "GK", "exaone-moe maple seed_oss"},
    {"attn_v.bias", "GR", "bailingmoe gpt-oss"},
    {"attn_v.bias", "HK", "dots1"},
    {"attn_v.bias", "GV", NULL}, {"attn_v.scale~", "1", NULL},
    {"attn_v_b", "", "bailingmoe3 dots3note kimi-k3 kimi-linear"},
    {"attn_v_b", "r,v,H", NULL}, {"channel_mix_key", "E,F", NULL},
    {"channel_mix_lerp_k", "E,1,1", NULL}, {"channel_mix_value", "F,E", NULL},
    {"cross_attn_k", "E,GK", NULL}, {"cross_attn_norm", "E", NULL}, {"cross_attn_o", "GV,E", NULL},
    {"cross_attn_q", "E,GK", NULL}, {"cross_attn_rel_b", "H,b", NULL},
    {"cross_attn_v", "E,GV", NULL}, {"exp_probs_b.bias", "X", NULL}, {"exp_probs_b~", "X", NULL},
    {"ffn.act.scales~", "F", NULL},
    {"ffn_down", "E,E", "arctic"},
    {"ffn_down", "F/2,E", "qwen"},
    {"ffn_down", "F,E", NULL}, {"ffn_down.bias", "E", NULL}, {"ffn_down.scale~", "1", NULL},
    {"ffn_down_chexps", "K,E,X/j|f,E,X/j", NULL},
    {"ffn_down_exps", "F,E,X",
     "arctic dbrx granite granite_swa granitehybrid granitemoe hunyuan-moe llama llama-embed "
     "minicpm minimax-01 minimax-m2 mistral3 nomic-bert-moe olmoe phimoe refact"},
    {"ffn_down_exps", "F,E,X|Y,E,X", "cohere2moe"},
    {"ffn_down_exps", "F,E,X|Y,e,X", "kimi-k3"},
    {"ffn_down_exps", "Y,E,X", NULL}, {"ffn_down_exps.bias", "E,X", NULL},
    {"ffn_down_shexp", "S,E|Y,E", "exaone-moe"},
    {"ffn_down_shexp", "SZ,E", "bailingmoe2"},
    {"ffn_down_shexp", "Y,E|ZY,E", "kimi-k3 kimi-linear"},
    {"ffn_down_shexp", "S,E", NULL},
    {"ffn_gate", "E,E", "arctic"},
    {"ffn_gate", "E,F/2", "qwen"},
    {"ffn_gate", "E,F", NULL}, {"ffn_gate.bias", "F", NULL}, {"ffn_gate.scale~", "1", NULL},
    {"ffn_gate_chexps", "E,K,X/j|E,f,X/j", NULL},
    {"ffn_gate_exps", "E,F,X",
     "arctic dbrx granite granite_swa granitehybrid granitemoe hunyuan-moe llama llama-embed "
     "minicpm minimax-01 minimax-m2 mistral3 olmoe phimoe refact"},
    {"ffn_gate_exps", "E,F,X|E,Y,X", "cohere2moe"},
    {"ffn_gate_exps", "E,F,X|e,Y,X", "kimi-k3"},
    {"ffn_gate_exps", "E,Y,X", NULL}, {"ffn_gate_exps.bias", "Y,X", NULL},
    {"ffn_gate_inp", "E,X", NULL}, {"ffn_gate_inp.bias", "X", NULL},
    {"ffn_gate_inp_shexp", "E", NULL},
    {"ffn_gate_shexp", "E,SZ", "bailingmoe2"},
    {"ffn_gate_shexp", "E,S|E,Y", "exaone-moe"},
    {"ffn_gate_shexp", "E,Y|E,ZY", "kimi-k3 kimi-linear"},
    {"ffn_gate_shexp", "E,S", NULL},
    {"ffn_gate_up_exps", "E,2F,X", "granite_swa"},
    {"ffn_gate_up_exps", "E,2F,X|E,2Y,X", "cohere2moe"},
    {"ffn_gate_up_exps", "E,2Y,X", NULL}, {"ffn_latent_down", "E,E", NULL},
    {"ffn_latent_up", "E,E", NULL}, {"ffn_norm", "E", NULL}, {"ffn_norm.bias", "E", NULL},
    {"ffn_norm_exps", "E", NULL}, {"ffn_norm~", "E", NULL}, {"ffn_res_score", "E", NULL},
    {"ffn_routed_down", "E,e", NULL}, {"ffn_routed_norm", "e", NULL},
    {"ffn_routed_up", "e,E", NULL}, {"ffn_sub_norm", "F", NULL},
    {"ffn_up", "E,2F", "chatglm glm4 modern-bert neo-bert phi3 plamo2 plamo3"},
    {"ffn_up", "E,E", "arctic"},
    {"ffn_up", "E,F/2", "qwen"},
    {"ffn_up", "E,F", NULL}, {"ffn_up.bias", "F", NULL}, {"ffn_up.scale~", "1", NULL},
    {"ffn_up_chexps", "E,K,X/j|E,f,X/j", NULL},
    {"ffn_up_exps", "E,F,X",
     "arctic dbrx granite granite_swa granitehybrid granitemoe hunyuan-moe llama llama-embed "
     "minicpm minimax-01 minimax-m2 mistral3 nomic-bert-moe olmoe phimoe refact"},
    {"ffn_up_exps", "E,F,X|E,Y,X", "cohere2moe"},
    {"ffn_up_exps", "E,F,X|e,Y,X", "kimi-k3"},
    {"ffn_up_exps", "E,Y,X", NULL}, {"ffn_up_exps.bias", "Y,X", NULL},
    {"ffn_up_shexp", "E,2S", "granite_swa"},
    {"ffn_up_shexp", "E,SZ", "bailingmoe2"},
    {"ffn_up_shexp", "E,S|E,Y", "exaone-moe"},
    {"ffn_up_shexp", "E,Y|E,ZY", "kimi-k3 kimi-linear"},
    {"ffn_up_shexp", "E,S", NULL}, {"hc_attn_scale", "2", NULL}, {"hc_ffn_scale", "2", NULL},
    {"indexer.attn_k", "E,x", NULL}, {"indexer.attn_q_b", "q,hx", NULL},
    {"indexer.k_norm", "x", NULL}, {"indexer.k_norm.bias", "x", NULL},
    {"indexer.k_proj", "E,x", NULL}, {"indexer.proj", "E,h", NULL}, {"indexer.q_norm", "x", NULL},
    {"indexer.q_proj", "E,hx", NULL},
    {"inp_gate", "", "gemma3n"},
    {"inp_gate", "E,p", NULL}, {"laurel_post_norm", "E", NULL}, {"layer_output_norm", "E", NULL},
    {"layer_output_norm.bias", "E", NULL}, {"layer_output_scale", "1", NULL},
    {"nextn.eh_proj", "2E,E", NULL}, {"nextn.embed_tokens", "E,N", NULL},
    {"nextn.enorm", "E", NULL}, {"nextn.hnorm", "E", NULL},
    {"nextn.shared_head_head", "E,N", NULL}, {"nextn.shared_head_norm", "E", NULL},
    {"post_attention_norm", "E", NULL}, {"post_attention_norm~", "E", NULL},
    {"post_ffw_norm", "E", NULL}, {"post_ffw_norm~", "E", NULL}, {"post_norm", "E", NULL},
    {"proj", "", "gemma3n"},
    {"proj", "p,E", NULL}, {"shortconv.conv", "l,E", NULL}, {"shortconv.in_proj", "E,3E", NULL},
    {"shortconv.out_proj", "E,E", NULL}, {"ssm_alpha", "E,t", NULL},
    {"ssm_a~", "H", "bailingmoe3 kimi-k3 kimi-linear"},
    {"ssm_a~", "s,i", "jamba mamba"},
    {"ssm_a~", "t", "plamo2 qwen35 qwen35moe qwen3next"},
    {"ssm_a~", "1,t", NULL}, {"ssm_b_norm", "s", NULL}, {"ssm_b_norm~", "s", NULL},
    {"ssm_ba", "E,2t", NULL},
    {"ssm_beta", "E,t", "qwen35 qwen35moe"},
    {"ssm_beta", "E,H", NULL}, {"ssm_c_norm", "s", NULL}, {"ssm_c_norm~", "s", NULL},
    {"ssm_conv1d", "c,2sg+st", "qwen35 qwen35moe qwen3next"},
    {"ssm_conv1d", "c,i", "jamba mamba plamo2"},
    {"ssm_conv1d", "c,i+2sg", NULL},
    {"ssm_conv1d.bias", "i", "jamba mamba"},
    {"ssm_conv1d.bias", "i+2sg", NULL}, {"ssm_conv1d_k", "4H,H,E", NULL},
    {"ssm_conv1d_q", "4H,H,E", NULL}, {"ssm_conv1d_v", "4H,H,E", NULL},
    {"ssm_dt", "", "plamo2"},
    {"ssm_dt", "t,i", NULL},
    {"ssm_dt.bias", "E", "bailingmoe3 kimi-k3 kimi-linear"},
    {"ssm_dt.bias", "i", "jamba mamba"},
    {"ssm_dt.bias", "t", NULL}, {"ssm_dt_norm", "t", NULL},
    {"ssm_d~", "i", "jamba mamba"},
    {"ssm_d~", "t", "plamo2"},
    {"ssm_d~", "1,t", NULL}, {"ssm_f_a", "E,E", NULL}, {"ssm_f_b", "E,E", NULL},
    {"ssm_g", "E,E", NULL}, {"ssm_g_a", "E,E", NULL}, {"ssm_g_b", "E,E", NULL},
    {"ssm_in", "E,2i", "jamba mamba plamo2"},
    {"ssm_in", "E,2sg+2st", "qwen3next"},
    {"ssm_in", "E,2i+t+2sg", NULL},
    {"ssm_norm", "E", "bailingmoe3 kimi-k3 kimi-linear"},
    {"ssm_norm", "s", "qwen35 qwen35moe qwen3next"},
    {"ssm_norm", "i/g,g", NULL},
    {"ssm_out", "st,E", "qwen35 qwen35moe qwen3next"},
    {"ssm_out", "i,E", NULL},
    {"ssm_x", "", "plamo2"},
    {"ssm_x", "i,t+2s", NULL}, {"time_mix_a0", "E", NULL}, {"time_mix_a1", "E,o", NULL},
    {"time_mix_a2", "o,E", NULL}, {"time_mix_decay", "E", NULL},
    {"time_mix_decay_w1", "E,d", NULL}, {"time_mix_decay_w2", "d,E", NULL},
    {"time_mix_first", "w,E/w", NULL}, {"time_mix_gate", "E,E", NULL}, {"time_mix_k_a", "E", NULL},
    {"time_mix_k_k", "E", NULL},
    {"time_mix_key", "E,E|E,Gw", "rwkv6qwen2"},
    {"time_mix_key", "E,E", NULL},
    {"time_mix_lerp_fused", "E,1,1,5", "rwkv6qwen2"},
    {"time_mix_lerp_fused", "E,1,1,6", NULL}, {"time_mix_lerp_x", "E,1,1", NULL},
    {"time_mix_ln", "E", NULL}, {"time_mix_ln.bias", "E", NULL}, {"time_mix_output", "E,E", NULL},
    {"time_mix_r_k", "E", NULL}, {"time_mix_receptance", "E,E", NULL},
    {"time_mix_receptance.bias", "E", NULL}, {"time_mix_v0", "E", NULL},
    {"time_mix_value", "E,E|E,Gw", "rwkv6qwen2"},
    {"time_mix_value", "E,E", NULL}, {"time_mix_w0", "E", NULL},
    {"time_mix_w1", "", "rwkv6qwen2"},
    {"time_mix_w1", "E,n", NULL},
    {"time_mix_w2", "m,E,5", "rwkv6qwen2"},
    {"time_mix_w2", "n,E", NULL}, {"vis_attn_output", "HK,E", NULL},
    {"vis_attn_qkv", "E,3HK", NULL}, {"vis_down", "F,E", NULL}, {"vis_gate", "E,F", NULL},
    {"vis_up", "E,F", NULL},
};

const struct need_key need_keys[] = {
    {"activation.situ_beta", "kimi-k3"},
    {"activation.situ_linear_beta", "kimi-k3"},
    {"attention.clamp_kqv", "dbrx"},
    {"attention.decay_lora_rank", "arwkv7"},
    {"attention.head_count",
     "! afmoe arwkv7 deepseek2-ocr dots3note gemma4 jina-bert-v2 laguna lfm2 mamba mamba2 "
     "modern-bert phi3 pockettts qwen rwkv6qwen2 rwkv7"},
    {"attention.iclr_lora_rank", "arwkv7"},
    {"attention.indexer.block_size", "minimax-m3"},
    {"attention.indexer.head_count", "deepseek32 glm-dsa minimax-m3"},
    {"attention.indexer.key_length", "deepseek32 glm-dsa minimax-m3"},
    {"attention.indexer.local_blocks", "minimax-m3"},
    {"attention.indexer.top_k", "deepseek32 glm-dsa minimax-m3"},
    {"attention.key_length_mla", "bailingmoe3 deepseek32 glm-dsa hy_v4 kimi-k3 kimi-linear"},
    {"attention.kv_lora_rank",
     "bailingmoe3 deepseek2 deepseek32 glm-dsa hy_v4 kimi-k3 kimi-linear minicpm3 mistral4 plm"},
    {"attention.layer_norm_epsilon",
     "bert bloom codeshell cohere2 command-r dbrx falcon gpt2 gptneox jais jais2 jina-bert-v3 "
     "modern-bert mpt nemotron nemotron_h nemotron_h_moe nomic-bert nomic-bert-moe olmo orion "
     "phi2 pockettts stablelm starcoder starcoder2"},
    {"attention.layer_norm_rms_epsilon",
     "! afmoe arwkv7 bert bloom codeshell cohere2 command-r dbrx dots3note falcon gemma4 gpt2 "
     "gptneox jais jais2 jina-bert-v2 jina-bert-v3 laguna modern-bert mpt nemotron nemotron_h "
     "nemotron_h_moe nomic-bert nomic-bert-moe olmo orion phi2 pockettts qwen2vl rwkv6qwen2 "
     "rwkv7 stablelm starcoder starcoder2"},
    {"attention.q_lora_rank", "deepseek2 deepseek32 glm-dsa hy_v4 minicpm3 mistral4"},
    {"attention.relative_buckets_count", "t5 t5encoder"},
    {"attention.sliding_window",
     "cohere2 cohere2moe exaone-moe gemma-embedding gemma3n gpt-oss granite_swa maple mimo2 "
     "muse-glimmer step35"},
    {"attention.sliding_window_pattern", "granite_swa maple mimo2 step35"},
    {"attention.value_length_mla", "bailingmoe3 deepseek32 glm-dsa hy_v4 kimi-k3 kimi-linear"},
    {"attention.value_residual_mix_lora_rank", "arwkv7"},
    {"attn_res.block_size", "kimi-k3"},
    {"block_count", "! afmoe dots3note gemma4 jina-bert-v2 laguna rwkv7"},
    {"context_length", "! afmoe dots3note gemma4 jina-bert-v2 laguna rwkv7"},
    {"embedding_length", "! afmoe dots3note gemma4 jina-bert-v2 laguna rwkv7"},
    {"expert_count",
     "arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 deepseek2-ocr "
     "deepseek32 dots1 ernie4_5 ernie4_5-moe exaone-moe glm-dsa glm4moe gpt-oss grok grovemoe "
     "hunyuan-moe hy_v3 hy_v4 kimi-k3 kimi-linear lfm2moe llada-moe llama4 maple minimax-01 "
     "minimax-m2 minimax-m3 mistral4 olmoe paddleocr phimoe qwen2moe qwen35moe qwen3moe "
     "qwen3next qwen3vlmoe rnd1 smallthinker"},
    {"expert_feed_forward_length",
     "bailingmoe bailingmoe2 bailingmoe3 cohere2moe deepseek deepseek2 deepseek2-ocr deepseek32 "
     "dots1 ernie4_5-moe exaone-moe glm-dsa glm4moe gpt-oss grovemoe hunyuan-moe hy_v3 hy_v4 "
     "kimi-k3 kimi-linear lfm2moe llama4 maple mimo2 minimax-m2 minimax-m3 mistral4 step35"},
    {"expert_gating_func",
     "bailingmoe2 bailingmoe3 deepseek32 exaone-moe kimi-k3 kimi-linear lfm2moe minimax-m3"},
    {"expert_group_scale", "grovemoe"},
    {"expert_shared_count",
     "bailingmoe bailingmoe2 bailingmoe3 deepseek deepseek2 deepseek2-ocr deepseek32 dots1 "
     "glm-dsa glm4moe hy_v4 kimi-k3 kimi-linear minimax-m3 mistral4"},
    {"expert_used_count",
     "arctic bailingmoe bailingmoe2 bailingmoe3 cohere2moe dbrx deepseek deepseek2 deepseek2-ocr "
     "deepseek32 dots1 ernie4_5 ernie4_5-moe exaone-moe glm-dsa glm4moe gpt-oss grok grovemoe "
     "hunyuan-moe hy_v3 hy_v4 kimi-k3 kimi-linear lfm2moe llada-moe llama4 maple minimax-01 "
     "minimax-m2 minimax-m3 mistral4 olmoe paddleocr phimoe qwen2moe qwen35moe qwen3moe "
     "qwen3next qwen3vlmoe rnd1 smallthinker"},
    {"experts_per_group", "grovemoe"},
    {"feed_forward_length",
     "! afmoe bailingmoe deepseek2-ocr dots3note exaone-moe gemma4 gpt-oss grok grovemoe hy_v3 "
     "hy_v4 jina-bert-v2 laguna llada-moe mamba mamba2 maple mimo2 nemotron_h nemotron_h_moe "
     "qwen2moe qwen35moe qwen3moe qwen3next qwen3vlmoe rnd1 rwkv7 smallthinker step35"},
    {"hyper_connection.count", "hy_v4"},
    {"hyper_connection.epsilon", "hy_v4"},
    {"hyper_connection.magnitude", "hy_v4"},
    {"interleave_moe_layer_step", "ernie4_5-moe llama4"},
    {"kda.gate_lower_bound", "bailingmoe3"},
    {"kda.head_dim", "bailingmoe3 kimi-k3 kimi-linear"},
    {"leading_dense_block_count", "bailingmoe3 cohere2moe"},
    {"logit_scale", "cohere2 cohere2moe granite granite_swa granitemoe muse-glimmer talkie"},
    {"residual_scale", "minimax-01"},
    {"rope.dimension_count", "deepseek2 mistral4"},
    {"rope.dimension_sections", "qwen2vl qwen35 qwen35moe qwen3tts qwen3vl qwen3vlmoe"},
    {"shortconv.l_cache", "lfm2 lfm2moe"},
    {"ssm.conv_kernel",
     "bailingmoe3 falcon-h1 granitehybrid jamba kimi-k3 kimi-linear mamba mamba2 nemotron_h "
     "nemotron_h_moe plamo2 qwen35 qwen35moe qwen3next"},
    {"ssm.group_count",
     "falcon-h1 granitehybrid mamba2 nemotron_h nemotron_h_moe plamo2 qwen35 qwen35moe qwen3next"},
    {"ssm.inner_size",
     "falcon-h1 granitehybrid jamba mamba mamba2 nemotron_h nemotron_h_moe plamo2 qwen35 "
     "qwen35moe qwen3next"},
    {"ssm.state_size",
     "falcon-h1 granitehybrid jamba mamba mamba2 nemotron_h nemotron_h_moe plamo2 qwen35 "
     "qwen35moe qwen3next"},
    {"ssm.time_step_rank",
     "falcon-h1 granitehybrid jamba mamba mamba2 nemotron_h nemotron_h_moe plamo2 qwen35 "
     "qwen35moe qwen3next"},
    {"swiglu_clamp_exp", "maple"},
    {"time_decay_extra_dim", "rwkv6qwen2"},
    {"time_mix_extra_dim", "rwkv6qwen2"},
    {"use_parallel_residual", "gptneox"},
    {"wkv.head_size", "arwkv7 rwkv6qwen2"},
};
// clang-format on

const size_t need_tensors_len = COUNT(need_tensors);
const size_t need_shapes_len = COUNT(need_shapes);
const size_t need_keys_len = COUNT(need_keys);

bool tensor_block(const char *name, size_t n, uint64_t *number, size_t *rest)
{
    size_t i = 4;
    if (n < 7 || memcmp(name, "blk.", 4) != 0)
        return false;
    for (*number = 0; i < n && i < 22 && name[i] >= '0' && name[i] <= '9'; i++)
        *number = *number * 10 + (uint64_t)(name[i] - '0');
    *rest = i + 1;
    return i > 4 && i < n - 1 && name[i] == '.';
}

bool needs_list(const char *list, struct text word)
{
    for (size_t n; word.at && *list; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == word.len && memcmp(list, word.at, n) == 0)
            return true;
    }
    return false;
}

bool needs_know(struct text arch)
{
    for (size_t i = 0; i < need_tensors_len; i++)
        if (need_tensors[i].block[0] == '\0' && needs_list(need_tensors[i].archs, arch))
            return true;
    return false;
}

/* A vocabulary without tensors is a model too, and a shard has only a part of them. */
bool needs_apply(const struct gguf *g)
{
    return g->n_tensors && !fact_shard(g) && fact_is_model(g) &&
           needs_know(fact_text(g, "general.architecture"));
}

static bool ends(const char *name, size_t n, const char *tail)
{
    size_t len = strlen(tail);
    return n > len && memcmp(name + n - len, tail, len) == 0;
}

/* "blk.7.attn_q.weight" is "attn_q" of 7, "output.weight" ".output". */
bool needs_name(const char *name, size_t n, uint64_t *block, char dst[NEED_NAME_MAX])
{
    static const char weight[] = ".weight", bias[] = ".bias";
    size_t skip = n > 4 && (memcmp(name, "enc.", 4) == 0 || memcmp(name, "dec.", 4) == 0) ? 4 : 0;
    size_t rest;
    bool inside = tensor_block(name + skip, n - skip, block, &rest);
    if (inside) {
        name += skip + rest;
        n -= skip + rest;
    }
    if (n + 3 > NEED_NAME_MAX)
        return false;
    bool weights = ends(name, n, weight), none = !weights && !ends(name, n, bias);
    (void)snprintf(dst, NEED_NAME_MAX, "%s%.*s%s", inside ? "" : ".",
                   (int)(weights ? n - strlen(weight) : n), name, none ? "~" : "");
    return true;
}
