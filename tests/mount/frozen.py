#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A hanging disk: only calls that need it wait. File systems in images are frozen."""
import contextlib
import glob
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import disks
import editlib
import freeze
import ggufmodel as gguf
import mountlib
import samples
from disks import Disk, put_model
from editlib import Want, write
from ggufmodel import Tensor, Value

MODES = ('auto', 'close', 'sync')

# Reads everything, and prints {path: SHA-256 of the content}.
LOOK = '''
import hashlib, json, os, sys
found = {}
os.chdir(sys.argv[1])
os.statvfs(".")
for folder, folders, files in os.walk("."):
    for name in folders + files:
        path = os.path.join(folder, name)
        os.stat(path)
        for attribute in os.listxattr(path):
            os.getxattr(path, attribute)
        if name in files:
            found[path] = hashlib.sha256(open(path, "rb").read()).hexdigest()
print(json.dumps(found))
'''

# An edit that is written when this program ends. (An fsync of the directory would hold the kernel's
# lock on it, which a listing needs.) The program is separate, because starting another program here
# closes copies of open files, and that would also wait for the disk.
EDIT = '''
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(fd, b"an edit")
os.fsync(fd)
os.close(fd)
'''

# Opens a view more often than libfuse has threads, writes it, and closes it on request. (A child
# forked meanwhile also closes it.)
CLOSERS = 24
WRITER = '''
import os, sys, threading
fds = [os.open(sys.argv[1], os.O_RDWR) for _ in range(int(sys.argv[4]))]
os.pwrite(fds[0], bytes.fromhex(sys.argv[2]) * int(sys.argv[3]), 0)
print("written", flush=True)
sys.stdin.readline()
closers = [threading.Thread(target=os.close, args=(fd,)) for fd in fds]
for closer in closers:
    closer.start()
'''


class Frozen(unittest.TestCase):
    def look(self, at):
        """Read everything. A process that waits for the disk can only be killed once the disk works
        again, so it is left behind."""
        with tempfile.TemporaryFile() as out:
            process = subprocess.Popen([sys.executable, '-c', LOOK, at], stdout=out)
            self.addCleanup(process.wait)
            try:
                status = process.wait(mountlib.LIMIT / 2)
            except subprocess.TimeoutExpired:
                process.kill()
                status = 'a read waits for the disk'
            self.assertEqual(status, 0)
            out.seek(0)
            return json.load(out)

    def hang(self, folder, mode, warm):
        source = put_model(folder)
        want = Want(mountlib.get(source))
        hashes = {f'./tensors/{t.name.decode()}/raw': hashlib.sha256(t.data).hexdigest()
                  for t in gguf.read(mountlib.get(source)).tensors}
        with mountlib.Mount(source, '-o', f'commit={mode}') as at:
            daemon = str(mountlib.daemon(at))
            if warm:
                write(at, 'general.name', 'before')
                editlib.sync(at)
            with freeze.frozen(folder):
                editor = subprocess.Popen(
                    [sys.executable, '-c', EDIT, editlib.place(at, 'general.name')])
                editlib.until(lambda: freeze.waits_for_disk(daemon))
                found = self.look(at)
                self.assertIsNone(editor.poll())
            self.assertEqual(editor.wait(), 0)
        self.assertEqual({path: found[path] for path in hashes}, hashes)
        want.set(b'general.name', Value('string', b'an edit'))
        want.check(mountlib.get(source))

    def each(self, kind):
        """While an edit, the first one of a mount or a later one, waits for the disk, everything
        can be read."""
        for mode in MODES:
            for warm in (False, True):
                with Disk(kind) as folder:
                    self.hang(folder, mode, warm)

    def test_ext4(self):
        self.each('ext4')

    def test_xfs(self):
        self.each('xfs')

    def test_btrfs(self):
        self.each('btrfs')

    def writer(self, name, value, count):
        process = subprocess.Popen([sys.executable, '-c', WRITER, name, value.hex(), str(count),
                                    str(CLOSERS)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(process.stdout.readline(), b'written\n')
        return process

    def test_judged(self):
        """A written view is judged and waits for the disk, while more of its handles are closed
        than the mount has threads. Everything can be read, and a signal ends a program's wait."""
        value, count = struct.pack('<f', 127), 4096 * 1024
        with Disk('ext4') as folder:
            source = os.path.join(folder, 'model.gguf')
            with open(source, 'wb') as out:
                out.write(gguf.encode(samples.keys(), [Tensor(b'w', 8, (4096, 1024), bytes(count // 32 * 34))]))
            with mountlib.Mount(source, '-o', 'tensors=edit,commit=sync') as at:
                daemon = str(mountlib.daemon(at))
                name = os.path.join(at, 'tensors', 'w', 'f32')
                writers = [self.writer(name, value, count) for _ in range(2)]
                with freeze.frozen(folder):
                    for writer in writers:
                        writer.stdin.write(b'\n')
                        writer.stdin.flush()
                        # Close all of them: files still open when a process is killed are closed
                        # without a signal.
                        editlib.until(lambda: freeze.waits_for_disk(daemon) and freeze.in_request(writer.pid) == CLOSERS)
                    writers[1].terminate()
                    self.assertEqual(writers[1].wait(), -signal.SIGTERM)
                    self.look(at)
                    self.assertIsNone(writers[0].poll())
                self.assertEqual(writers[0].communicate(), (b'', b''))
                writers[1].communicate()
                self.assertEqual(mountlib.get(name)[:8], value * 2)

    def test_many_are_judged(self):
        """Sixteen tensors written by sixteen programs are judged at the same time."""
        value, count, names = struct.pack('<f', 127), 512 * 1024, [b'w%d' % i for i in range(16)]
        with Disk('ext4') as folder:
            source = os.path.join(folder, 'model.gguf')
            with open(source, 'wb') as out:
                out.write(gguf.encode(samples.keys(), [Tensor(name, 8, (512, 1024), bytes(count // 32 * 34))
                                                       for name in names]))
            with mountlib.Mount(source, '-o', 'tensors=edit,commit=sync') as at:
                daemon = str(mountlib.daemon(at))
                views = [os.path.join(at, 'tensors', name.decode(), 'f32') for name in names]
                writers = [self.writer(view, value, count) for view in views]
                with freeze.frozen(folder):
                    for writer in writers:
                        writer.stdin.write(b'\n')
                        writer.stdin.flush()
                    editlib.until(lambda: freeze.waits_for_disk(daemon) and
                                  all(freeze.in_request(writer.pid) for writer in writers))
                    self.look(at)
                for writer in writers:
                    self.assertEqual(writer.communicate(), (b'', b''))
                for view in views:
                    self.assertEqual(mountlib.get(view)[:8], value * 2)


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
