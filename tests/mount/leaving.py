#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The end of a mount whose daemon is killed, and of a lazy unmount with requests in flight."""
import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import unittest
from unittest import mock

import editlib
import mountlib
import samples
from mountlib import Foreground, Mount

ABORTED = os.environ.get('GGUFS_ABORTED', '')


class Leaving(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', samples.editable())

    def killed(self, *options, serves=False):
        """Kill the daemon of a mount, immediately or once it serves. Returns the mount point."""
        mount = Foreground(self.model, *options)
        at, process = mount.__enter__()
        if serves:  # fusermount3 undoes a mount that it cannot hand over
            os.statvfs(at)
        process.kill()
        process.wait(mountlib.LIMIT)
        mount.err.close()
        return at

    def test_auto_unmount(self):
        """A killed daemon leaves no mount behind, whether the mount is idle or in use."""
        for options in (('-o', 'auto_unmount'), ('-o', 'ro,auto_unmount'),
                        ('-s', '-o', 'auto_unmount')):
            with self.subTest(options=options):
                at = self.killed(*options)
                editlib.until(lambda: not mountlib.mount_of(at))
                self.assertEqual(os.listdir(at), [])
        mount = Foreground(self.model, '-o', 'auto_unmount')
        at, process = mount.__enter__()
        with open(os.path.join(at, 'metadata.json'), 'rb') as file:
            file.read(1)
            process.kill()
            process.wait(mountlib.LIMIT)
            editlib.until(lambda: not mountlib.mount_of(at))
            with self.assertRaises(OSError) as caught:
                os.getxattr(file.fileno(), 'user.gguf.error')  # not cached by the kernel
            self.assertEqual(caught.exception.errno, errno.ENOTCONN)
        mount.err.close()

    @staticmethod
    def looks(process):
        """Return how often the control thread, which unmounts an idle mount, has waited."""
        for thread in os.listdir(f'/proc/{process.pid}/task'):
            with contextlib.suppress(OSError):  # another thread may have ended
                status = mountlib.get(f'/proc/{process.pid}/task/{thread}/status').decode()
                values = dict(re.findall(r'(\w+):\s(.*)', status))
                if values['Name'] == 'control':
                    return int(values['voluntary_ctxt_switches'])
        return 0

    def test_idle(self):
        """An unused mount ends automatically, but not while a file is open or a process has its
        working directory there."""
        mount = Foreground(self.model, '-o', 'idle=1')
        with mount as (at, process):
            for hold in (lambda: os.open(os.path.join(at, 'info'), os.O_RDONLY),
                         lambda: os.open(at, os.O_PATH | os.O_DIRECTORY)):
                held = hold()
                before = self.looks(process)
                editlib.until(lambda seen=before: self.looks(process) > seen + 2)
                self.assertTrue(mountlib.mount_of(at))
                os.close(held)
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertEqual(os.listdir(at), [])

    def test_idle_daemon(self):
        mount = Mount(self.model, '-o', 'idle=1')
        with mount as at:
            editlib.write(at, 'general.name', 'written')
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertIn(b'written', mountlib.get(self.model))

    def test_no_descriptors(self):
        """The end of the daemon opens no additional file."""
        with Foreground(self.model) as (at, process):
            os.listdir(at)  # it serves: libfuse has received the descriptor of the mount
            _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, most))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(mountlib.LIMIT), 0)

    def test_auto_unmount_of_a_daemon(self):
        """-o auto_unmount also works in the background; the watching process ends with the daemon
        (Mount waits for that)."""
        mount = Mount(self.model, '-o', 'auto_unmount')
        with mount as at:
            editlib.write(at, 'general.name', 'written')
        self.assertIn(b'written', mountlib.get(self.model))
        with mount as at:
            os.kill(mountlib.daemon(at), 9)
            editlib.until(lambda: not mountlib.mount_of(at))

    def test_name(self):
        """Killing by program name or by arguments kills only the daemon."""
        mount = Foreground(self.model, '-o', 'auto_unmount')
        at, process = mount.__enter__()
        for pid in filter(str.isdigit, os.listdir('/proc')):
            with contextlib.suppress(OSError):
                if at.encode() in mountlib.get(f'/proc/{pid}/cmdline'):
                    os.kill(int(pid), 9)
        process.wait(mountlib.LIMIT)
        editlib.until(lambda: not mountlib.mount_of(at))
        mount.err.close()

    def test_not_asked_for(self):
        """Without the option the mount stays, and its users get an error."""
        at = self.killed(serves=True)
        with self.assertRaises(OSError) as caught:
            os.statvfs(at)
        self.assertEqual(caught.exception.errno, errno.ENOTCONN)
        mountlib.unmount(at, lazy=True)

    def test_refused(self):
        """A mount that failed also leaves nothing behind."""
        at = mountlib.path('none')
        os.mkdir(at)
        bad = mountlib.put('bad.gguf', b'GGUF')
        with self.assertRaises(mountlib.Refused):
            with Mount(bad, '-o', 'auto_unmount', at=at):
                pass
        os.rmdir(at)

    @unittest.skipIf(not os.path.exists(ABORTED) or mountlib.sanitized('asan')
                     or mountlib.sanitized('tsan'), 'nothing to preload')
    def test_aborted_request(self):
        """A request reader that sees an unmount as an abort does not make it a failure."""
        for options in ((), ('-s',)):
            with self.subTest(options=options), \
                    mock.patch.dict(os.environ, {'LD_PRELOAD': ABORTED}):
                mount = Foreground(self.model, *options)
                with mount as (at, _):  # checks the exit status
                    editlib.write(at, 'general.name', 'written')


@unittest.skipUnless(os.getuid() == 0, 'for root only')
class Covered(unittest.TestCase):
    """A signal unmounts the daemon's own file system, and no other at the same place."""

    def setUp(self):
        self.base = mountlib.path('base')
        os.mkdir(self.base)
        self.addCleanup(os.rmdir, self.base)
        self.mount(self.base)
        self.addCleanup(self.command, 'umount', '-R', self.base)
        self.command('mount', '--make-private', self.base)  # otherwise nothing in it can be moved
        self.first, self.second = os.path.join(self.base, 'a'), os.path.join(self.base, 'b')
        os.mkdir(self.first)
        os.mkdir(self.second)
        self.model = mountlib.put('model.gguf', samples.editable())

    def command(self, *words):
        done = mountlib.run(*words)
        self.assertEqual(done.returncode, 0, done.err)

    def mount(self, at):
        self.command('mount', '-t', 'tmpfs', 'none', at)

    def serve(self):
        """Serve the model on the first directory."""
        process = subprocess.Popen([mountlib.GGUFS, '-f', self.model, self.first], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, env=mountlib.environment())
        self.addCleanup(process.kill)
        editlib.until(lambda: mountlib.mount_of(self.first))
        os.statvfs(self.first)
        return process

    def end(self, process):
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=mountlib.LIMIT)[1].decode()
        self.assertEqual(process.returncode, 0, said)
        return said

    def kinds(self, at):
        return [kind for place, kind, _, _ in mountlib.mounts() if place == os.fsencode(at)]

    def test_covered(self):
        process = self.serve()
        self.mount(self.first)
        self.assertIn(f'{self.first}: another file system is mounted over it, so it is left mounted',
                      self.end(process))
        self.assertEqual(self.kinds(self.first), ['fuse.ggufs', 'tmpfs'])

    def test_covered_with_a_bind_mount(self):
        """The bind mount with nothing above it disappears, and a line says that the other mount
        stays."""
        process = self.serve()
        self.command('mount', '--bind', self.first, self.second)
        self.mount(self.first)
        self.assertIn(f'{self.first}: another file system is mounted over it, so it is left mounted',
                      self.end(process))
        self.assertEqual(self.kinds(self.first), ['fuse.ggufs', 'tmpfs'])
        self.assertEqual(self.kinds(self.second), [])

    def test_covered_where_it_was_moved_to(self):
        process = self.serve()
        self.command('mount', '--move', self.first, self.second)
        self.mount(self.second)
        self.assertIn(f'{self.second}: another file system is mounted over it, so it is left mounted',
                      self.end(process))
        self.assertEqual(self.kinds(self.second), ['fuse.ggufs', 'tmpfs'])

    def test_covered_by_an_older_one(self):
        """Of two mounts on a directory, the one later in the list is not always on top."""
        self.mount(self.second)
        process = self.serve()
        self.command('mount', '--move', self.second, self.first)
        self.end(process)
        self.assertEqual(sorted(self.kinds(self.first)), ['fuse.ggufs', 'tmpfs'])

    def test_moved(self):
        process = self.serve()
        self.command('mount', '--move', self.first, self.second)
        self.mount(self.first)
        self.end(process)
        self.assertEqual((self.kinds(self.first), self.kinds(self.second)), (['tmpfs'], []))


if __name__ == '__main__':
    mountlib.main()
