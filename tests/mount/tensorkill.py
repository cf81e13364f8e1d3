#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The daemon is killed before each of its system calls that change files, or that call fails, while
edits of tensors and of keys are written by one commit: the model is the old or the new one,
complete, and nothing is left behind."""
import contextlib
import errno
import os
import shutil
import unittest

import disks
import editlib
import ggufmodel as gguf
import killlib
import mountlib
from disks import figure
from editlib import RESERVE, entries, opened, strict, sync, write

MOST = 400  # maximum number of calls of one commit, far more than it makes
STEP = 3 if disks.TIMES == 1 else 1  # every call in a long run
LARGE = 'large.weight'
SIZE, MORE = 200000, 1200000  # sizes of a tensor; from 1 MiB on, writes are not copied


def state(file):
    model = strict(file)
    kv = [entry for entry in entries(file)[0] if entry.key != RESERVE]
    return kv, [(t.name, t.type_id, t.dims, t.data) for t in model.tensors]


class Kills(unittest.TestCase):
    def bytes(self, at):
        fd = os.open(os.path.join(at, 'tensors', LARGE, 'raw'), os.O_RDWR)
        try:
            os.pwrite(fd, b'new bytes' * 1000, 70001)
            os.pwrite(fd, b'x', 5)
        finally:
            os.close(fd)

    def in_place(self, at, edit=None):
        """Return edits that leave all offsets unchanged."""
        (edit or self.bytes)(at)
        os.rename(os.path.join(at, 'tensors', LARGE), os.path.join(at, 'tensors', 'renamed'))
        write(at, 'general.name', 'changed')

    def more(self, at):
        with opened(os.path.join(at, 'tensors', LARGE, 'raw'), os.O_WRONLY) as fd:
            os.pwrite(fd, b'more bytes' * 110000, 5001)

    def most(self, at):
        """Make an edit with a large draft."""
        self.in_place(at, self.more)

    def anything(self, at):
        self.in_place(at)
        names = [name for name in os.listdir(os.path.join(at, 'tensors')) if name != 'renamed']
        shutil.rmtree(os.path.join(at, 'tensors', names[0]))

    def begin(self, source, options, number):
        return killlib.begin(source, ('-o', 'tensors=edit,commit=sync', *options), number)

    def failing(self, source, options, number):
        return killlib.failing(source, ('-o', 'tensors=edit,commit=sync', *options), number, errno.EIO)

    def one(self, source, options, edit, number):
        """Run with a kill before call `number`. Returns (whether fsync returned, whether the daemon
        was killed)."""
        mount, at, process = self.begin(source, options, number)
        synced = False
        with contextlib.suppress(OSError):
            edit(at)
            sync(at, 'tensors')
            synced = True
        return synced, killlib.end(mount, at, process, synced)

    def new_state(self, source, options, edit):
        with mountlib.Mount(source, '-o', 'tensors=edit,commit=sync', *options) as at:
            edit(at)
            sync(at, 'tensors')
        return state(mountlib.get(source))

    def put(self, folder, size):
        home = os.path.join(folder, 'home')
        os.makedirs(home, exist_ok=True)
        source = disks.put_model(home, size)
        disks.log_of(source, '-o', 'relayout=copy,reserve=65536')
        return source

    def kills(self, folder, way, edit, size=SIZE):
        """Run until the call is no longer reached."""
        options = ('-o', f'relayout={way},reserve=65536')
        source = self.put(folder, size)
        data = mountlib.get(source)
        old, new = state(data), self.new_state(source, options, edit)
        self.assertNotEqual(old, new)
        for number in range(1, MOST, STEP):
            with open(source, 'wb') as out:
                out.write(data)
            synced, killed = self.one(source, options, edit, number)
            disks.recover(source, number % 2 == 0)
            found = state(mountlib.get(source))
            self.assertIn(found, (new,) if synced else (old, new), f'{way}, call {number}')
            self.assertEqual(os.listdir(os.path.dirname(source)), ['model.gguf'],
                             f'{way}, call {number}')
            if not killed:
                return
            figure(f'kills at a system call during edits of tensors, {way}')
        self.fail('it was killed each time')

    def test_copy(self):
        self.kills(mountlib.folder, 'copy', self.anything)

    def test_in_place(self):
        self.kills(mountlib.folder, 'inplace', self.in_place)

    def test_most_in_place(self):
        self.kills(mountlib.folder, 'inplace', self.most, MORE)

    def test_clone(self):
        with disks.Disk('xfs') as folder:
            self.kills(folder, 'copy', self.in_place)


class Failures(Kills):
    """The same calls fail, one after another, and the mount continues."""

    def anything(self, at):
        self.in_place(at)

    def later(self, at, found):
        """Make a further edit of the current model, without failures. Returns the expected
        result."""
        kv, tensors = found
        name, type_id, dims, data = tensors[-1]
        with opened(os.path.join(at, 'tensors', name.decode(), 'raw'), os.O_RDWR) as fd:
            data = os.pread(fd, len(data), 0)  # a draft that could not be judged may still be open
            os.pwrite(fd, b'later', 9)
        sync(at, 'tensors')
        return kv, tensors[:-1] + [(name, type_id, dims, data[:9] + b'later' + data[14:])]

    def one(self, source, options, edit, number):
        """Return whether fsync returned, the model afterwards, and whether the call was reached."""
        with self.failing(source, options, number) as (mount, at):
            result = self.fail_one(source, at, mount, edit)
        self.assertEqual(os.listdir(os.path.dirname(source)), ['model.gguf'])
        return result

    def fail_one(self, source, at, mount, edit):
        synced = False
        with contextlib.suppress(OSError):
            edit(at)
            sync(at, 'tensors')
            synced = True
        with contextlib.suppress(OSError):
            sync(at, 'tensors')  # including edits accepted before the failure
        want = found = state(mountlib.get(source))
        reached = not os.path.exists(mountlib.path('count'))
        if reached:
            want = self.later(at, found)
        self.assertTrue(state(mountlib.get(source)) == want, mount.log())
        self.assertTrue(state(mountlib.get(os.path.join(at, 'model.gguf'))) == want, mount.log())
        return synced, found, reached

    def kills(self, folder, way, edit, size=SIZE):
        options = ('-o', f'relayout={way},reserve=65536')
        source = self.put(folder, size)
        data = mountlib.get(source)
        old, new = state(data), self.new_state(source, options, edit)
        for number in range(1, MOST, STEP):
            with open(source, 'wb') as out:
                out.write(data)
            with self.subTest(way=way, call=number):
                synced, found, reached = self.one(source, options, edit, number)
                self.parts(found, old, new)
                if synced:
                    self.assertEqual(found, new)
                if not reached:
                    return
            figure(f'failed system calls during edits of tensors, {way}')

    def parts(self, found, old, new):
        """Check that each edit was made or not made, and that nothing else has changed."""
        self.assertEqual(len(found[0]), len(old[0]))
        self.assertEqual(len(found[1]), len(old[1]))
        for now, *either in zip(found[0], old[0], new[0]):
            self.assertIn(now, either)
        for now, *either in zip(found[1], old[1], new[1]):
            for field, *both in zip(now, *either):
                self.assertIn(field, both)


def tearDownModule():
    disks.print_figures()


if __name__ == '__main__':
    killlib.main()
