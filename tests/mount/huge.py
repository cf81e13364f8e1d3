# SPDX-License-Identifier: MIT
"""A sparse model of a terabyte: 64-bit sizes and offsets, a long listing, a large vocabulary."""
import os
import subprocess
import unittest

import numpy as np

import ggufmodel as gguf
import mountlib
import safetensors_reader as reader

TENSORS, TOKENS = 20000, 1000000
Q4_K = 12


class Huge(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = mountlib.path('huge.gguf')
        subprocess.run([os.path.join(mountlib.SOURCE, 'scripts/make-huge'), cls.source,
                        '--tensors', str(TENSORS), '--tokens', str(TOKENS)], check=True)
        cls.mount = mountlib.Mount(cls.source)
        cls.at = cls.mount.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.mount.__exit__(None, None, None)

    def test_tensors(self):
        names = os.listdir(os.path.join(self.at, 'tensors'))
        self.assertEqual(names, [f'blk.{i}.ffn_up.weight' for i in range(TENSORS)])

    def test_sizes(self):
        whole = os.stat(os.path.join(self.at, 'model.gguf'))
        self.assertEqual(whole.st_size, os.stat(self.source).st_size)
        self.assertGreater(whole.st_size, 1 << 39)

    def test_last_tensor(self):
        """The last tensor ends where the file does, far beyond 32 bits."""
        last = os.path.join(self.at, f'tensors/blk.{TENSORS - 1}.ffn_up.weight')
        dims = [int(dim) for dim in mountlib.get(last + '/shape').split()]
        size = gguf.nbytes(Q4_K, dims)
        self.assertEqual(os.stat(last + '/raw').st_size, size)
        end = int(mountlib.get(last + '/offset')) + size
        self.assertEqual(end + gguf.pad(end, 32), os.stat(self.source).st_size)
        values = np.load(last + '/f32.npy', mmap_mode='r')
        self.assertEqual(values.shape, tuple(dims))
        self.assertEqual(values[-1, -1], 0)

    def test_safetensors(self):
        """Only the header and the last tensor of terabytes are read."""
        with open(os.path.join(self.at, 'model.safetensors'), 'rb', buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            self.assertGreater(size, 1 << 40)
            _, tensors, start = reader.parse(os.pread(file.fileno(), 8 + int.from_bytes(file.read(8), 'little'), 0), size)
            self.assertEqual(len(tensors), TENSORS)
            dtype, _, _, end = list(tensors.values())[-1]
            self.assertEqual((dtype, start + end), ('F32', size))
            self.assertEqual(os.pread(file.fileno(), 8192, size - 4096), bytes(4096))

    def test_tokens(self):
        text = mountlib.get(os.path.join(self.at, 'metadata/tokenizer.ggml.tokens'))
        self.assertEqual(text.count(b'\n'), TOKENS)
        self.assertTrue(text.endswith(b'"tok%07d"\n' % (TOKENS - 1)))
