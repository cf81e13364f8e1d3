# SPDX-License-Identifier: MIT
"""Files computed from tensors: sha256, hashes, stats, stats.tsv, heatmap.png. Their contents are
right, their sizes are known in advance, and other requests do not wait for them."""
import hashlib
import math
import os
import signal
import struct
import subprocess
import sys
import unittest
import urllib.parse
import zlib

import numpy as np

import editlib
import ggufmodel as gguf
import mountlib
import published
import samples
from ggufmodel import Tensor

F32, F16, Q8_0, I8, F64, UNKNOWN = 0, 1, 8, 24, 28, 99
ODD_NAME = b'odd\n\x1b\xff name'


def floats(shape, seed=1):
    return np.random.default_rng(seed).uniform(-3, 2, shape).astype('<f4')


def f32(name, values):
    values = np.asarray(values, '<f4')
    return Tensor(name, F32, tuple(reversed(values.shape)), values.tobytes())


def special():
    values = floats((9, 700), 2)
    values[0, :9] = [0, -0.0, math.nan, math.inf, -math.inf, 1e-45, -1e-45, 0, math.nan]
    values[3, 100:200] = values.max()  # an edge of the last bin
    values[8, 5:9] = 0
    return values


def edges():
    """With mean 0 and deviation 4, every value is an edge."""
    return np.array([-4, 4] * 3000, '<f4')


def outliers():
    """One weight in 40 is among small ones, with dead rows and columns."""
    values = np.random.default_rng(11).normal(0, 0.02, (3, 1100, 70)).astype('<f4')
    values[1, 500:503] = 0
    values[2, :, 9] = 0
    values[1, 7, 33] = 40
    return values


def blocks(count, seed=3):
    """Return Q8_0 with scales of all magnitudes."""
    rng = np.random.default_rng(seed)
    scale = rng.uniform(-2, 2, count).astype('<f2')
    return b''.join(scale[i].tobytes() + rng.integers(-128, 128, 32, 'i1').tobytes() for i in range(count))


def tensors():
    return [f32(b'plain', floats((5, 33))), f32(b'special', special()), f32(b'edges', edges()),
            f32(b'large', floats((1500, 3000), 4)), f32(b'outliers', outliers()), f32(b'cube', floats((3, 4, 50), 5)),
            f32(b'line', floats(5000, 6)), f32(b'wide', floats((2, 70000), 7)),
            f32(b'one', np.float32(7.5).reshape(1)), f32(b'zeros', np.zeros((4, 4))),
            f32(b'none', np.full((3, 3), np.nan)), f32(ODD_NAME, floats(3, 8)),
            Tensor(b'half', F16, (64, 3), floats((3, 64), 9).astype('<f2').tobytes()),
            Tensor(b'quant', Q8_0, (96, 5), blocks(15)),
            Tensor(b'bytes', I8, (7,), np.arange(-3, 4, dtype='i1').tobytes()),
            Tensor(b'double', F64, (3,), np.array([1e300, -2, 3], '<f8').tobytes()),
            Tensor(b'unknown', UNKNOWN, (5,), bytes(64))]


def expected(values):
    """Return the contents of `stats` and `stats.tsv` for float32 values, by name, and the
    additional lines of `stats`."""
    wide = values.astype('f8')
    finite = wide[np.isfinite(wide)]
    want = {'elements': wide.size, 'zeros': int((finite == 0).sum()), 'nan': int(np.isnan(wide).sum()),
            'inf': int(np.isinf(wide).sum())}
    more = {'zero_rows': 0, 'zero_columns': 0, 'beyond_6_std': 0}
    if wide.size:
        rows = wide.reshape(-1, *(wide.shape[-2:] if wide.ndim > 1 else (1, wide.size)))
        more.update(zero_rows=int((rows == 0).all(2).sum()), zero_columns=int((rows == 0).all(1).sum()))
    want.update(dict.fromkeys(('min', 'max', 'mean', 'std', 'absmax'), math.nan))
    more.update(rms=math.nan, kurtosis=math.nan, absmax_at='-')
    if finite.size:
        far, std = finite - finite.mean(), finite.std()
        want.update(min=finite.min(), max=finite.max(), mean=finite.mean(), std=std, absmax=np.abs(finite).max())
        at = np.unravel_index(np.argmax(np.where(np.isfinite(wide), np.abs(wide), -1)), wide.shape)
        more.update(rms=math.sqrt((finite ** 2).mean()), absmax_at=' '.join(map(str, at)),
                    beyond_6_std=int((np.abs(far) > 6 * std).sum()),
                    kurtosis=(far ** 4).mean() / std ** 4 - 3 if std else math.nan)
    return want, more


def close(a, b):
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12)


def png(data):
    """Return rows of (r, g, b), after checking every length and checksum. Uses only the standard
    library."""
    assert data[:8] == b'\x89PNG\r\n\x1a\n'
    at, body = 8, b''
    while at < len(data):
        size, kind = struct.unpack('>I4s', data[at:at + 8])
        chunk = data[at + 8:at + 8 + size]
        assert struct.unpack('>I', data[at + 8 + size:at + 12 + size])[0] == zlib.crc32(kind + chunk)
        if kind == b'IHDR':
            width, height, *kinds = struct.unpack('>IIBBBBB', chunk)
            assert kinds == [8, 2, 0, 0, 0]
        body += chunk if kind == b'IDAT' else b''
        at += 12 + size
    assert kind == b'IEND' and at == len(data)
    rows = np.frombuffer(zlib.decompress(body), 'u1').reshape(height, 1 + 3 * width)
    assert not rows[:, 0].any()
    return rows[:, 1:].reshape(height, width, 3)


def picture(values):
    """Return the expected colours of a picture of the values."""
    grid = values.astype('f8')
    there = np.ones(grid.shape)
    if grid.ndim == 1:
        columns = math.isqrt(max(grid.size - 1, 0)) + 1 if grid.size else 1
        rows = -(-grid.size // columns)
        grid, there = (np.concatenate([a, np.zeros(rows * columns - a.size)]).reshape(rows, columns) for a in (grid, there))
    grid, there = (a.reshape(-1, a.shape[-1]) for a in (grid, there))
    height, width = min(grid.shape[0], 1024), min(grid.shape[1], 1024)
    finite = np.isfinite(grid)

    def blocks_of(a):
        a = np.add.reduceat(a, [i * a.shape[0] // height for i in range(height)], 0)
        return np.add.reduceat(a, [i * a.shape[1] // width for i in range(width)], 1)

    squares, count, broken = blocks_of(np.where(finite, grid, 0) ** 2), blocks_of(there), blocks_of(1.0 - finite) > 0
    with np.errstate(invalid='ignore'):
        pixel = np.sqrt(squares / count).astype('f4').astype('f8')
    bright = np.sort(pixel[(pixel > 0) & ~broken])
    most = bright[(len(bright) - 1) * 999 // 1000] if len(bright) else 0
    ramp = np.array([(0, 0, 4), (87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)])
    place = np.clip(np.nan_to_num(pixel) / most, 0, 1) if most else np.zeros(pixel.shape)
    out = np.stack([np.interp(place, np.linspace(0, 1, 5), ramp[:, i]) for i in range(3)], 2).round()
    out[pixel > 2 * most] = (0, 255, 255)
    out[count == 0] = (128, 128, 128)
    out[broken] = (0, 200, 0)
    return out


class Results(unittest.TestCase):
    """Results are right, and follow the tensors, before and after their edits are written."""

    def content(self, name):
        """Read a file, which must be as long as stat reported before any read."""
        size = os.stat(name).st_size
        data = mountlib.get(name)
        self.assertEqual(len(data), size, name)
        return data

    def right(self, at, file):
        """Check all results of a mount against the tensors' values and bytes. Returns names and hashes."""
        head, *table = self.content(f'{at}/stats.tsv').decode().splitlines()
        hashes, entries = self.content(f'{at}/hashes').decode().splitlines(), os.listdir(os.fsencode(f'{at}/tensors'))
        columns, found = head.split('\t'), []
        self.assertEqual(columns[:4], ['name', 'type', 'elements', 'shape'])
        self.assertEqual((len(table), len(hashes)), (len(entries), len(entries)))
        for entry, line, row in zip(entries, hashes, table):
            folder, row = os.path.join(os.fsencode(at), b'tensors', entry), dict(zip(columns, row.split('\t'), strict=True))
            name = ''.join(chr(c) if 0x20 <= c < 0x7f else f'\\x{c:02x}' for c in urllib.parse.unquote_to_bytes(entry))
            sha = hashlib.sha256(mountlib.get(folder + b'/raw')).hexdigest()
            self.assertEqual(self.content(folder + b'/sha256').decode(), sha + '\n')
            self.assertEqual(line, f'sha256    {sha}  {file}:{name}')
            self.assertEqual((row['name'], row['shape'] + '\n'), (name, mountlib.get(folder + b'/shape').decode()))
            with self.subTest(tensor=name):
                if os.path.exists(folder + b'/f32'):
                    self.computed(folder, np.load(os.fsdecode(folder + b'/f32.npy')), row)
                else:
                    self.assertEqual({row[column] for column in columns[4:]}, {''})
            found.append((entry, sha))
        return found

    def computed(self, folder, values, row):
        """Check `stats`, its row in stats.tsv, and heatmap.png."""
        lines = self.content(folder + b'/stats').decode().splitlines()
        self.assertEqual({len(line) for line in lines[:15]}, {42})
        got = {line.split()[0]: ' '.join(line.split()[1:]) for line in lines[:15]}
        want, more = expected(values)
        self.assertEqual(set(got), {*want, *more})
        for name, value in {**want, **more}.items():
            if isinstance(value, (int, str)):
                self.assertEqual(got[name], str(value), name)
            else:
                self.assertTrue(close(float(got[name]), float(value)), (name, got[name], value))
            if name in want:
                self.assertTrue(close(float(row[name]), float(value)), name)
        self.check_bins(lines[15:], values, float(got['mean']), float(got['std']))
        shown, want = png(self.content(folder + b'/heatmap.png')).astype(int), picture(values)
        self.assertEqual(shown.shape, want.shape)
        self.assertLessEqual(np.abs(shown - want).max(), 1)

    def check_bins(self, lines, values, mean, std):
        finite = values[np.isfinite(values)].astype('f8')
        edges = [float(line.split()[0]) for line in lines]
        self.assertEqual(len(lines), 34)
        self.assertEqual(edges[0], -math.inf)
        if std > 0:
            self.assertEqual(edges[1:], [mean + std * (i - 16) / 4 for i in range(33)])
            count = np.bincount(np.searchsorted(edges, finite, 'right') - 1, minlength=34)
        else:
            count = np.bincount([17] * finite.size, minlength=34)
        for i, line in enumerate(lines):
            _, n, *bar = line.split()
            self.assertEqual(int(n), count[i], i)
            self.assertEqual(bool(bar), int(n) > 0)

    def test_views(self):
        with mountlib.Mount(mountlib.put('made.gguf', gguf.encode(samples.ARCH, tensors())), '-o', 'views=all') as at:
            self.right(at, 'made.gguf')

    def edits(self, at):
        values = floats((5, 33), 20)
        np.save(f'{at}/tensors/plain/f32.npy', values)
        yield values
        with open(f'{at}/tensors/half/raw', 'r+b', buffering=0) as file:
            os.pwrite(file.fileno(), np.float16(-7).tobytes(), 10)
        yield None
        mountlib.put(f'{at}/tensors/wide/type', 'F16\n')
        yield None
        os.rename(f'{at}/tensors/line', f'{at}/tensors/renamed')
        yield None
        mountlib.put(f'{at}/tensors/cube/shape', '50 12\n')
        yield None

    def test_edits(self):
        made = [t for t in tensors() if t.name in (b'plain', b'half', b'wide', b'line', b'cube')]
        for mode in ('sync', 'close'):
            model = mountlib.put('edited.gguf', gguf.encode(samples.ARCH, made))
            with mountlib.Mount(model, '-o', f'tensors=edit,commit={mode},views=all') as at:
                seen = [self.right(at, 'edited.gguf')]
                for values in self.edits(at):
                    if values is not None:
                        self.assertTrue((np.load(f'{at}/tensors/plain/f32.npy') == values).all())
                    seen.append(self.right(at, 'edited.gguf'))
                self.assertEqual(len(set(map(repr, seen))), 5)  # shape matters to neither
            with mountlib.Mount(model, '-o', 'ro,views=all') as at:
                self.assertEqual(self.right(at, 'edited.gguf'), seen[-1])


class Long(unittest.TestCase):
    """On a sparse terabyte, work that would take an hour does not begin unrequested, and can be
    abandoned."""

    def model(self):
        made = [Tensor(b't%d' % i, F32, (1 << 20, 1 << 17), b'') for i in range(2)] + [f32(b'last', floats(9))]
        name = mountlib.path('long.gguf')
        published.write(samples.ARCH, made, name)
        return name

    def test_others_go_on(self):
        """With more waiting readers than serving threads, other readers are served, and all can be
        ended."""
        names = ['stats', 'sha256', 'heatmap.png']
        with mountlib.Mount(self.model(), '-o', 'ro') as at:
            waiting = [subprocess.Popen([sys.executable, '-c', 'import sys; open(sys.argv[1], "rb").read()',
                                         f'{at}/tensors/t{i % 2}/{name}'], stderr=subprocess.DEVNULL)
                       for i in range(5) for name in names]
            waiting.append(subprocess.Popen(['cat', f'{at}/stats.tsv'], stdout=subprocess.DEVNULL))
            editlib.until(lambda: all(editlib.waits(program.pid) for program in waiting))
            self.assertEqual(mountlib.get(f'{at}/tensors/last/type'), b'F32\n')
            for i, program in enumerate(waiting):
                program.send_signal([signal.SIGINT, signal.SIGKILL, signal.SIGTERM][i % 3])
            for program in waiting:
                self.assertNotEqual(program.wait(mountlib.LIMIT), 0)
            self.assertEqual(mountlib.get(f'{at}/tensors/last/type'), b'F32\n')

    def test_unmount(self):
        """When the daemon ends during a computation, waiting readers get an answer."""
        with mountlib.Foreground(self.model(), '-o', 'ro') as (at, process):
            reader = subprocess.Popen(['cat', f'{at}/tensors/t0/stats'], stderr=subprocess.DEVNULL)
            editlib.until(lambda: editlib.waits(reader.pid))
            self.assertEqual(mountlib.get(f'{at}/tensors/last/type'), b'F32\n')
            process.terminate()
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
            self.assertNotEqual(reader.wait(mountlib.LIMIT), 0)
