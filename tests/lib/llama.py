# SPDX-License-Identifier: MIT
"""A small llama model without findings of `--check`; tests change one property of it."""
import ggufmodel as gguf
from ggufmodel import Tensor, Value, array

F32, Q8_0 = 0, 8
ONES = b'\0\0\x80?'  # 1 as F32; tensors that are all zero are a finding
TINY = b'\1' * 34 * 32
NAME = 'Tiny-3.5K-v1.0-Q8_0.gguf'


def text(value):
    return Value('string', value.encode())


def u32(value):
    return Value('u32', value)


def keys(**changed):
    """Return the keys. Two underscores stand for a dot, None omits a key."""
    all_keys = {
        'general.architecture': text('llama'), 'general.name': text('Tiny'),
        'general.file_type': u32(7), 'general.quantization_version': u32(2),
        'llama.context_length': u32(64), 'llama.embedding_length': u32(32),
        'llama.block_count': u32(1), 'llama.feed_forward_length': u32(2),
        'llama.rope.dimension_count': u32(8), 'llama.attention.head_count': u32(4),
        'llama.attention.head_count_kv': u32(2),
        'llama.attention.layer_norm_rms_epsilon': Value('f32', 1e-5),
        'tokenizer.ggml.model': text('llama'),
        'tokenizer.ggml.tokens': array('string', [b'a', b'b', b'c', b'd']),
    }
    all_keys.update({key.replace('__', '.'): value for key, value in changed.items()})
    return [(key.encode(), value) for key, value in all_keys.items() if value]


def f32(name, *dims):
    return Tensor(name.encode() + b'.weight', F32, dims, ONES * (gguf.nbytes(F32, dims) // 4))


def tensors(q8=TINY):
    """Return the tensors: the embedding first, the quantised one last."""
    block = [f32('blk.0.' + name, *dims) for name, dims in {
        'attn_norm': (32,), 'attn_k': (32, 16), 'attn_v': (32, 16), 'attn_output': (32, 32), 'ffn_norm': (32,),
        'ffn_gate': (32, 2), 'ffn_up': (32, 2), 'ffn_down': (2, 32)}.items()]
    return [f32('token_embd', 32, 4), f32('output_norm', 32), *block,
            Tensor(b'blk.0.attn_q.weight', Q8_0, (32, 32), q8)]


def image(q8=TINY, how=None, **changed):
    return gguf.encode(keys(**changed), tensors(q8), **(how or {}))
