#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Tensors of split models: each verb that keeps their number, in every file, by each strategy and
commit mode; the other files stay byte for byte. Several files in one gathering; names that pass from
one file to another; what is refused."""
import errno
import fcntl
import itertools
import os
import shutil
import unittest
import unittest.mock

import ggufmodel as gguf
import mountlib
import samples
import second_reader
import tensorverbs
from editlib import RESERVE, clones, entries, leftovers, strict
from ggufmodel import Value
from mountlib import GGUFS, run

NAME = 'model-%05d-of-00003.gguf'
COUNTS = 2, 2, 1


def split_keys(no):
    return [(b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
            (b'split.tensors.count', Value('i32', sum(COUNTS)))]


class Split(tensorverbs.Model):
    """Five tensors in three files."""

    def setUp(self):
        self.folder = mountlib.path('split')
        shutil.rmtree(self.folder, ignore_errors=True)
        os.mkdir(self.folder)
        self.addCleanup(lambda: shutil.rmtree(self.folder, ignore_errors=True))
        self.shards = [os.path.join(self.folder, NAME % (i + 1)) for i in range(3)]
        self.model = self.shards[0]
        self.build()

    def build(self, big=False, alignment=None, **how):
        self.big = big
        given, self.keys, self.file = self.tensors(), [], []
        self.want = [(t.name, t.type_id, t.dims, t.data) for t in given]
        for i, path in enumerate(self.shards):
            keys = (samples.keys() if i == 0 else [(b'general.note', Value('string', b'x' * i))]) + split_keys(i)
            if alignment:
                keys.append((b'general.alignment', Value('u32', alignment)))
            part, given = given[:COUNTS[i]], given[COUNTS[i]:]
            layout = dict(how, alignment=alignment) if alignment else dict(how)
            if 'order' in how:
                layout['order'] = [no for no in how['order'] if no < len(part)]
            data = gguf.encode(keys, part, big=big, **layout)
            mountlib.put(path, data)
            self.keys.append([entry for entry in entries(data)[0] if entry.key != RESERVE])
            self.file.append((self.rows(i), data))

    def rows(self, i):
        """What file i is to hold."""
        first = sum(COUNTS[:i])
        return self.want[first:first + COUNTS[i]]

    def check_files(self):
        """Each file holds what it should; one of which nothing was changed is the same, byte for byte."""
        for i, path in enumerate(self.shards):
            data, (rows, before) = mountlib.get(path), self.file[i]
            if rows == self.rows(i) and before is not None:
                self.assertEqual(data, before)
                continue
            model = strict(data)
            self.assertEqual([entry for entry in entries(data)[0] if entry.key != RESERVE], self.keys[i])
            self.assertEqual([(t.name, t.type_id, t.dims, t.data) for t in model.tensors], self.rows(i))
            self.file[i] = self.rows(i), data
        self.assertEqual(sorted(os.listdir(self.folder)), [os.path.basename(path) for path in self.shards])

    def check(self, file=None):
        if file is None:
            self.check_files()
            return
        model = strict(file)
        self.assertEqual([entry.key for entry in entries(file)[0] if entry.key != RESERVE],
                         [entry.key for entry in self.keys[0] if not entry.key.startswith(b'split.')])
        self.assertEqual([(t.name, t.type_id, t.dims, t.data) for t in model.tensors], self.want)

    def check_places(self):
        """offset and shard are those of the files."""
        at = 0
        for i, path in enumerate(self.shards):
            for stored in gguf.read(mountlib.get(path)).tensors:
                name = self.want[at][0].decode()
                at += 1
                self.assertEqual(int(mountlib.get(self.tensor(name, 'offset'))), stored.offset)
                self.assertEqual(mountlib.get(self.tensor(name, 'shard')).decode(), os.path.basename(path) + '\n')

    def play(self, *options, sync=False, verbs=None):
        super().play(*options, sync=sync, verbs=verbs or (
            self.rename, self.replace, self.back, self.values, self.back, self.shape, self.type, self.save,
            self.all_files))

    def all_files(self):
        """A tensor of each, at once."""
        for name in ('last', 'half', 'blocks'):
            data = bytes(byte ^ 1 for byte in self.want[self.at_place(name.encode())][3])
            with open(self.tensor(name, 'raw'), 'r+b', buffering=0) as out:
                out.write(data)
            self.set(name.encode(), data=data)
        yield

    def put_raw(self, name, data, open_with='r+b'):
        with open(self.tensor(name, 'raw'), open_with, buffering=0) as out:
            out.write(data)

    def change(self, name, by=1):
        """Some other bytes, and what is expected from then on."""
        data = bytes(byte ^ by for byte in self.want[self.at_place(name)][3])
        self.put_raw(name.decode(), data)
        self.set(name, data=data)


class Verbs(Split):
    kept = []

    def keep(self):
        at = mountlib.path(f'kept-{len(self.kept)}')
        shutil.copytree(self.folder, at)
        self.kept += [os.path.join(at, os.path.basename(path)) for path in self.shards]

    def test_dialects(self):
        for version, big in itertools.product((2, 3), (False, True)):
            with self.subTest(version=version, big=big):
                self.build(version=version, big=big)
                self.play()
                self.keep()

    def test_layouts(self):
        for layout in samples.LAYOUTS[1:] + ({'alignment': 8}, {'alignment': 4096}):
            with self.subTest(**layout):
                self.build(**layout)
                self.play()
                self.keep()

    def test_strategies(self):
        for how, commit in itertools.product(('auto', 'copy', 'inplace', 'reflink'), ('auto', 'close', 'sync')):
            if how == 'reflink' and not clones(mountlib.folder):
                continue
            with self.subTest(how=how, commit=commit):
                self.build(big=commit == 'close')
                verbs = None
                if how == 'inplace':  # what keeps the data's place
                    verbs = (self.replace, self.values, self.shape, self.back, self.all_files)
                self.play('-o', f'relayout={how},commit={commit}', sync=commit == 'sync', verbs=verbs)
                self.keep()

    def test_zz_another_reader(self):
        """Last: the files that the tests before have left."""
        second_reader.compare_all(self, self.kept)


class Files(Split):
    def test_one_gathering(self):
        """Edits of all files and of keys are accepted, shown, and written by one fsync; what was open
        keeps the bytes that it had."""
        checked = run(GGUFS, '--check', self.model).out
        self.mount('-o', 'commit=sync')
        with open(self.tensor('bytes', 'raw'), 'rb') as old:
            self.change(b'bytes')
            self.change(b'half')
            self.change(b'last')
            os.rename(self.tensor('floats'), self.tensor('numbers'))
            self.set(b'floats', new=b'numbers')
            self.assertEqual(self.names(), [row[0].decode() for row in self.want])
            self.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
            for i, path in enumerate(self.shards):
                self.assertEqual(mountlib.get(path), self.file[i][1])
            self.assertIn('4 edits are not written yet', mountlib.get(os.path.join(self.at, 'info')).decode())
            self.sync()
            self.check()
            self.check_places()
            self.assertEqual(old.read(), bytes(range(15)))
        self.assertEqual(run(GGUFS, '--check', self.shards[2]).out, checked)
        self.assertIn('  read-write\n', mountlib.get(os.path.join(self.at, 'info')).decode())
        self.end()
        self.check()

    def test_names(self):
        """A name passes from one file to another once it is free on the disk."""
        self.mount('-o', 'commit=sync')
        self.raises(errno.ENOTEMPTY, os.rename, self.tensor('half'), self.tensor('last'))
        os.rename(self.tensor('last'), self.tensor('free'))
        self.set(b'last', new=b'free')
        self.raises(errno.EBUSY, os.rename, self.tensor('half'), self.tensor('last'))
        self.assertIn('another file of the model has the new name', self.error('half'))
        os.rename(self.tensor('half'), self.tensor('whole'))  # not that one
        self.set(b'half', new=b'whole')
        os.rename(self.tensor('whole'), self.tensor('half'))  # its own, which is not written either
        self.set(b'whole', new=b'half')
        self.sync()
        self.check()
        os.rename(self.tensor('half'), self.tensor('last'))
        self.set(b'half', new=b'last')
        self.assertIsNone(self.error('last'))
        self.raises(errno.EBUSY, os.rename, self.tensor('blocks'), self.tensor('half'))
        self.end()
        self.check()

    def test_number(self):
        """What changes the number of tensors is refused, with the hint."""
        self.mount('-o', 'commit=close')
        self.raises(errno.EOPNOTSUPP, os.mkdir, self.tensor('new'))
        for name in ('half', 'blocks', 'last'):
            self.raises(errno.EOPNOTSUPP, os.rmdir, self.tensor(name))
            self.assertIn('merge it first', self.error(name))
        self.assertEqual(self.names(), [row[0].decode() for row in self.want])
        self.not_saved('merge it first')

    def test_keys(self):
        """Keys live in the first file; with tensors of others in one gathering."""
        self.mount('-o', 'commit=sync')
        self.change(b'last')
        mountlib.put(os.path.join(self.at, 'metadata/general.name'), b'another\n')
        os.unlink(os.path.join(self.at, 'metadata/last.key'))
        self.sync()
        keys = dict(gguf.read(mountlib.get(self.model)).kv)
        self.assertEqual(keys[b'general.name'], Value('string', b'another'))
        self.assertNotIn(b'last.key', keys)
        data = mountlib.get(self.model)
        self.keys[0] = entries(data)[0]
        self.file[0] = self.rows(0), data
        self.check()
        self.end()
        self.check()

    def test_undo(self):
        """Keys are back; tensors stay as they are."""
        home = unittest.mock.patch.dict(os.environ, XDG_STATE_HOME=mountlib.path('state'))
        before = entries(mountlib.get(self.model))[0]
        with home, mountlib.Mount(self.model, '-o', 'tensors=edit,commit=close') as self.at:
            self.change(b'last')
            os.unlink(os.path.join(self.at, 'metadata/last.key'))
            self.sync()
            done = run(GGUFS, '--undo', self.shards[1])
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.change(b'half')
        data = mountlib.get(self.model)
        self.assertEqual([e for e in entries(data)[0] if e.key != RESERVE], [e for e in before if e.key != RESERVE])
        self.file[0] = (), None
        self.check()

    def test_in_a_folder(self):
        """In a mount of a folder of models."""
        with mountlib.Mount(self.folder, '-o', 'tensors=edit,commit=close') as top:
            self.at = os.path.join(top, 'model.gguf')
            self.change(b'last')
            self.change(b'blocks')
            os.rename(self.tensor('half'), self.tensor('whole'))
            self.set(b'half', new=b'whole')
            self.raises(errno.EOPNOTSUPP, os.mkdir, self.tensor('new'))
            self.check()
            self.check_places()
            done = run('flock', '-n', self.shards[2], 'true')
            self.assertEqual(done.returncode, 1)
        self.check()

    def test_in_a_folder_locked(self):
        """Another process has a file: the first edit is EBUSY, and no other file stays locked."""
        with mountlib.Mount(self.folder, '-o', 'tensors=edit,commit=close') as top:
            self.at = os.path.join(top, 'model.gguf')
            with open(self.shards[1], 'rb') as other:
                fcntl.flock(other, fcntl.LOCK_EX)
                self.raises(errno.EBUSY, self.put_raw, 'last', self.want[4][3])
                self.assertEqual(run('flock', '-n', self.model, 'true').returncode, 0)
            self.change(b'last')
            self.check()

    def test_read_only(self):
        """A file that cannot be edited, or whose folder cannot: nothing is, and the reason names it."""
        other = mountlib.path('elsewhere')
        os.makedirs(other, exist_ok=True)
        hashed = os.path.join(other, 'sha256-' + '0' * 64)
        os.rename(self.shards[1], hashed)
        os.symlink(hashed, self.shards[1])
        with mountlib.Mount(self.shards[2], '-o', 'tensors=edit') as at:
            why = os.getxattr(at, 'user.gguf.readonly').decode()
            self.assertIn(f'shard {os.path.basename(self.shards[1])}: ', why)
            self.assertIn('its name is a hash', why)
            self.raises(errno.EROFS, open, os.path.join(at, 'tensors/half/raw'), 'r+b')
            with mountlib.Mount(self.model) as second:  # keys can be edited: it holds no lock
                self.assertNotIn('user.gguf.readonly', os.listxattr(second))
        os.unlink(self.shards[1])
        os.rename(hashed, self.shards[1])
        self.check()

    @unittest.skipIf(os.geteuid() == 0, 'root may write everything')
    def test_not_permitted(self):
        """A file, or the folder of a file, that this user may not write: read-only, which is reported at once."""
        os.chmod(self.shards[1], 0o444)
        mount = mountlib.Foreground(self.model, '-o', 'tensors=edit')
        with mount as (at, _):
            self.assertIn(f'shard {os.path.basename(self.shards[1])}: ', os.getxattr(at, 'user.gguf.readonly').decode())
            self.raises(errno.EROFS, open, os.path.join(at, 'tensors/half/raw'), 'r+b')
            self.assertIn('mounted read-only: shard ', mount.log())
        os.chmod(self.shards[1], 0o644)
        other = mountlib.path('not-writable')
        os.mkdir(other)
        moved = os.path.join(other, 'third.gguf')
        os.rename(self.shards[2], moved)
        os.symlink(moved, self.shards[2])
        os.chmod(other, 0o555)
        with mountlib.Mount(self.model, '-o', 'tensors=edit') as at:
            self.assertIn('its folder is not writable', os.getxattr(at, 'user.gguf.readonly').decode())
        os.chmod(other, 0o755)

    def test_locked(self):
        """Another mount writes all files."""
        self.mount('-o', 'commit=sync')
        self.change(b'last')
        done = run('flock', '-n', self.shards[1], 'true')
        self.assertEqual(done.returncode, 1)
        with mountlib.Mount(self.shards[1], '-o', 'tensors=edit') as at:
            self.assertIn(b'another ggufs', os.getxattr(at, 'user.gguf.readonly'))
        self.end()
        self.check()

    def test_behind(self):
        """A file was replaced behind the mount: ESTALE, for that file alone."""
        self.mount('-o', 'commit=close')
        fresh = mountlib.get(self.shards[1])
        os.rename(mountlib.put(self.shards[1] + '.new', fresh), self.shards[1])
        self.assertIn('the model\'s file changed behind the mount', mountlib.get(os.path.join(self.at, 'info')).decode())
        self.raises(errno.ESTALE, self.put_raw, 'blocks', bytes(204))
        self.change(b'half')
        self.change(b'last')
        self.end()
        self.check()


if __name__ == '__main__':
    mountlib.main()
