# SPDX-License-Identifier: MIT
"""All operations of tensors=edit, one after another, on models of every version, byte order and
layout, with each strategy and commit mode. After each, a strict reader that shares no code with the
program reads the file."""
import itertools
import os
import shutil
import struct

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from editlib import leftovers
from ggufmodel import Tensor
from tensorcase import Case

I8, Q8_0, F32, F16 = 24, 8, 0, 1
BLOCK = [127, *range(-15, 16)]  # with a scale of 1


class Verbs(Case):
    """Five tensors of values that every type here can hold exactly."""
    big = False

    def packed(self, letter, values):
        return struct.pack(f'{">" if self.big else "<"}{len(values)}{letter}', *values)

    def blocks(self, values):
        return b''.join(self.packed('e', [1]) + struct.pack('32b', *values[i:i + 32]) for i in range(0, len(values), 32))

    def tensors(self):
        return [Tensor(b'half', F16, (7,), self.packed('e', range(7))),
                Tensor(b'floats', F32, (32, 8), self.packed('f', BLOCK * 8)),
                Tensor(b'blocks', Q8_0, (64, 3), self.blocks(BLOCK * 6)),
                Tensor(b'bytes', I8, (5, 3), bytes(range(15))),
                Tensor(b'last', F16, (3, 1, 3), self.packed('e', range(9)))]

    def build(self, big=False, alignment=None, **how):
        self.big = big
        keys = samples.keys()
        if alignment:
            keys.append((b'general.alignment', gguf.Value('u32', alignment)))
            how['alignment'] = alignment
        self.put(gguf.encode(keys, self.tensors(), big=big, **how))

    # ---- the operations ----

    def rename(self):
        for old, new in (('half', 'renamed'), ('bytes', 'a.much.longer.name.than.before.and.with.umlaut.ü'),
                         ('renamed', 'half')):
            os.rename(self.tensor(old), self.tensor(new))
            self.set(old.encode(), new=new.encode())
            yield
        os.rename(self.tensor('a.much.longer.name.than.before.and.with.umlaut.ü'), self.tensor('bytes'))
        self.set('a.much.longer.name.than.before.and.with.umlaut.ü'.encode(), new=b'bytes')
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
        fd = os.open(self.tensor('blocks', 'f32'), os.O_RDWR)
        os.pwrite(fd, struct.pack('<f', -100), 4 * 70)
        os.close(fd)
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
        """Writing values back unchanged changes no byte; the file stays the same one."""
        before = os.stat(self.model)
        for name in ('half', 'floats', 'blocks', 'bytes', 'last'):
            for view in ('raw', 'f32', 'f16', 'bf16', 'f32.npy', 'f16.npy', 'type', 'shape'):
                found = mountlib.get(self.tensor(name, view))
                mountlib.put(self.tensor(name, view), found)
        self.sync()
        self.assertEqual((os.stat(self.model).st_ino, os.stat(self.model).st_mtime_ns),
                         (before.st_ino, before.st_mtime_ns))
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
        self.set(b'blocks', dims=(64, 4), data=self.want[2][3] + self.blocks(BLOCK * 2))
        yield

    def shape(self):
        for text, dims in (('16 16', (16, 16)), ('256', (256,)), ('8 32', (32, 8))):
            mountlib.put(self.tensor('floats', 'shape'), text + '\n')
            self.set(b'floats', dims=dims)
            yield

    def type(self):
        floats = list(struct.unpack(('>' if self.big else '<') + '256f', self.want[1][3]))
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
        self.want.append((b'more', Q8_0, (64, 2), self.blocks(BLOCK * 4)))
        os.mkdir(self.tensor('encoded'))
        mountlib.put(self.tensor('encoded', 'type'), 'Q8_0\n')
        np.save(self.tensor('encoded', 'f32.npy'), np.float32([BLOCK] * 3))
        self.want.append((b'encoded', Q8_0, (32, 3), self.blocks(BLOCK * 3)))
        self.sync()
        yield

    def play(self, *options, sync=False, verbs=None):
        """Run all operations in one mount."""
        self.mount(*options)
        for verb in verbs or (self.rename, self.replace, self.back, self.values, self.back, self.shape, self.type, self.save,
                              self.remove, self.add):
            with self.subTest(verb.__name__):
                for _ in verb():
                    if sync:
                        self.sync()
                    self.check()
                    self.assertEqual([name.encode() for name in self.names_shown()], [row[0] for row in self.want])
                    self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
                    for row in self.want:
                        self.assertEqual(mountlib.get(self.tensor(row[0].decode(), 'raw')), row[3])
                    self.assertEqual(leftovers(mountlib.folder), [])
        self.end()
        self.check()

    def names_shown(self):
        return os.listdir(self.tensor())

    def test_dialects(self):
        for version, big in itertools.product((2, 3), (False, True)):
            with self.subTest(version=version, big=big):
                self.build(version=version, big=big)
                self.play()

    def test_layouts(self):
        for layout in samples.LAYOUTS[1:]:
            with self.subTest(**layout):
                self.build(**layout)
                self.play()

    def test_strategies(self):
        for how, commit in (('auto', 'auto'), ('auto', 'close'), ('copy', 'auto'), ('copy', 'sync'), ('inplace', 'close'),
                            ('inplace', 'sync')):
            with self.subTest(how=how, commit=commit):
                self.build(big=commit == 'close')
                verbs = None
                if how == 'inplace':
                    verbs = (self.replace, self.values, self.shape, self.back)
                self.play('-o', f'relayout={how},commit={commit}', sync=commit == 'sync', verbs=verbs)
