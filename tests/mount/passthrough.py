#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""model.gguf read from the model's own file (FUSE passthrough): libfuse 3.17, Linux 6.9, root."""
import contextlib
import gzip
import mmap
import os
import re
import subprocess
import unittest

import ggufmodel as gguf
import mountlib
import samples
from editlib import opened, sync, write
from ggufmodel import Tensor

IN_USE = 'FUSE passthrough'
LARGE = 65 << 20  # a file of more than 64 MiB may be edited in place


def numbers(text):
    return tuple(map(int, re.match(r'(\d+)\.(\d+)', text).groups()))


def why_not():
    """Why there is none here; '': there has to be."""
    version = subprocess.run([mountlib.GGUFS, '--version'], stdout=subprocess.PIPE, text=True, check=True).stdout
    if 'passthrough: not in this build' in version:
        return 'not in this build: it needs libfuse 3.17 and headers of Linux 6.9'
    if numbers(os.uname().release) < (6, 9):
        return 'needs Linux 6.9'
    if os.getuid() != 0 or int(mountlib.get('/proc/self/uid_map').split()[2]) != 2**32 - 1:
        return 'for root of the whole system only'
    if os.path.exists('/proc/config.gz') and \
            b'CONFIG_FUSE_PASSTHROUGH=y' not in gzip.decompress(mountlib.get('/proc/config.gz')):
        return 'the kernel was built without it'
    return ''


def is_through(fd, source):
    """Whether a handle is read from the file: what changes there shows, although it was read before."""
    last = os.stat(source).st_size - 1
    if os.fstat(fd).st_size != last + 1:
        return False
    os.pread(fd, 1, last)
    with opened(source, os.O_RDWR) as file:
        times = os.fstat(file)
        was = os.pread(file, 1, last)
        os.pwrite(file, bytes([was[0] ^ 1]), last)
        now = os.pread(fd, 1, last)
        os.pwrite(file, was, last)
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert os.pread(fd, 1, last) == was
    return now != was


class Passthrough(unittest.TestCase):
    def setUp(self):
        with contextlib.suppress(FileNotFoundError):  # not the file that an earlier mount may still have
            os.unlink(mountlib.path('model.gguf'))
        self.source = mountlib.put('model.gguf', gguf.encode(samples.keys(), samples.small()))
        self.data = mountlib.get(self.source)

    def whole(self, at):
        return os.open(os.path.join(at, 'model.gguf'), os.O_RDONLY)

    def check(self, fd, data):
        self.assertEqual(os.fstat(fd).st_size, len(data))
        self.assertEqual(os.pread(fd, len(data) + 1, 0), data)
        self.assertEqual(os.pread(fd, 100, len(data)), b'')
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as held:
            self.assertEqual(held[:], data)

    def through(self, at, source=None):
        with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd:
            return is_through(fd, source or self.source)

    def test_read(self):
        for options in ([], ['-o', 'ro'], ['-o', 'relayout=reflink'], ['-o', 'relayout=copy']):
            with self.subTest(options=options):
                with mountlib.Mount(self.source, *options) as at:
                    fds = [self.whole(at), self.whole(at)]
                    for fd in fds:
                        self.check(fd, self.data)
                        self.assertTrue(is_through(fd, self.source))
                    os.close(fds.pop())
                    self.check(fds[0], self.data)
                    self.assertTrue(self.through(at))
                    os.close(fds.pop())
                    self.assertTrue(self.through(at))

    def test_told_once(self):
        mount = mountlib.Foreground(self.source)
        with mount as (at, _):
            for _ in range(3):
                self.assertTrue(self.through(at))
            self.assertEqual(mount.log().count(IN_USE), 1)

    def test_edits(self):
        """Each handle and mapping keeps the state that it was opened on; new ones read the new file."""
        held, maps = [], []
        with mountlib.Mount(self.source, '-o', 'commit=close') as at:
            for count in range(5):
                fd, data = self.whole(at), mountlib.get(self.source)
                self.assertTrue(is_through(fd, self.source))
                held.append((fd, data))
                maps.append((mmap.mmap(fd, 0, prot=mmap.PROT_READ), data))
                write(at, 'general.name', b'%d' % count * 3000 * (count % 3 + 1))
                for fd, data in held:
                    self.check(fd, data)
                self.check(fd, data)
            for fd, _ in held:
                os.close(fd)
            write(at, 'general.name', 'once more')
            for mapped, data in maps:  # no handle is left, the mapping is
                self.assertEqual(mapped[:], data)
                mapped.close()

    def test_not_yet_written(self):
        """Before an edit is written the new state is read through the daemon, and beside that handle
        by every other of the state; so are handles that come when it is written."""
        with mountlib.Mount(self.source, '-o', 'commit=sync') as at:
            old = self.whole(at)
            self.assertTrue(is_through(old, self.source))
            write(at, 'general.name', 'x' * 5000)
            new = self.whole(at)
            shown = os.pread(new, 1 << 20, 0)
            self.assertIn(b'x' * 5000, shown)
            self.assertFalse(is_through(new, self.source))
            self.check(old, self.data)
            sync(at)
            self.assertEqual(mountlib.get(self.source), shown)
            beside = self.whole(at)
            for fd in (new, beside):
                self.check(fd, shown)
                self.assertFalse(is_through(fd, self.source))
                os.close(fd)
            self.assertTrue(self.through(at))
            self.check(old, self.data)
            os.close(old)

    def large(self):
        """Sparse: all of its data is one hole, but for the last byte."""
        data = gguf.encode(samples.ARCH, [Tensor(b'w', 24, (32,), b'\1' * 32)])
        bare = gguf.encode(samples.ARCH, [Tensor(b'w', 24, (LARGE,), b'')])
        source = mountlib.put('large.gguf', bare)
        os.truncate(source, gguf.read(data).data_offset + LARGE)
        with open(source, 'r+b') as file:
            file.seek(-1, os.SEEK_END)
            file.write(b'\1')
        return source

    def test_in_place(self):
        """A file that may be edited in place is read through the daemon; and where it is not, no edit
        is in place."""
        source = self.large()
        for options in ('relayout=auto', 'relayout=inplace', 'relayout=copy'):
            with self.subTest(options=options):
                mount = mountlib.Foreground(source, '-o', 'commit=close,reserve=64K,' + options)
                with mount as (at, _):
                    write(at, 'general.name', 'makes the reserve')
                    with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd:
                        through, head = is_through(fd, source), os.pread(fd, 1 << 20, 0)
                        write(at, 'general.name', 'x' * 20)
                        in_place = 'inplace' in mount.log().splitlines()[-1]
                        self.assertEqual(os.pread(fd, 1 << 20, 0), head)
                        self.assertEqual(os.fstat(fd).st_size, os.stat(source).st_size)
                self.assertNotEqual(through, in_place)
                self.assertNotEqual((options, through), ('relayout=inplace', True))
                self.assertNotEqual((options, through), ('relayout=copy', False))

    def test_not_the_file(self):
        """Files that are not what is shown: a part is missing, another program has changed it, it is
        cut; several of them."""
        with mountlib.Mount(self.source) as at:
            os.utime(self.source, ns=(0, 1))
            self.assertFalse(self.through(at))
        with mountlib.Mount(self.source) as at:
            os.truncate(self.source, len(self.data) - 40)
            with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd, self.assertRaises(OSError):
                os.pread(fd, 100, len(self.data) - 100)
        with mountlib.Mount(self.source, '-o', 'partial') as at:
            with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd, self.assertRaises(OSError):
                os.pread(fd, 1, len(self.data) - 32)

    def test_replaced_behind(self):
        """The file that was opened is read, not the one that has its name now."""
        with mountlib.Mount(self.source) as at:
            os.rename(mountlib.put('other.gguf', gguf.encode(samples.ARCH, samples.small())), self.source)
            with opened(os.path.join(at, 'model.gguf'), os.O_RDONLY) as fd:
                self.check(fd, self.data)

    def test_locked_by_another(self):
        """Another process edits the file, perhaps in place."""
        with mountlib.Mount(self.source), mountlib.Mount(self.source) as at:
            self.assertFalse(self.through(at))

    def test_folder(self):
        os.mkdir(mountlib.path('models'))
        for name in ('a', 'b'):
            os.link(self.source, mountlib.path('models', name + '.gguf'))
        with mountlib.Mount(mountlib.path('models'), '-o', 'ro') as at:
            a, b = (self.whole(os.path.join(at, name + '.gguf')) for name in ('a', 'b'))
            for fd in (a, b):
                self.check(fd, self.data)
                self.assertTrue(is_through(fd, self.source))
                os.close(fd)


if __name__ == '__main__':
    if why_not():
        mountlib.skip(why_not())
    mountlib.main()
