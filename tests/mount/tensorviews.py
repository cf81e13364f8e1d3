#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Writing views of tensors (-o tensors=edit): bytes, values, shapes and types."""
import errno
import mmap
import os
import shutil
import signal
import struct
import unittest

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from editlib import Call, leftovers, until
from ggufmodel import Tensor
from mountlib import GGUFS, run
from tensorcase import EDIT, Case, f16, f32, kinds

Q8_0, F32, F16, I32, I64, F64 = 8, 0, 1, 26, 27, 28


def q8(rows, scale=0.5):
    """Return rows of 64 values 0.5 * (0 to 31) as Q8_0."""
    block = struct.pack('<e', scale) + bytes(range(32))
    return block * 2 * rows


class Values(Case):
    def setUp(self):
        super().setUp()
        self.put(gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'q.weight', Q8_0, (64, 4), q8(4)),
            Tensor(b'f.weight', F32, (8, 8), f32(*range(64)))]))

    def write(self, name, view, data, flags=os.O_TRUNC):
        fd = os.open(self.tensor(name, view), os.O_WRONLY | flags)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def get(self, name, view='raw'):
        return mountlib.get(self.tensor(name, view))


class Raw(Values):
    def test_every_layout(self):
        for name, data in kinds():
            with self.subTest(name):
                self.put(data)
                with mountlib.Mount(self.model, *EDIT) as at:
                    self.at = at
                    self.write('b.weight', 'raw', b'12345678')
                    self.set(b'b.weight', data=b'12345678')
                    self.assertEqual(self.get('b.weight'), b'12345678')
                    self.check(mountlib.get(os.path.join(at, 'model.gguf')))
                self.check()

    def test_strategies(self):
        for how in ('copy', 'inplace'):
            for commit in ('auto', 'close', 'sync'):
                with self.subTest(how=how, commit=commit):
                    self.mount('-o', f'relayout={how},commit={commit}')
                    for text in (b'first...', b'second..'):
                        self.write('b.weight', 'raw', text)
                        self.set(b'b.weight', data=text)
                        self.assertEqual(self.get('b.weight'), text)
                        if commit != 'sync':
                            self.check()
                    self.end()
                    self.check()
                    self.assertEqual(leftovers(mountlib.folder), [])

    def test_tools(self):
        self.mount()
        source = mountlib.put('source', b'SOURCE')
        a = self.tensor('a.weight', 'raw')
        for command in (['cp', source, a], ['cp', '-p', source, a], ['install', source, a],
                        ['dd', 'if=' + source, 'of=' + a, 'conv=notrunc,fsync', 'status=none'],
                        ['sh', '-c', 'cat "$1" > "$2"', 'sh', source, a]):
            with self.subTest(command[0]):
                self.write('a.weight', 'raw', b'before')
                done = run(*command)
                self.assertEqual((done.returncode, done.err), (0, ''))
                self.assertEqual(self.get('a.weight'), b'SOURCE')
        self.set(b'a.weight', data=b'SOURCE')
        self.check()

    def test_parts(self):
        """Bytes that are neither written nor truncated keep their content, and holes are zeros."""
        self.mount()
        old = self.want[4][3]
        fd = os.open(self.tensor('e.weight', 'raw'), os.O_RDWR)
        os.pwrite(fd, b'XY', 3)
        self.assertEqual(os.pread(fd, 100, 0), old[:3] + b'XY' + old[5:])
        os.close(fd)
        self.set(b'e.weight', data=old[:3] + b'XY' + old[5:])
        self.check()
        fd = os.open(self.tensor('e.weight', 'raw'), os.O_RDWR | os.O_TRUNC)
        os.pwrite(fd, b'Z', len(old) - 1)
        os.close(fd)
        self.set(b'e.weight', data=bytes(len(old) - 1) + b'Z')
        self.check()

    def test_append_and_sizes(self):
        self.mount()
        fd = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR | os.O_APPEND)
        self.raises(errno.EFBIG, os.write, fd, b'x')
        os.ftruncate(fd, 4)
        self.assertEqual(os.fstat(fd).st_size, 4)
        self.assertEqual(os.stat(self.tensor('a.weight', 'raw')).st_size, 4)
        os.posix_fallocate(fd, 0, 6)
        self.assertEqual(os.fstat(fd).st_size, 6)
        os.ftruncate(fd, 0)
        os.write(fd, b'abc')
        os.write(fd, b'def')
        os.close(fd)
        self.set(b'a.weight', data=b'abcdef')
        self.check()

    def test_too_short(self):
        """The close of a draft that is too short fails; more may follow through another handle;
        otherwise the draft is dropped, and named."""
        self.mount()
        first = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR | os.O_TRUNC)
        os.write(first, b'abc')
        self.raises(errno.EINVAL, os.fsync, first)
        second = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR)
        self.assertEqual(os.pread(second, 10, 0), b'abc')
        os.pwrite(second, b'def', 3)
        os.close(second)
        os.close(first)
        self.set(b'a.weight', data=b'abcdef')
        self.check()
        fd = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR | os.O_TRUNC)
        os.write(fd, b'abc')
        self.raises(errno.EINVAL, os.close, fd)
        until(lambda: self.error('a.weight'))
        self.assertIn('3 of 6', self.error('a.weight'))
        until(lambda: self.get('a.weight') == b'abcdef')
        self.not_saved('tensors/a.weight')

    def test_truncating_is_no_edit(self):
        self.mount()
        os.close(os.open(self.tensor('a.weight', 'raw'), os.O_WRONLY | os.O_TRUNC))
        os.truncate(self.tensor('a.weight', 'raw'), 0)
        until(lambda: self.get('a.weight') == self.want[0][3])  # once it is released
        self.assertIsNone(self.error('a.weight'))
        self.end()
        self.check()

    def test_two_views(self):
        """Only one view is written at a time; its readers see the writes at once, and readers of
        other views see them when they are accepted."""
        self.mount()
        raw = os.open(self.tensor('f.weight', 'raw'), os.O_RDWR)
        reader = os.open(self.tensor('f.weight', 'raw'), os.O_RDONLY)
        os.pwrite(raw, f32(-1), 0)
        self.raises(errno.EBUSY, os.open, self.tensor('f.weight', 'f32'), os.O_RDWR)
        self.assertEqual(os.pread(reader, 4, 0), f32(-1))
        self.assertEqual(self.get('f.weight')[:4], f32(-1))
        self.assertEqual(self.get('f.weight', 'f32')[:4], f32(0))
        os.close(raw)
        self.assertEqual(self.get('f.weight')[:4], f32(-1))
        self.assertEqual(self.get('f.weight', 'f32')[:4], f32(-1))
        self.assertIn(os.pread(reader, 4, 0), (f32(0), f32(-1)))
        os.close(reader)
        os.close(os.open(self.tensor('f.weight', 'f32'), os.O_RDWR))

    def test_one_view_is_shared(self):
        """Programs with a view open read writes to it, even if the kernel has dropped its pages, so
        the neighbours of a value stored through a mapping are the written ones."""
        self.put(gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'm.weight', F32, (64, 256), f32(*range(64 * 256)))]))
        self.mount()
        place, size = self.tensor('m.weight', 'f32'), 4 * 64 * 256
        reader, writer = os.open(place, os.O_RDONLY), os.open(place, os.O_RDWR)
        self.assertEqual(os.pread(reader, 8, 4096), f32(1024, 1025))
        os.pwrite(writer, f32(-1), 4096)
        os.posix_fadvise(reader, 0, 0, os.POSIX_FADV_DONTNEED)
        self.assertEqual(os.pread(reader, 8, 4096), f32(-1, 1025))
        with mmap.mmap(writer, size) as mapped:
            mapped[4100:4104] = f32(-2)
            self.assertEqual(os.pread(reader, 12, 4096), f32(-1, -2, 1026))
            other = os.open(place, os.O_RDWR)
            os.pwrite(other, f32(-3), 4104)
            self.assertEqual(mapped[4096:4108], f32(-1, -2, -3))
            os.close(other)
            self.assertEqual(self.get('m.weight')[4096:4108], f32(-1, -2, -3))
        for fd in (reader, writer):
            os.close(fd)
        self.set(b'm.weight', data=self.get('m.weight'))
        self.check()

    def test_refused_in_the_end(self):
        """A program that opens or maps the view afterwards sees the model's content, whatever pages
        the kernel has cached."""
        self.mount()
        for view, junk in (('f32', f32(1, float('nan'))), ('f32.npy', b'x'), ('raw', b'too short')):
            place, before = self.tensor('q.weight', view), self.get('q.weight', view)
            keeps = os.open(place, os.O_RDONLY)
            self.assertEqual(os.read(keeps, len(before)), before)
            fd = os.open(place, os.O_RDWR | (os.O_TRUNC if view == 'raw' else 0))
            with self.assertRaises(OSError):
                os.pwrite(fd, junk, 0)
                self.assertEqual(self.get('q.weight', view)[:len(junk)], junk)
                os.fsync(fd)
            os.close(keeps)
            try:
                os.close(fd)
            except OSError:
                pass
            until(lambda: os.stat(place).st_size == len(before) and self.get('q.weight', view) == before)
            fd = os.open(place, os.O_RDONLY)
            with mmap.mmap(fd, len(before), prot=mmap.PROT_READ) as mapped:
                self.assertEqual(mapped[:], before)
            os.close(fd)
        self.write('q.weight', 'raw', q8(4, 0.25))
        self.assertEqual(self.get('q.weight', 'f32')[4:8], f32(0.25))

    def test_by_descriptor(self):
        """/proc/self/fd opens the same file again."""
        self.mount()
        reader = os.open(self.tensor('a.weight', 'raw'), os.O_RDONLY)
        fd = os.open(f'/proc/self/fd/{reader}', os.O_RDWR)
        os.pwrite(fd, b'ABCDEF', 0)
        self.assertEqual(os.pread(fd, 10, 0), b'ABCDEF')
        again = os.open(f'/proc/self/fd/{fd}', os.O_RDONLY)
        os.close(again)
        os.close(fd)
        os.close(reader)
        self.set(b'a.weight', data=b'ABCDEF')
        self.assertEqual(self.get('a.weight'), b'ABCDEF')
        self.check()

    def test_left_aside(self):
        """Writes to computed files succeed, and are ignored."""
        self.mount('-o', 'views=all')
        for name in ('offset', 'stats', 'sha256'):
            place = self.tensor('a.weight', name)
            if os.path.exists(place):
                before = mountlib.get(place)
                self.write('a.weight', name, b'anything')
                os.truncate(place, 3)
                self.assertEqual(mountlib.get(place), before)
        self.end()
        self.check()

    def test_removed_while_it_is_written(self):
        self.mount()
        fd = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR)
        shutil.rmtree(self.tensor('a.weight'))
        os.pwrite(fd, b'abcdef', 0)
        try:
            os.close(fd)
        except OSError:
            pass
        self.end()
        self.drop(b'a.weight')
        self.check()


class Floats(Values):
    def test_written_back(self):
        """Writing values back unchanged changes no byte, through any view."""
        self.mount('-o', 'views=all')
        before = mountlib.get(self.model)
        for tensor in ('a.weight', 'q.weight', 'f.weight'):
            for view in ('raw', 'f32', 'f32.npy'):
                self.write(tensor, view, self.get(tensor, view))
        self.write('q.weight', 'f16', self.get('q.weight', 'f16'))
        self.write('a.weight', 'f16.npy', self.get('a.weight', 'f16.npy'))
        self.end()
        self.assertEqual(mountlib.get(self.model), before)

    def test_one_value(self):
        """Only the block that contains the value changes."""
        self.mount()
        fd = os.open(self.tensor('q.weight', 'f32'), os.O_RDWR)
        os.pwrite(fd, f32(100), 4 * 70)
        os.close(fd)
        new = self.get('q.weight')
        old = q8(4)
        self.assertEqual(new[:68], old[:68])
        self.assertEqual(new[102:], old[102:])
        self.assertNotEqual(new[68:102], old[68:102])
        values = np.fromfile(self.tensor('q.weight', 'f32'), '<f4')
        self.assertAlmostEqual(values[70], 100, delta=0.1)
        self.set(b'q.weight', data=new)
        self.check()

    def test_memmap(self):
        self.mount()
        place = self.tensor('f.weight', 'f32')
        found = np.memmap(place, '<f4', mode='r+')
        found[3] = 7.5
        found.flush()
        self.assertEqual(np.fromfile(place, '<f4')[3], 7.5)
        want = np.arange(64, dtype='<f4')
        want[3] = 7.5
        self.set(b'f.weight', data=want.tobytes())
        self.check()
        found[4] = 8.5  # without a flush
        del found
        want[4] = 8.5
        until(lambda: np.fromfile(place, '<f4')[4] == 8.5)
        self.set(b'f.weight', data=want.tobytes())
        self.end()
        self.check()

    def test_save(self):
        """numpy.save() replaces the values and the shape."""
        self.mount()
        want = np.arange(128, dtype='<f4').reshape(2, 64)
        np.save(self.tensor('f.weight', 'f32.npy'), want)
        self.assertEqual(self.get('f.weight', 'shape'), b'2 64\n')
        self.set(b'f.weight', dims=(64, 2), data=want.tobytes())
        self.check()
        np.save(self.tensor('a.weight', 'f16.npy'), np.float16([1, 2, 3, 4]))
        self.set(b'a.weight', dims=(4,), data=f16(1, 2, 3, 4))
        self.check()
        np.save(self.tensor('a.weight', 'f32.npy'), np.float64([0.5, 2, -3]))
        self.set(b'a.weight', dims=(3,), data=f16(0.5, 2, -3))
        self.check()
        for dtype in ('<f4', '<f8', '<f2'):
            want = np.arange(-60, 60, dtype=dtype).reshape(2, 3, 20)
            np.save(self.tensor('f.weight', 'f32.npy'), np.asfortranarray(want))
            self.set(b'f.weight', dims=(20, 3, 2), data=want.astype('<f4').tobytes())
            self.check()
        self.raises(errno.EINVAL, np.save, self.tensor('a.weight', 'f32.npy'), np.int64([1, 2, 3]))
        self.assertIn("a.astype('f4')", self.error('a.weight'))
        self.raises(errno.ERANGE, np.save, self.tensor('f.weight', 'f32.npy'), np.float64([1e300]))
        self.end()
        self.check()

    def test_refused_values(self):
        self.mount()
        fd = os.open(self.tensor('q.weight', 'f32'), os.O_RDWR)
        os.pwrite(fd, f32(float('nan')), 4 * 70)
        self.raises(errno.EDOM, os.fsync, fd)
        self.raises(errno.EDOM, os.fsync, fd)
        self.assertIn('[1, 6]', self.error('q.weight'))
        os.pwrite(fd, f32(0), 4 * 70)
        os.fsync(fd)
        os.close(fd)
        self.assertIsNone(self.error('q.weight'))

    def test_open_files(self):
        """Views of the model keep the content that was opened. A view of a tensor that is replaced
        under a program shows old or new bytes, and a program that opens it later sees the new
        ones."""
        for how in ('copy', 'inplace'):
            with self.subTest(how):
                self.setUp()
                self.mount('-o', 'relayout=' + how)
                kept, texts = [], (b'one.....', b'two.....', b'three...')
                for text in texts:
                    for name in ('tensors/b.weight/raw', 'model.gguf', 'tensors/c.weight/raw'):
                        fd = os.open(os.path.join(self.at, name), os.O_RDONLY)
                        size = os.fstat(fd).st_size
                        kept.append((fd, mountlib.get(os.path.join(self.at, name)),
                                     mmap.mmap(fd, size, prot=mmap.PROT_READ)))
                    self.write('b.weight', 'raw', text)
                    self.write('c.weight', 'raw', (text + b'  ')[:10])
                    self.assertEqual(self.get('b.weight'), text)
                    self.set(b'b.weight', data=text)
                    self.set(b'c.weight', data=(text + b'  ')[:10])
                    self.check()
                for fd, data, mapped in kept:
                    may = {data} if len(data) > 10 else {data} | {
                        (text + b'  ')[:len(data)] for text in texts}
                    self.assertIn(os.pread(fd, len(data) + 1, 0), may)
                    self.assertIn(mapped[:], may)
                    mapped.close()
                    os.close(fd)
                self.end()
                self.check()


class Text(Values):
    def test_type(self):
        self.mount()
        with open(self.tensor('q.weight', 'type'), 'w', encoding='ascii') as out:
            out.write('F16\n')
        half = [0.5 * (i % 32) for i in range(256)]
        self.set(b'q.weight', type_id=F16, data=f16(*half))
        self.assertEqual(self.get('q.weight', 'type'), b'F16\n')
        self.assertEqual(self.get('q.weight'), f16(*half))
        self.check()
        run('sh', '-c', 'printf q8_0 > "$1"', 'sh', self.tensor('q.weight', 'type'))
        self.set(b'q.weight', type_id=Q8_0, data=self.get('q.weight'))
        self.assertEqual(self.get('q.weight', 'type'), b'Q8_0\n')
        self.check()

    def test_type_exact(self):
        """A change of type does not go through float32."""
        self.put(gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'i.weight', I32, (2,), struct.pack('<2i', 16777217, -1)),
            Tensor(b'x.weight', F64, (1,), struct.pack('<d', 1e300))]))
        self.mount()
        self.write('i.weight', 'type', b'I64\n')
        self.set(b'i.weight', type_id=I64, data=struct.pack('<2q', 16777217, -1))
        self.raises(errno.ERANGE, self.write, 'x.weight', 'type', b'F32\n')
        self.assertIn('element [0] is 1e+300', self.error('x.weight'))
        self.check()

    def test_shape(self):
        self.mount()
        for text, dims in ((b'64\n', (64,)), (b'2 2 16\n', (16, 2, 2)), (b'8 8\n', (8, 8))):
            self.write('f.weight', 'shape', text)
            self.set(b'f.weight', dims=dims)
            self.assertEqual(self.get('f.weight', 'shape'), text)
            self.check()

    def test_refused(self):
        """The write is refused, because shells ignore the result of close; the old value stays."""
        self.mount()
        for view, text, code in (
                ('shape', '3 3\n', errno.EINVAL), ('shape', '0 64\n', errno.EINVAL),
                ('shape', 'x\n', errno.EINVAL), ('type', 'nonsense\n', errno.EINVAL),
                ('type', 'unknown:99\n', errno.EOPNOTSUPP), ('type', 'IQ1_S\n', errno.EOPNOTSUPP),
                ('type', 'Q8_0\n', errno.EINVAL)):
            with self.subTest(text):
                fd = os.open(self.tensor('f.weight', view), os.O_WRONLY | os.O_TRUNC)
                self.raises(code, os.write, fd, text.encode())
                self.raises(code, os.fsync, fd)
                self.raises(code, os.close, fd)
                self.assertIsNotNone(self.error('f.weight'))
        self.assertEqual(run('sh', '-c', 'echo 3 3 > "$1"', 'sh',
                             self.tensor('f.weight', 'shape')).returncode, 1)
        self.write('f.weight', 'shape', b'64\n')
        self.assertIsNone(self.error('f.weight'))
        self.set(b'f.weight', dims=(64,))
        self.end()
        self.check()


class Gathered(Values):
    options = ('-o', 'commit=sync')

    def test_shown_and_written_once(self):
        """Edits of a tensor and of its name follow each other, and cause one rewrite."""
        before = mountlib.get(self.model)
        self.mount()
        self.write('b.weight', 'raw', b'12345678')
        os.rename(self.tensor('b.weight'), self.tensor('new'))
        self.write('new', 'shape', b'2 2\n')
        fd = os.open(self.tensor('new', 'raw'), os.O_RDWR)
        os.pwrite(fd, b'xx', 2)
        os.close(fd)
        self.set(b'b.weight', new=b'new', dims=(2, 2), data=b'12xx5678')
        shutil.rmtree(self.tensor('a.weight'))
        self.assertEqual(self.get('new'), b'12xx5678')
        self.assertEqual(mountlib.get(self.model), before)
        self.sync()
        self.drop(b'a.weight')
        self.check()
        self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
        self.end()
        self.check()


class Times(Values):
    def test_mtime(self):
        """The times of the directory and its files change with the tensor."""
        self.mount()
        folder, other = self.tensor('a.weight'), self.tensor('b.weight')
        before = os.stat(folder).st_mtime_ns, os.stat(other).st_mtime_ns
        self.write('a.weight', 'raw', b'abcdef')
        self.assertGreater(os.stat(self.tensor('a.weight', 'f32')).st_mtime_ns, before[0])
        until(lambda: os.stat(folder).st_mtime_ns > before[0])
        self.assertEqual(os.stat(other).st_mtime_ns, before[1])


class Ends(Values):
    def test_signal(self):
        """A draft that was not closed is dropped, and the log names it."""
        self.mount()
        fd = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR)
        os.pwrite(fd, b'abcdef', 0)
        self.write('b.weight', 'raw', b'12345678')
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(mountlib.LIMIT)
        self.assertIn('a.weight: refused: the file was written but never closed', self.foreground.log())
        try:
            os.close(fd)
        except OSError:
            pass
        self.foreground.err.close()
        self.foreground = None
        self.set(b'b.weight', data=b'12345678')
        self.check()
        self.assertEqual(leftovers(mountlib.folder), [])

    def test_kill(self):
        """After a kill, no file is left beside the model."""
        self.mount()
        fd = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR)
        os.pwrite(fd, b'abcdef', 0)
        self.process.kill()
        self.process.wait(mountlib.LIMIT)
        try:
            os.close(fd)
        except OSError:
            pass
        self.foreground.err.close()
        self.foreground = None
        mountlib.unmount(self.at, lazy=True)
        self.check()
        self.assertEqual(leftovers(mountlib.folder), [])

    def test_changed_behind_the_mount(self):
        self.mount()
        with open(self.model, 'r+b') as file:
            file.seek(0, 2)
            file.write(b'behind')
        with self.assertRaises(OSError) as caught:
            self.write('a.weight', 'raw', b'abcdef')
        self.assertIn(caught.exception.errno, (errno.ESTALE, errno.EIO))

    def test_second_mount(self):
        self.mount()
        with mountlib.Mount(self.model, *EDIT) as other:
            place = os.path.join(other, 'tensors', 'a.weight', 'raw')
            self.raises(errno.EROFS, os.open, place, os.O_WRONLY)
        self.write('a.weight', 'raw', b'abcdef')
        self.set(b'a.weight', data=b'abcdef')
        self.check()

    def test_in_a_folder(self):
        """Tensors can also be edited in a mount of a directory of models."""
        folder = mountlib.path('models')
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        shutil.copy(self.model, folder)
        self.model = os.path.join(folder, 'model.gguf')
        with mountlib.Mount(folder, *EDIT) as at:
            self.at = os.path.join(at, 'model.gguf')
            self.write('a.weight', 'raw', b'abcdef')
            os.rename(self.tensor('b.weight'), self.tensor('x'))
            self.assertEqual(self.get('a.weight'), b'abcdef')
        self.set(b'a.weight', data=b'abcdef')
        self.set(b'b.weight', new=b'x')
        self.check()


class Many(Values):
    def test_at_the_same_time(self):
        """Several threads each write their own tensor."""
        self.mount('-o', 'commit=sync')

        def work(name, n):
            for i in range(20):
                self.write(name, 'raw', bytes([i]) * n)

        calls = [Call(work, name, n) for name, n in (('a.weight', 6), ('b.weight', 8),
                                                     ('c.weight', 10), ('d.weight', 12))]
        self.assertEqual([call.wait() for call in calls], [None] * 4)
        for name, n in ((b'a.weight', 6), (b'b.weight', 8), (b'c.weight', 10), (b'd.weight', 12)):
            self.set(name, data=bytes([19]) * n)
        self.end()
        self.check()


if __name__ == '__main__':
    mountlib.main()
