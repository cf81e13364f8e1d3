# SPDX-License-Identifier: MIT
"""What system calls on keys mean where the kernel has a part in it: shells, forks, truncation, appending,
names and times, its caches, and when an edit is on the disk. What each order of
calls does to a model: the scripts of tests/unit."""
import errno
import os
import stat
import subprocess

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editing import COUNT, KV, LENGTH, NAME, TENSORS, Editing, replaced, shell, string
from ggufmodel import Value, array
from mountlib import fails

ARCHITECTURE, TAGS = 'general.architecture', 'general.tags'
WITHOUT_NAME = [row for row in KV if row[0] != NAME.encode()]


class Calls(Editing):
    def write(self, name, text, flags=os.O_CREAT | os.O_TRUNC):
        with editlib.opened(self.key(name), os.O_WRONLY | flags, 0o644) as fd:
            os.write(fd, text)

    def comes(self, changes, kv=KV):
        """Wait until the model has these keys and the helpers are gone."""
        want = gguf.encode(replaced(changes, kv), TENSORS)
        editlib.until(lambda: mountlib.get(self.model) == want and os.listdir(self.folder) == ['model.gguf'])
        self.assert_model(changes, kv)


class Shells(Calls):
    def test_redirect_nothing(self):
        """`: > key`, and a command that fails, empty a string and an array, but no other type."""
        before = self.state()
        for name in (COUNT, LENGTH, 'llama.rope.freq_base'):
            self.assertEqual(shell(': > "$1"', self.key(name)), ('', 0))
        self.assertEqual(shell('no-such-command 2>/dev/null > "$1"', self.key(LENGTH)), ('', 127))
        self.assertEqual((self.text(COUNT), self.text(LENGTH)), (b'2\n', b'2048\n'))
        self.assertEqual(self.state(), before)
        shell(': > "$1"', self.key(NAME))
        self.comes({NAME: string('')})
        self.assertEqual(self.text(NAME), b'\n')
        os.truncate(self.key(TAGS), 0)
        self.comes({NAME: string(''), TAGS: array('string', [])})
        self.assertEqual(self.text(TAGS), b'')

    def test_redirect_nothing_and_unmount(self):
        """The value becomes empty even if the kernel has not had time to send the release."""
        shell(': > "$1"; fusermount3 -u "$2"', self.key(NAME), self.at)
        self.mount.wait()
        self.mount.__exit__(None, None, None)
        self.mount = None
        self.assert_model({NAME: string('')})

    def test_parts(self):
        """truncate(1), dd and >> write parts of a text; a part that makes it wrong is refused by the write, because
        shells ignore close."""
        steps = (('truncate -s 3 "$1"', NAME, string('old')), ('truncate -s 2 "$1"', LENGTH, Value('u64', 20)),
                 ('printf OL | dd of="$1" conv=notrunc status=none', NAME, string('OLd')),
                 ('echo more >> "$1"', NAME, string('OLd\nmore')),
                 ("echo '\"three\"' >> \"$1\"", TAGS, array('string', [b'one', b'two', b'three'])),
                 ('exec 3>> "$1"; : > "$1"; echo 77 >&3', COUNT, Value('u32', 77)),
                 ('(/usr/bin/printf a; /usr/bin/printf b; /usr/bin/echo c) > "$1"', NAME, string('abc')),  # forks close
                 ('exec 3> "$1"; printf d >&3; /usr/bin/printf e >&3; echo f >&3', NAME, string('def')),
                 ('(/usr/bin/printf g; /usr/bin/printf h) >> "$1"', NAME, string('def\ngh')),
                 ('(/usr/bin/printf 1; /usr/bin/printf 2) > "$1"', COUNT, Value('u32', 12)))
        changes = {}
        for script, name, value in steps:
            with self.subTest(script):
                self.assertEqual(shell(script, self.key(name)), ('', 0))
                changes[name] = value
                self.assert_model(changes)
        before = self.state()
        for script in ('echo 5 >> "$1" 2>/dev/null', 'echo abc > "$1" 2>/dev/null',
                       'printf abc | dd of="$1" conv=notrunc status=none 2>/dev/null'):
            self.assertEqual(shell(script, self.key(LENGTH)), ('', 1), script)
            self.assertEqual(self.text(LENGTH), b'20\n')
            self.assertIsNotNone(self.error(LENGTH))
        self.assertEqual(self.state(), before)

    def test_new_keys(self):
        """touch changes no key and makes an empty string; echo makes a key of the type that its name, the standard or
        its text tells."""
        before, marks = self.state(), self.marks()
        self.assertEqual(shell('touch "$1" "$2"', self.key(NAME), self.key(LENGTH)), ('', 0))
        self.assertEqual((self.state(), self.marks()), (before, marks))
        shell('cd "$1" && echo 1 > my.flag:u8 && cat my.flag:u8 > my.copy && echo 2 > my.flag && '
              'echo true > my.bool && echo -5 > my.int && echo "[1, 2]" > my.list:array[u16] && touch my.text', self.metadata)
        self.comes({'my.flag': Value('u8', 2), 'my.copy': Value('u32', 1), 'my.bool': Value('bool', 1),
                    'my.int': Value('i32', -5), 'my.list': array('u16', [1, 2]), 'my.text': string('')})
        self.assertNotIn('my.flag:u8', os.listdir(self.metadata))


class Refused(Calls):
    BAD = [(COUNT, '-1\n', errno.ERANGE), (COUNT, 'many', errno.EINVAL), (COUNT, '4294967296', errno.ERANGE),
           (NAME, b'\xff', errno.EILSEQ), (TAGS, '"open', errno.EINVAL), (TAGS, '1\n', errno.EINVAL),
           ('llama.rope.freq_base', '1e39', errno.ERANGE), ('general.alignment', '48\n', errno.EINVAL),
           ('a b.c', '1', errno.EINVAL), ('my..key', '1', errno.EINVAL), ('my.key:u33', '1', errno.EINVAL),
           ('a.' + 'b' * 254, '1', errno.ENAMETOOLONG), ('split.count', '1', errno.EPERM), ('ggufs.reserve', '1', errno.EPERM)]

    def test_texts_and_names(self):
        """The error, and no change; user.gguf.error and `errors` give the reason until the next good write."""
        before = self.state()
        for name, text, code in self.BAD:
            for fsync in (False, True):
                fails(code, editlib.write, self.at, name, text, fsync=fsync)
        editlib.until(lambda: os.listdir(self.metadata) == [key.decode() for key, _ in KV])
        self.assertEqual(self.state(), before)
        self.assertTrue(self.error(COUNT))
        self.assertIn(b'metadata/' + COUNT.encode() + b': ', mountlib.get(os.path.join(self.at, 'errors')))
        self.write(COUNT, b'4294967295\n')
        self.assertIsNone(self.error(COUNT))
        self.assert_model({COUNT: Value('u32', 4294967295)})

    def test_written_back_by_lines(self):
        """A stored string that is not UTF-8 may be written back in parts; another one is refused at its first line."""
        keys = replaced({NAME: Value('string', b'a\xff\nb')})
        with mountlib.Mount(mountlib.put('bytes.gguf', gguf.encode(keys, TENSORS))) as at:
            with editlib.opened(os.path.join(at, 'metadata', NAME), os.O_WRONLY | os.O_TRUNC) as fd:
                os.write(fd, b'a\xff\n')
                os.write(fd, b'b\n')
            fails(errno.EILSEQ, editlib.write, at, NAME, b'a\xfe\n')
            self.assertEqual(editlib.read(at, NAME), b'a\xff\nb\n')

    def test_what_metadata_has_not(self):
        new = self.key('my.new')
        for call, *names in ((os.symlink, 'target', new), (os.mkdir, new), (os.link, self.key(NAME), new), (os.mkfifo, new),
                             (os.mknod, new, stat.S_IFCHR | 0o600, os.makedev(1, 3)), (os.unlink, self.key(ARCHITECTURE)),
                             (os.rename, self.key(ARCHITECTURE), new), (os.rename, self.key(NAME), self.key('split.no')),
                             (os.setxattr, self.key(NAME), 'user.gguf.name', b'x'),
                             (os.removexattr, self.key(NAME), 'user.gguf.type')):
            fails(errno.EPERM, call, *names)
        fails(errno.EOPNOTSUPP, os.setxattr, self.key(NAME), 'user.other', b'x')
        fails(errno.EINVAL, os.rename, self.key(NAME), self.key(LENGTH))
        self.assert_model({})

    def test_elsewhere(self):
        """Only files in metadata/ can be written, made, removed or renamed."""
        codes = errno.EACCES, errno.EROFS, errno.EPERM
        for name in ('model.gguf', 'info', 'metadata.json', 'tensors/first/raw', 'new.key', 'tensors/new.key'):
            place = os.path.join(self.at, name)
            for call, *names in ((os.open, place, os.O_WRONLY | os.O_CREAT), (os.open, place, os.O_RDONLY | os.O_TRUNC),
                                 (os.unlink, place), (os.rename, self.key(NAME), place)):
                if 'new' in name and call == os.unlink or names[-1] == os.O_RDONLY | os.O_TRUNC and 'new' in name:
                    continue
                fails(codes, call, *names)
        self.assert_model({})

    def test_read_only(self):
        """-o ro, version 1, and a file whose writer counted a NUL in each string."""
        for data, *options in ((samples.editable(), '-o', 'ro'), (gguf.encode(samples.ARCH, samples.small(), version=1),),
                               (gguf.encode(samples.ARCH, samples.small(), version=2, nul=True),)):
            source = mountlib.put('readonly.gguf', data)
            with mountlib.Mount(source, *options) as at:
                key = editlib.place(at, ARCHITECTURE)
                for call, *names in ((editlib.write, at, ARCHITECTURE, 'x'), (os.unlink, key), (os.truncate, key, 0),
                                     (os.rename, key, editlib.place(at, 'my.key')), (os.open, key, os.O_RDONLY | os.O_TRUNC),
                                     (editlib.write, at, 'my.new', '1'), (editlib.retype, at, ARCHITECTURE, 'string')):
                    fails(errno.EROFS, call, *names)
            self.assertEqual(mountlib.get(source), data)


class Files(Calls):
    def test_accepted_is_shown_as_stored(self):
        """Others see the value; a program that has the file open continues with its own text."""
        fd = os.open(self.key(NAME), os.O_RDWR | os.O_TRUNC)
        os.write(fd, b'a')
        self.assertEqual(self.text(NAME), b'a')
        os.fsync(fd)
        self.assertEqual(self.text(NAME), b'a\n')
        self.assertEqual(os.stat(self.key(NAME)).st_size, 2)
        self.assertEqual(os.pread(fd, 1000, 0), b'a')
        self.assertEqual(os.lseek(fd, 0, os.SEEK_END), 1)
        os.write(fd, b'b')
        self.assertEqual(self.text(NAME), b'ab')
        os.close(fd)
        self.assertEqual(self.text(NAME), b'ab\n')
        self.assert_model({NAME: string('ab')})

    def test_renamed_backup(self):
        """A backup that is renamed can be copied back: no two files have one number."""
        os.rename(self.key(NAME), self.key(NAME + '~'))
        editlib.write(self.at, NAME, 'new')
        os.rename(self.key(NAME + '~'), self.key('.backup'))
        self.marks()

    def test_removed(self):
        """A removed key is gone at once, and from the file without a further request; after that it is new."""
        os.unlink(self.key(LENGTH))
        self.assertFalse(os.path.exists(self.key(LENGTH)))
        self.assertNotIn(LENGTH, os.listdir(self.metadata))
        self.comes({}, [row for row in KV if row[0] != LENGTH.encode()])
        fails(errno.ENOENT, os.unlink, self.key(LENGTH))
        self.write(LENGTH, b'2\n')
        new = (LENGTH.encode(), Value('u32', 2))
        self.assert_model({}, [row for row in KV if row[0] != new[0]] + [new])

    def test_attributes_without_effect(self):
        before, path = self.marks(), self.key(NAME)
        os.chmod(path, 0o600)
        os.chown(path, os.getuid(), os.getgid())
        os.utime(path, (1, 1))
        self.assertEqual(self.marks(), before)
        self.assert_model({})


class CommitAtSync(Editing):
    options = ('-o', 'commit=sync')

    def test_what_syncs(self):
        """fsync of any file or folder of the model writes what was collected, and so does the unmount."""
        for i, name in enumerate(('.', 'metadata', 'metadata/' + NAME, 'model.gguf', 'metadata.json', 'tensors/first/raw')):
            before = self.state()
            self.assertEqual(shell(f'echo {i + 7} > "$1"', self.key(COUNT)), ('', 0))
            self.assertEqual(self.text(COUNT), b'%d\n' % (i + 7))
            self.assertEqual(self.state(), before)
            subprocess.run(['sync', os.path.join(self.at, name)], check=True)
            self.assert_model({COUNT: Value('u32', i + 7)})
        shell('echo 5 > "$1" && rm "$2"', self.key(COUNT), self.key(NAME))
        self.unmount()
        self.assert_model({COUNT: Value('u32', 5)}, WITHOUT_NAME)
