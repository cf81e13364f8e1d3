#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Hostile and damaged files: each is mounted or refused as expected, with one line of output, and
--check agrees."""
import csv
import os
import re
import resource
import unittest

import mountlib

FOLDER = os.path.join(mountlib.SHARED, 'bad')
MEMORY = 2 << 30  # bytes of address space: enough for threads, but not for the sizes that the files claim
SANITIZED = mountlib.sanitized('asan') or mountlib.sanitized('tsan')  # sanitizers reserve terabytes


def verdicts():
    with open(os.path.join(FOLDER, 'expect.tsv'), encoding='utf-8') as table:
        for row in csv.reader(table, delimiter='\t', quoting=csv.QUOTE_NONE):
            if row and not row[0].startswith('#'):
                yield row[0], row[1]


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Bad(unittest.TestCase):
    def attempt(self, name, at):
        """Mount, read everything, unmount. Returns True if the file was accepted."""
        try:
            with mountlib.Mount(os.path.join(FOLDER, name), '-o', 'ro,views=all', at=at,
                                preexec_fn=None if SANITIZED else limit_memory):
                self.walk(at)
                self.said = mountlib.get(os.path.join(at, 'check')).decode('utf-8')
            return True
        except mountlib.Refused as refused:
            self.assertEqual(refused.done.returncode, 1, refused)
            self.check_line(name, refused.done.err)
            return False

    def walk(self, at):
        for folder, _, files in os.walk(os.fsencode(at)):
            for file in files:
                mountlib.get(os.path.join(folder, file))

    def check_line(self, name, text):
        """Check that the message is one line of printable characters that names the file."""
        self.assertEqual(text.count('\n'), 1, f'{name}: {text!r}')
        self.assertTrue(text.endswith('\n'), name)
        self.assertIn(name, text)
        if not name.startswith('directory'):
            self.assertRegex(text, r'\bbyte \d+')
        self.assertIsNone(re.search(r'[\x00-\x1f\x7f-\x9f]', text[:-1]), f'{name}: {text!r}')

    def check_command(self, name, accepted):
        """--check refuses every file that a mount refuses, and otherwise reports the same as
        `check` in the mount."""
        how = {} if SANITIZED else {'preexec_fn': limit_memory}
        done = mountlib.run(mountlib.GGUFS, '--check', name, cwd=FOLDER, **how)
        if os.path.isdir(os.path.join(FOLDER, name)):  # without a model in it
            self.assertEqual((done.returncode, done.err), (2, ''))
            self.check_line(name, done.out)
            return
        if accepted:
            self.assertIn(done.returncode, (0, 1))
            self.assertEqual(done.out, self.said)
        else:
            self.assertEqual(done.returncode, 2)
            self.assertIn(': error: ', done.out)
        self.assertIsNone(re.search(r'[\x00-\x09\x0b-\x1f\x7f-\x9f]', done.out), done.out)
        full = mountlib.run(mountlib.GGUFS, '--check=full', name, cwd=FOLDER, **how)
        self.assertEqual(full.err, '')
        self.assertTrue(full.out.startswith(done.out), full.out)
        self.assertGreaterEqual(full.returncode, done.returncode)

    def test_verdicts(self):
        at = mountlib.path('mnt')
        os.mkdir(at)
        for name, verdict in verdicts():
            with self.subTest(file=name):
                folder = os.path.isdir(os.path.join(FOLDER, name))  # shelf.py mounts it as a directory
                accepted = not folder and self.attempt(name, at)
                if verdict != 'either':
                    self.assertEqual('accept' if accepted else 'reject', verdict)
                self.check_command(name, accepted)
                mountlib.assert_no_faults()


if __name__ == '__main__':
    if not os.path.exists(os.path.join(FOLDER, 'expect.tsv')):
        mountlib.skip(f'no {FOLDER}')
    mountlib.main()
