# SPDX-License-Identifier: MIT
"""Shared by tests of histories: a model with a key of each type, its states, the commands."""
import os
import shutil
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want
from ggufmodel import Value
from mountlib import GGUFS, get, run

ALL = samples.keys() + samples.odd() + [(b'nodot', Value('u8', 3))]


def entries(file):
    return [entry for entry in editlib.entries(get(file))[0] if entry.key != editlib.RESERVE]


class Case(unittest.TestCase):
    def setUp(self):
        self.state = mountlib.path('state')
        shutil.rmtree(self.state, ignore_errors=True)
        self.model = mountlib.put('model.gguf', gguf.encode(ALL, samples.small()))
        self.want = Want(get(self.model))

    def files(self):
        """Return the histories (src/edit/history.h), one for each model."""
        folder = os.path.join(self.state, 'ggufs/history')
        return [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.exists(folder) else []

    def command(self, *words, status=0):
        done = run(GGUFS, *words)
        self.assertEqual(done.returncode, status, done.out + done.err)
        return done.out if status == 0 else done.err

    def undo(self, what, number=None, status=0):
        return self.command('--undo' + (f'={number}' if number else ''), what, status=status)

    def history(self, what):
        return [line.split('\t') for line in self.command('--history', what).splitlines()]

    def numbers(self, what):
        return [int(row[0]) for row in self.history(what)]

    def check_mount(self, at):
        """Check that each view of the mount, and the file, have the expected content."""
        self.want.check(get(self.model))
        self.want.check(get(at + '/model.gguf'))
        self.assertEqual(editlib.keys(at), [entry.key for entry in self.want.kv])
