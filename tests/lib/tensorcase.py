# SPDX-License-Identifier: MIT
"""Shared by tests of edited tensors: a mount with tensors=edit, and the expected model."""
import os
import struct
import unittest

import ggufmodel as gguf
import mountlib
import samples
from editlib import RESERVE, entries, strict, sync

EDIT = ('-o', 'tensors=edit')


def f16(*values):
    return struct.pack(f'<{len(values)}e', *values)


def f32(*values):
    return struct.pack(f'<{len(values)}f', *values)


def q8(rows, scale=0.5):
    """Return rows of 64 values, `scale` * (0 to 31), as Q8_0."""
    return (struct.pack('<e', scale) + bytes(range(32))) * 2 * rows


class Case(unittest.TestCase):
    options = ()

    def setUp(self):
        self.model = mountlib.path('model.gguf')
        self.addCleanup(lambda: os.path.exists(self.model) and os.unlink(self.model))
        self.put(samples.editable())

    def put(self, data):
        """Write the model, and set its expected final content."""
        mountlib.put('model.gguf', data)
        self.kv = [entry for entry in entries(data)[0] if entry.key != RESERVE]
        self.want = [(t.name, t.type_id, t.dims, t.data) for t in gguf.read(data).tensors]

    def mount(self, *options):
        """Mount on self.at until the test ends."""
        self.foreground = mountlib.Foreground(self.model, *EDIT, *self.options, *options)
        self.at, self.process = self.foreground.__enter__()
        self.addCleanup(self.end)

    def end(self):
        if self.foreground:
            ending, self.foreground = self.foreground, None
            ending.__exit__(None, None, None)

    def tensor(self, *parts):
        return os.path.join(self.at, 'tensors', *parts)

    def sync(self):
        sync(self.at, 'tensors')

    def at_place(self, name):
        return [row[0] for row in self.want].index(name)

    def set(self, name, new=None, type_id=None, dims=None, data=None):
        """Set the expected content of a tensor from now on."""
        i = self.at_place(name)
        old = self.want[i]
        self.want[i] = (new or name, old[1] if type_id is None else type_id, dims or old[2],
                        old[3] if data is None else data)

    def drop(self, name):
        del self.want[self.at_place(name)]

    def check(self, file=None):
        """Check that the model's file has the expected tensors, and all keys unchanged."""
        data = mountlib.get(self.model) if file is None else file
        model = strict(data)
        self.assertEqual([entry for entry in entries(data)[0] if entry.key != RESERVE], self.kv)
        self.assertEqual([(t.name, t.type_id, t.dims, t.data) for t in model.tensors], self.want)

    def names(self):
        return os.listdir(self.tensor())
