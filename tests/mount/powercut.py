# SPDX-License-Identifier: MIT
"""Power cuts on real file systems. A disk logs its writes and flushes while keys and tensors of a model
on it are edited. Then, for points in the log, the test builds disks that a cut may have left: everything
before the last flush, and any part of what came after it. Each is mounted, and the model is recovered
and compared: complete, no older than the last acknowledged edit, and with nothing beside it.

A sector of 512 bytes is written whole or not at all. So is the super block of ext4 and of btrfs, of
1024 and 4096 bytes: it has a checksum, and with a torn one they do not mount.
"""
import bisect
import contextlib
import os
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

import disks
import editlib
import mountlib
from disks import TIMES, figure
from editlib import write
from ggufmodel import Value

SEED = int(os.environ.get('GGUFS_SEED', '0'))  # another seed draws other states
STATES = 25  # of each recording
SIZE = 100000  # bytes of a tensor
SECTOR = 512
# Ranges that are never torn: the super block.
WHOLE = {'ext4': range(0, 4096), 'xfs': range(0), 'btrfs': range(65536, 69632)}
# Options that prevent background writes unrelated to edits.
OPTIONS = {'ext4': ['-E', 'lazy_itable_init=0,lazy_journal_init=0'], 'xfs': [], 'btrfs': []}
FLUSH = 2 ** 64 - 1
KEEP = os.environ.get('GGUFS_TEST_DIR')  # directory in which disks with a fault are kept


class Log:
    """The writes that reached the disk: records (offset, bytes), or None for a flush."""

    def __init__(self, name):
        data, at = mountlib.get(name), 0
        self.records, self.ends, self.flushes = [], [], []
        while at < len(data):
            offset, count = struct.unpack_from('=QQ', data, at)
            at += 16 + count
            if offset == FLUSH:
                self.flushes.append(len(self.records))
            self.records.append(None if offset == FLUSH else (offset, data[at - count:at]))
            self.ends.append(at)

    def index(self, position):
        """Return the number of records that are complete in that many bytes of the log."""
        return bisect.bisect_right(self.ends, position)

    def pending(self, cut):
        """Return the writes before record `cut` that are not known to be durable."""
        begin = bisect.bisect_left(self.flushes, cut)
        begin = self.flushes[begin - 1] + 1 if begin else 0
        return begin, [record for record in self.records[begin:cut] if record]


def sectors(record, whole):
    """Split a write where a disk may split it."""
    offset, data = record
    while data:
        count = len(data) if offset in whole else SECTOR - offset % SECTOR
        yield offset, data[:count]
        offset, data = offset + count, data[count:]


# The pending writes that survive a cut: (writes, random, ranges never torn) -> writes.

def leave_first(writes, rng, whole):
    """Leave a prefix, in order, with the last write torn."""
    count = rng.randrange(len(writes) + 1)
    torn = [part for part in sectors(writes[count], whole) if rng.random() < 0.5] \
        if count < len(writes) else []
    return writes[:count] + torn


def leave_sectors(writes, rng, whole):
    chance = rng.choice((0.1, 0.5, 0.9))
    return [part for record in writes for part in sectors(record, whole) if rng.random() < chance]


def leave_all_but_one(writes, rng, _):
    lost = rng.randrange(len(writes)) if writes else 0
    return writes[:lost] + writes[lost + 1:]


LEAVE = (lambda *_: [], leave_sectors, leave_first, leave_all_but_one, leave_sectors, lambda writes, *_: writes)


class Recorder:
    """`with Recorder(image, log) as device:` makes a loop device on a file that logs."""

    def __init__(self, image, log):
        self.at = image + '.disk'
        self.command = [os.environ['GGUFS_DISKLOG'], image, log, self.at]

    def live(self):
        assert self.process.poll() is None, 'the recorder has ended'
        return mountlib.mount_of(self.at)

    def __enter__(self):
        mountlib.put(self.at, b'')
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
        editlib.until(self.live)
        done = mountlib.run('losetup', '--direct-io=on', '--show', '-f', self.at)
        if done.returncode != 0:
            raise unittest.SkipTest(f'no loop device: {done.err}')
        self.device = done.out.strip()
        return self.device

    def __exit__(self, *error):
        """Wait until the device is gone, after the file system on it."""
        subprocess.run(['umount', *(['-l'] if error[0] else []), self.at], check=not error[0])
        if error[0]:
            self.process.kill()
        assert self.process.wait(mountlib.LIMIT) == 0 or error[0]


def contents(file):
    """Return the keys and the tensors (name, shape, bytes), without ggufs' own key."""
    model = editlib.strict(file)
    return ({key: value for key, value in model.kv if key != editlib.RESERVE},
            [[t.name, t.dims, t.data] for t in model.tensors])


class Recording:
    """Edits of a model on a disk, where in the log each began and was acknowledged, and the model after
    each: `states`."""

    def __init__(self, kind):
        self.kind, self.edit = kind, 0
        self.begun, self.done = [], []  # (bytes of the log, edit)
        self.image = mountlib.path(f'power-{kind}.image')
        self.base, self.log_name = self.image + '.base', self.image + '.log'
        self.folder = mountlib.folder_at('power-' + kind)

    def mark(self, marks):
        marks.append((os.path.getsize(self.log_name), self.edit))

    def write(self, at, fsync):
        self.edit += 1
        self.mark(self.begun)
        keys, tensors = self.states[-1]
        keys, tensors = dict(keys), [list(row) for row in tensors]
        self.states.append((keys, tensors))
        rng = random.Random(self.edit)
        (self.key, self.bytes, self.key, self.shape, self.pieces, self.name)[self.edit % 6](at, rng)
        if fsync:
            editlib.sync(at)

    def key(self, at, _):
        text = b'%d:' % self.edit + bytes([97 + self.edit % 26]) * (100 + 350 * self.edit)
        write(at, 'general.name', text)
        self.states[-1][0][b'general.name'] = Value('string', text)

    def put(self, at, rng, pieces):
        row = self.states[-1][1][-1]
        data = bytearray(row[2])
        with editlib.opened(os.path.join(at, 'tensors/large.weight/raw'), os.O_WRONLY) as fd:
            for begin, size in pieces:
                data[begin:begin + size] = rng.randbytes(size)
                os.pwrite(fd, data[begin:begin + size], begin)
        row[2] = bytes(data)

    def bytes(self, at, rng):
        self.put(at, rng, [(0, SIZE)])

    def pieces(self, at, rng):
        self.put(at, rng, [(rng.randrange(SIZE - 9000), rng.choice((1, 100, 9000))) for _ in range(5)])

    def shape(self, at, _):
        row = self.states[-1][1][-1]
        row[1] = (SIZE,) if len(row[1]) > 1 else (10, SIZE // 10)
        mountlib.put(os.path.join(at, 'tensors/large.weight/shape'), ' '.join(str(dim) for dim in reversed(row[1])) + '\n')

    def name(self, at, _):
        row = self.states[-1][1][0]
        new = b'renamed.%d' % self.edit
        os.rename(editlib.place(at, row[0], 'tensors'), editlib.place(at, new, 'tensors'))
        row[0] = new

    def edit_by(self, way, commit):
        """Make three edits; with commit=sync, fsync makes the second durable and the unmount the
        third."""
        options = ('-o', f'relayout={way},reserve=65536,commit={commit}')
        with mountlib.Mount(self.source, *options, '-o', 'tensors=edit') as at:
            for number in range(3):
                self.write(at, commit == 'sync' and number == 1)
                if commit == 'close' or number == 1:
                    self.mark(self.done)
                if number == 0:
                    disks.call('sync', '-f', self.folder)
        self.mark(self.done)

    def begin(self):
        """Write the model durably, with room in its header."""
        self.source = disks.put_model(os.path.join(self.folder, 'home'), SIZE)
        disks.log_of(self.source, '-o', 'relayout=copy,reserve=65536')
        disks.call('sync', '-f', self.folder)
        self.states = [contents(mountlib.get(self.source))]
        self.mark(self.begun)
        self.mark(self.done)

    def run(self):
        disks.make_image(self.kind, self.image, *OPTIONS[self.kind])
        disks.call('fallocate', '--dig-holes', self.image)
        disks.call('cp', '--sparse=always', self.image, self.base)
        with Recorder(self.image, self.log_name) as device:
            done = mountlib.run('mount', device, self.folder)
            disks.call('losetup', '-d', device)  # when it is no longer in use
            if done.returncode != 0:
                raise unittest.SkipTest(f'{self.kind}: cannot mount it: {done.err}')
            try:
                self.begin()
                for way in ('copy', 'inplace'):
                    for commit in ('close', 'sync'):
                        self.edit_by(way, commit)
            finally:
                disks.call('umount', self.folder)
        self.read_log()

    def read_log(self):
        log = self.log = Log(self.log_name)
        os.unlink(self.log_name)
        self.begun = [(log.index(position), edit) for position, edit in self.begun]
        self.done = [(log.index(position), edit) for position, edit in self.done]
        # The device passes flushes on, and each acknowledged edit has one.
        for (at, edit), (last, before) in zip(self.done[1:], self.done):
            assert edit == before or any(last <= flush < at for flush in log.flushes), \
                'an edit without a flush'

    def edits_at(self, cut):
        """Return the last edit that must be there, and the last edit that may be."""
        return (max(edit for at, edit in self.done if at <= cut),
                max(edit for at, edit in self.begun if at <= cut))


def apply(image, records):
    with open(image, 'r+b') as out:
        for record in records:
            if record:
                os.pwrite(out.fileno(), record[1], record[0])


class PowerCut(unittest.TestCase):
    def check(self, recording, image, cut, by_mount):
        home = os.path.join(recording.folder, 'home')
        first, last = recording.edits_at(cut)
        with disks.mounted('-o', 'loop', image, recording.folder):
            disks.recover(os.path.join(home, 'model.gguf'), by_mount)
            self.assertEqual(os.listdir(home), ['model.gguf'])
            found = contents(mountlib.get(os.path.join(home, 'model.gguf')))
        self.assertTrue(found in recording.states[first:last + 1], f'none of the states after edits {first} to {last}')

    def keep(self, image, what):
        fd, kept = tempfile.mkstemp(prefix='powercut-', suffix='.image',
                                    dir=KEEP)
        os.close(fd)
        disks.call('cp', '--sparse=always', image, kept)
        return f'{what}; the disk is kept: {kept}'

    def replay(self, recording, rng):
        """Replay states in the order of the log, so that durable data only grows."""
        log, state = recording.log, recording.image + '.state'
        first, durable = recording.begun[0][0], 0
        cuts = sorted(rng.randrange(first, len(log.records) + 1) for _ in range(STATES))
        for number, cut in enumerate(cuts):
            flushed, pending = log.pending(cut)
            apply(recording.base, log.records[durable:flushed])
            durable = flushed
            disks.call('cp', '--remove-destination', '--sparse=auto', recording.base, state)
            leave = LEAVE[number % len(LEAVE)]
            apply(state, leave(pending, rng, WHOLE[recording.kind]))
            try:
                self.check(recording, state, cut, number % 4 == 3)
            except Exception as e:  # also if it cannot be mounted
                what = f'{recording.kind}, record {cut} of {len(log.records)}, LEAVE[{number % len(LEAVE)}]'
                raise AssertionError(f'{e}\n{self.keep(state, what)}') from e
            figure(f'disks after a power cut, {recording.kind}')

    def test_power_cut(self):
        for kind in WHOLE:
            for number in range(TIMES):
                with self.subTest(filesystem=kind, number=number):
                    recording = Recording(kind)
                    with contextlib.ExitStack() as stack:
                        stack.callback(self.remove, recording)
                        recording.run()
                        self.replay(recording, random.Random(1000 * SEED + number))

    def remove(self, recording):
        for name in os.listdir(mountlib.folder):
            if name.startswith(os.path.basename(recording.image)):
                os.unlink(mountlib.path(name))


def setUpModule():
    """Disks are in memory, so that no other disk slows the test."""
    if not mountlib.has_namespaces() or not shutil.which('losetup'):
        raise unittest.SkipTest('may not mount file systems')
    memory = mountlib.folder_at('memory')
    disks.call('mount', '-t', 'tmpfs', 'tmpfs', memory)
    mountlib.folder = memory


def tearDownModule():
    disks.print_figures()
