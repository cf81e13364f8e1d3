# SPDX-License-Identifier: MIT
"""docs/recipes.md and docs/tensors.md: each recipe runs as printed and outputs what the page says,
provided its program is installed; those of tensors leave a valid model."""
import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import unittest

import ggufmodel as gguf
import mountlib
from editlib import strict
from mountlib import GGUFS

BLOCK = re.compile(r'^```(\w+) needs=(\S+)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?', re.M | re.S)
RUN = {'python': [sys.executable], 'sh': ['sh'], 'r': ['Rscript', '--vanilla']}


def page(name):
    return mountlib.get(os.path.join(mountlib.SOURCE, 'docs', name)).decode()


def missing(language, needs, text, folder):
    """Return the first missing requirement: a Python module, a program or a library of this build."""
    for need in needs.split(','):
        if language == 'python':
            found = subprocess.run([sys.executable, '-c', 'import ' + need], stderr=subprocess.DEVNULL, check=False,
                                   cwd='/').returncode == 0
        else:
            found = shutil.which(need)
        if not found:
            return need
    for word, file in ('hashes', 'hashes'), ('heatmap', 'tensors/output.weight/heatmap.png'):
        if word in text and not os.path.exists(os.path.join(folder, 'mnt', file)):
            return 'library for ' + word
    return None


def play(test, text, folder):
    """Run each recipe of a page in a folder, and compare its output. Those that lack something are skipped."""
    path = os.path.dirname(shutil.which(GGUFS)) + ':' + os.environ['PATH']
    env, skipped = {**mountlib.environment(), 'PATH': path, 'LC_ALL': 'C.UTF-8'}, []
    for match in BLOCK.finditer(text):
        language, needs, script, output = match.groups('')
        lacks = missing(language, needs, script, folder)
        if lacks:
            skipped.append(lacks)
            continue
        name = os.path.join(folder, 'recipe')
        mountlib.put(name, script)
        done = subprocess.run([*RUN[language], name], cwd=folder, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, env=env, timeout=mountlib.LIMIT)
        with test.subTest(script):
            test.assertEqual((done.stdout, done.stderr), (output, ''))
    return skipped


def sample(folder):
    """Return the sample, with NaN in a tensor, and another model: the same with other bytes."""
    ours, other = mountlib.sample(os.path.join(folder, 'sample.gguf')), os.path.join(folder, 'other.gguf')
    model = gguf.read(mountlib.get(ours))
    nan = struct.pack('<3f', float('nan'), float('inf'), float('nan'))
    for path, name, change in ((ours, b'blk.0.ffn_norm.weight', lambda data: data[:40] + nan + data[52:]),
                               (other, b'output_norm.weight', lambda data: bytes(len(data)))):
        mountlib.put(path, gguf.encode(model.kv, [t._replace(data=change(t.data)) if t.name == name else t for t in model.tensors]))
    return ours, other


@contextlib.contextmanager
def played(test):
    """Play docs/tensors.md. Yields the model's file, and its mount point, after all recipes."""
    folder = mountlib.path('here')
    for name in ('mnt', 'other'):
        os.makedirs(os.path.join(folder, name))
    ours, other = sample(folder)
    with (mountlib.Mount(ours, '-o', 'tensors=edit', at=os.path.join(folder, 'mnt')) as at,
          mountlib.Mount(other, '-o', 'ro', at=os.path.join(folder, 'other'))):
        if play(test, page('tensors.md'), folder):
            test.skipTest('a program of a recipe is missing')
        yield ours, at


class Recipes(unittest.TestCase):
    def test_recipes(self):
        text = page('recipes.md')
        first = re.search(r'^```\nscripts/run\n(.*?)^```$', text, re.M | re.S)[1]
        os.mkdir(mountlib.path('build'))
        os.symlink(os.path.dirname(shutil.which(GGUFS)), mountlib.path('build/src'))
        os.symlink(os.path.join(mountlib.SOURCE, 'scripts'), mountlib.path('scripts'))
        done = subprocess.run(['sh', '-ec', first + 'pwd'], cwd=mountlib.folder, capture_output=True, text=True,
                              check=False, env={**mountlib.environment(), 'TMPDIR': mountlib.folder})
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        folder = done.stdout.splitlines()[-1]
        print('skipped:', *play(self, text, folder))
        for at in 'mnt', 'other':
            mountlib.unmount(os.path.join(folder, at))

    def test_tensors(self):
        with played(self) as (ours, _):
            pass
        self.assertEqual(len(strict(mountlib.get(ours)).tensors), 13)
        done = mountlib.run(GGUFS, '--check', ours)
        errors = [line for line in done.out.splitlines() if ': error: ' in line]
        self.assertEqual((len(errors), 'mtp.output.weight' in errors[0]), (1, True), done.out)
