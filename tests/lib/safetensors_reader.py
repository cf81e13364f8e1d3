# SPDX-License-Identifier: MIT
"""safetensors files, checked and read by the rules of the format. Uses only the standard library;
shares no code with src/.

    file   = u64 length (little-endian), header, data
    header = a JSON object that begins with "{", padded with spaces at the end:
             {"__metadata__": {text: text}, NAME: {"dtype": D, "shape": [...], "data_offsets": [a, b]}}
    data   = tensors from byte 0 on, without gap or overlap
"""
import json
import math

WIDTH = {'BOOL': 1, 'U8': 1, 'I8': 1, 'F16': 2, 'BF16': 2, 'U16': 2, 'I16': 2, 'F32': 4, 'U32': 4, 'I32': 4,
         'F64': 8, 'U64': 8, 'I64': 8}
HEADER_MOST = 100_000_000


class Faulty(ValueError):
    pass


def need(condition, *what):
    if not condition:
        raise Faulty(*what)


def once(pairs):
    """Return a JSON object, and refuse duplicate names."""
    made = dict(pairs)
    need(len(made) == len(pairs), 'a name is there twice')
    return made


def parse(head, size):
    """Parse the first bytes of a file of `size` bytes, with at least the whole header. Returns
    (metadata, tensors, the start of the data); tensors: name to (dtype, shape, begin, end),
    relative to the data."""
    need(size >= 8, 'too short for a length')
    length = int.from_bytes(head[:8], 'little')
    need(length <= HEADER_MOST, 'the header is too long', length)
    need(8 + length <= size, 'the header is longer than the file')
    text = head[8:8 + length]
    need(text[:1] == b'{', 'the header does not begin with {')
    need(text.rstrip(b' ').endswith(b'}'), 'something else than spaces is behind the header')
    table = json.loads(text.decode('utf-8'), object_pairs_hook=once)
    metadata = table.pop('__metadata__', {})
    for key, value in metadata.items():
        need(isinstance(value, str), 'metadata is not text', key)
        (key + value).encode('utf-8')  # fails on lone surrogates
    tensors, at = {}, 0
    for name, row in sorted(table.items(), key=lambda item: item[1]['data_offsets']):
        name.encode('utf-8')
        need(set(row) == {'dtype', 'shape', 'data_offsets'}, name, row)
        begin, end = row['data_offsets']
        need(begin == at, 'a gap or an overlap', name, begin, at)
        need(end - begin == math.prod(row['shape']) * WIDTH[row['dtype']], 'not its size', name)
        need(begin % WIDTH[row['dtype']] == 0, 'not aligned', name)
        tensors[name] = (row['dtype'], tuple(row['shape']), begin, end)
        at = end
    need(8 + length + at == size, 'the file is not as long as its tensors', size, 8 + length + at)
    return metadata, tensors, 8 + length


def load(path):
    """Return (metadata, {name: (dtype, shape, bytes)}) of a file."""
    with open(path, 'rb') as file:
        data = file.read()
    metadata, tensors, start = parse(data, len(data))
    return metadata, {name: (dtype, shape, data[start + begin:start + end])
                      for name, (dtype, shape, begin, end) in tensors.items()}
