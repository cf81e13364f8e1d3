# SPDX-License-Identifier: MIT
"""Models on file systems that are not disks (docs/remote.md): the requests that ggufs makes to the file
system below it, edits through sshfs and through rclone with each of its caches, and servers that
disappear. If an edit could not be saved, the mount is read-only and says why; nothing is left behind."""
import contextlib
import functools
import http.server
import os
import shutil
import socket
import subprocess
import threading
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import published
import samples
from ggufmodel import Tensor, Value, array
from mountlib import GGUFS, Foreground, Mount, run

SFTP = '/usr/lib/openssh/sftp-server'
SMALL = b'blk.20.attn_norm.weight'
SMALL_SIZE, LARGE_SIZE, TENSORS = 16384, 26214400, 41
MORE = 4 << 20  # allowed traffic besides the header and the tensor


def large(name):
    """Make a model of 1 GB, all holes except its header and a tensor of 16 KiB in the middle. Returns (header's
    size, that tensor's bytes)."""
    kv = [(b'general.architecture', Value('string', b'llama')), (b'general.name', Value('string', b'far')),
          (b'tokenizer.ggml.tokens', array('string', [b'token%d' % i for i in range(50000)]))]
    data = os.urandom(SMALL_SIZE)
    return published.write(kv, [
        Tensor(SMALL, 0, (SMALL_SIZE // 4,), data) if i == 20 else Tensor(b'blk.%d.ffn_up.weight' % i, 0, (LARGE_SIZE // 4,))
        for i in range(TENSORS)], name), data


@contextlib.contextmanager
def served(command, at, **streams):
    """Mount another program's file system on a new directory; yields the program."""
    os.mkdir(at)
    with open(mountlib.path('store.log'), 'wb') as log, \
            subprocess.Popen(command, stderr=log, **streams) as process:
        try:
            editlib.until(lambda: mountlib.mount_of(at) or process.poll() is not None)
            yield process
        finally:
            subprocess.run(['fusermount3', '-u', '-z', at], check=False, stderr=log)
            process.wait(mountlib.LIMIT)
            os.rmdir(at)


def listing(folder):
    return {name: (mountlib.get(os.path.join(folder, name)),
                   os.stat(os.path.join(folder, name)).st_mtime_ns) for name in os.listdir(folder)}


class Case(unittest.TestCase):
    def setUp(self):
        self.store, self.at = mountlib.folder_at('store'), mountlib.path('far')
        self.addCleanup(shutil.rmtree, self.store)
        self.model = os.path.join(self.store, 'model.gguf')
        self.far = os.path.join(self.at, 'model.gguf')


class Remote(Case):
    def look(self, data):
        with Mount(self.far, '-o', 'ro') as at:
            for folder in (at, at + '/metadata', at + '/tensors', f'{at}/tensors/{SMALL.decode()}'):
                for entry in os.scandir(folder):
                    entry.stat()
            self.assertIn(b'far', mountlib.get(at + '/info'))
            self.assertEqual(mountlib.get(f'{at}/tensors/{SMALL.decode()}/f32'), data)
            self.assertEqual(mountlib.get(f'{at}/tensors/{SMALL.decode()}/raw'), data)
            self.assertEqual(mountlib.get(at + '/metadata/general.name'), b'far\n')

    @contextlib.contextmanager
    def counted(self, ahead=None):
        """A file system that counts requests, including those of the kernel for mapped pages and
        for read-ahead of `ahead` KiB. Yields a function that returns the sizes of the requests so
        far."""
        asked = mountlib.path('asked')

        def sizes():
            with open(asked, encoding='ascii') as lines:
                return [int(line.split()[1]) for line in lines]
        with served([os.environ['GGUFS_COUNTED'], self.model, self.at, asked], self.at,
                    stdout=subprocess.DEVNULL):
            if ahead:
                device = os.stat(self.at).st_dev
                name = f'/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb'
                if not os.access(name, os.W_OK):
                    self.skipTest('may not set the readahead')
                mountlib.put(name, str(ahead))
            try:
                yield sizes
            finally:
                os.remove(asked)

    def test_asked(self):
        begin, data = large(self.model)
        for ahead in (None, 1024, 16384):
            with self.subTest(ahead=ahead), self.counted(ahead) as sizes:
                self.look(data)
                self.assertLessEqual(sum(sizes()), begin + SMALL_SIZE + MORE)
                self.assertGreaterEqual(sum(sizes()), begin + SMALL_SIZE)

    def test_asked_in_order(self):
        """A tensor that is read as a whole is transferred once, in large pieces."""
        begin, _ = large(self.model)
        for name in ('raw', 'f32', 'f16', 'sha256', 'stats', 'heatmap.png'):
            for ahead in (None, 16384):
                with self.subTest(name=name, ahead=ahead), self.counted(ahead) as sizes, \
                        Mount(self.far, '-o', 'ro') as at:
                    mountlib.get(f'{at}/tensors/blk.3.ffn_up.weight/{name}')
                    self.assertLessEqual(sum(sizes()), begin + LARGE_SIZE + MORE)
                    self.assertLessEqual(len(sizes()), (begin + LARGE_SIZE) // (64 << 10))

    @contextlib.contextmanager
    def sshfs(self):
        """An sshfs: yields its server."""
        near, far = socket.socketpair()
        with near, far, subprocess.Popen([SFTP], stdin=far, stdout=far) as server:
            far.close()
            try:
                with served(['sshfs', '-f', '-o', 'passive', f':{self.store}', self.at], self.at, stdin=near, stdout=near):
                    near.close()
                    yield server
            finally:
                server.kill()

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_server_gone_while_editing(self):
        """The writing program gets an error, and the old file is complete."""
        data = samples.editable()
        mountlib.put(self.model, data)
        with self.sshfs() as server:
            mount = Foreground(self.far)
            with mount as (at, process):
                self.assertFalse(os.statvfs(at).f_flag & os.ST_RDONLY)
                editlib.write(at, 'general.name', 'before')
                before = mountlib.get(self.model)
                self.assertIn(b'before', before)
                # sshfs renames replaced files that are still open; they disappear when ggufs closes
                # them.
                editlib.until(lambda: os.listdir(self.store) == ['model.gguf'])
                server.kill()
                with self.assertRaises(OSError):
                    editlib.write(at, 'general.name', 'after')
                self.assertEqual(mountlib.get(at + '/metadata/general.name'), b'before\n')
                run(GGUFS, '--unmount', at)
                process.wait(mountlib.LIMIT)
        self.assertEqual(mountlib.get(self.model), before)
        self.assertEqual(os.listdir(self.store), ['model.gguf'])


class Stores(Case):
    def setUp(self):
        super().setUp()
        self.data = samples.editable()
        mountlib.put(self.model, self.data)

    def check_mount(self, *options):
        """Read everything, and edit if possible. Returns the reason if editing is not possible."""
        before = listing(self.store)
        mount = Foreground(self.far, *options)
        with mount as (at, _):
            self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), self.data)
            editlib.until(lambda: 'mounted on' in mount.log())
            if os.statvfs(at).f_flag & os.ST_RDONLY:
                self.assertEqual(listing(self.store), before)
                return os.getxattr(at, 'user.gguf.readonly').decode()
            editlib.write(at, 'general.name', 'TEST')
        return None

    def check_edited(self, folder):
        data = mountlib.get(os.path.join(folder, 'model.gguf'))
        self.assertEqual(dict(gguf.read(data).kv)[b'general.name'].data, b'TEST')
        self.assertEqual(os.listdir(folder), ['model.gguf'])

    REASONS = ("the model's list of extended attributes cannot be reproduced",
               'cannot read a file that is open for writing here')

    @unittest.skipUnless(shutil.which('rclone'), 'no rclone')
    def test_rclone(self):
        """The result depends on the version of rclone: without a cache no edit works; with one,
        attributes may fail. Edits are uploaded, and no other file is there when rclone has
        ended."""
        for cache in ('off', 'minimal', 'writes', 'full'):
            command = ['rclone', 'mount', f':local:{self.store}', self.at, '--config', '/dev/null',
                       '--vfs-cache-mode', cache, '--cache-dir', mountlib.path(cache),
                       '--vfs-write-back', '0s']
            with self.subTest(cache=cache), served(command, self.at):
                for options in ((), ('-o', 'relayout=copy'), ('-o', 'relayout=inplace')):
                    why = self.check_mount(*options)
                    if why is None:
                        self.check_edited(self.at)
                        edited = mountlib.get(self.far)
                        editlib.until(lambda: mountlib.get(self.model) == edited)
                        break
                    self.assertIn(why.split(': ')[0], self.REASONS)
                self.assertEqual(why is None, cache != 'off')
            if cache != 'off':
                self.check_edited(self.store)
            mountlib.put(self.model, self.data)

    @unittest.skipUnless(shutil.which('rclone'), 'no rclone')
    def test_new_models(self):
        """Over HTTP a directory has no times, and rclone shows 1970. Models that appear and
        disappear are noticed."""
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0),
                                                 functools.partial(Quiet, directory=self.store))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        folder = os.path.join(self.store, 'models')
        os.mkdir(folder)
        os.rename(self.model, os.path.join(folder, 'old.gguf'))
        url = f'http://127.0.0.1:{server.server_port}'
        command = ['rclone', 'mount', ':http:', self.at, '--http-url', url, '--config', '/dev/null',
                   '--dir-cache-time', '0', '--attr-timeout', '0']
        with served(command, self.at), \
                Foreground(os.path.join(self.at, 'models')) as (at, _):
            self.assertEqual(os.stat(os.path.join(self.at, 'models')).st_mtime, 0)
            self.assertEqual(os.listdir(at), ['old.gguf'])
            shutil.copy(os.path.join(folder, 'old.gguf'), os.path.join(folder, 'new.gguf'))
            editlib.until(lambda: sorted(os.listdir(at)) == ['new.gguf', 'old.gguf'])
            self.assertTrue(os.path.isdir(os.path.join(at, 'new.gguf/tensors')))
            os.remove(os.path.join(folder, 'old.gguf'))
            editlib.until(lambda: os.listdir(at) == ['new.gguf'])
