# SPDX-License-Identifier: MIT
"""The whole tree of generated models of every dialect, compared with an independent reader."""
import json
import os
import random
import stat
import unittest

import numpy as np

import ggufmodel as gguf
import mountlib
import oracle
import samples
from ggufmodel import Tensor, Value, array

F32, F16, Q8_0, Q4_K, Q6_K = 0, 1, 8, 12, 14
ROOT = {'metadata', 'tensors', 'metadata.json', 'tensors.json', 'info', 'check', 'model.gguf',
        'model.safetensors', 'tensors.txt', 'errors'}


def scalars(v1):
    """Return the limits of every type."""
    names = [name for name in gguf.SCALARS if not (v1 and name in ('u64', 'i64', 'f64'))]
    for name in names:
        width = {'b': 8, 'h': 16, 'i': 32, 'q': 64}.get(gguf.SCALARS[name][1].lower())
        if name == 'bool':
            numbers = (0, 1, 2, 255)
        elif name == 'f32':
            numbers = (0.0, -0.0, 0.10000000149011612, 9.999999747378752e-06, 16777216.0, 1e10,
                       1.401298464324817e-45, 3.4028234663852886e38, float('inf'), -float('inf'),
                       float('nan'), -123.45600128173828)
        elif name == 'f64':
            numbers = (0.1, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, 9007199254740993.0, 1e22,
                       float('inf'), float('nan'))
        elif name[0] == 'u':
            numbers = (0, 1, 2 ** width - 1)
        else:
            numbers = (-2 ** (width - 1), -1, 0, 2 ** (width - 1) - 1)
        for count, number in enumerate(numbers):
            yield b'%s.%d' % (name.encode(), count), Value(name, number)
        yield b'array.%s' % name.encode(), array(name, numbers)
        yield b'array.%s.empty' % name.encode(), array(name, [])


def strings():
    texts = [b'', b'x', b'two\nlines', b'ends in newline\n', b'\n', b'\n\n', b'\xc3\xbc\xe2\x82\xac',
             b'\xff\xfe not \xc3 UTF-8 \xed\xa0\x80', bytes(range(1, 128)), b'NUL \0 inside',
             b'"quotes" \\ /', b'\xf0\x9f\xa6\x99', b'x' * 200000]
    for count, text in enumerate(texts):
        yield b'string.%d' % count, Value('string', text)
    yield b'array.string', array('string', texts)
    yield b'array.string.empty', array('string', [])
    yield b'array.array', array('array', [array('i32', [1, -2]), array('string', [b'a', b'\xff']),
                                          array('u8', []), array('array', [array('bool', [1])])])
    yield b'array.array.one', array('array', [array('f32', [0.5, float('nan')])])


NAMES = [b'a/b', b'/', b'.', b'..', b'...', b'%', b'%2F', b'100%', b'tab\tkey', b'new\nline',
         b'del\x7f', b'\xc3\xbcml\xc3\xa4ut', b'\xff\xfe', b' space ', b'*?[x]', b'-dash', b'Case',
         b'case', b'back\\slash', b'n' * 255, b'n' * 256, b'o' * 300, b'p' * 299 + b'q',
         b'\xe2\x82\xac' * 100, b'/' * 85, b'/' * 86, b'r' * 236 + b'//' + b's' * 20]


def names():
    for count, name in enumerate(NAMES):
        yield name, Value('u32', count)


def keys(v1=False):
    yield b'general.architecture', Value('string', b'llama')
    yield from scalars(v1)
    yield from strings()
    yield from names()


def noise(name, kind, dims, rng):
    return Tensor(name, kind, dims, rng.randbytes(gguf.nbytes(kind, dims)))


def tensors(v1=False):
    rng = random.Random(7)
    kinds = [F32, F16, Q8_0, Q4_K, Q6_K] + ([] if v1 else sorted(gguf.GEOMETRY))
    made = [noise(b'%d.weight' % count, kind, (512, 3), rng) for count, kind in enumerate(kinds)]
    shapes = [(), (1,), (5,), (4, 1), (1, 4), (2, 3, 5, 7), (0,), (7, 0), (0, 7)]
    made += [noise(b'shape.%d' % i, F32, dims, rng) for i, dims in enumerate(shapes)]
    return made + [noise(name, F16, (3,), rng) for name in NAMES]


ARCH = samples.ARCH


class Tree(unittest.TestCase):
    """Each test makes a file, reads it with the independent reader, and walks the mount."""

    def check(self, data, nul=False):
        source = mountlib.put('model.gguf', data)
        self.model, self.file = gguf.read(data, nul), data
        self.big = data[4:6] == b'\0\0'
        with mountlib.Mount(source) as at:
            self.at, self.stat = os.fsencode(at), os.stat(source)
            self.check_root(source)
            self.check_metadata()
            self.check_tensors()
            self.check_attributes()
        self.assertEqual(mountlib.get(source), data)

    def path(self, *parts):
        return os.path.join(self.at, *parts)

    def content(self, *parts):
        """Return the file's bytes; stat gives their exact number."""
        size = os.stat(self.path(*parts)).st_size
        data = mountlib.get(self.path(*parts))
        self.assertEqual(len(data), size, parts)
        return data

    def check_root(self, source):
        self.assertEqual(set(map(os.fsdecode, os.listdir(self.at))), ROOT)
        self.assertEqual(self.content(b'model.gguf'), self.file)
        self.assertTrue(self.content(b'info').endswith(b'\n'))
        ours, theirs = os.statvfs(self.at), os.statvfs(source)
        for field in ('f_frsize', 'f_blocks', 'f_files'):
            self.assertEqual(getattr(ours, field), getattr(theirs, field), field)

    def shown(self, folder, wanted):
        """Check that the directory's entries, in readdir order, are the names in `wanted`."""
        entries = os.listdir(self.path(folder))
        self.assertEqual(len(entries), len(wanted))
        for entry, name in zip(entries, wanted):
            self.assertTrue(oracle.is_name_of(entry, name), (entry, name))
            self.assertLessEqual(len(entry), 255)
        self.assertEqual(len(set(entries)), len(entries))
        return entries

    def attribute(self, entry, name):
        return os.getxattr(self.path(*entry), 'user.gguf.' + name)

    def check_metadata(self):
        entries = self.shown(b'metadata', [key for key, _ in self.model.kv])
        for entry, (key, value) in zip(entries, self.model.kv):
            text = self.content(b'metadata', entry)
            self.assertTrue(oracle.is_text(value, text), (key, value, text[:200]))
            place = (b'metadata', entry)
            self.assertEqual(self.attribute(place, 'type'), value.full_type_name().encode())
            self.assertEqual(self.attribute(place, 'name'), key)
        shown = oracle.load_json(self.content(b'metadata.json').decode('utf-8'))
        self.assertEqual([key.encode('utf-8', 'surrogateescape') for key in shown],
                         [key for key, _ in self.model.kv])
        for (key, value), row in zip(self.model.kv, shown.values()):
            self.assertEqual(set(row), {'type', 'value'})
            self.assertEqual(row['type'], value.type_name())
            item = value if value.type == 'array' else value.data
            self.assertTrue(oracle.is_json(value.type, item, row['value']), (key, row))
        self.assertEqual(self.content(b'metadata.json').count(b'\n'), len(shown) + 2)

    def check_tensors(self):
        entries = self.shown(b'tensors', [tensor.name for tensor in self.model.tensors])
        for entry, tensor in zip(entries, self.model.tensors):
            self.check_tensor((b'tensors', entry), tensor)
        rows = json.loads(self.content(b'tensors.json').decode('utf-8'))
        self.assertEqual(len(rows), len(self.model.tensors))
        for row, tensor in zip(rows, self.model.tensors):
            self.assertEqual(row['name'].encode('utf-8', 'surrogateescape'), tensor.name)
            self.assertEqual((row['type'], row['offset'], row['nbytes'], tuple(row['shape'])),
                             (oracle.type_name(tensor.type_id), tensor.offset, len(tensor.data),
                              oracle.numpy_shape(tensor)))

    def check_tensor(self, place, tensor):
        known = tensor.type_id in gguf.GEOMETRY
        values = {b'f32', b'f32.npy'} if known else set()
        self.assertEqual(set(os.listdir(self.path(*place))),
                         {b'raw', b'shape', b'type', b'offset'} | values)
        self.assertEqual(self.content(*place, b'raw'), tensor.data)
        for name, text in ((b'type', oracle.type_name(tensor.type_id).encode()),
                           (b'shape', b' '.join(b'%d' % dim for dim in oracle.numpy_shape(tensor))),
                           (b'offset', b'%d' % tensor.offset)):
            self.assertEqual(self.content(*place, name), text + b'\n')
            self.assertEqual(self.attribute(place, name.decode()), text)
        if known:
            self.check_values(place, tensor)
        else:
            with self.assertRaises(FileNotFoundError):
                os.stat(self.path(*place, b'f32'))

    def check_values(self, place, tensor):
        stored = self.content(*place, b'f32')
        floats = np.frombuffer(stored, '<f4')
        self.assertEqual(len(floats), tensor.elements())
        wanted = oracle.values(tensor, self.big)
        if wanted is not None:
            self.assertEqual(oracle.canonical(floats), oracle.canonical(wanted), place)
        loaded = np.load(self.path(*place, b'f32.npy'), mmap_mode='r' if floats.size else None)
        self.assertEqual((loaded.shape, loaded.dtype), (oracle.numpy_shape(tensor), np.dtype('<f4')))
        self.assertEqual(loaded.tobytes(), stored)
        self.assertTrue(self.content(*place, b'f32.npy').endswith(stored))

    def check_attributes(self):
        inodes = {}
        for folder, _, files in os.walk(self.at):
            for entry in os.scandir(folder):
                self.assertEqual(entry.inode(), os.lstat(entry.path).st_ino, entry.path)
            for name in [os.path.join(folder, file) for file in files] + [folder]:
                status = os.lstat(name)
                self.assertEqual(status.st_mtime_ns, self.stat.st_mtime_ns, name)
                self.assertEqual((status.st_uid, status.st_gid),
                                 (self.stat.st_uid, self.stat.st_gid))
                if not stat.S_ISDIR(status.st_mode):
                    self.assertGreaterEqual(status.st_blocks * 512, status.st_size, name)
                    self.assertFalse(status.st_mode & 0o111, name)
                self.assertNotIn(status.st_ino, inodes, name)
                inodes[status.st_ino] = name
        for number, name in inodes.items():
            self.assertEqual(os.lstat(name).st_ino, number)

    def test_values(self):
        self.check(gguf.encode(list(keys()), []))

    def test_tensors(self):
        self.check(gguf.encode(ARCH, tensors()))

    def test_version_1(self):
        self.check(gguf.encode(list(keys(v1=True)), tensors(v1=True), version=1))

    def test_big_endian(self):
        kinds = sorted(oracle.DECODERS)
        rng = random.Random(9)
        made = [noise(b'%d' % kind, kind, (256, 2), rng) for kind in kinds]
        self.check(gguf.encode(list(keys()), made, big=True))

    def test_counted_nul(self):
        kv = ARCH + [(b'general.name', Value('string', b'old')),
                     (b'tokens', array('string', [b'a', b'', b'bc']))]
        for version in (1, 2):
            with self.subTest(version=version):
                self.check(gguf.encode(kv, samples.small(), version=version, nul=True), nul=True)

    def test_layouts(self):
        """Orders, gaps, alignments, types that are not known, no keys, no tensors."""
        small = samples.small()
        for number, data in enumerate((
                *(gguf.encode(ARCH, small, **how) for how in samples.LAYOUTS[1:]),
                *(gguf.encode([*ARCH, (b'general.alignment', Value('u32', n))], small, alignment=n) for n in (8, 64, 4096)),
                samples.unknown_types(), gguf.encode([], []), gguf.encode(ARCH, []), gguf.encode([], small))):
            with self.subTest(number):
                self.check(data)
