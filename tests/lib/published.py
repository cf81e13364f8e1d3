# SPDX-License-Identifier: MIT
"""Headers of published models, rebuilt from what is known about each: its numbers, its keys, its
tensors.

    LETTERS   the key for each letter of the numbers; dimensions of tensors are sums of products of letters
    MODELS    the models
    make()    keys and tensors of one of them
    small()   the same with small numbers
    write()   keys and tensors as a file, mostly a hole
"""
import re
from typing import NamedTuple

import ggufmodel as gguf
from ggufmodel import Tensor, Value, array

LETTERS = {
    'L': 'block_count', 'C': 'context_length', 'E': 'embedding_length', 'F': 'feed_forward_length',
    'H': 'attention.head_count', 'G': 'attention.head_count_kv', 'K': 'attention.key_length', 'V': 'attention.value_length',
    'R': 'rope.dimension_count', 'X': 'expert_count', 'U': 'expert_used_count', 'Y': 'expert_feed_forward_length',
    'S': 'expert_shared_feed_forward_length', 'Z': 'expert_shared_count', 'D': 'leading_dense_block_count',
    'W': 'attention.sliding_window', 'q': 'attention.q_lora_rank', 'r': 'attention.kv_lora_rank',
    'k': 'attention.key_length_mla', 'v': 'attention.value_length_mla', 'c': 'ssm.conv_kernel', 's': 'ssm.state_size',
    'g': 'ssm.group_count', 't': 'ssm.time_step_rank', 'i': 'ssm.inner_size', 'l': 'shortconv.l_cache',
    'f': 'full_attention_interval', 'o': 'nextn_predict_layers',
}
SMALL = dict(L=6, C=128, E=128, F=192, H=8, G=2, K=16, R=16, X=16, U=2, Y=64, S=64, W=32, q=32, r=16, k=32, v=16, c=4, s=16, g=2, t=8,
             i=128, l=3, N=300)
NORM, FFN = 'attn_norm=E ffn_norm=E ', 'ffn_gate=E,F ffn_up=E,F ffn_down=F,E '
ATTN, QKN = 'attn_q=E,HK attn_k=E,GK attn_v=E,GV attn_output=HV,E ', 'attn_q_norm=K attn_k_norm=K '
BIAS = 'attn_q.bias=HK attn_k.bias=GK attn_v.bias=GV '
MOE = 'ffn_gate_inp=E,X ffn_gate_exps=E,Y,X ffn_up_exps=E,Y,X ffn_down_exps=Y,E,X '
SHARED = 'ffn_gate_shexp=E,S ffn_up_shexp=E,S ffn_down_shexp=S,E '
POST = 'post_attention_norm=E post_ffw_norm=E '
MLA = 'attn_q_a=E,q attn_q_a_norm=q attn_q_b=q,Hk attn_kv_a_mqa=E,r+R attn_kv_a_norm=r attn_k_b=k-R,r,H ' \
      'attn_v_b=r,v,H attn_output=Hv,E '
TIED, UNTIED = 'token_embd=E,N output_norm=E ', 'token_embd=E,N output_norm=E output=E,N '
CHATML = '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}'
IMATRIX = {'quantize.imatrix.file': 'imatrix.gguf', 'quantize.imatrix.dataset': 'calibration.txt',
           'quantize.imatrix.entries_count': 250, 'quantize.imatrix.chunks_count': 120}
# (general.file_type, type of matrices)
MIXES = {'F32': (0, 0), 'F16': (1, 1), 'BF16': (32, 30), 'Q4_0': (2, 2), 'Q8_0': (7, 8), 'Q4_K_M': (15, 12), 'Q4_K_S': (14, 12),
         'Q5_K_M': (17, 13), 'Q6_K': (18, 14), 'Q3_K_M': (12, 11), 'Q2_K': (10, 10), 'IQ4_XS': (30, 23), 'IQ3_XXS': (23, 18),
         'IQ2_XXS': (19, 16), 'MXFP4_MOE': (38, 39)}


class Model(NamedTuple):
    name: str           # name of the file
    arch: str
    size: str           # size label
    mix: str            # key of MIXES
    numbers: str        # 'E4096 H32': letters and numbers; N is the number of tokens
    whole: str          # tensors: 'token_embd=E,N'; names without a suffix get .weight
    block: object       # tensors of a block, or a function from block number to them
    words: str          # tokenizer.ggml.model and .pre
    more: dict          # other keys; names that begin with a dot belong to the architecture


def every(n, last, others):
    """Each n-th block is different."""
    return lambda at: last if at % n == n - 1 else others


def after(n, first, others):
    return lambda at: first if at < n else others


def value(item):
    if isinstance(item, bool):
        return Value('bool', item)
    if isinstance(item, (int, float)):
        return Value('u32' if isinstance(item, int) else 'f32', item)
    if isinstance(item, list):
        kind = value(item[0]).type
        return array('i32' if kind == 'u32' else kind, [value(part).data for part in item])
    return item if isinstance(item, Value) else Value('string', item.encode())


def numbers(model, **other):
    found = {**{letter: int(n) for letter, n in re.findall(r'([A-Za-z])(\d+)', model.numbers)}, **other}
    return {**found, 'K': found.get('K') or found['E'] // found.get('H', 1)}, found


def lengths(text, of):
    """Parse 'HK+2GV,R/2' -> (.., ..)."""
    def part(term):
        out = 1
        for over, factor in re.findall(r'(/?)(\d+|\w)', term):
            number = int(factor) if factor.isdigit() else of[factor]
            out = out // number if over else out * number
        return out
    return tuple(sum((-1 if term[0] == '-' else 1) * part(term.lstrip('+-')) for term in re.findall('[+-]?[^+-]+', dim))
                 for dim in text.split(','))


def vocabulary(model, count, template):
    kind, _, pre = model.words.partition(' ')
    special = sorted(set(re.findall(r'<[^<> %{}]+>', template)))
    words = [b'<0x%02X>' % at for at in range(256)] if kind == 'llama' else []
    words += [b't%d' % at for at in range(len(words), count - len(special))] + [word.encode() for word in special]
    yield 'tokenizer.ggml.model', value(kind)
    if pre:
        yield 'tokenizer.ggml.pre', value(pre)
    yield 'tokenizer.ggml.tokens', array('string', words)
    if kind in ('llama', 't5', 'bert'):
        yield 'tokenizer.ggml.scores', array('f32', [0.0] * count)
    yield 'tokenizer.ggml.token_type', array('i32', [1] * (count - len(special)) + [3] * len(special))
    if kind == 'gpt2':
        yield 'tokenizer.ggml.merges', array('string', [b't 0', b't 1'])
    yield 'tokenizer.ggml.eos_token_id', value(count - 1)
    if template:
        yield 'tokenizer.chat_template', value(template)


def keys(model, stored, of):
    file_type, _ = MIXES[model.mix]
    more = {**model.more}
    template = more.pop('template', '')
    for key, item in {'general.architecture': model.arch, 'general.type': 'model', 'general.name': model.name,
                      'general.size_label': model.size, 'general.quantization_version': 2,
                      'general.file_type': file_type, 'general.license': 'apache-2.0'}.items():
        if item:
            yield key, value(more.pop(key, item))
    for letter, key in LETTERS.items():
        if letter in stored and model.words:
            yield f'{model.arch}.{key}', value(stored[letter])
    if 'K' in stored and 'V' not in stored:
        yield f'{model.arch}.attention.value_length', value(stored['K'])
    for key, item in more.items():
        yield (model.arch + key if key[0] == '.' else key), value(item(of['L']) if callable(item) else item)
    if model.words:
        yield from vocabulary(model, of['N'], template)


def tensors(model, of):
    """Yield the tensors: matrices have the mix's type if a row is whole blocks."""
    _, mix = MIXES[model.mix]
    first = of['L'] - of.get('o', 0) if model.name.startswith('mtp') else 0
    rows = [model.whole] + [
        ' '.join(f'blk.{at}.{row}' for row in (model.block(at) if callable(model.block) else model.block).split())
        for at in range(first, of.get('L', 0))]
    for row in ' '.join(rows).split():
        name, _, dims = row.partition('=')
        dims = lengths(dims, of)
        dims = dims[:-1] if len(dims) > 1 and dims[-1] == 0 else dims
        plain = len(dims) == 1 or name.endswith('.bias') or 'norm' in name or '_inp' in name or 'conv' in name or 'ssm_a' in name or 'ssm_d~' in name or 'embd_' in name
        block = gguf.GEOMETRY[mix][1]
        kind = 0 if plain else mix if dims[0] % block == 0 else 8 if dims[0] % 32 == 0 else 1
        bare = name.endswith('.bias') or name.endswith('~')
        yield Tensor((name.rstrip('~') + ('' if bare else '.weight')).encode(), kind, dims)


def make(model, **other):
    of, stored = numbers(model, **other)
    of = {**of, 'V': of.get('V', of['K'])}
    kv = [(key.encode(), item) for key, item in keys(model, stored, of)]
    return kv, list(tensors(model, of))


def write(kv, rows, file):
    """Write the file: tensors without data are holes. Returns where the data begins."""
    offsets, end = gguf.place([gguf.nbytes(row.type_id, row.dims) for row in rows], range(len(rows)), 32, 0)
    head = gguf.header(kv, rows, offsets)
    begin = len(head) + (gguf.pad(len(head), 32) if rows else 0)
    with open(file, 'wb') as out:
        out.write(head)
        out.truncate(begin + end)
        for row, offset in zip(rows, offsets):
            if row.data:
                out.seek(begin + offset)
                out.write(row.data)
    return begin


def small(model, **other):
    """Return (keys, tensors) with other numbers, from SMALL by default."""
    return make(model, **{letter: n for letter, n in SMALL.items() if re.search(letter + r'\d', model.numbers)} | other)


RMS, EPS = {'.attention.layer_norm_rms_epsilon': 1e-6}, {'.attention.layer_norm_epsilon': 1e-5}
CHAT = {**RMS, '.rope.freq_base': 1000000.0, 'template': CHATML}
GEMMA = {**RMS, '.rope.freq_base': 1000000.0,
         'template': '{% for m in messages %}<start_of_turn>{{ m.role }}\n{{ m.content }}<end_of_turn>\n{% endfor %}'}
SIGMOID = {'.expert_gating_func': 2, '.expert_weights_norm': True, '.expert_weights_scale': 2.5}
ROUTED = MOE + 'exp_probs_b.bias=X ffn_gate_shexp=E,YZ ffn_up_shexp=E,YZ ffn_down_shexp=YZ,E '
SSM = 'ssm_in=E,2i+2gs+t ssm_conv1d=c,i+2gs ssm_conv1d.bias=i+2gs ssm_dt.bias=t ssm_a~=1,t ssm_d~=1,t ssm_out=i,E '
QWEN_NEXT = {
    'full': 'attn_q=E,2HK attn_k=E,GK attn_v=E,GK attn_output=HK,E ' + QKN,
    'linear': 'attn_qkv=E,2gs+i attn_gate=E,i ssm_conv1d=c,2gs+i ssm_dt.bias=t ssm_a~=t ssm_ba=E,2t ssm_norm=s ssm_out=i,E ',
    'all': 'attn_norm=E post_attention_norm=E ' + MOE + SHARED + 'ffn_gate_inp_shexp=E '}
NEMOTRON = 'M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-'
NANO = 'MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME'
LFM = (2, 5, 8, 10, 12, 14)
GRANITE = (5, 15, 25, 35)
GLM = 'attn_norm=E post_attention_norm=E ' + ATTN + BIAS
LAST = GLM + ROUTED + 'nextn.eh_proj=2E,E nextn.enorm=E nextn.hnorm=E nextn.shared_head_norm=E '
GLM_KEYS = {**CHAT, **SIGMOID, '.attention.layer_norm_rms_epsilon': 1e-5,
            'template': '{% for m in messages %}<|user|>\n{{ m.content }}{% endfor %}<|assistant|>'}
OSS = 'attn_norm=E post_attention_norm=E ' + ATTN + BIAS + 'attn_output.bias=E attn_sinks=H ' + MOE + \
      'ffn_gate_inp.bias=X ffn_gate_exps.bias=Y,X ffn_up_exps.bias=Y,X ffn_down_exps.bias=E,X '
BERT = 'attn_q=E,E attn_k=E,E attn_v=E,E attn_output=E,E attn_output_norm=E attn_output_norm.bias=E layer_output_norm=E ' \
       'layer_output_norm.bias=E '
DEEPSEEK = {**RMS, '.rope.freq_base': 10000.0, '.rope.scaling.type': 'yarn', '.rope.scaling.factor': 40.0,
            '.rope.scaling.original_context_length': 4096, '.rope.scaling.yarn_log_multiplier': 0.0707}
LITE = 'attn_q=E,Hk attn_kv_a_mqa=E,r+R attn_kv_a_norm=r attn_k_b=k-R,r,H attn_v_b=r,v,H attn_output=Hv,E '
VISION = 'v.patch_embd=14,14,3,1152 v.patch_embd.bias=1152 v.position_embd=1152,4096 v.post_ln=1152 v.post_ln.bias=1152 ' \
         'mm.input_projection=2560,1152 mm.soft_emb_norm=1152 '
CLIP = {'general.type': 'mmproj', 'clip.has_vision_encoder': True, 'clip.projector_type': 'gemma3', 'clip.use_gelu': True,
        'clip.vision.image_size': 896, 'clip.vision.patch_size': 14, 'clip.vision.embedding_length': 1152,
        'clip.vision.feed_forward_length': 4304, 'clip.vision.block_count': 27, 'clip.vision.projection_dim': 2560,
        'clip.vision.attention.head_count': 16, 'clip.vision.attention.layer_norm_epsilon': 1e-6,
        'clip.vision.image_mean': [0.5, 0.5, 0.5], 'clip.vision.image_std': [0.5, 0.5, 0.5]}
QWEN3, QWEN2 = NORM + ATTN + QKN + FFN, NORM + ATTN + BIAS + FFN


def at_layers(which, n):
    return lambda layers: [n if at in which else 0 for at in range(layers)]


MODELS = [Model(*row) for row in (
    ('Qwen3-8B-Q4_K_M', 'qwen3', '8B', 'Q4_K_M', 'L36 C40960 E4096 F12288 H32 G8 K128 N151936', UNTIED, QWEN3, 'gpt2 qwen2', CHAT),
    ('Qwen3-Embedding-0.6B-Q8_0', 'qwen3', '0.6B', 'Q8_0', 'L28 C32768 E1024 F3072 H16 G8 K128 N151669', TIED, QWEN3,
     'gpt2 qwen2', {**CHAT, '.pooling_type': 3}),
    ('Qwen3-30B-A3B-Instruct-2507-UD-Q4_K_XL', 'qwen3moe', '30B-A3B', 'Q4_K_M',
     'L48 C262144 E2048 F6144 H32 G4 K128 X128 U8 Y768 N151936', UNTIED, NORM + ATTN + QKN + MOE, 'gpt2 qwen2', {**CHAT, **IMATRIX}),
    ('Qwen3-Next-80B-A3B-Instruct-Q4_K_M', 'qwen3next', '80B-A3B', 'Q4_K_M',
     'L48 C262144 E2048 F5120 H16 G2 K256 R64 X512 U10 Y512 S512 f4 c4 s128 g16 t32 i4096 N151936', UNTIED,
     every(4, QWEN_NEXT['full'] + QWEN_NEXT['all'], QWEN_NEXT['linear'] + QWEN_NEXT['all']), 'gpt2 qwen2', CHAT),
    ('qwen2.5-coder-7b-instruct-q6_k', 'qwen2', '7B', 'Q6_K', 'L28 C131072 E3584 F18944 H28 G4 N152064', UNTIED, QWEN2,
     'gpt2 qwen2', CHAT),
    ('Qwen2.5-VL-7B-Instruct-Q8_0', 'qwen2vl', '7B', 'Q8_0', 'L28 C128000 E3584 F18944 H28 G4 N152064', UNTIED, QWEN2,
     'gpt2 qwen2', {**CHAT, '.rope.dimension_sections': [16, 24, 24, 0]}),
    ('Qwen3VL-8B-Instruct-F16', 'qwen3vl', '8B', 'F16', 'L36 C262144 E4096 F12288 H32 G8 K128 N151936', UNTIED, QWEN3,
     'gpt2 qwen2', {**CHAT, '.rope.dimension_sections': [24, 20, 20, 0], '.n_deepstack_layers': 3}),
    ('Llama-3.2-3B-Instruct-IQ4_XS', 'llama', '3B', 'IQ4_XS', 'L28 C131072 E3072 F8192 H24 G8 K128 R128 N128256',
     TIED + 'rope_freqs=R/2 ', NORM + ATTN + FFN, 'gpt2 llama-bpe',
     {**RMS, **IMATRIX, '.vocab_size': 128256, '.rope.freq_base': 500000.0,
      'template': '{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>{{ m.content }}<|eot_id|>{% endfor %}'}),
    ('mistralai_Mistral-Small-3.2-24B-Instruct-2506-Q5_K_M', 'llama', '24B', 'Q5_K_M',
     'L40 C131072 E5120 F32768 H32 G8 K128 R128 N131072', UNTIED, NORM + ATTN + FFN, 'gpt2 tekken',
     {**RMS, **IMATRIX, '.rope.freq_base': 1e9, 'template': '[INST]{{ messages[0].content }}[/INST]{{ eos_token }}'}),
    ('Llama-4-Scout-17B-16E-Instruct-Q4_K_M', 'llama4', '', 'Q4_K_M',
     'L48 C10485760 E5120 F16384 H40 G8 K128 R128 X16 U1 Y8192 N202048', UNTIED + 'rope_freqs=R/2 ',
     NORM + ATTN + MOE + 'ffn_gate_shexp=E,Y ffn_up_shexp=E,Y ffn_down_shexp=Y,E ', 'gpt2 llama4',
     {**RMS, '.interleave_moe_layer_step': 1, '.rope.freq_base': 500000.0}),
    ('gemma-3-4b-it-qat-q4_0', 'gemma3', '4B', 'Q4_0', 'L34 C131072 E2560 F10240 H8 G4 K256 W1024 N262144', TIED,
     NORM + ATTN + QKN + POST + FFN, 'llama default', {**GEMMA, '.rope.scaling.type': 'linear', '.rope.scaling.factor': 8.0}),
    ('gemma-2-2b-it-Q6_K_L', 'gemma2', '2B', 'Q6_K', 'L26 C8192 E2304 F9216 H8 G4 K256 W4096 N256000', TIED,
     NORM + ATTN + POST + FFN, 'llama default', {**GEMMA, '.attn_logit_softcapping': 50.0, '.final_logit_softcapping': 30.0}),
    ('embeddinggemma-300M-BF16', 'gemma-embedding', '300M', 'BF16', 'L24 C2048 E768 F1152 H3 G1 K256 W512 N262144', TIED,
     NORM + ATTN + QKN + POST + FFN, 'llama default', {**RMS, '.pooling_type': 1}),
    ('gpt-oss-20b-mxfp4', 'gpt-oss', '20B', 'MXFP4_MOE', 'L24 C131072 E2880 F2880 H64 G8 K64 X32 U4 Y2880 W128 N201088', UNTIED,
     OSS, 'gpt2 gpt-4o',
     {**RMS, '.rope.scaling.type': 'yarn', '.rope.scaling.factor': 32.0, '.rope.scaling.original_context_length': 4096,
      'template': '{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}'}),
    ('Phi-4-mini-instruct-Q4_K_M', 'phi3', '3.8B', 'Q4_K_M', 'L32 C131072 E3072 F8192 H24 G8 R96 N200064',
     TIED + 'rope_factors_long=R/2 rope_factors_short=R/2 ',
     NORM + 'attn_qkv=E,E+2GK attn_output=E,E ffn_up=E,2F ffn_down=F,E ', 'gpt2 gpt-4o',
     {**RMS, '.rope.scaling.original_context_length': 4096, '.rope.scaling.attn_factor': 1.19, '.attention.sliding_window': 262144}),
    ('DeepSeek-V2-Lite-Chat.Q4_K_M', 'deepseek2', '', 'Q4_K_M',
     'L27 C163840 E2048 F10944 H16 G1 K576 V512 R64 r512 k192 v128 X64 U6 Y1408 Z2 D1 N102400', UNTIED,
     after(1, NORM + LITE + FFN, NORM + LITE + ROUTED.replace('exp_probs_b.bias=X ', '')), 'gpt2 deepseek-llm',
     {**DEEPSEEK, '.expert_weights_scale': 1.0}),
    ('DeepSeek-R1-0528-UD-IQ2_XXS', 'deepseek2', '', 'IQ2_XXS',
     'L61 C163840 E7168 F18432 H128 G1 K576 V512 R64 q1536 r512 k192 v128 X256 U8 Y2048 Z1 D3 N129280', UNTIED,
     after(3, NORM + MLA + FFN, NORM + MLA + ROUTED), 'gpt2 deepseek-v3',
     {**DEEPSEEK, **SIGMOID, **IMATRIX, '.expert_group_count': 8, '.expert_group_used_count': 4}),
    ('Kimi-K2-Instruct-0905-IQ2_XXS', 'deepseek2', '', 'IQ2_XXS',
     'L61 C262144 E7168 F18432 H64 G1 K576 V512 R64 q1536 r512 k192 v128 X384 U8 Y2048 Z1 D1 N163840', UNTIED,
     after(1, NORM + MLA + FFN, NORM + MLA + ROUTED), 'gpt2 kimi-k2', {**DEEPSEEK, **SIGMOID, **IMATRIX}),
    ('GLM-4.5-Air-Q4_K_M', 'glm4moe', '', 'Q4_K_M', 'L47 C131072 E4096 F10944 H96 G8 K128 R64 X128 U8 Y1408 Z1 D1 o1 N151552',
     UNTIED, lambda at: GLM + FFN if at < 1 else LAST if at == 46 else GLM + ROUTED, 'gpt2 glm4', GLM_KEYS),
    ('mtp-GLM-4.5-Air-Q8_0', 'glm4moe', '', 'Q8_0', 'L47 C131072 E4096 F10944 H96 G8 K128 R64 X128 U8 Y1408 Z1 D1 o1 N151552',
     '', LAST, 'gpt2 glm4', GLM_KEYS),
    ('GLM-4-9B-0414-Q4_K_M', 'glm4', '9B', 'Q4_K_M', 'L40 C32768 E4096 F13696 H32 G2 R64 N151552', UNTIED,
     NORM + ATTN + POST + 'ffn_up=E,2F ffn_down=F,E ', 'gpt2 glm4', GLM_KEYS),
    ('granite-4.0-h-tiny-Q4_K_M', 'granitehybrid', '', 'Q4_K_M',
     'L40 C131072 E1536 F512 H12 K128 X64 U6 S1024 c4 s128 g1 t48 i3072 N100352', TIED,
     lambda at: NORM + (ATTN.replace('G', '4') if at in GRANITE else SSM + 'ssm_norm=i/g,g ') + MOE.replace('Y', 'F') + SHARED,
     'gpt2 dbrx', {**RMS, '.attention.head_count_kv': at_layers(GRANITE, 4), '.embedding_scale': 12.0, '.residual_scale': 0.22,
                   '.logit_scale': 6.0, '.attention.scale': 0.0078125}),
    ('granite-3.3-2b-instruct-Q3_K_M', 'granite', '2B', 'Q3_K_M', 'L40 C131072 E2048 F8192 H32 G8 R64 N49159', TIED,
     NORM + ATTN + FFN, 'gpt2 refact', {**RMS, '.embedding_scale': 12.0, '.residual_scale': 0.22, '.attention.scale': 0.015625,
                                        '.logit_scale': 8.0}),
    ('LFM2-1.2B-Q4_K_M', 'lfm2', '1.2B', 'Q4_K_M', 'L16 C128000 E2048 F8192 H32 l3 N65536', 'token_embd=E,N token_embd_norm=E ',
     lambda at: NORM + FFN + (ATTN.replace('G', '8') + QKN if at in LFM else
                              'shortconv.conv=l,E shortconv.in_proj=E,3E shortconv.out_proj=E,E '),
     'gpt2 lfm2', {**CHAT, '.attention.head_count_kv': at_layers(LFM, 8)}),
    ('SmolLM3-3B-Q4_K_M', 'smollm3', '3B', 'Q4_K_M', 'L36 C65536 E2048 F11008 H16 G4 N128256', TIED, NORM + ATTN + FFN,
     'gpt2 smaug-bpe', CHAT),
    ('ERNIE-4.5-21B-A3B-PT-Q4_K_M', 'ernie4_5-moe', '21B-A3B', 'Q4_K_M',
     'L28 C131072 E2560 F12288 H20 G4 K128 X64 U6 Y1536 S3072 Z2 D1 N103424', TIED,
     after(1, NORM + ATTN + FFN, NORM + ATTN + MOE + 'exp_probs_b.bias=X ' + SHARED), 'llama default',
     {**RMS, '.interleave_moe_layer_step': 1}),
    ('Seed-OSS-36B-Instruct-Q4_K_M', 'seed_oss', '36B', 'Q4_K_M', 'L64 C524288 E5120 F27648 H80 G8 K128 N155136', UNTIED,
     'attn_norm=E post_attention_norm=E ' + ATTN + BIAS + FFN, 'gpt2 seed-coder', RMS),
    ('Falcon-H1-1.5B-Instruct-Q5_K_M', 'falcon-h1', '1.5B', 'Q5_K_M',
     'L24 C131072 E2048 F4096 H8 G2 K128 c4 s256 g1 t48 i3072 N65537', UNTIED,
     'attn_norm=E ffn_norm~=E ' + ATTN + SSM + FFN, 'gpt2 falcon-h1', CHAT),
    ('NVIDIA-Nemotron-Nano-9B-v2-Q4_K_M', 'nemotron_h', '9B', 'Q4_K_M',
     'L56 C131072 E4480 H40 K128 c4 s128 g8 t128 i10240 N131072', UNTIED,
     lambda at: 'attn_norm=E ' + {'M': SSM + 'ssm_norm=i/g,g ', '*': ATTN.replace('G', '8'),
                                  '-': 'ffn_up=E,15680 ffn_down=15680,E '}[NEMOTRON[at]],
     'gpt2 tekken', {**EPS, **RMS,
                     '.attention.head_count_kv': lambda layers: [8 * (kind == '*') for kind in NEMOTRON[:layers]],
                     '.feed_forward_length': lambda layers: [15680 * (kind == '-') for kind in NEMOTRON[:layers]]}),
    ('Nemotron-3-Nano-30B-A3B-Q4_K_M', 'nemotron_h_moe', '30B-A3B', 'Q4_K_M',
     'L52 C1048576 E2688 H32 K128 X128 U6 Y1856 S3712 Z1 c4 s128 g8 t64 i4096 N131072', UNTIED,
     lambda at: 'attn_norm=E ' + {
         'M': SSM + 'ssm_norm=i/g,g ', '*': ATTN.replace('G', '2'),
         'E': MOE.replace('ffn_gate_exps=E,Y,X ', '') + 'exp_probs_b.bias=X ffn_up_shexp=E,S ffn_down_shexp=S,E '}[NANO[at]],
     'gpt2 pixtral', {**EPS, **RMS, **SIGMOID,
                      '.attention.head_count_kv': lambda layers: [2 * (kind == '*') for kind in NANO[:layers]],
                      '.feed_forward_length': lambda layers: [1856 * (kind == 'E') for kind in NANO[:layers]]}),
    ('MiniMax-M2-UD-Q2_K', 'minimax-m2', '', 'Q2_K', 'L62 C196608 E3072 F1536 H48 G8 K128 R64 X256 U8 Y1536 N200064', UNTIED,
     NORM + ATTN + 'attn_q_norm=HK attn_k_norm=GK ' + MOE + 'exp_probs_b.bias=X ', 'gpt2 minimax-m2',
     {**RMS, **IMATRIX, '.expert_gating_func': 2}),
    ('OLMo-2-1124-7B-Instruct-Q4_K_M', 'olmo2', '7B', 'Q4_K_M', 'L32 C4096 E4096 F11008 H32 N100352', UNTIED,
     ATTN.replace('G', 'H') + 'attn_q_norm=E attn_k_norm=E ' + POST + FFN, 'gpt2 dbrx', RMS),
    ('Hunyuan-7B-Instruct-Q4_K_M', 'hunyuan-dense', '7B', 'Q4_K_M', 'L32 C262144 E4096 F14336 H32 G8 K128 N128256', TIED, QWEN3,
     'gpt2 hunyuan-dense', RMS),
    ('EXAONE-4.0-1.2B-BF16', 'exaone4', '1.2B', 'BF16', 'L30 C65536 E2048 F4096 H32 G8 N102400', TIED,
     ATTN + QKN + POST + FFN, 'gpt2 exaone4', RMS),
    ('c4ai-command-r7b-12-2024-Q4_K_M', 'cohere2', '7B', 'Q4_K_M', 'L32 C8192 E4096 F14336 H32 G8 K128 W4096 N256000', TIED,
     'attn_norm=E ' + ATTN + FFN, 'gpt2 command-r', {**EPS, '.logit_scale': 0.25}),
    ('Ling-mini-2.0-Q4_K_M', 'bailingmoe2', '', 'Q4_K_M', 'L20 C32768 E2048 F5120 H16 G4 K128 R64 X256 U8 Y512 Z1 D1 N157184',
     UNTIED, after(1, NORM + 'attn_qkv=E,HK+2GK attn_output=HK,E ' + QKN + FFN,
                   NORM + 'attn_qkv=E,HK+2GK attn_output=HK,E ' + QKN + ROUTED), 'gpt2 bailingmoe2',
     {**RMS, **SIGMOID, '.expert_group_count': 8, '.expert_group_used_count': 4}),
    ('bge-m3-Q8_0', 'bert', '567M', 'Q8_0', 'L24 C8192 E1024 F4096 H16 N250002',
     'token_embd=E,N token_types=E,1 token_embd_norm=E token_embd_norm.bias=E position_embd=E,C ',
     BERT + 'attn_q.bias=E attn_k.bias=E attn_v.bias=E attn_output.bias=E ffn_up=E,F ffn_up.bias=F ffn_down=F,E ffn_down.bias=E ',
     't5', {**EPS, '.attention.causal': False, '.pooling_type': 2, 'tokenizer.ggml.token_type_count': 1}),
    ('nomic-embed-text-v1.5.Q4_K_M', 'nomic-bert', '137M', 'Q4_K_M', 'L12 C2048 E768 F3072 H12 N30522',
     'token_embd=E,N token_types=E,2 token_embd_norm=E token_embd_norm.bias=E ',
     BERT.replace('attn_q=E,E attn_k=E,E attn_v=E,E', 'attn_qkv=E,3E') + FFN, 'bert',
     {**EPS, '.attention.causal': False, '.pooling_type': 1, '.rope.freq_base': 1000.0, 'tokenizer.ggml.token_type_count': 2}),
    ('Llama-3.1-8B-Abliterated-LORA-F16', 'llama', '', 'F16', 'E4096', 'blk.0.attn_q.weight.lora_a~=E,32 blk.0.attn_q.weight.lora_b~=32,E ',
     '', '', {'general.type': 'adapter', 'adapter.type': 'lora', 'adapter.lora.alpha': 32.0}),
    ('mmproj-gemma-3-4b-it-F16', 'clip', '', 'F16', 'E1152', VISION, '', '', CLIP),
    ('imatrix_unsloth', '', '', 'F32', 'E4096', 'blk.0.attn_q.weight.in_sum2~=E,1 blk.0.attn_q.weight.counts~=1,1 ', '', '',
     {'general.type': 'imatrix', 'imatrix.datasets': array('string', [b'calibration.txt']), 'imatrix.chunk_count': 120,
      'imatrix.chunk_size': 512}),
)]
