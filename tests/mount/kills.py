# SPDX-License-Identifier: MIT
"""The daemon is killed before each of its system calls that change files of the model or its history,
while an edit, collected edits of keys and tensors, or an undo is written, in each way: the model is the
old or the new one, complete, nothing is left behind, and an undo reverts exactly what the model
contains."""
import contextlib
import os
import shutil
import subprocess
import unittest
import unittest.mock

import disks
import editlib
import ggufmodel as gguf
import mountlib
import samples
from disks import figure
from editlib import opened, write
from mountlib import GGUFS, get, run, works

KILLER = os.environ.get('GGUFS_KILLER', '')
LARGE = 'large.weight'
KV = samples.keys() + samples.odd()
MOST = 400  # calls of one commit and its history, far more than it makes
STEP = 5 if disks.TIMES == 1 else 1  # every call in a long run


def state(file):
    """Return keys and tensors."""
    model = editlib.strict(get(file))
    keys = [entry for entry in editlib.keys_of(get(file)) if not entry.key.startswith(b'split.')]
    return keys, [tensor[:4] for tensor in model.tensors]


@unittest.skipIf(os.getuid() or not os.path.exists(KILLER) or mountlib.sanitized('asan'), 'no way to kill it')
class Kills(unittest.TestCase):
    """An earlier edit of `before` makes a state in the history; then the model contains `now`."""

    def prepare(self, folder, way, parts):
        self.state, self.kept = mountlib.path('state'), mountlib.path('kept')
        for name in self.state, self.kept, folder:
            shutil.rmtree(name, ignore_errors=True)
        tensors = samples.small() + [gguf.Tensor(LARGE.encode(), 24, (200000,), bytes(200000))]
        files = samples.split(KV, tensors, parts) if parts > 1 else [gguf.encode(KV, tensors)]
        names = [f'model-{no + 1:05}-of-{parts:05}.gguf' for no in range(parts)] if parts > 1 else ['model.gguf']
        for name, data in zip(names, files):
            mountlib.put(os.path.join(folder, name), data)
        self.model = os.path.join(folder, names[0])
        self.others = {name: get(os.path.join(folder, name)) for name in names[1:]}
        with mountlib.Mount(self.model, '-o', 'relayout=copy,reserve=65536,history=0') as at:
            write(at, 'general.name', 'room')
        self.before = state(self.model)
        with mountlib.Mount(self.model, '-o', f'relayout={way},commit=sync') as at:  # one state, however slow this is
            write(at, 'general.name', 'edited')
            write(at, 'odd.nul', 'edited')
        self.now, self.data = state(self.model), get(self.model)
        self.calm('--undo')  # so that no later edit joins that state
        self.calm('--undo')
        self.assertEqual(state(self.model), self.now)
        os.rename(self.state, self.kept)

    def put_back(self):
        mountlib.put(self.model, self.data)
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(self.kept, self.state)

    def calm(self, *words):
        return works(GGUFS, *words, self.model)

    # ---- changes: each returns whether it was acknowledged ----

    def edit(self, at):
        write(at, 'x.new', '7\n')

    def collect(self, at):
        """Keys and, in a whole model, tensors; a removal moves the data."""
        write(at, 'x.new', '7\n')
        os.unlink(os.path.join(at, 'metadata', 'odd.nul'))
        if not self.others:
            with opened(os.path.join(at, 'tensors', LARGE, 'raw'), os.O_RDWR) as fd:
                os.pwrite(fd, b'new bytes' * 1000, 70001)
            os.rename(os.path.join(at, 'tensors', LARGE), os.path.join(at, 'tensors', 'renamed'))
            if 'copy' in self.options[1]:
                shutil.rmtree(os.path.join(at, 'tensors', 'a.weight'))
        write(at, 'x.new', '8\n')
        editlib.sync(at)

    def undo(self, at):
        if run(GGUFS, '--undo=1', at).returncode != 0:
            raise OSError

    def one(self, change, number):
        """Return (whether the change was acknowledged, whether the daemon was killed)."""
        self.put_back()
        count, mount, done = mountlib.path('count'), mountlib.Foreground(self.model, *self.options), False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(count)
        with unittest.mock.patch.dict(os.environ, KILL_AT=count, LD_PRELOAD=KILLER):
            at, process = mount.__enter__()
        mountlib.put(count + '.new', f'{number}\n')
        os.rename(count + '.new', count)
        with contextlib.suppress(OSError):
            change(at)
            done = True
        if process.poll() is None and done:
            with contextlib.suppress(AssertionError):
                mountlib.unmount(at)
        status = process.wait(mountlib.LIMIT)
        subprocess.run(['umount', '-l', at], check=False, stderr=subprocess.DEVNULL)
        self.assertIn(status, (0, -9), mount.log())
        mount.err.close()
        return done, status != 0

    def kills(self, folder, way, *changes, parts=1):
        for change in changes:
            with self.subTest(way=way, change=change.__name__, parts=parts):
                commit = 'sync' if change == self.collect else 'close'
                self.options = ('-o', f'relayout={way},commit={commit},tensors=edit')
                self.prepare(os.path.join(folder, 'home'), way, parts)
                self.put_back()
                with mountlib.Mount(self.model, *self.options) as at:
                    change(at)
                new = state(self.model)
                self.assertNotEqual(new, self.now)
                for number in range(1, MOST, STEP):
                    done, killed = self.one(change, number)
                    disks.recover(self.model, number % 2 == 0)
                    self.check(new, done, f'{way}, call {number}')
                    if not killed:
                        self.assertGreater(number, 10)
                        break
                    figure(f'kills at a system call, {change.__name__}, {way}')
                else:
                    self.fail('it was killed each time')

    def check(self, new, done, where):
        found, folder = state(self.model), os.path.dirname(self.model)
        self.assertIn(found, [new] if done else [self.now, new], where)
        self.assertEqual({name: get(os.path.join(folder, name)) for name in os.listdir(folder)
                          if name != os.path.basename(self.model)}, self.others)
        # This reverts the last edit of keys: the undo before this, or the killed change.
        for undo, keys in (('--undo', self.now[0] if found == new else self.before[0]), ('--undo', found[0]),
                           ('--undo=1', self.before[0])):
            self.calm(undo)
            self.assertEqual(state(self.model), (keys, found[1]), where)
        self.assertNotIn('cannot be restored', self.calm('--history'))

    def test_copy(self):
        self.kills(mountlib.path('copy'), 'copy', self.edit, self.collect, self.undo)

    def test_inplace(self):
        self.kills(mountlib.path('inplace'), 'inplace', self.edit, self.collect, self.undo)

    def test_clone(self):
        with disks.new_disk('xfs') as folder:
            self.kills(folder, 'copy', self.collect)

    def test_split(self):
        self.kills(mountlib.path('split'), 'copy', self.collect, parts=3)
        self.kills(mountlib.path('split'), 'inplace', self.undo, parts=3)


def tearDownModule():
    disks.print_figures()
