#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Extended attributes as tools set them: keys copied with them keep their types."""
import errno
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
TYPE, ERROR = 'user.gguf.type', 'user.gguf.error'

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

    @unittest.skipUnless(shutil.which('rsync'), 'rsync: not installed')
    def test_rsync_edits(self):
        """A copy of the keys is edited, including their types, and brought back."""
        model = mountlib.put('model.gguf', gguf.encode(BASE + ODD, []))
        kept = mountlib.path('edited')
        os.mkdir(kept)
        with mountlib.Mount(model) as at:
            self.copy(TOOLS['cp'], at + '/metadata', kept)
            for name, text, kind in (('odd.u64', '6\n', b'u8'), ('odd.text', 'eighteen\n', b'string'),
                                     ('odd.f64', '0.25\n', b'f32')):
                with open(os.path.join(kept, name), 'w', encoding='ascii') as file:
                    file.write(text)
                os.setxattr(os.path.join(kept, name), TYPE, kind)
            self.copy('rsync -aXc "$1"/ "$2"', kept, at + '/metadata')
        want = dict(BASE + ODD)
        want.update({b'odd.u64': Value('u8', 6), b'odd.text': Value('string', b'eighteen'),
                     b'odd.f64': Value('f32', 0.25)})
        self.assertEqual(self.keys(model), list(want.items()))

    def test_told_while_it_is_written(self):
        model = mountlib.put('model.gguf', gguf.encode(BASE + ODD, []))
        with mountlib.Mount(model) as at:
            for key, text, kind in ((b'new.key', b'5\n', b'i64'), (b'odd.text', b'18\n', b'u16')):
                with open(place(at, key), 'wb', buffering=0) as file:
                    file.write(text)
                    os.setxattr(place(at, key), TYPE, kind)
                self.assertEqual(os.getxattr(place(at, key), TYPE), kind)
            fd = os.open(place(at, 'odd.i8'), os.O_WRONLY | os.O_TRUNC)
            os.write(fd, b'100\n')
            os.setxattr(place(at, 'odd.i8'), TYPE, b'array[u8]')
            os.close(fd)
            with self.assertRaises(OSError) as caught:  # the value does not fit, so nothing changes
                os.setxattr(place(at, 'odd.text'), TYPE, b'bool')
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        want = dict(BASE + ODD)
        want.update({b'odd.text': Value('u16', 18), b'odd.i8': array('u8', [100]), b'new.key': Value('i64', 5)})
        self.assertEqual(self.keys(model), list(want.items()))

    def test_helpers(self):
        """A helper keeps a type for the key that it becomes; a wrong type is refused at that
        time."""
        model = mountlib.put('model.gguf', gguf.encode(BASE + ODD, []))
        with mountlib.Mount(model) as at:
            def helper(text, kind):
                with open(place(at, '.odd.u64.x'), 'wb') as file:
                    file.write(text)
                self.assertEqual(os.listxattr(place(at, '.odd.u64.x')), [])
                os.setxattr(place(at, '.odd.u64.x'), 'user.gguf.name', b'odd.u64')
                os.setxattr(place(at, '.odd.u64.x'), TYPE, kind)
                self.assertEqual(os.getxattr(place(at, '.odd.u64.x'), TYPE), kind)
            with self.assertRaises(OSError) as caught:
                helper(b'8\n', b'u7')
            self.assertEqual(caught.exception.errno, errno.EINVAL)
            helper(b'300\n', b'u8')
            with self.assertRaises(OSError) as caught:
                os.rename(place(at, '.odd.u64.x'), place(at, 'odd.u64'))
            self.assertEqual(caught.exception.errno, errno.ERANGE)
            self.assertEqual(os.getxattr(place(at, 'odd.u64'), TYPE), b'u64')
            with open(place(at, 'odd.u64'), 'wb') as file:
                file.write(b'301\n')  # the type is still the old one
            os.unlink(place(at, '.odd.u64.x'))
            helper(b'30\n', b'i16')
            os.rename(place(at, '.odd.u64.x'), place(at, 'odd.u64'))
        self.assertEqual(dict(self.keys(model))[b'odd.u64'], Value('i16', 30))

    def test_error(self):
        """user.gguf.error can be removed; no other attribute can."""
        with mountlib.Mount(mountlib.put('model.gguf', gguf.encode(BASE + ODD, []))) as at:
            name = place(at, 'odd.u64')
            with self.assertRaises(OSError):
                with open(name, 'wb', buffering=0) as file:
                    file.write(b'x\n')
            self.assertIn(ERROR, os.listxattr(name))
            os.removexattr(name, ERROR)
            self.assertNotIn(ERROR, os.listxattr(name))
            for attribute, code in ((ERROR, errno.ENODATA), (TYPE, errno.EPERM), ('user.x', errno.ENODATA)):
                with self.assertRaises(OSError) as caught:
                    os.removexattr(name, attribute)
                self.assertEqual(caught.exception.errno, code)

    def test_own_keys(self):
        """Keys that are not editable can be written unchanged, and stay as they are."""
        split = [(b'split.no', Value('u16', 0)), (b'split.count', Value('u16', 1))]
        model = mountlib.put('model.gguf', gguf.encode(BASE + split, []))
        with mountlib.Mount(model) as at:
            self.copy(TOOLS['cp'], at + '/metadata', mountlib.path('.'))
            with open(place(at, 'split.no'), 'wb') as file:
                file.write(b'0\n')
            for text in (b'1\n', b'x\n'):
                with self.subTest(text=text), self.assertRaises(OSError) as caught:
                    with open(place(at, 'split.no'), 'wb', buffering=0) as file:
                        file.write(text)
                if not os.path.exists(place(at, 'split.no')):
                    self.fail('it is gone')
            self.assertEqual(mountlib.get(place(at, 'split.no')), b'0\n')
        self.assertEqual(self.keys(model), BASE + split)


if __name__ == '__main__':
    mountlib.main()
