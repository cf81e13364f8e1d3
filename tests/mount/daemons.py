#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What a command and a daemon know of each other: when the parent of a daemon returns, and when --unmount
does where the daemon cannot end."""
import contextlib
import glob
import os
import signal
import subprocess
import unittest

import editlib
import mountlib
import samples
from editlib import Gate, needs_gate, write
from mountcase import ROOT, Case, daemon
from mountlib import GGUFS, Mount, run
from shelflib import value

BUSY = 8
TIMES = 10 * int(os.environ.get('GGUFS_SOAK', '1'))


def children(pid):
    found = []
    for name in glob.glob(f'/proc/{pid}/task/*/children'):
        with open(name, encoding='ascii') as file:
            found += [int(word) for word in file.read().split()]
    return found


@needs_gate
class Parent(Case):
    """A daemon stands before the gate at which it says that it serves."""

    @contextlib.contextmanager
    def starting(self):
        gate, at = Gate(mountlib.path('gate')), self.folder()
        self.addCleanup(gate.remove)
        gate.shut()
        with gate.before('GATE_ANNOUNCE'):
            parent = subprocess.Popen([GGUFS, self.model, at], stdin=subprocess.DEVNULL,
                                      stderr=subprocess.PIPE, env=mountlib.environment())
        gate.wait()
        with parent:
            yield at, gate, parent

    def test_returns_when_the_daemon_can_be_found(self):
        with self.starting() as (at, gate, parent):
            self.assertTrue(mountlib.mount_of(at))
            with self.assertRaises(subprocess.TimeoutExpired):
                parent.wait(1)
            gate.open()
            self.assertEqual((parent.wait(mountlib.LIMIT), parent.stderr.read()), (0, b''))
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (0, ''))

    def test_fails_if_the_daemon_is_killed(self):
        with self.starting() as (at, gate, parent):
            [process] = children(parent.pid)
            os.kill(process, signal.SIGKILL)
            self.assertEqual((parent.wait(mountlib.LIMIT), parent.stderr.read()),
                             (1, b'ggufs: killed before it was mounted (signal 9)\n'))
            gate.open()
            self.assertEqual(run(GGUFS, '--unmount', at).returncode, 0)


class Load(Case):
    def test_again_and_again(self):
        """Mounted and unmounted at once, while other programs take the processors."""
        at = self.folder()
        with contextlib.ExitStack() as stack:
            for _ in range(BUSY):
                busy = stack.enter_context(subprocess.Popen(['sh', '-c', 'while :; do :; done']))
                stack.callback(busy.kill)
            for count in range(TIMES):
                for command in ([GGUFS, self.model, at], [GGUFS, '--unmount', at]):
                    done = run(*command)  # it may say that it waits
                    self.assertEqual(done.returncode, 0, f'{count}: {command}: {done.err}')
        print(f'\nsoak: {TIMES} mounts and unmounts at a load of {BUSY}', flush=True)


class Stopped(Case):
    """A daemon that is stopped."""

    def stopped(self, at):
        process = daemon(at)
        os.kill(process, signal.SIGSTOP)
        self.addCleanup(self.go_on, process)
        return process

    def go_on(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)

    def test_another_mount_gets_its_number(self):
        at = self.folder()
        for count in range(2):  # the stopped one may come first or last in a list
            model = mountlib.put(f'model-{count}.gguf', samples.editable())
            self.addCleanup(os.unlink, model)
            self.mounted(model, at)
            self.stopped(at)
            self.assertEqual(run('fusermount3', '-u', '-z', at).returncode, 0)
        self.mounted(self.model, at)
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.err), (0, ''))

    def test_nothing_is_mounted_inside(self):
        with Mount(self.model) as at:
            process = self.stopped(at)
            done = run(GGUFS, self.model, f'{at}/metadata')
            self.assertEqual((done.returncode, done.err),
                             (1, f'ggufs: {at}/metadata: is inside the ggufs mount on {at}\n'))
            self.go_on(process)


@unittest.skipUnless(ROOT, 'for root only')
class OtherNamespace(Case):
    @contextlib.contextmanager
    def copied(self, at):
        """This mount lives on in the mount namespace of a process; those of other tests do not."""
        script = ('while read -r _ here kind _; do [ $kind != fuse.ggufs ] || [ "$here" = "$1" ] || '
                  'umount -l "$(printf %b "$here")"; done </proc/self/mounts; echo copied; exec sleep 1000')
        with subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script, 'sh',
                               at], stdout=subprocess.PIPE) as process:
            try:
                self.assertEqual(process.stdout.readline(), b'copied\n')
                yield process.pid
            finally:
                process.kill()

    def clock(self, ms):
        with open(mountlib.path('clock.new'), 'w', encoding='ascii') as file:
            file.write(str(ms))
        os.rename(mountlib.path('clock.new'), mountlib.path('clock'))

    @needs_gate
    def test_unmount_ends(self):
        """What is pending is written; the processes that keep the mount alive are named."""
        self.clock(0)
        with Mount(self.model, '-o', 'commit=sync') as at:
            process = daemon(at)
            write(at, 'general.name', 'pending')
            with self.copied(at) as other:
                with Gate(mountlib.path('clock')).before('GATE_CLOCK'):
                    command = subprocess.Popen([GGUFS, '--unmount', at], stderr=subprocess.PIPE,
                                               env=mountlib.environment())
                editlib.until(lambda: not mountlib.mount_of(at))
                ms = 0
                while command.poll() is None:  # it looks ten times a second
                    ms += 10000
                    self.clock(ms)
                said = command.communicate()[1].decode().splitlines()[-1]
                self.assertEqual(command.returncode, 1)
                self.assertRegex(said, rf'^ggufs: {at}: is unmounted, but lives on in another mount '
                                 rf'namespace, so its daemon \(process {process}\) goes on; in that '
                                 rf'namespace: process {other} \((sh|sleep)\)$')
                self.assertEqual(value(self.model), b'pending')
                os.kill(process, signal.SIGTERM)


if __name__ == '__main__':
    mountlib.main()
