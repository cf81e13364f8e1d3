#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Edits that are easily lost: by renaming, by a refusal after part of a text was accepted, by
continuous editing, and without any report."""
import errno
import os
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import Gate, Want, needs_gate, place, sync, write
from ggufmodel import Value, array

MIB = 1 << 20


class Kept(unittest.TestCase):
    options = 'relayout=copy'

    def setUp(self):
        self.source = mountlib.put('model.gguf', samples.editable())
        self.want = Want(mountlib.get(self.source))
        self.mount = mountlib.Mount(self.source, '-o', self.options)
        self.at = self.mount.__enter__()
        self.addCleanup(self.end)

    def end(self):
        if self.mount:
            mountlib.unmount(self.at, lazy=True)

    def key(self, name):
        return place(self.at, name)

    def check(self):
        """Check that the mount, model.gguf and, after an fsync, the file have the same keys."""
        sync(self.at)
        self.want.check(mountlib.get(os.path.join(self.at, 'model.gguf')))
        self.want.check(mountlib.get(self.source))
        self.assertEqual([name for name in editlib.keys(self.at) if b'~' not in name],
                         [entry.key for entry in self.want.kv])

    def done(self):
        """Check the same after the unmount, and that no file is left beside the model."""
        self.check()
        mount, self.mount = self.mount, None
        mount.__exit__(None, None, None)
        self.want.check(mountlib.get(self.source))
        self.assertEqual(editlib.leftovers(mountlib.folder), [])

    def test_two_keys_over_one_backup(self):
        """After mv a.b b~; mv c.d b~; rm b~, neither key is in the mount or in the model."""
        os.rename(self.key('type.u8'), self.key('b~'))
        os.rename(self.key('type.i8'), self.key('b~'))
        os.unlink(self.key('b~'))
        self.want.remove(b'type.u8', b'type.i8')
        self.done()

    def test_backup_that_is_replaced(self):
        os.rename(self.key('type.u8'), self.key('type.u8~'))
        write(self.at, '.other', 'x')
        os.rename(self.key('.other'), self.key('type.u8~'))
        self.want.remove(b'type.u8')
        self.check()
        os.unlink(self.key('type.u8~'))
        self.done()

    def refused_after_a_part(self, first, rest, name='list.i32'):
        """A fork closes the file while part of a text is written; the rest is refused."""
        fd = os.open(self.key(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.write(fd, first)
        os.close(os.dup(fd))
        part = editlib.read(self.at, name)
        with self.assertRaises(OSError) as caught:
            os.write(fd, rest)
            other, fd = fd, -1
            os.close(other)
        self.assertIn(caught.exception.errno, (errno.EINVAL, errno.ERANGE))
        if fd >= 0:
            with self.assertRaises(OSError):
                os.close(fd)
        return part

    def test_refused_after_a_part(self):
        """What was accepted last stays: in the mount, in model.gguf and in the file."""
        for rest in (b'x\n', b'7', b'99999999999\n', b'[\n'):
            with self.subTest(rest=rest):
                part = self.refused_after_a_part(b'5\n6\n', rest if rest != b'7' else b'7 7')
                self.assertEqual(part, b'5\n6\n')
                self.want.set(b'list.i32', array('i32', [5, 6]))
                self.assertEqual(editlib.read(self.at, 'list.i32'), part)
                self.assertTrue(editlib.error_of(self.at, 'list.i32'))
                self.check()
        self.done()

    def test_refused_after_a_part_of_a_new_key(self):
        self.refused_after_a_part(b'5\n', b'x\n', 'my.new:array[u8]')
        self.want.set(b'my.new', array('u8', [5]))
        self.done()

    def test_refused_after_a_part_was_written(self):
        """The part is already on the disk, and stays what was accepted last."""
        fd = os.open(self.key('list.i32'), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'5\n6\n')
        os.fsync(fd)
        with self.assertRaises(OSError):
            os.write(fd, b'x\n')
            os.fsync(fd)
        with self.assertRaises(OSError):
            os.close(fd)
        self.want.set(b'list.i32', array('i32', [5, 6]))
        self.done()

    # ---- the output of --unmount ----

    def unmounted(self, status, *patterns):
        """Unmount with --unmount: check the exit status, and a line for each pattern."""
        mount, self.mount = self.mount, None
        done = mountlib.run(mountlib.GGUFS, '--unmount', self.at)
        lines = done.err.splitlines()
        self.assertEqual((done.returncode, len(lines)), (status, len(patterns)), done.err)
        for line, pattern in zip(sorted(lines), sorted(patterns)):
            self.assertRegex(line, pattern)
        mount.__exit__(None, None, None)
        self.want.check(mountlib.get(self.source))

    def fails(self, name, text):
        with self.assertRaises(OSError):
            write(self.at, name, text)

    def test_helpers(self):
        os.rename(self.key('type.u8'), self.key('type.u8.bak'))
        write(self.at, 'type.u8.tmp', 'a helper')
        os.symlink('nowhere', self.key('.#link'))
        self.unmounted(0)

    def test_helper_renamed(self):
        write(self.at, '4913', 'renamed to a key')
        os.rename(self.key('4913'), self.key('general.name'))
        self.want.set(b'general.name', Value('string', b'renamed to a key'))
        self.unmounted(0)

    def test_refused(self):
        self.fails('type.u8', '300')
        self.fails('type.i8', 'x\n')
        write(self.at, 'type.i8', '7\n')
        self.want.set(b'type.i8', Value('i8', 7))
        self.unmounted(1, 'type.u8')

    def test_refused_and_removed(self):
        """A key that was removed later is not reported."""
        self.fails('type.u8', '300')
        os.unlink(self.key('type.u8'))
        self.want.remove(b'type.u8')
        self.unmounted(0)

    def test_refused_and_renamed(self):
        self.fails('type.u8', '300')
        os.rename(self.key('type.u8'), self.key('my.u8'))
        self.want.rename(b'type.u8', b'my.u8')
        self.unmounted(0)


@unittest.skipIf(mountlib.sanitized('asan') or mountlib.sanitized('tsan'), 'it has memory of its own')
class Memory(Kept):
    options = 'commit=sync'

    def test_one_large_string(self):
        """Successive values of one key take the space of one value."""
        size, text = 8 * MIB, b''
        for count in range(100):
            text = b'%03d' % count + bytes([97 + count % 26]) * size
            write(self.at, 'my.large', text)
        self.assertLess(mountlib.anonymous(self.at), 12 * size)
        self.want.set(b'my.large', Value('string', text))
        self.done()


# Without the tests of Kept, which run in one mode.
for test in [name for name in vars(Kept) if name.startswith('test_')]:
    setattr(Memory, test, None)


@needs_gate
class Latest(unittest.TestCase):
    """The test controls the program's clock."""

    def at(self, ms):
        with open(self.clock + '.new', 'w', encoding='ascii') as file:
            file.write(str(ms))
        os.rename(self.clock + '.new', self.clock)

    def test_edits_that_never_rest(self):
        """A removal every 0.9 s is written at most a minute after the first."""
        source, self.clock = mountlib.put('model.gguf', samples.editable()), mountlib.path('clock')
        want = Want(mountlib.get(source))
        before = os.stat(source).st_ino
        gate = Gate(self.clock)
        self.at(0)
        mount = mountlib.Foreground(source, '-o', 'relayout=copy')
        with gate.before('GATE_CLOCK'):
            at, _ = mount.__enter__()
        names = [entry.key for entry in want.kv if entry.key.startswith(b'type.')]
        for count, name in enumerate(names[:12]):
            self.at(count * 900)
            os.unlink(place(at, name))
            want.remove(name)
            if count == 11:  # 9.9 s
                self.assertEqual(os.stat(source).st_ino, before)
        self.at(60000)
        os.unlink(place(at, 'last.key'))
        want.remove(b'last.key')
        editlib.until(lambda: os.stat(source).st_ino != before)
        mount.__exit__(None, None, None)
        want.check(mountlib.get(source))


if __name__ == '__main__':
    mountlib.main()
