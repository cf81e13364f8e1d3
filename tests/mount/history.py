#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Mistakes taken back: --history and --undo, of mounted models and of others."""
import fcntl
import os
import random
import shutil
import signal
import stat
import subprocess
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Call, Want, place, read, sync, until, write
from ggufmodel import Value, array
from mountlib import GGUFS, Foreground, Mount, get, run

ROOT = os.getuid() == 0
ALL = samples.keys() + samples.odd() + [(b'nodot', Value('u8', 3))]


def entries(file):
    return [entry for entry in editlib.entries(get(file))[0] if entry.key != editlib.RESERVE]


class Case(unittest.TestCase):
    def setUp(self):
        self.state = mountlib.path('state')
        shutil.rmtree(self.state, ignore_errors=True)
        self.model = mountlib.put('model.gguf', gguf.encode(ALL, samples.small()))
        self.want = Want(get(self.model))

    def files(self):
        """Of the history; without the one that keeps numbers."""
        folder = os.path.join(self.state, 'ggufs/history')
        names = os.listdir(folder) if os.path.exists(folder) else []
        return [os.path.join(folder, name) for name in names if not name.startswith(('.', '0' * 16))]

    def command(self, *words, status=0):
        done = run(GGUFS, *words)
        self.assertEqual(done.returncode, status, done.out + done.err)
        return done.out if status == 0 else done.err

    def undo(self, what, number=None, status=0):
        return self.command('--undo' + (f'={number}' if number else ''), what, status=status)

    def history(self, what):
        return [line.split('\t') for line in self.command('--history', what).splitlines()]

    def numbers(self, what):
        return [int(row[0]) for row in self.history(what)]

    def check_mount(self, at):
        """The mount shows what is wanted, in each of its views, and the file has it."""
        self.want.check(get(self.model))
        self.want.check(get(at + '/model.gguf'))
        self.assertEqual(editlib.keys(at), [entry.key for entry in self.want.kv])


class Mounted(Case):
    options = ()

    def test_remove_all(self):
        """rm -r metadata, and everything is back, byte for byte, also for who has read it before."""
        with Mount(self.model, *self.options) as at:
            texts = {name: read(at, name) for name in editlib.keys(at)}
            times = {name: os.stat(place(at, name)).st_mtime for name in editlib.keys(at)}
            run('rm', '-r', at + '/metadata')
            sync(at)
            self.assertEqual(editlib.keys(at), [b'general.architecture'])
            self.assertIn('back to state 1: added general.name', self.undo(at))
            self.check_mount(at)
            for name, text in texts.items():
                self.assertEqual(read(at, name), text)
            kept = b'general.architecture'
            self.assertEqual(os.stat(place(at, kept)).st_mtime, times[kept])
            # The undo is an edit, and taken back by another.
            self.undo(at)
            self.assertEqual(editlib.keys(at), [b'general.architecture'])
            self.undo(self.model)
            self.check_mount(at)
            self.assertEqual(self.numbers(at), [1, 2, 3, 4])
        self.want.check(get(self.model))

    def test_values(self):
        """Readers of any time see whole texts; a key that changed is seen to be another."""
        with Mount(self.model, *self.options) as at:
            write(at, 'general.name', 'another name\n')
            editlib.retype(at, 'type.u8', 'u64')
            os.rename(place(at, 'type.i8'), place(at, 'type.moved'))
            write(at, 'new.key', '1\n')
            with open(place(at, 'general.name'), 'rb') as old:
                before = os.stat(place(at, 'general.name')).st_mtime_ns
                self.undo(at)
                self.assertEqual(old.read(), b'another name\n')
            self.assertGreater(os.stat(place(at, 'general.name')).st_mtime_ns, before)
            self.assertEqual(read(at, 'general.name'), b'test\n')
            self.assertEqual(editlib.type_of(at, 'type.u8'), 'u8')
            self.assertFalse(os.path.exists(place(at, 'new.key')))
            self.check_mount(at)
            # And it can be edited on.
            write(at, 'new.key', '2\n')
            write(at, 'general.name', 'third\n')
            self.want.set(b'new.key', Value('u32', 2))
            self.want.set(b'general.name', Value('string', b'third'))
            sync(at)
            self.check_mount(at)

    def test_older_keys(self):
        """Back to a state from before this mount: keys that this mount has never had."""
        with Mount(self.model) as at:
            for name in (b'general.name', b'odd.nan', b'nodot', b'list.string'):
                os.unlink(place(at, name))
            sync(at)
        with Mount(self.model, *self.options) as at:
            write(at, 'x.y', 'z')
            self.undo(at, 1)
            self.check_mount(at)
            write(at, 'nodot', '4\n')
            self.want.set(b'nodot', Value('u8', 4))
            os.unlink(place(at, 'odd.nan'))
            self.want.remove(b'odd.nan')
            sync(at)
            self.check_mount(at)

    def test_with_drafts(self):
        """A key that is open for writing: its draft goes on."""
        with Mount(self.model, *self.options) as at:
            write(at, 'last.key', '8\n')
            with editlib.opened(place(at, 'last.key'), os.O_WRONLY | os.O_TRUNC) as fd:
                os.write(fd, b'9')
                self.undo(at)
                os.write(fd, b'9\n')
            self.want.set(b'last.key', Value('u32', 99))
            sync(at)
            self.check_mount(at)

    def test_nothing(self):
        with Mount(self.model, *self.options) as at:
            self.assertIn('nothing to undo', self.undo(at, status=1))
            self.assertIn('there is no state 7', self.undo(at, 7, status=1))
            self.assertEqual(self.history(at), [])
            write(at, 'general.name', 'x')
            self.undo(at, 1)
            self.assertIn('already', self.undo(at, 1))

    def test_clear(self):
        with Mount(self.model, *self.options) as at:
            write(at, 'general.name', 'x', fsync=True)
            self.assertEqual(len(self.files()), 1)
            self.command('--history=clear', at)
            self.assertEqual((self.files(), self.history(at)), ([], []))
            self.undo(at, status=1)
            write(at, 'general.name', 'y', fsync=True)
            self.assertEqual(self.numbers(at), [2])


class Sync(Mounted):
    """Edits that are not written yet are written first, and are a state."""
    options = ('-o', 'commit=sync')


class Inplace(Mounted):
    options = ('-o', 'relayout=inplace,reserve=4096')

    def setUp(self):
        super().setUp()
        with Mount(self.model, '-o', 'reserve=40000') as at:
            write(at, 'general.name', 'x')
            write(at, 'general.name', 'test\n')
        shutil.rmtree(self.state)


class Copy(Mounted):
    options = ('-o', 'relayout=copy,reserve=1000')


@unittest.skipUnless(os.environ.get('GGUFS_TEST_DIR'), 'where is the folder?')
class Reflink(Mounted):
    options = ('-o', 'relayout=reflink,reserve=5000')

    def setUp(self):
        if not editlib.clones(mountlib.folder):
            self.skipTest('the file system does not clone')
        super().setUp()


class Alone(Case):
    """A model that is not mounted."""

    def edit(self, *pairs, options=()):
        with Mount(self.model, *options) as at:
            for key, text in pairs:
                write(at, key, text)

    def test_undo(self):
        self.edit(('general.name', 'x'), ('x.y', 'z'))
        self.assertEqual(self.history(self.model)[0][2], 'changed general.name; added x.y')
        self.assertIn('back to state 1', self.undo(self.model))
        self.want.check(get(self.model))
        self.undo(self.model)
        self.assertEqual(gguf.read(get(self.model)).kv[-1][0], b'x.y')
        self.undo(self.model, 1)
        self.want.check(get(self.model))
        self.assertEqual(self.numbers(self.model), [1, 2, 3, 4])
        self.assertEqual(editlib.leftovers(mountlib.folder), [])

    def test_link(self):
        """By the real path, whatever it is called."""
        self.edit(('general.name', 'x'))
        link = mountlib.path('link.gguf')
        os.symlink('model.gguf', link)
        self.addCleanup(os.unlink, link)
        self.undo(link)
        self.want.check(get(self.model))

    def test_foreign(self):
        """Another program wrote the file since: only a number takes it back."""
        self.edit(('general.name', 'x'))
        other = Want(get(self.model))
        other.set(b'general.name', Value('string', b'by another'))
        mountlib.put('model.gguf', gguf.encode(
            [(b'general.architecture', Value('string', b'other'))], samples.small()))
        self.assertIn('another program changed or replaced the file', self.undo(self.model, status=1))
        self.assertIn('also by another program', self.command('--history', self.model))
        said = self.undo(self.model, 1)
        self.assertIn('another program changed the file', said)
        self.want.check(get(self.model))

    def test_other_byte_order(self):
        self.edit(('general.name', 'x'))
        mountlib.put('model.gguf', gguf.encode(ALL, samples.small(), big=True))
        self.assertIn('byte order', self.undo(self.model, 1, status=1))

    def test_split(self):
        """Any shard; the keys of the set stay."""
        folder = mountlib.path('split')
        os.makedirs(folder)
        self.addCleanup(shutil.rmtree, folder)
        paths, tensors = [], samples.small()
        for no in range(3):
            kv = ALL if no == 0 else []
            kv = kv + [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                       (b'split.tensors.count', Value('i32', 5))]
            part = [tensors[:2], [], tensors[2:]][no]
            name = f'split/m-{no + 1:05}-of-00003.gguf'
            paths.append(mountlib.put(name, gguf.encode(kv, part)))
        before = [get(path) for path in paths]
        with Mount(paths[2]) as at:
            run('rm', '-r', at + '/metadata')
            sync(at)
            self.undo(paths[1])
            self.assertEqual(get(paths[0]), before[0])
            self.assertEqual(editlib.keys(at), [key for key, _ in ALL])
            write(at, 'general.name', 'x')
        self.undo(paths[2])
        self.assertEqual([get(path) for path in paths], before)

    def test_not_editable(self):
        self.edit(('general.name', 'x'))
        name = mountlib.path('sha256-' + 64 * 'a')
        os.rename(self.model, name)
        self.addCleanup(os.unlink, name)
        self.assertIn('hash of its content', self.undo(name, status=1))

    def test_damaged(self):
        """A state that is damaged is named, and refused; others are not affected."""
        self.edit(('general.name', 'x'))
        self.undo(self.model)
        self.edit(('general.name', 'y'))
        newest = max(self.files(), key=lambda path: int(path.split('-')[-3], 16))
        with open(newest, 'r+b') as file:
            file.seek(700)
            file.write(b'!')
        self.assertIn('damaged', self.undo(self.model, status=1))
        self.assertIn('cannot be restored', self.command('--history', self.model))
        self.undo(self.model, 1)
        self.want.check(get(self.model))

    def test_wrong(self):
        folder = mountlib.path('folder')
        os.makedirs(folder, exist_ok=True)
        self.assertIn('not a mount of a model', self.undo(folder, status=1))
        self.assertIn('No such file', self.undo(mountlib.path('none.gguf'), status=1))
        for words in (('--undo=x', self.model), ('--undo=0', self.model), ('--undo=', self.model),
                      ('--undo',), ('--undo', self.model, self.model), ('--history=all', self.model)):
            self.command(*words, status=2)

    def test_read_only_mount(self):
        """A mount that may not write is no daemon for this: the file is edited beside it."""
        self.edit(('general.name', 'x'))
        with Mount(self.model, '-o', 'ro') as at:
            self.assertIn('read-only', self.undo(at, status=1))
            self.undo(self.model)
        self.want.check(get(self.model))


class Backups(Case):
    """Copies of metadata/: cp -a there, and back, in the same mount and in another one."""

    def setUp(self):
        super().setUp()
        nested = [array('array', [array('u8', [1]), array('u8', [])]),
                  array('array', [array('i16', [1]), array('string', [b'x'])]),
                  array('array', [array('array', [array('u64', [1])])])]
        self.kv = ALL + [(b'nested.%d' % i, value) for i, value in enumerate(nested)]
        self.kv = [(key, value) for key, value in self.kv if key not in (
            b'odd.nan', b'odd.nans', b'odd.bool', b'odd.bools', b'odd.string')]  # texts do not hold these bytes
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
                write(at, key, b'' if key.startswith(b'nested') else read(at, 'last.key')
                      if key == b'nodot' else read(at, key))
            self.copy(self.backup + '/.', at + '/metadata/')
            sync(at)
            self.check_mount(at)

    def test_removed(self):
        """In another mount: keys come back by their types, those without a dot too."""
        before = self.values()
        with Mount(self.model) as at:
            self.copy(at + '/metadata', self.backup)
            run('rm', '-r', at + '/metadata')
            sync(at)
        with Mount(self.model) as at:
            self.copy(self.backup + '/.', at + '/metadata/')
            sync(at)
        self.assertEqual(self.values(), before)


class Bounds(Case):
    def test_keep(self):
        with Mount(self.model, '-o', 'history=3') as at:
            for _ in range(4):  # each of them has a state of its own
                write(at, 'general.name', 'x')
                self.undo(at)
            self.assertEqual(len(self.files()), 3)
            self.assertEqual(len(self.history(at)), 3)

    def test_none(self):
        with Mount(self.model, '-o', 'history=0') as at:
            write(at, 'general.name', 'x')
            self.assertIn('history=0', self.undo(at, status=1))
            self.assertIn('history=0', self.command('--history', at, status=1))
        self.assertEqual(self.files(), [])

    def test_joined(self):
        """What a script writes in a row is one state."""
        with Mount(self.model) as at:
            for i in range(200):
                write(at, 'general.name', f'{i}')
                write(at, f'x.{i}', '1')
            self.assertEqual(len(self.files()), 1)
            self.undo(at)
            self.check_mount(at)

    def test_options(self):
        at = mountlib.path('at')
        os.makedirs(at, exist_ok=True)
        for value in ('-1', 'x', '1001', ''):
            self.assertIn('option history', self.command('-o', 'history=' + value, self.model, at,
                                                         status=2))

    def test_modes(self):
        with Mount(self.model) as at:
            write(at, 'general.name', 'x')
        for path in (self.state + '/ggufs', self.state + '/ggufs/history'):
            self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)
        self.assertEqual(stat.S_IMODE(os.stat(self.files()[0]).st_mode), 0o600)


class Homes(Case):
    """Where no state can be kept, edits work, and the log says so once."""

    def edit(self, home, why):
        self.addCleanup(os.environ.pop, 'GGUFS_TEST_STATE', None)
        os.environ['GGUFS_TEST_STATE'] = home
        mount = Foreground(self.model)
        with mount as (at, _):
            write(at, 'general.name', 'x')
            write(at, 'general.name', 'y')
            log = mount.log()
        self.assertEqual(log.count('history: the keys before this edit are not kept'), 1, log)
        self.assertIn(why, log)
        self.want.set(b'general.name', Value('string', b'y'))
        self.want.check(get(self.model))

    def test_no_folder(self):
        self.edit(mountlib.put('file', b'') + '/state', 'Not a directory')

    def test_of_others(self):
        home = mountlib.path('open')
        os.makedirs(home + '/ggufs/history')
        self.addCleanup(shutil.rmtree, home)
        os.chmod(home + '/ggufs/history', 0o755)
        self.edit(home, 'other users may enter')

    def test_link(self):
        home = mountlib.path('linked')
        os.makedirs(home + '/elsewhere')
        self.addCleanup(shutil.rmtree, home)
        os.symlink('elsewhere', home + '/ggufs')
        self.edit(home, 'is not a folder')
        self.assertEqual(os.listdir(home + '/elsewhere'), [])

    def test_read_only(self):
        home = mountlib.path('readonly')
        os.makedirs(home)
        if ROOT:
            subprocess.run(['mount', '-t', 'tmpfs', '-o', 'ro', 'tmpfs', home], check=True)
            self.addCleanup(subprocess.run, ['umount', '-l', home], check=True)
        else:
            os.chmod(home, 0o500)
        self.edit(home, 'Read-only file system' if ROOT else 'Permission denied')

    @unittest.skipUnless(ROOT, 'mounts a small file system')
    def test_full(self):
        home = mountlib.path('full')
        os.makedirs(home)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=8k', 'tmpfs', home], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', home], check=True)
        with open(home + '/fill', 'wb') as file:
            file.write(bytes(4096))
        self.model = mountlib.put('model.gguf', gguf.encode(
            ALL + [(b'long.text', Value('string', bytes(random.Random(1).randbytes(9000))))],
            samples.small()))
        self.want = Want(get(self.model))
        self.edit(home, 'No space left on device')
        self.assertEqual(os.listdir(home + '/ggufs/history'), [])

    def test_hangs(self):
        """A state that takes too long is not waited for, and is there later."""
        with Mount(self.model) as at:
            write(at, 'general.name', 'x')
        folder = os.open(self.state + '/ggufs/history', os.O_RDONLY)
        self.addCleanup(os.close, folder)
        self.undo(self.model)
        mount = Foreground(self.model)
        with mount as (at, _):
            fcntl.flock(folder, fcntl.LOCK_EX)
            write(at, 'general.name', 'y')
            self.assertIn('the edit does not wait', mount.log())
            fcntl.flock(folder, fcntl.LOCK_UN)
            until(lambda: len(self.files()) == 3)
            self.undo(at)
            self.check_mount(at)


class Beside(Case):
    def test_two_models_of_one_name(self):
        """Two daemons write their histories at once; each model has its own."""
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
            rows = [self.history(at) for at in (one, two)]
            self.assertEqual([len(row) for row in rows], [20, 20])
            self.assertEqual(rows[0][0][0], rows[1][0][0])
        for model, file in zip(models, before):
            with Mount(model) as at:
                self.command('--history=clear', model)
                write(at, 'general.name', 'end')
                self.undo(at)
        for model, file in zip(models, before):
            now = dict(gguf.read(get(model)).kv)
            self.assertEqual(now[b'which.model'], dict(gguf.read(file).kv)[b'which.model'])

    def test_rights(self):
        """Who may not write the model may not undo; who may read it may look."""
        if not ROOT:
            self.skipTest('not root')
        os.chmod(mountlib.folder, 0o755)
        os.chmod(self.model, 0o644)
        with Mount(self.model, '-o', 'allow_other') as at:
            write(at, 'general.name', 'x')
            for words in (('--undo', at), ('--undo=1', at), ('--history=clear', at)):
                done = run(*mountlib.as_other(GGUFS, *words))
                self.assertEqual(done.returncode, 1)
                self.assertIn('right to write the model', done.err)
            done = run(*mountlib.as_other(GGUFS, '--history', at))
            self.assertIn('changed general.name', done.out)
            self.assertEqual(len(self.files()), 1)
            os.chmod(self.model, 0o644)
        self.want.set(b'general.name', Value('string', b'x'))
        self.want.check(get(self.model))

    def test_killed(self):
        """The daemon is killed at any moment: what is there can be undone, and is right."""
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


if __name__ == '__main__':
    mountlib.main(others=True)
