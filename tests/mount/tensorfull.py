#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Edits of tensors on a full disk: when a draft is written, and when it is committed."""
import errno
import os

import disks
import ggufmodel as gguf
import mountlib
import samples
from disks import MIB, Disk
from editlib import leftovers
from ggufmodel import Tensor
from tensorcase import Case

LARGE = 40 * MIB


class Full(Case):
    def setUp(self):
        self.folder = self.enter(Disk('tmpfs'))
        self.model = os.path.join(self.folder, 'model.gguf')
        data = gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'large', 24, (LARGE,), bytes(LARGE))])
        with open(self.model, 'wb') as out:
            out.write(data)
        self.kv = None
        self.want = [(t.name, t.type_id, t.dims, t.data) for t in gguf.read(data).tensors]

    def enter(self, context):
        result = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return result

    def check(self, file=None):
        found = gguf.read(mountlib.get(self.model)).tensors
        self.assertEqual([t.name for t in found], [row[0] for row in self.want])
        self.assertTrue(all(t.data == row[3] for t, row in zip(found, self.want)))
        self.assertEqual(leftovers(self.folder), [])

    def fill(self, left):
        """Fill the disk, leaving that many bytes free."""
        stat = os.statvfs(self.folder)
        with open(os.path.join(self.folder, 'fill'), 'wb') as out:
            os.posix_fallocate(out.fileno(), 0, stat.f_bavail * stat.f_bsize - left)

    def empty(self):
        os.unlink(os.path.join(self.folder, 'fill'))

    def test_at_the_write(self):
        self.mount()
        self.fill(8 * MIB)
        fd = os.open(self.tensor('large', 'raw'), os.O_WRONLY)

        def write():
            for _ in range(40):
                os.write(fd, b'x' * MIB)

        self.raises(errno.ENOSPC, write)
        self.raises(errno.ENOSPC, os.close, fd)
        self.assertIn('space', self.error('large'))
        self.empty()
        self.check()
        with open(self.tensor('large', 'raw'), 'wb') as out:
            out.write(b'y' * LARGE)
        self.set(b'large', data=b'y' * LARGE)
        self.end()
        self.check()

    def test_at_the_commit(self):
        """The old file stays, and the close reports the error."""
        self.mount('-o', 'relayout=copy,commit=close')
        self.fill(60 * MIB)
        fd = os.open(self.tensor('large', 'raw'), os.O_WRONLY)
        for _ in range(40):
            os.write(fd, b'x' * MIB)
        self.raises(errno.ENOSPC, os.close, fd)
        self.assertIn('bytes are needed', self.error('large'))
        self.assertEqual(mountlib.get(self.tensor('large', 'raw')), bytes(LARGE))
        self.check()
        self.empty()
        with open(self.tensor('large', 'raw'), 'wb') as out:
            out.write(b'y' * LARGE)
        self.assertIsNone(self.error('large'))
        self.set(b'large', data=b'y' * LARGE)
        self.check()

    def test_conversion(self):
        """A conversion is refused before anything is computed or written."""
        self.mount()
        self.fill(40 * MIB)

        def convert():
            with open(self.tensor('large', 'type'), 'wb', buffering=0) as out:
                out.write(b'F32\n')

        self.raises(errno.ENOSPC, convert)
        self.assertIn('bytes are needed', self.error('large'))
        self.assertGreater(os.statvfs(self.folder).f_bavail * 4096, 38 * MIB)
        self.empty()
        self.check()

    def test_removal(self):
        """A removal waits until there is room."""
        self.mount('-o', 'relayout=copy')
        self.fill(8 * MIB)
        os.rmdir(self.tensor('a.weight'))
        self.raises(errno.ENOSPC, self.sync)
        self.assertFalse(os.path.exists(self.tensor('a.weight')))
        self.assertIn(b'tensors/a.weight', mountlib.get(os.path.join(self.at, 'errors')))
        self.empty()
        self.sync()
        self.drop(b'a.weight')
        self.check()


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
