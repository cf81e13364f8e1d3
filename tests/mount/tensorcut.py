#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Power cuts while tensors are edited: like powercut.py, but for bytes, shapes and names of
tensors."""
import os
import random

import disks
import ggufmodel as gguf
import mountlib
import powercut
from editlib import RESERVE, entries, leftovers, strict, sync
from ggufmodel import Value

LARGE = 'large.weight'


def put(name, data, at=0):
    fd = os.open(name, os.O_WRONLY)
    try:
        os.pwrite(fd, data, at)
    finally:
        os.close(fd)


def keys(file):
    return [entry for entry in entries(file)[0] if entry.key != RESERVE]


class Recording(powercut.Recording):
    more = ('-o', 'tensors=edit')

    def begin(self):
        """Return the model after each edit: rows [name, dims, bytes] of its tensors."""
        super().begin()
        file = mountlib.get(self.source)
        self.kv = [keys(file)]
        self.states = [[[t.name, t.dims, t.data] for t in gguf.read(file).tensors]]

    def bytes(self, at, row, rng):
        row[2] = rng.randbytes(len(row[2]))
        put(os.path.join(at, 'tensors', LARGE, 'raw'), row[2])

    def pieces(self, at, row, rng):
        fd = os.open(os.path.join(at, 'tensors', LARGE, 'raw'), os.O_RDWR)
        data = bytearray(row[2])
        for _ in range(5):
            begin = rng.randrange(len(data) - 9000)
            piece = rng.randbytes(rng.choice((1, 100, 9000)))
            data[begin:begin + len(piece)] = piece
            os.pwrite(fd, piece, begin)
        os.close(fd)
        row[2] = bytes(data)

    def shape(self, at, row, _):
        row[1] = (len(row[2]),) if len(row[1]) > 1 else (10, len(row[2]) // 10)
        text = ' '.join(str(dim) for dim in reversed(row[1])) + '\n'
        with open(os.path.join(at, 'tensors', LARGE, 'shape'), 'wb', buffering=0) as out:
            out.write(text.encode())

    def name(self, at, row, _):
        first = self.states[self.edit][0]
        new = b'renamed.%d' % self.edit
        folder = os.fsencode(os.path.join(at, 'tensors'))
        os.rename(os.path.join(folder, first[0]), os.path.join(folder, new))
        first[0] = new

    def write(self, at, fsync):
        self.edit += 1
        self.states.append([list(row) for row in self.states[-1]])
        self.mark(self.begun)
        row = [row for row in self.states[-1] if row[0] == LARGE.encode()][0]
        rng = random.Random(self.edit)
        (self.bytes, self.pieces, self.shape, self.pieces, self.name)[self.edit % 5](at, row, rng)
        if fsync:
            sync(at, 'tensors')


class TensorCut(powercut.PowerCut):
    recording = Recording
    what = 'disks after a power cut during edits of tensors'

    def compare(self, recording, home, cut):
        first, last = recording.edits_at(cut)
        names = sorted(os.listdir(home))
        self.assertEqual(leftovers(home), [])
        self.assertEqual(len(names), len(recording.kv))
        files = [mountlib.get(os.path.join(home, name)) for name in names]
        self.assertEqual([keys(file) for file in files], recording.kv)
        found = [[t.name, t.dims, t.data] for file in files for t in strict(file).tensors]
        self.assertIn(found in recording.states[first:last + 1], [True],
                      f'none of the states after edits {first} to {last}')


def tearDownModule():
    powercut.tearDownModule()


if __name__ == '__main__':
    powercut.main()
