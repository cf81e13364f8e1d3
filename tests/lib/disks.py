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


def figure(what):
    figures[what] = figures.get(what, 0) + 1


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


@contextlib.contextmanager
def mounted(*how):
    """Mount by mount(8), whose last argument is the directory; skips if that is not supported."""
    done = mountlib.run('mount', *how)
    if done.returncode != 0:
        raise unittest.SkipTest(f'cannot mount it: {done.err}')
    try:
        yield
    except BaseException:
        subprocess.run(['umount', '-l', how[-1]], check=False)
        raise
    call('umount', how[-1])


@contextlib.contextmanager
def new_disk(kind, size=SIZE):
    """Mount a new file system, and yield its directory."""
    if not mountlib.has_namespaces():
        raise unittest.SkipTest('may not mount file systems')
    folder = mountlib.folder_at('disk-' + kind)
    image, how = folder + '.image', ('-t', 'tmpfs', '-o', f'size={SIZE}', 'tmpfs')
    if KINDS[kind]:
        make_image(kind, image, size=size)
        how = ('-o', 'loop', image)
    with mounted(*how, folder):
        yield folder
    with contextlib.suppress(FileNotFoundError):
        os.unlink(image)


def put_model(folder, size=MIB):
    """Write a model whose data is not all zeros, which a file system might not store."""
    tensors = samples.small() + [Tensor(b'large.weight', 24, (size,), random.randbytes(size))]
    return mountlib.put(os.path.join(folder, 'model.gguf'), gguf.encode(samples.keys(), tensors))


def log_of(source, *options, text='an edit'):
    """Return the log of a mount with one edit."""
    mount = mountlib.Foreground(source, *options)
    with mount as (at, _):
        write(at, 'general.name', text)
        return mount.log()
