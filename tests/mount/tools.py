# SPDX-License-Identifier: MIT
"""Ordinary programs work on the tree and see the right bytes."""
import filecmp
import json
import os
import shutil
import subprocess
import unittest

import ggufmodel as gguf
import mountlib


def output(*command, **options):
    return subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=mountlib.LIMIT, **options).stdout


class Tools(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = mountlib.path('sample.gguf')
        output(os.path.join(mountlib.SOURCE, 'scripts/make-sample'), cls.source)
        cls.model = gguf.read(mountlib.get(cls.source))
        cls.mount = mountlib.Mount(cls.source)
        cls.at = cls.mount.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.mount.__exit__(None, None, None)

    def inside(self, name):
        return os.path.join(self.at, name)

    def same_tree(self, copy):
        """Check every file's content, and that exactly these files exist."""
        def files(top):
            return sorted(os.path.relpath(os.path.join(folder, name), top)
                          for folder, _, names in os.walk(top) for name in names)
        names = files(self.at)
        self.assertGreater(os.path.getsize(self.inside('check')), 0)
        self.assertEqual(files(copy), names)
        _, differ, failed = filecmp.cmpfiles(self.at, copy, names, shallow=False)
        self.assertEqual((differ, failed), ([], []))

    @unittest.skipUnless(shutil.which('jq'), 'no jq here')
    def test_jq(self):
        name = output('jq', '-r', '."general.name".value', self.inside('metadata.json'))
        self.assertEqual(name, b'ggufs sample\n')
        count = output('jq', '."tokenizer.ggml.tokens".value | length',
                       self.inside('metadata.json'))
        self.assertEqual(count, b'512\n')
        shown = json.loads(output('jq', '[.[].nbytes] | add', self.inside('tensors.json')))
        self.assertEqual(shown, sum(len(tensor.data) for tensor in self.model.tensors))

    COPIES = {'tar': 'mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xf -', 'rsync': 'rsync -a "$1/" "$2"',
              'cp': 'cp -a "$1" "$2"'}

    def test_copies(self):
        for name, script in self.COPIES.items():
            with self.subTest(name):
                if not shutil.which(name):
                    self.skipTest(f'no {name} here')
                copy = mountlib.path(name)
                output('sh', '-c', script, 'sh', self.at, copy)
                self.same_tree(copy)
                if name == 'rsync':
                    self.assertEqual(output('rsync', '-ai', self.at + '/', copy), b'')
