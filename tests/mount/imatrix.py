# SPDX-License-Identifier: MIT
"""-o imatrix=FILE: the file weighs conversions and written values, or is refused for a reason."""
import errno
import os
import random
import struct

import ggufmodel as gguf
import mountlib
import numpy as np
import samples
from ggufmodel import Tensor
from mountlib import fails
from tensorcase import Case, f32

F32 = 0
COLUMNS, ROWS, EXPERTS = 256, 6, 3
WEIGHED = ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q2_K', 'Q3_K', 'Q4_K', 'Q5_K', 'Q6_K', 'IQ4_NL', 'IQ4_XS', 'IQ3_XXS', 'IQ3_S',
           'IQ2_S', 'IQ1_M')
NEEDED = ('IQ2_XXS', 'IQ2_XS', 'IQ1_S')
OTHERS = ('Q8_0', 'MXFP4', 'NVFP4', 'Q1_0', 'Q2_0', 'TQ1_0', 'TQ2_0', 'F16', 'BF16')


def sums(seed, count=COLUMNS):
    rng = random.Random(seed)
    return [rng.choice([0, 1, 1, 4, 60]) * rng.random() for _ in range(count)]


def weights(seed, *dims):
    rng = random.Random(seed)
    return f32(*[rng.gauss(0, 0.02) for _ in range(int(np.prod(dims)))])


def matrix(*rows):
    """Return the GGUF format: rows of (name, sums, counts)."""
    made = [tensor for name, values, counts in rows for tensor in (
        Tensor(name + b'.counts', F32, (1, len(counts)), f32(*counts)),
        Tensor(name + b'.in_sum2', F32, (len(values) // len(counts), len(counts)), f32(*values)))]
    return gguf.encode([(b'general.type', gguf.Value('string', b'imatrix'))], made)


def listed(*rows):
    """Return the older format: rows of (name, values, calls)."""
    return struct.pack('<i', len(rows)) + b''.join(
        struct.pack('<i', len(name)) + name + struct.pack('<ii', calls, len(values)) + f32(*values)
        for name, values, calls in rows)


class Imatrix(Case):
    def setUp(self):
        super().setUp()
        self.put(gguf.encode(samples.keys(), [
            Tensor(b'a.weight', F32, (COLUMNS, ROWS), weights(1, COLUMNS, ROWS)),
            Tensor(b'experts', F32, (COLUMNS, 2, EXPERTS), weights(2, COLUMNS, 2, EXPERTS)),
            Tensor(b'without', F32, (COLUMNS, 2), weights(3, COLUMNS, 2)),
            Tensor(b'wrong', F32, (2 * COLUMNS, 2), weights(4, 2 * COLUMNS, 2))]))
        self.good = mountlib.put('good.imatrix', matrix(
            (b'a.weight', sums(1), [2]), (b'experts', sums(2, COLUMNS * EXPERTS), [4, 0, 8]), (b'wrong', sums(3), [1])))
        self.addCleanup(os.unlink, self.good)

    def convert(self, name, kind):
        mountlib.put(self.tensor(name, 'type'), kind + '\n')

    def raw(self, name, kind):
        """Return the bytes after converting from F32 again."""
        self.convert(name, 'F32')
        np.save(self.tensor(name, 'f32.npy'), self.values[name])
        self.convert(name, kind)
        return mountlib.get(self.tensor(name, 'raw'))

    def error(self, name, weight):
        off = np.load(self.tensor(name, 'f32.npy')) - self.values[name]
        return float((weight * off.astype('f8') ** 2).sum())

    def begin(self, *options):
        self.mount(*options)
        self.values = {name: np.load(self.tensor(name, 'f32.npy')) for name in ('a.weight', 'experts', 'without')}

    def test_conversions(self):
        """For a matrix and for experts, the weighed error is smaller, and both formats give the
        same result; without a matrix, results are as before."""
        plain, by, first = {}, {}, mountlib.get(self.model)
        weight = {'a.weight': np.array(sums(1)) / 2,
                  'experts': np.array(sums(2, COLUMNS * EXPERTS)).reshape(EXPERTS, 1, COLUMNS) / np.array([4, 1, 8]).reshape(3, 1, 1)}
        weight['experts'][1] = 1
        self.begin()
        self.assertNotIn('importances:', mountlib.get(self.at + '/info').decode())
        for name in weight:
            for kind in WEIGHED + OTHERS:
                made = self.raw(name, kind)
                plain[name, kind] = made, self.error(name, weight[name])
        for kind in NEEDED:
            fails(errno.EOPNOTSUPP, self.convert, 'without', kind)
        self.assertIn('imatrix=', os.getxattr(self.tensor('without'), 'user.gguf.error').decode())
        self.end()
        old = mountlib.put('old.dat', listed(
            (b'a.weight', sums(1), 2), (b'experts', list(weight['experts'].ravel()), 0)))
        self.addCleanup(os.unlink, old)
        for file in self.good, old:
            self.put(first)
            self.begin('-o', 'imatrix=' + file)
            count = 3 if file == self.good else 2
            self.assertIn(f'importances:     {file}, of {count} tensors\n', mountlib.get(self.at + '/info').decode())
            for name in weight:
                for kind in WEIGHED + NEEDED:
                    made = self.raw(name, kind)
                    if kind in WEIGHED:
                        self.assertNotEqual(made, plain[name, kind][0])
                        self.assertLess(self.error(name, weight[name]), plain[name, kind][1], kind)
                    self.assertEqual(by.setdefault((name, kind), made), made)
                for kind in OTHERS:
                    self.assertEqual(self.raw(name, kind), plain[name, kind][0])
            self.end()

    def test_refused(self):
        """A file that cannot be used is refused by name before the mount, and the model stays
        unchanged."""
        before, at = mountlib.get(self.model), mountlib.folder_at('at')
        cut = mountlib.put('cut', matrix((b'a', sums(1), [1]))[:-100])
        for option, name in (('tensors=edit,imatrix=' + cut, cut), ('tensors=edit,imatrix=/no/such', '/no/such'),
                             ('imatrix=' + self.good, 'tensors=edit'), ('tensors=edit,imatrix=' + self.model, self.model),
                             ('tensors=edit,imatrix=/dev/null', '/dev/null'), ('tensors=edit,imatrix=/', 'imatrix')):
            mountlib.refuses(2, '-o', option, self.model, at, names=[name])
        self.assertEqual(mountlib.get(self.model), before)
