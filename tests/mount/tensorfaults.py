#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Faults around edited tensors (-o tensors=edit): programs that interfere with each other, and
edits that fail beside others."""
import errno
import mmap
import os
import shutil
import threading

import mountlib
from editlib import leftovers, write
from mountlib import run
from tensorcase import Case


def at_once(work, count):
    """Run work(n) in that many threads, all started together. Returns the exceptions that they
    raised."""
    raised, begin = [], threading.Barrier(count)

    def one(n):
        begin.wait()
        try:
            work(n)
        except OSError as e:
            raised.append(e)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(mountlib.LIMIT)
        assert not thread.is_alive(), 'it hangs'
    return raised


class Together(Case):
    options = ('-o', 'commit=sync')

    def test_one_view(self):
        """Each open succeeds, even if others open or release the view at that moment."""
        self.mount()

        def work(n):
            for i in range(50):
                fd = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
                try:
                    os.pwrite(fd, bytes([65 + (i + n) % 26]) * 8, 0)
                finally:
                    os.close(fd)

        self.assertEqual(at_once(work, 8), [])
        data = mountlib.get(self.tensor('b.weight', 'raw'))
        self.assertEqual(len(data), 8)
        self.set(b'b.weight', data=data)
        self.end()
        self.check()

    def test_crowd(self):
        """Many programs open views at the same moment."""
        self.mount()

        def work(_):
            for name in 'abcde':
                os.close(os.open(self.tensor(name + '.weight', 'raw'), os.O_RDWR))

        self.assertEqual(at_once(work, 150), [])
        self.end()
        self.check()

    def test_texts(self):
        """One program writes a text while others close it."""
        self.mount()

        def work(n):
            for _ in range(30):
                fd = os.open(self.tensor('b.weight', 'shape'), os.O_WRONLY)
                try:
                    os.pwrite(fd, b' ' * (n * 8) + b'4 1\n', 0)
                    os.fsync(fd)
                except OSError as e:
                    self.assertIn(e.errno, (errno.EINVAL, errno.ESTALE))
                try:
                    os.close(fd)
                except OSError as e:
                    self.assertIn(e.errno, (errno.EINVAL, errno.ESTALE))

        self.assertEqual(at_once(work, 8), [])
        self.end()

    def test_outdated(self):
        """A program that opened a view earlier does not prevent others from writing it, and writes
        on to the tensor as it is."""
        self.mount()
        first = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
        with open(self.tensor('b.weight', 'f32'), 'r+b') as out:
            out.write(bytes(4))
        second = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
        os.pwrite(second, b'12345678', 0)
        os.close(second)
        os.pwrite(first, b'xx', 2)
        os.close(first)
        self.assertEqual(mountlib.get(self.tensor('b.weight', 'raw')), b'12xx5678')
        self.set(b'b.weight', data=b'12xx5678')
        self.end()
        self.check()


class Beside(Case):
    def test_another_edit_fails(self):
        """An edit of a key that fails does not affect writes to a tensor."""
        self.mount('-o', 'relayout=inplace,reserve=0,commit=close')
        fd = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
        os.pwrite(fd, b'12345678', 0)
        self.raises(errno.EOPNOTSUPP, write, self.at, 'general.name', 'x' * 5000)
        os.close(fd)
        self.set(b'b.weight', data=b'12345678')
        self.check()
        self.end()
        self.check()

    def test_removed(self):
        """A program that has a view of a removed tensor open keeps its content."""
        self.mount()
        writer = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
        reader = os.open(self.tensor('b.weight', 'raw'), os.O_RDONLY)
        old = self.want[1][3]
        shutil.rmtree(self.tensor('b.weight'))
        self.sync()
        for fd in (writer, reader):
            self.assertEqual(os.fstat(fd).st_size, 8)
            self.assertEqual(os.pread(fd, 10, 0), old)
        self.assertEqual(os.listxattr(writer), [])
        self.assertEqual(os.fstat(writer).st_nlink, 0)
        self.drop(b'b.weight')
        os.close(writer)
        os.close(reader)
        self.end()
        self.check()
        self.assertEqual(leftovers(mountlib.folder), [])


class Zeros(Case):
    def test_sparse(self):
        """cp(1) omits the zeros of a sparse file, and only makes the file longer."""
        zeros = mountlib.path('zeros')
        with open(zeros, 'wb') as out:
            out.truncate(8)
        self.mount()
        for how in ('always', 'auto'):
            with open(self.tensor('b.weight', 'raw'), 'wb') as out:
                out.write(b'12345678')
            done = run('cp', '--sparse=' + how, zeros, self.tensor('b.weight', 'raw'))
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.assertEqual(mountlib.get(self.tensor('b.weight', 'raw')), bytes(8))
        self.set(b'b.weight', data=bytes(8))
        self.end()
        self.check()


class Reported(Case):
    def test_once(self):
        """A write that is refused again and again is logged once."""
        self.mount()
        fd = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR | os.O_APPEND)
        for _ in range(20):
            self.raises(errno.EFBIG, os.write, fd, b'x')
        self.raises(errno.EFBIG, os.fsync, fd)
        self.raises(errno.EFBIG, os.close, fd)
        self.assertLess(self.foreground.log().count('refused'), 5)
        self.assertIn('at most', self.error('b.weight'))
        self.end()
        self.check()

    def test_cut(self):
        """If the model was truncated meanwhile, its remaining bytes are not changed."""
        cut = mountlib.get(self.model)[:-20]
        self.mount()
        fd = os.open(self.tensor('e.weight', 'raw'), os.O_RDWR)
        with open(self.model, 'r+b') as file:
            file.truncate(len(cut))
        with self.assertRaises(OSError):
            os.pwrite(fd, b'x', 1)
            os.fsync(fd)
        with self.assertRaises(OSError):
            os.close(fd)
            os.rename(self.tensor('a.weight'), self.tensor('x'))
        self.foreground.process.kill()
        self.foreground.process.wait(mountlib.LIMIT)
        mountlib.unmount(self.at, lazy=True)
        self.foreground.err.close()
        self.foreground = None
        self.assertEqual(mountlib.get(self.model), cut)
        self.assertEqual(leftovers(mountlib.folder), [])


class Unmounted(Case):
    def test_lazily(self):
        """Bytes stored through a mapping, whose handle is already closed, are judged at the end."""
        self.mount()
        fd = os.open(self.tensor('b.weight', 'raw'), os.O_RDWR)
        mapped = mmap.mmap(fd, 8)
        os.close(fd)
        mapped[:] = b'ABCDEFGH'
        mountlib.unmount(self.at, lazy=True)
        mapped.close()
        self.end()
        self.set(b'b.weight', data=b'ABCDEFGH')
        self.check()


if __name__ == '__main__':
    mountlib.main()
