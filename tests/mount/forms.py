# SPDX-License-Identifier: MIT
"""model.safetensors in its four forms: valid, identical bit for bit to the tensors' directories,
and decoded on demand."""
import json
import math
import os
import unittest

import ggufmodel as gguf
import mountlib
import oracle
import samples
from ggufmodel import Tensor, Value, array

try:  # the official reader, in Debian since 13 as python3-safetensors
    import safetensors as official
    NUMPY = {'F32': 'float32', 'F16': 'float16', 'F64': 'float64', 'I8': 'int8', 'I16': 'int16', 'I32': 'int32',
             'I64': 'int64'}  # it does not support BF16
except ImportError:
    official = None

FORMS = {'model.safetensors': None, 'model.f32.safetensors': 'F32', 'model.f16.safetensors': 'F16',
         'model.bf16.safetensors': 'BF16'}
OWN = {'F32', 'F16', 'BF16', 'F64', 'I8', 'I16', 'I32', 'I64'}
# The format, by whose rules files are checked and read here:
#
# file   = u64 length (little-endian), header, data
# header = a JSON object that begins with "{", padded with spaces at the end:
#          {"__metadata__": {text: text}, NAME: {"dtype": D, "shape": [...], "data_offsets": [a, b]}}
# data   = tensors from byte 0 on, without gap or overlap
WIDTH = {'BOOL': 1, 'U8': 1, 'I8': 1, 'F16': 2, 'BF16': 2, 'U16': 2, 'I16': 2, 'F32': 4, 'U32': 4, 'I32': 4,
         'F64': 8, 'U64': 8, 'I64': 8}
HEADER_MOST = 100_000_000
F32, F16, Q8_0, I8, I16, I64, F64, UNKNOWN = 0, 1, 8, 24, 25, 27, 28, 99


def once(pairs):
    """Return a JSON object, and refuse duplicate names."""
    made = dict(pairs)
    assert len(made) == len(pairs), 'a name is there twice'
    return made


def parse(head, size):
    """Parse the first bytes of a file of `size` bytes, with at least the whole header. Returns
    (metadata, tensors, the start of the data); tensors: name to (dtype, shape, begin, end),
    relative to the data."""
    assert size >= 8, 'too short for a length'
    length = int.from_bytes(head[:8], 'little')
    assert length <= HEADER_MOST, f'the header is too long: {length}'
    assert 8 + length <= size, 'the header is longer than the file'
    text = head[8:8 + length]
    assert text[:1] == b'{', 'the header does not begin with {'
    assert text.rstrip(b' ').endswith(b'}'), 'something else than spaces is behind the header'
    table = json.loads(text.decode('utf-8'), object_pairs_hook=once)
    metadata = table.pop('__metadata__', {})
    for key, value in metadata.items():
        assert isinstance(value, str), f'metadata is not text: {key}'
        (key + value).encode('utf-8')  # fails on lone surrogates
    tensors, at = {}, 0
    for name, row in sorted(table.items(), key=lambda item: item[1]['data_offsets']):
        name.encode('utf-8')
        assert set(row) == {'dtype', 'shape', 'data_offsets'}, (name, row)
        begin, end = row['data_offsets']
        assert begin == at, ('a gap or an overlap', name, begin, at)
        assert end - begin == math.prod(row['shape']) * WIDTH[row['dtype']], ('not its size', name)
        assert begin % WIDTH[row['dtype']] == 0, ('not aligned', name)
        tensors[name] = (row['dtype'], tuple(row['shape']), begin, end)
        at = end
    assert 8 + length + at == size, ('the file is not as long as its tensors', size, 8 + length + at)
    return metadata, tensors, 8 + length


def load(path):
    """Return (metadata, {name: (dtype, shape, bytes)}) of a file."""
    data = mountlib.get(path)
    metadata, tensors, start = parse(data, len(data))
    return metadata, {name: (dtype, shape, data[start + begin:start + end])
                      for name, (dtype, shape, begin, end) in tensors.items()}


def tensor(name, type_id=F32, count=4):
    size = count * gguf.GEOMETRY[type_id][2] // gguf.GEOMETRY[type_id][1] if type_id in gguf.GEOMETRY else 64
    return Tensor(name, type_id, (count,), bytes(1 + i % 255 for i in range(size)))


class Forms(unittest.TestCase):
    def folders(self, at):
        """Return, for each tensor, its name in the model and its directory."""
        rows = json.loads(mountlib.get(at + '/tensors.json').decode('utf-8', 'surrogateescape'))
        for row in rows:
            name = row['name'].encode('utf-8', 'surrogateescape')
            yield name, row['type'], os.path.join(os.fsencode(at), b'tensors', oracle.file_name(name))

    def check(self, at, big):
        """Check each form of a mounted model against the files in tensors' directories. Returns the
        metadata."""
        for file, one in FORMS.items():
            path = os.path.join(at, file)
            size = os.stat(path).st_size
            metadata, tensors = load(path)
            self.assertEqual(os.stat(path).st_size, size)
            with open(path, 'rb') as head:
                self.assertEqual((8 + int.from_bytes(head.read(8), 'little')) % 4096, 0)
            for name, kind, folder in self.folders(at):
                try:
                    shown = name.decode('utf-8')
                except UnicodeDecodeError:
                    continue
                if not os.path.exists(os.path.join(folder, b'f32')):
                    self.assertNotIn(shown, tensors)
                    self.assertIn(shown, json.loads(metadata['ggufs.omitted']))
                    continue
                dtype, shape, data = tensors.pop(shown)
                self.assertEqual(list(shape), [int(d) for d in mountlib.get(os.path.join(folder, b'shape')).split()])
                own = kind in OWN and (one is None or kind[0] == 'I')
                self.assertEqual(dtype, kind if own else one or 'F32', name)
                self.assertEqual(data, self.wanted(folder, dtype, own, big), (file, name))
            self.assertFalse([name for name in tensors if '%' not in name], file)
        return metadata

    def wanted(self, folder, dtype, own, big):
        if dtype in ('F32', 'F16', 'BF16'):
            return mountlib.get(os.path.join(folder, dtype.lower().encode()))
        raw, width = mountlib.get(os.path.join(folder, b'raw')), WIDTH[dtype]
        if not big:
            return raw
        return b''.join(raw[i:i + width][::-1] for i in range(0, len(raw), width))

    def is_read(self, path):
        """Check that the official reader gets the same from the mapped file and from its bytes."""
        with official.safe_open(path, 'np') as opened:
            metadata, tensors = load(path)
            self.assertEqual(opened.metadata(), metadata)
            self.assertEqual(sorted(opened.keys()), sorted(tensors))
            for name, (dtype, shape, data) in tensors.items():
                part = opened.get_slice(name)
                self.assertEqual((part.get_dtype(), tuple(part.get_shape())), (dtype, shape), name)
                if dtype in NUMPY:
                    values = opened.get_tensor(name)
                    self.assertEqual((values.dtype, values.shape), (NUMPY[dtype], shape), name)
                    self.assertEqual(values.tobytes(), data, name)
        self.assertEqual({name: (row['dtype'], tuple(row['shape']), bytes(row['data']))
                          for name, row in official.deserialize(mountlib.get(path))}, tensors)

    def all_read(self, model):
        with mountlib.Mount(model, '-o', 'ro') as at:
            for file in FORMS:
                self.is_read(os.path.join(at, file))

    @unittest.skipUnless(official, 'no python3-safetensors (Debian has it since 13)')
    def test_official(self):
        """Models have difficult names and keys, every type in both byte orders, no elements, no
        tensors."""
        names = [b'a\xff', b'a%FF', b'%FF\xfe', b'__metadata__', b'"quoted\\\n\0', b'', b'\xed\xa0\x80',
                 b'\xf0\x9f\x98\x80']
        kinds = [Tensor(b'%d' % i, i, (256, 2, 3), bytes(j % 251 for j in range(gguf.nbytes(i, (256, 2, 3)))))
                 for i in gguf.GEOMETRY]
        odd = [Tensor(b'scalar', F32, (), b'1234'), Tensor(b'none', I64, (0, 4)), tensor(b'odd', I8, 3),
               tensor(b'x', UNKNOWN)]
        kv = samples.ARCH + samples.odd() + [(key, Value('string', b'x')) for key in (b'__metadata__', b'format')]
        made = {'names': gguf.encode(kv, [tensor(name) for name in names]), 'none': gguf.encode(samples.ARCH, []),
                'little': gguf.encode(kv, kinds + odd), 'big': gguf.encode(samples.ARCH, kinds + odd, big=True)}
        for name, data in made.items():
            with self.subTest(model=name):
                self.all_read(mountlib.put(name + '.gguf', data))

    def test_names(self):
        """Names that are not UTF-8, the reserved name, and types without values are left out."""
        made = [tensor(b'a\xff'), tensor(b'a%FF'), tensor(b'__metadata__'),
                tensor(b'unknown', UNKNOWN), tensor(b'"quoted\\\n'), tensor(b''), tensor(b'\xed\xa0\x80')]
        with mountlib.Mount(mountlib.put('names.gguf', gguf.encode(samples.ARCH, made)), '-o', 'ro') as at:
            metadata, tensors = load(at + '/model.safetensors')
            self.assertEqual(list(tensors), ['a%FF', '"quoted\\\n', ''])
            self.assertEqual(json.loads(metadata['ggufs.omitted']),
                             ['a\ufffd', '__metadata__', 'unknown', '\ufffd\ufffd\ufffd'])
            self.assertEqual(tensors['a%FF'][2], made[1].data)

    def test_order(self):
        """The largest elements come first, so that each is aligned; within a size, the order is
        that of the file."""
        kinds = [I8, F16, F32, F64, I16, Q8_0, I64]
        made = [tensor(b't%d' % i, kind, 32) for i, kind in enumerate(kinds)] + [tensor(b'odd', I8, 3)]
        with mountlib.Mount(mountlib.put('order.gguf', gguf.encode(samples.ARCH, made)), '-o', 'ro') as at:
            self.assertEqual(list(load(at + '/model.safetensors')[1]),
                             ['t3', 't6', 't2', 't5', 't1', 't4', 't0', 'odd'])
            self.assertEqual(list(load(at + '/model.f16.safetensors')[1]),
                             ['t6', 't1', 't2', 't3', 't4', 't5', 't0', 'odd'])
            self.check(at, False)

    def test_metadata(self):
        kv = [(b'general.architecture', Value('string', b'llama')), (b'a.float', Value('f32', 0.1)),
              (b'a.nan', Value('f64', float('nan'))), (b'a.int', Value('u64', 2**64 - 1)), (b'a.bool', Value('bool', 1)),
              (b'a.list', array('i32', [1])), (b'a.bad', Value('string', b'x\xffy\xed\xa0\x80')), (b'format', Value('string', b'no')),
              (b'a\xff', Value('u8', 1)), (b'ggufs.reserve', Value('string', b'   '))]
        with mountlib.Mount(mountlib.put('keys.gguf', gguf.encode(kv, [tensor(b't')])), '-o', 'ro') as at:
            self.assertEqual(load(at + '/model.safetensors')[0], {
                'format': 'pt', 'general.architecture': 'llama', 'a.float': '0.1', 'a.nan': 'nan',
                'a.int': str(2**64 - 1), 'a.bool': 'true', 'a.bad': 'x\ufffdy\ufffd\ufffd\ufffd'})

    def test_long_keys(self):
        """Long texts are left out."""
        kv = samples.ARCH + [(b'a.long', Value('string', b'l' * (1 << 20))), (b'a.longer', Value('string', b'L' * (1 << 20 | 1))),
                             (b'a.short', Value('string', b's'))]
        with mountlib.Mount(mountlib.put('long.gguf', gguf.encode(kv, [tensor(b't')])), '-o', 'ro') as at:
            metadata, tensors = load(at + '/model.safetensors')
            self.assertEqual(set(metadata), {'format', 'general.architecture', 'a.long', 'a.short'})
            self.assertEqual(tensors['t'], ('F32', (4, ), tensor(b't').data))
