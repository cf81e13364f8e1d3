#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The daemon is killed before each of its system calls that change files of the model or its
history, while an edit or an undo is written by each strategy: the model is the old or the new one,
complete, and an undo reverts exactly what the model contains. Also random edits and undos on a
file system that clones."""
import contextlib
import os
import shutil
import subprocess
import unittest

import disks
import editlib
import ggufmodel as gguf
import killlib
import mountlib
import samples
from disks import figure
from editlib import write
from ggufmodel import Value
from historycase import ALL
from mountlib import GGUFS, get, run
from undolib import Player, own

LARGE = gguf.Tensor(b'large', 24, (200000,), bytes(200000))
MOST = 200  # maximum number of calls of one commit and its history, far more than it makes
STEP = 5 if disks.TIMES == 1 else 1  # every call in a long run


def entries(file):
    """Return the entries without ggufs' own keys, which no state contains; the others keep their
    order."""
    return [entry for entry in editlib.entries(get(file))[0] if not own(entry.key)]


def whole(home):
    """Make the model a single file."""
    model = os.path.join(home, 'model.gguf')
    with open(model, 'wb') as out:
        out.write(gguf.encode(ALL, samples.small() + [LARGE]))
    return model


def split(home):
    """Return the first of three files, which has the keys."""
    tensors = samples.small() + [LARGE]
    paths = [os.path.join(home, f'model-{no:05}-of-00003.gguf') for no in (1, 2, 3)]
    for no, (path, part) in enumerate(zip(paths, (tensors[-2:], tensors[:3], tensors[3:-2]))):
        keys = [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                (b'split.tensors.count', Value('i32', len(tensors)))]
        with open(path, 'wb') as out:
            out.write(gguf.encode((ALL if no == 0 else []) + keys, part))
    return paths[0]


class Kills(unittest.TestCase):
    """An earlier edit of `before` makes one state; then the model contains `now`."""

    make = staticmethod(whole)
    label = ''

    def setUp(self):
        self.state = mountlib.path('state')
        self.kept = mountlib.path('kept')

    def tensors(self):
        return [(t.name, t.type_id, t.dims, t.data) for t in editlib.strict(get(self.model)).tensors]

    def read_others(self):
        """Return the other files in the model's directory, which edits of keys do not change."""
        folder = os.path.dirname(self.model)
        return {name: get(os.path.join(folder, name)) for name in os.listdir(folder)
                if name != os.path.basename(self.model)}

    def calm(self, *words):
        done = run(GGUFS, *words, self.model)
        self.assertEqual((done.returncode, done.err), (0, ''))
        return done.out

    def prepare(self, folder):
        home = os.path.join(folder, 'home')
        os.makedirs(home)
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.rmtree(self.kept, ignore_errors=True)
        self.model = self.make(home)
        self.others = self.read_others()
        with mountlib.Mount(self.model, '-o', 'relayout=copy,reserve=65536,history=0') as at:
            write(at, 'general.name', 'room')
        self.before, self.untouched = entries(self.model), self.tensors()
        with mountlib.Mount(self.model, *self.options) as at:
            write(at, 'general.name', 'edited')
            write(at, 'odd.nul', 'edited')
        self.now, self.data = entries(self.model), get(self.model)
        self.calm('--undo')  # so that no later edit joins that state
        self.calm('--undo')
        self.assertEqual(entries(self.model), self.now)
        os.rename(self.state, self.kept)

    def edit(self, at):
        """Make an edit with a state of its own, because an undo made the previous state."""
        with contextlib.suppress(OSError):
            write(at, 'x.new', '7\n')
            return True
        return False

    def collect(self, at):
        """Make edits that only the fsync acknowledges."""
        with contextlib.suppress(OSError):
            write(at, 'x.new', '7\n')
            os.unlink(os.path.join(at, 'metadata', 'odd.nul'))
            write(at, 'x.new', '8\n')
            editlib.sync(at)
            return True
        return False

    def undo(self, at):
        return run(GGUFS, '--undo=1', at).returncode == 0

    def put_back(self):
        with open(self.model, 'wb') as out:
            out.write(self.data)
        shutil.rmtree(self.state, ignore_errors=True)
        shutil.copytree(self.kept, self.state)

    def one(self, change, number):
        """Return (whether the edit was acknowledged, whether the daemon was killed)."""
        self.put_back()
        mount, at, process = killlib.begin(self.model, self.options, number)
        done = change(at)
        return done, killlib.end(mount, at, process, done)

    def kills(self, folder, way, change):
        self.options = ('-o', f'relayout={way},commit=' + ('sync' if change == self.collect else 'close'))
        self.prepare(folder)
        self.put_back()
        with mountlib.Mount(self.model, *self.options) as at:
            self.assertTrue(change(at))
        new = entries(self.model)
        self.assertNotEqual(new, self.now)
        for number in range(1, MOST, STEP):
            done, killed = self.one(change, number)
            disks.recover(self.model, number % 2 == 0)
            found = entries(self.model)
            self.assertIn(found, [new] if done else [self.now, new], f'{way}, call {number}')
            self.assertEqual(self.tensors(), self.untouched)
            self.assertEqual(self.read_others(), self.others)
            # This reverts the last edit: the undo before this, or the killed change.
            self.calm('--undo')
            self.assertEqual(entries(self.model), self.now if found == new else self.before, f'{way}, call {number}')
            self.calm('--undo')
            self.assertEqual(entries(self.model), found)
            self.calm('--undo=1')
            self.assertEqual(entries(self.model), self.before)
            self.assertEqual(self.tensors(), self.untouched)
            self.assertNotIn('.new', os.listdir(self.state + '/ggufs/history'))
            self.assertNotIn('cannot be restored', self.calm('--history'))
            if not killed:
                self.assertGreater(number, 10)
                return
            figure(f'kills at a system call of an {change.__name__} and its history, {way}{self.label}')
        self.fail('it was killed each time')

    def both(self, folder, way):
        for change in (self.edit, self.collect, self.undo):
            with self.subTest(change=change.__name__):
                self.kills(os.path.join(folder, change.__name__), way, change)

    def test_copy(self):
        self.both(mountlib.path('copy' + self.label), 'copy')

    def test_inplace(self):
        self.both(mountlib.path('inplace' + self.label), 'inplace')

    def test_clone(self):
        with disks.Disk('xfs') as folder:
            self.both(folder, 'copy')


class SplitKills(Kills):
    """Kills during edits of a split model, whose other files stay unchanged."""

    make = staticmethod(split)
    label = ', split'


class Clones(unittest.TestCase):
    def play(self, kind, tensors):
        shutil.rmtree(mountlib.path('state'), ignore_errors=True)
        with disks.Disk(kind) as folder:
            model = os.path.join(folder, 'm.gguf')
            with open(model, 'wb') as out:
                out.write(gguf.encode(ALL, samples.small() + [gguf.Tensor(b'large', 24, (300000,), bytes(300000))]))
            how = 'auto' if tensors else 'copy'
            player = Player(self, model, [model], (f'relayout={how}',), f'1 {kind} {tensors}', tensors)
            player.aligns = tensors
            with mountlib.Mount(model, '-o', 'relayout=copy,reserve=200000,history=0') as at:
                write(at, 'general.name', 'room')
            player.edit_much(8)
            self.assertGreater(player.back_to_all(), 8)
            self.assertEqual(os.listdir(folder), ['m.gguf'])

    def test_xfs(self):
        self.play('xfs', False)

    def test_btrfs(self):
        self.play('btrfs', False)

    def test_xfs_with_tensors(self):
        self.play('xfs', True)


# How a program replaces a value. Killed, it leaves the old or the new one; in place also what it had written by then;
# one that makes way for a new file may also leave no key.
WHOLE, IN_PLACE, MAKES_WAY = range(3)
REPLACE = ('import os, sys\nwith open(sys.argv[1] + ".tmp", "w") as f:\n f.write(sys.argv[2] + "\\n")\n f.flush()\n'
           ' os.fsync(f.fileno())\n os.replace(sys.argv[1] + ".tmp", sys.argv[1])\n')
VIM = ['vim', '-es', '-u', 'NONE', '-i', 'NONE', '-S', '{script}', '{key}']
PROGRAMS = {
    'cp': (IN_PLACE, ['cp', '{source}', '{key}']),
    'cp_force': (MAKES_WAY, ['cp', '--remove-destination', '{source}', '{key}']),
    'ed': (IN_PLACE, ['ed', '-s', '{key}']),
    'emacs': (MAKES_WAY, ['emacs', '--batch', '-Q', '{key}', '--eval',
                          '(progn (erase-buffer) (insert "{line}\\n") (save-buffer))']),
    'install': (MAKES_WAY, ['install', '{source}', '{key}']),
    'mv': (MAKES_WAY, ['mv', '{source}', '{key}']),
    'perl': (MAKES_WAY, ['perl', '-i', '-pe', 's/.*/{line}/', '{key}']),
    'python': (WHOLE, ['/usr/bin/python3', '-Sc', REPLACE, '{key}', '{line}']),
    'rsync': (WHOLE, ['rsync', '-I', '{source}', '{key}']),
    'rsync_inplace': (IN_PLACE, ['rsync', '-I', '--inplace', '{source}', '{key}']),
    'sed': (WHOLE, ['sed', '-i', '1s/.*/{line}/', '{key}']),
    'sponge': (IN_PLACE, ['sponge', '{key}']),
    'vim': (MAKES_WAY, VIM + ['-c', 'set backupcopy=no']),
    'vim_copy': (IN_PLACE, VIM + ['-c', 'set backupcopy=yes']),
    'vim_no_backup': (IN_PLACE, VIM + ['-n', '-c', 'set nowritebackup']),
}


CHANGES = {'open', 'openat', 'creat', 'write', 'pwrite64', 'ftruncate', 'copy_file_range', 'close', 'fsync', 'fdatasync',
           'rename', 'renameat', 'renameat2', 'unlink', 'unlinkat', 'fchmod', 'chmod', 'utimensat', 'linkat', 'symlink'}


class Programs(unittest.TestCase):
    """Programs that save a key are killed before each of their system calls on files of the mount."""

    KEY, LINE = 'general.name', 'a new name'

    def save(self, at, command, *inject):
        """Run the program under strace. Returns its log of system calls."""
        log = mountlib.path('calls')
        names = {'key': os.path.join(at, 'metadata', self.KEY), 'line': self.LINE,
                 'source': mountlib.put('source', self.LINE.encode() + b'\n'),
                 'script': mountlib.put('script', f'%s/.*/{self.LINE}/\nwq\n'.encode())}
        typed = {'ed': f'1c\n{self.LINE}\n.\nw\nq\n', 'sponge': self.LINE + '\n'}.get(command[0], '')
        subprocess.run(['strace', '-f', '-y', '-o', log, *inject, *(word.format(**names) for word in command)],
                       input=typed.encode(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       timeout=mountlib.LIMIT, check=False)
        return get(log).decode(errors='replace').splitlines()

    def mounted(self, command, *inject):
        """Save on a new model. Returns the log, and the keys afterwards, which an undo takes back."""
        shutil.rmtree(mountlib.path('state'), ignore_errors=True)
        model = mountlib.put('model.gguf', gguf.encode(ALL, samples.small()))
        old = editlib.entries(get(model))[0]
        calls, counts = [], {}
        with mountlib.Mount(model, '-o', 'commit=close') as at:
            lines = self.save(at, command, *inject)
            self.assertEqual(any('killed by SIGKILL' in line for line in lines), bool(inject))
            for line in lines:
                process, name, *_ = line.split('(')[0].split()
                counts[process, name] = counts.get((process, name), 0) + 1
                if at in line and name in CHANGES:
                    calls.append((name, counts[process, name]))
        found = editlib.strict(get(model))
        now = editlib.entries(get(model))[0]
        others = [entry for entry in now if entry.key != self.KEY.encode()]
        self.assertEqual(others, [entry for entry in old if entry.key != self.KEY.encode()])
        if now != old:
            done = run(GGUFS, '--undo', model)
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.assertEqual(editlib.entries(get(model))[0], old)
        return calls, dict(found.kv).get(self.KEY.encode())

    def kills(self, how, command):
        key = self.KEY.encode()
        old, new = dict(ALL)[key], Value('string', self.LINE.encode())
        calls, value = self.mounted(command)
        self.assertEqual(value, new)
        left = [self.LINE.encode()[:n] for n in range(len(self.LINE))] if how != WHOLE else []
        allowed = [old, new] + [Value('string', text) for text in left] + ([None] if how == MAKES_WAY else [])
        for number, (name, count) in enumerate(calls):
            if (number + len(command)) % STEP == 0 or STEP == 1:
                _, value = self.mounted(command, '-e', f'inject={name}:signal=KILL:when={count}')
                self.assertIn(value, allowed, f'{command[0]}, {name} {count}')
                figure('kills at a system call of a program that saves a key')


def make_program(name, how, command):
    @unittest.skipUnless(shutil.which('strace') and shutil.which(command[0]), f'{name} or strace: not installed')
    def test(self):
        self.kills(how, command)
    setattr(Programs, 'test_' + name, test)


for NAME, ROW in PROGRAMS.items():
    make_program(NAME, *ROW)


def tearDownModule():
    disks.print_figures()


if __name__ == '__main__':
    killlib.main()
