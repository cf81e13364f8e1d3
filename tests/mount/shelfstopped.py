#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A folder of models with links and mounts that lead to a file system whose server does not answer: only
who asks for something there waits. The file system is that of a model, under another type."""
import contextlib
import os
import subprocess
import unittest

import editlib
import freeze
import llama
import mountlib
from mountcase import daemon
from mountlib import Mount
from shelflib import A64, B64, LIBRARY, Shelf, manifest

MODELS = 100  # more than are kept open without being used
WAITING = 30  # more than libfuse's threads, and than the kernel's requests ahead of programs


class Stopped(Shelf):
    def setUp(self):
        super().setUp()
        self.model = mountlib.put(self.id().rsplit('.', 1)[-1] + '.model.gguf', llama.image())

    @contextlib.contextmanager
    def far(self, name='far'):
        """A file system at FOLDER/name; gives its server."""
        at = os.path.join(self.top, name)
        os.makedirs(at)
        with Mount(self.model, '-o', 'subtype=far', at=at):
            yield daemon(at)

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
