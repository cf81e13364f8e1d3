#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Refused edits: the error, the call that returns it, and that no key has changed. Also new keys:
their types, and the names that they may have."""
import errno
import os
import stat
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import oracle
import samples
from editlib import Want, opened, place, retype, sync, write
from ggufmodel import Value, array

CREATE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class Refused(unittest.TestCase):
    def setUp(self):
        self.source = mountlib.put('model.gguf', samples.editable())
        self.mount = mountlib.Foreground(self.source)
        self.at, _ = self.mount.__enter__()
        self.want = Want(mountlib.get(self.source))
        self.id = os.stat(self.source).st_ino

    def tearDown(self):
        failed = bool(self._outcome.result.failures or self._outcome.result.errors)
        self.mount.__exit__(*([True] * 3 if failed else [None] * 3))
        if not failed:
            self.want.check(mountlib.get(self.source))

    def fails(self, code, call, *args, **how):
        with self.assertRaises(OSError, msg=(args, how)) as caught:
            call(*args, **how)
        self.assertEqual(errno.errorcode[caught.exception.errno], errno.errorcode[code], args)

    def untouched(self):
        """Check that the file is the same one, and the tree shows its content."""
        self.assertEqual(os.stat(self.source).st_ino, self.id)
        self.want.check(mountlib.get(self.source))
        self.assertEqual(editlib.keys(self.at),
                         [oracle.file_name(entry.key) for entry in self.want.kv])

    def accepted(self, key, text, value, **how):
        write(self.at, how.pop('path', key), text)
        self.want.set(key, value, **how)
        self.want.check(mountlib.get(self.source))
        self.id = os.stat(self.source).st_ino

    def at_close(self, key, text):
        """Return the error of write(2) or, if that succeeded, of close(2)."""
        write(self.at, key, text)

    def at_fsync(self, key, text):
        write(self.at, key, text, fsync=True)

    def at_each_byte(self, key, text):
        write(self.at, key, text, piece=1)

    BAD = [('type.u8', '256', errno.ERANGE), ('type.u8', '-1', errno.ERANGE),
           ('type.u8', 'many', errno.EINVAL), ('type.i8', '128', errno.ERANGE),
           ('type.i8', '-129', errno.ERANGE), ('type.u16', '65536', errno.ERANGE),
           ('type.i16', '-32769', errno.ERANGE), ('type.u32', '4294967296', errno.ERANGE),
           ('type.u32', '1.5', errno.EINVAL), ('type.u32', '1 2', errno.EINVAL),
           ('type.i32', '2147483648', errno.ERANGE), ('type.u64', '18446744073709551616', errno.ERANGE),
           ('type.i64', '9223372036854775808', errno.ERANGE), ('type.bool', 'yes', errno.EINVAL),
           ('type.bool', '1', errno.EINVAL), ('type.f32', 'x', errno.EINVAL),
           ('type.f32', '1e39', errno.ERANGE), ('type.f64', '1e400', errno.ERANGE),
           ('type.string', b'\xff', errno.EILSEQ), ('list.i32', '[1, "a"]', errno.EINVAL),
           ('list.i32', '1\n\n2\n', errno.EINVAL), ('list.u8', '256\n', errno.ERANGE),
           ('list.string', '"open', errno.EINVAL), ('list.string', '1\n', errno.EINVAL),
           ('list.bool', '0\n', errno.EINVAL), ('list.array', '1\n', errno.EOPNOTSUPP),
           ('general.alignment', '7', errno.EINVAL), ('general.alignment', '4', errno.EINVAL),
           ('general.alignment', '2097152', errno.EINVAL), ('general.alignment', '48', errno.EINVAL),
           ('general.alignment', 'x', errno.EINVAL),
           ('general.alignment:u64', '64', errno.EINVAL)]

    def test_values(self):
        for key, text, code in self.BAD:
            for call in (self.at_close, self.at_fsync, self.at_each_byte):
                with self.subTest(key=key, text=text, call=call.__name__):
                    self.fails(code, call, key, text)
                    editlib.until(lambda: b'general.alignment' not in editlib.keys(self.at))
                    self.untouched()

    def test_reason(self):
        """user.gguf.error and the log give the reason until the next successful write."""
        before = editlib.read(self.at, 'type.u8')
        self.fails(errno.ERANGE, write, self.at, 'type.u8', '256')
        self.assertTrue(editlib.error_of(self.at, 'type.u8'))
        self.assertIn('user.gguf.error', os.listxattr(place(self.at, 'type.u8')))
        [line] = mountlib.get(os.path.join(self.at, 'errors')).decode().splitlines()
        self.assertTrue(line.startswith('metadata/type.u8: '), line)
        self.assertIn('type.u8', self.mount.log())
        self.assertEqual(editlib.read(self.at, 'type.u8'), before)
        self.accepted(b'type.u8', '5', Value('u8', 5))
        self.assertIsNone(editlib.error_of(self.at, 'type.u8'))
        self.assertEqual(mountlib.get(os.path.join(self.at, 'errors')), b'')

    def test_early(self):
        """A line written in one call is parsed by that call: echo ignores errors of close(2)."""
        for key, text, code in (('type.u32', 'x\n', errno.EINVAL), ('type.bool', 'no\n', errno.EINVAL),
                                ('list.i32', '1\n"a"\n', errno.EINVAL),
                                ('list.i32', '[1, "a"]\n', errno.EINVAL),
                                ('list.u8', '1\n2\n256\n', errno.ERANGE),
                                ('general.alignment', '48\n', errno.EINVAL),
                                ('general.file_type', 'many\n', errno.EINVAL),
                                ('my.flag:u8', '256\n', errno.ERANGE)):
            with self.subTest(key=key, text=text):
                fd = os.open(place(self.at, key), CREATE)
                self.fails(code, os.write, fd, text.encode())
                self.fails(code, os.close, fd)
                self.untouched()

    def test_not_too_early(self):
        """Incomplete text is not judged yet: open brackets, or text without a newline."""
        def pieces(key, *texts):
            with opened(place(self.at, key), CREATE) as fd:
                for text in texts:
                    os.write(fd, text.encode())
        pieces('list.i32', '[1,\n', '2\n', ']\n')
        self.want.set(b'list.i32', array('i32', [1, 2]))
        pieces('list.i32', '7', '8\n', '9\n')
        self.want.set(b'list.i32', array('i32', [78, 9]))
        self.want.check(mountlib.get(self.source))

    def test_too_large(self):
        """A text over 1 GiB is refused, and a draft with a refused write has no effect."""
        limit = 1 << 30
        for key in ('type.string', 'general.description'):
            fd = os.open(place(self.at, key), os.O_WRONLY | os.O_CREAT)
            os.write(fd, b'begin')
            self.fails(errno.EFBIG, os.ftruncate, fd, limit + 1)
            self.fails(errno.EFBIG, os.pwrite, fd, b'x', limit)
            self.fails(errno.EFBIG, os.close, fd)
        with opened(place(self.at, 'a~'), os.O_WRONLY | os.O_CREAT) as a, \
             opened(place(self.at, 'b~'), os.O_WRONLY | os.O_CREAT) as b:
            os.pwrite(a, b'x', limit // 2 + 100)
            os.write(a, b'x')  # existing bytes are not counted twice
            for fd in (a, b):
                self.fails(errno.ENOSPC, os.pwrite, fd, b'x', limit)
            self.fails(errno.ENOSPC, os.pwrite, b, b'x', limit // 2)
            self.fails(errno.ENOSPC, os.ftruncate, b, limit // 2)
            os.ftruncate(a, limit - 2)
            self.fails(errno.ENOSPC, os.symlink, '123', place(self.at, '.#general.name'))
            self.fails(errno.ENOSPC, os.rename, place(self.at, 'general.name'),
                       place(self.at, 'general.name~'))
        os.unlink(place(self.at, 'a~'))
        os.unlink(place(self.at, 'b~'))
        editlib.until(lambda: b'general.description' not in editlib.keys(self.at))
        self.untouched()

    def test_program_keys(self):
        self.fails(errno.EPERM, os.unlink, place(self.at, 'general.architecture'))
        self.fails(errno.EPERM, os.rename, place(self.at, 'general.architecture'),
                   place(self.at, 'my.architecture'))
        self.fails(errno.EPERM, os.rename, place(self.at, 'general.architecture'),
                   place(self.at, 'general.name'))
        for key in ('split.no', 'split.count', 'ggufs.reserve'):
            self.fails(errno.EPERM, write, self.at, key, '1')
            self.fails(errno.EPERM, os.rename, place(self.at, 'general.name'), place(self.at, key))
        self.untouched()

    def test_reason_of_a_rename(self):
        """A refused new name has no file that could show the reason, so the old name shows it."""
        self.assertIsNone(editlib.error_of(self.at, 'general.name'))
        self.fails(errno.EPERM, os.rename, place(self.at, 'general.name'),
                   place(self.at, 'split.no'))
        self.assertTrue(editlib.error_of(self.at, 'general.name'))
        write(self.at, '.new', 'many')
        self.fails(errno.EINVAL, os.rename, place(self.at, '.new'),
                   place(self.at, 'general.file_type'))
        self.assertIn('integer', editlib.error_of(self.at, '.new'))
        self.assertEqual(self.mount.log().count(': refused: '), 2)
        os.unlink(place(self.at, '.new'))
        self.untouched()

    def test_alignment(self):
        self.accepted(b'general.alignment', '64', Value('u32', 64))
        self.fails(errno.EINVAL, os.rename, place(self.at, 'general.alignment'),
                   place(self.at, 'my.alignment'))
        self.fails(errno.EINVAL, retype, self.at, 'general.alignment', 'u64')
        os.unlink(place(self.at, 'general.alignment'))
        sync(self.at)
        self.want.remove(b'general.alignment')
        self.want.check(mountlib.get(self.source))
        self.id = os.stat(self.source).st_ino
        self.fails(errno.EINVAL, os.rename, place(self.at, 'type.u32'),
                   place(self.at, 'general.alignment'))
        self.untouched()

    def test_retype(self):
        """A type that does not fit, or does not exist, is refused; other attributes cannot be
        set."""
        for key, kind, code in (('type.string', 'u32', errno.EINVAL), ('type.f32', 'u8', errno.EINVAL),
                                ('list.i32', 'u32', errno.EINVAL), ('type.u32', 'u33', errno.EINVAL),
                                ('type.u32', 'array', errno.EINVAL)):
            with self.subTest(key=key, kind=kind):
                self.fails(code, retype, self.at, key, kind)
        self.accepted(b'type.u32', '1000', Value('u32', 1000))
        self.fails(errno.ERANGE, retype, self.at, 'type.u32', 'u8')
        self.assertEqual(editlib.type_of(self.at, 'type.u32'), 'u32')
        name = place(self.at, 'type.u32')
        os.setxattr(name, 'user.gguf.type', b'u32')
        os.setxattr(name, 'user.gguf.name', b'type.u32')
        self.fails(errno.EPERM, os.setxattr, name, 'user.gguf.name', b'another')
        self.fails(errno.EOPNOTSUPP, os.setxattr, name, 'user.other', b'x')
        self.fails(errno.EPERM, os.removexattr, name, 'user.gguf.type')
        self.untouched()

    def test_what_metadata_has_not(self):
        new = place(self.at, 'my.new')
        for call, args in ((os.mkdir, [new]), (os.link, [place(self.at, 'general.name'), new]),
                           (os.mkfifo, [new]), (os.symlink, ['target', new]),
                           (os.mknod, [new, stat.S_IFCHR | 0o600, os.makedev(1, 3)])):
            with self.subTest(call=call.__name__):
                self.fails(errno.EPERM, call, *args)
        self.untouched()

    def test_elsewhere(self):
        """Only files in metadata/ can be written."""
        for name in ('model.gguf', 'info', 'metadata.json', 'tensors/a.weight/raw'):
            for flags in (os.O_WRONLY, os.O_RDONLY | os.O_TRUNC):
                with self.assertRaises(OSError) as caught:
                    os.open(os.path.join(self.at, name), flags)
                self.assertIn(caught.exception.errno, (errno.EACCES, errno.EROFS, errno.EPERM), name)
            with self.assertRaises(OSError) as caught:
                os.unlink(os.path.join(self.at, name))
            self.assertIn(caught.exception.errno, (errno.EACCES, errno.EROFS, errno.EPERM), name)
        for name in ('new.key', 'tensors/new.key', 'tensors/a.weight/new.key'):
            with self.assertRaises(OSError) as caught:
                os.open(os.path.join(self.at, name), CREATE, 0o600)
            self.assertIn(caught.exception.errno, (errno.EACCES, errno.EROFS, errno.EPERM), name)
            with self.assertRaises(OSError) as caught:
                os.rename(place(self.at, 'general.name'), os.path.join(self.at, name))
            self.assertIn(caught.exception.errno, (errno.EACCES, errno.EROFS, errno.EPERM), name)
        self.untouched()

    def test_names(self):
        """A name that is neither a key's nor a helper's is refused."""
        for name in ('a b.c', 'my..key', 'key.', 'ü.key', 'my.key:u33', 'a%2Fb.c'):
            with self.subTest(name=name):
                self.fails(errno.EINVAL, write, self.at, name, '1')
                self.fails(errno.EINVAL, os.rename, place(self.at, 'general.name'),
                           place(self.at, name))
        self.fails(errno.ENAMETOOLONG, write, self.at, 'a.' + 'b' * 254, '1')
        self.untouched()

    def test_temporary_names(self):
        """Names without a dot are helpers only if they are created as mkstemp(3) does."""
        for name in ('sedAb12Cd', 'Ab12Cd34', 'tmp_a1b2c3', 'tmpa1b2c3_4'):
            self.fails(errno.EINVAL, os.open, place(self.at, name), CREATE, 0o600)
            self.fails(errno.EINVAL, os.open, place(self.at, name), CREATE | os.O_EXCL, 0o644)
            os.close(os.open(place(self.at, name), CREATE | os.O_EXCL, 0o600))
            os.unlink(place(self.at, name))
        editlib.until(lambda: 'sedAb12Cd' in self.mount.log())
        self.assertIn("a key's name is letters", self.mount.log())
        self.untouched()

    COPY = {'cp': 'cp "$1" "$2"', 'cp -a': 'cp -a "$1" "$2"', 'echo': 'cat "$1" > "$2"',
            'install': 'install -m 600 "$1" "$2"', 'mv': 'cp "$1" "$1.x" && mv "$1.x" "$2"',
            'tar': 'tar -C "${1%/*}" --transform "s|.*|${2##*/}|" -cf - "${1##*/}" | tar -C "${2%/*}" -xf -'}

    def test_copies_beside_keys(self):
        """What is copied to a name beside a key is in the model afterwards, or was refused."""
        source = mountlib.put('copied', b'a copy\n')
        for how, script in self.COPY.items():
            for suffix in ('.chatml', '.vision', '.rej', '123456', '.bak', '.orig', '.old', '.save'):
                name = 'general.name' + suffix
                with self.subTest(how=how, name=name):
                    done = mountlib.run('bash', '-c', 'set -o pipefail; ' + script, 'bash', source,
                                        os.fsdecode(place(self.at, name)))
                    good = suffix in ('.chatml', '.vision', '.rej', '123456')
                    self.assertEqual(done.returncode == 0, good, done.err)
                    self.assertEqual('Invalid argument' in done.err, not good, done.err)
                    if good:
                        self.want.set(name.encode(), Value('string', b'a copy'))
                    sync(self.at)
                    self.want.check(mountlib.get(self.source))
                    self.id = os.stat(self.source).st_ino
        self.untouched()

    NEW = [('my.flag', 'true', Value('bool', 1)), ('my.count', '7\n', Value('u32', 7)),
           ('my.negative', '-7', Value('i32', -7)), ('my.large', '4294967296', Value('u64', 1 << 32)),
           ('my.low', '-2147483649', Value('i64', -2147483649)),
           ('my.float', '0.5', Value('f32', 0.5)), ('my.e', '1e3', Value('f32', 1000.0)),
           ('my.inf', 'inf', Value('f32', float('inf'))),
           ('my.text', 'some text\n', Value('string', b'some text')),
           ('my.list', '[1, 2]', array('u32', [1, 2])),
           ('my.words', '["a", "b"]', array('string', [b'a', b'b'])),
           ('my.mixed', '[1, "b"]', Value('string', b'[1, "b"]')),
           ('llama.context_length', '8192', Value('u32', 8192)),
           ('llama.vocab_size', '5000000000', Value('u64', 5000000000)),
           ('llama.rope.freq_base', '10000', Value('f32', 10000.0)),
           ('general.version', '7', Value('string', b'7')),
           ('general.tags', '["x"]', array('string', [b'x'])),
           ('general.languages', '"en"\n"fr"\n', array('string', [b'en', b'fr']))]

    def test_new_types(self):
        for key, text, value in self.NEW:
            with self.subTest(key=key):
                self.accepted(key.encode(), text, value)

    TYPED = [('t.u8:u8', '1', Value('u8', 1)), ('t.i8:i8', '1', Value('i8', 1)),
             ('t.u16:u16', '1', Value('u16', 1)), ('t.i16:i16', '1', Value('i16', 1)),
             ('t.u32:u32', '1', Value('u32', 1)), ('t.i32:i32', '1', Value('i32', 1)),
             ('t.u64:u64', '1', Value('u64', 1)), ('t.i64:i64', '1', Value('i64', 1)),
             ('t.f32:f32', '1', Value('f32', 1.0)), ('t.f64:f64', '1', Value('f64', 1.0)),
             ('t.bool:bool', 'true', Value('bool', 1)), ('t.text:string', '1', Value('string', b'1')),
             ('t.words:array[string]', '"1"\n', array('string', [b'1'])),
             ('t.bytes:array[u8]', '1\n2\n', array('u8', [1, 2]))]

    def test_typed_names(self):
        """KEY:TYPE is KEY with that type; the typed name is not listed, but continues to
        resolve."""
        for name, text, value in self.TYPED:
            with self.subTest(name=name):
                key = name.split(':')[0]
                self.accepted(key.encode(), text, value, path=name)
                self.assertEqual(editlib.type_of(self.at, key), value.full_type_name())
                self.assertEqual(os.stat(place(self.at, name)).st_ino,
                                 os.stat(place(self.at, key)).st_ino)
        self.assertFalse([key for key in editlib.keys(self.at) if b':' in key])

    def test_typed_name_of_a_key(self):
        """An existing key gets the type as well; if the text is refused, it keeps its own for later
        writes."""
        self.accepted(b'type.u32', '5', Value('u8', 5), path='type.u32:u8')
        self.fails(errno.EINVAL, write, self.at, 'general.name:u8', 'text')
        editlib.until(lambda: not os.path.exists(place(self.at, 'general.name:u8')))
        self.accepted(b'general.name', 'text', Value('string', b'text'))
        self.fails(errno.EINVAL, write, self.at, 'my.key:u8', 'text')
        editlib.until(lambda: b'my.key' not in editlib.keys(self.at))
        self.accepted(b'my.key', 'text', Value('string', b'text'))

    def test_comes_back(self):
        """A removed key that is written again before its removal gets its type and place back."""
        os.unlink(place(self.at, 'type.u8'))
        write(self.at, 'type.u8', '9')
        self.want.set(b'type.u8', Value('u8', 9))
        self.want.check(mountlib.get(self.source))
        os.unlink(place(self.at, 'type.u8'))
        sync(self.at)
        write(self.at, 'type.u8', '10')
        self.want.remove(b'type.u8')  # the removal was final
        self.want.set(b'type.u8', Value('u32', 10))
        self.want.check(mountlib.get(self.source))
        editlib.retype(self.at, 'type.u8', 'u8')
        self.want.set(b'type.u8', Value('u8', 10))
        self.want.check(mountlib.get(self.source))
        os.unlink(place(self.at, 'type.u8'))
        self.fails(errno.ERANGE, write, self.at, 'type.u8', '1000')
        editlib.until(lambda: b'type.u8' in editlib.keys(self.at))
        sync(self.at)
        self.want.check(mountlib.get(self.source))

    def test_truncation(self):
        """Truncation alone makes an empty string or array, and has no effect for other types."""
        for key, value in ((b'general.name', Value('string', b'')), (b'list.i32', array('i32', []))):
            os.close(os.open(place(self.at, key), CREATE))
            self.want.set(key, value)
            editlib.until(lambda: os.stat(place(self.at, key)).st_size < 2)
        os.close(os.open(place(self.at, 'type.u32'), CREATE))
        os.close(os.open(place(self.at, 'my.new'), CREATE))
        os.close(os.open(place(self.at, 'llama.block_count'), CREATE))
        self.want.set(b'my.new', Value('string', b''))
        editlib.until(lambda: b'llama.block_count' not in editlib.keys(self.at))
        editlib.until(lambda: editlib.read(self.at, 'type.u32') and
                      'user.gguf.type' in os.listxattr(place(self.at, 'my.new')))
        self.assertEqual(editlib.type_of(self.at, 'my.new'), 'string')
        sync(self.at)
        self.want.check(mountlib.get(self.source))

    def test_one_draft(self):
        """Two handles write one draft, O_APPEND appends, and stat and fstat report the size of the
        draft."""
        name = place(self.at, 'general.name')
        with opened(name, os.O_WRONLY | os.O_APPEND) as a, opened(name, os.O_RDWR) as b:
            os.ftruncate(b, 0)
            os.write(a, b'one')
            os.write(a, b' two')
            os.pwrite(b, b'T', 4)
            self.assertEqual(os.fstat(a).st_size, 7)
            self.assertEqual(os.stat(name).st_size, 7)
            self.assertEqual(os.pread(b, 100, 0), b'one Two')
        self.want.set(b'general.name', Value('string', b'one Two'))
        sync(self.at)
        self.want.check(mountlib.get(self.source))

    def test_attributes_are_ignored(self):
        """chmod, chown and utimens succeed without effect."""
        name = place(self.at, 'general.name')
        before = os.stat(name)
        os.chmod(name, 0o777)
        os.chown(name, os.getuid(), os.getgid())
        os.utime(name, (1, 1))
        self.assertEqual(os.stat(name), before)
        self.untouched()


class ReadOnly(unittest.TestCase):
    def check(self, data, *options):
        source = mountlib.put('model.gguf', data)
        with mountlib.Mount(source, *options) as at:
            key = place(at, 'general.architecture')
            for call, args in ((write, (at, 'general.architecture', 'x')),
                               (write, (at, 'my.new', '1')), (os.unlink, [key]),
                               (os.rename, [key, place(at, 'my.key')]), (os.truncate, [key, 0]),
                               (os.open, [key, os.O_RDONLY | os.O_TRUNC]),
                               (retype, (at, 'general.architecture', 'string'))):
                with self.assertRaises(OSError) as caught:
                    call(*args)
                self.assertEqual(caught.exception.errno, errno.EROFS, call)
        self.assertEqual(mountlib.get(source), data)

    def test_version_1(self):
        self.check(gguf.encode(samples.ARCH, samples.small(), version=1))

    def test_counted_nul(self):
        self.check(gguf.encode(samples.ARCH, samples.small(), version=2, nul=True))

    def test_asked_for(self):
        self.check(samples.editable(), '-o', 'ro')


if __name__ == '__main__':
    mountlib.main()
