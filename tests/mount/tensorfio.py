#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""fio writes views of tensors at random places, with pwrite and through a shared mapping, and
verifies each block that it wrote: while mounted, after another mount, and in the model's file."""
import itertools
import os
import shutil

import disks
import ggufmodel as gguf
import mountlib
import samples
from disks import Disk, figure
from ggufmodel import Tensor, Value
from tensorcase import Case

BYTES = disks.TIMES * disks.MIB  # size of a tensor; each byte is written
# The view and fio's block size. `raw` is I8, `f32` is F32, which can hold any bits.
VIEWS = (('raw', 4096), ('f32', 512)) if disks.TIMES == 1 else (('raw', 4096), ('raw', 512), ('f32', 4096), ('f32', 512))


class Fio(Case):
    def setUp(self):
        """Make the model on the disk of each test."""

    def place(self, folder):
        self.model = os.path.join(folder, 'model.gguf')
        data = gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'raw', 24, (BYTES,), bytes(BYTES)), Tensor(b'f32', 0, (BYTES // 4,), bytes(BYTES))])
        with open(self.model, 'wb') as out:
            out.write(data)

    def fio(self, view, engine, block, *more):
        """Return its exit status."""
        done = mountlib.run(
            'fio', '--name=verify', '--filename=' + self.tensor(view, view), '--rw=randwrite', f'--bs={block}',
            f'--size={BYTES}', '--ioengine=' + engine, '--verify=crc32c', '--verify_fatal=1', '--randseed=7',
            '--fallocate=none', '--allow_file_create=0', '--overwrite=1', '--end_fsync=1', '--minimal',
            '--verify_state_save=0', *more, cwd=mountlib.folder)
        return done.returncode

    def play(self, kind, *options, views=VIEWS):
        with Disk(kind) as folder:
            for (view, block), engine in itertools.product(views, ('psync', 'mmap')):
                with self.subTest(disk=kind, view=view, engine=engine, block=block):
                    self.place(folder)
                    files = set(os.listdir(folder))
                    self.mount(*options)
                    self.assertEqual(self.fio(view, engine, block, '--do_verify=1'), 0)
                    shown = mountlib.get(self.tensor(view, view))
                    self.end()
                    self.mount(*options)
                    self.assertEqual(self.fio(view, engine, block, '--verify_only'), 0)
                    self.assertTrue(mountlib.get(self.tensor(view, view)) == shown)
                    self.end()
                    tensors = {t.name: t.data for t in gguf.read(mountlib.get(self.model)).tensors}
                    self.assertTrue(tensors[view.encode()] == shown)
                    self.assertEqual(set(os.listdir(folder)), files)
                    figure('runs of fio that verified a view of a tensor')

    def test_ext4(self):
        self.play('ext4', '-o', 'relayout=inplace')

    def test_xfs(self):
        self.play('xfs', '-o', 'relayout=copy')

    def test_wrong_byte(self):
        """fio does notice a wrong byte."""
        with Disk('ext4') as folder:
            self.place(folder)
            self.mount()
            self.assertEqual(self.fio('raw', 'psync', 512, '--do_verify=1'), 0)
            fd = os.open(self.tensor('raw', 'raw'), os.O_RDWR)
            os.pwrite(fd, bytes([os.pread(fd, 1, 70001)[0] ^ 1]), 70001)
            os.close(fd)
            self.assertNotEqual(self.fio('raw', 'psync', 512, '--verify_only'), 0)
            self.end()


def tearDownModule():
    disks.print_figures()


if __name__ == '__main__':
    if not shutil.which('fio'):
        mountlib.skip('no fio')
    disks.own_namespace()
    mountlib.main()
