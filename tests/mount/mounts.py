#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Mounts beside each other: one writer, waiting for one that still writes, the list of mounts, and
folders that have a mount already."""
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import editlib
import mountlib
import samples
from editlib import Gate, needs_gate, read, write
from mountlib import GGUFS, Mount, run

ROOT = os.getuid() == 0
READ_ONLY = 'user.gguf.readonly'


def why(at):
    return os.getxattr(at, READ_ONLY).decode()


def daemon(at):
    return int(os.getxattr(at, 'user.ggufs.daemon').split()[0])


def as_nobody(script, *arguments):
    """A script for sh, in which "$@" runs the arguments as nobody, who may use /dev/fuse there."""
    node = mountlib.path('node')
    os.makedirs(node, exist_ok=True)
    inside = (f'set -e; mount -t tmpfs -o mode=0755 tmpfs {node}; '
              f'mknod -m 0666 {node}/fuse c 10 229; mount --bind {node}/fuse /dev/fuse; set +e; ')
    return run('unshare', '--mount', '--propagation', 'private', 'sh', '-c', inside + script, 'sh',
               *mountlib.as_other(*arguments))


class Case(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', samples.editable())
        self.addCleanup(os.unlink, self.model)

    def folder(self, name=None):
        at = mountlib.path(name) if name else tempfile.mkdtemp(prefix='at-', dir=mountlib.folder)
        os.makedirs(at, exist_ok=True)
        return at

    def mounted(self, *command):
        """The program mounts; what it said."""
        done = run(GGUFS, *command)
        self.assertEqual((done.returncode, done.out), (0, ''), done.err)
        return done.err

    def assert_plain(self, text):
        """Nothing in it moves a cursor."""
        self.assertIsNone(re.search(r'[\x00-\x09\x0b-\x1f\x7f]', text), repr(text))


class ReadOnly(Case):
    """Less than read-write, without having asked for it, is never silent."""

    def check(self, at, said, reason):
        self.assertRegex(said, rf'^ggufs: {re.escape(self.model)}: mounted read-only: {reason}\n$')
        self.assertRegex(why(at), f'^{reason}$')
        self.assertIn(READ_ONLY, os.listxattr(at))
        self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
        mountlib.unmount(at)

    def test_another_mount(self):
        with Mount(self.model) as first:
            self.assertNotIn(READ_ONLY, os.listxattr(first))
            with self.assertRaises(OSError):
                why(first)
            reason = rf'another ggufs writes it \(mounted on {first}, process {daemon(first)}\)'
            for options in ([], ['-o', 'rw']):
                at = self.folder()
                self.check(at, self.mounted(*options, self.model, at), reason)

    def test_another_program(self):
        at = self.folder()
        with open(self.model, 'rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.check(at, self.mounted(self.model, at),
                       rf'another program has it locked \(process {os.getpid()}, [^)]+\)')

    @unittest.skipUnless(ROOT, 'for root only')
    def test_another_user(self):
        """Processes that cannot be looked into: the list of mounts names their user."""
        os.chmod(mountlib.folder, 0o755)
        at, model = self.folder('by-nobody'), os.path.join(self.folder('of-nobody'), 'model.gguf')
        shutil.copy(self.model, model)
        for name in (at, model, os.path.dirname(model)):
            os.chown(name, 65534, 65534)
        with Mount(model) as first:
            done = as_nobody('"$@"; status=$?; umount "$8"; exit $status', GGUFS, model, at)
            self.assertEqual((done.returncode, done.err),
                             (0, f'ggufs: {model}: mounted read-only: a ggufs of another user '
                              f'writes it (mounted on {first} by root)\n'))

    def test_asked_for(self):
        for option, reason in (('ro', 'asked for by -o ro'), ('ro,partial', 'asked for by -o ro')):
            at = self.folder()
            self.assertEqual(self.mounted('-o', option, self.model, at), '')
            self.assertEqual(why(at), reason)
            mountlib.unmount(at)
        at = self.folder()
        self.check(at, self.mounted('-o', 'partial', self.model, at), '.*partial.*')

    def test_in_the_foreground(self):
        mount = mountlib.Foreground(self.model)
        with Mount(self.model), mount as (at, _):
            os.stat(at)
            self.assertEqual(mount.log().count('another ggufs writes it'), 1)


class Again(Case):
    def test_at_once(self):
        """A mount right after an unmount shows what was written, and writes."""
        at = self.folder()
        for number in range(30):
            self.assertEqual(self.mounted('-o', 'commit=sync', self.model, at), '')
            if number:
                self.assertEqual(read(at, 'general.name'), b'number %d\n' % (number - 1))
            write(at, 'general.name', f'number {number}')
            done = run('umount' if ROOT else 'fusermount3', *([] if ROOT else ['-u']), at)
            self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(self.mounted('-o', 'ro', self.model, at), '')
        self.assertEqual(read(at, 'general.name'), b'number 29\n')
        mountlib.unmount(at)

    @needs_gate
    def test_while_writing(self):
        """The daemon of a mount that is gone still writes: the next mount waits, and says so."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.remove)
        for value, options in (('late', []), ('later', ['-o', 'ro'])):
            with self.subTest(options=options):
                at, there = self.folder(), self.folder()
                with gate.before('GATE'):
                    self.mounted('-o', 'relayout=copy,commit=sync', self.model, at)
                process = daemon(at)
                write(at, 'general.name', value)
                gate.shut()
                mountlib.unmount(at)
                gate.wait()
                with tempfile.TemporaryFile() as said:
                    again = subprocess.Popen([GGUFS, *options, self.model, there], stderr=said,
                                             stdin=subprocess.DEVNULL)
                    editlib.until(lambda: os.fstat(said.fileno()).st_size)
                    self.assertIsNone(mountlib.mount_of(there))
                    gate.open()
                    self.assertEqual(again.wait(mountlib.LIMIT), 0)
                    said.seek(0)
                    self.assertEqual(said.read().decode(),
                                     f'ggufs: {self.model}: waiting: process {process} still '
                                     f'writes what was edited on {at}\n')
                self.assertEqual(read(there, 'general.name'), value.encode() + b'\n')
                self.assertEqual(READ_ONLY in os.listxattr(there), bool(options))
                mountlib.unmount(there)

    def test_side_by_side(self):
        """Of several mounts that begin at the same time one writes, and the others name it."""
        places = [self.folder() for _ in range(4)]
        started = [subprocess.Popen([GGUFS, self.model, at], stderr=subprocess.DEVNULL)
                   for at in places]
        for process in started:
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
        writers = [at for at in places if READ_ONLY not in os.listxattr(at)]
        self.assertEqual(len(writers), 1)
        for at in places:
            if at not in writers:
                self.assertIn(f'(mounted on {writers[0]}, process {daemon(writers[0])})', why(at))
        for at in places:
            mountlib.unmount(at)


if __name__ == '__main__':
    mountlib.main(others=True)
