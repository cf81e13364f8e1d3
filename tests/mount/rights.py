#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Which users may read which parts of a split model, whose files can have different owners and
modes."""
import os
import stat
import subprocess
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Gate, needs_gate
from ggufmodel import Tensor, Value
from mountlib import OTHER, Mount, run

# Prints which of the given files another user can read, one per line.
READERS = '''
import os, sys
for name in sys.argv[1:]:
    try:
        if os.path.isdir(name):
            os.listdir(name)
        else:
            open(name, "rb").read(1)
        print(os.path.basename(name))
    except PermissionError:
        pass
'''


@unittest.skipUnless(os.getuid() == 0, 'for root only')
class Rights(unittest.TestCase):
    def shards(self):
        """Make three shards, each with a tensor of its number."""
        paths = []
        for no in range(3):
            kv = (samples.ARCH if no == 0 else []) + [
                (b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                (b'split.tensors.count', Value('i32', 3))]
            name = 'm-%05d-of-00003.gguf' % (no + 1)
            paths.append(mountlib.put(name, gguf.encode(
                kv, [Tensor(b'of.%d' % no, 0, (1,), bytes(4))])))
        return paths

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
            done = run(*mountlib.as_other('/usr/bin/python3', '-c', READERS, *tensors, *files,
                                          *whole, *keys, at + '/tensors', at + '/metadata'))
            self.assertEqual(done.returncode, 0, done.err)
            return done.out.split()

    ONE = ['raw', 'f32', 'shard']
    WHOLE = ['model.gguf', 'metadata.json', 'tensors.json', 'info', 'check']
    FIRST = ['general.architecture', 'metadata']

    def test_shards_of_several_modes(self):
        """Each tensor is readable by users that may read its shard, and files made from all shards
        are readable by users that may read all of them."""
        paths = self.shards()
        everything = (['of.0', 'of.1', 'of.2'] + 3 * self.ONE + self.WHOLE + self.FIRST[:1] +
                      ['tensors', 'metadata'])
        self.assertEqual(self.readable(paths[0]), everything)
        for private in (1, 2):
            os.chmod(paths[private], 0o600)
            found = self.readable(paths[1])
            self.assertEqual(found, [f'of.{no}' for no in range(3) if no != private] +
                             2 * self.ONE + self.FIRST)
            os.chmod(paths[private], 0o644)
        os.chmod(paths[0], 0o600)
        self.assertEqual(self.readable(paths[0]), [])
        self.assertEqual(self.readable(paths[0], 'umask=022'), everything)
        os.chmod(paths[0], 0o644)
        os.chown(paths[2], 1234, 1234)
        os.chmod(paths[2], 0o664)
        self.assertEqual(self.readable(paths[0]), everything)
        os.chmod(paths[2], 0o660)
        self.assertEqual(self.readable(paths[0]), ['of.0', 'of.1'] + 2 * self.ONE + self.FIRST)
        os.chown(paths[2], OTHER, 0)
        self.assertEqual(self.readable(paths[0]),
                         ['of.0', 'of.1', 'of.2'] + 3 * self.ONE + self.FIRST)

    def test_shards_behind_links(self):
        """A link gives access to its file only to users who could reach it directly."""
        paths, inner = self.shards(), mountlib.path('inner')
        os.mkdir(inner)
        for bits, private in ((0o600, 0o755), (0o644, 0o700)):
            real = os.path.join(inner, 'blob')
            os.rename(paths[1], real)
            os.symlink(real, paths[1])
            os.chmod(real, bits)
            os.chmod(inner, private)
            self.assertEqual(self.readable(paths[0]),
                             ['of.0', 'of.2'] + 2 * self.ONE + self.FIRST)
            os.chmod(real, 0o644)
            os.chmod(inner, 0o711)
            self.assertEqual(len(self.readable(paths[0])), 3 + 9 + 5 + 3)
            os.unlink(paths[1])
            os.rename(real, paths[1])
        os.rmdir(inner)

    def test_shard_that_is_no_file(self):
        """A link to a device or a pipe in place of a shard is named, but not opened."""
        paths = self.shards()
        odd, at = mountlib.path('odd'), mountlib.path('open')
        os.makedirs(at, exist_ok=True)
        for make in (os.mkfifo, os.mkdir,
                     lambda name: os.mknod(name, stat.S_IFCHR | 0o666, os.makedev(240, 4242))):
            make(odd)
            os.rename(paths[1], paths[1] + '.kept')
            os.symlink(odd, paths[1])
            done = run(mountlib.GGUFS, paths[0], at)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.err, 'shard m-00002-of-00003.gguf: is (a directory|not a regular file)')
            os.rename(paths[1] + '.kept', paths[1])
            (os.rmdir if os.path.isdir(odd) else os.unlink)(odd)

    # Another user who stays in a directory: prints "denied", then "allowed" again, when access
    # changes.
    STAYS = '''
import os, sys, time

def can(name):
    try:
        os.close(os.open(name, os.O_RDONLY))
        return True
    except PermissionError:
        return False

os.chdir(sys.argv[1])
for wanted in (True, False, True):
    input()
    while any(can(name) != wanted for name in sys.argv[2:]):
        time.sleep(0.01)
    print("seen", flush=True)
'''

    def follows(self, below, at, *names):
        """A process that only looks at these names notices that a file's mode changed."""
        mode = stat.S_IMODE(os.stat(below).st_mode)
        command = mountlib.as_other('/usr/bin/python3', '-c', self.STAYS, at, *names)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            for bits in (mode, mode & 0o700, mode):
                os.chmod(below, bits)
                other.stdin.write('\n')
                other.stdin.flush()
                self.assertEqual(other.stdout.readline(), 'seen\n')
            other.stdin.close()

    def test_bits_that_change(self):
        """Changes apply while the model is mounted, even if the next call is an open."""
        os.chmod(mountlib.folder, 0o755)
        at, top = mountlib.path('changing'), mountlib.path('top')
        for folder in (at, top, top + '/sub'):
            os.mkdir(folder)
        model = mountlib.put('top/sub/m.gguf', gguf.encode(samples.ARCH, [Tensor(b't', 0, (1,), bytes(4))]))
        for options in ('allow_other,ro', 'allow_other,tensors=edit'):
            with Mount(model, '-o', options, at=at):
                self.follows(model, at + '/tensors/t', 'raw', '.')
                os.chmod(model, 0o600)
                editlib.until(lambda: os.stat(at + '/tensors/t/raw').st_mode & 0o77 == 0)
                os.chmod(model, 0o644)
                editlib.until(lambda: os.stat(at + '/tensors/t/raw').st_mode & 0o44 == 0o44)
        with Mount(model, '-o', 'allow_other', at=at):
            self.follows(model, '/', at + '/metadata/general.architecture', at + '/info', at)
        with Mount(top, '-o', 'allow_other', at=at):
            self.follows(model, at + '/sub/m.gguf/tensors/t', 'raw')
            self.follows(model, '/', at + '/sub/m.gguf/info')
            self.follows(top + '/sub', at + '/sub', '.')

    @needs_gate
    def test_first_open(self):
        """The first open after a change is refused: the daemon notices it before the kernel
        does."""
        os.chmod(mountlib.folder, 0o755)
        at, clock = mountlib.path('first'), mountlib.path('clock')
        os.mkdir(at)
        model = mountlib.put('first.gguf', gguf.encode(samples.ARCH, [Tensor(b't', 0, (1,), bytes(4))]))

        def is_at(ms):
            with open(clock + '.new', 'w', encoding='ascii') as file:
                file.write(str(ms))
            os.rename(clock + '.new', clock)

        is_at(0)
        opens = 'import os, sys\nos.chdir(sys.argv[1])\nwhile input():\n' \
                '    try:\n        os.close(os.open("raw", os.O_RDONLY))\n        print("allowed", flush=True)\n' \
                '    except PermissionError:\n        print("denied", flush=True)\n'
        command = mountlib.as_other('/usr/bin/python3', '-c', opens, at + '/tensors/t')
        with Gate(clock).before('GATE_CLOCK'), Mount(model, '-o', 'allow_other', at=at), \
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            for ms, mode, answer in (0, 0o644, 'allowed'), (5000, 0o600, 'denied'):
                os.chmod(model, mode)
                is_at(ms)
                other.stdin.write('open\n')
                other.stdin.flush()
                self.assertEqual(other.stdout.readline(), answer + '\n')
            other.stdin.close()


if __name__ == '__main__':
    mountlib.main(others=True)
