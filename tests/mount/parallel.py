# SPDX-License-Identifier: MIT
"""Many processes at once: writers checked against the expected state, and readers that always see
complete content."""
import contextlib
import json
import multiprocessing
import os
import random
import unittest
from concurrent.futures import ProcessPoolExecutor

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, place, sync, write
from ggufmodel import Value

SEED = int(os.environ.get('GGUFS_SEED', '0'))  # another seed: other random operations
TIMES = int(os.environ.get('GGUFS_SOAK', '1'))  # multiplies the number of operations
WRITERS, READERS = 4, 8
operations = 0

FORK = multiprocessing.get_context('fork')


class Writer:
    """Owns the keys w<number>.*: no other process writes them, so their content is known."""

    def __init__(self, at, number, seed):
        self.at, self.number, self.rng, self.keys = at, number, random.Random(seed), {}

    def name(self):
        return f'w{self.number}.k{self.rng.randrange(6)}'

    def text(self):
        return ('text ' + chr(97 + self.rng.randrange(26)) * self.rng.choice((0, 1, 30, 3000))).encode()

    def write(self):
        key, text = self.name(), self.text()
        write(self.at, key, text, fsync=self.rng.random() < 0.2, piece=self.rng.choice((7, 100, 9999)))
        self.keys[key] = text

    def rename(self):
        if not self.keys:
            return
        old, new = self.rng.choice(sorted(self.keys)), self.name()
        os.rename(place(self.at, old), place(self.at, new))
        self.keys[new] = self.keys.pop(old)

    def replace(self):
        """Replace like sed -i."""
        key, text = self.name(), self.text()
        source = key + '.tmp' if key in self.keys else f'.sed{self.number:03}abc'
        write(self.at, source, text)
        os.rename(place(self.at, source), place(self.at, key))
        self.keys[key] = text

    def unlink(self):
        if not self.keys:
            return
        key = self.rng.choice(sorted(self.keys))
        os.unlink(place(self.at, key))
        del self.keys[key]

    def look(self):
        mine = f'w{self.number}.k'.encode()
        names = [name.decode() for name in editlib.keys(self.at) if name.startswith(mine) and not name.endswith(b'.tmp')]
        assert sorted(names) == sorted(self.keys), (names, self.keys)
        for key, text in self.keys.items():
            shown = editlib.read(self.at, key)
            assert shown == text + b'\n', (key, shown, text)
            assert os.stat(place(self.at, key)).st_size == len(shown)

    def run(self, count):
        steps = [self.write] * 5 + [self.rename, self.rename, self.replace, self.unlink, self.unlink, self.look, self.look,
                                    lambda: sync(self.at)]
        for _ in range(count):
            self.rng.choice(steps)()
        self.look()
        return self.keys


def read_all(at, count, seed, tensors):
    """Read files: opened content is complete, whatever others write meanwhile."""
    rng = random.Random(seed)

    def model():
        file = mountlib.get(os.path.join(at, 'model.gguf'))
        assert [tensor.data for tensor in editlib.strict(file).tensors] == tensors

    def metadata():
        json.loads(mountlib.get(os.path.join(at, 'metadata.json')))

    def info():
        mountlib.get(os.path.join(at, 'info'))
        os.statvfs(at)

    def keys():
        for name in editlib.keys(at):
            with contextlib.suppress(FileNotFoundError):
                os.stat(place(at, name))
                editlib.read(at, name)
                os.listxattr(place(at, name))

    def tensor():
        for i, data in enumerate(tensors):
            folder = place(at, b'%c.weight' % (97 + i), 'tensors')
            assert mountlib.get(os.path.join(folder, b'raw')) == data
            assert os.path.getsize(os.path.join(folder, b'f32')) == 2 * len(data)
            int(mountlib.get(os.path.join(folder, b'offset')))

    for _ in range(count):
        rng.choice((model, metadata, info, keys, tensor))()


class Random(unittest.TestCase):
    def run_them(self, *options, count=60):
        global operations
        count *= TIMES
        tensors = samples.small(count=4, size=700)
        source = mountlib.put('model.gguf', gguf.encode(samples.keys(), tensors))
        want, datas = Want(mountlib.get(source)), [tensor.data for tensor in tensors]
        with mountlib.Mount(source, *options) as at:
            with ProcessPoolExecutor(WRITERS + READERS, mp_context=FORK) as pool:
                jobs = [pool.submit(Writer(at, number, number + 100 * SEED).run, count) for number in range(WRITERS)]
                jobs += [pool.submit(read_all, at, count, number + 100 * SEED, datas) for number in range(READERS)]
                kept = [job.result() for job in jobs][:WRITERS]
        operations += count * len(jobs)
        file = mountlib.get(source)
        self.assertEqual(editlib.leftovers(os.path.dirname(source)), [])
        # The order of new keys depends on which was created first.
        found = [key for key, _ in editlib.strict(file).kv if key[:1] == b'w']
        texts = {key: text for keys in kept for key, text in keys.items()}
        self.assertEqual(sorted(found), sorted(key.encode() for key in texts))
        for key in found:
            want.set(key, Value('string', texts[key.decode()]))
        want.check(file)

    def test_auto(self):
        self.run_them()

    def test_sync(self):
        self.run_them('-o', 'commit=sync', count=100)


def tearDownModule():
    print(f'\nsoak: {operations} operations of readers and writers at once', flush=True)
