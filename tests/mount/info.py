#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""`info` at the root of the mount: the line on the mount itself."""
import os
import unittest

import mountlib
from llama import NAME, image
from mountlib import Mount


def mount_line(at):
    """What `info` says of the mount; its size is what stat said before."""
    name = os.path.join(at, 'info')
    size = os.stat(name).st_size
    text = mountlib.get(name).decode()
    assert len(text.encode()) == size, (size, text)
    return text.splitlines()[-1].removeprefix('mount:').strip()


class State(unittest.TestCase):
    def model(self):
        os.makedirs(mountlib.path('models'), exist_ok=True)
        return mountlib.put('models/' + NAME, image())

    def write(self, at, text, sync=False):
        with open(os.path.join(at, 'metadata/llama.context_length'), 'w') as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def test_read_write(self):
        with Mount(self.model()) as at:
            self.assertEqual(mount_line(at), 'read-write')

    def test_read_only(self):
        with Mount(self.model(), '-o', 'ro') as at:
            self.assertEqual(mount_line(at), 'read-only: asked for by -o ro')

    def test_pending(self):
        """An edit that is not written yet; a handle from before shows what it opened."""
        with Mount(self.model(), '-o', 'commit=sync') as at:
            with open(os.path.join(at, 'info'), 'rb') as before:
                self.write(at, '66\n')
                self.assertEqual(mount_line(at), 'read-write; 1 edit is not written yet')
                os.unlink(os.path.join(at, 'metadata/general.file_type'))
                self.assertEqual(mount_line(at), 'read-write; 2 edits are not written yet')
                self.write(at, '65\n', sync=True)
                self.assertEqual(mount_line(at), 'read-write')
                text = before.read()
                self.assertIn(b'mount:          read-write\n', text)
                self.assertEqual(os.fstat(before.fileno()).st_size, len(text))

    def test_refused(self):
        with Mount(self.model()) as at:
            with self.assertRaises(OSError):
                self.write(at, 'many\n')
            self.assertEqual(mount_line(at), 'read-write; 1 write was refused')
            self.write(at, '66\n')
            self.assertEqual(mount_line(at), 'read-write')

    def test_changed_behind(self):
        for options in ((), ('-o', 'ro')):
            model = self.model()
            with Mount(model, *options) as at:
                line = mount_line(at)
                os.utime(model, ns=(1, 1))
                self.assertEqual(mount_line(at),
                                 line + "; the model's file changed behind the mount")

    def test_own_edits_are_no_change(self):
        for how in 'inplace', 'copy':
            with Mount(self.model(), '-o', 'relayout=' + how) as at:
                self.write(at, '66\n')
                self.assertEqual(mount_line(at), 'read-write')


if __name__ == '__main__':
    mountlib.main()
