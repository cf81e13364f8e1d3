#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A directory of models with links and mounts that lead to a file system whose server does not
answer: a program waits only if it accesses something there, or lists a directory with entries that
cannot be classified without access to it. The file system is that of a model, under another
type."""
import contextlib
import errno
import os
import shutil
import socket
import subprocess
import unittest

import editlib
import freeze
import llama
import mountlib
from mountcase import daemon
from mountlib import Foreground, Mount
from shelflib import A64, B64, COMMIT, LIBRARY, OTHER, Shelf, manifest, value
from stores import SFTP, served

MODELS = 100  # more than are kept open while unused
CLOSING = 20  # more than are closed at a time
WAITING = 30  # more than libfuse's threads, and than the kernel's read-ahead requests


class Stopped(Shelf):
    def setUp(self):
        super().setUp()
        self.model = mountlib.put(self.id().rsplit('.', 1)[-1] + '.model.gguf', llama.image())

    @contextlib.contextmanager
    def far(self, name='far', what=None):
        """Mount a file system at `FOLDER/name`. Returns its server, which gets more requests if it
        serves a directory."""
        at = os.path.join(self.top, name)
        os.makedirs(at)
        with Mount(what or self.model, '-o', 'subtype=far', at=at):
            yield daemon(at)

    @contextlib.contextmanager
    def waiting(self, server, *commands):
        """For the duration of the block, the commands wait for the server. Not even a signal ends
        them before it continues."""
        with contextlib.ExitStack() as stack:
            with freeze.stopped(server):
                running = [stack.enter_context(subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) for command in commands]
                editlib.until(lambda: all(freeze.in_request(process.pid) for process in running))
                yield
                for process in running:
                    self.assertIsNone(process.poll(), process.args)
                    process.kill()

    def look(self, at, names):
        """Check that the directory is listed, and its own model can be read."""
        with os.scandir(at) as found:
            self.assertEqual(sorted(entry.name for entry in found if entry.is_dir()), sorted(names))
        self.near(at)

    def near(self, at, model='near.gguf'):
        self.assertIn(b'Tiny', mountlib.get(f'{at}/{model}/info'))

    def test_links(self):
        """If links may lead to a directory, a model or a text, the listing waits, but other entries
        can be read."""
        self.put('near.gguf')
        self.link('folder', 'far/metadata')
        self.link('text', 'far/info')
        self.link('sha256-' + A64, 'far/model.gguf')
        self.link('model.gguf', 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at:
            with self.waiting(server, ['ls', at]):
                self.near(at)
            self.look(at, ['far', 'folder', 'model.gguf', 'near.gguf', 'sha256-' + A64])

    def test_models(self):
        """A name that is certainly a model is listed."""
        self.put('near.gguf')
        self.link('model.gguf', 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at, freeze.stopped(server):
            self.look(at, ['far', 'model.gguf', 'near.gguf'])

    def test_stores(self):
        """Mounts and links may be parts of a store."""
        self.put('near.gguf')
        self.link('blobs', 'models--it/tensors')
        with self.far('models--it') as server, Mount(self.top) as at, freeze.stopped(server):
            self.near(at)

    def test_repositories(self):
        """One repository of an organisation is on the other disk, and so is one behind a link. The
        name of another begins with the same letters."""
        for name in ('it-2', 'near'):
            self.put(f'models--me--{name}/snapshots/{COMMIT}/near.gguf')
        self.link('models--me--a', 'models--me--it')
        with self.far('models--me--it') as server, Mount(self.top) as at, freeze.stopped(server):
            self.look(at + '/me/near', ['near.gguf'])
            self.look(at + '/me/it-2', ['near.gguf'])

    def test_mounting(self):
        """A store is mounted while a part of it is on the other disk."""
        self.put('hub/models--me--near/snapshots/' + COMMIT + '/near.gguf')
        self.link('hub/models--it', '../far')
        self.put(f'ollama/{LIBRARY}/near/1k', manifest(('model', A64)))
        self.put('ollama/blobs/sha256-' + A64)
        for folder, far, model in (('hub', 'far', 'me/near/near.gguf'),
                                   ('ollama', f'ollama/{LIBRARY}/far', 'near:1k/model')):
            with self.subTest(far), self.far(far) as server, freeze.stopped(server):
                with Mount(os.path.join(self.top, folder)) as at:
                    self.near(at, model)

    def test_blobs(self):
        """The blobs of an ollama store are on another disk."""
        self.put(LIBRARY + '/tiny/1k', manifest(('model', A64), ('template', B64)))
        self.link('blobs', 'far')
        with self.far() as server, Mount(self.top) as at:
            with freeze.stopped(server):
                self.assertEqual(os.listdir(at), ['tiny:1k'])

    def test_manifests(self):
        """In an ollama store, the listing waits for a namespace, another host, one model's
        directory."""
        self.put(LIBRARY + '/near/1k', manifest(('model', A64)))
        self.put('blobs/sha256-' + A64)
        space, host = os.path.dirname(LIBRARY) + '/me', 'manifests/host.example'
        for name, shown in ((space, 'me'), (host, 'host.example')):
            with self.subTest(name), self.far(name) as server, Mount(self.top) as at:
                with freeze.stopped(server):
                    self.assertEqual(sorted(os.listdir(at)), sorted([shown, 'near:1k']))
                    self.near(at, 'near:1k/model')
            os.rmdir(os.path.join(self.top, name))
        with self.far(LIBRARY + '/far') as server, Mount(self.top) as at, self.waiting(server, ['ls', at]):
            self.near(at, 'near:1k/model')

    def test_revision(self):
        """One revision of a cache is on the other disk, but not the one shown under the name."""
        snapshots = 'models--me--it/snapshots/'
        self.put(snapshots + COMMIT + '/near.gguf')
        self.put('models--me--it/refs/main', COMMIT.encode())
        folder = mountlib.path('folder')
        os.mkdir(folder)
        with self.far(snapshots + OTHER, folder) as server, Mount(self.top) as at:
            with freeze.stopped(server):
                self.assertEqual(sorted(os.listdir(at + '/me')), ['it', 'it@' + OTHER])
                self.look(at + '/me/it', ['near.gguf'])

    def test_many_wait(self):
        """Any number of programs may wait for the other disk."""
        self.put('near.gguf')
        names = [f'{i}.gguf' for i in range(WAITING)]
        for name in names:
            self.link(name, 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at:
            with self.waiting(server, *[['stat', f'{at}/{name}'] for name in names]):
                self.look(at, ['far', 'near.gguf'] + names)

    def test_many_read(self):
        """Any number of programs may read data of an open model on the other disk."""
        self.put('near.gguf')
        self.link('model.gguf', 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at:
            path = at + '/model.gguf/model.gguf'
            with open(path, 'rb'), self.waiting(server, *[['cat', path] for _ in range(WAITING)]):
                self.look(at, ['far', 'model.gguf', 'near.gguf'])

    @contextlib.contextmanager
    def ended(self, *command):
        """For the duration of the block, the command has ended a mount in which a program waited
        for the other disk. Accepted edits of other models are written, and the program has an
        error."""
        mount = Foreground(self.top, '-o', 'commit=sync')
        with mount as (at, process):  # checks the exit status
            text = ' '.join(command)
            editlib.write(at + '/near.gguf', 'general.name', text)
            with freeze.stopped(daemon(self.top + '/far')):
                with subprocess.Popen(['stat', at + '/far/1.gguf'], stderr=subprocess.DEVNULL) as program:
                    editlib.until(lambda: freeze.in_request(program.pid) and freeze.in_request(process.pid))
                    mountlib.run(*(word.format(pid=process.pid, at=at) for word in command))
                    editlib.until(lambda: value(self.top + '/near.gguf') == text.encode())
                self.assertEqual(program.returncode, 1)
                yield at
            process.wait(mountlib.LIMIT)
            self.assertEqual(mount.log().count('has not returned'), 1, mount.log())

    def test_signals(self):
        """The mount is removed."""
        self.put('near.gguf')
        with self.far():
            for name in ('TERM', 'INT', 'HUP'):
                with self.subTest(name), self.ended('kill', '-' + name, '{pid}') as at:
                    editlib.until(lambda at=at: not mountlib.mount_of(at))
                    self.assertEqual(os.listdir(at), [])

    @unittest.skipIf(os.getuid() != 0, 'for root only')
    def test_force(self):
        """The mount stays, because it is in use."""
        self.put('near.gguf')
        with self.far(), self.ended('umount', '-f', '{at}') as at:
            self.refused(errno.ENOTCONN, os.listdir, at)
            mountlib.run('umount', '-l', at)

    @contextlib.contextmanager
    def sshfs(self, store):
        """Mount a directory at `FOLDER/far` by sshfs, whose close(2) waits for it. Returns the
        process of sshfs."""
        near, far = socket.socketpair()
        with near, far, subprocess.Popen([SFTP], stdin=far, stdout=far) as server:
            far.close()
            with served(['sshfs', '-f', '-o', 'passive', ':' + store, self.top + '/far'],
                        self.top + '/far', stdin=near, stdout=near) as process:
                near.close()
                yield process.pid
            server.wait(mountlib.LIMIT)

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_closing(self):
        """Models on the other disk go out of use as many others are opened; closing them hangs, and
        others that are closed after them can be opened again."""
        store = mountlib.path('store')
        os.mkdir(store)
        for i in range(CLOSING):
            self.put(f'{store}/far{i}.gguf')
        for i in range(MODELS):
            self.put(f'near{i}.gguf')
        with self.sshfs(store) as server, Mount(self.top) as at:
            for i in range(CLOSING):
                self.near(at, f'far/far{i}.gguf')
            with freeze.stopped(server):
                for i in (*range(MODELS), *range(MODELS)):
                    self.near(at, f'near{i}.gguf')
            for i in range(CLOSING):
                self.near(at, f'far/far{i}.gguf')


if __name__ == '__main__':
    mountlib.main()
