#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A directory of models of which one disk hangs: only that disk's models are delayed."""
import os
import signal
import subprocess

import disks
import editlib
import freeze
import mountlib
from disks import Disk, put_model
from mountcase import daemon
from mountlib import Mount
from shelflib import Shelf, value


class Frozen(Shelf):
    """Writes to one disk hang."""

    def test_other_models_are_written(self):
        near = self.put('near.gguf')
        with Disk('ext4') as folder:
            far = put_model(folder)
            self.link('far', folder)
            with Mount(self.top, '-o', 'commit=close') as at:
                with freeze.frozen(folder):
                    worker = editlib.Call(editlib.write, at + '/far/model.gguf', 'general.name', 'New')
                    editlib.until(lambda: freeze.waits_for_disk(daemon(at)))
                    editlib.write(at + '/near.gguf', 'general.name', 'Near')
                    self.assertEqual(value(near), b'Near')
                    self.assertTrue(worker.thread.is_alive())
                self.assertIsNone(worker.wait())
                self.assertEqual(value(far), b'New')

    def test_other_models_are_written_at_the_end(self):
        """Edits are pending when a signal ends the daemon; those on other disks are written at
        once."""
        near = [self.put(f'near{i}.gguf') for i in range(3)]
        with Disk('ext4') as folder:
            far = put_model(folder)
            self.link('far', folder)
            with Mount(self.top, '-o', 'commit=sync') as at:
                for name in ('near0.gguf', 'far/model.gguf', 'near1.gguf', 'near2.gguf'):
                    editlib.write(os.path.join(at, name), 'general.name', 'New')
                with freeze.frozen(folder):
                    os.kill(daemon(at), signal.SIGTERM)
                    for path in near:
                        editlib.until(lambda path=path: value(path) == b'New')
                    self.assertNotEqual(value(far), b'New')
            self.assertEqual(value(far), b'New')

    def test_other_models_are_written_at_an_unmount(self):
        """The command --unmount has the edits of all models written at the same time."""
        near = self.put('near.gguf')
        with Disk('ext4') as folder:
            far = put_model(folder)
            self.link('far', folder)
            with Mount(self.top, '-o', 'commit=sync') as at:
                for name in ('far/model.gguf', 'near.gguf'):
                    editlib.write(os.path.join(at, name), 'general.name', 'New')
                with freeze.frozen(folder):
                    command = subprocess.Popen([mountlib.GGUFS, '--unmount', at])
                    editlib.until(lambda: value(near) == b'New')
                    self.assertNotEqual(value(far), b'New')
                self.assertEqual(command.wait(mountlib.LIMIT), 0)
            self.assertEqual(value(far), b'New')


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
