#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Files of another user beside a model, under names that ggufs uses itself: they are left alone,
prevent edits and are reported, but never prevent reading."""
import fcntl
import os
import stat
import unittest

import editlib
import mountlib
import samples
from mountlib import Foreground, Mount, run

ROOT = os.getuid() == 0
OTHER = 65534  # an ordinary user
JOURNAL = '.model.gguf.ggufs-journal'
LEFTOVER = '.model.gguf.ggufs-abc123'


def file(name):
    with open(name, 'wb') as out:
        out.write(b'GGUFSJN3' + bytes(200))


def closed(name):
    file(name)
    os.chmod(name, 0)


def device(name):
    os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(240, 4242))


def linked(name):
    file(name + '.other')
    os.link(name + '.other', name)


PLANTS = [lambda name: os.symlink('model.gguf', name), lambda name: os.symlink('nothing', name),
          os.mkfifo, os.mkdir, linked] + ([file, closed, device] if ROOT else [])


def state(name):
    """Return everything that opening or removing the file would change."""
    status = os.lstat(name)
    return status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = mountlib.path('home')
        os.mkdir(self.folder)
        self.model = os.path.join(self.folder, 'model.gguf')
        self.data = samples.editable()
        with open(self.model, 'wb') as out:
            out.write(self.data)

    def tearDown(self):
        for name in os.listdir(self.folder):
            name = os.path.join(self.folder, name)
            (os.unlink if os.path.islink(name) or not os.path.isdir(name) else os.rmdir)(name)
        os.rmdir(self.folder)

    def plants(self, name, plants=PLANTS):
        """Yield each object in turn under this name."""
        name = os.path.join(self.folder, name)
        for plant in plants:
            plant(name)
            if ROOT:
                os.chown(name, OTHER, OTHER, follow_symlinks=False)
            before = state(name)
            with self.subTest(plant=stat.filemode(os.lstat(name).st_mode)):
                yield name
                self.assertEqual(state(name), before)
            (os.rmdir if plant is os.mkdir else os.unlink)(name)
            self.assertEqual(mountlib.get(self.model), self.data)

    def reads(self, at):
        self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), self.data)
        self.assertEqual(editlib.read(at, 'general.architecture'), b'llama\n')
        self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)

    def test_journal(self):
        for name in self.plants(JOURNAL):
            with Mount(self.model, '-o', 'ro') as at:
                self.reads(at)
            for options in ((), ('-o', 'relayout=copy'), ('-o', 'relayout=inplace')):
                mount = Foreground(self.model, *options)
                with mount as (at, _):
                    self.reads(at)
                    editlib.until(lambda: 'read-only: ' in mount.log())
                    owned = stat.S_ISREG(os.lstat(name).st_mode) and not ROOT
                    why = 'has other hard links' if owned else 'belongs neither to '
                    self.assertIn(f'{JOURNAL} beside the model {why}', mount.log())
                    # A mount that does not write the model does not lock it against other
                    # processes.
                    with open(self.model, 'rb') as other:
                        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            done = run(mountlib.GGUFS, '--check', self.model)
            self.assertNotEqual(done.returncode, 2, done.err)
            done = run(mountlib.GGUFS, '--recover', self.model)
            self.assertEqual(done.returncode, 1)
            self.assertIn(JOURNAL, done.err)
        with Mount(self.model) as at:
            self.assertFalse(os.statvfs(at).f_flag & os.ST_RDONLY)

    def test_leftover(self):
        """A new file that looks like a leftover of another user's edit is ignored, as is anything
        that is not a regular file."""
        for name in self.plants(LEFTOVER, [plant for plant in PLANTS if ROOT or plant is not linked]):
            with Mount(self.model) as at:
                self.assertFalse(os.statvfs(at).f_flag & os.ST_RDONLY)
                before = editlib.read(at, 'general.name')
                editlib.write(at, 'general.name', 'x')
                editlib.write(at, 'general.name', before)
            self.data = mountlib.get(self.model)


class Recovered(unittest.TestCase):
    def said(self, *left):
        """Return the output of --recover for a model beside files of these names and contents."""
        model = mountlib.put('model.gguf', samples.editable())
        for name, data in left:
            mountlib.put(name, data)
        done = run(mountlib.GGUFS, '--recover', model)
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.assertEqual([name for name, _ in left if os.path.exists(mountlib.path(name))], [])
        return done.out.removeprefix(f'{model}: ')

    def test_what_was_done_is_said(self):
        self.assertEqual(self.said(), 'nothing to recover\n')
        self.assertEqual(self.said((JOURNAL, b'GGUFSJN3')), 'an interrupted edit was undone\n')
        self.assertEqual(self.said((LEFTOVER, samples.editable())),
                         'intact; files left by an interrupted edit were removed\n')


if __name__ == '__main__':
    mountlib.main()
