#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""New tensors (-o tensors=edit): directories that are created, filled in any order, and become
tensors."""
import errno
import itertools
import mmap
import os
import shutil
import unittest

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from editlib import leftovers, until
from ggufmodel import Tensor
from mountlib import GGUFS, run
from tensorcase import EDIT, Case, f16, f32, kinds

Q8_0, F32, F16 = 8, 0, 1


class New(Case):
    def make(self, name, **files):
        os.mkdir(self.tensor(name))
        for view, data in files.items():
            self.write(name, view.replace('_', '.'), data)

    def write(self, name, view, data):
        with open(self.tensor(name, view), 'wb') as out:
            out.write(data)

    def add(self, name, type_id, dims, data):
        self.want.append((name, type_id, dims, data))


class Made(New):
    def test_every_layout(self):
        for name, data in kinds():
            with self.subTest(name):
                self.put(data)
                with mountlib.Mount(self.model, *EDIT) as at:
                    self.at = at
                    self.make('new', type=b'I8\n', shape=b'3 4\n', raw=bytes(range(12)))
                    self.sync()
                    self.add(b'new', 24, (4, 3), bytes(range(12)))
                    self.assertEqual(mountlib.get(self.tensor('new', 'raw')), bytes(range(12)))
                    self.check(mountlib.get(os.path.join(at, 'model.gguf')))
                self.check()

    def test_any_order(self):
        """Type, shape and raw count; values beside raw are ignored."""
        parts = (('type', b'F32\n'), ('shape', b'2 2\n'), ('raw', f32(1, 2, 3, 4)),
                 ('f32', f32(9, 9, 9, 9)), ('offset', b'123\n'))
        self.mount()
        for i, order in enumerate(itertools.islice(itertools.permutations(parts), 0, 120, 7)):
            name = f'new{i}'
            os.mkdir(self.tensor(name))
            for view, data in order:
                self.write(name, view, data)
            self.add(name.encode(), F32, (2, 2), f32(1, 2, 3, 4))
            self.sync()  # on a slow machine, the next tensor might otherwise already be complete
        self.check()
        self.end()
        self.check()

    def test_values(self):
        """Values are encoded to the given type, or else to the view's own."""
        self.mount()
        values = np.float32([[1, 2, 3, 4], [5, 6, 7, 8]])
        os.mkdir(self.tensor('a'))
        np.save(self.tensor('a', 'f32.npy'), values)
        self.add(b'a', F32, (4, 2), values.tobytes())
        os.mkdir(self.tensor('b'))
        np.save(self.tensor('b', 'f16.npy'), values.astype('<f2'))
        self.add(b'b', F16, (4, 2), values.astype('<f2').tobytes())
        self.make('c', f32=f32(1, 2), shape=b'2\n', type=b'F16\n')
        self.add(b'c', F16, (2,), f16(1, 2))
        self.sync()
        self.check()

    def test_by_itself(self):
        self.mount()
        self.make('new', type=b'F32\n', shape=b'1\n', raw=f32(1))
        self.add(b'new', F32, (1,), f32(1))
        until(lambda: len(gguf.read(mountlib.get(self.model)).tensors) == 6)
        self.check()

    def test_at_the_end(self):
        self.mount()
        self.make('new', type=b'F32\n', shape=b'1\n', raw=f32(1))
        self.add(b'new', F32, (1,), f32(1))
        self.end()
        self.check()

    def test_in_the_making(self):
        """An incomplete tensor is shown, with the files that it lacks, and is gone at the end."""
        self.mount()
        os.mkdir(self.tensor('new'))
        self.assertIn('new', self.names())
        self.assertEqual(os.listdir(self.tensor('new')), [])
        self.assertIsNotNone(self.error('new'))
        self.write('new', 'type', b'Q8_0\n')
        self.sync()
        self.assertIn('still needs shape', self.error('new'))
        self.assertEqual(mountlib.get(self.tensor('new', 'type')), b'Q8_0\n')
        self.assertEqual(run('ls', '-l', self.tensor('new')).err, '')
        os.rename(self.tensor('new'), self.tensor('other'))
        self.assertEqual(os.listdir(self.tensor('other')), ['type'])
        self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
        self.not_saved('tensors/other: a new tensor: still needs shape')

    def test_the_folder_stays(self):
        """The directory is the same before and after it becomes a tensor."""
        self.mount()
        self.make('new', type=b'F32\n', shape=b'1\n')
        inside = os.open(self.tensor('new'), os.O_RDONLY)
        ino = os.fstat(inside).st_ino
        self.write('new', 'raw', f32(1))
        self.sync()
        self.assertEqual(os.stat(self.tensor('new')).st_ino, ino)
        with open(os.open('f32', os.O_RDONLY, dir_fd=inside), 'rb') as found:
            self.assertEqual(found.read(), f32(1))
        os.close(inside)
        self.write('new', 'f32', f32(2))
        self.add(b'new', F32, (1,), f32(2))
        self.check()

    def test_removed_again(self):
        self.mount()
        self.make('new', type=b'F32\n', shape=b'1\n', raw=f32(1))
        shutil.rmtree(self.tensor('new'))
        self.assertNotIn('new', self.names())
        self.end()
        self.check()

    def test_refused(self):
        self.mount()
        self.raises(errno.EEXIST, os.mkdir, self.tensor('a.weight'))
        self.raises(errno.ENAMETOOLONG, os.mkdir, self.tensor('x' * 64))
        self.raises(errno.EINVAL, os.mkdir, self.tensor('%'))
        self.raises(errno.EPERM, os.mkdir, os.path.join(self.at, 'metadata', 'x.y'))
        os.mkdir(self.tensor('new'))
        self.raises(errno.EEXIST, os.mkdir, self.tensor('new'))
        for view, text, code in (('type', b'nonsense\n', errno.EINVAL),
                                 ('type', b'unknown:99\n', errno.EOPNOTSUPP),
                                 ('shape', b'0\n', errno.EINVAL)):
            self.raises(code, self.write, 'new', view, text)
        self.write('new', 'type', b'Q8_0\n')
        self.write('new', 'shape', b'3\n')
        self.write('new', 'raw', b'123')
        self.raises(errno.EINVAL, self.sync)
        self.assertIn('block', self.error('new'))
        self.end()
        self.check()


class Copied(New):
    def setUp(self):
        super().setUp()
        self.other = mountlib.put('other.gguf', gguf.encode(samples.keys(), [
            Tensor(b'q.weight', Q8_0, (64,), bytes([0, 0x38]) + bytes(range(32))
                   + bytes([0, 0x3c]) + bytes(32))] + samples.small()))
        self.source = mountlib.Mount(self.other)
        self.there = self.source.__enter__()
        self.addCleanup(self.source.__exit__, None, None, None)

    def from_other(self, name):
        return os.path.join(self.there, 'tensors', name)

    def row(self, name, new=None):
        tensor = [t for t in gguf.read(mountlib.get(self.other)).tensors if t.name == name][0]
        return new or name, tensor.type_id, tensor.dims, tensor.data

    def test_tools(self):
        self.mount()
        tar = 'tar -C "$1" -cf - q.weight | tar -C "$2" --transform s/q.weight/tarred/ -xf -'
        for name, command in ((b'plain', ['cp', '-r']), (b'all', ['cp', '-a'])):
            done = run(*command, self.from_other('q.weight'), self.tensor(name.decode()))
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.want.append(self.row(b'q.weight', name))
        done = run('sh', '-c', tar, 'sh', os.path.join(self.there, 'tensors'), self.tensor())
        self.assertEqual(done.returncode, 0, done.err)
        self.want.append(self.row(b'q.weight', b'tarred'))
        self.sync()
        self.check()

    def test_from_a_folder(self):
        """A backup has the listed views, and their modes."""
        backup = mountlib.path('backup')
        shutil.copytree(self.from_other('q.weight'), backup)
        self.addCleanup(run, 'sh', '-c', 'chmod -R u+w "$1"; rm -r "$1"', 'sh', backup)
        self.mount()
        shutil.copytree(backup, self.tensor('q.weight'))
        self.want.append(self.row(b'q.weight'))
        self.end()
        self.check()

    def test_graft(self):
        """rm -r and cp -r put the tensor in its old place, in one rewrite."""
        self.mount()
        shutil.rmtree(self.tensor('c.weight'))
        done = run('cp', '-r', self.from_other('q.weight'), self.tensor('c.weight'))
        self.assertEqual(done.err, '')
        self.want[2] = self.row(b'q.weight', b'c.weight')
        self.sync()
        self.check()
        self.end()
        self.check()
        self.assertEqual(leftovers(mountlib.folder), [])


    def test_place_comes_back(self):
        """The tensor gets its place back if its removal is not written yet."""
        self.mount()
        backup = mountlib.path('backup')
        shutil.copytree(self.tensor('c.weight'), backup)
        self.addCleanup(run, 'sh', '-c', 'chmod -R u+w "$1"; rm -r "$1"', 'sh', backup)
        before = list(self.want)
        shutil.rmtree(self.tensor('c.weight'))
        shutil.copytree(backup, self.tensor('c.weight'))
        self.sync()
        self.want = before
        self.check()
        self.assertEqual(self.names()[2], 'c.weight')


class Tools(New):
    def test_helpers(self):
        """A tensor's folder holds its views and nothing else."""
        self.mount()
        folder = self.tensor('a.weight')
        self.raises(errno.EPERM, open, os.path.join(folder, '.raw.AbCdEf'), 'xb')
        self.raises(errno.EPERM, os.rename, os.path.join(folder, 'raw'), os.path.join(folder, 'raw~'))
        self.assertEqual(run('sed', '-i', 's/F16/F32/', os.path.join(folder, 'type')).returncode, 4)
        self.end()
        self.check()
        self.assertEqual(leftovers(mountlib.folder), [])

    @unittest.skipUnless(shutil.which('rsync'), 'no rsync')
    def test_rsync(self):
        backup = mountlib.path('backup')
        self.addCleanup(run, 'sh', '-c', 'chmod -R u+w "$1"; rm -r "$1"', 'sh', backup)
        self.mount()
        shutil.copytree(self.tensor('b.weight'), backup)
        done = run('rsync', '-a', '-X', '--inplace', backup + '/', self.tensor('new'))
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.add(b'new', *self.want[1][1:])
        self.sync()
        self.check()
        with open(os.path.join(backup, 'raw'), 'wb') as out:
            out.write(b'12345678')
        done = run('rsync', '-a', '-c', '--inplace', '--exclude=f32*', '--exclude=offset', backup + '/',
                   self.tensor('b.weight'))
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.set(b'b.weight', data=b'12345678')
        self.sync()
        self.check()


class Split(unittest.TestCase):
    def test_refused(self):
        """Tensors of a split model are read-only; its keys are not."""
        whole, files = samples.small(), []
        for i in (1, 2):
            kv = samples.keys() if i == 1 else []
            kv = kv + [(b'split.no', gguf.Value('u16', i - 1)),
                       (b'split.count', gguf.Value('u16', 2)),
                       (b'split.tensors.count', gguf.Value('i32', 5))]
            files.append(mountlib.put(f'x-0000{i}-of-00002.gguf',
                                      gguf.encode(kv, whole[:2] if i == 1 else whole[2:])))
        before = [mountlib.get(file) for file in files]
        with mountlib.Mount(files[1], *EDIT) as at:
            place = os.path.join(at, 'tensors', 'a.weight')
            for call, *names in ((os.mkdir, at + '/tensors/new'), (os.rmdir, place),
                                 (os.rename, place, place + '.b'), (os.unlink, place + '/raw'),
                                 (os.truncate, place + '/raw', 0), (open, place + '/raw', 'r+b')):
                with self.assertRaises(OSError) as caught:
                    call(*names)
                self.assertIn(caught.exception.errno, (errno.EROFS,) if os.getuid() == 0 else
                              (errno.EROFS, errno.EACCES))
            self.assertFalse(os.stat(place + '/raw').st_mode & 0o222)
            self.assertIn(b'merge it first', os.getxattr(place, 'user.gguf.error'))
            self.assertIn(b'merge it first', mountlib.get(at + '/info'))
            with open(at + '/metadata/general.name', 'w', encoding='ascii') as file:
                file.write('y')
        self.assertEqual(mountlib.get(files[1]), before[1])
        first = gguf.read(mountlib.get(files[0]))
        self.assertEqual(dict(first.kv)[b'general.name'].data, b'y')
        self.assertEqual([(t.name, t.data) for t in first.tensors], [(t.name, t.data) for t in whole[:2]])


if __name__ == '__main__':
    mountlib.main()
