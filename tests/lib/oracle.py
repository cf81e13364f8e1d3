# SPDX-License-Identifier: MIT
"""The expected mounted tree for a model read by ggufmodel. Needs NumPy."""
import json
import math
import re
import struct

import numpy as np

import ggufmodel as gguf

NON_FINITE = {'NaN': math.nan, 'Infinity': math.inf, '-Infinity': -math.inf,
              'nan': math.nan, 'inf': math.inf, '-inf': -math.inf}


def file_name(name):
    """Return the file name of a key or tensor; for a name over 255 bytes, the part before the
    hash."""
    if name in (b'', b'.', b'..'):
        return {b'': b'%', b'.': b'%2E', b'..': b'%2E%2E'}[name]
    parts = [b'%%%02X' % c if c < 0x20 or c in b'%/\x7f' else bytes([c]) for c in name]
    whole = b''.join(parts)
    while len(whole) > 255 and sum(map(len, parts)) > 255 - 18:
        parts.pop()
    return b''.join(parts)


def is_name_of(shown, name):
    want = file_name(name)
    if len(want) <= 255 and shown == want:
        return True
    return shown[:len(want)] == want and bool(re.fullmatch(rb'%~[0-9a-fA-F]{16}',
                                                           shown[len(want):]))


def bits(kind, number):
    """Return a float's bits; all NaNs are equal."""
    if math.isnan(number):
        return 'nan'
    # A decimal that rounds to infinity does not represent a finite float.
    return struct.pack('<f' if kind == 'f32' else '<d', number)


def is_shortest(kind, text, number):
    """True if no decimal with fewer significant digits represents the same float."""
    digits = re.sub(r'[eE].*', '', text).replace('.', '').lstrip('-0').rstrip('0')
    return len(digits) <= 1 or \
        bits(kind, float(f'{number:.{len(digits) - 2}e}')) != bits(kind, number)


def is_float(kind, shown, number):
    """`shown`: text, or the result of load_json."""
    value = NON_FINITE.get(shown, shown)
    return isinstance(value, float | int) and bits(kind, float(value)) == bits(kind, number)


def is_scalar_text(value, text):
    """True if the text is a number or bool."""
    if value.type == 'bool':
        return text == ('true' if value.data else 'false')
    if value.type not in ('f32', 'f64'):
        return text == str(value.data)
    if not math.isfinite(value.data):
        return text in ('nan', 'inf', '-inf') and is_float(value.type, text, value.data)
    return (re.fullmatch(r'-?\d+(\.\d+)?(e[-+]?\d+)?', text) is not None
            and is_float(value.type, float(text), value.data)
            and is_shortest(value.type, text, value.data))


def load_json(text):
    """Load JSON, and keep the sign of -0, which would become the integer 0."""
    return json.loads(text, parse_int=lambda digits: -0.0 if digits == '-0' else int(digits))


def is_json(kind, item, shown):
    """Compare the result of load_json for an element (a Value if kind is 'array')."""
    if kind == 'array':
        return is_json_list(item, shown)
    if kind == 'string':
        return isinstance(shown, str) and shown.encode('utf-8', 'surrogateescape') == item
    if kind == 'bool':
        return shown is bool(item)
    if kind in ('f32', 'f64'):
        return shown is not True and shown is not False and is_float(kind, shown, item)
    return type(shown) is int and shown == item


def is_json_list(value, shown):
    return (isinstance(shown, list) and len(shown) == len(value.data)
            and all(is_json(value.elem, a, b) for a, b in zip(value.data, shown)))


def is_text(value, content):
    """Compare the content of metadata/KEY."""
    if value.type == 'string':
        return content == value.data + b'\n'
    if value.type == 'array':
        lines = content.decode('utf-8').split('\n')
        return lines.pop() == '' and is_json_list(value, [load_json(line) for line in lines])
    return content[-1:] == b'\n' and is_scalar_text(value, content[:-1].decode())


def type_name(type_id):
    return gguf.GEOMETRY[type_id][0] if type_id in gguf.GEOMETRY else f'unknown:{type_id}'


def numpy_shape(tensor):
    return tuple(reversed(tensor.dims))


# Decoders of values. Each converts rows of bytes (blocks x block size) to float32 (blocks x
# elements).

def plain(dtype):
    return lambda block: block.view(dtype).astype(np.float32)


# type id -> (decoder, positions of two-byte fields in the block; None: one number as wide as the
# block)
DECODERS = {
    0: (plain('<f4'), None), 1: (plain('<f2'), None),
    30: (lambda block: (block.view('<u2').astype(np.uint32) << 16).view(np.float32), None),
    24: (plain('i1'), None), 25: (plain('<i2'), None), 26: (plain('<i4'), None),
    27: (plain('<i8'), None), 28: (plain('<f8'), None),
    8: (lambda block: plain('<f2')(np.ascontiguousarray(block[:, :2])) * plain('i1')(block[:, 2:]), [0]),
}


def values(tensor, big=False):
    """Return the tensor as flat float32, or None if this oracle has no decoder for its type."""
    if tensor.type_id not in DECODERS:
        return None
    decode, fields = DECODERS[tensor.type_id]
    width = gguf.GEOMETRY[tensor.type_id][2]
    block = np.frombuffer(tensor.data, np.uint8).reshape(-1, width).copy()
    if big and fields is None:
        block = np.ascontiguousarray(block[:, ::-1])
    elif big:
        for at in fields:
            block[:, [at, at + 1]] = block[:, [at + 1, at]]
    with np.errstate(all='ignore'):
        return decode(block).reshape(-1)


def canonical(floats):
    """Return the values as bytes, with a single NaN."""
    return np.where(np.isnan(floats), np.float32('nan'), floats).astype('<f4').tobytes()
