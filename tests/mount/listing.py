#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""ggufs --list, and what other processes report about themselves."""
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import struct
import threading
import unittest

import freeze
import mountlib
import samples
from mountcase import ROOT, Case, daemon
from mountlib import GGUFS, Mount, run


class List(Case):
    def list(self):
        """Return the lines of this test's mounts."""
        done, lines = run(GGUFS, '--list', '--json'), run(GGUFS, '--list')
        self.assertEqual((done.returncode, done.err, lines.returncode, lines.err), (0, '', 0, ''))
        ours = [x for x in json.loads(done.out) if x['mountpoint'].startswith(mountlib.folder)]
        self.assert_plain(lines.out)
        return ours, [line for line in lines.out.splitlines() if mountlib.folder in line]

    def test_list(self):
        odd = mountlib.put('a b\n\x1b[31mc.gguf', samples.editable())
        self.addCleanup(os.unlink, odd)
        with Mount(self.model) as first, Mount(self.model) as second, \
                Mount(odd, '-o', 'ro,fsname=x,subtype=other', at=self.folder('new\nline')) as third:
            reason = f'another ggufs has it open for writing (mounted on {first}, process {daemon(first)})'
            objects, lines = self.list()
            same = {'user': os.getuid(), 'state': 'alive'}
            self.assertEqual(objects, [
                {'mountpoint': first, 'model': self.model, 'mode': 'rw', 'reason': None,
                 'pid': daemon(first), **same},
                {'mountpoint': second, 'model': self.model, 'mode': 'ro', 'reason': reason,
                 'pid': daemon(second), **same},
                {'mountpoint': third, 'model': odd, 'mode': 'ro', 'reason': 'requested by -o ro',
                 'pid': daemon(third), **same}])
            self.assertEqual(lines[:2], [
                f'{self.model} on {first}, read-write, process {daemon(first)}',
                f'{self.model} on {second}, read-only ({reason}), process {daemon(second)}'])
            self.assertIn('a b\\x0a\\x1b[31mc.gguf on ', lines[2])
        self.assertEqual(self.list(), ([], []))

    def test_wrong_arguments(self):
        for arguments in (['--jso'], ['--json', 'more'], [self.model]):
            done = run(GGUFS, '--list', *arguments)
            self.assertEqual((done.returncode, done.out), (2, ''))
            self.assertIn('--help', done.err)

    def test_dead_and_hanging(self):
        """The list does not wait for a daemon that is stopped or was killed."""
        dead = Mount(self.model, at=self.folder('dead'))
        dead.__enter__()
        self.addCleanup(mountlib.unmount, dead.at, lazy=True)
        os.kill(daemon(dead.at), signal.SIGKILL)
        dead.wait()
        os.close(dead.life)
        with Mount(self.model) as at:
            process = daemon(at)
            with freeze.stopped(process):
                objects, _ = self.list()
        self.assertEqual([(x['mountpoint'], x['state'], x['pid']) for x in objects],
                         [(dead.at, 'dead', None), (at, 'stopped', process)])

    @unittest.skipUnless(ROOT, 'for root only')
    def test_of_another_user(self):
        os.chmod(mountlib.folder, 0o755)
        with Mount(self.model) as at:
            done = run(*mountlib.as_other(GGUFS, '--list', '--json'))
            found = [x for x in json.loads(done.out) if x['mountpoint'] == at]
            self.assertEqual(found, [{'mountpoint': at, 'model': self.model, 'mode': 'rw',
                                      'reason': None, 'pid': None, 'user': 0,
                                      'state': 'unknown'}])


class Fake:
    """`with Fake(at, status) as pid:` is a file server of type fuse.ggufs that is another program,
    and reports any status. With `deaf` it answers nothing."""

    def __init__(self, at, status, deaf=False):
        self.at, self.status, self.deaf = at, status, deaf

    def __enter__(self):
        libc = ctypes.CDLL(None, use_errno=True)
        device = os.open('/dev/fuse', os.O_RDWR)
        options = f'fd={device},rootmode=40000,user_id=0,group_id=0,allow_other'
        if libc.mount(b'fake', os.fsencode(self.at), b'fuse.ggufs', 0, options.encode()):
            raise OSError(ctypes.get_errno(), 'mount')
        ready, end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.serve(device, end)
            finally:
                os._exit(0)
        os.close(device)
        os.close(end)
        os.read(ready, 1)
        os.close(ready)
        return self.pid

    def serve(self, device, end):
        door = socket.socket(socket.AF_UNIX)
        door.bind(f'\0ggufs-0123456789abcdef-{os.getpid():016x}')
        if not self.deaf:
            door.listen()
            threading.Thread(target=self.answer, args=(door,), daemon=True).start()
        os.write(end, b'.')
        while self.deaf:
            signal.pause()
        with contextlib.suppress(OSError):  # ENODEV: unmounted
            while request := os.read(device, 1 << 20):
                _, opcode, unique = struct.unpack_from('IIQ', request)
                if opcode == 26:  # INIT
                    os.write(device, struct.pack('IiQIIIIHHIIHHI28x', 80, 0, unique, 7, 31, 0, 0,
                                                 0, 0, 4096, 1, 0, 0, 0))
                elif opcode not in (2, 42):  # FORGET, which needs no answer
                    os.write(device, struct.pack('IiQ', 16, -2, unique))

    def answer(self, door):
        own = b'device %d:%d\nserving\nended\nnow\n' % mount_device(self.at)
        watching = []
        while client := door.accept()[0]:
            if client.recv(4096).startswith(b'watch'):
                client.send(self.status + own, socket.MSG_NOSIGNAL)
                watching.append(client)
            else:
                client.send(b'end 0 \n', socket.MSG_NOSIGNAL)
                client.close()

    def __exit__(self, *error):
        run('umount', '--lazy', self.at)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def mount_device(at):
    """Return the device number from the list of mounts, because no server answers yet."""
    with open('/proc/self/mountinfo', encoding='latin-1') as lines:
        rows = [line.split() for line in lines]
    return [tuple(map(int, row[2].split(':'))) for row in rows if row[4] == at][-1]


@unittest.skipUnless(ROOT, 'for root only')
class Foreign(Case):
    """Text from another process never reaches a terminal unescaped."""

    def test_hostile(self):
        at = self.folder('hostile')
        red = b'\x1b[31mred\x07\x9b2J'
        status = (b'at ' + at.encode() + b'\nmodel ' + red + b'\nread-only ' + red + b'\nfailed ' + red +
                  b'\nlost one: ' + red + b'\nlost two\n')
        with Fake(at, status) as pid:
            listed = run(GGUFS, '--list').out
            self.assert_plain(listed)
            self.assertRegex(listed, re.escape(r'\x1b[31mred\x07\x9b2J on ' + at) + '.*'
                             + re.escape(r'(\x1b[31mred\x07\x9b2J), process %d' % pid))
            done = run(GGUFS, '--unmount', at)
        self.assert_plain(done.err)
        self.assertEqual(done.returncode, 1)
        shown = r'\x1b[31mred\x07\x9b2J'
        self.assertEqual(done.err, f'ggufs: {at}: not saved: one: {shown}\n'
                         f'ggufs: {at}: not saved: two\nggufs: {at}: {shown}\n')

    def test_no_answer(self):
        """Neither the list nor a mount waits for a server that does not answer."""
        at = self.folder('deaf')
        with Fake(at, b'', deaf=True):
            found = [x for x in json.loads(run(GGUFS, '--list', '--json').out)
                     if x['mountpoint'] == at]
            self.assertEqual([(x['state'], x['pid'], x['model']) for x in found],
                             [('unknown', None, 'fake')])
            done = run(GGUFS, self.model, at)
            self.assertEqual(done.returncode, 1)
            self.assertIn(': ggufs is already mounted there', done.err)


if __name__ == '__main__':
    mountlib.main(others=True)
