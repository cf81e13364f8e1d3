# SPDX-License-Identifier: MIT
"""The end of a mount whose daemon is killed, of an idle one, and of one that another mount covers."""
import errno
import os
import resource
import signal
import unittest

import editlib
import mountlib
import samples
from mountlib import Foreground, Mount


class Case(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', samples.editable())


class Killed(Case):
    def test_stays(self):
        """The mount of a killed daemon stays, and its users get an error."""
        mount = Foreground(self.model)
        at, process = mount.__enter__()
        os.statvfs(at)
        process.kill()
        process.wait(mountlib.LIMIT)
        mount.err.close()
        with self.assertRaises(OSError) as caught:
            os.statvfs(at)
        self.assertEqual(caught.exception.errno, errno.ENOTCONN)
        mountlib.unmount(at, lazy=True)

    def test_auto_unmount(self):
        """With -o auto_unmount fusermount3 removes it (libfuse's race: not always); it ends with the
        daemon, too."""
        with Mount(self.model, '-o', 'auto_unmount') as at:
            editlib.write(at, 'general.name', 'written')
        self.assertIn(b'written', mountlib.get(self.model))


class Idle(Case):
    def test_idle(self):
        """An unused mount ends by itself, but not while a file is open or a process has its working
        directory there."""
        with Foreground(self.model, '-o', 'idle=1') as (at, process):
            for hold in (lambda: os.open(os.path.join(at, 'info'), os.O_RDONLY),
                         lambda: os.open(at, os.O_PATH | os.O_DIRECTORY)):
                held = hold()
                with self.assertRaises(TimeoutError):
                    self.ended(process, 3)
                self.assertTrue(mountlib.mount_of(at))
                os.close(held)
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertEqual(os.listdir(at), [])

    @staticmethod
    def ended(process, seconds):
        """Wait for the end of a process, for a few of the looks at an idle mount."""
        end = os.pidfd_open(process.pid)
        found = mountlib.select.select([end], [], [], seconds)[0]
        os.close(end)
        if not found:
            raise TimeoutError

    def test_writes_first(self):
        with Mount(self.model, '-o', 'idle=1,commit=sync') as at:
            editlib.write(at, 'general.name', 'written')
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertIn(b'written', mountlib.get(self.model))

    def test_stays(self):
        """A mount with an edit that cannot be written stays."""
        aside = self.model + '.aside'
        with Foreground(self.model, '-o', 'idle=1,commit=sync') as (at, process):
            editlib.write(at, 'general.name', 'written')
            os.rename(self.model, aside)
            mountlib.put('model.gguf', samples.editable())
            with self.assertRaises(TimeoutError):
                self.ended(process, 3)
            self.assertTrue(mountlib.mount_of(at))
            os.rename(aside, self.model)
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertIn(b'written', mountlib.get(self.model))


class Signalled(Case):
    def test_no_descriptors(self):
        """The end of the daemon opens no file that it needs."""
        with Foreground(self.model) as (at, process):
            os.listdir(at)  # it serves: libfuse has received the descriptor of the mount
            _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, most))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(mountlib.LIMIT), 0)

    @unittest.skipUnless(os.getuid() == 0, 'for root only')
    def test_covered(self):
        """A signal does not unmount another file system that is mounted over the daemon's."""
        with Foreground(self.model) as (at, process):
            os.listdir(at)  # it serves, and so knows its own device
            self.assertEqual(mountlib.run('mount', '-t', 'tmpfs', 'none', at).returncode, 0)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
            kinds = [kind for place, kind, _, _ in mountlib.mounts() if place == os.fsencode(at)]
            self.assertEqual(kinds, ['fuse.ggufs', 'tmpfs'])
            self.assertEqual(mountlib.run('umount', at).returncode, 0)
