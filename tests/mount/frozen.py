#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A disk that hangs: what needs it waits, and nothing else. File systems in images are frozen."""
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest

import disks
import editlib
import freeze
import ggufmodel as gguf
import mountlib
from disks import Disk, put_model
from editlib import Want, write
from ggufmodel import Value

MODES = ('auto', 'close', 'sync')

# Looks at all there is, and prints {path: SHA-256 of the content}.
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

# An edit that is written when it ends. (An fsync of the folder would hold the kernel's lock of it, which a
# listing needs.) A program of its own: another one that is started closes its copy of each open file, and
# that waits for the disk, too.
EDIT = '''
import os, sys
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_TRUNC)
os.write(fd, b"an edit")
os.fsync(fd)
os.close(fd)
'''


class Frozen(unittest.TestCase):
    def look(self, at):
        """What waits for the disk can be killed only when that is back: it is left behind."""
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
            daemon = os.getxattr(at, 'user.ggufs.daemon').split()[0].decode()
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
        """While an edit waits for the disk, the first of a mount or a later one, all can be read."""
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


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
