#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A directory with very many files."""
import os
import unittest

import disks
import llama
import mountlib
from disks import Disk
from mountlib import Mount

ENTRIES = 1000000
MEMORY = 128 << 20  # for the daemon itself, and for the names


def put_entries(folder):
    """Make links to one file in memory, which is the fastest way to make that many names."""
    first = os.path.join(folder, 'first')
    with open(first, 'wb'):
        pass
    at = os.open(folder, os.O_RDONLY)
    try:
        for i in range(ENTRIES - 1):
            os.link('first', str(i), src_dir_fd=at, dst_dir_fd=at)
    finally:
        os.close(at)


class Many(unittest.TestCase):
    @unittest.skipIf(mountlib.sanitized('asan') or mountlib.sanitized('tsan'), 'it has memory of its own')
    def test_a_million_entries(self):
        """Names that are not models take memory only for a moment, and models are found."""
        with Disk('tmpfs') as folder:
            put_entries(folder)
            with open(os.path.join(folder, 'm.gguf'), 'wb') as out:
                out.write(llama.image())
            with Mount(folder) as at:
                self.assertEqual(os.listdir(at), ['m.gguf'])
                self.assertIn(b'Tiny', mountlib.get(at + '/m.gguf/info'))
                self.assertFalse(os.path.exists(at + '/999'))
                self.assertFalse(os.path.exists(at + '/none.gguf'))
                self.assertLess(mountlib.anonymous(at), MEMORY)


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
