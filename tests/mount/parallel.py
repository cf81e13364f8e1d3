# SPDX-License-Identifier: MIT
"""Many processes at once: writers checked against the expected state, and readers that always see
complete content."""
import contextlib
import json
import multiprocessing
import os
import random
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, opened, place, sync, write
from ggufmodel import Value

SEED = int(os.environ.get('GGUFS_SEED', '0'))  # another seed: other random operations
TIMES = int(os.environ.get('GGUFS_SOAK', '1'))  # multiplies the number of operations
operations = 0

fork = multiprocessing.get_context('fork')


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

    def append(self):
        if not self.keys:
            return
        key, text = self.rng.choice(sorted(self.keys)), b' more'
        with opened(place(self.at, key), os.O_WRONLY | os.O_APPEND) as fd:
            os.write(fd, text)
        self.keys[key] = self.keys[key] + b'\n' + text  # the shown text ends in a newline

    def rename(self):
        if not self.keys:
            return
        old, new = self.rng.choice(sorted(self.keys)), self.name()
        os.rename(place(self.at, old), place(self.at, new))
        self.keys[new] = self.keys.pop(old)

    def rename_open(self):
        """Write, perhaps let the draft be accepted, then rename the file and continue to write."""
        if not self.keys:
            return
        old, new, text = self.rng.choice(sorted(self.keys)), self.name(), self.text()
        with opened(place(self.at, old), os.O_WRONLY | os.O_TRUNC) as fd:
            os.write(fd, text)
            if self.rng.random() < 0.5:
                os.fsync(fd)
            os.rename(place(self.at, old), place(self.at, new))
            os.write(fd, b' and on')
        del self.keys[old]
        self.keys[new] = text + b' and on'

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

    def backup(self):
        """Save like vim: the key becomes its backup and is created again; the backup is removed or
        stays."""
        if not self.keys:
            return
        key, text = self.rng.choice(sorted(self.keys)), self.text()
        os.rename(place(self.at, key), place(self.at, key + '~'))
        write(self.at, key, text)
        if self.rng.random() < 0.7:
            os.unlink(place(self.at, key + '~'))
        self.keys[key] = text

    def look(self):
        mine = f'w{self.number}.k'.encode()
        names = {name.decode() for name in editlib.keys(self.at)
                 if name.startswith(mine) and not name.endswith((b'.tmp', b'~'))}
        assert names == set(self.keys), (names, set(self.keys))
        for key, text in self.keys.items():
            self.shows(key, text)

    def shows(self, key, text):
        shown = editlib.read(self.at, key)
        assert shown == text + b'\n', (key, shown, text)
        assert os.stat(place(self.at, key)).st_size == len(shown)

    def run(self, count):
        steps = [self.write] * 5 + [self.append, self.rename_open, self.rename, self.rename, self.replace, self.unlink,
                                    self.unlink, self.backup, self.look, self.look, lambda: sync(self.at)]
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


def in_processes(jobs):
    """Run each (function, arguments) in a process. Returns the results, in order."""
    def child(end, function, arguments):
        end.send(function(*arguments))

    running = []
    for function, arguments in jobs:
        here, there = fork.Pipe(duplex=False)
        process = fork.Process(target=child, args=(there, function, arguments))
        process.start()
        there.close()
        running.append((process, here))
    results = []
    for process, here in running:
        with contextlib.suppress(EOFError):
            results.append(here.recv())
        here.close()
        process.join()
        assert process.exitcode == 0, 'a process has failed'
    return results


class Random(unittest.TestCase):
    def run_them(self, *options, writers=4, readers=8, count=60):
        global operations
        count *= TIMES
        tensors = samples.small(count=4, size=700)
        source = mountlib.put('model.gguf', gguf.encode(samples.keys(), tensors))
        want, datas = Want(mountlib.get(source)), [tensor.data for tensor in tensors]
        with mountlib.Mount(source, *options) as at:
            jobs = [(Writer(at, number, number + 100 * SEED).run, (count,)) for number in range(writers)]
            jobs += [(read_all, (at, count, number + 100 * SEED, datas)) for number in range(readers)]
            kept = in_processes(jobs)[:writers]
        operations += count * len(jobs)
        file = mountlib.get(source)
        self.assertEqual(editlib.leftovers(os.path.dirname(source)), [])
        found = {key.decode(): value.data for key, value in editlib.strict(file).kv
                 if key[:1] == b'w'}
        self.assertEqual(found, {key: text for keys in kept for key, text in keys.items()})
        for key in found:
            want.set(key.encode(), Value('string', found[key]))
        # The order of new keys depends on which was created first.
        self.assertEqual(sorted(e.key for e in editlib.entries(file)[0]),
                         sorted(e.key for e in want.kv))
        want.kv = [entry for entry in want.kv if entry.key[:1] != b'w']
        want.check_tensors(gguf.read(file))
        ours = [entry for entry in editlib.entries(file)[0] if entry.key[:1] != b'w']
        self.assertEqual(ours, want.kv)

    def test_auto(self):
        self.run_them()

    def test_sync(self):
        self.run_them('-o', 'commit=sync', count=100)


def tearDownModule():
    print(f'\nsoak: {operations} operations of readers and writers at once', flush=True)
