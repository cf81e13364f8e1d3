#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Drafts of tensors that arrive in parts: refused after an earlier part was accepted, or with a
header that comes first."""
import errno
import os

import mountlib
import numpy as np
import tensorviews
from editlib import until
from tensorcase import f32


class Back(tensorviews.Values):
    def test_refused_in_the_end(self):
        """If a draft is refused, parts accepted before stay (a fork closes the file as well)."""
        for options in ('relayout=copy', 'relayout=inplace', 'relayout=inplace,commit=sync'):
            with self.subTest(options):
                self.setUp()
                self.mount('-o', options)
                fd = os.open(self.tensor('q.weight', 'f32'), os.O_RDWR)
                os.pwrite(fd, f32(100), 4 * 70)
                os.close(os.dup(fd))
                part = self.get('q.weight')
                os.pwrite(fd, f32(float('nan')), 4 * 130)
                self.raises(errno.EDOM, os.close, fd)
                self.assertIn('[2, 2]', self.error('q.weight'))
                self.assertEqual(self.get('q.weight'), part)
                self.assertNotEqual(part, self.want[self.at_place(b'q.weight')][3])
                self.set(b'q.weight', data=part)
                self.write('b.weight', 'raw', b'12345678')
                self.set(b'b.weight', data=b'12345678')
                self.end()
                self.check()

    def test_shape_refused_in_the_end(self):
        self.mount()
        whole = mountlib.path('whole.npy')
        np.save(whole, np.arange(128, dtype='<f4').reshape(2, 64))
        fd = os.open(self.tensor('f.weight', 'f32.npy'), os.O_RDWR)
        os.write(fd, mountlib.get(whole))
        os.fsync(fd)
        self.assertEqual(self.get('f.weight', 'shape'), b'2 64\n')
        os.ftruncate(fd, 200)
        os.pwrite(fd, f32(1), 196)
        self.raises(errno.EINVAL, os.fsync, fd)
        self.raises(errno.EINVAL, os.close, fd)
        self.assertEqual(self.get('f.weight', 'shape'), b'2 64\n')
        self.sync()
        self.set(b'f.weight', dims=(64, 2), data=mountlib.get(whole)[128:])
        self.check()

    def test_after_another_edit(self):
        """What another view changed since then stays."""
        self.mount()
        fd = os.open(self.tensor('q.weight', 'f32'), os.O_RDWR)
        os.pwrite(fd, f32(100), 4 * 70)
        os.fsync(fd)
        new = tensorviews.q8(4, 0.25)
        self.write('q.weight', 'raw', new)
        os.pwrite(fd, f32(100), 0)
        os.close(fd)
        now = self.get('q.weight')
        self.assertNotEqual(now[:34], new[:34])
        self.assertEqual(now[34:], new[34:])
        self.set(b'q.weight', data=now)
        self.end()
        self.check()


class Header(tensorviews.Values):
    def test_open_memmap(self):
        """open_memmap() writes only the header first, and reopens the file."""
        for shape in ((8, 8), (16, 4), (4, 64)):
            with self.subTest(shape):
                self.setUp()
                self.mount()
                values = np.arange(np.prod(shape), dtype='<f4').reshape(shape)
                array = np.lib.format.open_memmap(self.tensor('f.weight', 'f32.npy'), 'w+', '<f4', shape)
                array[:] = values
                array.flush()
                self.assertEqual(self.get('f.weight', 'shape'), f'{shape[0]} {shape[1]}\n'.encode())
                del array
                self.set(b'f.weight', dims=shape[::-1], data=values.tobytes())
                self.end()
                self.check()


if __name__ == '__main__':
    mountlib.main()
