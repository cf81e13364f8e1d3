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
        with open(PAGE, encoding='utf-8') as file:
            first = re.search(r'^```\nscripts/run\n(.*?)^```$', file.read(), re.M | re.S)[1]
        os.mkdir(mountlib.path('build'))
        os.symlink(os.path.dirname(shutil.which(mountlib.GGUFS)), mountlib.path('build/src'))
        os.symlink(os.path.join(mountlib.SOURCE, 'scripts'), mountlib.path('scripts'))
        done = subprocess.run(['sh', '-ec', first + 'pwd'], cwd=mountlib.folder, capture_output=True, text=True,
                              check=False, env={**mountlib.environment(), 'TMPDIR': mountlib.folder})
        assert (done.returncode, done.stderr) == (0, ''), done
        cls.folder = done.stdout.splitlines()[-1]

    @classmethod
    def tearDownClass(cls):
        for at in 'mnt', 'other':
            mountlib.unmount(os.path.join(cls.folder, at))


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
