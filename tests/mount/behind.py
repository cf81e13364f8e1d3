# SPDX-License-Identifier: MIT
"""Changes behind the mount: the model is replaced, truncated, removed, locked, linked or made
unwritable; and what each way of writing keeps of the file."""
import errno
import os
import shutil
import struct
import subprocess
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, place, sync, write
from ggufmodel import Value
from mountlib import fails

ACL = 'system.posix_acl_access'
ROOT = os.getuid() == 0


def acl():
    """Return u::rw-,u:99:r--,g::r--,m::r--,o::--- as the kernel stores it."""
    rows = ((1, 6, 0xffffffff), (2, 4, 99), (4, 4, 0xffffffff), (16, 4, 0xffffffff),
            (32, 0, 0xffffffff))
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *row) for row in rows)


class Behind(unittest.TestCase):
    def setUp(self):
        self.folder = mountlib.path('models')
        shutil.rmtree(self.folder, ignore_errors=True)
        self.data = samples.editable()
        self.source = mountlib.put('models/model.gguf', self.data)
        self.want = Want(self.data)

    def refused(self, at, code):
        """Check that an edit fails with this error, the old value returns, and the attribute tells."""
        fails(code, write, at, 'general.name', 'x' * 9999)
        self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
        self.assertEqual(os.stat(place(at, 'general.name')).st_size, 5)

    # ---- what was done behind the mount: each returns the content that must stay ----

    def replaced(self):
        other = gguf.encode(samples.ARCH, samples.small())
        os.rename(mountlib.put('models/other.gguf', other), self.source)
        return other

    def removed(self):
        os.unlink(self.source)

    def written_to(self):
        with open(self.source, 'r+b') as file:
            file.seek(len(self.data) - 1)
            file.write(b'\x01')
        return self.data[:-1] + b'\x01'

    def truncated(self):
        os.truncate(self.source, len(self.data) - 64)
        return self.data[:-64]

    def folder_removed(self):
        shutil.rmtree(self.folder)

    def linked(self):
        os.link(self.source, self.source + '.other')
        return self.data

    def test_changed(self):
        """An edit of any kind is refused, what was read before can still be read, and what is there stays."""
        for change in (self.replaced, self.removed, self.written_to, self.truncated, self.folder_removed, self.linked):
            for mode in ('auto', 'close'):
                with self.subTest(change=change.__name__, mode=mode):
                    self.setUp()
                    code = errno.EMLINK if change == self.linked else errno.ESTALE
                    with mountlib.Mount(self.source, '-o', f'commit={mode}') as at:
                        stays = change()
                        self.refused(at, code)
                        self.assertIn(b'read-write; writes refused (see errors): 1', mountlib.get(at + '/info'))
                        fails(code, os.rename, place(at, 'type.u8'), place(at, 'my.u8'))  # the kernel tries twice
                        fails(code, editlib.retype, at, 'type.u8', 'u16')
                        fails(code, os.unlink, place(at, 'type.u8'))
                        # Shells ignore the result of close(2), so the open fails as well.
                        fails(code, os.open, place(at, 'general.name'), os.O_WRONLY)
                        fails(code, os.open, place(at, 'my.new'), os.O_WRONLY | os.O_CREAT)
                        self.assertEqual(editlib.read(at, 'type.u8'), b'100\n')
                        self.assertNotIn(b'my.new', editlib.keys(at))
                        self.assertEqual(mountlib.get(os.path.join(at, 'tensors/a.weight/raw')), self.want.tensors[0][3])
                        if change in (self.replaced, self.removed, self.folder_removed):
                            self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), self.data)
                        if stays is not None:
                            self.assertEqual(mountlib.get(self.source), stays)
                        else:
                            self.assertFalse(os.path.exists(self.source))
                        if change == self.linked:
                            os.unlink(self.source + '.other')
                            write(at, 'general.name', 'y')

    def test_lost_at_unmount(self):
        """Accepted edits that cannot be written are reflected in the daemon's exit status."""
        with self.assertRaisesRegex(AssertionError, 'exit status 1'):
            with mountlib.Foreground(self.source, '-o', 'commit=sync') as (at, _):
                write(at, 'general.name', 'y')
                os.utime(self.source, (5, 5))
        self.assertEqual(mountlib.get(self.source), self.data)

    # ---- rights ----

    @unittest.skipUnless(ROOT, 'for root only')
    def test_made_immutable(self):
        """Not even root may write the file, or rename the files of its directory."""
        with mountlib.Mount(self.source, '-o', 'relayout=copy,reserve=65536') as at:
            write(at, 'general.name', 'first')
        before = mountlib.get(self.source)
        for what in (self.source, self.folder):
            for way in ('copy', 'inplace'):
                with mountlib.Mount(self.source, '-o', f'relayout={way},reserve=65536') as at:
                    if subprocess.run(['chattr', '+i', what], check=False).returncode != 0:
                        self.skipTest('no immutable files here')
                    try:
                        fails(errno.EPERM, write, at, 'general.name', 'second')
                        self.assertEqual(editlib.read(at, 'general.name'), b'first\n')
                        self.assertEqual(mountlib.get(self.source), before)
                        self.assertEqual(os.listdir(self.folder), ['model.gguf'])
                    finally:
                        subprocess.run(['chattr', '-i', what], check=True)
        with mountlib.Mount(self.source) as at:
            write(at, 'general.name', 'third')

    @unittest.skipIf(ROOT, 'root may write everywhere')
    def test_folder_read_only(self):
        with mountlib.Mount(self.source, '-o', 'commit=close') as at:
            os.chmod(self.folder, 0o555)
            try:
                self.refused(at, errno.EACCES)
            finally:
                os.chmod(self.folder, 0o755)
            write(at, 'general.name', 'y')

    def test_hash_names(self):
        name = 'sha256-' + 'a0' * 32
        os.rename(self.source, os.path.join(self.folder, name))
        self.source = os.path.join(self.folder, name)
        with mountlib.Mount(self.source, '-o', 'rw') as at:  # mount(8) always says rw
            fails(errno.EROFS, write, at, 'general.name', 'x')
        with mountlib.Mount(self.source, '-o', 'hashnames=edit') as at:
            write(at, 'general.name', 'x')

    def test_attributes_are_kept(self):
        """Each strategy keeps the mode, owner, extended attributes and ACL of the model."""
        os.chmod(self.source, 0o640)
        os.setxattr(self.source, 'user.note', b'kept')
        if ROOT:
            os.chown(self.source, 1234, 5678)
            os.setxattr(self.source, 'trusted.note', b'kept too')
        os.setxattr(self.source, ACL, acl())
        names = {name: os.getxattr(self.source, name) for name in os.listxattr(self.source)}
        self.assertIn(ACL, names)
        for strategy in ('copy', 'auto'):
            before = os.stat(self.source)  # each time, because inode numbers of removed files are reused
            with mountlib.Mount(self.source, '-o', f'relayout={strategy}') as at:
                write(at, 'general.name', strategy)
            after = os.stat(self.source)
            self.assertNotEqual(after.st_ino, before.st_ino)
            for field in ('st_mode', 'st_uid', 'st_gid'):
                self.assertEqual(getattr(after, field), getattr(before, field), field)
            self.assertEqual({name: os.getxattr(self.source, name)
                              for name in os.listxattr(self.source)}, names)

    # ---- places ----

    def test_symbolic_link(self):
        link = mountlib.path('link.gguf')
        os.symlink('models/model.gguf', link)
        self.addCleanup(os.unlink, link)
        self.edited(link, self.source)
        self.assertEqual(os.readlink(link), 'models/model.gguf')

    def test_mountpoint_covers_the_folder(self):
        """If the mount covers the model's own directory, paths are resolved through a handle that
        was opened earlier."""
        self.edited(self.source, self.source, at=self.folder)

    def test_folder_renamed(self):
        there = mountlib.path('moved')
        self.addCleanup(shutil.rmtree, there)
        self.edited(self.source, os.path.join(there, 'model.gguf'), do=lambda: os.rename(self.folder, there))

    def edited(self, model, real, at=None, do=lambda: None):
        with mountlib.Mount(model, at=at) as at:
            do()
            write(at, 'general.name', 'y')
            sync(at)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(mountlib.get(real))

    def test_file_size_limit(self):
        """With RLIMIT_FSIZE the daemon gets EFBIG rather than a signal, and the old file stays."""
        with mountlib.Mount(self.source) as at:
            write(at, 'general.name', 'test')  # the history has a file
        limit = f'--fsize={len(self.data) + 4096}'
        with mountlib.Foreground(self.source, program=('prlimit', limit, '--', mountlib.GGUFS)) as (at, _):
            fails(errno.EFBIG, write, at, 'general.name', 'x' * 20000)
            self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
            self.assertEqual(editlib.leftovers(self.folder), [])
            write(at, 'general.name', 'z')
        self.want.set(b'general.name', Value('string', b'z'))
        self.want.check(mountlib.get(self.source))
