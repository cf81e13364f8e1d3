# SPDX-License-Identifier: MIT
"""Random writes to views of tensors, with pwrite and through a shared mapping, compared with plain
bytes in memory: the writer's content, the content that readers see of accepted edits, and the
model's file."""
import itertools
import mmap
import os
import random
import struct

import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Tensor
from tensorcase import Case

I8, Q8_0, F32, F16 = 24, 8, 0, 1
SEED = int(os.environ.get('GGUFS_SEED', 1))
SOAK = int(os.environ.get('GGUFS_SOAK', 1))
STEPS = SOAK * 60


class Kind:
    """A tensor and one of its views. Values are whole numbers that the type can hold exactly."""

    def __init__(self, name, view, type_id, n):
        self.name, self.view, self.type_id, self.n = name, view, type_id, n
        self.width = 1 if view == 'raw' else 4
        self.first = [127 if i % 32 == 0 else i % 100 - 50 for i in range(n)]

    def shown(self, values):
        """Return the bytes of the view."""
        if self.view == 'raw':
            return struct.pack(f'<{len(values)}b', *values)
        return struct.pack(f'<{len(values)}f', *values)

    def stored(self, values):
        """Return the bytes of the tensor. In Q8_0 each block has a 127, so that its scale is 1."""
        if self.type_id == Q8_0:
            return b''.join(struct.pack('<e32b', 1, *values[i:i + 32]) for i in range(0, len(values), 32))
        return struct.pack(f'<{len(values)}' + {I8: 'b', F32: 'f', F16: 'e'}[self.type_id], *values)

    def keep(self, at, values):
        """Keep the 127 of a Q8_0 block."""
        if self.type_id == Q8_0:
            values = [127 if (at + i) % 32 == 0 else value for i, value in enumerate(values)]
        return values


KINDS = (Kind('bytes', 'raw', I8, 100003), Kind('floats', 'f32', F32, 20000), Kind('blocks', 'f32', Q8_0, 32 * 900),
         Kind('halves', 'f32', F16, 30001))


class Writer:
    """The open view; `draft` is the written content, `accepted` the model's."""

    def __init__(self, test, kind, lot):
        self.test, self.kind, self.lot = test, kind, lot
        self.place = test.tensor(kind.name, kind.view)
        self.draft = list(kind.first)
        self.accepted = list(kind.first)
        self.open()

    def open(self):
        self.fd = os.open(self.place, os.O_RDWR)
        self.map = mmap.mmap(self.fd, self.kind.n * self.kind.width)

    def close(self):
        """Close the view. Bytes stored through the mapping are included."""
        self.map.flush()
        self.map.close()
        os.close(self.fd)
        self.accepted = list(self.draft)

    def draw(self):
        at = self.lot.randrange(self.kind.n)
        n = min(self.lot.choice((1, 3, 40, 1500, 20000)), self.kind.n - at)
        if self.lot.random() < 0.2:
            return at, self.draft[at:at + n]
        return at, self.kind.keep(at, [self.lot.randrange(-127, 128) for _ in range(n)])

    def pwrite(self):
        at, values = self.draw()
        data = self.kind.shown(values)
        self.test.assertEqual(os.pwrite(self.fd, data, at * self.kind.width), len(data))
        self.draft[at:at + len(values)] = values

    def store(self):
        at, values = self.draw()
        data = self.kind.shown(values)
        self.map[at * self.kind.width:at * self.kind.width + len(data)] = data
        self.draft[at:at + len(values)] = values

    def msync(self):
        self.map.flush()
        self.accepted = list(self.draft)

    def fsync(self):
        os.fsync(self.fd)
        self.accepted = list(self.draft)

    def reopen(self):
        self.close()
        self.open()

    def own(self):
        """Check that the writer sees its writes, through the handle and the mapping."""
        at, values = self.draw()
        want = self.kind.shown(self.draft[at:at + len(values)])
        at *= self.kind.width
        self.test.assertEqual(os.pread(self.fd, len(want), at), want)
        self.test.assertEqual(self.map[at:at + len(want)], want)

    def other(self):
        """Check that a reader sees the draft, or the accepted content if nothing has been written
        since."""
        self.test.assertIn(mountlib.get(self.place), (self.kind.shown(self.accepted), self.kind.shown(self.draft)))

    def step(self):
        self.lot.choice((self.pwrite,) * 4 + (self.store,) * 4 + (self.own,) * 3 + (self.other, self.msync, self.fsync,
                                                                                     self.reopen))()


class Random(Case):
    def setUp(self):
        super().setUp()
        self.put(gguf.encode(samples.keys(), samples.small() + [
            Tensor(kind.name.encode(), kind.type_id, (kind.n,), kind.stored(kind.first)) for kind in KINDS]))

    def play(self, *options):
        for kind in KINDS:
            seed = f'{SEED} {kind.name} {options}'
            with self.subTest(seed):
                self.setUp()
                self.mount('-o', ','.join(options))
                writer = Writer(self, kind, random.Random(seed))
                for _ in range(STEPS):
                    writer.step()
                writer.close()
                writer.other()
                self.set(kind.name.encode(), data=kind.stored(writer.accepted))
                self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
                self.end()
                self.check()
                if 'GGUFS_SOAK' in os.environ:
                    print(f'\nsoak: {STEPS} random writes and reads of a view of a tensor', flush=True)

    def test_strategies(self):
        for how, commit in itertools.product(('copy', 'inplace'), ('close', 'sync')):
            self.play(f'relayout={how}', f'commit={commit}')

    def test_auto(self):
        self.play('commit=auto')
