#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""ggufs --check: lines, JSON, exit status; and `check` at the root of the mount."""
import glob
import json
import os
import shutil
import struct
import unittest

import ggufmodel as gguf
import mountlib
from ggufmodel import Tensor, Value
from llama import F32, NAME, image, keys, tensors
from mountlib import GGUFS, Mount, run

def check(*arguments):
    return run(GGUFS, *arguments)


class Check(unittest.TestCase):
    def file(self, data, name=NAME):
        os.makedirs(mountlib.path('models'), exist_ok=True)
        return mountlib.put('models/' + name, data)

    def finds(self, status, *parts, data, name=NAME, option='--check'):
        """Exit status and one line that has all the parts (none: no line)."""
        model = self.file(data, name)
        done = check(option, model)
        self.assertEqual(done.returncode, status, done.out + done.err)
        self.assertEqual(done.err, '')
        self.assertEqual(len(done.out.splitlines()), 1 if parts else 0, done.out)
        for part in parts:
            self.assertIn(part, done.out)
        if parts:
            self.assertTrue(done.out.startswith(model + ': '), done.out)
        return done.out

    def test_clean(self):
        self.finds(0, data=image())
        self.finds(0, data=image(), option='--check=full')

    def test_note_is_clean(self):
        extra = tensors() + [Tensor(b'rope_freqs.weight', F32, (3,), bytes(12))]
        self.finds(0, 'note: ', "(tensor 'rope_freqs.weight')", data=gguf.encode(keys(), extra))

    def test_findings(self):
        self.finds(1, 'warning: 8 bytes behind the data (bytes ',
                   data=image(how={'trailing': b'\1' * 8}))
        self.finds(1, 'error: is u64, must be u32 (key \'general.file_type\')',
                   data=image(general__file_type=Value('u64', 7)))
        self.finds(1, 'error: the key llama.context_length must be there (metadata)',
                   data=image(llama__context_length=None))
        self.finds(1, 'warning: ', 'the name would be Tiny-1.2K-v1.0-Q8_0.gguf',
                   '(file name)', data=image(), name='model.gguf')

    def test_unusable(self):
        data = image()
        self.finds(2, 'error: ', "'GGUX' is not 'GGUF'", data=b'GGUX' + data[4:])
        self.finds(2, 'error: 1088 bytes are missing', data=data[:-1088])
        self.finds(2, 'error: ', data=b'')

    def test_goes_on(self):
        """Structure is at fault in two tensors, and keys are looked at all the same."""
        data = bytearray(image(llama__context_length=None))
        where = data.index(b'blk.0.attn_q.weight') + 19 + 4 + 16 + 4
        struct.pack_into('<Q', data, where, 8)
        done = check('--check', self.file(bytes(data)))
        self.assertEqual(done.returncode, 2)
        self.assertIn('8 is not a multiple of the alignment of 32 (tensor 1 ', done.out)
        self.assertIn('inside that of tensor 0', done.out)
        self.assertIn('llama.context_length must be there', done.out)

    def test_no_file(self):
        for path in (mountlib.path('nothing.gguf'), mountlib.folder):
            done = check('--check', path)
            self.assertEqual(done.returncode, 2)
            self.assertTrue(done.out.startswith(path + ': error: '), done.out)

    def test_worst_counts(self):
        good, odd = self.file(image()), self.file(image(), 'odd.gguf')
        self.assertEqual(check('--check', good, odd).returncode, 1)
        self.assertEqual(check('--check', odd, mountlib.path('nothing.gguf'), good).returncode, 2)

    def test_values(self):
        q8 = bytearray(34 * 32)
        struct.pack_into('<e', q8, 34 * 7, float('inf'))
        self.finds(0, data=image(bytes(q8)))
        line = self.finds(1, 'error: ', "1 blocks have such a scale; the first at element 224 "
                          "(tensor 'blk.0.attn_q.weight')", data=image(bytes(q8)),
                          option='--check=full')
        self.assertIn('32 values are NaN, 0 infinite', line)

    def test_endless_hole(self):
        """A sparse file has a terabyte between its tensors: nobody reads all of it."""
        gap, data = 1 << 40, image()
        start, begin = (tensor.offset for tensor in gguf.read(data).tensors)
        at = data.rindex(struct.pack('<Q', begin - start), 0, start)
        model = self.file(data[:at] + struct.pack('<Q', begin - start + gap) + data[at + 8:begin])
        try:
            with open(model, 'r+b') as file:
                file.seek(begin + gap)
                file.write(data[begin:])
                file.seek(begin + gap // 2)
                file.write(b'\1')
        except OSError:
            self.skipTest('no file of a terabyte here')
        lines = check('--check', model).out
        self.assertIn(f'padding that is not zero, first at byte {begin + gap // 2} (', lines)
        self.assertIn(f'{gap} bytes late: ggml refuses gaps', lines)
        with Mount(model, '-o', 'ro') as at:
            shown = mountlib.get(os.path.join(at, 'check')).decode()
            self.assertEqual(shown, lines.replace(model, NAME))

    def test_folder(self):
        for folder in ('/', os.path.dirname(self.file(image()))):
            done = check('--check', folder)
            self.assertEqual((done.returncode, done.out, done.err),
                             (2, f'{folder}: error: is a folder, not a GGUF file\n', ''))

    def test_options(self):
        model = self.file(image())
        for arguments in (['--check'], ['--check=full', '--json'], ['--check', '--nonsense', model],
                          ['--check=half', model]):
            done = check(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.err.count('\n'), 1, done.err)
            self.assertEqual(done.out, '')
        self.assertEqual(check('--json', '--check', '--', model).returncode, 0)

    def test_json(self):
        odd = self.file(image(llama__context_length=None), 'odd\udcff"name.gguf')
        done = check('--check', '--json', self.file(image()), odd)
        self.assertEqual(done.returncode, 1)
        good, bad = json.loads(done.out)
        self.assertEqual(good['result'], 'clean')
        self.assertEqual(good['findings'], [])
        self.assertEqual(good['name'], {'BaseName': 'Tiny', 'SizeLabel': '1K', 'Version': 'v1.0',
                                        'Encoding': 'Q8_0'})
        self.assertEqual(bad['result'], 'findings')
        self.assertIsNone(bad['name'])
        self.assertEqual((good['shards'], bad['shards']), (0, 0))
        self.assertEqual({f['file'] for f in bad['findings']}, {bad['file']})
        self.assertTrue(bad['file'].endswith('odd\\xff"name.gguf'), bad['file'])
        self.assertEqual([(f['severity'], f['rule']) for f in bad['findings']],
                         [('error', 'required'), ('warning', 'file-name')])
        self.assertEqual(set(bad['findings'][0]), {'severity', 'rule', 'file', 'what', 'where'})

    def test_link(self):
        """The name that is checked is the link's, as in a cache of downloads."""
        blob = self.file(image(), 'blob')
        link = os.path.join(os.path.dirname(blob), 'links', NAME)
        os.mkdir(os.path.dirname(link))
        os.symlink('../blob', link)
        self.assertEqual(check('--check', link).returncode, 0)
        self.assertEqual(check('--check', blob).returncode, 1)
        with Mount(link, '-o', 'ro') as at:
            self.assertEqual(mountlib.get(at + '/check'), b'')
            self.assertIn(f'file:           {NAME}\n', mountlib.get(at + '/info').decode())

    def test_names_are_escaped(self):
        done = check('--check', self.file(image(), 'evil\x1b[31m.gguf'))
        self.assertIn('evil\\x1b[31m.gguf: warning: ', done.out)

    def test_progress(self):
        """On a terminal a bar is drawn and taken away; findings are on standard output."""
        model = self.file(image(bytes(range(34)) * 32))
        status, out, drawn = mountlib.drawn(GGUFS, '--check=full', model)
        self.assertEqual((status, out), (0, ''))
        self.assertIn('%', drawn)
        self.assertTrue(drawn.endswith('\r\x1b[K'), drawn)

    # ---- in the mount ----

    def test_mount(self):
        model = self.file(image(how={'trailing': b'\1' * 8}), 'odd.gguf')
        want = check('--check', model).out.replace(model, 'odd.gguf')
        with Mount(model) as at:
            name = os.path.join(at, 'check')
            self.assertIn('check', os.listdir(at))
            self.assertEqual(os.stat(name).st_size, len(want.encode()))
            self.assertEqual(mountlib.get(name).decode(), want)
            copy = mountlib.path('copy')
            shutil.copyfile(name, copy)
            self.assertEqual(mountlib.get(copy).decode(), want)
            self.assertIn('behind the data', run('cat', name).out)

    def test_mount_follows_edits(self):
        with Mount(self.file(image())) as at:
            name = os.path.join(at, 'check')
            self.assertEqual(mountlib.get(name), b'')
            with open(os.path.join(at, 'metadata/llama.attention.head_count'), 'w') as file:
                file.write('5\n')
            self.assertIn(b'5 heads do not divide an embedding of 32', mountlib.get(name))
            self.assertEqual(os.stat(name).st_size, len(mountlib.get(name)))

    # ---- real vocabularies ----

    def test_vocabularies(self):
        found = glob.glob(os.path.join(mountlib.SHARED, 'models/ggml-vocab-*.gguf'))
        if not found:
            self.skipTest('no shared data')
        for model in found:
            with self.subTest(model=model):
                done = check('--check=full', model)
                self.assertNotIn(': error: ', done.out)
                self.assertEqual(done.out.count('\n'), 1, done.out)
                self.assertIn('(file name)', done.out)


if __name__ == '__main__':
    mountlib.main()
