# SPDX-License-Identifier: MIT
"""Incomplete models (-o partial): existing data can be read to the last whole page; missing data
gives EIO and never zeros, however a program reads."""
import errno
import mmap
import os
import signal
import subprocess
import sys
import unittest

import ggufmodel as gguf
import mountlib
from editlib import opened
from ggufmodel import Tensor, Value
from mountlib import fails

PAGE = mmap.PAGESIZE
F32, Q8_0 = 0, 8
SIZE = {'tiny': 3, 'large': 3000}  # blocks of Q8_0
KEYS = [(b'general.architecture', Value('string', b'llama')), (b'general.name', Value('string', b'p'))]

# Reads the byte at argv[2] of the mapped file argv[1] and the whole page around it.
LOOK = """
import mmap, sys
with open(sys.argv[1], 'rb') as file:
    map = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
at = int(sys.argv[2]) // mmap.PAGESIZE * mmap.PAGESIZE
sys.stdout.buffer.write(map[at:at + mmap.PAGESIZE])
"""


def nonzero(count, seed):
    """Return bytes that cannot be mistaken for missing ones."""
    return bytes(1 + (i * 7 + seed) % 255 for i in range(count))


def tensors(blocks):
    return [Tensor(b'a', F32, (5,), nonzero(20, 1)), Tensor(b'q', Q8_0, (32 * blocks,), nonzero(34 * blocks, 2)),
            Tensor(b'z', F32, (9,), nonzero(36, 3))]


class Partial(unittest.TestCase):
    def reads(self, name, want, there, sizes=(1, 100, 4096, 1 << 20)):
        """Read in pieces of each size: all whole pages that exist, then EIO, and nothing else."""
        there = there // PAGE * PAGE
        for size in sizes:
            with self.subTest(name=name, size=size), opened(name, os.O_RDONLY) as fd:
                off = max(0, there - 50 * size)
                while off < there:
                    got = os.pread(fd, size, off)
                    self.assertEqual(got, want[off:min(there, off + size)])
                    off += len(got)
                for at in (there, (there + len(want)) // 2, len(want) - 1):
                    fails(errno.EIO, os.pread, fd, size, at)
                self.assertEqual(os.pread(fd, size, len(want)), b'')
                self.assertEqual(os.fstat(fd).st_size, len(want))
        self.assertEqual(os.stat(name).st_size, len(want))

    def mapped(self, name, want, there):
        """Check the whole pages of a private mapping, and that no byte of an incomplete page can be
        read."""
        for at in (0, there - PAGE, there, there + PAGE):
            page = at // PAGE * PAGE
            if not 0 <= page < len(want):
                continue
            done = subprocess.run([sys.executable, '-c', LOOK, name, str(page)], capture_output=True)
            if page + PAGE <= there:
                self.assertEqual((done.returncode, done.stdout), (0, want[page:page + PAGE]))
            else:
                self.assertEqual((done.returncode, done.stdout), (-signal.SIGBUS, b''))
        self.assertEqual(os.stat(name).st_size, len(want))

    @unittest.skipIf(mountlib.sanitized('tsan'), 'it does not always hand on SIGBUS')
    def test_cut(self):
        for kind, blocks in SIZE.items():
            data = gguf.encode(KEYS, tensors(blocks))
            parsed = gguf.read(data)
            at_q = data.index(parsed.tensors[1].data)
            for kept in (34 * blocks // 2 + 1, 34 * blocks - 1):
                with self.subTest(kind=kind, kept=kept):
                    self.check_cut(data[:at_q + kept], data, kept, kept // 34 * 32)

    def check_cut(self, left, data, kept, values):
        whole = mountlib.put('whole.gguf', data)
        with mountlib.Mount(whole) as full, \
             mountlib.Mount(mountlib.put('left.gguf', left), '-o', 'partial') as at:
            for name, there in (('model.gguf', len(left)), ('tensors/q/raw', kept),
                                ('tensors/q/f32', 4 * values), ('tensors/q/f32.npy', 128 + 4 * values),
                                ('tensors/q/f16', 2 * values)):
                want = mountlib.get(os.path.join(full, name))
                if name == 'model.gguf':
                    want = want[:os.stat(os.path.join(at, name)).st_size]  # the padding at the end
                name = os.path.join(at, name)
                self.reads(name, want, there)
                self.mapped(name, want, there)
            self.assertEqual(mountlib.get(at + '/tensors/a/raw'), tensors(1)[0].data)
            fails(errno.EIO, mountlib.get, at + '/tensors/z/raw')
