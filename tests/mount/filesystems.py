#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Edits on real file systems: ext4, XFS and btrfs in loop-mounted images, and tmpfs; full and
read-only ones; with the daemon killed, and with the file system shut down as in a power cut."""
import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import threading
import unittest

import disks
import editlib
import ggufmodel as gguf
import mountlib
from disks import CLONES, KINDS, MIB, TIMES, Disk, figure, log_of, put_model
from editlib import Want, write
from ggufmodel import Value

def has_room(folder):
    free = os.statvfs(folder)
    return free.f_bfree * free.f_frsize > 64 * MIB


class Filesystems(unittest.TestCase):
    def each(self, test, *kinds):
        """Run test(kind, directory) on a disk of each kind."""
        for kind in kinds or KINDS:
            with self.subTest(filesystem=kind), Disk(kind) as folder:
                test(kind, folder)

    def run_edits(self, kind, folder):
        programs = [('edits.py', [] if TIMES > 1 else ['Edits.test_few'])]
        if kind == 'xfs':
            programs = [('edits.py', [] if TIMES > 1 else ['Edits.test_strategies']),
                        ('split.py', ['Split.test_strategies']), ('tensorverbs.py', ['Verbs.test_strategies'])]
        for program, tests in programs:
            program = os.path.join(os.path.dirname(os.path.abspath(__file__)), program)
            env = {**os.environ, 'GGUFS_TEST_DIR': folder}
            done = subprocess.run([sys.executable, program, *tests], env=env, check=False,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, f'{kind}: {done.stdout.decode()}')

    def test_edits(self):
        """Run tests of edits on it: those of each strategy where ranges can be cloned, all in a long run."""
        self.each(self.run_edits)

    def clone(self, _, folder):
        source = put_model(folder, 64 * MIB)
        os.sync()
        before = os.statvfs(folder)
        want = Want(mountlib.get(source))
        log = log_of(source, '-o', 'reserve=65536', text='x' * 100000)
        self.assertRegex(log, '; copy,')
        os.sync()
        after = os.statvfs(folder)
        want.set(b'general.name', Value('string', b'x' * 100000))
        want.check(mountlib.get(source))
        self.assertLess((before.f_bfree - after.f_bfree) * after.f_frsize, 8 * MIB)

    def test_clone(self):
        """Where ranges can be cloned, the data of the new file takes no space."""
        self.each(self.clone, *CLONES)

    def fill(self, folder):
        """Use up all space."""
        fd = os.open(os.path.join(folder, 'filler'), os.O_WRONLY | os.O_CREAT)
        for size in (MIB, 4096):
            with contextlib.suppress(OSError):
                while os.write(fd, bytes(size)):
                    pass
            with contextlib.suppress(OSError):
                os.fsync(fd)
        os.close(fd)

    def full(self, _, folder):
        source = put_model(folder, 16 * MIB)
        old = mountlib.get(source)
        self.fill(folder)
        with mountlib.Mount(source, '-o', 'relayout=copy') as at:
            for key, text in (('general.name', 'x' * 5000), ('my.key', '1')):
                with self.assertRaises(OSError) as caught:
                    write(at, key, text)
                self.assertEqual(caught.exception.errno, errno.ENOSPC)
                self.assertEqual(mountlib.get(source), old)
                self.assertEqual(editlib.leftovers(folder), [])
            self.assertEqual(editlib.read(at, 'general.name'), b'test\n')
            os.unlink(os.path.join(folder, 'filler'))
            editlib.until(lambda: has_room(folder))  # XFS frees space later
            write(at, 'general.name', 'room again')
        want = Want(old)
        want.set(b'general.name', Value('string', b'room again'))
        want.check(mountlib.get(source))

    def test_full(self):
        """The edit fails with ENOSPC, and only the old file stays; once there is space again, the
        edit works."""
        self.each(self.full)

    def full_in_place(self, kind, folder):
        source = put_model(folder, 16 * MIB)
        log_of(source, '-o', 'relayout=copy,reserve=65536')
        want = Want(mountlib.get(source))
        self.fill(folder)
        filler = os.path.join(folder, 'filler')
        os.truncate(filler, os.path.getsize(filler) - 2 * MIB)
        log = log_of(source, '-o', 'relayout=inplace', text='in place')
        self.assertRegex(log, '; inplace,')
        log = log_of(source, text='by itself')
        self.assertRegex(log, '; copy,' if kind in CLONES else '; inplace,')
        want.set(b'general.name', Value('string', b'by itself'))
        want.check(mountlib.get(source))

    def test_full_in_place(self):
        """An edit in place needs space only for the journal, so it is made on a full disk."""
        self.each(self.full_in_place, 'ext4', 'xfs')

    # ---- kills and power cuts ----

    def edit_until_it_fails(self, at, begun):
        """Edit one key again and again, waiting for each edit. Returns how many were
        acknowledged."""
        for count in range(1, 1000000):
            begun.release()
            try:
                write(at, 'general.name', b'%d' % count * (1 + count % 50))
            except OSError:
                return count - 1
        raise AssertionError('nothing happened')

    def interrupt(self, source, options, do_it):
        """Run do_it(process) at some moment during some edit. Returns how many edits were
        acknowledged."""
        begun = threading.Semaphore(0)
        mount = mountlib.Foreground(source, *options)
        at, process = mount.__enter__()

        def strike():
            for _ in range(random.randrange(1, 8)):
                begun.acquire()
            for _ in range(random.randrange(40000)):
                pass
            do_it(process)

        thread = threading.Thread(target=strike)
        thread.start()
        count = self.edit_until_it_fails(at, begun)
        thread.join()
        process.kill()
        process.wait(mountlib.LIMIT)
        subprocess.run(['umount', '-l', at], check=False, stderr=subprocess.DEVNULL)
        mount.err.close()
        return count

    def check_recovered(self, source, want, count, by_mount):
        """Check that the file has the last acknowledged edit or the next one, complete, and no
        other."""
        disks.recover(source, by_mount)
        file = mountlib.get(source)
        found = dict(gguf.read(file).kv)[b'general.name'].data
        texts = [b'%d' % n * (1 + n % 50) if n else b'first' for n in (count, count + 1)]
        self.assertIn(found, texts)
        want.set(b'general.name', Value('string', found))
        want.check(file)
        self.assertEqual(editlib.leftovers(os.path.dirname(source)), [])
        figure('edits acknowledged before a kill or cut', count)

    def rounds(self):
        """Run the strategies on this file system, several times each in a long run."""
        return [way for way in ('copy', 'inplace') for _ in range(TIMES)]

    def begin(self, folder):
        source = put_model(folder, 2 * MIB)
        log_of(source, '-o', 'relayout=copy,reserve=65536', text='first')
        return source, Want(mountlib.get(source))

    def kill(self, kind, folder):
        for number, way in enumerate(self.rounds()):
            source, want = self.begin(folder)
            count = self.interrupt(source, ('-o', f'relayout={way},reserve=65536,commit=close'),
                                   lambda process: process.send_signal(signal.SIGKILL))
            self.check_recovered(source, want, count, number % 2)
            figure('daemons killed')

    def test_kill(self):
        self.each(self.kill)

def tearDownModule():
    disks.print_figures()


if __name__ == '__main__':
    disks.own_namespace()
    mountlib.main()
