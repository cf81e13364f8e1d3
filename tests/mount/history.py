#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Undoing mistakes: --history and --undo, for mounted and other models."""
import os
import re
import shutil
import stat
import time
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, place, read, sync, write
from ggufmodel import Value
from historycase import ALL, Case, entries
from mountlib import Mount, get, run


class Mounted(Case):
    options = ()

    def test_remove_all(self):
        """After rm -r metadata, everything is restored byte for byte, for earlier readers too."""
        with Mount(self.model, *self.options) as at:
            texts = {name: read(at, name) for name in editlib.keys(at)}
            times = {name: os.stat(place(at, name)).st_mtime for name in editlib.keys(at)}
            run('rm', '-r', at + '/metadata')
            sync(at)
            self.assertEqual(editlib.keys(at), [b'general.architecture'])
            self.assertIn('back to state 1; taken back: removed general.name', self.undo(at))
            self.check_mount(at)
            for name, text in texts.items():
                self.assertEqual(read(at, name), text)
            kept = b'general.architecture'
            self.assertEqual(os.stat(place(at, kept)).st_mtime, times[kept])
            # The undo is itself an edit, and another undo reverts it.
            self.undo(at)
            self.assertEqual(editlib.keys(at), [b'general.architecture'])
            self.undo(self.model)
            self.check_mount(at)
            self.assertEqual(self.numbers(at), [1, 2, 3, 4])
        self.want.check(get(self.model))

    def test_values(self):
        """At any time readers see complete texts, and a changed key can be recognised as
        changed."""
        with Mount(self.model, *self.options) as at:
            write(at, 'general.name', 'another name\n')
            editlib.retype(at, 'type.u8', 'u64')
            os.rename(place(at, 'type.i8'), place(at, 'type.moved'))
            write(at, 'new.key', '1\n')
            with open(place(at, 'general.name'), 'rb') as old:
                before = os.stat(place(at, 'general.name')).st_mtime_ns
                self.undo(at)
                self.assertEqual(old.read(), b'another name\n')
            self.assertGreater(os.stat(place(at, 'general.name')).st_mtime_ns, before)
            self.assertEqual(read(at, 'general.name'), b'test\n')
            self.assertEqual(editlib.type_of(at, 'type.u8'), 'u8')
            self.assertFalse(os.path.exists(place(at, 'new.key')))
            self.check_mount(at)
            # The model can be edited further.
            write(at, 'new.key', '2\n')
            write(at, 'general.name', 'third\n')
            self.want.set(b'new.key', Value('u32', 2))
            self.want.set(b'general.name', Value('string', b'third'))
            sync(at)
            self.check_mount(at)

    def test_older_keys(self):
        """An undo restores a state from before this mount, including keys that this mount has never
        had."""
        with Mount(self.model) as at:
            for name in (b'general.name', b'odd.nan', b'nodot', b'list.string'):
                os.unlink(place(at, name))
            sync(at)
        with Mount(self.model, *self.options) as at:
            write(at, 'x.y', 'z')
            self.undo(at, 1)
            self.check_mount(at)
            write(at, 'nodot', '4\n')
            self.want.set(b'nodot', Value('u8', 4))
            os.unlink(place(at, 'odd.nan'))
            self.want.remove(b'odd.nan')
            sync(at)
            self.check_mount(at)

    def test_with_drafts(self):
        """A key is open for writing during an undo, and its draft continues."""
        with Mount(self.model, *self.options) as at:
            write(at, 'last.key', '8\n')
            with editlib.opened(place(at, 'last.key'), os.O_WRONLY | os.O_TRUNC) as fd:
                os.write(fd, b'9')
                self.undo(at)
                os.write(fd, b'9\n')
            self.want.set(b'last.key', Value('u32', 99))
            sync(at)
            self.check_mount(at)

    def test_nothing(self):
        with Mount(self.model, *self.options) as at:
            self.assertIn('nothing to undo', self.undo(at, status=1))
            self.assertIn('there is no state 7', self.undo(at, 7, status=1))
            self.assertEqual(self.history(at), [])
            write(at, 'general.name', 'x')
            self.undo(at, 1)
            self.assertIn('already', self.undo(at, 1))

    def test_clear(self):
        with Mount(self.model, *self.options) as at:
            write(at, 'general.name', 'x', fsync=True)
            self.command('--history=clear', at)
            self.assertEqual((len(self.files()), self.history(at)), (1, []))  # it holds the last number
            self.assertIn('the history was cleared', self.undo(at, status=1))
            self.assertIn('it was forgotten', self.undo(at, 1, status=1))
            write(at, 'general.name', 'y', fsync=True)
            self.assertEqual(self.numbers(at), [2])


class Sync(Mounted):
    """Pending edits are written before an undo, and become a state."""
    options = ('-o', 'commit=sync')

    def test_not_written(self):
        """Edits, including removals, belong to a state once they are written."""
        with Mount(self.model, *self.options) as at:
            os.unlink(place(at, 'odd.nan'))
            write(at, 'general.name', 'x')
            self.assertEqual(self.history(at), [])
            sync(at)
            self.assertEqual([row[::2] for row in self.history(at)],
                             [['1', 'changed general.name; removed odd.nan']])
            write(at, 'general.name', 'y')
            self.assertEqual([row[0] for row in self.history(at)], ['1'])
            self.undo(at)
            self.assertEqual([row[0] for row in self.history(at)], ['1', '2'])


class Inplace(Mounted):
    options = ('-o', 'relayout=inplace,reserve=4096')

    def setUp(self):
        super().setUp()
        with Mount(self.model, '-o', 'relayout=copy,reserve=40000') as at:
            write(at, 'general.name', 'x')
            write(at, 'general.name', 'test\n')
        shutil.rmtree(self.state)


class Copy(Mounted):
    options = ('-o', 'relayout=copy,reserve=1000')


class Alone(Case):
    """A model that is not mounted."""

    def edit(self, *pairs, options=()):
        with Mount(self.model, *options) as at:
            for key, text in pairs:
                write(at, key, text)

    def test_undo(self):
        self.edit(('general.name', 'x'), ('x.y', 'z'))
        self.assertEqual(self.history(self.model)[0][2], 'changed general.name; added x.y')
        self.assertIn('back to state 1', self.undo(self.model))
        self.want.check(get(self.model))
        self.undo(self.model)
        self.assertEqual(gguf.read(get(self.model)).kv[-1][0], b'x.y')
        self.undo(self.model, 1)
        self.want.check(get(self.model))
        self.assertEqual(self.numbers(self.model), [1, 2, 3, 4])
        self.assertEqual(editlib.leftovers(mountlib.folder), [])

    def test_link(self):
        """Any name leads to the history through the real path."""
        self.edit(('general.name', 'x'))
        link = mountlib.path('link.gguf')
        os.symlink('model.gguf', link)
        self.addCleanup(os.unlink, link)
        self.undo(link)
        self.want.check(get(self.model))

    def test_replaced(self):
        """Nothing is undone in keys that no recorded edit has left, such as those of another model
        in the path's place; edits made since can be undone."""
        self.edit(('general.name', 'x'))
        for kv, big in (([(b'general.architecture', Value('string', b'other'))], False), (ALL, True)):
            other = gguf.encode(kv, samples.small(), big=big)
            mountlib.put('model.gguf', other)
            for number in (None, 1):
                self.assertIn('another program changed or replaced the file',
                              self.undo(self.model, number, status=1))
            self.assertIn('cannot be restored', self.history(self.model)[0][2])
            self.assertEqual(get(self.model), other)
        self.edit(('general.name', 'y'))
        self.assertIn('state 1 cannot be restored', self.undo(self.model, 1, status=1))
        self.assertIn('back to state 2', self.undo(self.model))
        self.assertEqual(entries(self.model), editlib.entries(other)[0])

    def test_tensors(self):
        """An edit of a tensor is a line in the history, and an undo over it says what it did not
        restore."""
        self.edit(('general.name', 'x'))
        name = samples.small()[0].name.decode()
        with Mount(self.model, '-o', 'tensors=edit') as at:
            self.undo(at)
            with open(os.path.join(at, 'tensors', name, 'type'), 'wb') as file:
                file.write(b'BF16\n')
            sync(at, 'tensors')
            line = self.history(at)[-1][2]
            self.assertRegex(line, f'^{re.escape(name)}: [A-Z0-9_]+ -> BF16; cannot be undone$')
            said = self.undo(at)
            self.assertIn(f"back to state 2; not restored: {line.split(';')[0]}; taken back: changed", said)
            self.assertIn('not restored: ' + line.split(';')[0], self.undo(at, 3))
        keys = [entry.key for entry in entries(self.model)]
        self.command('--history=clear', self.model)
        with Mount(self.model, '-o', 'tensors=edit') as at:
            os.rename(os.path.join(at, 'tensors', name), os.path.join(at, 'tensors', 'new.name'))
            sync(at, 'tensors')
            self.assertIn('edits of tensors cannot be undone', self.undo(at, status=1))
        self.assertEqual([entry.key for entry in entries(self.model)], keys)

    def test_split(self):
        """Any shard may be given, and the split keys stay."""
        folder = mountlib.path('split')
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        paths, tensors = [], samples.small()
        for no in range(3):
            kv = ALL if no == 0 else []
            kv = kv + [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                       (b'split.tensors.count', Value('i32', 5))]
            part = [tensors[:2], [], tensors[2:]][no]
            name = f'split/m-{no + 1:05}-of-00003.gguf'
            paths.append(mountlib.put(name, gguf.encode(kv, part)))
        before = [get(path) for path in paths]
        with Mount(paths[2]) as at:
            run('rm', '-r', at + '/metadata')
            sync(at)
            self.undo(paths[1])
            self.assertEqual(get(paths[0]), before[0])
            self.assertEqual(editlib.keys(at), [key for key, _ in ALL])
            write(at, 'general.name', 'x')
        self.undo(paths[2])
        self.assertEqual([get(path) for path in paths], before)

    def test_not_editable(self):
        self.edit(('general.name', 'x'))
        name = mountlib.path('sha256-' + 64 * 'a')
        os.rename(self.model, name)
        self.addCleanup(os.unlink, name)
        self.assertIn('hash of its content', self.undo(name, status=1))

    def test_damaged(self):
        """What follows damage is not restored, and that is said; new edits can be undone."""
        self.edit(('general.name', 'x'))
        self.undo(self.model)
        self.edit(('general.name', 'y'))
        with open(self.files()[0], 'r+b') as file:
            file.seek(-20, os.SEEK_END)
            file.write(b'!!')
        for number in (None, 1):
            self.assertIn('damaged', self.undo(self.model, number, status=1))
        self.assertIn('damaged', self.command('--history', self.model))
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(get(self.model))
        self.edit(('general.name', 'z'))
        self.undo(self.model)
        self.want.check(get(self.model))

    def test_small(self):
        """The size of a history depends on the edits, not on the size of the header."""
        self.model = mountlib.put('model.gguf', gguf.encode(
            ALL + [(b'long.text', Value('string', bytes(9 << 20)))], samples.small()))
        self.want = Want(get(self.model))
        for i in range(5):
            self.edit(('general.name', f'x{i}'))
            self.undo(self.model)
        self.assertLess(sum(map(os.path.getsize, self.files())), 10000)
        self.want.check(get(self.model))

    def test_wrong(self):
        folder = mountlib.path('folder')
        os.makedirs(folder, exist_ok=True)
        self.assertIn('is a directory', self.undo(folder, status=1))
        self.assertIn('No such file', self.undo(mountlib.path('none.gguf'), status=1))
        for words in (('--undo=x', self.model), ('--undo=0', self.model), ('--undo=', self.model),
                      ('--undo',), ('--undo', self.model, self.model), ('--history=all', self.model)):
            self.command(*words, status=2)

    def test_read_only_mount(self):
        """A read-only mount undoes nothing; its file can be edited directly."""
        self.edit(('general.name', 'x'))
        with Mount(self.model, '-o', 'ro') as at:
            self.assertIn('Read-only', self.undo(at, status=1))
            self.undo(self.model)
        self.want.check(get(self.model))


class Bounds(Case):
    def test_keep(self):
        with Mount(self.model, '-o', 'history=3') as at:
            for _ in range(4):  # each edit gets its own state
                write(at, 'general.name', 'x')
                self.undo(at)
            self.assertEqual(self.numbers(at), [6, 7, 8])
            self.assertIn('there is no state 5 any more: it was dropped', self.undo(at, 5, status=1))
            self.undo(at, 6)
            self.assertEqual(self.numbers(at), [7, 8, 9])

    def test_none(self):
        with Mount(self.model, '-o', 'history=0') as at:
            write(at, 'general.name', 'x')
            self.assertIn('history=0', self.undo(at, status=1))
            self.assertEqual(self.history(at), [])
        self.assertEqual(self.files(), [])

    def test_joined(self):
        """Consecutive edits made by a script form one state, if the machine is fast enough."""
        with Mount(self.model) as at:
            times = [time.monotonic()]
            for i in range(200):
                write(at, 'general.name', f'{i}')
                write(at, f'x.{i}', '1')
                times.append(time.monotonic())
            pauses = sum(after - before > 4 for before, after in zip(times, times[1:]))
            self.assertLessEqual(len(self.history(at)), 1 + 2 * pauses)
            self.undo(at)
            self.check_mount(at)

    def test_options(self):
        at = mountlib.path('at')
        os.makedirs(at, exist_ok=True)
        for value in ('-1', 'x', '1001', ''):
            self.assertIn('option history', self.command('-o', 'history=' + value, self.model, at,
                                                         status=2))

    def test_modes(self):
        with Mount(self.model) as at:
            write(at, 'general.name', 'x')
        for path in (self.state + '/ggufs', self.state + '/ggufs/history'):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(self.files()[0]).st_mode), 0o600)


if __name__ == '__main__':
    mountlib.main(others=True)
