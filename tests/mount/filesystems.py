# SPDX-License-Identifier: MIT
"""Edits on real file systems: ext4, XFS and btrfs in loop-mounted images, and tmpfs; and what a full
one does to edits of keys and of tensors."""
import contextlib
import errno
import os
import subprocess
import sys
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from disks import CLONES, KINDS, MIB, TIMES, new_disk, log_of, put_model
from editlib import Want, opened, write
from ggufmodel import Tensor, Value
from mountlib import fails
from tensorcase import Case


class Filesystems(unittest.TestCase):
    def each(self, test, *kinds):
        """Run test(kind, directory) on a disk of each kind."""
        for kind in kinds or KINDS:
            with self.subTest(filesystem=kind), new_disk(kind) as folder:
                test(kind, folder)

    def run_edits(self, kind, folder):
        programs = [('verbs.py', [] if TIMES > 1 else ['Verbs.test_strategies'])]
        if kind == 'xfs':
            programs += [('split.py', ['Split.test_edit'])]
        for program, tests in programs:
            done = subprocess.run([sys.executable, mountlib.__file__, f'{mountlib.SOURCE}/tests/mount/{program}', *tests], env={**os.environ, 'GGUFS_TEST_DIR': folder}, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, f'{kind}: {done.stdout.decode()}')

    def test_edits(self):
        """Run tests of edits on it: those of each strategy where ranges can be cloned, all in a long run."""
        self.each(self.run_edits)

    def clone(self, _, folder):
        source = put_model(folder, 64 * MIB)
        os.sync()
        before = os.statvfs(folder)
        want = Want(mountlib.get(source))
        log = log_of(source, '-o', 'reserve=65536', text='x' * 100000)
        self.assertRegex(log, '; copy,')
        os.sync()
        after = os.statvfs(folder)
        want.set(b'general.name', Value('string', b'x' * 100000))
        want.check(mountlib.get(source))
        self.assertLess((before.f_bfree - after.f_bfree) * after.f_frsize, 8 * MIB)

    def test_clone(self):
        """Where ranges can be cloned, the data of the new file takes no space."""
        self.each(self.clone, *CLONES)

    def fill(self, folder):
        """Use up all space."""
        with open(os.path.join(folder, 'filler'), 'wb', buffering=0) as out:
            for size in (MIB, 4096):
                with contextlib.suppress(OSError):
                    while out.write(bytes(size)):
                        pass
                with contextlib.suppress(OSError):
                    os.fsync(out.fileno())

    def full(self, kind, folder):
        source = put_model(folder, 16 * MIB)
        old, filler = mountlib.get(source), os.path.join(folder, 'filler')
        self.fill(folder)
        for commit in ('auto',) if kind in CLONES else ('sync', 'auto'):
            with mountlib.Mount(source, '-o', f'relayout=copy,commit={commit}') as at:
                for key, text in (('general.name', 'x' * 5000), ('my.key', '1')):
                    fails(errno.ENOSPC, write, at, key, text)
                    self.assertEqual(mountlib.get(source), old)
                    self.assertEqual(editlib.leftovers(folder), [])
                self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
                self.assertTrue(editlib.error_of(at, 'general.name'))
                if commit == 'auto':
                    os.unlink(filler)
                    editlib.until(lambda: os.statvfs(folder).f_bfree * os.statvfs(folder).f_frsize > 64 * MIB)  # XFS: later
                    write(at, 'general.name', 'room again')
        want = Want(old)
        want.set(b'general.name', Value('string', b'room again'))
        want.check(mountlib.get(source))

    def test_full(self):
        """The edit fails with ENOSPC, and only the old file stays; once there is space again, the
        edit works."""
        self.each(self.full)

    def full_in_place(self, kind, folder):
        source = put_model(folder, 16 * MIB)
        log_of(source, '-o', 'relayout=copy,reserve=65536')
        want = Want(mountlib.get(source))
        self.fill(folder)
        filler = os.path.join(folder, 'filler')
        os.truncate(filler, os.path.getsize(filler) - 2 * MIB)
        log = log_of(source, '-o', 'relayout=inplace', text='in place')
        self.assertRegex(log, '; inplace,')
        log = log_of(source, text='by itself')
        self.assertRegex(log, '; copy,' if kind in CLONES else '; inplace,')
        want.set(b'general.name', Value('string', b'by itself'))
        want.check(mountlib.get(source))

    def test_full_in_place(self):
        """An edit in place needs space only for the journal, so it is made on a full disk."""
        self.each(self.full_in_place, 'ext4', 'xfs')


class FullTensors(Case):
    LARGE = 40 * MIB

    def setUp(self):
        disk = new_disk('tmpfs')
        self.folder = disk.__enter__()
        self.addCleanup(disk.__exit__, None, None, None)
        self.model = os.path.join(self.folder, 'model.gguf')
        data = gguf.encode(samples.keys(), samples.small() + [Tensor(b'large', 24, (self.LARGE,), bytes(self.LARGE))])
        self.put(data)

    def check(self):
        super().check()
        self.assertEqual(editlib.leftovers(self.folder), [])

    def fill(self, left):
        """Fill the disk, leaving that many bytes free."""
        stat = os.statvfs(self.folder)
        with open(os.path.join(self.folder, 'fill'), 'wb') as out:
            os.posix_fallocate(out.fileno(), 0, stat.f_bavail * stat.f_bsize - left)

    def write(self, byte):
        with opened(self.tensor('large', 'raw'), os.O_WRONLY) as fd:
            for _ in range(self.LARGE // MIB):
                os.write(fd, byte * MIB)

    def convert(self):
        mountlib.put(self.tensor('large', 'type'), b'F32\n')

    def test_at_each_moment(self):
        """There is no room for the draft, for the new file, or for what a conversion makes: nothing changes, and
        with room the edit works."""
        for left, call, *arguments in ((8, self.write, b'x'), (60, self.write, b'x'), (40, self.convert)):
            with self.subTest(left=left):
                self.mount('-o', 'relayout=copy,commit=close')
                self.fill(left * MIB)
                fails(errno.ENOSPC, call, *arguments)
                self.assertTrue(os.getxattr(self.tensor('large'), 'user.gguf.error'))
                self.assertEqual(mountlib.get(self.tensor('large', 'raw')), self.want.tensors[-1][3])
                self.check()
                os.unlink(os.path.join(self.folder, 'fill'))
                self.write(b'%d' % (left % 10))
                self.set(b'large', data=b'%d' % (left % 10) * self.LARGE)
                self.end()
                self.check()

    def test_a_removal_without_room(self):
        """An edit in place is made although an earlier removal has no room; that is made once there is some."""
        self.mount('-o', 'commit=close')
        self.fill(8 * MIB)
        os.rmdir(self.tensor('a.weight'))
        fails(errno.ENOSPC, self.sync)
        with open(os.path.join(self.at, 'errors')) as f:
            self.assertRegex(f.read(), r'^tensors/a.weight: removed: not written: .* are free.*\n$')
        write(self.at, 'general.name', 'best')  # as long as the old one
        self.want.set(b'general.name', Value('string', b'best'))
        self.check()
        fails(errno.ENOSPC, self.sync)
        os.unlink(os.path.join(self.folder, 'fill'))
        self.sync()
        self.assertEqual(os.path.getsize(os.path.join(self.at, 'errors')), 0)
        self.drop(b'a.weight')
        self.check()
