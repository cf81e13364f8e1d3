#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""docs/recipes.md: each recipe runs as printed and outputs what the page says, provided its program
is installed."""
import os
import re
import shutil
import subprocess
import sys
import unittest

import ggufmodel as gguf
import mountlib

PAGE = os.path.join(mountlib.SOURCE, 'docs/recipes.md')
BLOCK = re.compile(r'^```(\w+) needs=(\S+)\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?', re.M | re.S)
RUN = {'python': [sys.executable], 'sh': ['sh'], 'r': ['Rscript', '--vanilla']}


def missing(language, needs):
    """Return the missing requirements: Python modules or programs."""
    for need in needs.split(','):
        if language == 'python':
            found = subprocess.run([sys.executable, '-c', 'import ' + need], stderr=subprocess.DEVNULL, check=False,
                                   cwd='/').returncode == 0
        else:
            found = shutil.which(need)
        if not found:
            return need
    return None


def recipes(page):
    """Return language, requirements, text and output of each recipe of a page."""
    with open(page, encoding='utf-8') as file:
        return [match.groups('') for match in BLOCK.finditer(file.read())]


class Recipes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = mountlib.path('here')
        os.makedirs(cls.folder)
        sample, other = (os.path.join(cls.folder, name) for name in ('sample.gguf', 'other.gguf'))
        subprocess.run([os.path.join(mountlib.SOURCE, 'scripts/make-sample'), sample], check=True,
                       stdout=subprocess.DEVNULL)
        model = gguf.read(mountlib.get(sample))
        kv = [(key, value._replace(data=b'another') if key == b'general.name' else value) for key, value in model.kv]
        tensors = [t._replace(data=bytes(len(t.data))) if t.name == b'output_norm.weight' else t for t in model.tensors]
        with open(other, 'wb') as out:
            out.write(gguf.encode(kv, tensors))
        cls.mounts = []
        for source, at in ((sample, 'mnt'), (other, 'other')):
            os.mkdir(os.path.join(cls.folder, at))
            cls.mounts.append(mountlib.Mount(source, '-o', 'ro', at=os.path.join(cls.folder, at)))
            cls.mounts[-1].__enter__()

    @classmethod
    def tearDownClass(cls):
        for mount in cls.mounts:
            mount.__exit__(None, None, None)


def add(number, language, needs, text, output):
    def test(self):
        lacks = missing(language, needs)
        if lacks:
            self.skipTest('no ' + lacks)
        if 'hashes' in text and not os.path.exists(os.path.join(self.folder, 'mnt/hashes')):
            self.skipTest('built without libcrypto')
        if 'heatmap' in text and not os.path.exists(os.path.join(self.folder, 'mnt/tensors/output.weight/heatmap.png')):
            self.skipTest('built without zlib')
        name = os.path.join(self.folder, f'recipe-{number}')
        with open(name, 'w', encoding='utf-8') as file:
            file.write(text)
        path = os.path.dirname(shutil.which(mountlib.GGUFS)) + ':' + os.environ['PATH']
        done = subprocess.run([*RUN[language], name], cwd=self.folder, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, env={**mountlib.environment(), 'PATH': path, 'LC_ALL': 'C.UTF-8'},
                              timeout=mountlib.LIMIT)
        self.assertEqual((done.stdout, done.stderr), (output, ''), text)
        mountlib.assert_no_faults()

    setattr(Recipes, f'test_{number:02}_{language}_{needs.replace(",", "_").replace("-", "_")}', test)


for at, recipe in enumerate(recipes(PAGE)):
    add(at, *recipe)

if __name__ == '__main__':
    mountlib.main()
