# SPDX-License-Identifier: MIT
"""Eight processes read random ranges at once, by read and by mmap; each byte is right."""
import contextlib
import mmap
import os
import random
import subprocess
import unittest
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import ggufmodel as gguf
import mountlib

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
    file = os.open(at, os.O_RDONLY)
    try:
        return os.pread(file, size, start) == wanted[start:start + size]
    finally:
        os.close(file)


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
        self.source = mountlib.path('sample.gguf')
        subprocess.run([os.path.join(mountlib.SOURCE, 'scripts/make-sample'), self.source],
                       check=True)
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

    @unittest.skipIf(mountlib.sanitized('asan') or mountlib.sanitized('tsan'),
                     'sanitizers keep what was freed')
    def test_read_to_the_end(self):
        """A file that was read sequentially, and stays open, keeps no memory for further reads.
        With one thread, the last read has been prepared when the next request is answered."""
        name, data = max((file for file in self.wanted if file[0].endswith('/f32')),
                         key=lambda file: len(file[1]))
        with mountlib.Mount(self.source, '-o', 'ro', '-s') as at, contextlib.ExitStack() as files:
            before = mountlib.anonymous(at)
            for _ in range(100):
                file = os.open(os.path.join(at, name), os.O_RDONLY | os.O_DIRECT)
                files.callback(os.close, file)
                self.assertEqual(b''.join(iter(partial(os.read, file, STRETCH), b'')), data)
            os.stat(os.path.join(at, 'info'))
            self.assertLess(mountlib.anonymous(at) - before, 80 * STRETCH)  # the heap keeps some of what was freed

    def test_nothing_but_reads(self):
        """Where models are also edited, the kernel requests the attributes of a file once, not at
        each read(2): its node belongs to one state of the model."""
        for name in ('model.safetensors', 'model.gguf', 'tensors/blk.0.attn_q.weight/f32'):
            mount = mountlib.Foreground(self.source, '-d')
            with mount as (at, _):
                log = f'/proc/self/fd/{mount.err.fileno()}'  # reopened for a separate offset
                file = os.open(os.path.join(at, name), os.O_RDONLY)
                size, before = os.fstat(file).st_size, mountlib.get(log).count(b'GETATTR')
                self.assertEqual(sum(map(len, iter(partial(os.read, file, 4096), b''))), size)
                self.assertLess(mountlib.get(log).count(b'GETATTR') - before, 10, name)  # one a second, if this is slow
                os.close(file)

    def test_clone_fd(self):
        self.race('-o', 'clone_fd,max_threads=4')
