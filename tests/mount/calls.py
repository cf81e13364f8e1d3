#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""What system calls mean: truncation, appending, removal, names and times; and when an edit is on
the disk."""
import concurrent.futures
import errno
import os
import subprocess
import threading
import unittest

import editlib
import ggufmodel as gguf
import mountlib
from editing import (COUNT, KV, LENGTH, NAME, TEMPLATE, TENSORS, Calls, Editing, replaced, shell,
                     sizes, string, until)
from ggufmodel import Tensor, Value, array

ARCHITECTURE = 'general.architecture'
TAGS = 'general.tags'


class Edits(Calls):
    # ---- truncation ----

    def test_redirect_nothing(self):
        """`: > key` empties a string and an array, but no other type."""
        before = self.state()
        for name in (COUNT, LENGTH, 'llama.rope.freq_base'):
            self.assertEqual(shell(': > "$1"', self.key(name)), ('', 0))
        self.assertEqual(self.text(COUNT), b'2\n')
        self.assertEqual(self.state(), before)
        shell(': > "$1"', self.key(NAME))
        self.comes({NAME: string('')})
        self.assertEqual(self.text(NAME), b'\n')
        shell(': > "$1"', self.key(TAGS))
        self.comes({NAME: string(''), TAGS: array('string', [])})
        self.assertEqual(self.text(TAGS), b'')

    def test_redirect_nothing_and_unmount(self):
        """The value becomes empty even if the kernel has not had time to send the release."""
        shell(': > "$1"; fusermount3 -u "$2"', self.key(NAME), self.at)
        self.mount.wait()
        self.mount.__exit__(None, None, None)
        self.mount = None
        self.assert_model({NAME: string('')})

    def test_command_that_fails(self):
        """A value that was truncated but not written stays if it cannot be empty."""
        before = self.state()
        self.assertEqual(shell('no-such-command 2>/dev/null > "$1"', self.key(LENGTH)), ('', 127))
        self.assertEqual(self.text(LENGTH), b'2048\n')
        self.assertEqual(self.state(), before)

    def test_truncate(self):
        self.assertEqual(shell('truncate -s 3 "$1"', self.key(NAME)), ('', 0))
        self.assert_model({NAME: string('old')})
        self.assertEqual(shell('truncate -s 2 "$1"', self.key(LENGTH)), ('', 0))
        self.assert_model({NAME: string('old'), LENGTH: Value('u64', 20)})
        os.truncate(self.key(NAME), 0)
        self.comes({NAME: string(''), LENGTH: Value('u64', 20)})
        self.assert_errno(errno.EINVAL, os.truncate, self.key(COUNT), 5)
        self.assertEqual(self.text(COUNT), b'2\n')

    # ---- parts ----

    def test_dd_over_the_beginning(self):
        out, status = shell('printf OLD | dd of="$1" conv=notrunc status=none', self.key(NAME))
        self.assertEqual((out, status), ('', 0))
        self.assert_model({NAME: string('OLD name')})
        _, status = shell('printf abc | dd of="$1" conv=notrunc status=none', self.key(LENGTH))
        self.assertNotEqual(status, 0)
        self.assertEqual(self.text(LENGTH), b'2048\n')
        self.assertIsNotNone(self.error(LENGTH))

    def test_dd_with_a_hole(self):
        """Blocks written out of order are not refused before the text is complete."""
        fd = os.open(self.key(TAGS), os.O_WRONLY | os.O_TRUNC)
        os.pwrite(fd, b'"second"]\n', 9)
        os.pwrite(fd, b'["first",', 0)
        os.close(fd)
        self.assert_model({TAGS: array('string', [b'first', b'second'])})

    def test_append(self):
        self.assertEqual(shell('echo more >> "$1"', self.key(NAME)), ('', 0))
        self.assert_model({NAME: string('old name\nmore')})
        shell('''echo '"three"' >> "$1"''', self.key(TAGS))
        self.assert_model({NAME: string('old name\nmore'),
                           TAGS: array('string', [b'one', b'two', b'three'])})

    def test_append_to_a_number(self):
        """bash ignores the result of close, so the write is refused."""
        before = self.state()
        self.assertEqual(shell('echo 5 >> "$1" 2>/dev/null', self.key(LENGTH)), ('', 1))
        self.assertEqual(self.text(LENGTH), b'2048\n')
        self.assertIsNotNone(self.error(LENGTH))
        self.assertEqual(self.state(), before)

    def test_two_append(self):
        """Two programs share a draft: both see each other's lines, and so does stat."""
        first, second = (os.open(self.key(NAME), os.O_WRONLY | os.O_APPEND) for _ in range(2))
        os.write(first, b'a\n')
        os.write(second, b'b\n')
        os.write(first, b'c\n')
        self.assertEqual(os.fstat(second).st_size, len('old name\na\nb\nc\n'))
        self.assertEqual(os.stat(self.key(NAME)).st_size, len('old name\na\nb\nc\n'))
        self.assertEqual(self.text(NAME), b'old name\na\nb\nc\n')
        os.close(first)
        os.close(second)
        self.assert_model({NAME: string('old name\na\nb\nc')})

    def test_truncated_under_an_appender(self):
        out, status = shell('exec 3>> "$1"; : > "$1"; echo 77 >&3', self.key(COUNT))
        self.assertEqual((out, status), ('', 0))
        self.assert_model({COUNT: Value('u32', 77)})

    def test_refused_then_good(self):
        self.assert_errno(errno.EINVAL, self.write, COUNT, b'abc\n')
        self.assert_errno(errno.ERANGE, self.write, COUNT, b'4294967296\n')
        self.assertIsNotNone(self.error(COUNT))
        self.write(COUNT, b'4294967295\n')
        self.assertIsNone(self.error(COUNT))
        self.assert_model({COUNT: Value('u32', 4294967295)})

    def test_refused_in_parts(self):
        """Text written after a refused write does not make it valid."""
        fd = os.open(self.key(COUNT), os.O_WRONLY | os.O_TRUNC)
        self.assert_errno(errno.EINVAL, os.write, fd, b'7x\n')
        self.assert_errno(errno.EINVAL, os.fsync, fd)
        self.assert_errno(errno.EINVAL, os.close, fd)
        self.assertTrue(until(lambda: self.text(COUNT) == b'2\n'))
        self.assert_model({})

    def test_too_much(self):
        """No part of a text over 1 GiB is accepted."""
        fd = os.open(self.key(NAME), os.O_WRONLY | os.O_TRUNC)
        os.write(fd, b'some')
        self.assert_errno(errno.EFBIG, os.pwrite, fd, b'more', 1 << 30)
        self.assert_errno(errno.EFBIG, os.close, fd)
        self.assertTrue(until(lambda: self.text(NAME) == b'old name\n'))
        self.assert_model({})

    # ---- new keys ----

    def test_touch(self):
        """touch does not change an existing key; a new key is an empty string, or has the
        standard's type."""
        before, marks = self.state(), self.marks()
        self.assertEqual(shell('touch "$1" "$2"', self.key(NAME), self.key(LENGTH)), ('', 0))
        self.assertEqual(self.state(), before)
        self.assertEqual(self.marks(), marks)
        self.assertEqual(shell('touch "$1"', self.key('my.key')), ('', 0))
        self.comes({'my.key': string('')})
        self.assertEqual(self.text('my.key'), b'\n')
        shell('touch "$1"', self.key('llama.expert_count'))
        self.assertTrue(until(lambda: 'llama.expert_count' not in os.listdir(self.metadata)))
        self.assert_model({'my.key': string('')})

    def test_types(self):
        shell('cd "$1" && echo 1 > my.flag:u8 && cat my.flag:u8 > my.copy && echo 2 > my.flag && '
              'echo true > my.bool && echo -5 > my.int && echo "[1, 2]" > my.list:array[u16]',
              self.metadata)
        self.assert_model({'my.flag': Value('u8', 2), 'my.copy': Value('u32', 1),
                           'my.bool': Value('bool', 1), 'my.int': Value('i32', -5),
                           'my.list': array('u16', [1, 2])})
        self.assertNotIn('my.flag:u8', os.listdir(self.metadata))

    def test_names(self):
        for name, number in (('my..key', errno.EINVAL), ('a b.c', errno.EINVAL),
                             ('stray', errno.EINVAL), ('abcd1234', errno.EINVAL),
                             ('split.count', errno.EPERM), ('ggufs.reserve', errno.EPERM)):
            self.assert_errno(number, self.write, name, b'1\n')
        self.write('4913', b'1\n')
        self.assertEqual(self.text('4913'), b'1\n')
        self.assert_listing(KV, '4913')
        self.unmount()
        self.assert_model({})

    def test_temporary_file(self):
        """A file that is created, removed, written and closed never existed."""
        for name in ('my.key', COUNT):
            fd = os.open(self.key(name), os.O_RDWR | os.O_CREAT)
            os.write(fd, b'5\n')
            os.unlink(self.key(name))
            os.pwrite(fd, b'6\n', 0)
            self.assertEqual(os.pread(fd, 9, 0), b'6\n')
            os.close(fd)
            self.assertNotIn(name, os.listdir(self.metadata))
        self.comes({}, [row for row in KV if row[0] != COUNT.encode()])

    # ---- removal ----

    def test_remove(self):
        os.unlink(self.key(NAME))
        self.assertNotIn(NAME, os.listdir(self.metadata))
        self.assertFalse(os.path.exists(self.key(NAME)))
        self.comes({}, [row for row in KV if row[0] != NAME.encode()])
        self.assert_errno(errno.ENOENT, os.unlink, self.key(NAME))

    def test_remove_and_sync(self):
        os.unlink(self.key(NAME))
        self.sync()
        self.assert_model({}, [row for row in KV if row[0] != NAME.encode()])

    def test_remove_and_back(self):
        """A removed key that is created again before the removal is written gets its type and place
        back; after that it is a new key."""
        os.unlink(self.key(LENGTH))
        self.write(LENGTH, b'1\n')
        self.assert_model({LENGTH: Value('u64', 1)})
        os.unlink(self.key(LENGTH))
        self.sync()
        self.write(LENGTH, b'2\n')
        new = (LENGTH.encode(), Value('u32', 2))
        self.assert_model({}, [row for row in KV if row[0] != new[0]] + [new])

    def test_remove_and_back_refused(self):
        os.unlink(self.key(LENGTH))
        self.assert_errno(errno.EINVAL, self.write, LENGTH, b'abc\n')
        self.assertTrue(until(lambda: os.path.exists(self.key(LENGTH))
                              and self.text(LENGTH) == b'2048\n'))
        self.assertIsNotNone(self.error(LENGTH))
        self.sync()
        self.assert_model({})

    def test_remove_with_another_edit(self):
        os.unlink(self.key(COUNT))
        self.write(NAME, b'new\n')
        self.assert_model({NAME: string('new')}, [row for row in KV if row[0] != COUNT.encode()])

    def test_remove_architecture(self):
        self.assert_errno(errno.EPERM, os.unlink, self.key(ARCHITECTURE))
        self.assert_errno(errno.EPERM, os.rename, self.key(ARCHITECTURE), self.key('my.key'))

    def test_remove_all(self):
        shell('rm -rf "$1" 2>/dev/null', self.metadata)
        self.sync()
        self.assert_model({}, KV[:1])

    # ---- names ----

    def test_rename(self):
        os.rename(self.key(LENGTH), self.key('my.length'))
        kv = [(b'my.length' if key == LENGTH.encode() else key, value) for key, value in KV]
        self.assert_file(kv)
        self.assert_listing(kv)
        os.rename(self.key('my.length'), self.key(LENGTH))
        self.assert_model({})

    def test_rename_over(self):
        """The target of a rename keeps its place and type and takes the value; the source is
        gone."""
        self.assertEqual(shell('mv "$1" "$2"', self.key(COUNT), self.key(LENGTH)), ('', 0))
        left = [row for row in KV if row[0] != COUNT.encode()]
        self.assert_model({LENGTH: Value('u64', 2)}, left)
        self.assert_listing(replaced({LENGTH: Value('u64', 2)}, left))

    def test_rename_over_refused(self):
        before = self.state()
        self.assert_errno(errno.EINVAL, os.rename, self.key(NAME), self.key(LENGTH))
        self.assertEqual(self.text(NAME), b'old name\n')
        self.assertEqual(self.text(LENGTH), b'2048\n')
        self.assertEqual(self.state(), before)

    def test_rename_away_and_stay(self):
        """A key renamed to a helper's name comes back at the next mount."""
        os.rename(self.key(NAME), self.key(NAME + '~'))
        self.assertNotIn(NAME, os.listdir(self.metadata))
        self.assertEqual(self.text(NAME + '~'), b'old name\n')
        self.write(COUNT, b'3\n')
        self.unmount()
        self.assert_model({COUNT: Value('u32', 3)})

    def test_rename_away_and_remove(self):
        os.rename(self.key(NAME), self.key(NAME + '~'))
        os.unlink(self.key(NAME + '~'))
        self.sync()
        self.assert_model({}, [row for row in KV if row[0] != NAME.encode()])

    def test_older_backup_removed(self):
        """Only the last copy of a key that was moved away counts as the key."""
        os.rename(self.key(NAME), self.key(NAME + '.bak'))
        self.write(NAME, b'second\n')
        os.rename(self.key(NAME), self.key(NAME + '.old'))
        os.unlink(self.key(NAME + '.bak'))
        self.unmount()
        self.assert_model({NAME: string('second')})

    def test_refused_over_what_is_away(self):
        """With sed -i.bak, the key comes back when the new value is refused."""
        os.rename(self.key(COUNT), self.key(COUNT + '.bak'))
        self.write('.new', b'abc\n')
        self.assert_errno(errno.EINVAL, os.rename, self.key('.new'), self.key(COUNT))
        self.assertEqual(self.text(COUNT), b'2\n')
        self.assertIsNotNone(self.error(COUNT))

    def test_replaced_while_open(self):
        """A program that still writes to the replaced file changes no key."""
        old = os.open(self.key(NAME), os.O_WRONLY)
        self.write(NAME + '.tmp', b'new\n')
        os.rename(self.key(NAME + '.tmp'), self.key(NAME))
        os.write(old, b'XXXX')
        os.close(old)
        self.assertEqual(self.text(NAME), b'new\n')
        self.assert_model({NAME: string('new')})

    def test_lock_link(self):
        """emacs locks with a dangling link."""
        link = self.key('.#' + NAME)
        os.symlink('me@here.1:2', link)
        self.assertEqual(os.readlink(link), 'me@here.1:2')
        self.assert_errno(errno.EEXIST, os.symlink, 'other', link)
        self.assert_errno(errno.EPERM, os.symlink, 'other', self.key('my.link'))
        self.assertTrue(os.path.islink(link))
        self.assertIn('.#' + NAME, sizes(self.metadata))
        os.unlink(link)
        self.assert_listing(KV)

    def test_helper_outlives_failure(self):
        """A helper renamed over a key comes back if the model could not be written."""
        self.write(COUNT + '.tmp', b'7\n')
        other = self.link_model()
        self.assert_errno(errno.EMLINK, os.rename, self.key(COUNT + '.tmp'), self.key(COUNT))
        self.assertEqual(self.text(COUNT + '.tmp'), b'7\n')
        self.assertEqual(self.text(COUNT), b'2\n')
        os.unlink(other)
        os.rename(self.key(COUNT + '.tmp'), self.key(COUNT))
        self.assert_model({COUNT: Value('u32', 7)})
        self.assert_listing(replaced({COUNT: Value('u32', 7)}))

    # ---- times ----

    def test_time_goes_with_the_file(self):
        """A file moved over a key keeps its time, as on any file system: gedit compares it."""
        self.write(NAME + '.tmp', b'new\n')
        time = os.stat(self.key(NAME + '.tmp')).st_mtime_ns
        os.rename(self.key(NAME + '.tmp'), self.key(NAME))
        self.assertEqual(os.stat(self.key(NAME)).st_mtime_ns, time)

    def test_attributes_without_effect(self):
        before = self.marks()
        path = self.key(NAME)
        os.chmod(path, 0o600)
        os.chown(path, os.getuid(), os.getgid())
        os.utime(path, (1, 1))
        self.assertEqual(self.marks(), before)
        self.assert_model({})

    # ---- several programs ----

    def test_listing_meanwhile(self):
        """Each listing contains every key once, whatever is being written."""
        stop, faults, listings = threading.Event(), [], []
        keys = {key.decode() for key, _ in KV}

        def look():
            while not stop.is_set():
                names = os.listdir(self.metadata)
                listings.append(len(names))
                if len(names) != len(set(names)) or not keys <= set(names):
                    faults.append(names)
        thread = threading.Thread(target=look)
        thread.start()
        for number in range(20):
            self.write(COUNT, b'%d\n' % number)
            self.write(COUNT + '.tmp', b'%d\n' % (number + 100))
            os.rename(self.key(COUNT + '.tmp'), self.key(COUNT))
        editlib.until(lambda: listings or not thread.is_alive())
        stop.set()
        thread.join()
        self.assertEqual(faults, [])
        self.assert_model({COUNT: Value('u32', 119)})

    def test_writers_of_two_keys(self):
        """Edits that arrive while another one is written are batched, and none is lost."""
        def many(name, values):
            for value in values:
                self.write(name, b'%d\n' % value)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            for done in [threads.submit(many, name, range(30)) for name in (COUNT, LENGTH)]:
                done.result()
        self.assert_model({COUNT: Value('u32', 29), LENGTH: Value('u64', 29)})

    def test_template_copied_back(self):
        """A multi-line text is copied out and back."""
        before = self.state()
        path = self.key('tokenizer.chat_template')
        self.assertEqual(self.text('tokenizer.chat_template'), TEMPLATE + b'\n')
        shell('cp "$1" "$2" && cp "$2" "$1"', path, mountlib.path('copy'))
        self.assertEqual(self.state(), before)


class CommitAtClose(Editing):
    options = ('-o', 'commit=close')

    def test_close(self):
        self.assertEqual(shell('echo 5 > "$1"', self.key(COUNT)), ('', 0))
        self.assert_model({COUNT: Value('u32', 5)})


class CommitAtSync(Editing):
    options = ('-o', 'commit=sync')

    def edit(self):
        self.assertEqual(shell('echo 5 > "$1" && rm "$2"', self.key(COUNT), self.key(NAME)),
                         ('', 0))
        self.assertEqual(self.text(COUNT), b'5\n')
        self.assertNotIn(NAME, os.listdir(self.metadata))

    KV = [row for row in KV if row[0] != NAME.encode()]

    def test_unmount(self):
        before = self.state()
        self.edit()
        self.assertEqual(self.state(), before)
        self.unmount()
        self.assert_model({COUNT: Value('u32', 5)}, self.KV)

    def test_sync_command(self):
        before = self.state()
        self.edit()
        self.assertEqual(self.state(), before)
        subprocess.run(['sync', self.metadata], check=True)
        self.assert_model({COUNT: Value('u32', 5)}, self.KV)
        self.assert_listing(replaced({COUNT: Value('u32', 5)}, self.KV))

    def test_sync_of_any_file(self):
        for i, name in enumerate(('model.gguf', 'metadata.json',
                                  os.path.join('tensors', os.listdir(os.path.join(self.at, 'tensors'))[0], 'raw'))):
            self.assertEqual(shell(f'echo {i + 7} > "$1"', self.key(COUNT)), ('', 0))
            subprocess.run(['sync', os.path.join(self.at, name)], check=True)
            self.assert_model({COUNT: Value('u32', i + 7)})

    def test_refused(self):
        self.assertEqual(shell('echo abc > "$1" 2>/dev/null', self.key(COUNT)), ('', 1))
        self.assertEqual(self.text(COUNT), b'2\n')


class CommitLater(Editing):
    """No call waits for the copy of a model over 64 MiB."""

    options = ('-o', 'relayout=copy')
    tensors = [Tensor(b'big', 24, (65 << 20,), bytes(65 << 20))]
    CHANGES = {COUNT: Value('u32', 5), LENGTH: Value('u64', 6), NAME: string('new')}

    def edit(self):
        out = shell('echo 5 > "$1"; sed -i s/.*/6/ "$2"; cp "$3" "$4" && mv "$4" "$3.tmp" && '
                    'echo new > "$3.tmp" && mv "$3.tmp" "$3"', self.key(COUNT), self.key(LENGTH),
                    self.key(NAME), mountlib.path('copy'))
        self.assertEqual(out, ('', 0))
        self.assertEqual([self.text(name) for name in self.CHANGES], [b'5\n', b'6\n', b'new\n'])
        self.assertEqual(os.listdir(self.metadata), [key.decode() for key, _ in KV])

    def test_by_itself(self):
        before = os.stat(self.model).st_ino
        self.edit()
        self.assertTrue(until(lambda: os.stat(self.model).st_ino != before))
        self.unmount()
        self.assert_model(self.CHANGES)

    def test_fsync(self):
        self.edit()
        subprocess.run(['sync', self.key(COUNT)], check=True)
        self.assert_model(self.CHANGES)

    def test_refused_at_once(self):
        """An edit that cannot be written is refused immediately."""
        self.link_model()
        _, status = shell('cp "$1" "$2" 2>/dev/null', mountlib.put('source', b'7\n'),
                          self.key(COUNT))
        self.assertEqual(status, 1)
        self.assertEqual(self.text(COUNT), b'2\n')
        self.assertIn('hard links', self.error(COUNT))


if __name__ == '__main__':
    mountlib.main()
