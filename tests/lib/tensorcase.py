# SPDX-License-Identifier: MIT
"""Shared by tests of edited tensors: a mount with tensors=edit, and the expected model."""
import os
import struct
import unittest

import mountlib
import samples
from editlib import Want, sync

EDIT = ('-o', 'tensors=edit')


def f16(*values):
    return struct.pack(f'<{len(values)}e', *values)


def f32(*values):
    return struct.pack(f'<{len(values)}f', *values)


def q8(rows, scale=0.5):
    """Return rows of 64 values, `scale` * (0 to 31), as Q8_0."""
    return (struct.pack('<e', scale) + bytes(range(32))) * 2 * rows


class Case(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.path('model.gguf')
        self.addCleanup(lambda: os.path.exists(self.model) and os.unlink(self.model))
        self.put(samples.editable())

    def put(self, data):
        """Write the model, and set its expected final content."""
        mountlib.put(self.model, data)
        self.want = Want(data)

    def mount(self, *options):
        """Mount on self.at until the test ends."""
        self.foreground = mountlib.Foreground(self.model, *EDIT, *options)
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
        return [row[0] for row in self.want.tensors].index(name)

    def set(self, name, new=None, type_id=None, dims=None, data=None):
        """Set the expected content of a tensor from now on."""
        i = self.at_place(name)
        old = self.want.tensors[i]
        self.want.tensors[i] = (new or name, old[1] if type_id is None else type_id, dims or old[2],
                                old[3] if data is None else data)

    def drop(self, name):
        del self.want.tensors[self.at_place(name)]

    def check(self):
        self.want.check(mountlib.get(self.model))
