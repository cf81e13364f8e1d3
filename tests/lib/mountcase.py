# SPDX-License-Identifier: MIT
"""Shared by tests of several mounts: their own model, directories, the program's output."""
import os
import re
import signal
import tempfile
import unittest

import mountlib
import samples
from mountlib import GGUFS, Mount, run

ROOT = os.getuid() == 0
needs_namespaces = unittest.skipUnless(mountlib.has_namespaces(), 'may not make a mount namespace')
READ_ONLY = 'user.gguf.readonly'


def why(at):
    return os.getxattr(at, READ_ONLY).decode()


def as_nobody(script, *arguments):
    """Run a script for sh, in which "$@" runs the arguments as the user nobody, which may use
    /dev/fuse there."""
    node = mountlib.path('node')
    os.makedirs(node, exist_ok=True)
    inside = (f'set -e; mount -t tmpfs -o mode=0755 tmpfs {node}; '
              f'mknod -m 0666 {node}/fuse c 10 229; mount --bind {node}/fuse /dev/fuse; set +e; ')
    return run('unshare', '--mount', '--propagation', 'private', 'sh', '-c', inside + script, 'sh',
               *mountlib.as_other(*arguments))


class Case(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', samples.editable())
        self.addCleanup(os.unlink, self.model)

    def folder(self, name=None):
        at = mountlib.path(name) if name else tempfile.mkdtemp(prefix='at-', dir=mountlib.folder)
        os.makedirs(at, exist_ok=True)
        return at

    def killed(self, at, hold=False):
        """Mount there, and kill the daemon; hold: the directory stays open."""
        mount = Mount(self.model, at=at)
        mount.__enter__()
        if hold:
            self.addCleanup(os.close, os.open(at, os.O_RDONLY))
        os.kill(mountlib.daemon(at), signal.SIGKILL)
        mount.wait()
        os.close(mount.life)

    def mounted(self, *command):
        """Mount, and return the program's output."""
        done = run(GGUFS, *command)
        self.assertEqual((done.returncode, done.out), (0, ''), done.err)
        return done.err

    def assert_plain(self, text):
        """Assert that the text contains no byte that moves a cursor."""
        self.assertIsNone(re.search(r'[\x00-\x09\x0b-\x1f\x7f]', text), repr(text))
