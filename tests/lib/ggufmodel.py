# SPDX-License-Identifier: MIT
"""GGUF files, written and read in the order of the specification. Uses only the standard library.

Shares no code with src/, so that it can be the oracle of the tests, and is short enough to be read
as a description of the format:

    file    = "GGUF" version n_tensors n_kv  kv*  info*  padding  data
    kv      = string type value
    info    = string n_dims dim* type offset            (dims: fastest first; offset: into data)
    string  = length bytes
    array   = element_type count element*

Counts, lengths and dimensions are u32 in version 1 and u64 since version 2; n_dims, versions and
type words are u32, offsets u64. The version word shows the byte order of all numbers.
"""
import struct
from typing import NamedTuple

# name -> (number in the file, struct code)
SCALARS = {
    'u8': (0, 'B'), 'i8': (1, 'b'), 'u16': (2, 'H'), 'i16': (3, 'h'), 'u32': (4, 'I'),
    'i32': (5, 'i'), 'f32': (6, 'f'), 'bool': (7, 'B'), 'u64': (10, 'Q'), 'i64': (11, 'q'),
    'f64': (12, 'd'),
}
TYPE_IDS = {**{name: row[0] for name, row in SCALARS.items()}, 'string': 8, 'array': 9}
TYPE_NAMES = {number: name for name, number in TYPE_IDS.items()}

# ggml's type id -> (name, elements in a block, bytes in a block)
GEOMETRY = {
    0: ('F32', 1, 4), 1: ('F16', 1, 2), 2: ('Q4_0', 32, 18), 3: ('Q4_1', 32, 20),
    6: ('Q5_0', 32, 22), 7: ('Q5_1', 32, 24), 8: ('Q8_0', 32, 34), 9: ('Q8_1', 32, 36),
    10: ('Q2_K', 256, 84), 11: ('Q3_K', 256, 110), 12: ('Q4_K', 256, 144), 13: ('Q5_K', 256, 176),
    14: ('Q6_K', 256, 210), 15: ('Q8_K', 256, 292), 16: ('IQ2_XXS', 256, 66),
    17: ('IQ2_XS', 256, 74), 18: ('IQ3_XXS', 256, 98), 19: ('IQ1_S', 256, 50),
    20: ('IQ4_NL', 32, 18), 21: ('IQ3_S', 256, 110), 22: ('IQ2_S', 256, 82),
    23: ('IQ4_XS', 256, 136), 24: ('I8', 1, 1), 25: ('I16', 1, 2), 26: ('I32', 1, 4),
    27: ('I64', 1, 8), 28: ('F64', 1, 8), 29: ('IQ1_M', 256, 56), 30: ('BF16', 1, 2),
    34: ('TQ1_0', 256, 54), 35: ('TQ2_0', 256, 66), 39: ('MXFP4', 32, 17), 40: ('NVFP4', 64, 36),
    41: ('Q1_0', 128, 18), 42: ('Q2_0', 64, 18),
}
V1_TYPE_IDS = {16: 24, 17: 25, 18: 26}  # version 1 numbered I8, I16, I32 like this


class Value(NamedTuple):
    """A metadata value. Strings are bytes. An array's data is a list of numbers or bytes, or (elem
    == 'array') of Values."""
    type: str
    data: object
    elem: str = ''

    def type_name(self):
        return f'array[{self.elem}]' if self.type == 'array' else self.type

    def full_type_name(self):
        """Return the type; of an array of arrays, with the one that all inner arrays have."""
        inner = {item.full_type_name() for item in self.data} if self.elem == 'array' else set()
        return f'array[{inner.pop()}]' if len(inner) == 1 else self.type_name()


def array(elem, items):
    return Value('array', list(items), elem)


class Tensor(NamedTuple):
    name: bytes
    type_id: int
    dims: tuple       # as stored, the fastest first
    data: bytes = b''
    offset: int = 0   # absolute, set by read()

    def elements(self):
        count = 1
        for dim in self.dims:
            count *= dim
        return count


class Model(NamedTuple):
    kv: list          # list of (key bytes, Value)
    tensors: list     # list of Tensor, in the order of the infos
    data_offset: int
    head: int         # the end of the infos
    alignment: int


def pad(size, alignment):
    return -size % alignment


def nbytes(type_id, dims):
    """Return the size in bytes of a tensor of a known type."""
    _, block_len, block_bytes = GEOMETRY[type_id]
    return Tensor(b'', type_id, dims).elements() // block_len * block_bytes


class Writer:
    """Encodes the parts of a header in one dialect."""

    def __init__(self, version=3, big=False, nul=False):
        self.order = '>' if big else '<'
        self.size = 'I' if version == 1 else 'Q'
        self.nul = b'\0' if nul else b''

    def number(self, code, value):
        return struct.pack(self.order + code, value)

    def string(self, text):
        text += self.nul
        return self.number(self.size, len(text)) + text

    def items(self, elem, data):
        if elem == 'string':
            return b''.join(map(self.string, data))
        if elem == 'array':
            return b''.join(map(self.value, data))
        return struct.pack(f'{self.order}{len(data)}{SCALARS[elem][1]}', *data)

    def value(self, value):
        if value.type != 'array':
            return self.items(value.type, [value.data])
        head = self.number('I', TYPE_IDS[value.elem]) + self.number(self.size, len(value.data))
        return head + self.items(value.elem, value.data)

    def kv(self, key, value):
        return self.string(key) + self.number('I', TYPE_IDS[value.type]) + self.value(value)

    def info(self, tensor, offset):
        dims = b''.join(self.number(self.size, dim) for dim in tensor.dims)
        return (self.string(tensor.name) + self.number('I', len(tensor.dims)) + dims
                + self.number('I', tensor.type_id) + self.number('Q', offset))


def place(sizes, order, alignment, gap):
    """Return the offsets of data blocks placed in `order`, each after `gap` unneeded bytes, and the
    end."""
    offsets, at = [0] * len(sizes), 0
    for index in order:
        at += gap
        offsets[index] = at
        at += sizes[index] + pad(sizes[index], alignment)
    return offsets, at


def header(kv, tensors, offsets, *, version=3, big=False, nul=False):
    """Return all bytes before the padding that precedes the data."""
    out = Writer(version, big, nul)
    parts = [b'GGUF', out.number('I', version), out.number(out.size, len(tensors)),
             out.number(out.size, len(kv))]
    parts += [out.kv(key, value) for key, value in kv]
    parts += [out.info(tensor, offset) for tensor, offset in zip(tensors, offsets)]
    return b''.join(parts)


def encode(kv, tensors, *, alignment=32, order=None, gap=0, tail=True, trailing=b'', **dialect):
    """Return a whole file. `order`: which tensor's data comes first, second ...; `gap`: bytes
    before each (a multiple of the alignment); tail=False omits the last padding."""
    order = order or range(len(tensors))
    offsets, _ = place([len(t.data) for t in tensors], order, alignment, gap)
    out = bytearray(header(kv, tensors, offsets, **dialect))
    if tensors:
        out += bytes(pad(len(out), alignment))
    base = len(out)
    for count, index in enumerate(order, 1):
        out += bytes(base + offsets[index] - len(out)) + tensors[index].data
        if tail or count < len(tensors):
            out += bytes(pad(len(out) - base, alignment))
    return bytes(out) + trailing


class Reader:
    """The inverse of Writer, over the bytes of a complete and well-formed file."""

    def __init__(self, file, nul=False):
        self.file, self.at, self.nul = file, 8, nul
        self.order = '>' if file[4:6] == b'\0\0' else '<'
        self.version, = struct.unpack_from(self.order + 'I', file, 4)
        self.size = 'I' if self.version == 1 else 'Q'

    def number(self, code):
        value, = struct.unpack_from(self.order + code, self.file, self.at)
        self.at += struct.calcsize(self.order + code)
        return value

    def string(self):
        length = self.number(self.size)
        text = self.file[self.at:self.at + length]
        self.at += length
        return text[:-1] if self.nul else text

    def item(self, kind):
        if kind == 'string':
            return self.string()
        return self.value(kind) if kind == 'array' else self.number(SCALARS[kind][1])

    def value(self, kind):
        if kind != 'array':
            return Value(kind, self.item(kind))
        elem, count = TYPE_NAMES[self.number('I')], self.number(self.size)
        return array(elem, [self.item(elem) for _ in range(count)])

    def kv(self):
        key = self.string()
        return key, self.value(TYPE_NAMES[self.number('I')])

    def info(self):
        name, n_dims = self.string(), self.number('I')
        dims = tuple(self.number(self.size) for _ in range(n_dims))
        type_id = self.number('I')
        if self.version == 1:
            type_id = V1_TYPE_IDS.get(type_id, type_id)
        return Tensor(name, type_id, dims, offset=self.number('Q'))


def extent(tensor, starts, end):
    """Return the size of a tensor in bytes: by its type or, for an unknown type, up to the next
    tensor or the end of the file."""
    if tensor.type_id in GEOMETRY:
        return nbytes(tensor.type_id, tensor.dims)
    return min([start for start in starts if start > tensor.offset] + [end]) - tensor.offset


def read(file, nul=False):
    """Parse the bytes of a file. `nul`: its writer counted a trailing NUL in every string."""
    source = Reader(file, nul)
    n_tensors, n_kv = source.number(source.size), source.number(source.size)
    kv = [source.kv() for _ in range(n_kv)]
    infos = [source.info() for _ in range(n_tensors)]
    alignment = dict(kv).get(b'general.alignment', Value('u32', 32)).data
    base = source.at + (pad(source.at, alignment) if infos else 0)
    infos = [tensor._replace(offset=base + tensor.offset) for tensor in infos]
    starts = [tensor.offset for tensor in infos]
    tensors = [t._replace(data=file[t.offset:t.offset + extent(t, starts, len(file))])
               for t in infos]
    return Model(kv, tensors, base, source.at, alignment)
