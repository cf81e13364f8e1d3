#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Mounts beside each other: one writer, waiting for a daemon that still writes, unmounting, and
directories that are mount points."""
import contextlib
import fcntl
import json
import mmap
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest
from unittest import mock

import editlib
import freeze
import mountlib
import shelflib
from editlib import Gate, needs_gate, read, write
from mountcase import READ_ONLY, ROOT, Case, as_nobody, daemon, needs_namespaces, why
from mountlib import GGUFS, Mount, run

# A process that poses as a daemon until its standard input ends.
CLAIM = """
import os, socket, sys, threading
clients, door = [], socket.socket(socket.AF_UNIX)
door.bind(f"\\0ggufs-0123456789abcdef-{os.getpid():016x}")
door.listen()
print(flush=True)
def answer():
    while True:
        clients.append(door.accept()[0])
        clients[-1].send(f"at {sys.argv[1]}\\nserving\\nleaving\\nnow\\n".encode())
threading.Thread(target=answer, daemon=True).start()
sys.stdin.read()
for client in clients:
    try:
        client.send(b"ended\\n", socket.MSG_NOSIGNAL)
    except OSError:
        pass
"""


class ReadOnly(Case):
    """A mount that is read-only without having been requested always gives a reason."""

    def check(self, at, said, reason):
        self.assertRegex(said, rf'^ggufs: {re.escape(self.model)}: mounted read-only: {reason}\n$')
        self.assertRegex(why(at), f'^{reason}$')
        self.assertIn(READ_ONLY, os.listxattr(at))
        self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
        mountlib.unmount(at)

    def test_another_mount(self):
        with Mount(self.model) as first:
            self.assertNotIn(READ_ONLY, os.listxattr(first))
            with self.assertRaises(OSError):
                why(first)
            reason = rf'another ggufs has it open for writing \(mounted on {first}, process {daemon(first)}\)'
            for options in ([], ['-o', 'rw']):
                at = self.folder()
                self.check(at, self.mounted(*options, self.model, at), reason)

    def test_another_program(self):
        at = self.folder()
        with open(self.model, 'rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.check(at, self.mounted(self.model, at),
                       rf'another program has it locked \(process {os.getpid()}, [^)]+\)')

    @needs_namespaces
    def test_another_user(self):
        """A process that cannot be inspected is named by its user, from the list of mounts."""
        os.chmod(mountlib.folder, 0o755)
        at, model = self.folder('by-nobody'), os.path.join(self.folder('of-nobody'), 'model.gguf')
        shutil.copy(self.model, model)
        for name in (at, model, os.path.dirname(model)):
            os.chown(name, 65534, 65534)
        with Mount(model) as first:
            # Sanitizers report to standard error, because that user may not write into the test's
            # directory.
            done = as_nobody(f'env -u ASAN_OPTIONS -u TSAN_OPTIONS -u UBSAN_OPTIONS "$@"; status=$?; '
                             f'umount {at}; exit $status', GGUFS, model, at)
            self.assertEqual((done.returncode, done.err),
                             (0, f'ggufs: {model}: mounted read-only: another ggufs has it open for writing '
                              f'(mounted on {first} by root)\n'))

    @needs_namespaces
    def test_apparmor(self):
        """A mount that fusermount3 was not allowed is explained where there is AppArmor."""
        os.chmod(mountlib.folder, 0o755)
        at, model = self.folder('of-nobody-at'), os.path.join(self.folder('of-nobody-2'), 'model.gguf')
        shutil.copy(self.model, model)
        for name in (at, model, os.path.dirname(model)):
            os.chown(name, 65534, 65534)
        fake = mountlib.put('fusermount3', b'#!/bin/sh\necho "fusermount3: mount failed: Permission denied" >&2\n'
                            b'exit 1\n')
        os.chmod(fake, 0o755)
        for kind in ('other', 'apparmor'):
            done = as_nobody(f'mount -t tmpfs none /sys/kernel/security; mkdir /sys/kernel/security/{kind}; '
                             f'mount --bind {fake} "$(readlink -f "$(command -v fusermount3)")"; "$@"',
                             GGUFS, model, at)
            self.assertEqual((done.returncode, done.err.count('\n')), (1, 1), done.err)
            self.assertIn(f'{at}: cannot mount: mount failed: Permission denied', done.err)
            self.assertEqual('/etc/apparmor.d/local/fusermount3' in done.err, kind == 'apparmor', done.err)

    @needs_namespaces
    def test_in_a_container(self):
        """Processes outside a container cannot be seen."""
        with Mount(self.model) as first:
            at = self.folder()
            done = run('unshare', '--pid', '--fork', '--mount-proc', 'sh', '-c',
                       '"$1" "$2" "$3"; status=$?; umount "$3"; exit $status', 'sh', GGUFS,
                       self.model, at)
            self.assertEqual((done.returncode, done.err),
                             (0, f'ggufs: {self.model}: mounted read-only: another ggufs has it open for writing '
                              f'(mounted on {first} by root)\n'))

    @unittest.skipUnless(ROOT, 'for root only')
    def test_model_bound_by_itself(self):
        """Containers are given single files; such a file cannot be replaced."""
        bound = os.path.join(self.folder('container'), 'bound.gguf')
        with open(bound, 'wb'):
            pass
        self.assertEqual(run('mount', '--bind', self.model, bound).returncode, 0)
        self.addCleanup(lambda: self.assertEqual(run('umount', bound).returncode, 0))
        for option in ('relayout=auto', 'relayout=inplace'):
            at = self.folder()
            said = self.mounted('-o', option, bound, at)
            reason = 'the file is a mount point and cannot be replaced: bind its directory instead'
            self.assertEqual(said, f'ggufs: {bound}: mounted read-only: {reason}\n')
            self.assertEqual(why(at), reason)
            mountlib.unmount(at)
        with Mount(os.path.dirname(bound)) as at:
            self.assertEqual(why(os.path.join(at, 'bound.gguf')), reason)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_append_only_directory(self):
        """Files can be created there, but not exchanged or removed."""
        where, at = self.folder('append-only'), self.folder()
        model = shutil.copy(self.model, where)
        if run('chattr', '+a', where).returncode:
            self.skipTest('the file system has no such attribute')
        self.addCleanup(lambda: self.assertEqual(run('chattr', '-a', where).returncode, 0))
        self.assertIn('mounted read-only: its directory is append-only', self.mounted(model, at))
        mountlib.unmount(at)
        self.assertEqual(os.listdir(where), ['model.gguf'])

    def test_asked_for(self):
        for option, reason in (('ro', 'requested by -o ro'), ('ro,partial', 'requested by -o ro')):
            at = self.folder()
            self.assertEqual(self.mounted('-o', option, self.model, at), '')
            self.assertEqual(why(at), reason)
            mountlib.unmount(at)
        at = self.folder()
        self.check(at, self.mounted('-o', 'partial', self.model, at),
                   'nothing can be edited with -o partial')

    @unittest.skipIf(ROOT, 'root may write any file')
    def test_may_not_be_written(self):
        os.chmod(self.model, 0o444)
        self.addCleanup(os.chmod, self.model, 0o644)
        at = self.folder()
        self.check(at, self.mounted(self.model, at),
                   r'cannot open the model for writing: Permission denied \(chmod u\+w\)')

    def test_in_the_foreground(self):
        mount = mountlib.Foreground(self.model)
        with Mount(self.model), mount as (at, _):
            os.stat(at)
            self.assertEqual(mount.log().count('another ggufs has it open for writing'), 1)


class Again(Case):
    def test_at_once(self):
        """A mount right after an unmount shows the edits, and is writable."""
        at = self.folder()
        for number in range(30):
            self.assertEqual(self.mounted('-o', 'commit=sync', self.model, at), '')
            if number:
                self.assertEqual(read(at, 'general.name'), b'number %d\n' % (number - 1))
            write(at, 'general.name', f'number {number}')
            done = run('umount' if ROOT else 'fusermount3', *([] if ROOT else ['-u']), at)
            self.assertEqual(done.returncode, 0, done.err)
        self.assertEqual(self.mounted('-o', 'ro', self.model, at), '')
        self.assertEqual(read(at, 'general.name'), b'number 29\n')
        mountlib.unmount(at)

    @needs_gate
    def test_while_writing(self):
        """While the daemon of an ended mount still writes, the next mount waits, and says so."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.remove)
        for value, options in (('late', []), ('later', ['-o', 'ro'])):
            with self.subTest(options=options):
                at, there = self.folder(), self.folder()
                with gate.before('GATE'):
                    self.mounted('-o', 'relayout=copy,commit=sync', self.model, at)
                process = daemon(at)
                write(at, 'general.name', value)
                gate.shut()
                mountlib.unmount(at)
                gate.wait()
                with tempfile.TemporaryFile() as said:
                    again = subprocess.Popen([GGUFS, *options, self.model, there], stderr=said,
                                             stdin=subprocess.DEVNULL)
                    editlib.until(lambda: os.fstat(said.fileno()).st_size)
                    self.assertIsNone(mountlib.mount_of(there))
                    gate.open()
                    self.assertEqual(again.wait(mountlib.LIMIT), 0)
                    said.seek(0)
                    self.assertEqual(said.read().decode(),
                                     f'ggufs: {self.model}: waiting: process {process} is still '
                                     f'writing edits of {at}\n')
                self.assertEqual(read(there, 'general.name'), value.encode() + b'\n')
                self.assertEqual(READ_ONLY in os.listxattr(there), bool(options))
                mountlib.unmount(there)

    @needs_gate
    def test_unmount_says_that_it_waits(self):
        """--unmount says so if a daemon writes for long; two commands at the same time both
        succeed."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.remove)
        at = self.folder()
        with gate.before('GATE'):
            self.mounted('-o', 'relayout=copy,commit=sync', self.model, at)
        process = daemon(at)
        write(at, 'general.name', 'slow')
        gate.shut()
        with tempfile.TemporaryFile() as said:
            ends = [subprocess.Popen([GGUFS, '--unmount', at], stderr=said,
                                     stdin=subprocess.DEVNULL) for _ in range(2)]
            gate.wait()
            line = f'ggufs: {at}: waiting: process {process} is still writing edits\n'
            editlib.until(lambda: os.fstat(said.fileno()).st_size >= 2 * len(line))
            gate.open()
            codes = [end.wait(mountlib.LIMIT) for end in ends]
            said.seek(0)
            self.assertEqual((codes, said.read().decode()), ([0, 0], 2 * line))

    @needs_gate
    def test_unmount_of_a_folder_says_that_it_waits(self):
        """The models of a directory are written after the session has ended, and --unmount
        waits."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.remove)
        at, top = self.folder(), self.folder()
        shutil.copy(self.model, top + '/m.gguf')
        with gate.before('GATE'):
            self.mounted('-o', 'relayout=copy,commit=sync', top, at)
        process = daemon(at)
        write(at + '/m.gguf', 'general.name', 'slow')
        gate.shut()
        self.assertEqual(self.said(at, lambda: (gate.wait(), gate.open())),
                         f'ggufs: {at}: waiting: process {process} is still writing edits\n')
        self.assertEqual(shelflib.value(top + '/m.gguf'), b'slow')

    def test_stopped(self):
        """A stopped daemon is named, and its mount stays, even if it serves a directory of
        models."""
        top = self.folder()
        shutil.copy(self.model, top + '/m.gguf')
        for arguments in (['-o', 'ro', self.model], [top]):
            with self.subTest(arguments=arguments):
                at = self.folder()
                self.mounted(*arguments, at)
                process = daemon(at)
                with freeze.stopped(process):
                    done = run(GGUFS, '--unmount', at)
                    self.assertEqual((done.returncode, done.err), (
                        1, f'ggufs: {at}: its daemon (process {process}) does not answer: it is stopped\n'))
                    self.assertTrue(mountlib.mount_of(at))
                done = run(GGUFS, '--unmount', at)
                self.assertEqual((done.returncode, done.err), (0, ''))

    def said(self, at, go_on):
        """Return the output of --unmount from before the daemon continues. The command succeeds."""
        with tempfile.TemporaryFile() as said, \
                subprocess.Popen([GGUFS, '--unmount', at], stderr=said, stdin=subprocess.DEVNULL) as end:
            editlib.until(lambda: os.fstat(said.fileno()).st_size > 0)
            go_on()
            self.assertEqual(end.wait(mountlib.LIMIT), 0)
            said.seek(0)
            return said.read().decode()

    def test_side_by_side(self):
        """If several mounts begin at the same time, one writes, and the others name it."""
        places = [self.folder() for _ in range(4)]
        started = [subprocess.Popen([GGUFS, self.model, at], stderr=subprocess.DEVNULL)
                   for at in places]
        for process in started:
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
        writers = [at for at in places if READ_ONLY not in os.listxattr(at)]
        self.assertEqual(len(writers), 1)
        for at in places:
            if at not in writers:
                self.assertIn(f'(mounted on {writers[0]}, process {daemon(writers[0])})', why(at))
        for at in places:
            mountlib.unmount(at)


class Places(Case):
    """A directory that is a mount point, or is in a mount."""

    def refused(self, at, *names, status=1, command=()):
        done = run(GGUFS, *(command or (self.model, at)))
        self.assertEqual((done.returncode, done.out), (status, ''), done.err)
        self.assertEqual(done.err.count('\n'), 1, done.err)
        for name in names:
            self.assertIn(name, done.err)

    def test_mounted_already(self):
        link = mountlib.path('link')
        with Mount(self.model, '-o', 'ro') as at:
            os.symlink(at, link)
            self.addCleanup(os.unlink, link)
            for name in (at, at + '/', link, at + '/.', at + '/../' + os.path.basename(at)):
                self.refused(name, name, self.model, f'process {daemon(at)}', '--unmount')
            for name in ('metadata', 'tensors', 'metadata/..', 'metadata/general.name'):
                self.refused(os.path.join(at, name), name, at)
            self.assertEqual(len([row for row in mountlib.mounts()
                                  if row[0] == os.fsencode(at)]), 1)

    def test_at_the_same_time(self):
        """If several commands mount on one directory, one succeeds, and the others see its
        mount."""
        at = self.folder()
        for _ in range(5):
            started = [subprocess.Popen([GGUFS, '-o', 'ro', self.model, at],
                                        stderr=subprocess.DEVNULL) for _ in range(4)]
            statuses = sorted(process.wait(mountlib.LIMIT) for process in started)
            self.assertEqual(statuses, [0, 1, 1, 1])
            mountlib.unmount(at)
            self.assertIsNone(mountlib.mount_of(at))

    def test_other_subtype(self):
        with Mount(self.model, '-o', 'subtype=other,ro') as at:
            self.refused(at, ': ggufs is already mounted there')

    def killed(self, at, hold=False):
        """Return a mount whose daemon is dead; hold: its directory stays open."""
        mount = Mount(self.model, at=at)
        mount.__enter__()
        if hold:
            self.addCleanup(os.close, os.open(at, os.O_RDONLY))
        os.kill(daemon(at), signal.SIGKILL)
        mount.wait()
        os.close(mount.life)

    def test_over_a_dead_mount(self):
        """A dead mount is removed before the new one is made, even if it is in use."""
        at = self.folder()
        self.killed(at, hold=True)
        self.refused(os.path.join(at, 'metadata'), 'inside the dead mount on ' + at)
        self.assertEqual(self.mounted(self.model, at), f'ggufs: {at}: a dead mount was removed '
                         '(its daemon had been killed)\n')
        self.assertEqual(len([row for row in mountlib.mounts() if row[0] == os.fsencode(at)]), 1)
        self.assertEqual(read(at, 'general.architecture'), b'llama\n')
        mountlib.unmount(at)

    @needs_gate
    @unittest.skipUnless(ROOT, 'for root only')
    def test_a_dead_mount_that_another_process_removes(self):
        """If another process removes a dead mount, neither the new mount nor its end fails."""
        gate, at = Gate(mountlib.path('gate')), self.folder()
        self.addCleanup(gate.remove)
        self.killed(at)
        gate.shut()
        with gate.before('GATE_UNMOUNT'):
            mounting = subprocess.Popen([GGUFS, self.model, at], stdin=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=mountlib.environment())
        gate.wait()
        mountlib.unmount(at)
        gate.open()
        self.assertEqual(mounting.wait(mountlib.LIMIT), 0)
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.err), (0, ''))

    def test_empty(self):
        for model, at, name in (('', self.folder(), 'MODEL'), (self.model, '', 'MOUNTPOINT')):
            self.refused(at, f'ggufs: {name} is empty ', status=2, command=(model, at))

    def test_unmount_of_the_dead(self):
        at = self.folder()
        self.killed(at)
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.err), (0, f'ggufs: {at}: a dead mount was removed '
                                                       '(its daemon had been killed)\n'))
        self.assertIsNone(mountlib.mount_of(at))
        self.refused(at, at, 'nothing is mounted there', command=('--unmount', at))


class Unmount(Case):
    def busy(self, at, *names):
        done = run(GGUFS, '--unmount', at)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.err.count('\n'), 1, done.err)
        self.assertTrue(done.err.startswith(f'ggufs: {at}: is in use: '), done.err)
        for name in names:
            self.assertIn(name, done.err)
        self.assertTrue(mountlib.mount_of(at))

    @contextlib.contextmanager
    def sleeping(self, **how):
        with subprocess.Popen(['sleep', '1000'], **how) as process:
            try:
                yield process.pid
            finally:
                process.kill()

    def test_busy(self):
        """Processes that keep a mount busy are named: an open file, a working directory, a
        mapping."""
        with Mount(self.model) as at:
            with open(os.path.join(at, 'info'), 'rb') as file:
                self.busy(at, f'process {os.getpid()} (')
                file.read(1)
            with self.sleeping(cwd=os.path.join(at, 'metadata')) as first, \
                    self.sleeping(cwd=at) as second:
                self.busy(at, f'process {first} (sleep)', f'process {second} (sleep)')
            with open(os.path.join(at, 'tensors.json'), 'rb') as file:
                mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
            self.busy(at, f'process {os.getpid()} (')
            mapped.close()
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (0, ''))

    @unittest.skipUnless(ROOT, 'for root only')
    def test_busy_with_a_mount(self):
        with Mount(self.model) as at:
            inside = os.path.join(at, 'tensors')
            self.assertEqual(run('mount', '-t', 'tmpfs', 'tmpfs', inside).returncode, 0)
            self.busy(at, 'the mount on ' + inside)
            self.assertEqual(run('umount', inside).returncode, 0)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_bind_mount(self):
        """The daemon serves for as long as one of its mounts exists."""
        there = self.folder()
        with Mount(self.model) as at:
            self.assertEqual(run('mount', '--bind', at, there).returncode, 0)
            done = run(GGUFS, '--unmount', there)
            self.assertEqual((done.returncode, done.err),
                             (0, f'ggufs: {there}: unmounted; still mounted on {at}\n'))
            self.assertEqual(read(at, 'general.architecture'), b'llama\n')

    def test_no_mount(self):
        for at, reason in ((self.folder(), 'nothing is mounted there'), ('/proc', 'is a mount of type proc, not of ggufs'),
                           (mountlib.path('missing'), mountlib.path('missing'))):
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err.count('\n')), (1, 1), done.err)
            self.assertIn(reason, done.err)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_of_another_user(self):
        os.chmod(mountlib.folder, 0o755)
        with Mount(self.model) as at:
            done = run(*mountlib.as_other(GGUFS, '--unmount', at))
            self.assertEqual((done.returncode, done.err),
                             (1, f'ggufs: {at}: it is in a mount of user root, whose daemon only that '
                              'user and root can query\n'))

    @needs_namespaces
    def test_by_root(self):
        """Root unmounts mounts that it may not access, and waits for the edits."""
        os.chmod(mountlib.folder, 0o755)
        at, model = self.folder('nobodys'), os.path.join(self.folder('of-nobody'), 'model.gguf')
        shutil.copy(self.model, model)
        for name in (at, model, os.path.dirname(model)):
            os.chown(name, 65534, 65534)
        done = as_nobody(f'"$@" && setpriv --reuid=65534 --regid=65534 --clear-groups sh -c '
                         f'"echo anew > {at}/metadata/general.name" && '
                         f'{GGUFS} --unmount {at}', GGUFS, '-o', 'commit=sync', model, at)
        self.assertEqual((done.returncode, done.err), (0, ''))
        with Mount(model, '-o', 'ro') as at:
            self.assertEqual(read(at, 'general.name'), b'anew\n')

    @unittest.skipIf(ROOT, 'root needs no fusermount3')
    def test_standard_error_stays(self):
        """Errors of fusermount3 are shown, without affecting the process's standard error. If it
        prints none, its exit status or signal is shown."""
        programs = self.folder()
        with Mount(self.model) as at:
            for does, reason in (('readlink /proc/$PPID/fd/2 >&2; exit 1', '/.*'), ('exit 3', 'exit status 3'),
                                 ('kill $$', 'signal 15')):
                mountlib.put(os.path.join(programs, 'fusermount3'), f'#!/bin/sh\n{does}\n'.encode())
                os.chmod(os.path.join(programs, 'fusermount3'), 0o755)
                with mock.patch.dict(os.environ, {'PATH': programs + ':' + os.environ['PATH']}):
                    done = run(GGUFS, '--unmount', at)
                self.assertRegex(done.err, rf'^ggufs: {at}: fusermount3 -u failed: {reason}\n$')
                self.assertNotIn('memfd', done.err)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_claimed_by_another_user(self):
        """A process that merely claims to write edits of a mount is trusted only in a directory of
        its user."""
        at = self.folder()
        with subprocess.Popen(mountlib.as_other('/usr/bin/python3', '-c', CLAIM, at), stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as other, tempfile.TemporaryFile() as said:
            self.addCleanup(other.kill)
            self.assertEqual(other.stdout.readline(), b'\n')
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (
                1, f'ggufs: {at}: is not a ggufs mount: nothing is mounted there\n'))
            os.chown(at, mountlib.OTHER, mountlib.OTHER)
            waiting = subprocess.Popen([GGUFS, '--unmount', at], stderr=said,
                                       stdin=subprocess.DEVNULL)
            editlib.until(lambda: os.fstat(said.fileno()).st_size)
            other.stdin.close()
            self.assertEqual(waiting.wait(mountlib.LIMIT), 0)

    @needs_gate
    def test_waits_for_one_that_is_gone(self):
        """After fusermount3 -u, --unmount still waits for the daemon."""
        gate, at = Gate(mountlib.path('gate')), self.folder()
        self.addCleanup(gate.remove)
        with gate.before('GATE'):
            self.mounted('-o', 'relayout=copy,commit=sync', self.model, at)
        write(at, 'general.name', 'late')
        gate.shut()
        mountlib.unmount(at)
        gate.wait()
        editlib.until(lambda: [x['state'] for x in json.loads(run(GGUFS, '--list', '--json').out)
                               if x['mountpoint'] == at] == ['ending'])
        with tempfile.TemporaryFile() as said:
            waiting = subprocess.Popen([GGUFS, '--unmount', at], stderr=said,
                                       stdin=subprocess.DEVNULL)
            editlib.until(lambda: os.fstat(said.fileno()).st_size)
            self.assertIsNone(waiting.poll())
            gate.open()
            self.assertEqual(waiting.wait(mountlib.LIMIT), 0)
        self.assertIn(b'late', mountlib.get(self.model))


if __name__ == '__main__':
    mountlib.main(others=True)
