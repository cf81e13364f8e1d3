# SPDX-License-Identifier: MIT
"""Eight processes read random ranges at once, by read and by mmap: each byte is right. Readers of the whole
model while it is edited keep the content that they opened, to the last byte."""
import contextlib
import mmap
import os
import random
import unittest
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, opened, place, sync, write
from ggufmodel import Tensor, Value

READERS, ROUNDS = 8, 300
STRETCH = 256 << 10  # bytes per read


def contents(at, model, file):
    """Return (path in the tree, expected bytes): for values, what a single reader sees."""
    for tensor in model.tensors:
        name = 'tensors/' + tensor.name.decode()
        yield name + '/raw', tensor.data
        yield name + '/f32', mountlib.get(os.path.join(at, name, 'f32'))
    yield 'model.gguf', file


def read_file(at, wanted, rng):
    """Read ranges of any alignment, also across the end of the file."""
    start = rng.randrange(len(wanted) + 1)
    size = rng.choice((1, 3, 4096, 70000, 300000))
    with opened(at, os.O_RDONLY) as file:
        return os.pread(file, size, start) == wanted[start:start + size]


def read_map(at, wanted, rng):
    start = rng.randrange(len(wanted))
    with open(at, 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
        return view[start:start + 50000] == wanted[start:start + 50000]


def read_whole(at, wanted, _):
    return mountlib.get(at) == wanted


def reader(seed, at, wanted):
    rng = random.Random(seed)
    for _ in range(ROUNDS):
        name, data = rng.choice(wanted)
        how = rng.choices((read_file, read_map, read_whole), (10, 5, 1))[0]
        assert how(os.path.join(at, name), data, rng), f'{name}: {how.__name__}'


class Readers(unittest.TestCase):
    def setUp(self):
        self.source = mountlib.sample()
        file = mountlib.get(self.source)
        with mountlib.Mount(self.source, '-o', 'ro') as at:
            self.wanted = list(contents(at, gguf.read(file), file))

    def race(self, *options):
        """Race with options that may turn off the kernel's cache, so that each read reaches the
        daemon."""
        with mountlib.Mount(self.source, *options) as at, ProcessPoolExecutor(READERS) as pool:
            for done in [pool.submit(reader, seed, at, self.wanted) for seed in range(READERS)]:
                done.result()

    def test_parallel(self):
        self.race()

    @unittest.skipIf(mountlib.sanitized('asan', 'tsan'), 'sanitizers keep what was freed')
    def test_read_to_the_end(self):
        """A file that was read sequentially, and stays open, keeps no memory for further reads.
        With one thread, the last read has been prepared when the next request is answered."""
        name, data = max((file for file in self.wanted if file[0].endswith('/f32')),
                         key=lambda file: len(file[1]))
        with mountlib.Mount(self.source, '-o', 'ro', '-s') as at, contextlib.ExitStack() as files:
            before = mountlib.memory(at)
            for _ in range(100):
                file = os.open(os.path.join(at, name), os.O_RDONLY | os.O_DIRECT)
                files.callback(os.close, file)
                self.assertEqual(b''.join(iter(partial(os.read, file, STRETCH), b'')), data)
            os.stat(os.path.join(at, 'info'))
            self.assertLess(mountlib.memory(at) - before, 80 * STRETCH)  # the heap keeps some of what was freed

    def test_nothing_but_reads(self):
        """Where models are also edited, the kernel requests the attributes of a file once, not at
        each read(2): its node belongs to one state of the model."""
        for name in ('model.safetensors', 'model.gguf', 'tensors/blk.0.attn_q.weight/f32'):
            mount = mountlib.Foreground(self.source, '-d')
            with mount as (at, _):
                log = f'/proc/self/fd/{mount.err.fileno()}'  # reopened for a separate offset
                with opened(os.path.join(at, name), os.O_RDONLY) as file:
                    size, before = os.fstat(file).st_size, mountlib.get(log).count(b'GETATTR')
                    self.assertEqual(sum(map(len, iter(partial(os.read, file, 4096), b''))), size)
                    self.assertLess(mountlib.get(log).count(b'GETATTR') - before, 10, name)  # one a second, if this is slow

    def test_clone_fd(self):
        self.race('-o', 'clone_fd,max_threads=4')


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
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f'/proc/{pid}/fd/{fd}'))
        found += mountlib.get(f'/proc/{pid}/maps').decode().splitlines()
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
