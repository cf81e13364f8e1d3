# SPDX-License-Identifier: MIT
"""Models for the tests of edits."""
import random
import struct

import ggufmodel as gguf
from ggufmodel import Tensor, Value, array

F16 = 1
ARCH = [(b'general.architecture', Value('string', b'llama'))]

# Keyword arguments of encode(): layouts other than a strict writer's.
LAYOUTS = ({}, {'order': [3, 0, 4, 1, 2]}, {'gap': 64}, {'tail': False}, {'trailing': b'behind'},
           {'order': [4, 3, 2, 1, 0], 'gap': 32, 'tail': False})


def small(count=5, size=3):
    """Return tensors of random data, with sizes that need padding."""
    rng = random.Random(8)
    return [Tensor(b'%c.weight' % (97 + i), F16, (i + size,), rng.randbytes(2 * (i + size)))
            for i in range(count)]


def one_of_each(second=False):
    """Return a key of each type and of arrays of each; `second`: other values, longer arrays."""
    k = 1 if second else 0
    floats = [(0.5, -0.25, float('inf')), (1e10, 0.10000000149011612, -float('inf'), 3.0)][k]
    for name in gguf.SCALARS:
        if name == 'bool':
            one, many = bool(k), [1, 0, 1][:2 + k]
        elif name[0] == 'f':
            one, many = floats[1], list(floats)
        else:
            one, many = [100, 101][k], [[1, 2, 3], [0, 127, 5, 6, 7]][k]
        yield b'type.%s' % name.encode(), Value(name, one)
        yield b'list.%s' % name.encode(), array(name, many)
    yield b'type.string', Value('string', [b'text', b'another text\n'][k])
    yield b'list.string', array('string', [[b'a', b'', b'"\n'], [b'\xc3\xbc'] * 9][k])


def keys():
    nested = array('array', [array('i32', [1, -2]), array('string', [b'a'])])
    return (ARCH + [(b'general.name', Value('string', b'test'))] + list(one_of_each())
            + [(b'list.array', nested), (b'last.key', Value('u32', 3))])


def editable(**how):
    """Return a model with all of them; keyword arguments are those of encode()."""
    kv = keys()
    if 'alignment' in how:
        kv.append((b'general.alignment', Value('u32', how['alignment'])))
    return gguf.encode(kv, small(), **how)


def split_keys(no, count, total):
    return [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', count)),
            (b'split.tensors.count', Value('i32', total))]


def shards(kv, parts, **how):
    """Yield the files of a split model: the tensors of each; the first has the keys."""
    for no, part in enumerate(parts):
        keys_of = (kv if no == 0 else []) + split_keys(no, len(parts), sum(map(len, parts)))
        yield gguf.encode(keys_of, part, **how)


def split(kv, tensors, count):
    """Yield the files of a split model: the first has the keys and two tensors, the last has the others."""
    return shards(kv, [tensors[:2], *[[]] * (count - 2), tensors[2:]])


def unknown_types():
    made = small()
    made[1] = made[1]._replace(type_id=99, data=bytes(range(100)))
    made[4] = made[4]._replace(type_id=31, data=bytes(range(1, 65)))
    return gguf.encode(keys(), made)


def odd():
    """Return values whose text is also that of another value."""
    def nan(word):
        return struct.unpack('<f', struct.pack('<I', word))[0]
    return [(b'odd.nan', Value('f64', struct.unpack('<d', struct.pack('<Q', 0x7ff8dead00000001))[0])),
            (b'odd.bool', Value('bool', 7)), (b'odd.bools', array('bool', [0, 1, 2, 255])),
            (b'odd.nans', array('f32', [nan(0x7fc00001), nan(0xffc12345), 1.0])),
            (b'odd.string', Value('string', b'\xff\xfe not UTF-8')),
            (b'odd.strings', array('string', [b'\xff', b'ok', b'\xed\xa0\x80'])),
            (b'odd.newlines', Value('string', b'\n\n\n')), (b'odd.nul', Value('string', b'a\0b'))]


HALF = struct.pack('<e', 0.0125)
FLOATS = {'F32': 'f', 'F16': 'e', 'F64': 'd'}
# type -> what is set in each block, and where, so that its scales are small; of the others in the first two bytes
SCALES = {
    **{name: (HALF + HALF, 0) for name in ('Q4_1', 'Q5_1', 'Q8_1', 'Q4_K', 'Q5_K')},
    'Q2_K': (HALF + HALF, 80), 'Q3_K': (HALF, 108), 'Q6_K': (HALF, 208), 'Q8_K': (struct.pack('<f', 0.0125), 0),
    'TQ1_0': (HALF, 52), 'TQ2_0': (HALF, 64), 'MXFP4': (b'\x78', 0), 'NVFP4': (b'\x20\x24\x28\x2c', 0),
}


def blocks(type_id, count, seed=0):
    """Return random blocks of a type, whose values are finite and differ."""
    name, length, size = gguf.GEOMETRY[type_id]
    rng = random.Random(f'{name} {seed}')
    if name in FLOATS:
        return struct.pack(f'<{count}{FLOATS[name]}', *(rng.gauss(0, 0.02) for _ in range(count)))
    if name == 'BF16':
        return b''.join(struct.pack('<f', rng.gauss(0, 0.02))[2:] for _ in range(count))
    made = bytearray(rng.randbytes(count * size))
    scale, at = SCALES.get(name, (HALF if length > 1 else b'', 0))
    for i, byte in enumerate(b'' if name == 'IQ1_M' else scale):
        made[at + i::size] = bytes([byte]) * count
    for k in range(4 if name == 'IQ1_M' else 0):  # the scale's 16 bits are the high nibbles of four words
        nibble = struct.unpack('<H', HALF)[0] >> 4 * k & 15
        words = slice(49 + 2 * k, None, size)
        made[words] = bytes(byte & 15 | nibble << 4 for byte in made[words])
    return bytes(made)
