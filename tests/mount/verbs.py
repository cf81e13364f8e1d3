# SPDX-License-Identifier: MIT
"""Every kind of edit of keys and tensors, one after another, on models of every version, byte order and
layout, by each strategy and commit mode. After each, a strict reader that shares no code with the program
reads the file."""
import itertools
import os
import shutil
import struct

import editlib
import ggufmodel as gguf
import mountlib
import numpy as np
import oracle
import samples
from editlib import place, sync, write
from ggufmodel import Tensor, Value
from mountlib import get
from tensorcase import Case

I8, Q8_0, F32, F16 = 24, 8, 0, 1
BLOCK = [127, *range(-15, 16)]  # with a scale of 1
LONG = 'a.much.longer.name.than.before.and.with.umlaut.ü'


class Verbs(Case):
    """A key of each type; five tensors of values that every type here can hold exactly."""
    big = False

    def packed(self, letter, values):
        return struct.pack(f'{">" if self.big else "<"}{len(values)}{letter}', *values)

    def blocks(self, values):
        return b''.join(self.packed('e', [1]) + struct.pack('32b', *values[i:i + 32]) for i in range(0, len(values), 32))

    def build(self, big=False, **how):
        self.big = big
        self.put(gguf.encode(samples.keys(), [
            Tensor(b'half', F16, (7,), self.packed('e', range(7))),
            Tensor(b'floats', F32, (32, 8), self.packed('f', BLOCK * 8)),
            Tensor(b'blocks', Q8_0, (64, 3), self.blocks(BLOCK * 6)),
            Tensor(b'bytes', I8, (5, 3), bytes(range(15))),
            Tensor(b'last', F16, (3, 1, 3), self.packed('e', range(9)))], big=big, **how))

    # ---- edits of keys; after each yield, the file and the tree are checked ----

    def put_key(self, key, value, text=None):
        """Write a value's text (a string is its own), and check that the file has it and shows it."""
        text = value.data + b'\n' if text is None else text
        if text:
            write(self.at, key, text)
        else:  # a truncation alone would be an edit only after the close of the handle
            os.truncate(place(self.at, key), 0)
            sync(self.at)
        self.want.set(key, value)
        yield
        shown = editlib.read(self.at, key)
        self.assertTrue(oracle.is_text(value, shown), (key, shown[:100]))
        self.assertEqual(os.stat(place(self.at, key)).st_size, len(shown))
        self.assertEqual(editlib.type_of(self.at, key), value.full_type_name())
        self.assertIsNone(editlib.error_of(self.at, key))

    def key_values(self):
        """Values become as long as before, longer, shorter and empty, and get their old text back."""
        for text in (b'Name', b'a longer name than before, by much ' * 20, b'n', b'', b'two\nlines\n',
                     b'\n', 'ü€🦙'.encode(), b'test'):
            yield from self.put_key(b'general.name', Value('string', text))

    def key_types(self):
        """Values of each of the 13 types are copied from other models: the same, and larger ones."""
        for second in (False, True):
            kv = list(samples.one_of_each(second))
            with mountlib.Mount(mountlib.put('other.gguf', gguf.encode(kv, [])), '-o', 'ro') as other:
                for key, value in kv:
                    yield from self.put_key(key, value, editlib.read(other, key))

    def key_names(self):
        """Keys are added at the end, renamed in place and removed, and get their place back."""
        yield from self.put_key(b'my.first', Value('u32', 1), '1')
        yield from self.put_key(b'my.second', Value('string', b'second'), 'second')
        os.rename(place(self.at, 'general.name'), place(self.at, 'my.name'))
        self.want.rename(b'general.name', b'my.name')
        yield
        os.unlink(place(self.at, 'my.first'))
        self.want.remove(b'my.first')
        sync(self.at)
        yield
        os.rename(place(self.at, 'my.name'), place(self.at, 'general.name'))
        self.want.rename(b'my.name', b'general.name')
        yield

    # ---- edits of tensors ----

    def rename(self):
        for old, new in ('half', 'renamed'), ('bytes', LONG), ('renamed', 'half'), (LONG, 'bytes'):
            os.rename(self.tensor(old), self.tensor(new))
            self.set(old.encode(), new=new.encode())
            yield

    def replace(self):
        source = mountlib.put('source', bytes(range(100, 115)))
        shutil.copyfile(source, self.tensor('bytes', 'raw'))
        self.set(b'bytes', data=bytes(range(100, 115)))
        yield

    def values(self):
        """Write one value, through a handle and through a mapping."""
        values = BLOCK * 6
        values[70] = -100
        with editlib.opened(self.tensor('blocks', 'f32'), os.O_RDWR) as fd:
            os.pwrite(fd, struct.pack('<f', -100), 4 * 70)
        self.set(b'blocks', data=self.blocks(values))
        yield
        mapped = np.memmap(self.tensor('floats', 'f32'), '<f4', mode='r+')
        mapped[100:200:7] = 5
        mapped.flush()
        del mapped
        floats = BLOCK * 8
        floats[100:200:7] = [5] * len(floats[100:200:7])
        self.set(b'floats', data=self.packed('f', floats))
        yield

    def back(self):
        """Writing texts and values back unchanged changes no byte; the file stays the same one."""
        before = os.stat(self.model)
        files = [place(self.at, entry.key) for entry in self.want.kv]
        files += [self.tensor(name, view) for name in ('half', 'floats', 'blocks', 'bytes', 'last')
                  for view in ('raw', 'f32', 'f16', 'bf16', 'f32.npy', 'f16.npy', 'type', 'shape')]
        for file in files:
            mountlib.put(os.fsdecode(file), get(file))
            self.sync()
            after = os.stat(self.model)
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns), file)
        yield

    def save(self):
        """Save values in another shape: longer, and shorter."""
        for shape in ((3, 5, 4), (2,)):
            made = np.arange(np.prod(shape), dtype='<f4').reshape(shape)
            np.save(self.tensor('last', 'f32.npy'), made)
            self.set(b'last', dims=shape[::-1], data=self.packed('e', range(made.size)))
            yield
        grown = np.concatenate([np.load(self.tensor('blocks', 'f32.npy')), np.float32([BLOCK + BLOCK])])
        np.save(self.tensor('blocks', 'f32.npy'), grown)
        self.set(b'blocks', dims=(64, 4), data=self.want.tensors[2][3] + self.blocks(BLOCK * 2))
        yield

    def shape(self):
        for text, dims in (('16 16', (16, 16)), ('256', (256,)), ('8 32', (32, 8))):
            mountlib.put(self.tensor('floats', 'shape'), text + '\n')
            self.set(b'floats', dims=dims)
            yield

    def type(self):
        floats = list(struct.unpack(('>' if self.big else '<') + '256f', self.want.tensors[1][3]))
        for name, type_id, data in (('F16', F16, self.packed('e', floats)),
                                    ('I8', I8, struct.pack('256b', *map(int, floats))),
                                    ('F32', F32, self.packed('f', floats))):
            mountlib.put(self.tensor('floats', 'type'), name + '\n')
            self.set(b'floats', type_id=type_id, data=data)
            yield

    def remove(self):
        shutil.rmtree(self.tensor('half'))
        self.drop(b'half')
        self.sync()
        yield

    def add(self):
        os.mkdir(self.tensor('more'))
        for view, data in (('shape', b'2 64\n'), ('raw', self.blocks(BLOCK * 4)), ('type', b'Q8_0\n')):
            mountlib.put(self.tensor('more', view), data)
        self.want.tensors.append((b'more', Q8_0, (64, 2), self.blocks(BLOCK * 4)))
        os.mkdir(self.tensor('encoded'))
        mountlib.put(self.tensor('encoded', 'type'), 'Q8_0\n')
        np.save(self.tensor('encoded', 'f32.npy'), np.float32([BLOCK] * 3))
        self.want.tensors.append((b'encoded', Q8_0, (32, 3), self.blocks(BLOCK * 3)))
        self.sync()
        yield

    # ---- checks ----

    def shown(self):
        """Check that the file is as expected, nothing lies beside it, and the tree shows the same."""
        self.check()
        self.assertEqual(editlib.leftovers(os.path.dirname(self.model)), [])
        self.assertEqual(editlib.keys(self.at), [oracle.file_name(entry.key) for entry in self.want.kv])
        self.assertEqual([name.encode() for name in os.listdir(self.tensor())], [row[0] for row in self.want.tensors])
        for row in self.want.tensors:
            self.assertEqual(get(self.tensor(row[0].decode(), 'raw')), row[3])
        whole = os.path.join(self.at, 'model.gguf')
        self.assertEqual(get(whole), editlib.without_reserve(get(self.model)))
        self.assertEqual(os.stat(whole).st_size, len(get(whole)))
        self.assertNotIn(editlib.RESERVE, get(os.path.join(self.at, 'metadata.json')))

    def all(self):
        return (self.key_values, self.rename, self.replace, self.back, self.values, self.back, self.key_names, self.shape,
                self.type, self.save, self.remove, self.add)

    def play(self, verbs, *options, settle=False):
        """Run operations in one mount. settle: edits are collected."""
        self.mount(*options)
        for verb in verbs:
            with self.subTest(verb.__name__):
                for _ in verb():
                    if settle:
                        self.sync()
                    self.shown()
        self.end()
        self.check()

    def test_dialects(self):
        for version, big in itertools.product((2, 3), (False, True)):
            with self.subTest(version=version, big=big):
                self.build(version=version, big=big)
                self.play((self.key_types, *self.all()))

    def test_layouts(self):
        for layout in samples.LAYOUTS[1:]:
            with self.subTest(**layout):
                self.build(**layout)
                self.play(self.all())

    def first_edit(self, options):
        with mountlib.Mount(self.model, '-o', options) as at:
            write(at, 'general.name', 'the first edit')
        self.want.set(b'general.name', Value('string', b'the first edit'))

    def test_strategies(self):
        """Each strategy is used in several commit modes, in place only if a reserve exists."""
        for how, commit in (('auto', 'auto'), ('auto', 'sync'), ('copy', 'close'), ('copy', 'sync'), ('inplace', 'auto'),
                            ('inplace', 'sync')):
            with self.subTest(how=how, commit=commit):
                self.build(big=commit == 'close')
                verbs = self.all()
                if how == 'inplace':
                    self.first_edit('relayout=copy,reserve=262144')
                    verbs = (self.key_values, self.replace, self.values, self.shape, self.back, self.key_names)
                self.play(verbs, '-o', f'relayout={how},commit={commit},reserve=262144', settle=commit == 'sync')

    def test_reserve_is_removed(self):
        """reserve=0 makes no reserve, and removes one that is there."""
        for first in None, 'relayout=copy,reserve=4096':
            self.build()
            if first:
                self.first_edit(first)
            self.play((self.key_names, self.key_values), '-o', 'reserve=0')
            self.assertNotIn(editlib.RESERVE, get(self.model))
