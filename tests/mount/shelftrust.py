# SPDX-License-Identifier: MIT
"""Other users change a directory of models that root serves to everyone: nothing is shown that the
rights of a file do not give, and nothing hangs."""
import contextlib
import errno
import os
import socket
import stat
import subprocess
import unittest

import editlib
import llama
import mountlib
from disks import new_disk
from mountlib import OTHER, Mount, fails, run, works
from shelflib import A64, COMMIT, LIBRARY, Shelf, listing, manifest, shards

ENTRIES = 1000000
MEMORY = 128 << 20  # for the daemon itself, and for the names
ROUNDS = int(os.environ.get('GGUFS_ROUNDS', '300'))  # of reading
SECRET = llama.image(general__name=llama.text('secret'))

# Reads what it can, as another user, and fails if it has seen the secret. Listing a directory has the
# kernel look its names up anew.
READER = '''
import os, sys
seen = rounds = 0
while rounds < int(sys.argv[1]) or (rounds > 1 and not seen):
    rounds += 1
    for path in sys.argv[2:]:
        try:
            os.listdir(os.path.dirname(path))
        except OSError:
            pass
        for name in 'metadata/general.name', 'info', 'error', 'model.gguf':
            try:
                with open(os.path.join(path, name), 'rb') as file:
                    data = file.read()
            except OSError:
                continue
            seen += 1
            if b'secret' in data:
                sys.exit('the secret was shown')
print(seen)
'''


@contextlib.contextmanager
def exchanging(folder, one, other, user=None):
    """Exchange two names again and again during the block, as that user."""
    program = 'import ctypes, os, sys, time\nlibc = ctypes.CDLL(None)\n' \
              'one, other = (os.fsencode(x) for x in sys.argv[1:])\n' \
              'while True:\n    libc.renameat2(-100, one, -100, other, 2)\n    time.sleep(0.001)\n'
    command = ['/usr/bin/python3', '-c', program, os.path.join(folder, one), os.path.join(folder, other)]
    with subprocess.Popen(mountlib.as_other(*command) if user else command) as process:
        try:
            yield
        finally:
            process.kill()


@unittest.skipUnless(os.getuid() == 0, 'for root only')
class Trust(Shelf):
    def setUp(self):
        super().setUp()
        os.chmod(mountlib.folder, 0o755)
        os.chown(self.top, OTHER, -1)
        self.private = mountlib.folder_at('private')
        os.chmod(self.private, 0o700)
        self.secret = mountlib.put('private/m.gguf', SECRET)
        os.chmod(self.secret, 0o600)

    @contextlib.contextmanager
    def served(self):
        at = mountlib.folder_at('served')
        with Mount(self.top, '-o', 'allow_other', at=at):
            yield at

    def theirs(self, name, target):
        """Make a link that belongs to another user."""
        self.link(name, target)
        os.lchown(os.path.join(self.top, name), OTHER, -1)

    def reads(self, *paths, rounds=1):
        """Return how many files another user could read; none showed the secret."""
        return int(works(*mountlib.as_other('/usr/bin/python3', '-c', READER, str(rounds), *paths)))

    def seen(self, path, command='cat'):
        """Return what another user sees there, or None."""
        done = run(*mountlib.as_other(command, path))
        return done.out if done.returncode == 0 else None

    def lists(self, path):
        return self.seen(path, 'ls')

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

    def test_links(self):
        """A link is followed only if it is root's own and leads to something below the directory."""
        os.chmod(self.private, 0o711)
        os.chmod(self.secret, 0o644)
        self.put('below/m.gguf', SECRET)
        self.put('public.gguf')
        self.theirs('theirs.gguf', 'below/m.gguf')
        self.theirs('folder', self.private)
        self.theirs('root.gguf', self.secret)
        self.link('out.gguf', self.secret)
        self.link('out', self.private)
        self.link('own.gguf', 'public.gguf')
        with self.served() as at:
            self.assertEqual(listing(at), ['below', 'below/m.gguf', 'out.gguf', 'own.gguf', 'public.gguf',
                                           'root.gguf', 'theirs.gguf'])
            for name in ('out', 'root', 'theirs'):
                self.assertEqual(mountlib.get(f'{at}/{name}.gguf/error'), b'Permission denied\n')
            names = ('theirs.gguf', 'folder/m.gguf', 'root.gguf', 'out.gguf', 'out/m.gguf')
            self.assertEqual(self.reads(*(os.path.join(at, name) for name in names)), 3)
            self.assertEqual(self.reads(at + '/own.gguf'), 3)

    def test_swapped_links(self):
        """A model, or its directory, is exchanged for a link to a private one while another user reads
        it."""
        self.put('m.gguf')
        self.put('sub/m.gguf')
        self.theirs('link', self.secret)
        self.theirs('away', self.private)
        with self.served() as at, exchanging(self.top, 'm.gguf', 'link', OTHER), \
                exchanging(self.top, 'sub', 'away', OTHER):
            self.assertGreater(self.reads(at + '/m.gguf', at + '/sub/m.gguf', rounds=ROUNDS), 0)

    def test_replaced(self):
        """A public model is exchanged for a private one, between the moment when it is found and the
        moment when it is opened."""
        self.put('m.gguf')
        os.chmod(self.put('private', SECRET), 0o600)
        with self.served() as at, exchanging(self.top, 'm.gguf', 'private'):
            self.assertGreater(self.reads(at + '/m.gguf', rounds=ROUNDS), 0)

    def test_own_mount(self):
        """Links, a bind mount and a renamed directory that lead into the mount itself are refused."""
        at = mountlib.path('served')
        self.put('m.gguf')
        self.link('into.gguf', at + '/m.gguf/model.gguf')
        self.link('into', at + '/m.gguf')
        self.link('dots.gguf', self.top + '/../served/./m.gguf/model.gguf')
        for name in ('bound', 'deep/bound'):
            os.makedirs(os.path.join(self.top, name))
        with self.served():
            subprocess.run(['mount', '--bind', at, self.top + '/bound'], check=True)
            subprocess.run(['mount', '--bind', at, self.top + '/deep/bound'], check=True)
            try:
                os.rename(self.top + '/deep', self.top + '/other')
                with os.scandir(at) as found:
                    self.assertEqual(sorted(entry.name for entry in found),
                                     ['dots.gguf', 'into.gguf', 'm.gguf', 'other'])
                self.assertEqual(os.listdir(at + '/other'), [])
                for name in ('into', 'bound', 'other/bound'):
                    fails(errno.ENOENT, os.stat, os.path.join(at, name))
                for name in ('into.gguf', 'dots.gguf'):
                    # refused to root as well: without allow_other, a link may lead out
                    self.assertTrue(mountlib.get(f'{at}/{name}/error'))
            finally:
                for name in ('bound', 'other/bound'):
                    subprocess.run(['umount', os.path.join(self.top, name)], check=True)
        with Mount(self.top, at=at):
            for name in ('into.gguf', 'dots.gguf'):
                self.assertEqual(mountlib.get(f'{at}/{name}/error'), b'is in a ggufs mount\n')
            fails(errno.ENOENT, os.stat, at + '/into')

    def test_special_files(self):
        """Only regular files are opened."""
        self.put('m.gguf')
        os.mkfifo(os.path.join(self.top, 'fifo'))
        os.mknod(os.path.join(self.top, 'device'), stat.S_IFCHR | 0o666, os.makedev(240, 4242))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.join(self.top, 'socket'))
            for name in ('fifo', 'device', 'socket'):
                self.link(name + '.gguf', name)
                os.link(os.path.join(self.top, name), os.path.join(self.top, name + '2.gguf'))
            with self.served() as at:
                self.assertEqual(sorted(os.listdir(at)), ['device.gguf', 'fifo.gguf', 'm.gguf', 'socket.gguf'])
                for name in ('fifo', 'device', 'socket'):
                    self.assertEqual(mountlib.get(f'{at}/{name}.gguf/error'), b'is not a regular file\n')
                    fails(errno.ENOENT, os.stat, f'{at}/{name}2.gguf')
        with self.served() as at, exchanging(self.top, 'm.gguf', 'fifo', OTHER):
            self.assertGreater(self.reads(at + '/m.gguf', rounds=ROUNDS), 0)

    def until_refused(self, path):
        """Wait until another user may not search or list a directory, which takes a second."""
        editlib.until(lambda: self.lists(path) is None)

    def test_a_shard_is_made_private(self):
        for i, data in enumerate(shards()):
            self.put(f's-0000{i + 1}-of-00002.gguf', data)
        last = os.path.join(self.top, 's-00002-of-00002.gguf')
        with self.served() as at:
            self.assertIn('metadata', self.lists(at + '/s.gguf'))
            os.chmod(last, 0o600)
            self.until_refused(at + '/s.gguf')
            self.assertEqual(stat.S_IMODE(os.stat(at + '/s.gguf').st_mode), 0o500)
        with self.served() as at:  # not opened yet
            self.assertIsNone(self.lists(at + '/s.gguf'))
            os.chmod(last, 0o644)
            os.chown(last, 0, OTHER)
        with self.served() as at:  # the group of one shard only
            self.assertIsNone(self.lists(at + '/s.gguf'))
            os.chown(last, OTHER, 0)
        with self.served() as at:  # two owners
            self.assertEqual(self.reads(at + '/s.gguf'), 0)
            self.assertTrue(mountlib.get(at + '/s.gguf/info'))

    def test_directories_that_are_left_out(self):
        """What lies in private directories is private, also if the mount does not show them."""
        layer = (('model', A64),)
        self.put(f'hf/models--org--m/blobs/{A64}')
        self.link(f'hf/models--org--m/snapshots/{COMMIT}/m.gguf', f'../../blobs/{A64}')
        self.put(f'ollama/blobs/sha256-{A64}')
        self.put(f'ollama/{LIBRARY}/m/latest', manifest(*layer))
        self.put('sub/deep/m.gguf')
        self.link('linked.gguf', 'sub/deep/m.gguf')
        models = {'hf/org/m/m.gguf': ('', 'snapshots', f'snapshots/{COMMIT}', 'blobs'),
                  'ollama/m:latest/model': ('blobs', 'manifests', LIBRARY, LIBRARY + '/m'),
                  'linked.gguf': ('', 'deep')}
        above = {'hf/org/m/m.gguf': 'hf/models--org--m', 'ollama/m:latest/model': 'ollama',
                 'linked.gguf': 'sub'}
        for model, folders in models.items():
            for folder in folders:
                private = os.path.join(self.top, above[model], folder)
                with self.subTest(private=private), self.served() as at:
                    self.assertIn('Tiny', self.seen(f'{at}/{model}/info') or '')
                    os.chmod(private, 0o700)
                    try:
                        self.until_refused(f'{at}/{model}')
                        self.assertIn(b'Tiny', mountlib.get(f'{at}/{model}/info'))
                    finally:
                        os.chmod(private, 0o755)
        for i, data in enumerate(shards()):
            self.put(f'sub/{i}/s-0000{i + 1}-of-00002.gguf', data)
        os.rename(f'{self.top}/sub/0/s-00001-of-00002.gguf', self.top + '/s-00001-of-00002.gguf')
        self.link('s-00002-of-00002.gguf', 'sub/1/s-00002-of-00002.gguf')
        os.chmod(self.top + '/sub/1', 0o700)
        with self.subTest('shard'), self.served() as at:
            self.assertIsNone(self.lists(at + '/s.gguf'))
        with self.subTest('group'), self.served() as at:  # those who may search it, and no more
            private = self.top + '/ollama/blobs'
            os.chmod(private, 0o710)
            os.chown(private, 0, OTHER)
            self.assertIsNone(self.lists(at + '/ollama/m:latest/model'))
            os.chown(self.top + f'/ollama/blobs/sha256-{A64}', 0, OTHER)
        with self.subTest('group of both'), self.served() as at:
            self.assertIn('metadata', self.lists(at + '/ollama/m:latest/model') or '')

    def test_a_directory_is_replaced(self):
        """Who is in a directory does not see what another one contains that is put in its place."""
        self.put('x/m.gguf')
        with self.served() as at, editlib.opened(at + '/x', os.O_RDONLY | os.O_DIRECTORY) as inside:
            secret = f'/proc/self/fd/{inside}/secret.gguf'
            os.rename(self.top + '/x', self.top + '/old')
            self.put('x/secret.gguf', SECRET)
            fails(errno.ESTALE, os.stat, secret)
            fails(errno.ESTALE, os.listdir, inside)
            self.assertEqual(os.listdir(at + '/x'), ['secret.gguf'])
            fails(errno.ESTALE, os.stat, secret)


class Many(Shelf):
    @unittest.skipIf(mountlib.sanitized('asan', 'tsan'), 'it has memory of its own')
    def test_a_million_entries(self):
        """Names that are not models take memory only for a moment, and models are found."""
        with new_disk('tmpfs') as folder:
            mountlib.put(os.path.join(folder, 'first'), b'')
            with editlib.opened(folder, os.O_RDONLY) as at:
                for i in range(ENTRIES - 1):  # links to a file in memory: the fastest way to make that many names
                    os.link('first', str(i), src_dir_fd=at, dst_dir_fd=at)
            mountlib.put(os.path.join(folder, 'm.gguf'), llama.image())
            with Mount(folder) as at:
                self.assertEqual(os.listdir(at), ['m.gguf'])
                self.assertIn(b'Tiny', mountlib.get(at + '/m.gguf/info'))
                self.assertFalse(os.path.exists(at + '/999'))
                self.assertFalse(os.path.exists(at + '/none.gguf'))
                self.assertLess(mountlib.memory(at), MEMORY)
