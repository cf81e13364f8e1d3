# SPDX-License-Identifier: MIT
"""Real file systems for tests: loop-mounted images, and tmpfs. For root.

GGUFS_SOAK multiplies the usual size of a test (see tests/lib/soak.h).
"""
import contextlib
import os
import random
import shutil
import subprocess
import unittest

import ggufmodel as gguf
import mountlib
import samples
from editlib import write
from ggufmodel import Tensor

MIB = 1 << 20
TIMES = int(os.environ.get('GGUFS_SOAK', '1'))
# Commands that make each; None: not from an image. XFS needs at least 300 MiB. XFS with a reverse map, the default since
# Debian 13, refuses to recover its log if a power cut has torn a block of that map.
KINDS = {'ext4': ['mkfs.ext4', '-qF'], 'xfs': ['mkfs.xfs', '-qf', '-m', 'rmapbt=0'],
         'btrfs': ['mkfs.btrfs', '-qf'], 'tmpfs': None}
SIZE = 320 * MIB
CLONES = ('xfs', 'btrfs')
figures = {}


def figure(what, count=1):
    figures[what] = figures.get(what, 0) + count


def print_figures():
    print()  # ends unittest's line of dots
    for what, count in figures.items():
        print(f'soak: {count} {what}', flush=True)


def call(*command):
    done = mountlib.run(*command)
    assert done.returncode == 0, done.err


def recover(source, by_mount):
    """Repair a model after a crash: by the next mount, or by the command."""
    if by_mount:
        with mountlib.Mount(source) as at:
            os.stat(at)
    else:
        call(mountlib.GGUFS, '--recover', source)


def make_image(kind, image, *options, size=SIZE):
    """Make an empty file system; skips if its tool is missing."""
    if not shutil.which(KINDS[kind][0]):
        raise unittest.SkipTest(f'{kind}: no {KINDS[kind][0]}')
    with open(image, 'wb') as file:
        file.truncate(size)
    call(*KINDS[kind], *options, image)


class Disk:
    """`with Disk('xfs') as directory:` mounts a new file system there; skips if it is not
    supported."""

    def __init__(self, kind, size=SIZE):
        self.size = size
        self.kind, self.folder = kind, mountlib.path('disk-' + kind)
        self.image = self.folder + '.image'

    def __enter__(self):
        if not mountlib.has_namespaces():
            raise unittest.SkipTest('may not mount file systems')
        os.makedirs(self.folder, exist_ok=True)
        if KINDS[self.kind] is None:
            call('mount', '-t', 'tmpfs', '-o', f'size={SIZE}', 'tmpfs', self.folder)
            return self.folder
        make_image(self.kind, self.image, size=self.size)
        self.mount()
        return self.folder

    def mount(self):
        done = mountlib.run('mount', '-o', 'loop', self.image, self.folder)
        if done.returncode != 0:
            raise unittest.SkipTest(f'{self.kind}: cannot mount it: {done.err}')

    def umount(self):
        call('umount', self.folder)

    def __exit__(self, *error):
        if error[0]:
            subprocess.run(['umount', '-l', self.folder], check=False)
        else:
            self.umount()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.image)


def model_data(size):
    """Return data that is not all zeros, which a file system might not store."""
    tensors = samples.small() + [Tensor(b'large.weight', 24, (size,), random.randbytes(size))]
    return gguf.encode(samples.keys(), tensors)


def put_model(folder, size=MIB):
    return mountlib.put(os.path.join(folder, 'model.gguf'), model_data(size))


def log_of(source, *options, key='general.name', text='an edit'):
    """Return the log of a mount with one edit."""
    mount = mountlib.Foreground(source, *options)
    with mount as (at, _):
        write(at, key, text)
        return mount.log()
