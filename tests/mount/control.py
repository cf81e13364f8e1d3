#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""A daemon's control socket: which users get an answer, sockets planted in its place, and daemons
that cannot create one."""
import contextlib
import ctypes
import fcntl
import json
import os
import platform
import signal
import socket
import struct
import subprocess
import unittest

import disks
import editlib
import freeze
import mountlib
from editlib import write
from mountcase import ROOT, Case, daemon
from mountlib import GGUFS, Foreground, Mount, run
from shelflib import value

# Another user connects to each socket and sends nothing, requests, and early input. Prints the
# answers.
ATTEMPTS = '''
import socket, sys
for name in sys.argv[1:]:
    for said in (b'', b'watch\\n', b'sync\\n', b'x' * 100000):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(b'\\0' + name.encode())
            try:
                if said:
                    s.send(said, socket.MSG_NOSIGNAL)
                print(s.recv(100))
            except (BrokenPipeError, ConnectionResetError):
                print(b'')
'''

# A socket in place of a daemon's. Prints the bytes that it receives, and the number of clients.
PLANTED = '''
import socket, struct, sys
door = socket.socket(socket.AF_UNIX)
door.bind(b'\\0' + sys.argv[1].encode())
door.listen()
print(flush=True)
clients = told = 0
while clients < int(sys.argv[3]):
    client = door.accept()[0]
    _, uid, _ = struct.unpack('3i', client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        client.send(sys.argv[2].encode(), socket.MSG_NOSIGNAL)
        n = len(client.recv(100))
    except OSError:
        n = 0
    if uid:  # root answers every user, and another test may connect as one
        clients, told = clients + 1, told + n
print(told, flush=True)
'''
SOCKET = {'x86_64': 41, 'aarch64': 198}.get(platform.machine())  # the number of socket(2)


def sockets(pid):
    """Return the names of the listening sockets of a process."""
    inodes = set()
    for fd in os.listdir(f'/proc/{pid}/fd'):
        with contextlib.suppress(OSError):
            link = os.readlink(f'/proc/{pid}/fd/{fd}')
            inodes.add(link.removeprefix('socket:[').removesuffix(']'))
    with open('/proc/net/unix', encoding='utf-8') as lines:
        rows = [line.split() for line in lines]
    return [row[7][1:] for row in rows[1:]
            if row[6] in inodes and row[3] == '00010000' and row[-1].startswith('@ggufs-')]


def bound(name):
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(name)


def listed(at, *command):
    done = run(*(command or (GGUFS, '--list', '--json')))
    return [(x['pid'], x['state'], x['reason']) for x in json.loads(done.out) if x['mountpoint'] == at]


def no_sockets():
    """From now on, this process and its children cannot create sockets: EACCES."""
    program = b''.join(struct.pack('=HBBI', *row) for row in (
        (0x20, 0, 0, 0), (0x15, 0, 1, SOCKET), (0x06, 0, 0, 0x50000 | 13), (0x06, 0, 0, 0x7fff0000)))
    room = ctypes.create_string_buffer(program)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, struct.pack('=H6xQ', 4, ctypes.addressof(room))):
        raise OSError(ctypes.get_errno(), 'seccomp')


class Socket(Case):
    @contextlib.contextmanager
    def planted(self, name, status, clients, uid=mountlib.OTHER):
        """Make a socket of another user. The result later has the bytes that it received."""
        with subprocess.Popen(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--',
                               '/usr/bin/python3', '-c', PLANTED, name, status, str(clients)],
                              stdout=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), b'\n')
            try:
                yield process
            finally:
                process.kill()

    @unittest.skipUnless(ROOT, 'for root only')
    def test_other_users(self):
        """Other users get no byte, whatever they send, and have no effect."""
        os.chmod(mountlib.folder, 0o755)
        with Mount(self.model, '-o', 'commit=sync,allow_other') as at:
            before = value(self.model)
            write(at, 'general.name', 'pending')
            names = sockets(daemon(at))
            self.assertEqual(len(names), 1)
            done = run(*mountlib.as_other('/usr/bin/python3', '-c', ATTEMPTS, *names))
            self.assertEqual((done.returncode, done.out, done.err), (0, "b''\n" * 4, ''))
            self.assertEqual(value(self.model), before)
            self.assertEqual(listed(at), [(daemon(at), 'alive', None)])
            pid = listed(at, *mountlib.as_other(GGUFS, '--list', '--json'))[0][0]
            self.assertIsNone(pid)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_planted(self):
        """A daemon of another user is not trusted, even under the names that ours has or would
        have."""
        with Mount(self.model) as at:
            process = daemon(at)
            [name] = sockets(process)
            major, minor = os.major(os.stat(at).st_dev), os.minor(os.stat(at).st_dev)
            status = f'at {at}\nmodel {self.model}\nread-only planted\ndevice {major}:{minor}\nserving\nholds\nnow\n'
            with self.planted(name[:-1] + 'x', status, 100), self.planted('ggufs-', status, 100):
                self.assertEqual(listed(at), [(process, 'alive', None)])
                done = run(GGUFS, '--unmount', at)
                self.assertEqual((done.returncode, done.err), (0, ''))
                with open(self.model, 'rb') as file:
                    fcntl.flock(file, fcntl.LOCK_EX)
                    self.assertIn('another program has it locked', self.mounted(self.model, at))
                done = run(GGUFS, '--unmount', at)
                self.assertEqual((done.returncode, done.err), (0, ''))
            # An ordinary user gets no answer from it.
            os.chmod(mountlib.folder, 0o755)
            with self.planted(name, status, 1, uid=mountlib.OTHER - 1) as other:
                done = run(*mountlib.as_other(GGUFS, '--list', '--json'))
                self.assertEqual(done.returncode, 0)
                self.assertEqual(other.stdout.readline(), b'0\n')
            self.assertEqual(self.mounted('-o', 'ro', self.model, at), '')

    def test_planted_file(self):
        """Files with the socket's name have no effect, because the socket is not a file."""
        at = self.folder()
        with Mount(self.model, at=at) as at:
            [name] = sockets(daemon(at))
        with contextlib.chdir(self.folder()):
            for kind in (lambda: os.mkfifo('@' + name), lambda: os.mkdir('@' + name),
                         lambda: bound('@' + name)):
                kind()
                with Mount(self.model, at=at):
                    self.assertEqual(len(listed(at)), 1)
                (os.rmdir if os.path.isdir('@' + name) else os.unlink)('@' + name)

    def test_foreground_and_folder(self):
        """Each kind of mount has the socket, which disappears with the daemon, even one that is
        killed."""
        top = self.folder()
        os.link(self.model, top + '/a.gguf')
        for model in (self.model, top):
            for options in ((), ('-s',)):
                mount = Foreground(model, *options)
                with mount as (at, process):
                    editlib.until(lambda at=at: listed(at) and listed(at)[0][1] == 'alive')
                    self.assertEqual(listed(at), [(process.pid, 'alive', None)])
                    [name] = sockets(process.pid)
                    done = run(GGUFS, '--unmount', at)
                    self.assertEqual((done.returncode, done.err), (0, ''))
                with socket.socket(socket.AF_UNIX) as gone, self.assertRaises(ConnectionRefusedError):
                    gone.connect(b'\0' + name.encode())

    def test_stopped(self):
        """A command reports that a daemon is stopped, and does not wait for it."""
        with Mount(self.model) as at:
            process = daemon(at)
            with freeze.stopped(process):
                self.assertEqual(listed(at), [(process, 'stopped', None)])
                there = self.folder()
                said = self.mounted(self.model, there)
                self.assertEqual(said, f'ggufs: {self.model}: mounted read-only: another ggufs has it open for writing '
                                 f'(process {process}, which does not answer)\n')
                mountlib.unmount(there)

    @unittest.skipUnless(ROOT and SOCKET, 'for root only, on machines whose system calls are known')
    def test_none_can_be_made(self):
        """Without sockets the mount works, but warns that commands will not find it; the commands
        then say the same."""
        at = self.folder()
        with subprocess.Popen([GGUFS, '-f', self.model, at], stderr=subprocess.PIPE, preexec_fn=no_sockets) as process:
            self.assertEqual(process.stderr.readline().decode(),
                             'ggufs: commands will not find this mount, because it has no control socket: '
                             'Permission denied\n')
            editlib.until(lambda: mountlib.mount_of(at))
            write(at, 'general.name', 'edited')
            self.assertEqual(listed(at), [(None, 'alive', None)])
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (
                1, f'ggufs: {at}: its daemon cannot be reached: it has no control socket, or is in another container '
                '(fusermount3 -u unmounts, without waiting for it)\n'))
            there = self.folder()
            self.assertRegex(self.mounted(self.model, there), 'mounted read-only: another ggufs has it open for writing '
                             rf'\(mounted on {at} by root\)\n$')
            mountlib.unmount(there)
            process.send_signal(signal.SIGTERM)
            process.wait(mountlib.LIMIT)
        self.assertEqual(value(self.model), b'edited')


if __name__ == '__main__':
    if os.getuid() == 0:  # other tests keep mounts alive in copied namespaces
        disks.own_namespace()
    mountlib.main(others=True)
