# SPDX-License-Identifier: MIT
"""--undo and --history: of a mount, what its readers see; of a file, a shard, a model in a folder; where
the states are kept, and who may use them."""
import os
import shutil
import subprocess
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, read, sync, write
from ggufmodel import Value
from mountlib import GGUFS, Mount, get, run

ROOT = os.getuid() == 0
ALL = samples.keys() + samples.odd() + [(b'nodot', Value('u8', 3))]


class Case(unittest.TestCase):
    def setUp(self):
        self.state = mountlib.path('state')
        shutil.rmtree(self.state, ignore_errors=True)
        self.model = mountlib.put('model.gguf', gguf.encode(ALL, samples.small()))
        self.want = Want(get(self.model))

    def command(self, *words, status=0):
        done = run(GGUFS, *words)
        self.assertEqual(done.returncode, status, done.out + done.err)
        return done.out if status == 0 else done.err

    def undo(self, what, number=0):
        self.command(f'--undo={number}' if number else '--undo', what)

    def history(self, what):
        return [line.split('\t') for line in self.command('--history', what).splitlines()]

    def numbers(self, what):
        return [int(row[0]) for row in self.history(what)]

    def check_mount(self, at):
        """Check that each view of the mount, and the file, have the expected content."""
        self.want.check(get(self.model))
        self.want.check(get(at + '/model.gguf'))
        self.assertEqual(editlib.keys(at), [entry.key for entry in self.want.kv])


class Mounted(Case):
    def test_ways(self):
        """After rm -r metadata everything is restored byte for byte, in each way of writing; another undo
        reverts that."""
        for options in ('commit=auto', 'commit=sync', 'relayout=copy,reserve=1000', 'relayout=inplace,reserve=40000'):
            with self.subTest(options):
                self.setUp()
                if 'inplace' in options:
                    with Mount(self.model, '-o', 'relayout=copy,reserve=40000,history=0') as at:
                        write(at, 'general.name', 'x')
                        write(at, 'general.name', 'test\n')
                with Mount(self.model, '-o', options) as at:
                    texts = {name: read(at, name) for name in editlib.keys(at)}
                    run('rm', '-r', at + '/metadata')
                    sync(at)
                    self.assertEqual(editlib.keys(at), [b'general.architecture'])
                    self.undo(at)
                    self.check_mount(at)
                    self.assertEqual({name: read(at, name) for name in editlib.keys(at)}, texts)
                    self.undo(at)
                    self.assertEqual(editlib.keys(at), [b'general.architecture'])
                    self.undo(at)
                    self.check_mount(at)
                    self.assertEqual(self.numbers(at), [1, 2, 3, 4])
                self.want.check(get(self.model))

    @unittest.skipUnless(ROOT, 'for root only')
    def test_rights(self):
        """Other users cannot undo, whatever the mode of the model, and see only their own history."""
        os.chmod(mountlib.folder, 0o755)
        os.chmod(self.model, 0o644)
        with Mount(self.model, '-o', 'allow_other') as at:
            write(at, 'general.name', 'x')
            for word in '--undo', '--undo=1', '--history=clear':
                self.assertEqual(run(*mountlib.as_other(GGUFS, word, at)).returncode, 1)
            done = run(*mountlib.as_other(GGUFS, '--history', at))
            self.assertEqual((done.returncode, done.out, done.err), (0, '', ''))
            self.assertEqual(self.numbers(at), [1])
        self.want.set(b'general.name', Value('string', b'x'))
        self.want.check(get(self.model))

    def test_folder(self):
        """In a mount, the daemon restores the keys; the file of a model that is mounted is refused."""
        top = mountlib.path('top')
        os.makedirs(top + '/a%b')
        self.addCleanup(shutil.rmtree, top)
        file, link = shutil.copy(self.model, top + '/a%b/x y.gguf'), mountlib.path('linked.gguf')
        os.symlink(file, link)
        self.addCleanup(os.unlink, link)
        with Mount(file) as at:
            write(at, 'general.name', 'x')
            for path in file, link:
                self.assertIn('mounted on ' + at, run(GGUFS, '--undo', path).err)
            self.undo(at)
        with Mount(top, '-o', 'commit=sync') as mount:
            at = mount + '/a%25b/x y.gguf'
            write(at, 'general.name', 'pending')
            self.assertIn('mounted on ' + mount, run(GGUFS, '--undo', file).err)
            self.undo(at)
            self.assertEqual(read(at, 'general.name'), b'test\n')
            self.assertEqual(self.history(file), self.history(at))


class Alone(Case):
    """A model that is not mounted."""

    def test_undo(self):
        with Mount(self.model, '-o', 'commit=sync') as at:  # one state
            write(at, 'general.name', 'x')
            write(at, 'x.y', 'z')
        self.assertEqual(self.history(self.model)[0][2], 'changed general.name; added x.y')
        link = mountlib.path('link.gguf')
        os.symlink('model.gguf', link)
        self.addCleanup(os.unlink, link)
        self.undo(link)
        self.want.check(get(self.model))
        self.undo(self.model)
        self.assertEqual(gguf.read(get(self.model)).kv[-1][0], b'x.y')
        self.undo(self.model, 1)
        self.want.check(get(self.model))
        self.assertEqual(self.numbers(self.model), [1, 2, 3, 4])
        self.assertEqual(editlib.leftovers(mountlib.folder), [])


class Homes(Case):
    """If no state can be kept, edits work, and the log says so once; else it is private."""

    def edit_in(self, home):
        self.addCleanup(os.environ.pop, 'GGUFS_TEST_STATE', None)
        os.environ['GGUFS_TEST_STATE'] = home
        mount = mountlib.Foreground(self.model)
        with mount as (at, _):
            write(at, 'general.name', 'x')
            write(at, 'general.name', 'y')
            log = mount.log()
            for words in ('--undo', at), ('--undo=1', at):
                self.command(*words, status=1)
        self.assertEqual(log.count('ggufs: history: '), 1, log)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(get(self.model))

    def test_no_folder(self):
        self.edit_in(mountlib.put('file', b'') + '/state')

    @unittest.skipIf(ROOT, 'root has /var/lib')
    def test_no_home(self):
        home = os.environ.pop('HOME', None)
        self.addCleanup(lambda: home is not None and os.environ.update(HOME=home))
        self.edit_in('')

    def test_no_room(self):
        """A read-only directory and, as root, a full file system."""
        home = mountlib.folder_at('no-room')
        if not ROOT:
            os.chmod(home, 0o500)
            self.edit_in(home)
        for options in ('ro', 'size=8k') if ROOT else ():
            subprocess.run(['mount', '-t', 'tmpfs', '-o', options, 'tmpfs', home], check=True)
            try:
                if options != 'ro':
                    mountlib.put(home + '/fill', bytes(8192))
                self.edit_in(home)
            finally:
                subprocess.run(['umount', '-l', home], check=True)
