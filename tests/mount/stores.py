#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Models on file systems that are not disks: rclone over a local directory, with each of its
caches, and sshfs. If an edit could not be saved, the mount is read-only and says why; nothing is
left behind."""
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
import samples
from mountlib import Foreground

SFTP = '/usr/lib/openssh/sftp-server'


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
    """Return names, contents and times."""
    return {name: (mountlib.get(os.path.join(folder, name)),
                   os.stat(os.path.join(folder, name)).st_mtime_ns) for name in os.listdir(folder)}


class Stores(unittest.TestCase):
    def setUp(self):
        self.store, self.at = mountlib.path('store'), mountlib.path('far')
        os.mkdir(self.store)
        self.model = os.path.join(self.store, 'model.gguf')
        self.far = os.path.join(self.at, 'model.gguf')
        self.data = samples.editable()
        with open(self.model, 'wb') as out:
            out.write(self.data)

    def tearDown(self):
        shutil.rmtree(self.store)

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
            with open(self.model, 'wb') as out:
                out.write(self.data)

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

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_sshfs(self):
        ours, theirs = socket.socketpair()
        with ours, theirs, subprocess.Popen([SFTP], stdin=theirs, stdout=theirs) as server:
            with served(['sshfs', '-f', '-o', 'passive', f':{self.store}', self.at], self.at,
                        stdin=ours, stdout=ours):
                theirs.close()
                why = self.check_mount()
                self.assertIsNone(why)
                self.check_edited(self.at)
            ours.close()
            server.wait(mountlib.LIMIT)
        self.check_edited(self.store)


if __name__ == '__main__':
    mountlib.main()
