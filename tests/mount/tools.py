# SPDX-License-Identifier: MIT
"""Ordinary programs work on the tree and see the right bytes; keys that they copy with extended attributes keep
their types."""
import filecmp
import os
import shutil
import unittest

import ggufmodel as gguf
import mountlib
from editlib import place, sync
from ggufmodel import Value, array
from mountlib import works


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = mountlib.sample()
        cls.mount = mountlib.Mount(cls.source)
        cls.at = cls.mount.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.mount.__exit__(None, None, None)

    def same_tree(self, copy):
        """Check every file's content, and that exactly these files exist."""
        def files(top):
            return sorted(os.path.relpath(os.path.join(folder, name), top)
                          for folder, _, names in os.walk(top) for name in names)
        names = files(self.at)
        self.assertGreater(os.path.getsize(self.at + '/check'), 0)
        self.assertEqual(files(copy), names)
        _, differ, failed = filecmp.cmpfiles(self.at, copy, names, shallow=False)
        self.assertEqual((differ, failed), ([], []))

    COPIES = {'tar': 'mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -', 'rsync': 'rsync -a "$1/" "$2"',
              'cp': 'cp -a "$1" "$2"'}

    def test_copies(self):
        for name, script in self.COPIES.items():
            with self.subTest(name):
                if not shutil.which(name):
                    self.skipTest(f'no {name} here')
                copy = mountlib.path(name)
                works('sh', '-c', script, 'sh', self.at, copy)
                self.same_tree(copy)
                if name == 'rsync':
                    self.assertEqual(works('rsync', '-ai', self.at + '/', copy), '')


BASE = [(b'general.architecture', Value('string', b'llama'))]
# From the text alone, each would get another type or other bytes.
ODD = [(b'odd.u64', Value('u64', 5)), (b'odd.i8', Value('i8', 1)), (b'odd.f64', Value('f64', 0.5)),
       (b'odd.text', Value('string', b'17')), (b'odd.list', array('i16', [1, 2])),
       (b'odd.empty', array('f32', [])), (b'llama.context_length', Value('u64', 7))]
BYTES = [(b'odd.nested', array('array', [array('u8', [1]), array('i64', []), array('f64', [0.5])])),
         (b'odd.bytes', Value('string', b'\xff\xfe')), (b'odd.bool', Value('bool', 7)),
         (b'odd.strings', array('string', [b'\xff', b'']))]
TYPE = 'user.gguf.type'

TAR = 'tar -C "$1" --xattrs -cf "$3/keys.tar" --exclude=./general.architecture . && ' \
      'tar -C "$2" --xattrs -xf "$3/keys.tar"'
COPIES = {'cp': 'cp -a "$1"/. "$2"', 'rsync': 'rsync -aXI "$1"/ "$2"',
         'rsync-inplace': 'rsync -aXI --inplace "$1"/ "$2"', 'tar': TAR}


def tools():
    return {name: text for name, text in COPIES.items() if shutil.which(name.split('-')[0])}


class Attributes(unittest.TestCase):
    def copy(self, text, source, to):
        works('bash', '-c', text, 'bash', source, to, mountlib.folder)

    def keys(self, model):
        return gguf.read(mountlib.get(model)).kv

    def test_new_keys(self):
        """Keys copied from one model to another that has none of them keep their types."""
        source = mountlib.put('source.gguf', gguf.encode(BASE + ODD, []))
        for name, text in tools().items():
            with self.subTest(tool=name), mountlib.Mount(source, '-o', 'ro') as at:
                other = mountlib.put(f'{name}.gguf', gguf.encode(BASE, []))
                with mountlib.Mount(other) as to:
                    self.copy(text, at + '/metadata', to + '/metadata')
                    self.assertEqual({key: os.getxattr(place(to, key), TYPE).decode() for key, _ in ODD},
                                     {key: value.full_type_name() for key, value in ODD})
                self.assertEqual(sorted(self.keys(other)), sorted(BASE + ODD))

    def test_back(self):
        """Keys are copied out and back: every byte is the same, and no file is written."""
        data = gguf.encode(BASE + ODD + BYTES, [])
        for name, text in tools().items():
            model = mountlib.put(f'{name}.gguf', data)
            before = os.stat(model)
            with self.subTest(tool=name), mountlib.Mount(model) as at:
                kept = mountlib.folder_at(f'kept-{name}')
                self.copy(COPIES['cp'], at + '/metadata', kept)
                self.copy(text, kept, at + '/metadata')
                sync(at)
            after = os.stat(model)
            self.assertEqual(mountlib.get(model), data)
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
