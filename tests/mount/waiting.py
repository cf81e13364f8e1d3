# SPDX-License-Identifier: MIT
"""Edits made while another one is being written, and signals to programs that wait."""
import ctypes
import errno
import multiprocessing
import os
import signal
import unittest

import numpy as np

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Call, Want, gated, needs_gate, sync, write
from ggufmodel import Tensor, Value

MIB = 1 << 20

fork = multiprocessing.get_context('fork')

# Signals that are not meant to stop a program.
PASSING = (signal.SIGCHLD, signal.SIGWINCH, signal.SIGALRM, signal.SIGUSR1, signal.SIGCONT)


def fsync(fd):
    """Unlike os.fsync(), this does not try again after a signal."""
    if ctypes.CDLL(None, use_errno=True).fsync(fd) < 0:
        raise OSError(ctypes.get_errno(), 'fsync')


class Signals(unittest.TestCase):
    """Signals to a program that waits, in a mount on self.at."""
    at = None

    def child_that(self, call):
        """Start a process that makes a call; its exit status is the error."""
        def run():
            for number in (signal.SIGTERM, *PASSING):
                signal.signal(number, lambda *_: None)
                signal.siginterrupt(number, True)
            try:
                call()
            except OSError as e:
                os._exit(e.errno)
            os._exit(0)

        process = fork.Process(target=run)
        process.start()
        self.addCleanup(process.kill)
        return process

    def told(self, process):
        """Wait until the kernel has informed the daemon of a signal, so that the wait can no longer
        be interrupted."""
        def heard():
            self.assertTrue(process.is_alive(), 'it has ended')
            return mountlib.get(f'/proc/{process.pid}/stat').rpartition(b')')[2].split()[0] == b'D'

        editlib.until(heard)
        for _ in range(20):
            os.statvfs(self.at)


@needs_gate
class WhileCopying(Signals):
    def setUp(self):
        self.source = mountlib.put('model.gguf', samples.editable())
        self.want = Want(mountlib.get(self.source))
        self.gate, self.mount, self.at, _ = gated(self, 'GATE', self.source, '-o', 'relayout=copy')

    def ends(self, code, *signals, open_first=False):
        """Write an edit, and send the writing program signals while it is copied: it ends with this status, and the edit
        is written. open_first: the copy goes on before the program ends."""
        self.gate.shut()
        process = self.child_that(lambda: write(self.at, 'general.name', 'after'))
        self.gate.wait()
        for number in signals:
            os.kill(process.pid, number)
            if open_first:
                self.told(process)
        if open_first:
            self.gate.open()
        process.join(mountlib.LIMIT)
        self.assertEqual(process.exitcode, code)
        if not open_first:
            self.assertEqual(editlib.read(self.at, 'general.name').rstrip(), b'after')
            self.gate.open()
            sync(self.at)
        self.want.set(b'general.name', Value('string', b'after'))
        self.want.check(mountlib.get(self.source))
        self.mount.__exit__(None, None, None)
        self.assertEqual(editlib.leftovers(mountlib.folder), [])

    def test_signal(self):
        self.ends(errno.EINTR, signal.SIGTERM)

    def test_killed(self):
        self.ends(-signal.SIGKILL, signal.SIGKILL)

    def test_signals_that_pass(self):
        """SIGCHLD and similar signals end no wait; nor does a signal that stops or continues the
        program."""
        self.ends(0, *PASSING, signal.SIGSTOP, signal.SIGCONT, open_first=True)


class WhileConverting(Signals):
    def test_signal(self):
        """A conversion whose write was interrupted did not happen, although the program closes the file then."""
        values = np.random.default_rng(1).standard_normal(1 << 20, '<f4')
        source = mountlib.put('model.gguf', gguf.encode(samples.keys(), [Tensor(b'w', 0, (1024, 1024), values.tobytes())]))
        libc = ctypes.CDLL(None, use_errno=True)

        def convert():
            fd = os.open(place, os.O_WRONLY | os.O_TRUNC)
            done = libc.write(fd, b'IQ3_S\n', 6)  # slow; unlike os.write(), this does not try again
            code = ctypes.get_errno()
            os.close(fd)
            if done < 0:
                raise OSError(code, 'write')

        with mountlib.Mount(source, '-o', 'tensors=edit,commit=sync') as at:
            place = at + '/tensors/w/type'
            for _ in range(20):  # until the signal comes in time
                process = self.child_that(convert)
                editlib.until(lambda: process.exitcode is not None or editlib.waits(process.pid))
                if process.exitcode is None:
                    os.kill(process.pid, signal.SIGTERM)
                process.join(mountlib.LIMIT)
                if process.exitcode:
                    break
                with open(place, 'w') as file:
                    file.write('F32\n')
            self.assertEqual(process.exitcode, errno.EINTR)
            editlib.until(lambda: mountlib.get(place) == b'F32\n')  # the conversion breaks off


@needs_gate
class Folder(Signals):
    def test_fsync_of_the_root(self):
        """fsync of a directory of models waits for one that is being written, until a signal that should
        stop it, also behind one that passes; the edit is made."""
        source = mountlib.put('models/m.gguf', samples.editable())
        want = Want(mountlib.get(source))
        gate, mount, self.at, _ = gated(self, 'GATE', mountlib.path('models'), '-o', 'relayout=copy,commit=close')
        worker = gate.hold(write, self.at + '/m.gguf', 'general.name', 'after')
        with editlib.opened(self.at, os.O_RDONLY) as root:
            process = self.child_that(lambda: fsync(root))  # its only request
        editlib.until(lambda: editlib.waits(process.pid))
        os.kill(process.pid, signal.SIGUSR1)
        self.told(process)
        os.kill(process.pid, signal.SIGTERM)
        process.join(mountlib.LIMIT)
        self.assertEqual(process.exitcode, errno.EINTR)
        gate.open()
        self.assertIsNone(worker.wait())
        mount.__exit__(None, None, None)
        want.set(b'general.name', Value('string', b'after'))
        want.check(mountlib.get(source))


@needs_gate
class WhileFreeing(unittest.TestCase):
    def test_nobody_waits(self):
        """The old file of a large model is released after the edit has been answered; however long
        that takes, other requests continue."""
        data = bytes(65 * MIB)
        source = mountlib.put('model.gguf', gguf.encode(
            samples.keys(), [Tensor(b'w', 24, (len(data),), data)]))
        want = Want(mountlib.get(source))
        gate, mount, at, _ = gated(self, 'GATE_FREE', source, '-o', 'relayout=copy,commit=close')
        first = gate.hold(write, at, 'my.first', 'one')
        want.set(b'my.first', Value('string', b'one'))
        self.assertIsNone(first.wait())
        want.check(mountlib.get(source))
        self.assertEqual(editlib.read(at, 'my.first'), b'one\n')
        self.assertEqual(mountlib.get(os.path.join(at, 'tensors/w/raw')), data)
        second = Call(write, at, 'my.second', 'two')
        want.set(b'my.second', Value('string', b'two'))
        editlib.until(lambda: b'my.second' in editlib.keys(at))
        gate.open()
        self.assertIsNone(second.wait())
        mount.__exit__(None, None, None)
        want.check(mountlib.get(source))
