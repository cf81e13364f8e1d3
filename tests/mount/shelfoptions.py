#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Options of a mount apply to each model of a directory; other users have access with
allow_other."""
import errno
import os
import unittest

import editlib
import ggufmodel as gguf
import llama
import mountlib
from mountlib import GGUFS, OTHER, Mount, run
from shelflib import Shelf, shards, value

ROOT = os.getuid() == 0


class Options(Shelf):
    def test_what_is_shown(self):
        """Options for what is shown: views, partial, umask, uid, gid."""
        self.put('m.gguf')
        self.put('cut.gguf', llama.image()[:-1088])
        with Mount(self.top, '-o', 'views=raw') as at:
            tensor = os.listdir(at + '/m.gguf/tensors')[0]
            self.assertEqual(sorted(os.listdir(f'{at}/m.gguf/tensors/{tensor}')), ['raw', 'shape', 'type'])
            self.assertNotIn('model.gguf', os.listdir(at + '/m.gguf'))
        with Mount(self.top, '-o', f'views=all,partial,umask=077,uid={os.getuid()},gid=456') as at:
            self.assertIn('stats.tsv', os.listdir(at + '/m.gguf'))
            self.assertIn(b'Tiny', mountlib.get(at + '/cut.gguf/info'))
            self.assertIn(b'-o partial', os.getxattr(at + '/m.gguf', 'user.gguf.readonly'))
            for name in ('', '/m.gguf', '/m.gguf/metadata'):
                found = os.stat(at + name)
                self.assertEqual((found.st_uid, found.st_gid, found.st_mode & 0o077), (os.getuid(), 456, 0))

    def test_how_it_is_written(self):
        """Options for how edits are written: commit, relayout, reserve, history."""
        path = self.put('m.gguf')
        with Mount(self.top, '-o', 'commit=sync') as at:
            editlib.write(at + '/m.gguf', 'general.name', 'Later')
            self.assertEqual(value(path), b'Tiny')
        self.assertEqual(value(path), b'Later')
        os.link(path, os.path.join(self.top, 'second'))
        with Mount(self.top, '-o', 'commit=close') as at:
            self.refused(errno.EMLINK, editlib.write, at + '/m.gguf', 'general.name', 'Linked')
        os.unlink(os.path.join(self.top, 'second'))
        options = 'commit=close,relayout=copy,reserve=4096,history=0'
        with Mount(self.top, '-o', options) as at:
            editlib.write(at + '/m.gguf', 'general.name', 'Copied')
            self.assertEqual(value(path), b'Copied')
            self.assertIn(editlib.RESERVE, dict(gguf.read(mountlib.get(path)).kv))
            self.assertNotEqual(run(GGUFS, '--undo', at + '/m.gguf').returncode, 0)

    def test_in_place(self):
        """relayout=inplace keeps the file if there is room; relayout=copy makes a new one."""
        paths = [self.put('a.gguf'), self.put('sub/b.gguf')]
        for options, kept in (('relayout=copy,reserve=4096', False), ('relayout=inplace', True)):
            before = [os.stat(path).st_ino for path in paths]
            with Mount(self.top, '-o', 'commit=close,' + options) as at:
                for name in ('a.gguf', 'sub/b.gguf'):
                    editlib.write(os.path.join(at, name), 'general.name', 'New ' + options)
            self.assertEqual([os.stat(path).st_ino for path in paths] == before, kept)
            self.assertEqual([value(path) for path in paths], 2 * [('New ' + options).encode()])

    def test_history(self):
        """With history=1, the last edit of one model can be undone without affecting the others."""
        paths = [self.put('a.gguf'), self.put('b.gguf')]
        with Mount(self.top, '-o', 'commit=close,history=1') as at:
            for name in ('a.gguf', 'b.gguf'):
                for text in ('One', 'Two', 'Three'):
                    editlib.write(os.path.join(at, name), 'general.name', text)
            self.assertEqual(run(GGUFS, '--undo', at + '/b.gguf').returncode, 0)
            self.assertNotEqual(run(GGUFS, '--undo=5', at + '/b.gguf').returncode, 0)
            self.assertEqual([value(path) for path in paths], [b'Three', b'Two'])

    def test_tensors(self):
        path, other = self.put('m.gguf'), self.put('other.gguf')
        with Mount(self.top, '-o', 'tensors=edit,commit=close') as at:
            folder = at + '/m.gguf/tensors/'
            tensor = os.listdir(folder)[0]
            os.rename(folder + tensor, folder + 'another.weight')
            editlib.sync(at + '/m.gguf', 'tensors')
            for name in ('', '/raw'):
                self.refused(errno.EXDEV, os.rename, folder + 'another.weight' + name,
                             f'{at}/other.gguf/tensors/{tensor}{name}')
        self.assertEqual(mountlib.get(other), llama.image())
        self.assertIn(b'another.weight', [t.name for t in gguf.read(mountlib.get(path)).tensors])

    def test_how_it_is_served(self):
        """Options for how the mount is served: -s, threads, readahead, names for mount(8)."""
        self.put('m.gguf')
        for options in (['-s'], ['-o', 'max_threads=2,max_idle_threads=1,clone_fd'], ['-o', 'readahead=256'],
                        ['-o', 'auto_unmount'], ['-o', 'fsname=models,subtype=other'], ['-o', 'nofail,x-y=z']):
            with self.subTest(options=options), Mount(self.top, *options) as at:
                self.assertIn(b'Tiny', mountlib.get(at + '/m.gguf/info'))
                if 'fsname' in options[-1]:
                    self.assertEqual(mountlib.mount_of(at)[1:3], ('fuse.other', b'models'))

    def test_idle(self):
        self.put('m.gguf')
        with Mount(self.top, '-o', 'idle=1') as at:
            self.assertIn(b'Tiny', mountlib.get(at + '/m.gguf/info'))
            editlib.until(lambda: not mountlib.mount_of(at))


@unittest.skipUnless(ROOT, 'only root can be another user')
class Others(Shelf):
    def setUp(self):
        super().setUp()
        os.chmod(mountlib.folder, 0o755)

    def seen(self, path):
        """Return the files that another user can read there, or None."""
        done = run(*mountlib.as_other('cat', path))
        return done.out if done.returncode == 0 else None

    def test_allow_other(self):
        self.put('m.gguf')
        os.chmod(self.put('private.gguf'), 0o600)
        self.put('secret/s.gguf')
        os.chmod(os.path.join(self.top, 'secret'), 0o700)
        for i, data in enumerate(shards()):
            self.put(f'blobs/{i}', data)
            self.link(f's-0000{i + 1}-of-00002.gguf', f'blobs/{i}')
        with Mount(self.top, '-o', 'allow_other') as at:
            for name in ('m.gguf', 's.gguf'):
                self.assertIn('Tiny', self.seen(f'{at}/{name}/info') or '', name)
            for name in ('private.gguf/info', 'secret/s.gguf/info', 'private.gguf/metadata/general.name'):
                self.assertIsNone(self.seen(f'{at}/{name}'), name)
            done = run(*mountlib.as_other('sh', '-c', f'echo x > {at}/m.gguf/metadata/general.name'))
            self.assertNotEqual(done.returncode, 0)
        os.lchown(os.path.join(self.top, 's-00002-of-00002.gguf'), OTHER, OTHER)
        with Mount(self.top, '-o', 'allow_other') as at:
            self.assertEqual(self.seen(at + '/s.gguf/error'), 'shard s-00002-of-00002.gguf: Permission denied\n')
        for options in ([], ['-o', 'allow_root']):  # only for the mounting user, and root
            with Mount(self.top, *options) as at:
                self.assertIsNone(self.seen(at + '/m.gguf/info'))
                self.assertIn(b'Tiny', mountlib.get(at + '/m.gguf/info'))


if __name__ == '__main__':
    mountlib.main(others=True)
