# SPDX-License-Identifier: MIT
"""Encoded values compared with ggml's own quantisers (in node-llama-cpp; see llama_cpp.py), with
values that are in no golden table."""
import ctypes
import glob
import os
import unittest

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from ggufmodel import Tensor
from tensorcase import Case

F32 = 0
ROWS, COLUMNS = 6, 1024
FOUND = glob.glob(os.path.join(os.environ.get('GGUFS_LLAMA_CPP', ''), '@node-llama-cpp/*/bins/*/libggml-base.so'))
# Types searched with importances. Without them the result is identical to the last bit, as for the
# types that ignore importances.
SEARCHED = ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS')
POINTS = ('IQ3_XXS', 'IQ3_S')  # for IQ2_S and IQ1 ggml prepares 18 seconds: golden data has their figures
NEEDED = ('IQ2_XXS', 'IQ2_XS')
FIXED = ('Q8_0', 'MXFP4', 'NVFP4', 'TQ1_0', 'TQ2_0', 'Q1_0', 'Q2_0')
ID = {name: type_id for type_id, (name, *_) in gguf.GEOMETRY.items()}


def values(kind, rng):
    if kind == 'even':
        return rng.uniform(-0.1, 0.1, (ROWS, COLUMNS)).astype('f4')
    made = rng.normal(0, 0.02, (ROWS, COLUMNS))
    return (made * np.where(rng.random(COLUMNS) < 0.02, 9, 1) if kind == 'outliers' else made).astype('f4')


def importances(rng):
    """Return squares, as of activations; some columns are never used."""
    return (rng.standard_cauchy(COLUMNS) ** 2 * (rng.random(COLUMNS) > 0.03)).clip(0, 1e4).astype('f4')


def error(found, want, weight):
    return (weight * (found.astype('f8') - want) ** 2).sum() ** 0.5 / (weight * want.astype('f8') ** 2).sum() ** 0.5


@unittest.skipUnless(FOUND, 'no node-llama-cpp in GGUFS_LLAMA_CPP')
class Quantisers(Case):
    def setUp(self):
        super().setUp()
        try:
            ggml = ctypes.CDLL(FOUND[0])
        except OSError as fault:
            self.skipTest(str(fault))
        self.ggml = ggml.ggml_quantize_chunk
        self.ggml.restype = ctypes.c_size_t
        self.ggml.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [ctypes.c_void_p]
        rng = np.random.default_rng(2026)
        self.values, self.weight = {}, {}
        for kind in 'even', 'bell', 'outliers':
            for name in SEARCHED + POINTS + NEEDED + FIXED:
                self.values[kind, name], self.weight[kind, name] = values(kind, rng), importances(rng)
        self.put(gguf.encode(samples.keys(), [
            Tensor('.'.join(place).encode(), F32, (COLUMNS, ROWS), made.tobytes()) for place, made in self.values.items()]))
        self.matrix = mountlib.put('it.imatrix', gguf.encode([], [
            tensor for place, weight in self.weight.items() for tensor in (
                Tensor('.'.join(place).encode() + b'.counts', F32, (1,), np.float32(1).tobytes()),
                Tensor('.'.join(place).encode() + b'.in_sum2', F32, (COLUMNS,), weight.tobytes()))]))
        self.addCleanup(os.unlink, self.matrix)

    def encoded(self, place, weight):
        """Return ggml's encoding."""
        name, made = place[1], np.zeros(ROWS * COLUMNS * 2, 'u1')
        n = self.ggml(ID[name], self.values[place].ctypes.data, made.ctypes.data, 0, ROWS, COLUMNS,
                      None if weight is None else weight.ctypes.data)
        return made[:n].tobytes()

    def ratio(self, place, weight=None):
        """Return our error relative to ggml's, and whether the bytes are the same."""
        at, want = '.'.join(place), self.values[place]
        mountlib.put(self.tensor(at, 'type'), place[1].encode() + b'\n')
        ours, theirs = mountlib.get(self.tensor(at, 'raw')), self.encoded(place, weight)
        errors = [error(np.load(self.tensor(at, 'f32.npy')), want, 1 if weight is None else weight)]
        mountlib.put(self.tensor(at, 'raw'), theirs)
        errors.append(error(np.load(self.tensor(at, 'f32.npy')), want, 1 if weight is None else weight))
        return errors[0] / errors[1], ours == theirs

    def kinds(self, name):
        return [place for place in self.values if place[1] == name]

    def test_with(self):
        self.mount('-o', 'imatrix=' + self.matrix)
        for name in SEARCHED + POINTS + NEEDED:
            found = [self.ratio(place, self.weight[place])[0] for place in self.kinds(name)]
            print(name, *(f'{ratio:.3f}' for ratio in found))
            self.assertLess(max(found), 1.01, name)
            if name not in SEARCHED:
                self.assertLess(sum(found) / len(found), 0.96, name)
        for name in FIXED:
            for place in self.kinds(name):
                self.assertTrue(self.ratio(place)[1], place)

    def test_without(self):
        self.mount()
        for name in SEARCHED + FIXED:
            for place in self.kinds(name):
                self.assertTrue(self.ratio(place)[1], place)
        for name in POINTS:
            self.assertLess(max(self.ratio(place)[0] for place in self.kinds(name)), 1.01, name)
