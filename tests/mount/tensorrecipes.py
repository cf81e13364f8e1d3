#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""docs/tensors.md: its recipes run one after another as printed, output what the page says, and
leave a valid model."""
import contextlib
import os
import struct
import subprocess
import unittest

import ggufmodel as gguf
import mountlib
from editlib import strict
from recipes import RUN, missing, recipes

PAGE = os.path.join(mountlib.SOURCE, 'docs/tensors.md')


def sample(folder):
    """Return the sample, with NaN in a tensor, and another model: the same with other bytes."""
    ours, other = (os.path.join(folder, name) for name in ('sample.gguf', 'other.gguf'))
    subprocess.run([os.path.join(mountlib.SOURCE, 'scripts/make-sample'), ours], check=True, stdout=subprocess.DEVNULL)
    model = gguf.read(mountlib.get(ours))

    def change(name, data):
        return [t._replace(data=data(t.data)) if t.name == name else t for t in model.tensors]

    nan = struct.pack('<3f', float('nan'), float('inf'), float('nan'))
    with open(ours, 'wb') as out:
        out.write(gguf.encode(model.kv, change(b'blk.0.ffn_norm.weight', lambda data: data[:40] + nan + data[52:])))
    with open(other, 'wb') as out:
        out.write(gguf.encode(model.kv, change(b'output_norm.weight', lambda data: bytes(len(data)))))
    return ours, other


@contextlib.contextmanager
def played(test):
    """Return the model's file, and its mount point, after all recipes."""
    folder = mountlib.path('here')
    os.makedirs(folder)
    ours, other = sample(folder)
    for name in ('mnt', 'other'):
        os.mkdir(os.path.join(folder, name))
    with (mountlib.Mount(ours, '-o', 'tensors=edit', at=os.path.join(folder, 'mnt')) as at,
          mountlib.Mount(other, '-o', 'ro', at=os.path.join(folder, 'other'))):
        for language, needs, text, output in recipes(PAGE):
            lacks = missing(language, needs)
            if lacks:
                test.skipTest('no ' + lacks)
            name = os.path.join(folder, 'recipe')
            with open(name, 'w', encoding='utf-8') as file:
                file.write(text)
            done = subprocess.run([*RUN[language], name], cwd=folder, capture_output=True, text=True, check=False,
                                  stdin=subprocess.DEVNULL, env={**os.environ, 'LC_ALL': 'C.UTF-8'}, timeout=mountlib.LIMIT)
            test.assertEqual((done.stdout, done.stderr), (output, ''), text)
        yield ours, at


class Recipes(unittest.TestCase):
    def test_all(self):
        with played(self) as (ours, _):
            pass
        model = strict(mountlib.get(ours))
        self.assertEqual(len(model.tensors), 13)
        done = mountlib.run(mountlib.GGUFS, '--check', ours)
        self.assertEqual([line.partition(': error: ')[2] for line in done.out.splitlines() if ': error: ' in line],
                         ["1 of 13 has a name that no architecture of llama.cpp takes: 'mtp.output.weight' (tensors)"])


if __name__ == '__main__':
    mountlib.main()
