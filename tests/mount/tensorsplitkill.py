#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Tensors of all files of a split model are edited by one commit, and the daemon is killed before each
of its system calls that change files, or that call fails: each file is the old or the new one, whole,
in the order in which they were edited, and nothing is left beside them. A full disk; random edits."""
import contextlib
import errno
import os
import random
import shutil
import unittest

import disks
import ggufmodel as gguf
import killlib
import mountlib
import samples
import tensorkill
import tensorsplit
from disks import MIB, figure
from editlib import RESERVE, sync
from ggufmodel import Tensor, Value

SEED = int(os.environ.get('GGUFS_SEED', 1))
SOAK = int(os.environ.get('GGUFS_SOAK', 1))
ORDER = 2, 0, 1  # files are edited in this order
SIZE = 70000


class Parts:
    """Three files with a tensor that is changed and one that is not in each."""
    test_most_in_place = None  # its files are too small

    def put(self, folder):
        home = os.path.join(folder, 'home')
        shutil.rmtree(home, ignore_errors=True)
        os.makedirs(home)
        self.shards = [os.path.join(home, tensorsplit.NAME % (i + 1)) for i in range(3)]
        for i, path in enumerate(self.shards):
            keys = (samples.keys() if i == 0 else []) + [
                (b'split.no', Value('u16', i)), (b'split.count', Value('u16', 3)),
                (b'split.tensors.count', Value('i32', 6)), (RESERVE, Value('string', b' ' * 65536))]
            made = [Tensor(b'large.%d' % i, 24, (SIZE,), random.Random(i).randbytes(SIZE)),
                    Tensor(b'kept.%d' % i, 24, (SIZE,), random.Random(i + 3).randbytes(SIZE))]
            with open(path, 'wb') as out:
                out.write(gguf.encode(keys, made))
        return self.shards[0]

    def in_place(self, at):
        for i in ORDER:
            with tensorkill.opened(os.path.join(at, f'tensors/large.{i}/raw'), os.O_RDWR) as fd:
                os.pwrite(fd, b'new bytes' * 1000, 40001)
                os.pwrite(fd, b'x', 5)
            os.rename(os.path.join(at, f'tensors/large.{i}'), os.path.join(at, f'tensors/renamed.{i}'))
        tensorkill.write(at, 'general.name', 'changed')

    def anything(self, at):
        self.in_place(at)
        for i in ORDER:
            with open(os.path.join(at, f'tensors/kept.{i}/type'), 'w', encoding='ascii') as out:
                out.write('F32\n')

    def states(self):
        return [tensorkill.state(mountlib.get(path)) for path in self.shards]

    def put_back(self, data):
        for path, bytes_ in zip(self.shards, data):
            with open(path, 'wb') as out:
                out.write(bytes_)

    def is_clean(self, what):
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.shards[0]))),
                         [os.path.basename(path) for path in self.shards], what)

    def new_states(self, options, edit):
        with mountlib.Mount(self.shards[0], '-o', 'tensors=edit,commit=sync', *options) as at:
            edit(at)
            sync(at, 'tensors')
        return self.states()


class Kills(Parts, tensorkill.Kills):
    def kills(self, folder, way, edit):
        options = ('-o', f'relayout={way},reserve=65536')
        source = self.put(folder)
        data = [mountlib.get(path) for path in self.shards]
        old, new = self.states(), self.new_states(options, edit)
        for number in range(1, tensorkill.MOST):
            self.put_back(data)
            synced, killed = self.one(source, options, edit, number)
            disks.recover(self.shards[number % 3], number % 2 == 0)
            found = self.states()
            what = f'{way}, call {number}'
            written = [found[i] == new[i] for i in ORDER]
            self.assertTrue(all(found[i] in (old[i], new[i]) for i in ORDER), what)
            self.assertEqual(written, sorted(written, reverse=True), what)
            self.assertTrue(all(written) or not synced, what)
            self.is_clean(what)
            if not killed:
                return
            figure(f'kills at a system call during edits of a split model, {way}')
        self.fail('it was killed each time')


class Failures(Parts, tensorkill.Kills):
    """The same calls fail, one after the other; the mount goes on."""

    def test_reflink(self):
        with disks.Disk('xfs') as folder:
            self.kills(folder, 'reflink', self.in_place)

    def test_copy(self):
        self.kills(mountlib.folder, 'copy', self.in_place)

    def kills(self, folder, way, edit):
        options = ('-o', f'relayout={way},reserve=65536')
        source = self.put(folder)
        data = [mountlib.get(path) for path in self.shards]
        old, new = self.states(), self.new_states(options, self.in_place)
        for number in range(1, tensorkill.MOST):
            self.put_back(data)
            with self.subTest(way=way, call=number):
                if not self.fail_call(source, options, number, old, new):
                    return
            figure(f'failed system calls during edits of a split model, {way}')

    def fail_call(self, source, options, number, old, new):
        with self.failing(source, options, number) as (mount, at):
            reached = self.fail_one(at, mount, old, new)
        self.is_clean(number)
        return reached

    def fail_one(self, at, mount, old, new):
        synced = False
        with contextlib.suppress(OSError):
            self.in_place(at)
            sync(at, 'tensors')
            synced = True
        with contextlib.suppress(OSError):
            sync(at, 'tensors')  # what was accepted before the failure, too
        found = self.states()
        for now, before, after in zip(found, old, new):
            self.parts(now, before, after)
        if synced:
            self.assertEqual(found, new)
        if os.path.exists(mountlib.path('count')):
            return False
        for i, (kv, tensors) in enumerate(found):
            name, type_id, dims, stored = tensors[0]
            with tensorkill.opened(os.path.join(at, 'tensors', name.decode(), 'raw'), os.O_RDWR) as fd:
                stored = os.pread(fd, len(stored), 0)  # a draft that could not be judged may still be open
                os.pwrite(fd, b'later', 9)
            tensors[0] = name, type_id, dims, stored[:9] + b'later' + stored[14:]
            found[i] = kv, tensors
        sync(at, 'tensors')
        self.assertTrue(self.states() == found, mount.log())
        whole = tensorkill.state(mountlib.get(os.path.join(at, 'model.gguf')))
        self.assertTrue(whole[1] == [row for _, tensors in found for row in tensors], mount.log())
        return True

    def parts(self, found, old, new):
        """Each edit was done or not, and nothing else."""
        self.assertEqual((len(found[0]), len(found[1])), (len(old[0]), len(old[1])))
        for now, *either in zip(found[0], old[0], new[0]):
            self.assertIn(now, either)
        for now, *either in zip(found[1], old[1], new[1]):
            for field, *both in zip(now, *either):
                self.assertIn(field, both)


class Full(tensorsplit.Split):
    """The second of three files is on a small disk of its own, by a link."""
    large = 40 * MIB

    def setUp(self):
        disk = disks.Disk('tmpfs')
        self.disk = disk.__enter__()
        self.addCleanup(disk.__exit__, None, None, None)
        super().setUp()
        for name in os.listdir(self.disk):
            os.unlink(os.path.join(self.disk, name))
        self.moved = os.path.join(self.disk, 'second.gguf')
        shutil.move(self.shards[1], self.moved)
        os.symlink(self.moved, self.shards[1])

    def tensors(self):
        return [t._replace(dims=(self.large,), data=bytes(self.large)) if t.name == b'bytes' else t
                for t in super().tensors()]

    def fill(self, left):
        """All but so many bytes of the disk."""
        stat = os.statvfs(self.disk)
        with open(os.path.join(self.disk, 'fill'), 'wb') as out:
            os.posix_fallocate(out.fileno(), 0, stat.f_bavail * stat.f_bsize - left)

    def edit(self):
        """A tensor of each file, the one on the small disk in between, and a key."""
        self.change(b'last')
        with open(self.tensor('blocks', 'raw'), 'r+b', buffering=0) as out:
            out.write(b'x')
        self.change(b'half')
        os.rename(self.tensor('floats'), self.tensor('numbers'))
        self.set(b'floats', new=b'numbers')

    def test_second(self):
        """The files before and behind it are written. The error reaches those that wait, its tensors alone
        say why, and are what they were."""
        self.mount('-o', 'relayout=copy,commit=sync')
        self.edit()
        self.fill(8 * MIB)
        self.raises(errno.ENOSPC, self.sync)
        self.check()
        self.assertEqual(self.names(), [row[0].decode() for row in self.want])
        self.assertEqual(mountlib.get(self.tensor('blocks', 'raw')), self.want[2][3])
        self.assertIn('bytes are needed', self.error('blocks'))
        for name in ('last', 'half', 'numbers', 'bytes'):
            self.assertIsNone(self.error(name))
        self.assertEqual(sorted(os.listdir(self.disk)), ['fill', 'second.gguf'])
        done = mountlib.run(mountlib.GGUFS, '--unmount', self.at)
        self.assertEqual(done.returncode, 1)
        self.assertIn('tensors/blocks: ', done.err)
        for name in ('last', 'half', 'numbers'):
            self.assertNotIn(f'tensors/{name}', done.err)
        self.end()
        self.check()

    def test_again(self):
        """With room for it the same edit goes well."""
        self.mount('-o', 'relayout=copy,commit=close')
        self.fill(8 * MIB)
        self.raises(errno.ENOSPC, self.change, b'blocks')
        self.change(b'last')
        os.unlink(os.path.join(self.disk, 'fill'))
        self.change(b'blocks')
        self.assertIsNone(self.error('blocks'))
        self.end()
        self.check()
        self.assertEqual(os.listdir(self.disk), ['second.gguf'])

    def test_draft(self):
        """Drafts lie beside the file that they are for."""
        self.mount('-o', 'commit=close')
        self.fill(MIB)
        fd = os.open(self.tensor('bytes', 'raw'), os.O_WRONLY)
        self.raises(errno.ENOSPC, lambda: [os.write(fd, b'x' * MIB) for _ in range(20)])
        self.raises(errno.ENOSPC, os.close, fd)
        self.change(b'half')
        self.end()
        self.check()


class Random(tensorsplit.Split):
    """Edits of any kind, of any file, against a plain list."""

    def rename(self, lot, name):
        new = b'n%d' % lot.randrange(8)
        if new == name:
            return
        if any(row[0] == new for row in self.want):
            self.raises(errno.ENOTEMPTY, os.rename, self.tensor(name.decode()), self.tensor(new.decode()))
            return
        try:
            os.rename(self.tensor(name.decode()), self.tensor(new.decode()))
        except OSError as e:
            self.assertEqual(e.errno, errno.EBUSY)
            self.sync()
            os.rename(self.tensor(name.decode()), self.tensor(new.decode()))
        self.set(name, new=new)

    def bytes(self, lot, name):
        data = bytearray(self.want[self.at_place(name)][3])
        at = lot.randrange(len(data))
        data[at] ^= 1 + lot.randrange(255)
        with open(self.tensor(name.decode(), 'raw'), 'r+b', buffering=0) as out:
            out.seek(at)
            out.write(data[at:at + 1])
        self.set(name, data=bytes(data))

    def reshape(self, lot, name):
        _, type_id, dims, data = self.want[self.at_place(name)]
        count = 1
        for dim in dims:
            count *= dim
        first = lot.choice([n for n in range(1, count + 1) if count % n == 0 and (type_id != 8 or n % 32 == 0)])
        with open(self.tensor(name.decode(), 'shape'), 'w', encoding='ascii') as out:
            out.write(f'{count // first} {first}\n')
        self.set(name, dims=(first, count // first))

    def key(self, lot, name):
        text = name + b'%d' % lot.randrange(1000)
        with open(os.path.join(self.at, 'metadata/general.name'), 'wb') as out:
            out.write(text)
        self.name = text

    def check_files(self):
        """Keys are looked at by their names: one of them changes."""
        for i, path in enumerate(self.shards):
            model = gguf.read(mountlib.get(path))
            self.assertEqual([(t.name, t.type_id, t.dims, t.data) for t in model.tensors], self.rows(i))
        self.assertEqual(dict(gguf.read(mountlib.get(self.model)).kv)[b'general.name'], Value('string', self.name))
        self.assertEqual(sorted(os.listdir(self.folder)), [os.path.basename(path) for path in self.shards])

    def play(self, *options, sync=False, verbs=None):
        seed = f'{SEED} {options}'
        lot = random.Random(seed)
        self.build()
        self.name = b'test'
        self.mount('-o', ','.join(options))
        for step in range(SOAK * 120):
            with self.subTest(seed, step=step):
                verb = lot.choice((self.rename,) * 3 + (self.bytes,) * 4 + (self.reshape,) * 2 + (self.key,))
                verb(lot, lot.choice(self.want)[0])
                self.assertEqual(self.names(), [row[0].decode() for row in self.want])
                name, _, _, data = lot.choice(self.want)
                self.assertEqual(mountlib.get(self.tensor(name.decode(), 'raw')), data)
                if lot.random() < 0.1:
                    self.sync()
                    self.check_files()
        figure('random edits of tensors of a split model', SOAK * 120)
        self.end()
        self.check_files()

    def test_strategies(self):
        for how in ('copy', 'auto'):
            for commit in ('auto', 'close', 'sync'):
                self.play(f'relayout={how}', f'commit={commit}')


def tearDownModule():
    disks.print_figures()


if __name__ == '__main__':
    killlib.main()
