#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Programs that keep a file open after its text was accepted or refused, and while it is renamed,
replaced or removed."""
import errno
import os

import ggufmodel as gguf
import mountlib
from editing import COUNT, KV, LENGTH, NAME, Calls, replaced, shell, string, until
from ggufmodel import Value, array


def named(old, new):
    """Return the keys, with another name in place of `old`."""
    return [(new.encode() if key == old.encode() else key, value) for key, value in KV]


class Open(Calls):
    # ---- an open file after its text was accepted ----

    def read_through(self, fd):
        return os.pread(fd, 1000, 0)

    def test_accepted_is_shown_as_stored(self):
        """Others see the value; a program that has the file open continues with its own text."""
        fd = os.open(self.key(NAME), os.O_RDWR | os.O_TRUNC)
        os.write(fd, b'a')
        self.assertEqual(self.text(NAME), b'a')
        os.fsync(fd)
        self.assertEqual(self.text(NAME), b'a\n')
        self.assertEqual(os.stat(self.key(NAME)).st_size, 2)
        self.assertEqual(self.read_through(fd), b'a')
        self.assertEqual(os.lseek(fd, 0, os.SEEK_END), 1)
        os.write(fd, b'b')
        self.assertEqual(self.text(NAME), b'ab')
        os.close(fd)
        self.assertEqual(self.text(NAME), b'ab\n')
        self.assert_model({NAME: string('ab')})

    def test_accepted_is_closed_by_children(self):
        """Each forked child closes its copy of the descriptor, and the text still grows."""
        for script in ('(/usr/bin/printf a; /usr/bin/printf b; /usr/bin/echo c) > "$1"',
                       'exec 3> "$1"; printf a >&3; /usr/bin/printf b >&3; echo c >&3'):
            shell(script, self.key(NAME))
            self.assert_model({NAME: string('abc')})
        shell('(/usr/bin/printf d; /usr/bin/printf e) >> "$1"', self.key(NAME))
        self.assert_model({NAME: string('abc\nde')})
        shell('(/usr/bin/printf 1; /usr/bin/printf 2) > "$1"', self.key(COUNT))
        self.assert_model({NAME: string('abc\nde'), COUNT: Value('u32', 12)})

    def test_accepted_is_opened_anew(self):
        """A program that opens the file later begins with the stored value, and both programs write
        that."""
        first = os.open(self.key(NAME), os.O_WRONLY | os.O_TRUNC)
        os.write(first, b'a')
        os.fsync(first)
        second = os.open(self.key(NAME), os.O_RDWR | os.O_APPEND)
        self.assertEqual(self.read_through(second), b'a\n')
        os.write(second, b'b')
        os.close(second)
        self.assert_model({NAME: string('a\nb')})
        os.pwrite(first, b'A', 0)
        os.close(first)
        self.assert_model({NAME: string('A\nb')})

    def test_accepted_is_passed_over(self):
        """Writing or truncating at the size that stat reports makes no hole."""
        fd = os.open(self.key(NAME), os.O_RDWR | os.O_TRUNC)
        os.write(fd, b'a')
        os.fsync(fd)
        os.pwrite(fd, b'b', os.fstat(fd).st_size)
        os.fsync(fd)
        self.assert_model({NAME: string('a\nb')})
        os.ftruncate(fd, os.fstat(fd).st_size)
        self.assertEqual(self.read_through(fd), b'a\nb\n')
        os.close(fd)
        self.assert_model({NAME: string('a\nb')})

    def test_accepted_normalized(self):
        """If the file shows a text differently, offsets are those of the written text."""
        fd = os.open(self.key(LENGTH), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b' 0007')
        os.fsync(fd)
        self.assertEqual(self.text(LENGTH), b'7\n')
        os.write(fd, b'1')
        os.close(fd)
        self.assert_model({LENGTH: Value('u64', 71)})

    def test_accepted_has_its_type(self):
        """The type in KEY:TYPE becomes the key's, and can be changed while it is open."""
        fd = os.open(self.key('my.flag:u8'), os.O_WRONLY | os.O_CREAT)
        os.write(fd, b'1')
        os.fsync(fd)
        os.setxattr(self.key('my.flag'), 'user.gguf.type', b'u64')
        self.assert_model({'my.flag': Value('u64', 1)})
        os.write(fd, b'000')
        os.close(fd)
        self.assert_model({'my.flag': Value('u64', 1000)})

    def test_type_told_again(self):
        """If KEY:TYPE is open and the attribute is set, the later type counts."""
        fd = os.open(self.key(COUNT + ':u8'), os.O_WRONLY | os.O_CREAT)
        os.setxattr(self.key(COUNT), 'user.gguf.type', b'i64')
        self.assert_model({COUNT: Value('i64', 2)})
        os.write(fd, b'300')
        os.close(fd)
        self.assert_model({COUNT: Value('i64', 300)})

    def test_refused_is_not_shown(self):
        """A refused text is not shown, even while it is open; a program that opens the file after
        the close begins with the value. Every close of a refused text reports the refusal."""
        fd = os.open(self.key(COUNT), os.O_WRONLY | os.O_TRUNC)
        self.assertEqual(self.text(COUNT), b'')
        self.assert_errno(errno.EINVAL, os.write, fd, b'7x\n')
        self.assertEqual(self.text(COUNT), b'2\n')
        other = os.dup(fd)
        self.assert_errno(errno.EINVAL, os.close, other)
        second = os.open(self.key(COUNT), os.O_RDWR)
        self.assertEqual(self.read_through(second), b'2\n')
        os.pwrite(second, b'3', 0)
        os.close(second)
        self.assert_model({COUNT: Value('u32', 3)})
        self.assert_errno(errno.EINVAL, os.close, fd)
        self.assert_model({COUNT: Value('u32', 3)})

    def test_half_is_not_judged(self):
        """A program that opens a file and closes it without writing does not judge another
        program's draft."""
        fd = os.open(self.key('general.tags'), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'["x",')
        os.close(os.open(self.key('general.tags'), os.O_WRONLY))
        os.utime(self.key('general.tags'))
        os.write(fd, b'"y"]')
        os.close(fd)
        self.assert_model({'general.tags': array('string', [b'x', b'y'])})

    # ---- an open file that is renamed ----

    def test_rename_key_while_open(self):
        """A draft and its size follow the renamed key, whether the draft was accepted or not."""
        for i, before in enumerate((b'', b'old ')):
            fd = os.open(self.key(NAME), os.O_RDWR | os.O_TRUNC)
            os.write(fd, before)
            if before:
                os.fsync(fd)
            os.rename(self.key(NAME), self.key('my.name'))
            self.assertNotIn(NAME, os.listdir(self.metadata))
            self.assertEqual(os.write(fd, b'new'), 3)
            self.assertEqual(os.fstat(fd).st_size, len(before) + 3)
            os.close(fd)
            self.assertEqual(self.text('my.name'), before + b'new\n')
            self.assert_file(replaced({'my.name': string(before.decode() + 'new')},
                                      named(NAME, 'my.name')))
            os.rename(self.key('my.name'), self.key(NAME))
        self.assert_model({NAME: string('old new')})

    def test_rename_key_over_key_while_open(self):
        """Writes to the replaced file are discarded; those to the renamed file count."""
        fd, other = (os.open(self.key(name), os.O_WRONLY) for name in (COUNT, LENGTH))
        os.pwrite(fd, b'7', 0)
        os.pwrite(other, b'9', 0)
        os.rename(self.key(COUNT), self.key(LENGTH))
        os.close(other)
        left = [row for row in KV if row[0] != COUNT.encode()]
        self.assert_model({LENGTH: Value('u64', 2)}, left)
        os.pwrite(fd, b'8', 0)
        os.close(fd)
        self.assert_model({LENGTH: Value('u64', 8)}, left)

    def test_rename_new_key_while_open(self):
        """A key that has no value yet gets its first value under its name at that time."""
        for new, value in (('my.other', Value('u32', 5)), (NAME, string('5'))):
            fd = os.open(self.key('my.new'), os.O_WRONLY | os.O_CREAT)
            os.write(fd, b'5')
            os.rename(self.key('my.new'), self.key(new))
            self.assertNotIn('my.new', os.listdir(self.metadata))
            self.assertEqual(self.text(new), b'5')
            os.close(fd)
            self.assertEqual(self.text(new), b'5\n')
        self.assert_model({'my.other': Value('u32', 5), NAME: string('5')})

    def test_rename_key_to_helper_while_open(self):
        """Writes go to the helper, and to the key once the file has its name again."""
        fd = os.open(self.key(NAME), os.O_RDWR)
        os.rename(self.key(NAME), self.key(NAME + '~'))
        os.pwrite(fd, b'OLD', 0)
        self.assertEqual(self.text(NAME + '~'), b'OLD name\n')
        self.write(NAME, b'new\n')
        os.pwrite(fd, b'Old', 0)
        os.fsync(fd)
        self.assertEqual(self.text(NAME), b'new\n')
        os.rename(self.key(NAME + '~'), self.key(NAME))
        self.assert_model({NAME: string('Old name')})
        os.pwrite(fd, b'oLD', 0)
        os.close(fd)
        self.assert_model({NAME: string('oLD name')})
        self.assert_listing(replaced({NAME: string('oLD name')}))

    def test_rename_helper_while_open(self):
        """A program renames a helper before its last write, or before its first."""
        for before, text in ((b'', b'5'), (b'6', b'5'), (b'6\n', b'')):
            for name, kind in ((COUNT, 'u32'), (LENGTH, 'u64')):
                fd = os.open(self.key(name + '.tmp'), os.O_RDWR | os.O_CREAT | os.O_EXCL)
                os.write(fd, before)
                os.rename(self.key(name + '.tmp'), self.key(name))
                self.assertNotIn(name + '.tmp', os.listdir(self.metadata))
                os.write(fd, text)
                self.assertEqual(self.read_through(fd), before + text)
                os.close(fd)
                self.assert_model({name: Value(kind, int(before + text))},
                                  gguf.read(mountlib.get(self.model)).kv)
        self.assert_listing(replaced({COUNT: Value('u32', 6), LENGTH: Value('u64', 6)}))

    def test_rename_helper_with_a_type(self):
        """A type set on the helper applies to the key, even before there is a value."""
        fd = os.open(self.key(COUNT + '.tmp'), os.O_WRONLY | os.O_CREAT)
        os.setxattr(self.key(COUNT + '.tmp'), 'user.gguf.type', b'u16')
        os.rename(self.key(COUNT + '.tmp'), self.key(COUNT))
        os.write(fd, b'9')
        os.close(fd)
        self.assert_model({COUNT: Value('u16', 9)})

    def test_rename_helper_and_never_write(self):
        """An empty file renamed over a key truncates the key."""
        for name in (COUNT, NAME):
            fd = os.open(self.key('sedAbCdEf'), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            os.rename(self.key('sedAbCdEf'), self.key(name))
            os.close(fd)
        self.comes({NAME: string('')})
        self.assertTrue(until(lambda: self.text(COUNT) == b'2\n'))

    def test_removed_while_open(self):
        """Writes to a removed key are discarded; so are those to a helper, and to a helper whose
        handle came with a key."""
        for name in (NAME, 'my~'):
            fd = os.open(self.key(name), os.O_RDWR | os.O_CREAT)
            os.pwrite(fd, b'one', 0)
            if name == NAME:
                os.rename(self.key(name), self.key('other~'))
                name = 'other~'
            os.unlink(self.key(name))
            os.pwrite(fd, b'two', 0)
            self.assertEqual(os.pread(fd, 3, 0), b'two')
            os.close(fd)
        self.comes({}, [row for row in KV if row[0] != NAME.encode()])
        self.assert_listing([row for row in KV if row[0] != NAME.encode()])


class NotWritten(Calls):
    """Edits that cannot be written, as is noticed only when they are."""

    options = ('-o', 'commit=close')

    def test_key(self):
        """The open file goes back to its name, whether a new key or another key had taken it."""
        for old, new, code in ((NAME, 'my.name', errno.EMLINK), (NAME, COUNT, errno.EINVAL),
                               (COUNT, LENGTH, errno.EMLINK)):
            before = (self.text(old), self.text(new) if new in self.marks() else None)
            fd = os.open(self.key(old), os.O_RDWR)
            other = self.link_model()
            self.assert_errno(code, os.rename, self.key(old), self.key(new))
            os.unlink(other)
            self.assertEqual(self.text(old), before[0])
            os.pwrite(fd, b'9', 0)
            self.assertEqual(self.text(old), b'9' + before[0][1:])
            os.close(fd)
            self.assertEqual(self.text(old), b'9' + before[0][1:])
            if before[1] is None:
                self.assertNotIn(new, os.listdir(self.metadata))
            else:
                self.assertEqual(self.text(new), before[1])
        self.assert_model({NAME: string('9ld name'), COUNT: Value('u32', 9)})

    def test_helper(self):
        fd = os.open(self.key(NAME + '.tmp'), os.O_RDWR | os.O_CREAT)
        os.write(fd, b'one')
        other = self.link_model()
        self.assert_errno(errno.EMLINK, os.rename, self.key(NAME + '.tmp'), self.key(NAME))
        os.write(fd, b' two')
        self.assertEqual(self.text(NAME + '.tmp'), b'one two')
        self.assertEqual(self.text(NAME), b'old name\n')
        os.unlink(other)
        os.rename(self.key(NAME + '.tmp'), self.key(NAME))
        os.write(fd, b' three')
        os.close(fd)
        self.assert_model({NAME: string('one two three')})
        self.assert_listing(replaced({NAME: string('one two three')}))

    def test_fsync_again(self):
        """Each fsync and each close repeats the error until the file is written again."""
        fd = os.open(self.key(NAME), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'second')
        other = self.link_model()
        for _ in range(2):
            self.assert_errno(errno.EMLINK, os.fsync, fd)
            self.assertEqual(self.text(NAME), b'old name\n')
        os.unlink(other)
        self.assert_errno(errno.EMLINK, os.close, os.dup(fd))  # NumPy ignores this error
        self.assert_errno(errno.EMLINK, os.fsync, fd)
        self.assert_model({})
        os.write(fd, b' third')
        os.fsync(fd)
        self.assert_model({NAME: string('second third')})
        other = self.link_model()
        os.write(fd, b' fourth')
        self.assert_errno(errno.EMLINK, os.fsync, fd)
        os.unlink(other)
        self.assert_errno(errno.EMLINK, os.close, fd)
        self.sync()
        self.assert_model({NAME: string('second third')})
        self.assertEqual(self.text(NAME), b'second third\n')

    def test_twice(self):
        """The failure of a later rename does not undo edits that are on the disk."""
        fd = os.open(self.key(NAME), os.O_RDWR)
        os.rename(self.key(NAME), self.key('my.first'))
        other = self.link_model()
        self.assert_errno(errno.EMLINK, os.rename, self.key('my.first'), self.key('my.second'))
        os.unlink(other)
        os.pwrite(fd, b'new', 0)
        os.close(fd)
        self.assert_file(replaced({'my.first': string('new name')}, named(NAME, 'my.first')))


class NotPossible(NotWritten):
    """Edits that cannot be written, as is noticed in advance."""

    options = ('-o', 'commit=auto')


if __name__ == '__main__':
    mountlib.main()
