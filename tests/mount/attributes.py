# SPDX-License-Identifier: MIT
"""Extended attributes as tools set them: keys copied with them keep their types."""
import os
import shutil
import unittest

import ggufmodel as gguf
import mountlib
from editlib import place, sync
from ggufmodel import Value, array

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
TOOLS = {'cp': 'cp -a "$1"/. "$2"', 'rsync': 'rsync -aXI "$1"/ "$2"',
         'rsync-inplace': 'rsync -aXI --inplace "$1"/ "$2"', 'tar': TAR}


def tools():
    return {name: text for name, text in TOOLS.items() if shutil.which(name.split('-')[0])}


class Attributes(unittest.TestCase):
    def copy(self, text, source, to):
        done = mountlib.run('bash', '-c', text, 'bash', source, to, mountlib.folder)
        self.assertEqual((done.returncode, done.err), (0, ''), text)

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
                kept = mountlib.path(f'kept-{name}')
                os.mkdir(kept)
                self.copy(TOOLS['cp'], at + '/metadata', kept)
                self.copy(text, kept, at + '/metadata')
                sync(at)
            after = os.stat(model)
            self.assertEqual(mountlib.get(model), data)
            self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
