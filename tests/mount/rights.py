# SPDX-License-Identifier: MIT
"""Which users may read which parts of a split model, whose files can have different owners and
modes."""
import os
import stat
import subprocess
import unittest

import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Tensor
from mountlib import OTHER, Mount, run

# Prints the base names of those of the given files that another user can read.
READERS = 'for name; do { ls "$name" && { test -d "$name" || head -c 1 "$name"; }; } >/dev/null 2>&1 && basename "$name"; done; :'


@unittest.skipUnless(os.getuid() == 0, 'for root only')
class Rights(unittest.TestCase):
    def shards(self):
        """Make three shards, each with a tensor of its number."""
        parts = [[Tensor(b'of.%d' % no, 0, (1,), bytes(4))] for no in range(3)]
        return [mountlib.put('m-%05d-of-00003.gguf' % (no + 1), data)
                for no, data in enumerate(samples.shards(samples.ARCH, parts))]

    def readable(self, model, *options):
        """Return the files that another user can read if root's daemon serves the model to all."""
        os.chmod(mountlib.folder, 0o755)
        at = mountlib.path('open')
        os.makedirs(at, exist_ok=True)
        with Mount(model, '-o', ','.join(('allow_other',) + options), at=at):
            tensors = [f'{at}/tensors/of.{no}' for no in range(3)]
            files = [f'{tensor}/{name}' for tensor in tensors for name in ('raw', 'f32', 'shard')]
            whole = [f'{at}/{name}' for name in ('model.gguf', 'metadata.json', 'tensors.json',
                                                 'info', 'check')]
            keys = [f'{at}/metadata/general.architecture']
            self.assertEqual(os.listdir(at + '/tensors'), ['of.0', 'of.1', 'of.2'])
            done = run(*mountlib.as_other('sh', '-c', READERS, 'sh', *tensors, *files, *whole, *keys,
                                          at + '/tensors', at + '/metadata'))
            self.assertEqual(done.returncode, 0, done.err)
            return done.out.split()

    def test_shards_of_several_modes(self):
        """The model shows what all its files grant: if they differ in group, to their owner alone;
        if they differ in owner, to the daemon's user alone."""
        paths = self.shards()
        self.assertEqual(len(self.readable(paths[0])), 3 + 9 + 5 + 1 + 2)
        os.chmod(paths[1], 0o600)
        self.assertEqual(self.readable(paths[0]), [])
        self.assertEqual(len(self.readable(paths[0], 'umask=022')), 20)
        os.chmod(paths[1], 0o644)
        for uid, gid in ((0, 1234), (1234, 0), (OTHER, 0)):
            os.chown(paths[2], uid, gid)
            self.assertEqual(self.readable(paths[0]), [], (uid, gid))

    # Another user: prints "seen" when access has changed, to denied, then to allowed again.
    OPENS = '''
import os, sys, time

def can(name):
    try:
        os.close(os.open(name, os.O_RDONLY))
        return True
    except PermissionError:
        return False

for wanted in (True, False, True):
    input()
    while any(can(name) != wanted for name in sys.argv[1:]):
        time.sleep(0.01)
    print("seen", flush=True)
'''

    def follows(self, below, *names):
        """A process that only opens these names notices that a file's mode changed."""
        mode = stat.S_IMODE(os.stat(below).st_mode)
        command = mountlib.as_other('/usr/bin/python3', '-c', self.OPENS, *names)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            for bits in (mode, mode & 0o700, mode):
                os.chmod(below, bits)
                other.stdin.write('\n')
                other.stdin.flush()
                self.assertEqual(other.stdout.readline(), 'seen\n')
            other.stdin.close()

    def test_bits_that_change(self):
        """Changes apply while the model is mounted, within a second."""
        os.chmod(mountlib.folder, 0o755)
        at, top = mountlib.path('changing'), mountlib.path('top')
        for folder in (at, top, top + '/sub'):
            os.mkdir(folder)
        model = mountlib.put('top/sub/m.gguf', gguf.encode(samples.ARCH, [Tensor(b't', 0, (1,), bytes(4))]))
        for options in ('allow_other,ro', 'allow_other,tensors=edit'):
            with Mount(model, '-o', options, at=at):
                self.follows(model, at + '/tensors/t/raw', at + '/tensors/t', at + '/tensors')
        with Mount(model, '-o', 'allow_other', at=at):
            self.follows(model, at + '/metadata/general.architecture', at + '/info', at)
        with Mount(top, '-o', 'allow_other', at=at):
            self.follows(model, at + '/sub/m.gguf/tensors/t/raw', at + '/sub/m.gguf/info')
            self.follows(top + '/sub', at + '/sub', at + '/sub/m.gguf/info')
