# SPDX-License-Identifier: MIT
"""Split models: one tree for all shards, the merged file, edits of the first shard, and faulty sets
of shards."""
import errno
import json
import os
import random
import resource
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Tensor, Value

F32, F16, Q8_0 = 0, 1, 8
KEYS = [(b'general.architecture', Value('string', b'llama')), (b'general.name', Value('string', b'x')),
        (b'llama.block_count', Value('u32', 2)), (b'x.u64', Value('u64', 2 ** 40))]
NAME = 'model-%05d-of-%05d.gguf'


def tensors():
    rand = random.Random(7)
    shapes = [(F32, (5,)), (Q8_0, (64, 3)), (F16, (7, 2)), (F32, (0, 4)), (F32, (33,)), (Q8_0, (32,))]
    return [Tensor(b't.%d' % i, kind, dims, rand.randbytes(gguf.nbytes(kind, dims)))
            for i, (kind, dims) in enumerate(shapes)]


def shards(where, parts, **dialect):
    """Write the shards; parts[i] are the tensors of shard i. Returns their paths."""
    return [mountlib.put(os.path.join(where, NAME % (no + 1, len(parts))), data)
            for no, data in enumerate(samples.shards(KEYS, parts, **dialect))]


def cut(count=3):
    """Return all tensors, divided into that many parts, one of them empty."""
    all_of_them = tensors()
    return [all_of_them[:2], [], all_of_them[2:]] if count == 3 else [[], all_of_them]


class Split(unittest.TestCase):
    def check(self, at, whole, parts, names):
        model = gguf.read(whole)
        self.assertEqual(mountlib.get(at + '/model.gguf'), whole)
        self.assertEqual(os.listdir(at + '/metadata'), [key.decode() for key, _ in model.kv])
        self.assertEqual(os.listdir(at + '/tensors'), [t.name.decode() for t in model.tensors])
        for no, part in enumerate(parts):
            stored = {t.name: t for t in gguf.read(mountlib.get(names[no])).tensors}
            for tensor in part:
                place = f'{at}/tensors/{tensor.name.decode()}/'
                self.assertEqual(mountlib.get(place + 'raw'), tensor.data)
                self.assertEqual(mountlib.get(place + 'shard').decode(),
                                 os.path.basename(names[no]) + '\n')
                self.assertEqual(int(mountlib.get(place + 'offset')), stored[tensor.name].offset)
        rows = json.loads(mountlib.get(at + '/tensors.json'))
        self.assertEqual([row['shard'] for row in rows],
                         [os.path.basename(names[no]) for no, part in enumerate(parts) for _ in part])

    def test_one_tree(self):
        """The tree is the same from any shard, in both byte orders, with and without tensors in the
        first one; model.gguf equals the unsplit file."""
        for count in (3, 2):
            for dialect in ({}, {'big': True}, {'version': 2}, {'tail': False}):
                with self.subTest(count=count, **dialect):
                    where = f'tree-{count}-' + '-'.join(map(str, dialect))
                    parts = cut(count)
                    names = shards(where, parts, **dialect)
                    how = {key: value for key, value in dialect.items() if key != 'tail'}
                    whole = gguf.encode(KEYS, tensors(), **how)
                    for name in names:
                        with mountlib.Mount(name) as at:
                            self.check(at, whole, parts, names)

    def test_more_shards_than_open_files(self):
        """The soft limit on open files is raised to the hard one."""
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for where in ('many/first', 'many/second'):
            shards(where, [tensors()] + [[] for _ in range(39)])
        with mountlib.Mount(mountlib.path('many'), preexec_fn=few) as at:
            for where in ('first', 'second'):
                self.assertEqual(os.listdir(f'{at}/{where}/model.gguf/tensors'),
                                 [t.name.decode() for t in tensors()])

    def test_edit(self):
        """Edits go to the first shard, by each strategy; the other shards and all tensors stay unchanged."""
        for way in ('copy', 'inplace'):
            with self.subTest(way):
                self.edit('edit-' + way, way)

    def edit(self, where, way):
        parts = cut()
        names = shards(where, parts)
        with mountlib.Mount(names[0], '-o', 'relayout=copy,reserve=65536') as at:
            editlib.write(at, 'general.name', 'y')
            editlib.write(at, 'general.name', 'x')
        before = [mountlib.get(name) for name in names]
        long = b'a much longer name, so that the data of the first shard moves' * 9
        inode = os.stat(names[0]).st_ino
        with mountlib.Mount(names[1], '-o', f'relayout={way},reserve=65536') as at:
            with open(at + '/model.gguf', 'rb') as old:
                editlib.write(at, 'general.name', long)
                os.unlink(at + '/metadata/x.u64')
                editlib.sync(at)
                self.assertEqual(old.read(), gguf.encode(KEYS, tensors()))
            keys = [KEYS[0], (b'general.name', Value('string', long)), KEYS[2]]
            self.check(at, gguf.encode(keys, tensors()), parts, names)
            mountlib.fails(errno.EPERM, mountlib.put, at + '/metadata/split.count', '9')
        self.assertEqual([mountlib.get(name) for name in names[1:]], before[1:])
        first = gguf.read(mountlib.get(names[0]))
        self.assertEqual([row for row in first.kv if row[0] != editlib.RESERVE], keys + samples.split_keys(0, 3, len(tensors())))
        self.assertTrue(way == 'copy' or os.stat(names[0]).st_ino == inode)
        self.assertEqual(editlib.leftovers(os.path.dirname(names[0])), [])
        with mountlib.Mount(names[2]) as at:
            self.check(at, gguf.encode(keys, tensors()), parts, names)

    def test_partial(self):
        """What is there is mounted, whichever files but the first are missing; each tensor names its
        file."""
        for gone in ([1], [2], [1, 2]):
            parts = [tensors()[:1], tensors()[1:3], tensors()[3:]]
            names = shards('partial-' + ''.join(map(str, gone)), parts)
            for no in gone:
                os.unlink(names[no])
            mountlib.refuses(1, names[0], mountlib.folder_at('at'), names=(os.path.basename(names[gone[0]]), 'partial'))
            with mountlib.Mount(names[-1 if gone == [1] else 0], '-o', 'partial') as at:
                left = [(t, no) for no, part in enumerate(parts) if no not in gone for t in part]
                self.assertEqual(os.listdir(at + '/tensors'), [t.name.decode() for t, _ in left])
                for t, no in left:
                    name = at + '/tensors/' + t.name.decode()
                    self.assertEqual(mountlib.get(name + '/raw'), t.data)
                    self.assertEqual(mountlib.get(name + '/shard').decode(), os.path.basename(names[no]) + '\n')
                self.assertIn(f'{len(gone)} of 3 files are missing', mountlib.get(at + '/info').decode())
                self.assertIn(f'error: {len(gone)} of 3 files are missing', mountlib.get(at + '/check').decode())
                table = mountlib.get(at + '/tensors.txt').decode().split('\n\n')[0].splitlines()[1:]
                self.assertEqual([int(line.split()[-1]) - 1 for line in table], [no for _, no in left])
                self.assertEqual([t.name for t in gguf.read(mountlib.get(at + '/model.gguf')).tensors],
                                 [t.name for t, _ in left])
                mountlib.fails(errno.EROFS, editlib.write, at, 'general.name', 'y')
            with mountlib.Mount(os.path.dirname(names[0]), '-o', 'partial') as at:
                self.assertEqual(os.listdir(at + '/model.gguf/tensors'), [t.name.decode() for t, _ in left])
