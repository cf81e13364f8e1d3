# SPDX-License-Identifier: MIT
"""Shared by tests of editing: a model mounted read-write, and what must hold after an edit."""
import os
import shutil
import tempfile
import unittest

import editlib
import ggufmodel as gguf
import mountlib
from ggufmodel import Tensor, Value, array

TEMPLATE = b"{% for m in messages %}\n  {{ m['content'] }}\n{% endfor %}\n"
KV = [(b'general.architecture', Value('string', b'llama')),
      (b'general.name', Value('string', b'old name')),
      (b'llama.block_count', Value('u32', 2)),
      (b'llama.context_length', Value('u64', 2048)),
      (b'general.tags', array('string', [b'one', b'two'])),
      (b'tokenizer.chat_template', Value('string', TEMPLATE)),
      (b'llama.rope.freq_base', Value('f32', 10000.0))]
TENSORS = [Tensor(b'first', 0, (24,), bytes(range(96))),
           Tensor(b'last', 24, (1000,), bytes(b % 251 for b in range(1000)))]
COUNT, LENGTH, NAME = 'llama.block_count', 'llama.context_length', 'general.name'


def replaced(changes, kv=KV):
    """Return the list of keys with other values in their old places, and new keys at the end."""
    known = [key for key, _ in kv]
    return ([(key, changes.get(key.decode(), value)) for key, value in kv]
            + [(key.encode(), value) for key, value in changes.items()
               if key.encode() not in known])


def string(text):
    return Value('string', text.encode())


def shell(script, *arguments):
    done = mountlib.run('bash', '-c', script, 'bash', *arguments)
    return done.out, done.returncode


class Editing(unittest.TestCase):
    """Each test has a model, mounted read-write, in an otherwise empty directory."""

    options = ()

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix='model-', dir=mountlib.folder)
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = mountlib.put(os.path.join(self.folder, 'model.gguf'),
                                  gguf.encode(KV, TENSORS))
        self.mount = mountlib.Mount(self.model, *self.options)
        self.at = self.mount.__enter__()
        self.metadata = os.path.join(self.at, 'metadata')
        self.addCleanup(self.unmount)

    def unmount(self):
        """Unmount lazily: a tool's child may outlive it (rsync's does), and keeps the mount busy until it ends, as does
        a file that a test has open if it fails. The kernel drops releases that the daemon has not yet read: the answer
        to a later request shows that it has read them."""
        if self.mount:
            mount, self.mount = self.mount, None
            os.statvfs(self.at)
            mountlib.unmount(self.at, lazy=True)
            mount.wait(30)
            mount.__exit__(None, None, None)

    def key(self, name):
        return os.path.join(self.metadata, name)

    def text(self, name):
        return mountlib.get(self.key(name))

    def error(self, name):
        return editlib.error_of(self.at, name)

    def state(self):
        """Return a state that changes whenever the model file is written."""
        st = os.stat(self.model)
        return st.st_ino, st.st_mtime_ns, mountlib.get(self.model)

    def marks(self):
        """Return, by name, the properties that do not change for a key that was not written."""
        ret = {entry.name: (entry.inode(), entry.stat().st_ino, entry.stat().st_mtime_ns)
               for entry in os.scandir(self.metadata)}
        self.assertEqual(len({mark[1] for mark in ret.values()}), len(ret))
        return ret

    def assert_file(self, kv):
        """Check that the model has these keys and the old tensors, laid out by the rules (there is
        only one such file), and that no file is left beside it."""
        file = mountlib.get(self.model)
        self.assertEqual(gguf.read(file).kv, kv)
        self.assertTrue(file == gguf.encode(kv, TENSORS))
        self.assertEqual(os.listdir(self.folder), ['model.gguf'])

    def assert_model(self, changes, kv=KV):
        self.assert_file(replaced(changes, kv))

    def assert_listing(self, kv, *helpers):
        keys = [key.decode() for key, _ in kv]
        self.assertEqual(os.listdir(self.metadata)[:len(keys)], keys)
        self.assertEqual(sorted(os.listdir(self.metadata)[len(keys):]), sorted(helpers))
        self.assertEqual(mountlib.get(os.path.join(self.at, 'model.gguf')),
                         gguf.encode(kv, TENSORS))
