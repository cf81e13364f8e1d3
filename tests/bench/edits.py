# SPDX-License-Identifier: MIT
"""Measures edits of a model of 100 GiB that do not copy its data: on file systems that clone, and
in place."""
import collections
import contextlib
import os
import random
import re
import tempfile

import benchlib
from benchlib import Skipped, Table, ggufs, goal, show_ms, timed

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
SIZE, TENSORS, TOKENS = 100, 1000, 128000  # GiB; 1000 and 128,000 are typical of large models
DISK = 16 * GIB  # size of the image, which takes only the space that is written
COUNT = 20  # number of edits of each kind
BOUND = 200  # ms
STRATEGY = re.compile(rb'; (inplace|copy), \d+ ms')
KEY = 'general.name'
LENGTH = 400  # initial bytes of KEY


def write(path, text):
    """Write like a shell's `echo TEXT > PATH`, which closes the truncated file once before it
    writes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.close(os.dup(fd))
    os.write(fd, text.encode() + b'\n')
    os.close(fd)


def to_disk(metadata):
    fd = os.open(metadata, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def remove(path):
    """Remove a key. A removal is written a little later, or on request."""
    os.unlink(path)
    to_disk(os.path.dirname(path))


def first(metadata):
    """Make the first edit. An edit that copies is written a little later, or on request."""
    write(os.path.join(metadata, KEY), 'x' * LENGTH)
    to_disk(metadata)


def added(metadata, i):
    return os.path.join(metadata, f'bench.added.{i}')


# name -> the i-th edit of that kind, i from 0. Longer and shorter undo each other, as do add and
# remove.
EDITS = {
    'same size': lambda at, i: write(os.path.join(at, KEY), chr(97 + i % 26) * LENGTH),
    'longer': lambda at, i: write(os.path.join(at, KEY), 'x' * (LENGTH + 20 * (i + 1))),
    'shorter': lambda at, i: write(os.path.join(at, KEY), 'x' * (LENGTH + 20 * (COUNT - i - 1))),
    'add a key': lambda at, i: write(added(at, i), f'number {i}'),
    'remove a key': lambda at, i: remove(added(at, i)),
}


class Log:
    """The log of a mount, which shows how edits were written."""

    def __init__(self, file):
        self.file, self.seen = file, 0

    def strategies(self):
        """Return {strategy: count} for the edits since the last call."""
        self.file.seek(self.seen)
        text = self.file.read()
        self.seen += len(text)
        return collections.Counter(match.decode() for match in STRATEGY.findall(text))


def put_model(run, folder):
    """Write the model, with some data in each tensor, so that it is not a single hole."""
    source = run.script(f'sparse-{SIZE}g.gguf', 'make-huge', '--size', f'{SIZE}G', '--tensors',
                        str(TENSORS), '--tokens', str(TOKENS))
    path = os.path.join(folder, 'model.gguf')
    benchlib.quiet('cp', '--sparse=always', source, path)
    size = os.stat(path).st_size
    with open(path, 'r+b') as file:
        for i in range(TENSORS):
            file.seek(size // TENSORS * i + size // TENSORS // 2)
            file.write(random.randbytes(64 * KIB))
        os.fsync(file.fileno())
    return path


def told(counter):
    return ', '.join(f'{name} {count}' for name, count in sorted(counter.items())) or 'not written'


def row(table, kind, commit, what, seconds, how, bound=BOUND):
    """Add a row, for which the slowest edit counts."""
    worst = round(1e3 * max(seconds), 1)
    table.add(kind, f'commit={commit}', what, len(seconds), told(how), show_ms(seconds),
              goal(worst, bound, False, ' ms, the most') if bound else '')


def all_kinds(table, kind, commit, metadata, log):
    seconds, how = [timed(first, metadata)], log.strategies()
    row(table, kind, commit, 'the first (makes the reserve)', seconds, how,
        BOUND if 'copy' not in how else None)
    for what, edit in EDITS.items():
        seconds = [timed(edit, metadata, i) for i in range(COUNT)]
        row(table, kind, commit, what, seconds, log.strategies())


def until_copied(metadata, log, grown, limit=1000):
    """Return how many edits are written without a copy if each one lengthens the header."""
    for i in range(limit):
        write(os.path.join(metadata, f'bench.grown{grown}.{i}'), 'x' * grown)
        if 'copy' in log.strategies():
            return i
    return limit


def instant(kind, metadata, log):
    """Measure edits in place. The header may grow while the reserve lasts; the copy that follows
    makes a new reserve."""
    table = Table(f'Edits on {kind} until the reserve is used up', 'each adds', 'edits', 'goal')
    for grown in (100, 4 * KIB):
        until_copied(metadata, log, 60 * KIB, 2)  # a copy: from now on the reserve is full
        count = until_copied(metadata, log, grown)
        table.add(f'a key of {grown} bytes', count, goal(count, 10))
    return table


@contextlib.contextmanager
def edited(run, folder, commit):
    """Yield (metadata, log) of a new mount of a new model."""
    model = put_model(run, folder)
    with tempfile.TemporaryFile(dir=run.work) as log, \
            ggufs(run.work, model, '-o', f'commit={commit}', log=log) as (at, _):
        yield os.path.join(at, 'metadata'), Log(log)
    os.unlink(model)


def on_disk(run, kind, table):
    """Yield the table of edits that remain instant, provided that this ends at all."""
    with benchlib.disk(run.work, kind, DISK) as folder:
        for commit in ('auto', 'close'):
            with edited(run, folder, commit) as (metadata, log):
                all_kinds(table, kind, commit, metadata, log)
                if kind == 'ext4' and commit == 'close':
                    yield instant(kind, metadata, log)


def edit(run):
    table = Table(f'Edits of a model of {SIZE} GiB', 'file system', 'commit', 'edit', 'edits',
                  'written by', 'ms', 'goal')
    later = []
    for kind in ('xfs', 'btrfs', 'ext4'):
        try:
            later += on_disk(run, kind, table)
        except Skipped as why:
            table.add(kind, 'skipped: ' + str(why), *[''] * 5)
    yield table
    yield from later
