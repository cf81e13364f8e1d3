#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Runs tests on XFS that skip their rows for reflinks where the file system has none."""
import os
import subprocess
import sys
import unittest

import disks
import editlib
import mountlib

TESTS = (('edits', 'Edits.test_strategies'), ('edits', 'Edits.test_reflink'),
         ('split', 'Split.test_strategies'), ('tensorverbs', 'Verbs.test_strategies'))


class Clones(unittest.TestCase):
    def test_on_xfs(self):
        with disks.Disk('xfs') as folder:
            self.assertTrue(editlib.clones(folder))
            for module, test in TESTS:
                with self.subTest(module=module, test=test):
                    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), module + '.py')
                    done = subprocess.run([sys.executable, script, test], check=False, text=True,
                                          env={**os.environ, 'GGUFS_TEST_DIR': folder},
                                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                    self.assertEqual(done.returncode, 0, done.stdout)
                    self.assertNotIn('skipped', done.stdout)


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
