# SPDX-License-Identifier: MIT
"""Measures edits of tensors in a model of 100 GiB, on file systems that clone and in place, and
edits of many small tensors."""
import os
import shutil
import struct
import tempfile

import benchlib
import edits
import ggufmodel as gguf
from benchlib import Skipped, Table, ggufs, goal, show_ms, timed

MIB = 1 << 20
PIECE = 64 * MIB
ROUNDS = 3
BOUND, REMOVED, TIMES = 200, 1000, 3  # ms; ms; relative to a plain file


def to_disk(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def put(path, data):
    """Write like `dd bs=1M conv=notrunc,fsync`."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    for at in range(0, len(data), MIB):
        os.pwrite(fd, data[at:at + MIB], at)
    os.fsync(fd)
    os.close(fd)


class Tensors:
    """The tensors of a mount, each of which is used for one edit."""

    def __init__(self, at):
        self.at = os.path.join(at, 'tensors')
        self.names = iter(os.listdir(self.at))

    def next(self):
        return os.path.join(self.at, next(self.names))

    def rename(self, name):
        os.rename(name, name + '.new')
        to_disk(self.at)

    def reshape(self, name):
        with open(os.path.join(name, 'shape'), encoding='ascii') as file:
            rows, columns = file.read().split()
        fd = os.open(os.path.join(name, 'shape'), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, f'1 {rows} {columns}\n'.encode())
        os.close(fd)
        to_disk(self.at)

    def remove(self, name):
        shutil.rmtree(name)
        to_disk(self.at)

    def add(self, name, data):
        """Add a tensor as cp -r does, but only its bytes."""
        name = os.path.join(self.at, name)
        os.mkdir(name)
        for view, text in (('type', b'I8\n'), ('shape', b'%d\n' % len(data)), ('raw', data)):
            with open(os.path.join(name, view), 'wb', buffering=0) as out:
                for at in range(0, len(text), MIB):
                    out.write(text[at:at + MIB])
        to_disk(self.at)


def rows(table, kind, folder, at, log):
    all_tensors, plain = Tensors(at), os.path.join(folder, 'plain')
    data = os.urandom(PIECE)
    edits.first(os.path.join(at, 'metadata'))  # creates the reserve
    log.strategies()
    for what, edit, bound in (('rename', all_tensors.rename, BOUND),
                              ('reshape', all_tensors.reshape, BOUND),
                              ('remove', all_tensors.remove, REMOVED)):
        if what == 'remove' and kind not in ('xfs', 'btrfs'):
            continue
        seconds = [timed(edit, all_tensors.next()) for _ in range(ROUNDS)]
        worst = round(1e3 * max(seconds), 1)
        table.add(kind, what, show_ms(seconds), edits.told(log.strategies()),
                  goal(worst, bound, False, ' ms, the most'))
    own, added, base = [], [], []
    for i in range(ROUNDS):  # all rounds write to new places of the disk
        own.append(timed(put, os.path.join(all_tensors.next(), 'raw'), data))
        base.append(timed(put, f'{plain}.{i}', data))
        if kind in ('xfs', 'btrfs'):
            added.append(timed(all_tensors.add, f'added.{i}', data))
    for i in range(ROUNDS):
        os.unlink(f'{plain}.{i}')
    ratio = round(sorted(own)[ROUNDS // 2] / sorted(base)[ROUNDS // 2], 2)
    how = edits.told(log.strategies())
    table.add(kind, f'64 MiB of bytes (a plain file: {show_ms(base)} ms)', show_ms(own), how,
              goal(ratio, TIMES, False, ' times a plain file'))
    if added:
        more = round(1e3 * (sorted(added)[ROUNDS // 2] - sorted(base)[ROUNDS // 2]), 1)
        table.add(kind, 'add 64 MiB', show_ms(added), how, goal(more, REMOVED, False, ' ms more than a plain file'))


def tensors(run):
    table = Table('Edits of tensors of a model of 100 GiB', 'file system', 'edit', 'ms', 'written by',
                  'goal')
    for kind in ('xfs', 'btrfs', 'ext4'):
        try:
            with benchlib.disk(run.work, kind, edits.DISK) as folder:
                model = edits.put_model(run, folder)
                with tempfile.TemporaryFile(dir=run.work) as log, \
                        ggufs(run.work, model, '-o', 'tensors=edit', log=log) as (at, _):
                    rows(table, kind, folder, at, edits.Log(log))
        except Skipped as why:
            table.add(kind, '', '', '', f'skipped: {why}')
    yield table


# ---- many small ones ----

SMALL, VALUES = 3000, 64  # tensors, float32 values of each
EACH = 1  # ms


def write_all(at, number):
    """Write each tensor separately, like a program that edits biases."""
    data = struct.pack('<f', number) * VALUES
    for name in os.listdir(at):
        with open(os.path.join(at, name, 'f32'), 'wb') as out:
            out.write(data)


def gathered(run):
    table = Table(f'{SMALL:,} tensors of {4 * VALUES} bytes in one gathering', 'file system',
                  'ms each', 'then to the disk ms', 'goal')
    tensors_of = [gguf.Tensor(b'blk.%d.bias' % i, 0, (VALUES,), bytes(4 * VALUES)) for i in range(SMALL)]
    data = gguf.encode([(b'general.architecture', gguf.Value('string', b'llama'))], tensors_of)
    for kind in ('xfs', 'btrfs', 'ext4'):
        try:
            with benchlib.disk(run.work, kind, MIB << 10) as folder:
                model = os.path.join(folder, 'model.gguf')
                with open(model, 'wb') as out:
                    out.write(data)
                with ggufs(run.work, model, '-o', 'tensors=edit,commit=sync') as (at, _):
                    at = os.path.join(at, 'tensors')
                    seconds, synced = [], []
                    for i in range(ROUNDS):
                        seconds.append(timed(write_all, at, i + 1) / SMALL)
                        synced.append(timed(to_disk, at))
            worst = round(1e3 * max(seconds), 3)
            table.add(kind, show_ms(seconds), show_ms(synced), goal(worst, EACH, False, ' ms, the most'))
        except Skipped as why:
            table.add(kind, '', '', f'skipped: {why}')
    yield table
