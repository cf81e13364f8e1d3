# SPDX-License-Identifier: MIT
"""Editing tensors (-o tensors=edit) as programs do it: names, attributes, tools that copy, mappings
and the kernel's caches. What each operation does to the file: verbs.py."""
import errno
import io
import mmap
import os
import shutil
import stat
import time

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from editlib import opened, until
from ggufmodel import Tensor
from mountlib import fails, run, works
from tensorcase import Case, f16, f32, q8

Q8_0, F32 = 8, 0


class Views(Case):
    def setUp(self):
        super().setUp()
        self.put(gguf.encode(samples.keys(), samples.small() + [
            Tensor(b'q.weight', Q8_0, (64, 4), q8(4)), Tensor(b'f.weight', F32, (8, 8), f32(*range(64)))]))

    def write(self, name, view, data):
        with opened(self.tensor(name, view), os.O_WRONLY | os.O_TRUNC) as fd:
            os.write(fd, data)

    def get(self, name, view='raw'):
        return mountlib.get(self.tensor(name, view))


class Rights(Views):
    def test_without_the_option(self):
        with mountlib.Mount(self.model) as at:
            folder = os.path.join(at, 'tensors', 'a.weight')
            self.assertFalse(os.stat(folder).st_mode & 0o222)
            self.assertFalse(os.stat(folder + '/raw').st_mode & 0o222)
            for call in (os.rmdir, lambda name: os.rename(name, name + '2')):
                # For most users the kernel, which sees no write bits, refuses the call itself.
                fails(errno.EACCES if os.geteuid() else errno.EROFS, call, folder)
            self.assertIn(b'-o tensors=edit', os.getxattr(at + '/tensors', 'user.gguf.readonly'))
        self.check()

    def test_bits(self):
        """rm -r does not prompt, because everything has the write bits of the model."""
        os.chmod(self.model, 0o664)
        self.mount('-o', 'views=all')
        for place in ('', 'a.weight'):
            self.assertEqual(os.stat(self.tensor(place)).st_mode & 0o777, 0o775)
        for name in os.listdir(self.tensor('a.weight')):
            self.assertEqual(os.stat(self.tensor('a.weight', name)).st_mode & 0o777, 0o664, name)

    def test_without_effect(self):
        """Attributes that cp -a and rsync -X set have no effect."""
        self.mount()
        for place in (self.tensor('a.weight'), self.tensor('a.weight', 'raw'), self.tensor()):
            os.chmod(place, 0)
            os.utime(place, (1, 1))
            os.setxattr(place, 'user.gguf.type', b'Q8_0')
            os.removexattr(place, 'user.gguf.shape')
            fails(errno.EOPNOTSUPP, os.setxattr, place, 'user.other', b'')
            self.assertTrue(os.stat(place).st_mode & stat.S_IWUSR)
            self.assertNotEqual(os.stat(place).st_mtime, 1)
        self.end()
        self.check()


class Names(Views):
    def test_everything_follows(self):
        """A working directory, open files, st_ino and the node of the directory follow the tensor; times
        change with it only."""
        self.mount()
        folder, raw, moved = self.tensor('c.weight'), self.tensor('c.weight', 'raw'), self.tensor('moved')
        ino = os.stat(folder).st_ino, os.stat(raw).st_ino
        time, other = os.stat(folder).st_mtime_ns, os.stat(self.tensor('d.weight')).st_mtime_ns
        inside, file = os.open(folder, os.O_RDONLY), os.open(raw, os.O_RDONLY)
        os.rename(folder, moved)
        os.rename(self.tensor('b.weight'), folder)
        self.assertEqual(os.readlink(f'/proc/self/fd/{inside}'), moved)
        self.assertEqual((os.stat(moved).st_ino, os.stat(moved + '/raw').st_ino), ino)
        self.assertGreater(os.stat(moved).st_mtime_ns, time)
        self.assertEqual(os.stat(self.tensor('d.weight')).st_mtime_ns, other)
        data = self.want.tensors[2][3]
        self.assertEqual(os.pread(file, 100, 0), data)
        with open(os.open('raw', os.O_RDONLY, dir_fd=inside), 'rb') as found:
            self.assertEqual(found.read(), data)
        os.close(inside)
        os.close(file)
        self.set(b'c.weight', new=b'moved')
        self.set(b'b.weight', new=b'c.weight')
        self.end()
        self.check()

    def test_removed(self):
        """rm -r and find -delete; open files can still be read, and the model that was opened before."""
        self.mount()
        raw = os.open(self.tensor('a.weight', 'raw'), os.O_RDWR)
        whole = os.open(os.path.join(self.at, 'model.gguf'), os.O_RDONLY)
        before, bytes_of_a = mountlib.get(self.model), self.want.tensors[0][3]
        self.assertEqual(run('rm', '-r', self.tensor('a.weight'), self.tensor('c.weight')).err, '')
        self.assertEqual(run('find', self.tensor('d.weight'), '-delete').err, '')
        self.sync()
        for name in (b'a.weight', b'c.weight', b'd.weight'):
            self.drop(name)
        self.check()
        self.assertEqual(os.pread(raw, 100, 0), bytes_of_a)
        self.assertEqual((os.fstat(raw).st_size, os.listxattr(raw)), (len(bytes_of_a), []))
        self.assertEqual(os.pread(whole, len(before) + 1, 0), before)
        os.close(raw)
        os.close(whole)

    def test_the_folder_stays(self):
        """The directory is the same before and after it becomes a tensor."""
        self.mount()
        os.mkdir(self.tensor('new'))
        inside = os.open(self.tensor('new'), os.O_RDONLY)
        ino = os.fstat(inside).st_ino
        for view, data in (('type', b'F32\n'), ('shape', b'1\n'), ('raw', f32(1))):
            mountlib.put(self.tensor('new', view), data)
        self.sync()
        self.assertEqual(os.stat(self.tensor('new')).st_ino, ino)
        with open(os.open('f32', os.O_RDONLY, dir_fd=inside), 'rb') as found:
            self.assertEqual(found.read(), f32(1))
        os.close(inside)


class Tools(Views):
    def test_bytes(self):
        """Tools that write bytes; cp makes a sparse file only longer."""
        self.mount()
        source, a = mountlib.put('source', b'SOURCE'), self.tensor('a.weight', 'raw')
        zeros = mountlib.path('zeros')
        with open(zeros, 'wb') as out:
            out.truncate(6)
        for command in (['cp', source, a], ['cp', '-p', source, a], ['install', source, a],
                        ['dd', 'if=' + source, 'of=' + a, 'conv=notrunc,fsync', 'status=none'],
                        ['sh', '-c', 'cat "$1" > "$2"', 'sh', source, a], ['cp', '--sparse=always', zeros, a]):
            with self.subTest(command):
                self.write('a.weight', 'raw', b'before')
                works(*command)
                self.assertEqual(self.get('a.weight'), bytes(6) if zeros in command else b'SOURCE')
        self.set(b'a.weight', data=bytes(6))
        self.check()

    def test_folders(self):
        """Tools that copy a tensor's folder make a tensor of the same bytes."""
        source = mountlib.Mount(mountlib.put('other.gguf', mountlib.get(self.model)), '-o', 'ro')
        other = os.path.join(source.__enter__(), 'tensors')
        self.addCleanup(source.__exit__, None, None, None)
        backup = mountlib.path('backup')
        shutil.copytree(other + '/q.weight', backup)
        self.addCleanup(run, 'sh', '-c', 'chmod -R u+w "$1"; rm -r "$1"', 'sh', backup)
        self.mount()
        tar = 'tar -C "$1" -cf - q.weight | tar -C "$2" --transform s/q.weight/tarred/ -xf -'
        commands = [('plain', ['cp', '-r', other + '/q.weight', self.tensor('plain')]),
                    ('all', ['cp', '-a', other + '/q.weight', self.tensor('all')]),
                    ('tarred', ['sh', '-c', tar, 'sh', other, self.tensor()]),
                    ('backup', ['cp', '-a', backup, self.tensor()])]
        if shutil.which('rsync'):
            commands.append(('synced', ['rsync', '-a', '-X', '--inplace', backup + '/', self.tensor('synced')]))
        for name, command in commands:
            works(*command)
            self.want.tensors.append((name.encode(), Q8_0, (64, 4), q8(4)))
            self.sync()
        self.check()


class NumPy(Views):
    def test_memmap(self):
        """flush() makes values durable; what was stored without it is accepted at the end of the mapping."""
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
        found[4] = 8.5
        del found
        want[4] = 8.5
        until(lambda: np.fromfile(place, '<f4')[4] == 8.5)
        self.set(b'f.weight', data=want.tobytes())
        self.end()
        self.check()

    def test_save(self):
        self.mount()
        np.save(self.tensor('a.weight', 'f16.npy'), np.float16([1, 2, 3, 4]))
        self.set(b'a.weight', dims=(4,), data=f16(1, 2, 3, 4))
        self.check()
        np.save(self.tensor('a.weight', 'f32.npy'), np.float64([0.5, 2, -3]))
        self.set(b'a.weight', dims=(3,), data=f16(0.5, 2, -3))
        self.check()
        for dtype in ('<f4', '<f8', '<f2'):
            want = np.arange(-60, 60, dtype=dtype).reshape(2, 3, 20)
            np.save(self.tensor('f.weight', 'f32.npy'), np.asfortranarray(want))
            self.assertEqual(self.get('f.weight', 'shape'), b'2 3 20\n')
            self.set(b'f.weight', dims=(20, 3, 2), data=want.astype('<f4').tobytes())
            self.check()
        # Longer than what is encoded at a time, in one piece, and with a flush in between.
        want = np.arange(2 * 3 * 40000, dtype='<f4').reshape(2, 3, 40000)
        for order, first in ('F', 960128), ('F', 300000), ('C', 960128), ('C', 300000):
            want[0, 0, 0] += 1
            whole = io.BytesIO()
            np.save(whole, np.asarray(want, order=order))
            with open(self.tensor('f.weight', 'f32.npy'), 'wb', buffering=0) as f:
                f.write(whole.getvalue()[:first])
                if first == 300000:
                    fails(errno.EINVAL, os.close, os.dup(f.fileno()))
                    f.write(whole.getvalue()[first:])
            self.set(b'f.weight', dims=(40000, 3, 2), data=want.tobytes())
            self.check()
        fails(errno.EINVAL, np.save, self.tensor('a.weight', 'f32.npy'), np.int64([1, 2, 3]))
        fails(errno.ERANGE, np.save, self.tensor('f.weight', 'f32.npy'), np.float64([1e300]))
        self.end()
        self.check()

    def test_open_memmap(self):
        """open_memmap() writes only the header first, and reopens the file."""
        self.mount()
        for shape in ((8, 8), (16, 4), (4, 64)):
            values = np.arange(np.prod(shape), dtype='<f4').reshape(shape)
            array = np.lib.format.open_memmap(self.tensor('f.weight', 'f32.npy'), 'w+', '<f4', shape)
            array[:] = values
            array.flush()
            self.assertEqual(self.get('f.weight', 'shape'), f'{shape[0]} {shape[1]}\n'.encode())
            del array
            self.set(b'f.weight', dims=shape[::-1], data=values.tobytes())
            self.sync()
            self.check()
        # Arrays whose values lie elsewhere than in the view, of several pages; the default is '<f8'.
        for dtype, fortran in ((None, False), ('<f2', False), ('<f4', True)):
            values = np.arange(64 * 300, dtype='<f4').reshape(300, 64) % 1000
            array = np.lib.format.open_memmap(self.tensor('f.weight', 'f32.npy'), 'w+', dtype, values.shape, fortran)
            array[:] = values
            array.flush()
            values[:, 50] = array[:, 50] = -1
            array.flush()
            self.assertTrue((np.fromfile(self.tensor('f.weight', 'f32'), '<f4') == values.ravel()).all())
            self.assertTrue((array == values).all())
            values[200] = array[200] = 7
            del array
            until(lambda: (np.fromfile(self.tensor('f.weight', 'f32'), '<f4') == values.ravel()).all())
            self.set(b'f.weight', dims=values.shape[::-1], data=values.tobytes())
            self.sync()
            self.check()


class Caches(Views):
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
            with opened(place, os.O_RDWR) as other:
                os.pwrite(other, f32(-3), 4104)
                self.assertEqual(mapped[4096:4108], f32(-1, -2, -3))
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
            with self.assertRaises(OSError):
                os.close(fd)
            until(lambda: os.stat(place).st_size == len(before) and self.get('q.weight', view) == before)
            with opened(place, os.O_RDONLY) as fd, mmap.mmap(fd, len(before), prot=mmap.PROT_READ) as mapped:
                self.assertEqual(mapped[:], before)
        self.write('q.weight', 'raw', q8(4, 0.25))
        self.assertEqual(self.get('q.weight', 'f32')[4:8], f32(0.25))

    def test_read_in_order(self):
        """What was decoded ahead for a program that reads in order does not outlast an edit."""
        self.put(gguf.encode(samples.keys(), samples.small() + [Tensor(b'm.weight', Q8_0, (64, 256), q8(256))]))
        self.mount()
        page = mmap.PAGESIZE
        with opened(self.tensor('m.weight', 'f32'), os.O_RDONLY) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for at in range(0, 3 * page, page):
                before = os.pread(fd, page, at)
            time.sleep(0.2)
            self.write('m.weight', 'raw', q8(256, 0.25))
            with opened(self.tensor('m.weight', 'f32'), os.O_RDONLY) as new:
                os.pread(fd, page, 3 * page)
                self.assertTrue(os.pread(new, page, 3 * page) != before)

    def test_by_descriptor(self):
        """/proc/self/fd opens the same file again."""
        self.mount()
        with opened(self.tensor('a.weight', 'raw'), os.O_RDONLY) as reader, opened(f'/proc/self/fd/{reader}', os.O_RDWR) as fd:
            os.pwrite(fd, b'ABCDEF', 0)
            self.assertEqual(os.pread(fd, 10, 0), b'ABCDEF')
            os.close(os.open(f'/proc/self/fd/{fd}', os.O_RDONLY))
        self.set(b'a.weight', data=b'ABCDEF')
        self.assertEqual(self.get('a.weight'), b'ABCDEF')
        self.check()

    def test_size_of_an_open_file(self):
        """An open file's size and head follow the tensor's type and shape, and mislead nobody else."""
        self.mount()
        with opened(self.tensor('f.weight', 'raw'), os.O_RDONLY) as fd:
            size = os.fstat(fd).st_size
            self.write('f.weight', 'type', b'F16\n')
            self.assertEqual(os.fstat(fd).st_size, size // 2)
            self.assertEqual(os.lseek(fd, 0, os.SEEK_END), size // 2)
        place = self.tensor('f.weight', 'f32.npy')
        with opened(place, os.O_RDONLY) as fd:
            for shape in (4, 16), (64, 64):
                np.save(place, np.zeros(shape, '<f4'))
                os.close(os.open(place, os.O_RDONLY))
                self.assertEqual(np.load(io.BytesIO(os.pread(fd, 1 << 20, 0))).shape, shape)
                self.assertEqual(np.load(place).shape, shape)

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
                    may = {data} if len(data) > 10 else {data} | {(text + b'  ')[:len(data)] for text in texts}
                    self.assertIn(os.pread(fd, len(data) + 1, 0), may)
                    self.assertIn(mapped[:], may)
                    mapped.close()
                    os.close(fd)
                self.end()
                self.check()

    def test_lazy_unmount(self):
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
