# SPDX-License-Identifier: MIT
"""Readers of the whole model while it is edited: each keeps the content that it opened, to the last
byte."""
import mmap
import os
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, opened, place, sync, write
from ggufmodel import Tensor, Value

WHOLE = ('model.gguf', 'metadata.json', 'tensors.json', 'tensors.txt', 'info')


class Reader:
    """A view of the model, held open; model.gguf is also mapped. `copy`: its content at open."""

    def __init__(self, at, name):
        self.name, self.fd = name, os.open(os.path.join(at, name), os.O_RDONLY)
        self.stat = os.fstat(self.fd)
        self.map = mmap.mmap(self.fd, 0, prot=mmap.PROT_READ) if name == 'model.gguf' else None
        with open(f'/proc/self/fd/{self.fd}', 'rb') as again:
            self.copy = again.read()
        assert len(self.copy) == self.stat.st_size

    def check(self):
        """Check the whole content again: read forwards, read backwards so that no data is read
        ahead, and mapped."""
        piece = 65536
        for off in reversed(range(0, len(self.copy) + piece, piece)):
            assert os.pread(self.fd, piece, off) == self.copy[off:off + piece], (self.name, off)
        assert os.fstat(self.fd).st_size == len(self.copy), self.name
        if self.map:
            assert self.map[:] == self.copy

    def close(self):
        if self.map:
            self.map.close()
        os.close(self.fd)


def edits(at, want):
    """Make edits: longer and shorter headers, another layout, and keys that are removed and added."""
    for key, value in (('general.name', 'x' * 5000), ('general.name', 'short'), ('general.alignment', 4096), ('type.u8', None),
                       ('general.alignment', None), ('my.new', 'x' * 100000)):
        if value is None:
            os.unlink(place(at, key))
            sync(at)
            want.remove(key.encode())
        else:
            write(at, key, str(value))
            want.set(key.encode(), Value('u32', value) if value == 4096 else Value('string', value.encode()))
        yield


class Generations(unittest.TestCase):
    def data(self):
        tensors = samples.small() + samples.small(count=1, size=150001)[:1]
        tensors[-1] = tensors[-1]._replace(name=b'large.weight')
        return gguf.encode(samples.keys(), tensors)

    def test_copy(self):
        source = mountlib.put('model.gguf', self.data())
        want, readers = Want(mountlib.get(source)), []
        with mountlib.Mount(source, '-o', 'relayout=copy') as at:
            readers += [Reader(at, name) for name in WHOLE]
            self.assertEqual(readers[0].copy, mountlib.get(source))
            raw = os.open(os.path.join(at, 'tensors/large.weight/raw'), os.O_RDONLY)
            held = mmap.mmap(raw, 0, prot=mmap.PROT_READ)
            for _ in edits(at, want):
                want.check(mountlib.get(source))
                readers += [Reader(at, name) for name in WHOLE]
                self.assertEqual(readers[-len(WHOLE)].copy, mountlib.get(source))
                self.assertGreater(readers[-1].stat.st_mtime_ns, readers[-1 - len(WHOLE)].stat.st_mtime_ns)
                self.assertEqual([reader.stat.st_ino for reader in readers[-len(WHOLE):]],
                                 [reader.stat.st_ino for reader in readers[:len(WHOLE)]])
                self.assertEqual(held[:], want.tensors[-1][3])
                for reader in readers:
                    reader.check()
            for reader in readers:
                reader.close()
            held.close()
            os.close(raw)
        want.check(mountlib.get(source))

    def deleted(self, pid):
        """Return the nameless files that the daemon has open or mapped."""
        found = []
        for fd in os.listdir(f'/proc/{pid}/fd'):
            try:
                found.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
            except FileNotFoundError:
                pass
        with open(f'/proc/{pid}/maps', encoding='utf-8') as lines:
            found += lines.read().splitlines()
        return [name for name in found if '(deleted)' in name and 'model.gguf' in name]

    def test_old_files_are_let_go(self):
        """Only its readers keep a replaced model, which is released when they are gone."""
        source = mountlib.put('model.gguf', self.data())
        with mountlib.Foreground(source) as (at, process):
            for count in range(3):
                with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd:
                    os.pread(fd, 100, 0)
                    write(at, 'general.name', 'x' * 1000 * (count + 1))
                # No program opens model.gguf again, so the daemon must release it on its own.
                editlib.until(lambda: not self.deleted(process.pid))
            write(at, 'general.name', 'y')
            editlib.until(lambda: not self.deleted(process.pid))

    def test_read_ahead_keeps_no_file(self):
        """A file that is read sequentially, in large pieces, does not keep a replaced model
        open."""
        source = mountlib.put('model.gguf', gguf.encode(samples.keys(), [Tensor(b'w', 0, (4 << 20, ), bytes(16 << 20))]))
        piece = mmap.mmap(-1, 1 << 20)
        with mountlib.Foreground(source, '-o', 'relayout=copy') as (at, process):
            # Bypass the page cache, so that each read is one request.
            with opened(os.path.join(at, 'model.safetensors'), os.O_RDONLY | os.O_DIRECT) as fd:
                for _ in range(8):
                    self.assertEqual(os.readv(fd, [piece]), len(piece))
                write(at, 'general.name', 'x')
                editlib.until(lambda: not self.deleted(process.pid))
            self.assertEqual(self.deleted(process.pid), [])
