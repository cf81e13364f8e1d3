#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Many at once: writers against a model of what should be, readers that always see something
whole; and edits while another is being written."""
import contextlib
import ctypes
import errno
import json
import multiprocessing
import os
import random
import signal
import struct
import threading
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Want, opened, place, sync, write
from ggufmodel import Tensor, Value

MIB = 1 << 20
SEED = int(os.environ.get('GGUFS_SEED', '0'))  # another one: other random operations
GATE = os.environ.get('GGUFS_GATE', '')
IN_MOVED_TO = 0x80

fork = multiprocessing.get_context('fork')


class Rewrites:
    """Counts how often a new file has taken the model's place."""

    def __init__(self, source):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.name, self.seen = os.fsencode(os.path.basename(source)), 0
        folder = os.fsencode(os.path.dirname(source))
        assert self.libc.inotify_add_watch(self.fd, folder, IN_MOVED_TO) >= 0

    def count(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                events, at = os.read(self.fd, 65536), 0
                while at < len(events):
                    size = struct.unpack_from('I', events, at + 12)[0]
                    self.seen += events[at + 16:at + 16 + size].rstrip(b'\0') == self.name
                    at += 16 + size
        return self.seen

    def close(self):
        os.close(self.fd)


# ---- random operations ----

class Writer:
    """Owns the keys w<number>.*: nobody else writes them, so it knows what they hold."""

    def __init__(self, at, number, seed):
        self.at, self.number, self.rng, self.keys = at, number, random.Random(seed), {}

    def name(self):
        return f'w{self.number}.k{self.rng.randrange(6)}'

    def text(self):
        return ('text ' + chr(97 + self.rng.randrange(26)) * self.rng.choice((0, 1, 30, 3000))).encode()

    def write(self):
        key, text = self.name(), self.text()
        write(self.at, key, text, fsync=self.rng.random() < 0.2, piece=self.rng.choice((7, 100, 9999)))
        self.keys[key] = text

    def append(self):
        if not self.keys:
            return
        key, text = self.rng.choice(sorted(self.keys)), b' more'
        with opened(place(self.at, key), os.O_WRONLY | os.O_APPEND) as fd:
            os.write(fd, text)
        self.keys[key] = self.keys[key] + b'\n' + text  # what is shown ends in a newline

    def rename(self):
        if not self.keys:
            return
        old, new = self.rng.choice(sorted(self.keys)), self.name()
        os.rename(place(self.at, old), place(self.at, new))
        self.keys[new] = self.keys.pop(old)

    def replace(self):
        """As sed -i does."""
        key, text = self.name(), self.text()
        write(self.at, key + '.tmp' if key in self.keys else f'sed{self.number:03}abc', text)
        source = key + '.tmp' if key in self.keys else f'sed{self.number:03}abc'
        os.rename(place(self.at, source), place(self.at, key))
        self.keys[key] = text

    def unlink(self):
        if not self.keys:
            return
        key = self.rng.choice(sorted(self.keys))
        os.unlink(place(self.at, key))
        del self.keys[key]

    def backup(self):
        """As vim does: the key becomes its backup, is made anew, the backup goes or stays."""
        if not self.keys:
            return
        key, text = self.rng.choice(sorted(self.keys)), self.text()
        os.rename(place(self.at, key), place(self.at, key + '~'))
        write(self.at, key, text)
        if self.rng.random() < 0.7:
            os.unlink(place(self.at, key + '~'))
        self.keys[key] = text

    def unlink_open(self):
        """What is written to a file without a name goes nowhere."""
        key = self.name()
        with opened(place(self.at, key), os.O_WRONLY | os.O_CREAT) as fd:
            os.write(fd, b'text that nobody sees')
            os.unlink(place(self.at, key))
            os.write(fd, b'nor this')
        self.keys.pop(key, None)

    def sync(self):
        sync(self.at)

    def refused(self):
        """A text that is none changes nothing."""
        if not self.keys:
            return
        try:
            write(self.at, self.rng.choice(sorted(self.keys)), b'\xff')
            raise AssertionError('it was taken')
        except OSError as e:
            assert e.errno == errno.EILSEQ

    def look(self):
        mine = f'w{self.number}.k'.encode()
        names = {name.decode() for name in editlib.keys(self.at)
                 if name.startswith(mine) and not name.endswith((b'.tmp', b'~'))}
        assert names == set(self.keys), (names, set(self.keys))
        for key, text in self.keys.items():
            shown = editlib.read(self.at, key)
            assert shown == text + b'\n', (key, shown, text)
            assert os.stat(place(self.at, key)).st_size == len(shown)

    def run(self, count):
        steps = [self.write] * 5 + [self.append, self.rename, self.rename, self.replace, self.unlink,
                                    self.unlink, self.sync, self.refused, self.backup,
                                    self.unlink_open, self.look, self.look]
        for _ in range(count):
            self.rng.choice(steps)()
        self.look()
        return self.keys


def read_all(at, count, seed, tensors):
    """A reader: what it opens is whole, whoever writes meanwhile."""
    rng = random.Random(seed)

    def model():
        file = mountlib.get(os.path.join(at, 'model.gguf'))
        assert [tensor.data for tensor in editlib.strict(file).tensors] == tensors

    def metadata():
        json.loads(mountlib.get(os.path.join(at, 'metadata.json')))

    def info():
        mountlib.get(os.path.join(at, 'info'))
        os.statvfs(at)

    def keys():
        for name in editlib.keys(at):
            with contextlib.suppress(FileNotFoundError):
                os.stat(place(at, name))
                editlib.read(at, name)
                os.listxattr(place(at, name))

    def tensor():
        for i, data in enumerate(tensors):
            folder = place(at, b'%c.weight' % (97 + i), 'tensors')
            assert mountlib.get(os.path.join(folder, b'raw')) == data
            assert os.path.getsize(os.path.join(folder, b'f32')) == 2 * len(data)
            int(mountlib.get(os.path.join(folder, b'offset')))

    for _ in range(count):
        rng.choice((model, metadata, info, keys, tensor))()


def in_processes(jobs):
    """Run each (function, arguments); the results, in order."""
    def child(end, function, arguments):
        end.send(function(*arguments))

    running = []
    for function, arguments in jobs:
        here, there = fork.Pipe(duplex=False)
        process = fork.Process(target=child, args=(there, function, arguments))
        process.start()
        there.close()
        running.append((process, here))
    results = []
    for process, here in running:
        with contextlib.suppress(EOFError):
            results.append(here.recv())
        here.close()
        process.join()
        assert process.exitcode == 0, 'a process has failed'
    return results


class Random(unittest.TestCase):
    def run_them(self, *options, writers=4, readers=8, count=60):
        tensors = samples.small(count=4, size=700)
        source = mountlib.put('model.gguf', gguf.encode(samples.keys(), tensors))
        want, datas = Want(mountlib.get(source)), [tensor.data for tensor in tensors]
        with mountlib.Mount(source, *options) as at:
            jobs = [(Writer(at, number, number + 100 * SEED).run, (count,)) for number in range(writers)]
            jobs += [(read_all, (at, count, number + 100 * SEED, datas)) for number in range(readers)]
            kept = in_processes(jobs)[:writers]
        file = mountlib.get(source)
        self.assertEqual(editlib.leftovers(os.path.dirname(source)), [])
        found = {key.decode(): value.data for key, value in editlib.strict(file).kv
                 if key[:1] == b'w'}
        self.assertEqual(found, {key: text for keys in kept for key, text in keys.items()})
        for key in found:
            want.set(key.encode(), Value('string', found[key]))
        # Where new keys stand depends on who was first.
        self.assertEqual(sorted(e.key for e in editlib.entries(file)[0]),
                         sorted(e.key for e in want.kv))
        want.kv = [entry for entry in want.kv if entry.key[:1] != b'w']
        want.check_tensors(gguf.read(file))
        ours = [entry for entry in editlib.entries(file)[0] if entry.key[:1] != b'w']
        self.assertEqual(ours, want.kv)

    def test_auto(self):
        self.run_them()

    def test_copy_close(self):
        self.run_them('-o', 'relayout=copy,commit=close')

    def test_sync(self):
        self.run_them('-o', 'commit=sync', count=100)

    def test_one_thread(self):
        self.run_them('-s', writers=2, readers=3)

    def test_same_keys(self):
        """Writers of the same key: it is one of their values, or their sum is, and whole."""
        source = mountlib.put('model.gguf', samples.editable())
        texts = [bytes([97 + i]) * (100 + i) for i in range(4)]

        def work(at, text):
            for _ in range(30):
                temporary = f'sed00{text[:1].decode()}'
                write(at, temporary, text)
                os.rename(place(at, temporary), place(at, 'general.name'))
                shown = editlib.read(at, 'general.name')
                assert shown.rstrip(b'\n') in texts, shown

        with mountlib.Mount(source) as at:
            in_processes([(work, (at, text)) for text in texts])
        self.assertIn(dict(gguf.read(mountlib.get(source)).kv)[b'general.name'].data, texts)


# ---- one edit while another is being written ----

class Call:
    """A call in a thread: what it raised, when it is done."""

    def __init__(self, function, *arguments):
        self.error = None
        self.thread = threading.Thread(target=self.run, args=(function, arguments))
        self.thread.start()

    def run(self, function, arguments):
        try:
            function(*arguments)
        except OSError as e:
            self.error = e

    def wait(self):
        self.thread.join(mountlib.LIMIT)
        assert not self.thread.is_alive(), 'it hangs'
        return self.error


class Gate:
    """A FIFO at which the program waits before it copies."""

    def __init__(self, name):
        self.name, self.fd = name, -1

    def shut(self):
        os.mkfifo(self.name)

    def wait(self):
        """Until somebody stands before it."""
        self.fd = os.open(self.name, os.O_WRONLY)

    def open(self):
        os.unlink(self.name)
        os.close(self.fd)
        self.fd = -1

    def remove(self):
        """Whatever has become of the test."""
        if self.fd >= 0:
            self.open()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.name)


def process_state(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as stat:
        return stat.read().rpartition(')')[2].split()[0]


@unittest.skipIf(not os.path.exists(GATE) or mountlib.sanitized('asan'), 'no gate')
class WhileCopying(unittest.TestCase):
    def setUp(self):
        self.source = mountlib.put('model.gguf', samples.editable())
        self.want, self.gate = Want(mountlib.get(self.source)), Gate(mountlib.path('gate'))
        self.addCleanup(self.gate.remove)
        os.environ['GATE'], os.environ['LD_PRELOAD'] = self.gate.name, GATE
        self.mount = mountlib.Foreground(self.source, '-o', 'relayout=copy')
        try:
            self.at, self.process = self.mount.__enter__()
        finally:
            del os.environ['GATE'], os.environ['LD_PRELOAD']
        self.rewrites = Rewrites(self.source)
        self.addCleanup(self.rewrites.close)

    def done(self):
        """Unmount; the file is as wanted."""
        self.mount.__exit__(None, None, None)
        self.want.check(mountlib.get(self.source))
        self.assertEqual(editlib.leftovers(mountlib.folder), [])

    def edit(self, key, text):
        self.want.set(key.encode(), Value('string', text.encode()))
        return Call(write, self.at, key, text)

    def until_shown(self, key):
        """Until the model that is shown has the value that is wanted of the key."""
        wanted = self.want.kv[self.want.index(key.encode())]

        def shown():
            return wanted in editlib.entries(mountlib.get(os.path.join(self.at, 'model.gguf')))[0]
        editlib.until(shown)

    def test_gathered(self):
        """What arrives meanwhile is shown at once and is one more rewrite; readers go on."""
        self.gate.shut()
        calls = [self.edit('my.first', 'one')]
        self.gate.wait()
        for count in range(5):
            calls.append(self.edit(f'my.more{count}', 'x' * 1000 * count + 'y'))
            self.until_shown(f'my.more{count}')
        for name in editlib.keys(self.at):
            os.stat(place(self.at, name))
        for tensor in self.want.before.tensors:
            folder = place(self.at, tensor.name, 'tensors')
            self.assertEqual(mountlib.get(os.path.join(folder, b'raw')), tensor.data)
        self.want.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
        editlib.until(lambda: all(call.thread.is_alive() for call in calls))
        self.assertEqual(self.rewrites.count(), 0)
        self.gate.open()
        self.assertEqual([call.wait() for call in calls], [None] * 6)
        self.assertEqual(self.rewrites.count(), 2)
        self.done()

    def test_failure_meanwhile(self):
        """Refused texts and edits taken back do not touch what is being written."""
        self.gate.shut()
        first = self.edit('my.first', 'one')
        self.gate.wait()
        with self.assertRaises(OSError) as caught:
            write(self.at, 'type.u8', '300')
        self.assertEqual(caught.exception.errno, errno.ERANGE)
        write(self.at, 'type.u8', '100\n')
        os.unlink(place(self.at, 'my.first'))
        second = self.edit('my.first', 'two')
        self.until_shown('my.first')
        self.gate.open()
        self.assertEqual((first.wait(), second.wait()), (None, None))
        self.done()

    def test_signal(self):
        """To the program that waits: EINTR, the old file stays, the value is the old one."""
        before = os.stat(self.source)
        self.gate.shut()

        def child():
            signal.signal(signal.SIGUSR1, lambda *_: None)
            signal.siginterrupt(signal.SIGUSR1, True)
            fd = os.open(place(self.at, 'general.name'), os.O_WRONLY | os.O_TRUNC)
            os.write(fd, b'never')
            try:
                os.close(fd)
            except OSError as e:
                os._exit(e.errno)
            os._exit(0)

        process = fork.Process(target=child)
        process.start()
        self.gate.wait()
        os.kill(process.pid, signal.SIGUSR1)
        # The kernel has told the daemon once the wait cannot be interrupted any more.
        editlib.until(lambda: process_state(process.pid) == 'D')
        for _ in range(20):
            os.statvfs(self.at)
        self.gate.open()
        process.join()
        self.assertEqual(process.exitcode, errno.EINTR)
        after = os.stat(self.source)
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))
        self.assertEqual(editlib.read(self.at, 'general.name'), b'test\n')
        self.assertEqual(editlib.leftovers(mountlib.folder), [])
        write(self.at, 'general.name', 'after')
        self.want.set(b'general.name', Value('string', b'after'))
        self.done()

    def test_replaced_meanwhile(self):
        """The model is replaced while the new one is written: ESTALE, and the other file stays."""
        self.gate.shut()
        calls = [Call(write, self.at, 'my.first', 'one')]
        self.gate.wait()
        calls.append(self.edit('my.second', 'two'))
        self.until_shown('my.second')
        other = gguf.encode(samples.ARCH, samples.small())
        os.rename(mountlib.put('other.gguf', other), self.source)
        self.gate.open()
        self.assertEqual([call.wait().errno for call in calls], [errno.ESTALE] * 2)
        self.assertEqual(mountlib.get(self.source), other)
        self.assertNotIn(b'my.first', editlib.keys(self.at))
        self.assertNotIn(b'my.second', editlib.keys(self.at))
        self.want = Want(other)
        self.done()

    def test_unmount_while_copying(self):
        """SIGTERM while a copy runs: it is finished, and what was gathered is written too."""
        self.gate.shut()
        calls = [self.edit('my.first', 'one')]
        self.gate.wait()
        calls.append(self.edit('my.second', 'two'))
        self.until_shown('my.second')
        self.process.terminate()
        self.gate.open()
        for call in calls:
            call.wait()  # an answer, or the connection's end
        self.process.wait(mountlib.LIMIT)
        self.done()


class Later(unittest.TestCase):
    """What nobody waits for: gathered, and written later or at the end."""

    def setUp(self):
        self.source = mountlib.put('model.gguf', samples.editable())
        self.want, self.rewrites = Want(mountlib.get(self.source)), Rewrites(self.source)
        self.addCleanup(self.rewrites.close)

    def large(self):
        """A model whose copy takes too long to wait for."""
        data = os.urandom(MIB) * 65
        self.source = mountlib.put('model.gguf', gguf.encode(
            samples.keys(), [Tensor(b'w', 24, (len(data),), data)]))
        self.want = Want(mountlib.get(self.source))

    def edits(self, at):
        for count in range(5):
            key = b'my.key%d' % count
            write(at, key, b'x%d' % count)
            self.want.set(key, Value('string', b'x%d' % count))
        os.unlink(place(at, 'type.u8'))
        self.want.remove(b'type.u8')

    def test_remove_all(self):
        """rm -r metadata/* is one rewrite, of all but the one key that stays."""
        with mountlib.Mount(self.source) as at:
            done = mountlib.run('sh', '-c', 'rm -r "$1"/metadata/*', 'sh', at)
            self.assertIn('general.architecture', done.err)
            self.assertEqual(done.err.count('\n'), 1, done.err)
            self.assertEqual(editlib.keys(at), [b'general.architecture'])
            sync(at)
            self.assertEqual(self.rewrites.count(), 1)
            self.want.kv = self.want.kv[:1]
            self.want.check(mountlib.get(self.source))

    def test_removal_is_written(self):
        """After a second, without anybody's asking."""
        with mountlib.Mount(self.source) as at:
            os.unlink(place(at, 'type.u8'))
            self.want.remove(b'type.u8')
            editlib.until(lambda: self.rewrites.count() == 1)
            sync(at)
            self.want.check(mountlib.get(self.source))

    def test_large_model(self):
        """Accepted at once and shown, written in one go two seconds after the last edit."""
        self.large()
        with mountlib.Mount(self.source, '-o', 'relayout=copy') as at:
            self.edits(at)
            self.assertEqual(self.rewrites.count(), 0)
            self.assertEqual(editlib.read(at, 'my.key3'), b'x3\n')
            editlib.until(lambda: self.rewrites.count() == 1)
            sync(at)
            self.assertEqual(self.rewrites.count(), 1)
            self.want.check(mountlib.get(self.source))

    def test_at_the_end(self):
        """Unmount or SIGTERM write what is pending; in each mode in which something can be."""
        for large, options in ((False, 'commit=sync'), (True, 'relayout=copy')):
            for end in ('unmount', 'SIGTERM', 'SIGINT', 'SIGHUP'):
                with self.subTest(options=options, end=end):
                    self.setUp()
                    if large:
                        self.large()
                    with mountlib.Foreground(self.source, '-o', options) as (at, process):
                        self.edits(at)
                        if end != 'unmount':
                            process.send_signal(getattr(signal, end))
                            process.wait(mountlib.LIMIT)
                    self.want.check(mountlib.get(self.source))
                    self.assertEqual(self.rewrites.count(), 1)

    def test_daemon(self):
        """fusermount3 -u returns before; the daemon writes, then ends."""
        self.large()
        with mountlib.Mount(self.source, '-o', 'relayout=copy') as at:
            self.edits(at)
        self.want.check(mountlib.get(self.source))


if __name__ == '__main__':
    mountlib.main(limit=280)
