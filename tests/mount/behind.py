#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Changes behind the mount: the model is replaced, truncated, removed, locked or linked, or the
disk is full."""
import contextlib
import errno
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Call, Gate, Want, needs_gate, place, sync, write
from ggufmodel import Tensor, Value

MIB = 1 << 20
ACL = 'system.posix_acl_access'


def large(size):
    """Return a model with one tensor of `size` bytes."""
    return gguf.encode(samples.keys(), [Tensor(b'w', 24, (size,), os.urandom(size))])


def acl():
    """Return u::rw-,u:99:r--,g::r--,m::r--,o::--- as the kernel stores it."""
    rows = ((1, 6, 0xffffffff), (2, 4, 99), (4, 4, 0xffffffff), (16, 4, 0xffffffff),
            (32, 0, 0xffffffff))
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *row) for row in rows)


class Disk:
    """`with Disk('tmpfs', MIB) as directory:` makes a separate file system. Only root can use
    it."""

    def __init__(self, kind, size):
        self.kind, self.size = kind, size

    def __enter__(self):
        self.at = mountlib.path('disk')
        os.makedirs(self.at, exist_ok=True)
        what, options = 'none', f'size={self.size}'
        if self.kind != 'tmpfs':
            # Not the file of an earlier disk, which a new mount namespace may still hold.
            fd, what = tempfile.mkstemp(prefix='disk-', dir=mountlib.folder)
            os.truncate(fd, self.size)
            os.close(fd)
            options = 'loop'
            subprocess.run([f'mkfs.{self.kind}', '-q', what], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(['mount', '-t', self.kind, '-o', options, what, self.at], check=True)
        return self.at

    def __exit__(self, *error):
        subprocess.run(['umount', *(['-l'] if error[0] else []), self.at], check=True)


def each_mode(test):
    """Run a method with a mount, (self, mount, at), in the modes that report immediately."""
    def run(self):
        for mode in ('auto', 'close'):
            with self.subTest(mode=mode):
                self.setUp()
                mount = mountlib.Foreground(self.source, '-o', f'commit={mode}')
                with mount as (at, _):
                    test(self, mount, at)
    run.__doc__ = test.__doc__
    return run


class Behind(unittest.TestCase):
    def setUp(self):
        self.folder = mountlib.path('models')
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder)
        self.source = mountlib.put('models/model.gguf', samples.editable())
        self.data = mountlib.get(self.source)
        self.want = Want(self.data)

    def fails(self, code, call, *args, **how):
        with self.assertRaises(OSError, msg=args) as caught:
            call(*args, **how)
        self.assertEqual(errno.errorcode[caught.exception.errno], errno.errorcode[code], args)

    def refused(self, mount, at, code, pattern):
        """Check that an edit fails with this error, the old value returns, and the log and the
        attribute give the reason."""
        self.fails(code, write, at, 'general.name', 'x' * 9999)
        self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
        self.assertEqual(os.stat(place(at, 'general.name')).st_size, 5)
        self.assertRegex(editlib.error_of(at, 'general.name'), pattern)
        self.assertRegex(mount.log(), 'general.name.*' + pattern)
        self.assertEqual(editlib.leftovers(os.path.dirname(self.source)), [])

    @each_mode
    def test_replaced(self, mount, at):
        other = gguf.encode(samples.ARCH, samples.small())
        os.rename(mountlib.put('models/other.gguf', other), self.source)
        self.refused(mount, at, errno.ESTALE, 'changed')
        self.assertEqual(mountlib.get(self.source), other)
        self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), self.data)
        self.assertEqual(mountlib.get(os.path.join(at, 'tensors/a.weight/raw')),
                         self.want.before.tensors[0].data)

    @each_mode
    def test_removed(self, mount, at):
        os.unlink(self.source)
        self.refused(mount, at, errno.ESTALE, 'removed|changed|gone|not there')
        self.assertEqual(os.listdir(self.folder), [])

    @each_mode
    def test_written_to(self, mount, at):
        with open(self.source, 'r+b') as file:
            file.seek(len(self.data) - 1)
            file.write(b'\x01')
        self.refused(mount, at, errno.ESTALE, 'changed')

    @each_mode
    def test_truncated(self, mount, at):
        os.truncate(self.source, len(self.data) - 64)
        self.refused(mount, at, errno.ESTALE, 'changed')
        self.assertEqual(os.stat(self.source).st_size, len(self.data) - 64)
        self.assertEqual(editlib.read(at, 'type.u32'), b'100\n')

    @each_mode
    def test_folder_is_gone(self, mount, at):
        """If the directory is removed with everything in it, edits are refused, and data that was
        read before can still be read."""
        shutil.rmtree(self.folder)
        self.fails(errno.ESTALE, write, at, 'general.name', 'x' * 9999)
        self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
        self.assertRegex(mount.log(), 'general.name.*gone')
        self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), self.data)
        self.assertEqual(mountlib.get(os.path.join(at, 'tensors/a.weight/raw')),
                         self.want.before.tensors[0].data)
        self.assertFalse(os.path.exists(self.folder))

    @each_mode
    def test_made_read_only(self, mount, at):
        """Programs that have the file open may continue; a new file gets the current mode of the
        old one."""
        with editlib.opened(editlib.place(at, 'general.name'), os.O_WRONLY | os.O_TRUNC) as fd:
            os.chmod(self.source, 0o444)
            editlib.write_all(fd, 'y')
        sync(at)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(mountlib.get(self.source))
        self.assertEqual(os.stat(self.source).st_mode & 0o777, 0o444)
        self.assertEqual(editlib.leftovers(self.folder), [])

    @unittest.skipIf(os.getuid() != 0, 'for root only')
    def test_made_immutable(self):
        """Not even root may write the file, or rename the files of its directory."""
        log_room = ('-o', 'relayout=copy,reserve=65536')
        with mountlib.Mount(self.source, *log_room) as at:
            write(at, 'general.name', 'first')
        before = mountlib.get(self.source)
        for what in (self.source, self.folder):
            for way in ('copy', 'inplace', 'auto'):
                with mountlib.Mount(self.source, '-o', f'relayout={way},reserve=65536') as at:
                    if subprocess.run(['chattr', '+i', what], check=False).returncode != 0:
                        self.skipTest('no immutable files here')
                    try:
                        self.fails(errno.EPERM, write, at, 'general.name', 'second')
                        self.assertEqual(editlib.read(at, 'general.name'), b'first\n')
                        self.assertEqual(mountlib.get(self.source), before)
                        self.assertEqual(os.listdir(self.folder), ['model.gguf'])
                    finally:
                        subprocess.run(['chattr', '-i', what], check=True)
                    self.assertEqual(editlib.leftovers(self.folder), [])
        with mountlib.Mount(self.source) as at:
            write(at, 'general.name', 'third')

    @each_mode
    def test_stale_rename_and_unlink(self, mount, at):
        """The kernel repeats some calls once after ESTALE; the error remains."""
        os.utime(self.source, (5, 5))
        self.fails(errno.ESTALE, os.rename, place(at, 'type.u8'), place(at, 'my.u8'))
        self.fails(errno.ESTALE, editlib.retype, at, 'type.u8', 'u16')
        self.fails(errno.ESTALE, os.unlink, place(at, 'type.u8'))
        self.assertEqual(editlib.read(at, 'type.u8'), b'100\n')
        self.assertEqual(mountlib.get(self.source), self.data)

    def test_stale_after_unlink(self):
        """fsync reports a removal that was made before the model changed; it waits until the model
        is what it was."""
        before = os.stat(self.source)
        mount = mountlib.Foreground(self.source, '-o', 'commit=sync')
        with mount as (at, _):
            os.unlink(place(at, 'type.u8'))
            os.utime(self.source, (5, 5))
            self.fails(errno.ESTALE, sync, at)
            self.assertNotIn(b'type.u8', editlib.keys(at))
            os.utime(self.source, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.want.remove(b'type.u8')
        self.want.check(mountlib.get(self.source))

    @each_mode
    def test_told_at_open(self, mount, at):
        """Shells ignore the result of close(2), so the next open for writing reports the error."""
        os.link(self.source, mountlib.path('models/other.gguf'))
        for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC):
            self.fails(errno.EMLINK, os.open, place(at, 'general.name'), flags)
        self.fails(errno.EMLINK, os.truncate, place(at, 'general.name'), 0)
        self.fails(errno.EMLINK, os.open, place(at, 'my.new'), os.O_WRONLY | os.O_CREAT)
        self.fails(errno.EMLINK, os.unlink, place(at, 'general.name'))
        self.assertNotIn(b'my.new', editlib.keys(at))
        self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
        os.unlink(mountlib.path('models/other.gguf'))
        write(at, 'my.new', 'x')
        self.assertEqual(editlib.read(at, 'my.new'), b'x\n')

    def test_created_anew_but_refused(self):
        """The old value comes back, as after any other refusal, even if the key was moved out of
        the way. A removed key stays removed."""
        with mountlib.Mount(self.source, '-o', 'commit=sync') as at:
            os.unlink(place(at, 'type.u8'))
            os.link(self.source, mountlib.path('models/other.gguf'))
            self.fails(errno.EMLINK, os.open, place(at, 'type.u8'), os.O_WRONLY | os.O_CREAT)
            self.assertNotIn(b'type.u8', editlib.keys(at))
            os.rename(place(at, 'type.u16'), place(at, 'type.u16~'))
            self.fails(errno.EMLINK, os.open, place(at, 'type.u16'), os.O_WRONLY | os.O_CREAT)
            self.assertEqual(editlib.read(at, 'type.u16'), b'100\n')
            os.unlink(mountlib.path('models/other.gguf'))
        self.want.remove(b'type.u8')
        self.want.check(mountlib.get(self.source))

    def test_lost_at_unmount(self):
        """Accepted edits that cannot be written are reflected in the daemon's exit status."""
        mount = mountlib.Foreground(self.source, '-o', 'commit=sync')
        with self.assertRaisesRegex(AssertionError, 'exit status 1'):
            with mount as (at, _):
                write(at, 'general.name', 'y')
                self.assertEqual(editlib.read(at, 'general.name'), b'y\n')
                os.utime(self.source, (5, 5))
        self.assertEqual(mountlib.get(self.source), self.data)

    @unittest.skipIf(os.getuid() == 0, 'root may write everywhere')
    @each_mode
    def test_folder_read_only(self, mount, at):
        os.chmod(self.folder, 0o555)
        try:
            self.refused(mount, at, errno.EACCES, 'ermission')
        finally:
            os.chmod(self.folder, 0o755)
        write(at, 'general.name', 'y')

    @unittest.skipIf(os.getuid() == 0, 'root may write everywhere')
    def test_mounted_read_only(self):
        """A file or directory that is not writable makes the mount read-only, which the log
        reports; so does a directory that can be entered but not listed."""
        for path, bits in ((self.source, 0o555), (self.folder, 0o555), (self.folder, 0o333),
                           (self.folder, 0o111)):
            with self.subTest(path, bits=bits):
                mode = os.stat(path).st_mode
                os.chmod(path, mode & bits)
                mount = mountlib.Foreground(self.source)
                with mount as (at, _):
                    editlib.until(lambda: 'read-only: ' in mount.log())
                    with self.assertRaises(OSError) as caught:
                        write(at, 'my.key', '1')
                    self.assertIn(caught.exception.errno, (errno.EROFS, errno.EACCES))
                os.chmod(path, mode)

    def test_second_mount(self):
        """There is only one writer: the second mount is read-only, and says so, for as long as the
        first one exists."""
        with mountlib.Mount(self.source) as at:
            for _ in range(2):
                second = mountlib.Foreground(self.source)
                with second as (there, _):
                    editlib.until(lambda: 'read-only: ' in second.log())
                    self.fails(errno.EROFS, write, there, 'general.name', 'x')
                write(at, 'general.name', 'y')  # the new file is also locked
        with mountlib.Mount(self.source) as at:
            write(at, 'general.name', 'z')

    def test_hash_names(self):
        name = 'sha256-' + 'a0' * 32
        os.rename(self.source, os.path.join(self.folder, name))
        self.source = os.path.join(self.folder, name)
        for option in ('rw', 'hashnames=refuse'):  # mount(8) always says rw
            mount = mountlib.Foreground(self.source, '-o', option)
            with mount as (at, _):
                self.fails(errno.EROFS, write, at, 'general.name', 'x')
                self.assertRegex(mount.log(), 'read-only: .*hash')
        with mountlib.Mount(self.source, '-o', 'hashnames=edit') as at:
            write(at, 'general.name', 'x')

    @each_mode
    def test_hard_links(self, mount, at):
        other = os.path.join(self.folder, 'other.gguf')
        os.link(self.source, other)
        self.refused(mount, at, errno.EMLINK, '2 hard links in all')
        os.unlink(other)
        write(at, 'general.name', 'y')

    def test_symbolic_link(self):
        link = mountlib.path('link.gguf')
        os.symlink('models/model.gguf', link)
        with mountlib.Mount(link) as at:
            write(at, 'general.name', 'y')
        self.assertEqual(os.readlink(link), 'models/model.gguf')
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(mountlib.get(self.source))
        os.unlink(link)

    def test_attributes_are_kept(self):
        """Each strategy keeps the mode, owner, extended attributes and ACL of the model."""
        os.chmod(self.source, 0o640)
        os.setxattr(self.source, 'user.note', b'kept')
        if os.getuid() == 0:
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

    def test_mountpoint_covers_the_folder(self):
        """If the mount covers the model's own directory, paths are resolved through a handle that
        was opened earlier."""
        with mountlib.Mount(self.source, at=self.folder) as at:
            write(at, 'general.name', 'y')
            sync(at)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(mountlib.get(self.source))

    def test_folder_renamed(self):
        there = mountlib.path('moved')
        with mountlib.Mount(self.source) as at:
            os.rename(self.folder, there)
            write(at, 'general.name', 'y')
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(mountlib.get(os.path.join(there, 'model.gguf')))
        shutil.rmtree(there)

    def test_file_size_limit(self):
        """With RLIMIT_FSIZE the daemon gets EFBIG rather than a signal, and the old file stays."""
        limit = len(self.data) + 4096
        with mountlib.Mount(self.source) as at:
            write(at, 'general.name', 'warm')
        self.want.set(b'general.name', Value('string', b'warm'))
        mount = mountlib.Foreground(self.source, program=('prlimit', f'--fsize={limit}', '--',
                                                          mountlib.GGUFS))
        with mount as (at, _):
            self.fails(errno.EFBIG, write, at, 'general.name', 'x' * 20000)
            self.assertEqual(editlib.read(at, 'general.name'), b'warm\n')
            self.assertEqual(editlib.leftovers(self.folder), [])
            write(at, 'general.name', 'z')
        self.want.set(b'general.name', Value('string', b'z'))
        self.want.check(mountlib.get(self.source))


@unittest.skipIf(os.getuid() != 0, 'mounts disks')
class Disks(unittest.TestCase):
    def fails(self, code, call, *args, **how):
        with self.assertRaises(OSError, msg=args) as caught:
            call(*args, **how)
        self.assertEqual(errno.errorcode[caught.exception.errno], errno.errorcode[code], args)

    def test_no_space(self):
        """However the disk was filled, the lack of space is noticed in advance or while the file is
        written."""
        for kind, size in (('tmpfs', 8 * MIB), ('ext4', 24 * MIB)):
            for mode in ('auto', 'close', 'sync'):
                with self.subTest(kind=kind, mode=mode), Disk(kind, size) as folder:
                    self.fill(folder, mode)

    def fill(self, folder, mode):
        source = os.path.join(folder, 'model.gguf')
        with open(source, 'wb') as file:
            file.write(large(3 * MIB))
        want = Want(mountlib.get(source))
        filler = os.path.join(folder, 'filler')
        with mountlib.Foreground(source, '-o', f'commit={mode}') as (at, _):
            write(at, 'general.name', 'before')
            want.set(b'general.name', Value('string', b'before'))
            sync(at)
            with open(filler, 'wb') as file:
                free = os.statvfs(folder)
                file.write(bytes(free.f_bfree * free.f_frsize - 2 * MIB))
            self.fails(errno.ENOSPC, write, at, 'general.name', 'x' * 1000)
            self.assertEqual(editlib.read(at, 'general.name'), b'before\n')
            self.assertTrue(editlib.error_of(at, 'general.name'))
            self.assertIn(b'read-write; 1 write was refused (general.name)\n', mountlib.get(f'{at}/info'))
            self.assertEqual(editlib.leftovers(folder), [])
            want.check(mountlib.get(source))
            os.unlink(filler)
            write(at, 'general.name', 'after')
            want.set(b'general.name', Value('string', b'after'))
            sync(at)
            want.check(mountlib.get(source))

    def test_accepted_before_the_disk_is_full(self):
        """An edit for which there is no room does not affect edits accepted before it."""
        with Disk('tmpfs', 8 * MIB) as folder:
            source = os.path.join(folder, 'model.gguf')
            with open(source, 'wb') as file:
                file.write(large(3 * MIB))
            want = Want(mountlib.get(source))
            with mountlib.Foreground(source, '-o', 'commit=sync') as (at, _):
                write(at, 'my.first', '1')
                self.fails(errno.ENOSPC, write, at, 'general.name', 'x' * 5 * MIB)
                self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
                self.assertEqual(editlib.read(at, 'my.first'), b'1\n')
                sync(at)
            want.set(b'my.first', Value('u32', 1))
            want.check(mountlib.get(source))

    @needs_gate
    def test_room_that_is_about_to_be_free(self):
        """While the replaced file is being released, the next edit waits, and finds its space free."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.remove)
        with Disk('tmpfs', 160 * MIB) as folder:
            source = os.path.join(folder, 'model.gguf')
            with open(source, 'wb') as file:
                file.write(large(65 * MIB))
            want, mount = Want(mountlib.get(source)), mountlib.Foreground(source, '-o', 'commit=sync')
            with gate.before('GATE_FREE'):
                at, _ = mount.__enter__()
            write(at, 'my.first', '1')
            gate.shut()
            first = Call(sync, at)
            gate.wait()
            self.assertIsNone(first.wait())
            second = Call(write, at, 'my.second', '2')
            editlib.until(lambda: b'my.second' in editlib.keys(at))
            gate.open()
            self.assertIsNone(second.wait())
            self.assertEqual(editlib.read(at, 'my.second'), b'2\n')
            sync(at)
            mount.__exit__(None, None, None)
            for key, value in ((b'my.first', 1), (b'my.second', 2)):
                want.set(key, Value('u32', value))
            want.check(mountlib.get(source))

    def test_fsync_of_what_was_taken_back(self):
        """If the edit of one of two programs is refused on a full disk, fsync by the other does not
        report success for it."""
        with Disk('tmpfs', 64 * MIB) as folder:
            source = os.path.join(folder, 'model.gguf')
            with open(source, 'wb') as file:
                file.write(large(24 * MIB))
            with open(os.path.join(folder, 'fill'), 'wb') as file:
                file.write(bytes(30 * MIB))
            mount = mountlib.Foreground(source, '-o', 'commit=sync,relayout=copy')
            at, process = mount.__enter__()

            def others():
                for i in range(500):
                    with contextlib.suppress(OSError):
                        write(at, 'my.other', str(i))

            other = Call(others)
            for i in range(500):
                with self.assertRaises(OSError):
                    write(at, 'my.own', str(i), fsync=True)
            self.assertIsNone(other.wait())
            mountlib.unmount(at)
            # 1: an edit accepted without waiting could not be written, and the log says so.
            self.assertIn(process.wait(mountlib.LIMIT), (0, 1))
            mount.err.close()


if __name__ == '__main__':
    mountlib.main()
