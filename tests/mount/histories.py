#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Histories when no state can be kept, of several models, of other users and of killed daemons; and
copies of metadata/."""
import fcntl
import os
import random
import shutil
import signal
import subprocess
import unittest

import ggufmodel as gguf
import mountlib
import samples
from editlib import Call, Gate, Want, needs_gate, read, sync, until, write
from ggufmodel import Value, array
from historycase import ALL, Case, entries
from mountlib import GGUFS, Foreground, Mount, daemon, get, run

ROOT = os.getuid() == 0


class Homes(Case):
    """If no state can be kept, edits work, and the log says so once."""

    def edit(self, home, why, readable=False):
        """readable: --history can still read the history, which is empty."""
        self.addCleanup(os.environ.pop, 'GGUFS_TEST_STATE', None)
        os.environ['GGUFS_TEST_STATE'] = home
        mount = Foreground(self.model)
        with mount as (at, _):
            write(at, 'general.name', 'x')
            write(at, 'general.name', 'y')
            log = mount.log()
            for words in (('--undo', at), ('--undo=1', at)) + (() if readable else (('--history', at),)):
                self.assertIn('no' if readable else why, self.command(*words, status=1))
            if readable:
                self.assertEqual(self.history(at), [])
        self.assertEqual(log.count('history: the keys before this edit are not kept'), 1, log)
        self.assertIn(why, log)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(get(self.model))

    def test_no_folder(self):
        self.edit(mountlib.put('file', b'') + '/state', 'Not a directory')

    @unittest.skipIf(ROOT, 'root has /var/lib')
    def test_no_home(self):
        home = os.environ.pop('HOME', None)
        self.addCleanup(lambda: home is not None and os.environ.update(HOME=home))
        self.edit('', 'neither XDG_STATE_HOME nor HOME is set')

    def test_of_others(self):
        home = mountlib.path('open')
        os.makedirs(home + '/ggufs/history')
        self.addCleanup(shutil.rmtree, home)
        os.chmod(home + '/ggufs/history', 0o755)
        self.edit(home, "not this user's own")

    def test_link(self):
        home = mountlib.path('linked')
        os.makedirs(home + '/elsewhere')
        self.addCleanup(shutil.rmtree, home)
        os.symlink('elsewhere', home + '/ggufs')
        self.edit(home, "not this user's own")
        self.assertEqual(os.listdir(home + '/elsewhere'), [])

    def test_read_only(self):
        home = mountlib.path('readonly')
        os.makedirs(home)
        if ROOT:
            subprocess.run(['mount', '-t', 'tmpfs', '-o', 'ro', 'tmpfs', home], check=True)
            self.addCleanup(subprocess.run, ['umount', '-l', home], check=True)
        else:
            os.chmod(home, 0o500)
        self.edit(home, 'Read-only file system' if ROOT else 'Permission denied', True)

    @unittest.skipUnless(ROOT, 'mounts a small file system')
    def test_full(self):
        home = mountlib.path('full')
        os.makedirs(home)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8k', 'tmpfs', home], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', home], check=True)
        with open(home + '/fill', 'wb') as file:
            file.write(bytes(8192))
        self.edit(home, 'No space left on device', True)
        self.assertEqual(os.listdir(home + '/ggufs/history'), [])

    def test_locked(self):
        """A process that holds the lock makes no command or edit wait forever."""
        with Mount(self.model) as at:
            write(at, 'general.name', 'x')
        folder = os.open(self.state + '/ggufs/history', os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.assertIn('another process has locked it',
                      self.command('--history=clear', self.model, status=1))
        mount = Foreground(self.model)
        with mount as (at, _):
            self.command('--history=clear', at, status=1)
            write(at, 'general.name', 'y')
            self.assertIn('another process has locked it', mount.log())
            fcntl.flock(folder, fcntl.LOCK_UN)
            self.command('--history=clear', at)
            self.assertEqual(self.history(at), [])


class Beside(Case):
    def test_two_models_of_one_name(self):
        """Two daemons write their histories at the same time, and each model has its own."""
        models = []
        for folder in ('one', 'two'):
            os.makedirs(mountlib.path(folder))
            self.addCleanup(shutil.rmtree, mountlib.path(folder))
            models.append(mountlib.put(folder + '/model.gguf', gguf.encode(
                ALL + [(b'which.model', Value('string', folder.encode()))], samples.small())))
        before = [get(model) for model in models]

        def work(at):
            for i in range(20):
                write(at, 'general.name', f'{i}')
                self.undo(at)
                write(at, f'x.{i}', 'x')

        with Mount(models[0]) as one, Mount(models[1]) as two:
            calls = [Call(work, at) for at in (one, two)]
            for call in calls:
                self.assertIsNone(call.wait())
            for at in (one, two):
                numbers = self.numbers(at)
                self.assertEqual(numbers, list(range(1, len(numbers) + 1)))
                self.assertGreater(len(numbers), 39)
        for model, file in zip(models, before):
            with Mount(model) as at:
                self.command('--history=clear', model)
                write(at, 'general.name', 'end')
                self.undo(at)
        for model, file in zip(models, before):
            now = dict(gguf.read(get(model)).kv)
            self.assertEqual(now[b'which.model'], dict(gguf.read(file).kv)[b'which.model'])

    def test_rights(self):
        """Other users cannot undo, whatever the mode of the model, and see only their own history."""
        if not ROOT:
            self.skipTest('not root')
        os.chmod(mountlib.folder, 0o755)
        os.chmod(self.model, 0o644)
        with Mount(self.model, '-o', 'allow_other') as at:
            write(at, 'general.name', 'x')
            for word in '--undo', '--undo=1':
                done = run(*mountlib.as_other(GGUFS, word, at))
                self.assertEqual((done.returncode, done.out, done.err), (
                    1, '', f'ggufs: {at}: it is a mount of user 0: only that user and root can do that\n'))
            done = run(*mountlib.as_other(GGUFS, '--history', at))
            self.assertEqual((done.returncode, done.out, done.err), (0, '', ''))
            self.assertEqual(run(*mountlib.as_other(GGUFS, '--history=clear', at)).returncode, 1)
            self.assertEqual(len(self.files()), 1)
        self.want.set(b'general.name', Value('string', b'x'))
        self.want.check(get(self.model))

    def test_killed(self):
        """Whenever the daemon is killed, existing states are correct, and can be restored."""
        rng = random.Random(5)
        for _ in range(8):
            before = entries(self.model)
            mount = Foreground(self.model)
            at, process = mount.__enter__()
            texts, call = [], None

            def work():
                for i in range(rng.randrange(1, 40)):
                    texts.append(f'{rng.random()}')
                    write(at, 'general.name', texts[-1])

            call = Call(work)
            until(lambda: len(texts) > 3 or not call.thread.is_alive())
            process.send_signal(signal.SIGKILL)
            call.wait()
            process.wait()
            run(*(['umount', '-l'] if ROOT else ['fusermount3', '-uz']), at)
            mount.err.close()
            if entries(self.model) != before:
                self.undo(self.model)
            self.assertEqual(entries(self.model), before)


class Folders(Case):
    """Models in a mount of a directory: any path of a file finds the daemon that edits it."""

    def setUp(self):
        super().setUp()
        self.top = mountlib.path('top')
        os.makedirs(self.top)
        self.addCleanup(shutil.rmtree, self.top)

    def put(self, name, data=None):
        path = os.path.join(self.top, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return mountlib.put(os.path.relpath(path, mountlib.folder), data or get(self.model))

    def undone(self, at, shown, *paths):
        """Unwritten edits are undone through each path, so the daemon made the undo."""
        place = os.path.join(at, shown)
        for i, path in enumerate(paths):
            before = read(place, 'general.name')
            write(place, 'general.name', f'edit {i}')
            self.undo(path)
            self.assertEqual(read(place, 'general.name'), before)
            self.assertEqual(self.history(path), self.history(place))
        self.command('--history=clear', paths[0])
        self.assertEqual(self.history(place), [])

    def test_paths(self):
        file = self.put('a%b/x y.gguf')
        self.put('a%b/w.gguf')
        self.put('source/v.gguf')
        link = mountlib.path('linked.gguf')
        os.symlink(file, link)
        with Mount(self.top, '-o', 'commit=sync') as at:
            self.undone(at, 'a%25b/x y.gguf', file, link)

    def test_split(self):
        paths = []
        for no in range(3):
            kv = [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                  (b'split.tensors.count', Value('i32', 5))]
            part = [samples.small()[:2], [], samples.small()[2:]][no]
            paths.append(self.put(f'sub/m-{no + 1:05}-of-00003.gguf',
                                  gguf.encode((ALL if no == 0 else []) + kv, part)))
        link = mountlib.path('shard.gguf')
        os.symlink(paths[1], link)
        with Mount(self.top, '-o', 'commit=sync') as at:
            self.undone(at, 'sub/m.gguf', *paths, link)

    def test_beside(self):
        """Another model of the same name is not affected."""
        files = [self.put('one/m.gguf'), self.put('two/m.gguf')]
        with Mount(self.top) as at:
            write(at + '/one/m.gguf', 'general.name', 'one')
            with Mount(files[1]) as other:
                write(other, 'general.name', 'two')
            self.undo(files[1])
            self.assertEqual(read(at + '/one/m.gguf', 'general.name'), b'one\n')
        self.want.check(get(files[1]))

    def test_hard_links(self):
        """A second hard link of the edited file counts as another model, with its own history."""
        file = self.put('b.gguf')
        with Mount(self.top) as at:
            write(at + '/b.gguf', 'general.name', 'x')
            other = mountlib.path('other.gguf')
            os.link(file, other)
            self.assertEqual(self.history(other), [])
            self.command('--history=clear', other)
            self.assertEqual(self.numbers(file), [1])
            self.assertEqual(self.numbers(at + '/b.gguf'), [1])

    def test_not_edited_yet(self):
        """The first edit in this mount is the undo of an edit from another mount."""
        file = self.put('m.gguf')
        with Mount(file) as at:
            write(at, 'general.name', 'x')
        with Mount(self.top) as at:
            self.undo(at + '/m.gguf')
            self.want.check(get(file))
            self.undo(file)
            self.assertEqual(read(at + '/m.gguf', 'general.name'), b'x\n')
        with Mount(self.top) as at:
            self.undo(file)
            self.assertEqual(read(at + '/m.gguf', 'general.name'), b'test\n')


class Backups(Case):
    """Copies of metadata/ by cp -a, out and back, in the same mount and in another."""

    def setUp(self):
        super().setUp()
        self.kv = [(key, value) for key, value in ALL if key not in (
            b'odd.nan', b'odd.nans', b'odd.bool', b'odd.bools', b'odd.string',  # not representable
            b'nodot', b'list.array')]  # could not be created again
        self.model = mountlib.put('model.gguf', gguf.encode(self.kv, samples.small()))
        self.want = Want(get(self.model))
        self.backup = mountlib.path('backup')
        shutil.rmtree(self.backup, ignore_errors=True)
        with open(mountlib.put('probe', b''), 'rb') as file:
            try:
                os.setxattr(file.fileno(), 'user.probe', b'x')
            except OSError:
                self.skipTest('no attributes of users in the folder of tests')

    def copy(self, *names):
        done = run('cp', '-a', *names)
        self.assertEqual(done.returncode, 0, done.err)

    def values(self):
        return {entry.key: entry for entry in entries(self.model)}

    def test_values_changed(self):
        with Mount(self.model) as at:
            self.copy(at + '/metadata', self.backup)
            for key, _ in self.kv[1:]:
                write(at, key, read(at, key))
            self.copy(self.backup + '/.', at + '/metadata/')
            sync(at)
            self.check_mount(at)

    def test_removed(self):
        """In another mount, keys come back with their types."""
        before = self.values()
        with Mount(self.model) as at:
            self.copy(at + '/metadata', self.backup)
            run('rm', '-r', at + '/metadata')
            sync(at)
        with Mount(self.model) as at:
            self.copy(self.backup + '/.', at + '/metadata/')
            sync(at)
        self.assertEqual(self.values(), before)


    def back(self, model, shown='', files=(), options=()):
        """Copy out, remove everything, and copy back, in two mounts. Returns the model's keys
        afterwards."""
        before = {entry.key: entry for entry in entries(files[0])}
        rest = [get(file) for file in files[1:]]
        with Mount(model, *options) as at:
            at = os.path.join(at, shown)
            self.copy(at + '/metadata', self.backup)
            run('rm', '-r', at + '/metadata')
            sync(at)
        self.assertLess(len(entries(files[0])), 5)
        with Mount(model, *options) as at:
            at = os.path.join(at, shown)
            if 'user.gguf.readonly' in os.listxattr(at):
                self.fail(os.getxattr(at, 'user.gguf.readonly'))
            self.copy(self.backup + '/.', at + '/metadata/')
            sync(at)
        self.assertEqual({entry.key: entry for entry in entries(files[0])}, before)
        self.assertEqual([get(file) for file in files[1:]], rest)

    def test_split(self):
        folder = mountlib.path('parts')
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        tensors, files = samples.small(), []
        for no in range(2):
            kv = (self.kv if no == 0 else []) + [
                (b'split.no', Value('u16', no)), (b'split.count', Value('u16', 2)),
                (b'split.tensors.count', Value('i32', len(tensors)))]
            files.append(mountlib.put(f'parts/m-{no + 1:05}-of-00002.gguf',
                                      gguf.encode(kv, tensors[:2] if no == 0 else tensors[2:])))
        self.back(files[1], files=files)
        shutil.rmtree(self.backup)
        self.back(folder, 'm.gguf', files)

    def test_folder(self):
        folder = mountlib.path('models')
        os.makedirs(folder + '/sub')
        self.addCleanup(shutil.rmtree, folder)
        file = shutil.copy(self.model, folder + '/sub/m.gguf')
        self.back(folder, 'sub/m.gguf', [file])

    def test_options(self):
        for options in ('commit=sync', 'commit=close', 'relayout=copy,reserve=1000', 'views=raw',
                        'tensors=edit'):
            with self.subTest(options=options):
                shutil.rmtree(self.backup, ignore_errors=True)
                self.back(self.model, '', [self.model], ('-o', options))


if __name__ == '__main__':
    mountlib.main(others=True)
