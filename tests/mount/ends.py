# SPDX-License-Identifier: MIT
"""The end of editing: by each signal, by each way to unmount, and by force; while the mount is
idle, while an accepted edit waits to be copied, while it is copied, and while a key is open for
writing."""
import contextlib
import errno
import itertools
import os
import signal
import subprocess
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Call, Gate, Want, gated, needs_gate, place, write
from ggufmodel import Tensor, Value, array

SIGNALS = ('SIGTERM', 'SIGINT', 'SIGHUP')
ROOT = os.getuid() == 0
PLAIN = ('umount',) if ROOT else ('fusermount3', '-u')
LEAVER = 'while read -r line; do $line; echo $?; done'
WAYS = ((), PLAIN, ('fusermount3', '-uz'))
TOKENS = b'tokenizer.ggml.tokens'
TEXTS = [b'token %d' % i for i in range(1000)]


def model():
    return gguf.encode(samples.keys() + [(TOKENS, array('string', TEXTS))], samples.small())


class Ends(unittest.TestCase):
    """A mount in the foreground whose end is tested."""

    leaver = None

    def setUp(self):
        self.addCleanup(self.end)
        self.begin()

    def begin(self, more=''):
        self.end()
        # A separate process unmounts, because fork(2) and exec(2) would close open files here, and
        # so judge them.
        self.leaver = subprocess.Popen(['sh', '-c', LEAVER], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.source = mountlib.put('model.gguf', model())
        self.want, self.gate = Want(mountlib.get(self.source)), Gate(mountlib.path('gate'))
        self.mount = mountlib.Foreground(self.source, '-o', 'commit=sync,relayout=copy' + more)
        with self.gate.before('GATE') if not mountlib.sanitized('asan') else \
                contextlib.nullcontext():
            self.at, self.process = self.mount.__enter__()

    def end(self):
        if not self.leaver:
            return
        if mountlib.mount_of(self.at):
            self.leave(('fusermount3', '-uz'))
        self.process.kill()
        self.process.wait()
        self.mount.err.close()
        self.gate.open()
        self.leaver.communicate()
        self.leaver = None

    def accept(self):
        """Accept an edit that stays in memory until the end."""
        write(self.at, 'general.name', 'accepted')
        self.want.set(b'general.name', Value('string', b'accepted'))

    def ask(self, key, text):
        """Make an edit that waits for its turn if another one is being written. Returns the call,
        which the daemon has taken (with max_threads=1)."""
        self.want.set(key.encode(), Value('string', text.encode()))
        fd = os.open(place(self.at, key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        editlib.write_all(fd, text)
        call = Call(os.close, fd)
        editlib.until(lambda: not call.thread.is_alive() or call.waits())
        os.statvfs(self.at)  # a later request, never answered from a cache
        return call

    def leave(self, way):
        """Return the exit status of a command that unmounts."""
        self.leaver.stdin.write(' '.join([*way, self.at, '\n']).encode())
        self.leaver.stdin.flush()
        return int(self.leaver.stdout.readline())

    def signal(self, name):
        self.process.send_signal(getattr(signal, name))

    def ended(self):
        """Check that the mount ended well, the model is as expected, and no file is left beside
        it."""
        self.assertEqual(self.process.wait(mountlib.LIMIT), 0, self.mount.log())
        self.want.check(mountlib.get(self.source))
        self.assertEqual(editlib.leftovers(mountlib.folder), [])
        self.assertIsNone(mountlib.mount_of(self.at))
        self.mount.err.close()
        mountlib.assert_no_faults()

    def each(self, test, more=''):
        """Run a check for each way to unmount, and for each signal."""
        for way, name in (*itertools.product(WAYS[:1], SIGNALS), *zip(WAYS[1:], SIGNALS)):
            with self.subTest(way=way, signal=name):
                self.begin(more=more)
                test(way, name)

    # ---- nothing is open ----

    @needs_gate
    def test_pending(self):
        """An accepted edit waits to be copied. While it is copied, further signals have no
        effect."""
        def end(way, name):
            self.accept()
            self.gate.shut()
            if way:
                self.assertEqual(self.leave(way), 0)
            else:
                self.signal(name)
            self.gate.wait()
            for again in (name, name, *SIGNALS):
                self.signal(again)
            self.gate.open()
            self.ended()
        self.each(end)

    # ---- a key is open for writing ----

    def open_key(self, text):
        fd = os.open(place(self.at, TOKENS), os.O_WRONLY | os.O_TRUNC)
        self.addCleanup(self.close, fd)
        if text:
            os.write(fd, text)
        else:
            os.close(os.dup(fd))  # like a shell before it runs the command
        return fd

    @staticmethod
    def close(fd):
        with contextlib.suppress(OSError):
            os.close(fd)

    def open_and_end(self, way, name, text):
        self.accept()
        fd = self.open_key(text)
        if way:
            self.assertEqual(self.leave(way) == 0, way[-1] == '-uz')
        self.signal(name)
        self.ended()
        self.close(fd)

    def test_open(self):
        """Half a text, whole lines of one, a truncation: what no close has judged is dropped."""
        for text in (b'["half a", ', b'"token 0"\n"token 1"\n', b''):
            self.each(lambda way, name, text=text: self.open_and_end(way, name, text))

    @needs_gate
    def test_copying(self):
        """An edit is being copied, and a program waits for it; another edit has been accepted meanwhile, and another
        key may be open, partly written or truncated."""
        def end(way, name, text):
            self.want.set(b'general.name', Value('string', b'waited for'))
            call = self.gate.hold(lambda: write(self.at, 'general.name', 'waited for', fsync=True))
            other = self.ask('my.other', 'accepted')
            fd = -1 if text is None else self.open_key(text)
            if way:
                self.assertEqual(self.leave(way) == 0, way[-1] == '-uz')
            for _ in range(3):
                self.signal(name)
            self.gate.open()
            call.wait()  # an answer, or the end of the connection
            other.wait()
            self.ended()
            self.close(fd)
        for text in (None, b'', b'["half'):
            self.each(lambda way, name, text=text: end(way, name, text), ',max_threads=1')

    @needs_gate
    def test_half_a_text(self):
        """A program that could write only half of its text before the signal makes no edit by its close."""
        self.accept()
        fd = os.open(place(self.at, 'type.string'), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'half')
        self.gate.shut()
        self.signal('SIGTERM')
        self.gate.wait()
        mountlib.fails(errno.EROFS, os.write, fd, b' of it')
        mountlib.fails(errno.EROFS, os.close, fd)
        self.gate.open()
        self.ended()

    def test_closed_after_a_lazy_unmount(self):
        """A program continues after a lazy unmount, and its close makes an edit."""
        fd = self.open_key(b'["a", ')
        self.assertEqual(self.leave(('fusermount3', '-uz')), 0)
        os.write(fd, b'"b"]')
        os.close(fd)
        self.want.set(TOKENS, array('string', [b'a', b'b']))
        self.ended()

    def test_another_mount_in_its_place(self):
        """A signal ends a lazily unmounted mount with an open file, but not the mount that is now
        in its place."""
        fd = self.open_key(b'["half')
        self.assertEqual(self.leave(('fusermount3', '-uz')), 0)
        other = mountlib.put('other.gguf', model())
        with mountlib.Mount(other, at=self.at):
            self.signal('SIGTERM')
            self.assertEqual(self.process.wait(mountlib.LIMIT), 0)
            self.assertEqual(editlib.read(self.at, 'general.name'), b'test\n')
        self.ended()
        self.close(fd)

    # ---- by force ----

    @unittest.skipIf(not ROOT, 'for root only')
    def test_force(self):
        """The connection is aborted; the mount stays while it is busy."""
        for text in None, b'["half', b'"x"\n"y"\n', b'':
            with self.subTest(text=text):
                self.begin()
                self.accept()
                fd = -1 if text is None else self.open_key(text)
                self.leave(('umount', '-f'))
                self.assertEqual(self.process.wait(mountlib.LIMIT), 0, self.mount.log())
                if mountlib.mount_of(self.at):
                    self.leave(('umount', '-l'))
                self.ended()
                self.close(fd)


class Draining(unittest.TestCase):
    """After a signal, the mount serves until everything is written and every call is answered."""

    MODELS = [f'{i}.gguf' for i in range(8)]

    @needs_gate
    def test_all_are_answered(self):
        """Programs that wait for their edits get their answers, not an error; no new edit is taken,
        and what can be read is read."""
        folder = mountlib.path('models')
        for name in self.MODELS:
            mountlib.put(os.path.join(folder, name), model())
        gate, mount, at, process = gated(self, 'GATE', folder, '-o', 'relayout=copy,history=0,max_threads=1')
        files = [written(os.path.join(at, name)) for name in self.MODELS]
        gate.shut()
        calls = [Call(os.fsync, fd) for fd in files]
        gate.wait()
        editlib.until(lambda: all(map(Call.waits, calls)))
        os.statvfs(at)
        process.send_signal(signal.SIGTERM)
        editlib.until(lambda: self.refused(os.path.join(at, self.MODELS[0])))
        self.assertEqual(editlib.read(os.path.join(at, self.MODELS[1]), 'general.name'), b'test\n')
        gate.open()
        self.assertEqual([call.wait() for call in calls], [None] * len(calls))
        self.assertEqual(process.wait(mountlib.LIMIT), 0)
        for fd in files:
            Ends.close(fd)
        mount.__exit__(None)
        want = Want(model())
        want.set(b'my.key', Value('string', b'text'))
        for name in self.MODELS:
            want.check(mountlib.get(os.path.join(folder, name)))

    def refused(self, at):
        """Return whether no edit is taken any more. Nothing is written: while edits are taken, that would wait."""
        try:
            os.close(os.open(place(at, 'general.name'), os.O_WRONLY))
        except OSError as e:
            self.assertEqual(e.errno, errno.EROFS)
            return True
        return False

    def test_conversion(self):
        """A signal cuts a conversion short; the mount is gone at once, and the model is the old one."""
        values = bytes(256 << 20)
        source = mountlib.put('large.gguf', gguf.encode(samples.keys(), [
            Tensor(b'w', 0, (256, len(values) // 1024), values)]))
        self.addCleanup(os.unlink, source)
        before = os.stat(source)
        mount = mountlib.Foreground(source, '-o', 'tensors=edit')
        at, process = mount.begin(self)
        idle = spent(process.pid)
        call = Call(mountlib.put, os.path.join(at, 'tensors/w/type'), 'Q4_K')
        editlib.until(lambda: spent(process.pid) > idle + 5 or not call.thread.is_alive())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(mountlib.LIMIT), 0)
        self.assertIn(call.wait().errno, (errno.EINTR, errno.ENOTCONN, errno.ECONNABORTED))
        mount.err.close()
        after = os.stat(source)
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))

    def test_at_once(self):
        """A signal right after mounting leaves no mount without its daemon."""
        source = mountlib.put('model.gguf', model())
        for name in SIGNALS * 3:
            with mountlib.Foreground(source) as (at, process):
                process.send_signal(getattr(signal, name))
                self.assertEqual(process.wait(mountlib.LIMIT), 0)
                self.assertIsNone(mountlib.mount_of(at))


def written(place):
    """Write a key's text, without its flush."""
    fd = os.open(editlib.place(place, 'my.key'), os.O_WRONLY | os.O_CREAT)
    os.write(fd, b'text')
    return fd


def spent(pid):
    """Return a process's processor time, in hundredths of a second."""
    words = mountlib.get(f'/proc/{pid}/stat').rpartition(b') ')[2].split()
    return int(words[11]) + int(words[12])
