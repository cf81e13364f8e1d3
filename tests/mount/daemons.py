#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""How commands and daemons depend on each other: when the parent of a daemon returns, and when
--unmount returns if the daemon cannot end."""
import contextlib
import errno
import glob
import json
import os
import shutil
import signal
import subprocess
import unittest

import editlib
import freeze
import mountlib
import samples
from editlib import Gate, needs_gate, read, write
from mountcase import Case, daemon, needs_namespaces
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
    """A daemon is held just before it reports that it is ready."""

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
        """Mounts are made and ended in quick succession, while other programs use the
        processors."""
        at = self.folder()
        with contextlib.ExitStack() as stack:
            for _ in range(BUSY):
                busy = stack.enter_context(subprocess.Popen(['sh', '-c', 'while :; do :; done']))
                stack.callback(busy.kill)
            for count in range(TIMES):
                for command in ([GGUFS, self.model, at], [GGUFS, '--unmount', at]):
                    done = run(*command)  # it may print that it is waiting
                    self.assertEqual(done.returncode, 0, f'{count}: {command}: {done.err}')
        print(f'\nsoak: {TIMES} mounts and unmounts at a load of {BUSY}', flush=True)


class Stopped(Case):
    """A stopped daemon."""

    def stopped(self, at):
        process = daemon(at)
        freeze.stop(process)
        self.addCleanup(self.go_on, process)
        return process

    def go_on(self, process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)

    def test_another_mount_gets_its_number(self):
        at = self.folder()
        for count in range(2):  # the stopped daemon may be first or last in a list
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


@needs_namespaces
class OtherNamespace(Case):
    @contextlib.contextmanager
    def copied(self, at):
        """Keep this mount alive in a process's mount namespace, without the mounts of other
        tests."""
        script = ('while read -r _ here kind _; do [ $kind != fuse.ggufs ] || [ "$here" = "$1" ] || '
                  'umount -l "$(printf %b "$here")"; done </proc/self/mounts; echo copied; exec sleep 1000')
        with subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', script, 'sh',
                               at], stdout=subprocess.PIPE) as process:
            try:
                self.assertEqual(process.stdout.readline(), b'copied\n')
                yield process.pid
            finally:
                process.kill()

    def daemon_of(self, at):
        """Return the process that serves a mount that has ended here."""
        return [x['pid'] for x in json.loads(run(GGUFS, '--list', '--json').out) if x['mountpoint'] == at]

    def writable(self, model):
        """Check that the model can be edited in a new mount, in a directory of models as soon as the
        old daemon has released its lock."""
        there = self.folder()
        self.assertEqual(self.mounted(model, there), '')
        if os.path.isdir(model):
            editlib.until(lambda: self.is_written(there + '/m.gguf'))
        else:
            write(there, 'general.name', 'again')
        mountlib.unmount(there)

    @staticmethod
    def is_written(at):
        try:
            write(at, 'general.name', 'again')
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

    def unmounted(self, model, below, command, *options):
        """Return the command's output for a mount with pending edits that another namespace keeps
        alive."""
        at = self.folder()
        file = os.path.join(model, 'm.gguf') if below else model
        with Mount(model, '-o', ','.join(('commit=sync',) + options), at=at) as at:
            process = daemon(at)
            write(at + below, 'general.name', 'pending')
            with self.copied(at) as other:
                done = run(*command, at)
                self.assertEqual(done.returncode, 0, done.err)
                self.assertFalse(mountlib.mount_of(at))
                editlib.until(lambda: value(file) == b'pending')
                self.writable(model)
                self.assertEqual(value(file), b'again')
                seen = f'/proc/{other}/root{at}{below}'
                self.assertEqual(read(seen, 'general.name'), b'again\n' if below else b'pending\n')
                for edit in (lambda: write(seen, 'general.name', 'late'), lambda: write(seen, 'my.new', 'late'),
                             lambda: os.unlink(seen + '/metadata/general.name'),
                             lambda: os.rename(seen + '/metadata/general.name', seen + '/metadata/my.other')):
                    with self.assertRaises(OSError) as caught:
                        edit()
                    self.assertEqual(caught.exception.errno, errno.EROFS)
                self.assertEqual(self.daemon_of(at), [process])
            self.assertEqual(value(file), b'again')
        return done.err, f'process {process}', f'process {other} ('

    def test_unmount(self):
        """All edits are written, the lock is free, and the processes that keep the mount alive are
        named."""
        folder = self.folder()
        shutil.copy(self.model, folder + '/m.gguf')
        for model, below in ((self.model, ''), (folder, '/m.gguf')):
            with self.subTest(model=model):
                said, process, other = self.unmounted(model, below, (GGUFS, '--unmount'))
                self.assertIn(': unmounted, and all is written; it remains mounted read-only in another mount namespace, so '
                              f'its daemon ({process}) keeps running; in that namespace: {other}', said)

    def test_unmount_lost(self):
        """Edits that cannot be written are named, as at any other end of a mount."""
        at, model = self.folder(), mountlib.put('lost.gguf', samples.editable())
        with Mount(model, '-o', 'commit=sync', at=at) as at:
            write(at, 'general.name', 'pending')
            os.utime(model, (5, 5))
            with self.copied(at):
                done = run(GGUFS, '--unmount', at)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f'{at}: unmounted; it remains mounted read-only in another mount namespace', done.err)
                self.assertEqual(done.err.count(f'{at}: not saved: general.name: '), 1)
        os.unlink(model)

    def test_umount(self):
        """umount(8) has the same effect, but reports nothing."""
        folder = self.folder()
        shutil.copy(self.model, folder + '/m.gguf')
        for model, below in ((self.model, ''), (folder, '/m.gguf')):
            with self.subTest(model=model):
                self.assertEqual(self.unmounted(model, below, ('umount',))[0], '')

    def test_open_for_writing(self):
        """A file that is open for writing in the namespace keeps the lock until it is closed, and
        --unmount says so."""
        with Mount(self.model) as at, self.copied(at) as other:
            process = daemon(at)
            with open(f'/proc/{other}/root{at}/metadata/general.name', 'wb', buffering=0) as file:
                file.write(b'late')
                done = run(GGUFS, '--unmount', at)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f'ggufs: {at}: is unmounted, but files in it are open for writing in another mount '
                              f'namespace, so its daemon (process {process}) keeps running; in that namespace: process {other}',
                              done.err)
            self.assertEqual(value(self.model), b'late')
            editlib.until(lambda: json.loads(run(GGUFS, '--list', '--json').out) and
                          [x['mode'] for x in json.loads(run(GGUFS, '--list', '--json').out)
                           if x['mountpoint'] == at] == ['ro'])
            self.writable(self.model)

    def test_waits_for_the_lock(self):
        """While the old mount still has open files, a new mount waits for a moment, and names the
        old one."""
        with Mount(self.model) as at, self.copied(at) as other:
            process, there = daemon(at), self.folder()
            file = open(f'/proc/{other}/root{at}/metadata/general.name', 'wb', buffering=0)
            self.addCleanup(file.close)
            self.assertEqual(run('umount', at).returncode, 0)
            with subprocess.Popen([GGUFS, self.model, there], stdin=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE) as mounting:
                self.assertEqual(mounting.stderr.readline().decode(),
                                 f'ggufs: {self.model}: waiting: another ggufs has it open for writing (process {process}; its '
                                 f'mount on {at} is gone, but files are still open)\n')
                file.close()
                self.assertEqual((mounting.wait(mountlib.LIMIT), mounting.stderr.read()), (0, b''))
            write(there, 'general.name', 'again')
            mountlib.unmount(there)


if __name__ == '__main__':
    mountlib.main()
