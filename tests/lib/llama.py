# SPDX-License-Identifier: MIT
"""A little llama that `--check` has nothing to say about; tests change one thing of it."""
import ggufmodel as gguf
from ggufmodel import Tensor, Value, array

F32, Q8_0 = 0, 8
NAME = 'Tiny-1K-v1.0-Q8_0.gguf'


def text(value):
    return Value('string', value.encode())


def u32(value):
    return Value('u32', value)


def keys(**changed):
    """Dots are written as two underscores, None leaves a key out."""
    all_keys = {
        'general.architecture': text('llama'), 'general.name': text('Tiny'),
        'general.file_type': u32(7), 'general.quantization_version': u32(2),
        'llama.context_length': u32(64), 'llama.embedding_length': u32(32),
        'llama.block_count': u32(1), 'llama.feed_forward_length': u32(64),
        'llama.rope.dimension_count': u32(8), 'llama.attention.head_count': u32(4),
        'llama.attention.layer_norm_rms_epsilon': Value('f32', 1e-5),
        'tokenizer.ggml.tokens': array('string', [b'a', b'b', b'c', b'd']),
    }
    all_keys.update({key.replace('__', '.'): value for key, value in changed.items()})
    return [(key.encode(), value) for key, value in all_keys.items() if value]


def tensors(q8=bytes(34 * 32)):
    return [Tensor(b'token_embd.weight', F32, (32, 4), bytes(512)),
            Tensor(b'blk.0.attn_q.weight', Q8_0, (32, 32), q8)]


def image(q8=bytes(34 * 32), how=None, **changed):
    return gguf.encode(keys(**changed), tensors(q8), **(how or {}))
