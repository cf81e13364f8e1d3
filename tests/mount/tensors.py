#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Tensors that are renamed and removed (-o tensors=edit), and refused calls."""
import errno
import os
import shutil
import stat

import ggufmodel as gguf
import mountlib
import samples
from editlib import read, until, write
from ggufmodel import Value
from mountlib import GGUFS, run
from tensorcase import EDIT, Case, kinds


class Default(Case):
    def test_without_the_option(self):
        """Without the option, nothing in tensors/ can be written."""
        with mountlib.Mount(self.model) as at:
            folder = os.path.join(at, 'tensors', 'a.weight')
            self.assertFalse(os.stat(folder).st_mode & 0o222)
            self.assertFalse(os.stat(folder + '/raw').st_mode & 0o222)
            for call in (os.rmdir, lambda name: os.rename(name, name + '2')):
                with self.assertRaises(OSError) as caught:
                    call(folder)
                # For most users the kernel, which sees no write bits, refuses the call itself.
                self.assertEqual(caught.exception.errno, errno.EACCES if os.geteuid() else errno.EROFS)
            self.assertIn(b'-o tensors=edit', os.getxattr(at + '/tensors', 'user.gguf.readonly'))
            self.assertEqual(os.listxattr(at + '/tensors'), ['user.gguf.readonly'])
        self.check()

    def test_a_wrong_word(self):
        done = run(GGUFS, '-o', 'tensors=yes', self.model, mountlib.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn('tensors', done.err)

    def test_read_only(self):
        """If metadata/ cannot be edited, tensors cannot either."""
        with mountlib.Mount(self.model, *EDIT, '-o', 'ro') as at:
            folder = os.path.join(at, 'tensors', 'a.weight')
            self.assertFalse(os.stat(folder).st_mode & 0o222)
            self.raises(errno.EROFS, os.rmdir, folder)
        self.check()


class Rename(Case):
    def test_every_layout(self):
        """After a rename, place, type and bytes stay, and so does everything else."""
        for name, data in kinds():
            with self.subTest(name):
                self.put(data)
                with mountlib.Mount(self.model, *EDIT) as at:
                    self.at = at
                    os.rename(self.tensor('b.weight'), self.tensor('new name%0A'))
                    self.set(b'b.weight', new=b'new name\n')
                    self.assertEqual(self.names()[1], 'new name%0A')
                    self.check(mountlib.get(os.path.join(at, 'model.gguf')))
                self.check()

    def test_commits(self):
        """With commit=close, a rename is on the disk when mv returns; with commit=sync, it is
        shown, and written at fsync."""
        for mode in ('auto', 'close', 'sync'):
            with self.subTest(mode):
                before = mountlib.get(self.model)
                self.mount('-o', 'commit=' + mode)
                os.rename(self.tensor('a.weight'), self.tensor('x'))
                self.set(b'a.weight', new=b'x')
                self.assertIn('x', mountlib.get(os.path.join(self.at, 'tensors.txt')).decode())
                if mode == 'sync':
                    self.assertEqual(mountlib.get(self.model), before)
                    self.sync()
                self.check()
                os.rename(self.tensor('x'), self.tensor('a.weight'))
                self.set(b'x', new=b'a.weight')
                self.end()
                self.check()

    def test_everything_follows(self):
        """A working directory, open files, st_ino and the node of the directory follow the
        tensor."""
        self.mount()
        folder, raw = self.tensor('c.weight'), self.tensor('c.weight', 'raw')
        ino = os.stat(folder).st_ino, os.stat(raw).st_ino
        inside, file = os.open(folder, os.O_RDONLY), os.open(raw, os.O_RDONLY)
        os.rename(folder, self.tensor('moved'))
        os.rename(self.tensor('b.weight'), self.tensor('c.weight'))
        self.assertEqual(os.readlink(f'/proc/self/fd/{inside}'), self.tensor('moved'))
        self.assertEqual((os.stat(self.tensor('moved')).st_ino,
                          os.stat(self.tensor('moved', 'raw')).st_ino), ino)
        data = self.want[2][3]
        self.assertEqual(os.pread(file, 100, 0), data)
        with open(os.open('raw', os.O_RDONLY, dir_fd=inside), 'rb') as found:
            self.assertEqual(found.read(), data)
        os.close(inside)
        os.close(file)
        self.set(b'c.weight', new=b'moved')
        self.set(b'b.weight', new=b'c.weight')
        self.end()
        self.check()

    def test_refused(self):
        self.mount()
        a, b = self.tensor('a.weight'), self.tensor('b.weight')
        self.raises(errno.ENOTEMPTY, os.rename, a, b)
        self.raises(errno.EPERM, os.rename, a, os.path.join(b, 'a.weight'))
        self.raises(errno.EPERM, os.rename, os.path.join(a, 'raw'), self.tensor('raw'))
        self.raises(errno.EPERM, os.rename, a, os.path.join(self.at, 'metadata', 'a.weight'))
        self.raises(errno.ENAMETOOLONG, os.rename, a, self.tensor('x' * 64))
        self.raises(errno.EINVAL, os.rename, a, self.tensor('%'))  # the empty name
        self.raises(errno.EINVAL, os.rename, a, self.tensor('%41'))  # a needless escape
        self.raises(errno.EINVAL, os.rename, a, self.tensor('x%00'))
        self.raises(errno.ENOENT, os.rename, self.tensor('none'), self.tensor('x'))
        self.raises(errno.EPERM, os.symlink, 'x', self.tensor('link'))
        self.raises(errno.EPERM, os.mkdir, os.path.join(a, 'folder'))
        self.raises(errno.EPERM, open, self.tensor('file'), 'x')
        self.assertIn('63 bytes', self.foreground.log())
        self.assertEqual(mountlib.run('mv', a, b).returncode, 1)
        os.rename(a, self.tensor('x' * 63))
        self.set(b'a.weight', new=b'x' * 63)
        self.end()
        self.check()

    def test_with_keys(self):
        """Edits of keys and tensors cause one rewrite, and none is lost."""
        self.mount('-o', 'commit=sync')
        write(self.at, 'general.name', 'first')
        os.rename(self.tensor('a.weight'), self.tensor('one'))
        write(self.at, 'general.name', 'second')
        os.rename(self.tensor('one'), self.tensor('two'))
        self.assertEqual(read(self.at, 'general.name'), b'second\n')
        self.assertEqual(self.names()[0], 'two')
        self.end()
        self.set(b'a.weight', new=b'two')
        kv = gguf.read(mountlib.get(self.model)).kv
        self.assertEqual(dict(kv)[b'general.name'], Value('string', b'second'))
        self.kv[1].raw = (6).to_bytes(8, 'little') + b'second'
        self.check()


class Remove(Case):
    def test_every_layout(self):
        for name, data in kinds():
            for removed in ((b'a.weight',), (b'e.weight',), (b'b.weight', b'd.weight')):
                with self.subTest(f'{name} {removed}'):
                    self.put(data)
                    with mountlib.Mount(self.model, *EDIT) as at:
                        self.at = at
                        for tensor in removed:
                            shutil.rmtree(self.tensor(tensor.decode()))
                            self.drop(tensor)
                        self.assertEqual(self.names(), [row[0].decode() for row in self.want])
                    self.check()

    def test_quiet(self):
        """A removal is delayed in every mode, except by an fsync of the directory."""
        for mode in ('auto', 'close', 'sync'):
            with self.subTest(mode):
                self.put(samples.editable())
                before = mountlib.get(self.model)
                self.mount('-o', 'commit=' + mode)
                os.rmdir(self.tensor('a.weight'))
                self.assertNotIn('a.weight', self.names())
                self.raises(errno.ENOENT, os.stat, self.tensor('a.weight', 'raw'))
                self.assertEqual(mountlib.get(self.model), before)
                self.sync()
                self.drop(b'a.weight')
                self.check()
                self.end()

    def test_written_by_itself(self):
        self.mount()
        os.rmdir(self.tensor('a.weight'))
        self.drop(b'a.weight')
        until(lambda: len(gguf.read(mountlib.get(self.model)).tensors) == 4)
        self.check()

    def test_another_edit_takes_it_along(self):
        self.mount('-o', 'commit=close')
        os.rmdir(self.tensor('a.weight'))
        os.rename(self.tensor('b.weight'), self.tensor('x'))
        self.set(b'b.weight', new=b'x')
        self.drop(b'a.weight')
        self.check()
        self.end()
        self.check()

    def test_all(self):
        """The last tensor cannot be removed, and the attempt brings all back, even for processes
        inside them."""
        self.mount()
        inside = os.open(self.tensor('b.weight'), os.O_RDONLY)
        *names, last = self.names()
        for name in names:
            shutil.rmtree(self.tensor(name))
        self.assertEqual(self.names(), [last])
        self.raises(errno.EPERM, os.rmdir, self.tensor(last))
        self.assertEqual(len(self.names()), 5)
        self.assertIn('no tensor left', self.error(last))
        self.assertIn('no tensor left', self.foreground.log())
        self.assertEqual(sorted(os.listdir(self.tensor('b.weight'))),
                         ['f32', 'f32.npy', 'offset', 'raw', 'shape', 'type'])
        self.assertEqual(mountlib.get(self.tensor('b.weight', 'raw')), self.want[1][3])
        os.close(inside)
        self.not_saved(f'tensors/{last}')

    def test_unlinked_views_are_back(self):
        self.mount()
        raw = self.tensor('a.weight', 'raw')
        os.unlink(raw)
        self.raises(errno.ENOENT, os.stat, raw)
        self.assertNotIn('raw', os.listdir(self.tensor('a.weight')))
        self.raises(errno.ENOENT, os.unlink, raw)
        until(lambda: os.path.exists(raw))
        self.assertIn('raw', os.listdir(self.tensor('a.weight')))
        self.assertEqual(mountlib.get(raw), self.want[0][3])
        self.raises(errno.ENOTDIR, os.rmdir, raw)
        self.raises(errno.EISDIR, os.unlink, self.tensor('a.weight'))
        self.end()
        self.check()

    def test_tools(self):
        self.mount()
        self.assertEqual(run('rm', '-r', self.tensor('a.weight'), self.tensor('c.weight')).err, '')
        self.assertEqual(run('find', self.tensor('d.weight'), '-delete').err, '')
        for name in (b'a.weight', b'c.weight', b'd.weight'):
            self.drop(name)
        self.end()
        self.check()

    def test_name_of_one_that_was_removed(self):
        self.mount()
        os.rmdir(self.tensor('a.weight'))
        os.rename(self.tensor('c.weight'), self.tensor('a.weight'))
        self.assertEqual(mountlib.get(self.tensor('a.weight', 'raw')), self.want[2][3])
        self.drop(b'a.weight')
        self.set(b'c.weight', new=b'a.weight')
        self.end()
        self.check()


class Readers(Case):
    def test_open_files(self):
        """Open files can still be read, even of removed tensors."""
        self.mount()
        raw = os.open(self.tensor('a.weight', 'raw'), os.O_RDONLY)
        whole = os.open(os.path.join(self.at, 'model.gguf'), os.O_RDONLY)
        before, bytes_of_a = mountlib.get(self.model), self.want[0][3]
        os.rename(self.tensor('b.weight'), self.tensor('x'))
        shutil.rmtree(self.tensor('a.weight'))
        self.sync()
        self.set(b'b.weight', new=b'x')
        self.drop(b'a.weight')
        self.check()
        self.assertEqual(os.pread(raw, 100, 0), bytes_of_a)
        self.assertEqual(os.pread(whole, len(before) + 1, 0), before)
        self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
        os.close(raw)
        os.close(whole)


    def test_open_files_in_place(self):
        """If first a name and then bytes are written in place, open files show old and new
        bytes."""
        self.mount('-o', 'relayout=inplace')
        whole = os.open(os.path.join(self.at, 'model.gguf'), os.O_RDONLY)
        before, bytes_of_a = mountlib.get(self.model), self.want[0][3]
        os.rename(self.tensor('b.weight'), self.tensor('c.another'))
        self.sync()
        new = bytes(byte ^ 1 for byte in bytes_of_a)
        with open(self.tensor('a.weight', 'raw'), 'r+b') as f:
            f.write(new)
        self.sync()
        self.set(b'b.weight', new=b'c.another')
        self.set(b'a.weight', data=new)
        self.check()
        os.posix_fadvise(whole, 0, 0, os.POSIX_FADV_DONTNEED)
        after = before.replace(bytes_of_a, new)
        seen = os.pread(whole, len(before) + 1, 0)
        self.assertEqual(len(seen), len(before))
        self.assertTrue(all(byte in pair for byte, *pair in zip(seen, before, after)))
        os.close(whole)


class Attributes(Case):
    def test_without_effect(self):
        """Attributes that cp -a and rsync -X set have no effect."""
        self.mount()
        for place in (self.tensor('a.weight'), self.tensor('a.weight', 'raw'), self.tensor()):
            os.chmod(place, 0)
            os.utime(place, (1, 1))
            os.setxattr(place, 'user.gguf.type', b'Q8_0')
            os.removexattr(place, 'user.gguf.shape')
            self.raises(errno.EOPNOTSUPP, os.setxattr, place, 'user.other', b'')
            self.assertTrue(os.stat(place).st_mode & stat.S_IWUSR)
            self.assertNotEqual(os.stat(place).st_mtime, 1)
        self.end()
        self.check()

    def test_bits(self):
        """rm -r does not prompt, because everything has the write bits of the model."""
        os.chmod(self.model, 0o664)
        self.mount('-o', 'views=all')
        self.assertEqual(os.stat(self.tensor()).st_mode & 0o777, 0o775)
        self.assertEqual(os.stat(self.tensor('a.weight')).st_mode & 0o777, 0o775)
        for name in os.listdir(self.tensor('a.weight')):
            self.assertEqual(os.stat(self.tensor('a.weight', name)).st_mode & 0o777, 0o664, name)

    def test_mtime(self):
        """st_mtime changes only with the tensor."""
        self.mount()
        before = os.stat(self.tensor('b.weight')).st_mtime_ns
        os.rename(self.tensor('a.weight'), self.tensor('x'))
        self.assertGreater(os.stat(self.tensor('x')).st_mtime_ns, before)
        self.assertEqual(os.stat(self.tensor('b.weight')).st_mtime_ns, before)


if __name__ == '__main__':
    mountlib.main()
