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
from mountlib import OTHER, Foreground, Mount, run

ROOT = os.getuid() == 0
JOURNAL = '.model.gguf.ggufs-journal'
LEFTOVER = '.model.gguf.ggufs-abc123'


def file(name):
    mountlib.put(name, b'GGUFSJN4' + bytes(200))


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
    def test_journal(self):
        model, data = mountlib.put('home/model.gguf', samples.editable()), samples.editable()
        name = mountlib.path('home', JOURNAL)
        for plant in PLANTS:
            plant(name)
            if ROOT:
                os.chown(name, OTHER, OTHER, follow_symlinks=False)
            before = state(name)
            with self.subTest(plant=stat.filemode(os.lstat(name).st_mode)):
                for options in (('-o', 'ro'), ()):
                    with Mount(model, *options) as at:
                        self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), data)
                        self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
                        if not options:
                            self.assertIn(JOURNAL, os.getxattr(at, 'user.gguf.readonly').decode())
                        # A mount that does not write the model does not lock it against other processes.
                        with open(model, 'rb') as other:
                            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                done = run(mountlib.GGUFS, '--check', model)
                self.assertNotEqual(done.returncode, 2, done.err)
                done = run(mountlib.GGUFS, '--recover', model)
                self.assertEqual(done.returncode, 1)
                self.assertIn(JOURNAL, done.err)
                self.assertEqual(state(name), before)
                self.assertEqual(mountlib.get(model), data)
            (os.rmdir if plant is os.mkdir else os.unlink)(name)
        with Mount(model) as at:
            self.assertFalse(os.statvfs(at).f_flag & os.ST_RDONLY)


class Recovered(unittest.TestCase):
    def test_said(self):
        """--recover and a mount say what they undid or removed."""
        model = mountlib.put('model.gguf', samples.editable())
        for name, data in (JOURNAL, b'GGUFSJN4'), (LEFTOVER, samples.editable()):
            left = mountlib.put(name, data)
            done = run(mountlib.GGUFS, '--recover', model)
            self.assertEqual((done.returncode, done.err, os.path.exists(left)), (0, '', False))
            said = done.out.removeprefix(f'{model}: ')
            self.assertNotEqual(said, 'nothing to recover\n')
            mountlib.put(name, data)
            mount = Foreground(model)
            with mount:
                editlib.until(lambda: said in mount.log())
            self.assertFalse(os.path.exists(left))
        self.assertEqual(run(mountlib.GGUFS, '--recover', model).out, f'{model}: nothing to recover\n')

    def test_half_written(self):
        """A model with a journal is not read, by no command and no read-only mount, nor in a
        folder of models; --recover is named."""
        model = mountlib.put('half/model.gguf', samples.editable())
        other = mountlib.put('half/other.gguf', samples.editable())
        journal = mountlib.put('half/' + JOURNAL, b'GGUFSJN4')
        at = mountlib.folder_at('at')
        for arguments in (['--info', model], ['--check', model], ['--diff', model, other],
                          ['-o', 'ro', model, at]):
            done = run(mountlib.GGUFS, *arguments)
            self.assertIn(done.returncode, (1, 2), arguments)
            self.assertIn('--recover', done.out + done.err, arguments)
        with Mount(os.path.dirname(model), '-o', 'ro') as at:
            self.assertIn(b'--recover', mountlib.get(os.path.join(at, 'model.gguf', 'error')))
            self.assertEqual(editlib.read(os.path.join(at, 'other.gguf'), 'general.name'),
                             editlib.read(os.path.join(at, 'other.gguf'), 'general.name'))
        self.assertEqual(mountlib.get(journal), b'GGUFSJN4')
        self.assertEqual(run(mountlib.GGUFS, '--recover', model).returncode, 0)
        self.assertEqual(run(mountlib.GGUFS, '--info', model).returncode, 0)
