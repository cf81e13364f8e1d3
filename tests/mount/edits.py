# SPDX-License-Identifier: MIT
"""Every kind of edit, on models of every dialect and layout, by each strategy and commit mode.

After each edit the model file is read by a strict reader that shares no code with the program.
"""
import itertools
import os
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import oracle
import samples
from editlib import Want, sync, write
from ggufmodel import Value


class Case:
    """A mounted model and its expected content."""

    def __init__(self, at, source, *, settle):
        self.at, self.source, self.settle = at, source, settle
        self.want = Want(mountlib.get(source))

    def check(self):
        """Check that the edit is durable, or (settle) make it durable, and that the tree shows
        it."""
        if self.settle:
            sync(self.at)
        file = mountlib.get(self.source)
        self.want.check(file)
        shown = [oracle.file_name(entry.key) for entry in self.want.kv]
        assert editlib.keys(self.at) == shown, editlib.keys(self.at)
        whole = mountlib.get(os.path.join(self.at, 'model.gguf'))
        assert whole == editlib.without_reserve(file)
        assert editlib.RESERVE not in mountlib.get(os.path.join(self.at, 'metadata.json'))
        assert os.stat(os.path.join(self.at, 'model.gguf')).st_size == len(whole)
        assert editlib.leftovers(os.path.dirname(self.source)) == []
        return file

    def put(self, key, value, text=None):
        """Write a value's text (a string is its own), and check that the file has it and shows it."""
        text = value.data + b'\n' if text is None else text
        if text:
            write(self.at, key, text)
        else:  # a truncation alone would be an edit only after the close of the handle
            os.truncate(editlib.place(self.at, key), 0)
            sync(self.at)
        self.want.set(key, value)
        self.check()
        shown = editlib.read(self.at, key)
        assert oracle.is_text(value, shown), (key, shown[:100])
        assert os.stat(editlib.place(self.at, key)).st_size == len(shown)
        assert editlib.type_of(self.at, key) == value.full_type_name()
        assert editlib.error_of(self.at, key) is None


# ---- the edits: each takes a Case ----

def values(case):
    """Values become as long as before, longer, shorter and empty, and get their old text back."""
    for text in (b'Name', b'a longer name than before, by much ' * 20, b'n', b'', b'two\nlines\n',
                 b'\n', 'ü€🦙'.encode(), b'test'):
        case.put(b'general.name', Value('string', text))


def every_type(case):
    """Values of each of the 13 types are copied from other models: the same, and larger ones."""
    for second in (False, True):
        kv = list(samples.one_of_each(second))
        with mountlib.Mount(mountlib.put('other.gguf', gguf.encode(kv, [])), '-o', 'ro') as other:
            for key, value in kv:
                case.put(key, value, editlib.read(other, key))


def unchanged(case):
    """When text is written back unchanged, no byte is rewritten, and the file stays the same
    one."""
    before = os.stat(case.source)
    for key in editlib.keys(case.at):
        write(case.at, key, editlib.read(case.at, key))
        sync(case.at)
        after = os.stat(case.source)
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), key
    case.check()


def names(case):
    """Keys are added at the end, renamed in place and removed, and get their place back."""
    case.put(b'my.first', Value('u32', 1), '1')
    case.put(b'my.second', Value('string', b'second'), 'second')
    os.rename(editlib.place(case.at, 'general.name'), editlib.place(case.at, 'my.name'))
    case.want.rename(b'general.name', b'my.name')
    case.check()
    os.unlink(editlib.place(case.at, 'my.first'))
    case.want.remove(b'my.first')
    sync(case.at)
    case.check()
    os.rename(editlib.place(case.at, 'my.name'), editlib.place(case.at, 'general.name'))
    case.want.rename(b'my.name', b'general.name')
    case.check()


EDITS = (values, every_type, unchanged, names)


class Edits(unittest.TestCase):
    def run_edits(self, data, *options, edits=EDITS, settle=False, first=None):
        """Make the edits one after another, in one mount. first: options of an earlier edit."""
        source = mountlib.put('model.gguf', data)
        if first:
            with mountlib.Mount(source, *first) as at:
                write(at, 'general.name', 'the first edit')
        with mountlib.Mount(source, *options) as at:
            case = Case(at, source, settle=settle)
            for edit in edits:
                with self.subTest(edit.__name__):
                    edit(case)
        case.want.check(mountlib.get(source))
        return source

    def test_dialects(self):
        for version, big in itertools.product((2, 3), (False, True)):
            with self.subTest(version=version, big=big):
                self.run_edits(samples.editable(version=version, big=big))

    def test_layouts(self):
        for layout in samples.LAYOUTS:
            with self.subTest(**layout):
                self.run_edits(samples.editable(**layout), edits=(names, values, unchanged))

    def test_strategies(self):
        """Each strategy is used in several commit modes, in place only if a reserve exists."""
        reserve = 'reserve=262144'
        for strategy, mode in (('auto', 'auto'), ('auto', 'sync'), ('copy', 'close'), ('inplace', 'auto'),
                               ('inplace', 'sync')):
            with self.subTest(strategy=strategy, mode=mode):
                first = ('-o', f'relayout=copy,{reserve}') if strategy == 'inplace' else None
                self.run_edits(samples.editable(), '-o', f'relayout={strategy},commit={mode},{reserve}',
                               edits=(values, unchanged, names), settle=mode == 'sync', first=first)

    def test_reserve_is_removed(self):
        """reserve=0 makes no reserve, and removes one that is there."""
        for first in (None, ('-o', 'relayout=copy,reserve=4096')):
            source = self.run_edits(samples.editable(), '-o', 'reserve=0', edits=(names, values), first=first)
            self.assertNotIn(editlib.RESERVE, mountlib.get(source))
