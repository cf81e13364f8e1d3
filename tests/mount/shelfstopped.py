#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A folder of models with links and mounts that lead to a file system whose server does not answer: only
who asks for something there waits. The file system is that of a model, under another type."""
import contextlib
import os
import subprocess
import unittest
import unittest.mock

import editlib
import freeze
import llama
import mountlib
from editlib import Gate, needs_gate
from mountcase import daemon
from mountlib import GGUFS, Mount, run
from shelflib import A64, B64, COMMIT, LIBRARY, OTHER, Shelf, manifest, value

MODELS = 100  # more than are kept open without being used
WAITING = 30  # more than libfuse's threads, and than the kernel's requests ahead of programs


class Stopped(Shelf):
    def setUp(self):
        super().setUp()
        self.model = mountlib.put(self.id().rsplit('.', 1)[-1] + '.model.gguf', llama.image())

    @contextlib.contextmanager
    def far(self, name='far', what=None):
        """A file system at FOLDER/name; gives its server, which is asked more often if it serves a folder."""
        at = os.path.join(self.top, name)
        os.makedirs(at)
        with Mount(what or self.model, '-o', 'subtype=far', at=at):
            yield daemon(at)

    @contextlib.contextmanager
    def taking(self, name='far'):
        """The same, whose server takes requests and answers none while the gate that this gives is shut.
        Whoever waits for an answer to a request that was taken cannot be killed."""
        gate, at = Gate(mountlib.path('gate')), os.path.join(self.top, name)
        os.makedirs(at)
        mount = Mount(self.model, '-o', 'subtype=far', at=at)
        with gate.before('GATE_REPLY'):
            mount.__enter__()
        self.addCleanup(mount.__exit__, None)
        self.addCleanup(mountlib.unmount, at, lazy=True)  # those that could not end may be there still
        self.addCleanup(gate.remove)
        gate.shut()
        try:
            yield gate
        finally:
            with contextlib.suppress(OSError):  # nobody asks at the moment
                gate.fd = os.open(gate.name, os.O_WRONLY | os.O_NONBLOCK)
            gate.remove()

    @contextlib.contextmanager
    def waiting(self, server, *commands):
        """These commands wait for the server, as long as that. Not even a signal ends them before it goes on."""
        with contextlib.ExitStack() as stack:
            with freeze.stopped(server):
                running = [stack.enter_context(subprocess.Popen(
                    command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)) for command in commands]
                yield
                for process in running:
                    self.assertIsNone(process.poll(), process.args)
                    process.kill()

    def look(self, at, names):
        """The folder is listed, and its own model can be read."""
        with os.scandir(at) as found:
            self.assertEqual(sorted(entry.name for entry in found if entry.is_dir()), sorted(names))
        self.assertIn(b'Tiny', mountlib.get(at + '/near.gguf/info'))

    def test_links(self):
        """Links to what may be a folder, a model, a text."""
        self.put('near.gguf')
        self.link('folder', 'far/metadata')
        self.link('text', 'far/info')
        self.link('sha256-' + A64, 'far/model.gguf')
        self.link('model.gguf', 'far/model.gguf')
        known = ['far', 'folder', 'model.gguf', 'near.gguf', 'sha256-' + A64]
        with self.far() as server, Mount(self.top) as at:
            with freeze.stopped(server):
                for _ in range(3):
                    self.look(at, known + ['text'])  # it may be a folder
            editlib.until(lambda: 'text' not in os.listdir(at))
            self.look(at, known)

    def test_stores(self):
        """Mounts and links that may be parts of a store."""
        self.put('near.gguf')
        self.link('manifests', 'models--it/metadata')
        self.link('blobs', 'models--it/tensors')
        with self.far('models--it') as server, Mount(self.top) as at:
            with freeze.stopped(server):
                self.assertIn(b'Tiny', mountlib.get(at + '/near.gguf/info'))

    def test_blobs(self):
        """Of a store of ollama the blobs are on another disk."""
        self.put(LIBRARY + '/tiny/1k', manifest(('model', A64), ('template', B64)))
        self.link('blobs', 'far')
        with self.far() as server, Mount(self.top) as at:
            with freeze.stopped(server):
                self.assertEqual(os.listdir(at), ['tiny:1k'])

    def test_manifests(self):
        """In a store of ollama one model's folder, a namespace, another host."""
        self.put(LIBRARY + '/near/1k', manifest(('model', A64)))
        self.put('blobs/sha256-' + A64)
        space, host = os.path.dirname(LIBRARY) + '/me', 'manifests/host.example'
        for name, shown in ((LIBRARY + '/far', []), (space, ['me']), (host, ['host.example'])):
            with self.subTest(name), self.far(name) as server, Mount(self.top) as at:
                with freeze.stopped(server):
                    self.assertEqual(sorted(os.listdir(at)), sorted(shown + ['near:1k']))
                    self.assertIn(b'Tiny', mountlib.get(at + '/near:1k/model/info'))
            os.rmdir(os.path.join(self.top, name))

    def test_library(self):
        """The same, if all that has no host and namespace in its name is there."""
        self.put('manifests/host.example/me/near/1k', manifest(('model', A64)))
        self.put('blobs/sha256-' + A64)
        with self.far(os.path.dirname(LIBRARY)) as server, Mount(self.top) as at:
            with freeze.stopped(server):
                self.assertEqual(os.listdir(at), ['host.example'])
                self.assertIn(b'Tiny', mountlib.get(at + '/host.example/me/near:1k/model/info'))
        with self.far(LIBRARY) as server, Mount(self.top) as at, freeze.stopped(server):
            self.assertEqual(os.listdir(at), ['host.example'])

    def test_revision(self):
        """Of a cache one revision."""
        snapshots = 'models--me--it/snapshots/'
        self.put(snapshots + COMMIT + '/near.gguf')
        folder = mountlib.path('folder')
        os.mkdir(folder)
        with self.far(snapshots + OTHER, folder) as server, Mount(self.top) as at:
            with freeze.stopped(server):
                # The kernel may know the folder's time for a second.
                editlib.until(lambda: sorted(os.listdir(at + '/me')) == ['it', 'it@' + OTHER])
                self.look(at + '/me/it', ['near.gguf'])
            editlib.until(lambda: 'it@' + COMMIT in os.listdir(at + '/me'))  # the newest is shown by the name

    def test_programs(self):
        """--info and --check name what does not answer, and go on."""
        self.put('near.gguf')
        self.link('zlink', 'far/metadata')
        self.link('model.gguf', 'far/model.gguf')
        self.put('models--me--it/snapshots/' + COMMIT + '/near.gguf')
        # What looks for leaks stops all threads, and would wait for the one that waits there.
        more = {'ASAN_OPTIONS': os.environ.get('ASAN_OPTIONS', '') + ':detect_leaks=0'}
        with self.far() as server, freeze.stopped(server), unittest.mock.patch.dict(os.environ, more):
            for option in ('--info', '--check'):
                done = run(GGUFS, option, self.top)
                for name in ('far', 'model.gguf', 'zlink'):
                    self.assertRegex(done.out, f'(?m)^{self.top}/{name}: .*its disk does not answer|'
                                     f'^{name} +error: its disk does not answer')
                self.assertEqual(done.out.count('does not answer'), 3)
                self.assertIn('/near.gguf', done.out)
                self.assertEqual(done.returncode, 1 if option == '--info' else 2)

    @needs_gate
    def test_programs_end(self):
        """They also end, though a thread of theirs cannot."""
        self.put('near.gguf')
        self.link('link.gguf', 'far/model.gguf')
        with self.taking():
            for option, status in (('--info', 1), ('--check', 2)):
                done = run(GGUFS, option, self.top)
                self.assertRegex(done.out, f'(?m)^{self.top}/link.gguf: .*its disk does not answer|'
                                 '^link.gguf +error: its disk does not answer')
                self.assertEqual(done.returncode, status)

    @needs_gate
    def test_unmount_ends(self):
        """The daemon has written everything, and cannot end either."""
        model = self.put('near.gguf')
        self.link('text', 'far/info')
        mount = Mount(self.top, '-o', 'commit=sync')
        with self.taking():
            at = mount.__enter__()
            editlib.write(at + '/near.gguf', 'general.name', 'New')
            self.assertEqual(sorted(os.listdir(at)), ['far', 'near.gguf', 'text'])
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.assertEqual(value(model), b'New')
        mount.__exit__(None)

    def test_many_wait(self):
        """Any number of programs wait there."""
        self.put('near.gguf')
        with self.far() as server, Mount(self.top) as at:
            with self.waiting(server, *[['stat', f'{at}/far/{i}.gguf'] for i in range(WAITING)]):
                self.look(at, ['far', 'near.gguf'])

    def test_many_read(self):
        """The same, of data of a model that is open."""
        self.put('near.gguf')
        self.link('model.gguf', 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at:
            path = at + '/model.gguf/model.gguf'
            with open(path, 'rb'), self.waiting(server, *[['cat', path] for _ in range(WAITING)]):
                self.look(at, ['far', 'model.gguf', 'near.gguf'])

    def test_closing(self):
        """A model there is not in use any more when many others are."""
        for i in range(MODELS):
            self.put(f'near{i}.gguf')
        self.link('model.gguf', 'far/model.gguf')
        with self.far() as server, Mount(self.top) as at:
            self.assertIn(b'Tiny', mountlib.get(at + '/model.gguf/info'))
            with freeze.stopped(server):
                for i in range(MODELS):
                    self.assertIn(b'Tiny', mountlib.get(f'{at}/near{i}.gguf/info'))
            editlib.until(lambda: b'Tiny' in mountlib.get(at + '/model.gguf/info'))


if __name__ == '__main__':
    mountlib.main()
