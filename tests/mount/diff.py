# SPDX-License-Identifier: MIT
"""ggufs --diff: figures checked against NumPy in double precision; keys, directories and mounts;
wrong use."""
import contextlib
import json
import math
import os
import pty
import random
import shutil
import subprocess
import unittest

import numpy as np

import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Tensor, Value, array
from mountlib import GGUFS, Mount, path, put, run
from samples import ARCH
from tensorcase import f32

F32, F16, Q4_0, Q8_0, Q4_K, Q6_K, I8, I16, I32, I64, F64, BF16, UNKNOWN = 0, 1, 2, 8, 12, 14, 24, 25, 26, 27, 28, 30, 99


def model(name, tensors, kv=(), **how):
    return put(name, gguf.encode(ARCH + list(kv), tensors, **how))


def diff(*arguments, status=1):
    done = run(GGUFS, '--diff', *arguments)
    assert done.returncode == status, (done.returncode, done.out, done.err)
    assert status == 2 or not done.err, done.err
    return done.err if status == 2 else done.out


def as_json(*arguments, status=1):
    found = json.loads(diff('--json', *arguments, status=status))
    assert found['same'] == (status == 0)
    return found


def statuses(rows):
    return [(row['name'], row['status']) for row in rows]


class Figures(unittest.TestCase):
    """Values come from the mount's f32.npy, which other tests compare with references."""

    SHAPE = (4, 3, 512)

    def values(self, at, tensor):
        return np.load(os.path.join(at, 'tensors', tensor.name.decode(), 'f32.npy')).astype('f8').ravel()

    def test_every_pair_of_types(self):
        types = (F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q6_K, I8, I16, I32, I64, F64)
        pairs = [(a, b) for a in types for b in types]
        sides = []
        for which in (0, 1):
            made = {kind: samples.blocks(kind, math.prod(self.SHAPE) // gguf.GEOMETRY[kind][1], which) for kind in types}
            sides.append([Tensor(b'%d.%d' % pair, pair[which], self.SHAPE[::-1], made[pair[which]]) for pair in pairs])
        names = [model(f'pairs-{i}.gguf', side) for i, side in enumerate(sides)]
        found = {row['name']: row for row in as_json(*names)['tensors']}
        with Mount(names[0], '-o', 'ro') as at_a, Mount(names[1], '-o', 'ro') as at_b:
            for a, b in zip(*sides):
                row = found[a.name.decode()]
                x, y = self.values(at_a, a), self.values(at_b, b)
                away = np.abs(x - y)
                want = {'error': math.sqrt(np.sum(away ** 2) / np.sum(x ** 2)),
                        'cosine': np.sum(x * y) / math.sqrt(np.sum(x ** 2)) / math.sqrt(np.sum(y ** 2)),
                        'max': away.max()}
                for key, value in want.items():
                    # A sum of products may cancel, so only the absolute error of the cosine is
                    # small.
                    delta = 1e-9 if key == 'cosine' else 1e-9 * value
                    self.assertAlmostEqual(row[key], value, delta=delta, msg=(row, key))
                self.assertEqual(tuple(row['max_at']), np.unravel_index(away.argmax(), self.SHAPE))
                self.assertEqual(row['values'], np.count_nonzero(away))
                self.assertEqual((row['type_a'], row['type_b']),
                                 (gguf.GEOMETRY[a.type_id][0], gguf.GEOMETRY[b.type_id][0]))

    def test_not_finite(self):
        nan, inf = math.nan, math.inf
        a = model('a.gguf', [Tensor(b't', F32, (8,), f32(nan, nan, inf, inf, 1, 0.0, -inf, 2))])
        b = model('b.gguf', [Tensor(b't', F32, (8,), f32(nan, 1, inf, -inf, 1, -0.0, 5, 4))])
        row, = as_json(a, b)['tensors']
        self.assertEqual([row[k] for k in ('nan_a', 'nan_b', 'inf_a', 'inf_b', 'values', 'max', 'max_at')],
                         [2, 1, 3, 2, 4, 2, [7]])
        self.assertAlmostEqual(row['error'], math.sqrt(4 / 5))
        self.assertIn('NaN 2 and 1, infinite 3 and 2', diff(a, b))
        # A value that is not finite never counts as a small error.
        as_json('--tolerance=9', a, b)

    def test_tolerance(self):
        a = model('a.gguf', [Tensor(b't', F32, (2,), f32(3, 4)), Tensor(b'u', F32, (1,), f32(1))])
        b = model('b.gguf', [Tensor(b't', F32, (2,), f32(3, 4.5)), Tensor(b'u', F32, (1,), f32(1))])
        self.assertEqual(as_json('--tolerance=0.1', a, b, status=0)['tensors'], [])
        self.assertEqual(statuses(as_json('--tolerance=0.0999', a, b)['tensors']), [('t', 'changed')])
        self.assertEqual(statuses(as_json('--json=all', '--tolerance=0.1', a, b, status=0)['tensors']),
                         [('t', 'same'), ('u', 'same')])

    def test_quick(self):
        a = model('a.gguf', [Tensor(b't', F32, (2,), f32(3, 4))])
        b = model('b.gguf', [Tensor(b't', F32, (2,), f32(3, 5))])
        row, = as_json('--quick', a, b)['tensors']
        self.assertNotIn('error', row)
        self.assertIn('~ t  F32  the bytes differ\n', diff('--quick', a, b))


class Tensors(unittest.TestCase):
    def setUp(self):
        rng = random.Random(5)
        self.tensors = [Tensor(b't%d' % i, F32, (9 + i, 5), rng.randbytes(4 * 5 * (9 + i))) for i in range(6)]
        self.a = model('a.gguf', self.tensors)

    def test_same(self):
        """Models are the same whatever their alignment, gaps, place of the data, version and
        shards."""
        align = [(b'general.alignment', Value('u32', 4096))]
        for how in ({'order': [3, 0, 4, 1, 2, 5]}, {'gap': 64}, {'tail': False}, {'trailing': b'x'}, {'version': 2}):
            self.assertIn('tensors: 6 the same', diff(self.a, model('b.gguf', self.tensors, **how), status=0))
        other = model('c.gguf', self.tensors, align, alignment=4096)
        self.assertEqual(as_json(self.a, other)['tensors'], [])
        self.assertEqual(as_json('--ignore=general.*', self.a, other, status=0)['keys'], [])
        for i, data in enumerate(samples.split(ARCH, self.tensors, 2)):
            put(f'split-0000{i + 1}-of-00002.gguf', data)
        for shard in (1, 2):
            self.assertEqual(diff(self.a, path(f'split-0000{shard}-of-00002.gguf'), status=0).splitlines()[2:],
                             ['keys: 1 the same', 'tensors: 6 the same'])

    def test_byte_order(self):
        """Reversed numbers and scales count as the same bytes; differences are measured in the same
        way."""
        rng = np.random.default_rng(3)
        values = rng.standard_normal(64).astype('<f4')
        q8 = b''.join(np.float16(0.5).tobytes() + rng.integers(0, 255, 32, dtype=np.uint8).tobytes() for _ in range(3))
        swapped = b''.join(q8[i:i + 2][::-1] + q8[i + 2:i + 34] for i in range(0, len(q8), 34))
        kv = [(b'a.number', Value('u32', 77)), (b'a.list', array('i16', [1, -2, 3])), (b'a.text', Value('string', b'x')),
              (b'a.nested', array('array', [array('f32', [0.5]), array('string', [b'p', b'q'])]))]
        little = model('little.gguf', [Tensor(b'f', F32, (64,), values.tobytes()), Tensor(b'q', Q8_0, (96,), q8)], kv)
        big = model('big.gguf', [Tensor(b'f', F32, (64,), values.astype('>f4').tobytes()),
                                 Tensor(b'q', Q8_0, (96,), swapped)], kv, big=True)
        self.assertEqual(as_json(little, big, status=0)['keys'], [])
        changed = values.copy()
        changed[3] += np.float32(1)
        big = model('big2.gguf', [Tensor(b'f', F32, (64,), changed.astype('>f4').tobytes()),
                                  Tensor(b'q', Q8_0, (96,), swapped)], kv, big=True)
        row, = as_json(little, big)['tensors']
        self.assertEqual((row['name'], row['max_at'], row['values']), ('f', [3], 1))

    def test_moved(self):
        """Tensors that moved are reported in one line, and are no difference."""
        order = self.tensors[1:5] + self.tensors[:1] + self.tensors[5:]
        found = as_json(self.a, model('b.gguf', order), status=0)
        self.assertEqual(statuses(found['tensors']), [('t0', 'moved')])
        self.assertEqual(diff(self.a, path('b.gguf'), status=0).splitlines()[2:],
                         ['keys: 1 the same', '> tensors in another order: 1, the first is t0',
                          'tensors: 1 moved, 5 the same'])

    def test_renamed(self):
        renamed = [t._replace(name=b'new') if t.name == b't2' else t for t in self.tensors]
        self.assertEqual(statuses(as_json(self.a, model('b.gguf', renamed))['tensors']),
                         [('t2', 'only_a'), ('new', 'only_b')])

    def test_odd(self):
        """Unknown types are compared by their bytes; there are also more than four dimensions,
        empty tensors, and names that need escapes."""
        def odd(name, byte, fill):
            return model(name, [Tensor(b'a/b\n', UNKNOWN, (8,), bytes([byte]) * 32), Tensor(b'deep', I8, (1, 2, 1, 2, 3), fill),
                                Tensor(b'empty', F32, (0, 4), b''), Tensor(b'\xff', I8, (1,), b'x')])
        a, b = odd('a.gguf', 1, bytes(12)), odd('b.gguf', 2, bytes(11) + b'\x05')
        found = as_json(a, b)['tensors']
        self.assertEqual([(r['name'], r['type_a'], r.get('max_at')) for r in found],
                         [('a/b\n', 'unknown:99', None), ('deep', 'I8', [2, 1, 0, 1, 0])])
        self.assertIn('~ a/b\\x0a', diff(a, b))
        self.assertEqual(found[1]['shape_a'], [3, 2, 1, 2, 1])


class Keys(unittest.TestCase):
    def rows(self, before, after, status=1):
        names = [model(n, [], kv) for n, kv in (('a.gguf', before), ('b.gguf', after))]
        return diff(*names, status=status).splitlines()[2:-2]

    def test_rows(self):
        """Keys that one model has, or that differ; the order gets one line for all of them."""
        kv = [(b'a.%d' % i, Value('u8', i)) for i in range(5)]
        moved = kv[2:4] + kv[:2] + kv[4:]
        order = '> keys in another order: 2, the first is a.0'
        for status, before, after, lines in (
                (1, [(b'a.gone', Value('f32', 0.5)), (b'a.size', Value('u32', 5)), (b'a.name', Value('string', b'x\x1b'))],
                 [(b'a.size', Value('u64', 5)), (b'a.name', Value('string', b'y')), (b'a.new', array('i8', [1, 2]))],
                 ['- a.gone (f32): 0.5', '~ a.size: u32 5 -> u64 5', '~ a.name: "x\\u001b" -> "y"', '+ a.new (array[i8]): [1, 2]']),
                (0, kv, moved, [order]),
                (1, kv + [(b'a.gone', Value('u8', 1))], [(b'a.new', Value('u8', 1))] + moved,
                 ['- a.gone (u8): 1', '+ a.new (u8): 1', order]),
                (1, [(b'a.list', array('i32', [1, 2, 3]))], [(b'a.list', array('i32', [1, 5, 3, 4]))],
                 ['~ a.list: [1, 2, 3] -> [1, 5, 3, 4]']),
                (1, [(b'a.list', array('i32', range(20)))], [(b'a.list', array('i32', range(19)))],
                 ['~ a.list: 1 fewer, first at 19: 19'])):
            self.assertEqual(self.rows(before, after, status), lines)

    def test_template(self):
        lines = [f'line {i}' for i in range(30)]
        changed = lines[:10] + ['line ten'] + lines[11:20] + lines[21:]
        self.assertEqual(
            self.rows([(b'a.template', Value('string', '\n'.join(lines).encode()))],
                      [(b'a.template', Value('string', '\n'.join(changed).encode()))]),
            ['~ a.template:', '@@ -8,7 +8,7 @@', ' line 7', ' line 8', ' line 9', '-line 10', '+line ten', ' line 11',
             ' line 12', ' line 13', '@@ -18,7 +18,6 @@', ' line 17', ' line 18', ' line 19', '-line 20', ' line 21',
             ' line 22', ' line 23'])

    def test_arrays(self):
        tokens = [b'tok%d' % i for i in range(256000)]
        changed = list(tokens)
        for i in range(12):
            changed[20000 * i + 7] = b'new%d' % i
        changed += [b'in%d' % i for i in range(5)]
        self.assertEqual(self.rows([(b'a.tokens', array('string', tokens))], [(b'a.tokens', array('string', changed))]),
                         ['~ a.tokens: 12 of 256000 differ, 5 more, first at 7: "tok7" "new0"'])

    def test_many(self):
        """Comparing reversed and changed keys does not take quadratic time."""
        kv = [(b'a.%d' % i, Value('u32', i)) for i in range(100000)]
        names = [model('a.gguf', [], kv), model('b.gguf', [], [(k, Value('u32', v.data + 1)) for k, v in reversed(kv)])]
        self.assertEqual(diff(*names).splitlines()[-2], 'keys: 100000 changed, 1 the same')


class Operands(unittest.TestCase):
    def test_mount(self):
        """Operands may be a mount, including its accepted but unwritten edits, or a model's
        directory in a mount of a directory."""
        a = model('models/sub/m.gguf', [Tensor(b't', F32, (1,), f32(1))], [(b'a.key', Value('u8', 1))])
        copy = path('copy.gguf')
        shutil.copy(a, copy)
        with Mount(a, '-o', 'commit=sync') as at:
            diff(at, copy, status=0)
            mountlib.put(at + '/metadata/a.key', '2')
            self.assertEqual(diff(copy, at).splitlines(),
                             ['--- ' + copy, '+++ ' + at, '~ a.key: 1 -> 2', 'keys: 1 changed, 1 the same', 'tensors: 1 the same'])
        diff(copy, a)
        with Mount(path('models'), '-o', 'ro') as at:
            diff(a, at + '/sub/m.gguf', status=0)
            diff(path('models'), at, status=0)

    def test_folders(self):
        for name, keys in (('one/x.gguf', 1), ('one/sub/y.gguf', 1), ('one/z.gguf', 1), ('two/x.gguf', 1), ('two/sub/y.gguf', 2)):
            model(name, [], [(b'a.key', Value('u8', keys))])
        one, two = path('one'), path('two')
        self.assertEqual(diff(one, two).splitlines(),
                         [f'--- {one}/sub/y.gguf', f'+++ {two}/sub/y.gguf', '~ a.key: 1 -> 2', 'keys: 1 changed, 1 the same',
                          'tensors: 0 the same', 'only in A: z.gguf'])
        found = as_json(one, two)
        self.assertEqual([(m['a'], m['same']) for m in found['models'][:2]], [(f'{one}/sub/y.gguf', False), (f'{one}/x.gguf', True)])
        self.assertEqual(found['models'][2:], [{'name': 'z.gguf', 'status': 'only_a'}])
        put('two/sub/y.gguf', b'no model')
        self.assertIn('two/sub/y.gguf: ', diff(one, two, status=2))

    def test_wrong(self):
        a = model('a.gguf', [])
        for arguments, line in (
                ((a,), 'takes two models, or two directories'),
                ((a, a, a), 'takes two models, or two directories'),
                (('--only=all', a, a), "--only must be keys|tensors, not 'all'"),
                (('--tolerance=x', a, a), '--tolerance=x: must be a number of at least 0'),
                (('--tolerance=-1', a, a), '--tolerance=-1: must be a number'),
                (('--tolerance=', a, a), 'must be a number'),
                (('--quick', '--tolerance=1', a, a), '--quick compares no values'),
                (('--json=some', a, a), "--json must be all, not 'some'"),
                (('--quik', a, a), "did you mean '--quick'?"),
                ((a, path('none.gguf')), 'none.gguf: '),
                ((put('text.gguf', b'text'), a), 'text.gguf: '),
                ((a, mountlib.folder), 'is a directory of models, but the other is a model')):
            mountlib.refuses(2, '--diff', *arguments, names=[line])

    def test_cut(self):
        """A file that is too short is refused; if a file is truncated later, the tensor is
        named."""
        a = model('a.gguf', [Tensor(b'first', I8, (100,), bytes(100)), Tensor(b'last', I8, (1 << 20,), bytes(1 << 20))])
        b = put('b.gguf', mountlib.get(a))
        cut = put('cut.gguf', mountlib.get(a)[:-50])
        self.assertIn('cut.gguf: ', diff(a, cut, status=2))
        with Mount(b, '-o', 'ro') as at:
            os.truncate(b, 600000)
            self.assertEqual(diff(a, at, status=2), f"ggufs: {at}: tensor 'last': cannot be read: Input/output error\n")

    def test_terminal(self):
        """Lines have eighty columns, and colours only on a terminal."""
        rng = np.random.default_rng(4)
        sides = [model(f'{n}.gguf', [Tensor(b'blk.%d.ffn_gate.weight' % i, F32, (256, 4), rng.standard_normal(1024).astype('<f4').tobytes())
                                     for i in range(3)], [(b'general.name', Value('string', n.encode()))]) for n in 'ab']
        shown = {}
        for colour in ('', '1'):
            here, there = pty.openpty()
            with subprocess.Popen([GGUFS, '--diff', *sides], stdout=there, stderr=there,
                                  env={**os.environ, 'TERM': 'xterm', 'NO_COLOR': colour}) as process:
                os.close(there)
                text = b''
                with contextlib.suppress(OSError):
                    while part := os.read(here, 65536):
                        text += part
                os.close(here)
            self.assertEqual(process.returncode, 1)
            shown[colour] = text.decode()
        self.assertIn('\x1b[33m~ general.name: "a" -> "b"\x1b[0m\r\n', shown[''])
        after = shown['1'].split('\r\x1b[K')[-1]
        self.assertNotIn('\x1b', after)
        self.assertLessEqual(max(len(line) for line in after.split('\r\n')[2:]), 80)
        self.assertRegex(after, r'\nF32: 3 tensors, error 1\.4\d*\r\ntensors: 3 changed, 0 the same\r\n$')
