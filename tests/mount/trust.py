# SPDX-License-Identifier: MIT
"""Permissions, also of the parts of a split model, whose files can have different owners and modes; text that
reaches the log."""
import contextlib
import errno
import os
import re
import stat
import subprocess
import unittest
from unittest import mock

import editlib
import ggufmodel as gguf
import mountlib
import samples
from editlib import write
from ggufmodel import Tensor, Value, array
from mountlib import OTHER, Foreground, Mount, fails, run, works

ROOT = os.getuid() == 0
LOGTAP = os.environ.get('GGUFS_LOGTAP', '')

# The attempts of another user, one per line: "what: errno's name" or "what: ok".
ATTEMPTS = '''
import errno, os, sys
at = sys.argv[1]
def read(name): open(os.path.join(at, name), "rb").read(1)
def write(name):
    fd = os.open(os.path.join(at, name), os.O_WRONLY)
    os.write(fd, b"written by another")
    os.close(fd)
for what, act in (
    ("list", lambda: os.listdir(os.path.join(at, "metadata"))),
    ("list tensors", lambda: os.listdir(os.path.join(at, "tensors"))),
    ("read key", lambda: read("metadata/general.name")),
    ("read raw", lambda: read("tensors/a.weight/raw")),
    ("read f32", lambda: read("tensors/a.weight/f32")),
    ("read model", lambda: read("model.gguf")),
    ("read json", lambda: read("metadata.json")),
    ("create", lambda: os.open(os.path.join(at, "metadata/new.key"), os.O_WRONLY | os.O_CREAT)),
    ("remove", lambda: os.unlink(os.path.join(at, "metadata/last.key"))),
    ("rename", lambda: os.rename(os.path.join(at, "metadata/type.i8"), os.path.join(at, "metadata/type.name"))),
    ("truncate", lambda: os.truncate(os.path.join(at, "metadata/general.name"), 0)),
    ("retype", lambda: os.setxattr(os.path.join(at, "metadata/type.u32"), "user.gguf.type", b"u64")),
    ("write", lambda: write("metadata/general.name")),
):
    try:
        act()
        print(what + ": ok")
    except OSError as e:
        print(what + ": " + errno.errorcode[e.errno])
'''


def attempts(at):
    out = works(*mountlib.as_other('/usr/bin/python3', '-c', ATTEMPTS, at))
    return dict(line.split(': ') for line in out.splitlines())


def served(model, *options):
    os.chmod(mountlib.folder, 0o755)
    return Mount(model, '-o', ','.join(('allow_other',) + options), at=mountlib.folder_at('open'))


def has_nameless_files(folder):
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_RDWR))
        return True
    except OSError:
        return False


class Trust(unittest.TestCase):
    def setUp(self):
        self.folder, self.data = mountlib.path('home'), samples.editable()
        self.model = mountlib.put('home/model.gguf', self.data)

    def tearDown(self):
        for name in os.listdir(self.folder):
            os.unlink(os.path.join(self.folder, name))

    # ---- permissions ----

    @unittest.skipUnless(ROOT, 'for root only')
    def test_modes(self):
        """What another user may do is what the file's bits give: nothing, reading, or editing as well; the group bits
        count for its members only, and before those for others; uid= and umask= override."""
        os.chown(self.model, -1, 0)
        for mode, group, options, may in (
                (0o600, 0, (), ''), (0o644, 0, (), 'r'), (0o666, 0, (), 'rw'), (0o640, OTHER, (), 'r'),
                (0o606, OTHER, (), ''), (0o660, OTHER, (), 'rw'), (0o666, 0, ('umask=077',), ''),
                (0o600, 0, (f'uid={OTHER}',), 'rw')):
            with self.subTest(mode=oct(mode), group=group, options=options):
                mountlib.put(self.model, self.data)
                os.chown(self.model, -1, group)
                os.chmod(self.model, mode)
                with served(self.model, *options) as at:
                    found = attempts(at)
                reads = {what for what in found if what.startswith(('list', 'read'))}
                self.assertEqual({found[what] for what in reads}, {'ok' if may else 'EACCES'})
                self.assertEqual({found[what] for what in found if what not in reads}, {'ok' if 'w' in may else 'EACCES'})
                status = os.stat(self.model)
                self.assertEqual((status.st_uid, status.st_gid, status.st_mode & 0o777), (os.getuid(), group, mode))
                name = dict(gguf.read(mountlib.get(self.model)).kv)
                if 'w' in may:
                    self.assertEqual(name[b'general.name'].data, b'written by another')
                else:
                    self.assertEqual(mountlib.get(self.model), self.data)

    def read_only(self, at):
        fails(errno.EROFS, write, at, 'general.name', b'TEST')

    @unittest.skipUnless(ROOT, 'for root only')
    def test_owner_that_cannot_be_given(self):
        """The mount is read-only and says why, and the directory is unchanged; in-place edits are
        the exception."""
        program = ('setpriv', '--bounding-set=-chown', '--inh-caps=-chown', '--', mountlib.GGUFS)
        for uid, gid, options, writable in ((0, 0, (), True), (1234, 0, (), False),
                                            (0, 5678, (), False),
                                            (1234, 0, ('-o', 'relayout=inplace'), True)):
            with self.subTest(uid=uid, gid=gid, options=options):
                os.chown(self.model, uid, gid)
                before = os.stat(self.folder).st_mtime_ns
                traceless = has_nameless_files(self.folder)
                mount = Foreground(self.model, *options, program=program)
                with mount as (at, _):
                    if writable:
                        write(at, 'general.name', b'TEST')
                        self.assertNotIn('read-only', mount.log())
                        self.assertEqual(editlib.read(at, 'general.name'), b'TEST\n')
                        continue
                    self.read_only(at)
                    editlib.until(lambda: 'read-only: ' in mount.log())
                    self.assertRegex(mount.log(), 'read-only: .*owner and group cannot be reproduced')
                    with Mount(self.model) as there:  # no lock is held
                        self.read_only(at)
                        self.assertEqual(os.listdir(self.folder), ['model.gguf'])
                        if traceless:
                            self.assertEqual(os.stat(self.folder).st_mtime_ns, before)
                        write(there, 'general.name', b'TEST')
                self.assertEqual((os.stat(self.model).st_uid, os.stat(self.model).st_gid),
                                 (uid, gid))

    @unittest.skipUnless(ROOT, 'for root only')
    def test_without_allow_other(self):
        os.chmod(mountlib.folder, 0o755)
        os.chmod(self.model, 0o666)
        at = mountlib.folder_at('closed')
        with Mount(self.model, at=at):
            self.assertEqual(set(attempts(at).values()), {'EACCES'})

    # ---- the log ----

    def hostile(self):
        """Return names and values that would move a cursor, set a title or end a line."""
        escapes = b'\x1b[2J\x1b]0;title\x07\r\n\x08\x7f\xc2\x9b31m\xff'
        kv = samples.ARCH + [(b'general.name', Value('string', escapes)),
                             (b'bad.key' + escapes, Value('u32', 7)),
                             (b'bad.list' + escapes, array('i32', [1])),
                             (b'bad.text', Value('string', escapes))]
        tensors = [Tensor(b'one' + escapes, 24, (5,), b'abcde'), Tensor(b'two', 99, (3,), b'xyz')]
        return gguf.encode(kv, tensors, order=[1, 0], gap=32, trailing=b'x')

    def check_printable(self, text):
        """Check that there are no control characters, including C1, and that all bytes are
        UTF-8."""
        self.assertNotEqual(text, '')
        self.assertIsNone(re.search('[\x00-\x09\x0b-\x1f\x7f-\x9f\udc80-\udcff]', text), repr(text))

    def edit_everything(self, at):
        """Make edits that succeed and edits that are refused, for every key; each one is logged."""
        place = os.path.join(os.fsencode(at), b'metadata')
        names = [name for name in os.listdir(place) if name.startswith(b'bad.')]
        self.assertEqual(len(names), 3)
        for name in names:
            for text in (b'\x1b[31mred\x1b[0m\n\x9b', b'99999999999999', b'1'):
                with contextlib.suppress(OSError):
                    write(at, name, text)
            with contextlib.suppress(OSError):
                os.setxattr(os.path.join(place, name), 'user.gguf.type', b'u\x1b[5m')
            with contextlib.suppress(OSError):
                os.rename(os.path.join(place, name), os.path.join(place, name + b'.next'))
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(place, name))
            editlib.sync(at)
        for name in (b'stray\xc2\x9b2J', b'stray%1B%5B2J', b'st\x1b[2Jray', b'\xff.\xfe'):
            with contextlib.suppress(OSError):
                write(at, name, b'1')

    @contextlib.contextmanager
    def tapped(self, model, *options):
        """Mount by a daemon. Yields the mount point, and a list that then gets the lines sent to syslog(3)."""
        if not os.path.exists(LOGTAP) or mountlib.sanitized('asan', 'tsan'):
            self.skipTest('no tap on syslog')
        tap, lines = mountlib.path('tap'), []
        with mock.patch.dict(os.environ, {'LOGTAP': tap, 'LD_PRELOAD': LOGTAP}), Mount(model, *options) as at:
            yield at, lines
        lines += mountlib.get(tap).decode(errors='surrogateescape').split('\0')
        self.assertEqual(lines.pop(), '')
        os.unlink(tap)

    def test_syslog_of_edits(self):
        """syslog(3) receives a daemon's lines; the model's path is hostile, too."""
        model = os.path.join(os.fsencode(self.folder), b'\x1b[31m\xc2\x9b\xff\n.gguf')
        mountlib.put(os.fsdecode(model), self.hostile())
        with self.tapped(model) as (at, lines):
            self.edit_everything(at)
        self.check_printable(''.join(lines))
        self.assertEqual([line for line in lines if '\n' in line], [])
        log = '\n'.join(lines)
        self.assertRegex(log, r'bad\.key\\x1b\[2J')
        self.assertRegex(log, r'\\x1b\[31m\\xc2\\x9b\\xff\\x0a\.gguf: mounted on ')

    def test_syslog_of_a_failed_end(self):
        """A daemon, which has no standard error, reports lost edits to syslog(3)."""
        with self.tapped(self.model, '-o', 'commit=sync') as (at, lines):
            write(at, 'general.name', 'never')
            mountlib.put(self.model + '.new', mountlib.get(self.model))
            os.rename(self.model + '.new', self.model)
        self.assertEqual(lines[-1], f'{self.model}: an edit was lost: Stale file handle')

    def test_log_of_refusal(self):
        """A file and directories with hostile names cannot be mounted."""
        name = os.path.join(os.fsencode(self.folder), b'\x1b[31m\xc2\x9b\n.gguf')
        mountlib.put(os.fsdecode(name), self.hostile()[:-50])
        for model in (name, name + b'.none'):
            for arguments in ([model, self.folder], ['--recover', model], [self.model, model],
                              [self.model, self.folder, model],
                              ['--unmount', model],
                              ['-o', b'max_threads=' + os.path.basename(model), model, self.folder],
                              ['-o', b'max_threads=\x1b[31m\xc2\x9b', model, self.folder],
                              ['--check', b'--' + os.path.basename(model), model]):
                done = run(mountlib.GGUFS, *arguments)
                if done.returncode != 0:
                    self.check_printable(done.err)
                    self.assertRegex(done.err, r'\Aggufs: .*\n\Z')


# Prints the base names of those of the given files that another user can read.
READERS = 'for name; do { ls "$name" && { test -d "$name" || head -c 1 "$name"; }; } >/dev/null 2>&1 && basename "$name"; done; :'


@unittest.skipUnless(os.getuid() == 0, 'for root only')
class Rights(unittest.TestCase):
    def shards(self):
        """Make three shards, each with a tensor of its number."""
        parts = [[Tensor(b'of.%d' % no, 0, (1,), bytes(4))] for no in range(3)]
        return [mountlib.put('m-%05d-of-00003.gguf' % (no + 1), data)
                for no, data in enumerate(samples.shards(samples.ARCH, parts))]

    def readable(self, model, *options):
        """Return the files that another user can read if root's daemon serves the model to all."""
        with served(model, *options) as at:
            tensors = [f'{at}/tensors/of.{no}' for no in range(3)]
            files = [f'{tensor}/{name}' for tensor in tensors for name in ('raw', 'f32', 'shard')]
            whole = [f'{at}/{name}' for name in ('model.gguf', 'metadata.json', 'tensors.json',
                                                 'info', 'check')]
            keys = [f'{at}/metadata/general.architecture']
            self.assertEqual(os.listdir(at + '/tensors'), ['of.0', 'of.1', 'of.2'])
            done = run(*mountlib.as_other('sh', '-c', READERS, 'sh', *tensors, *files, *whole, *keys,
                                          at + '/tensors', at + '/metadata'))
            self.assertEqual(done.returncode, 0, done.err)
            return done.out.split()

    def test_shards_of_several_modes(self):
        """The model shows what all its files grant: if they differ in group, to their owner alone;
        if they differ in owner, to the daemon's user alone."""
        paths = self.shards()
        self.assertEqual(len(self.readable(paths[0])), 3 + 9 + 5 + 1 + 2)
        os.chmod(paths[1], 0o600)
        self.assertEqual(self.readable(paths[0]), [])
        self.assertEqual(len(self.readable(paths[0], 'umask=022')), 20)
        os.chmod(paths[1], 0o644)
        for uid, gid in ((0, 1234), (1234, 0), (OTHER, 0)):
            os.chown(paths[2], uid, gid)
            self.assertEqual(self.readable(paths[0]), [], (uid, gid))

    # Another user: prints "seen" when access has changed, to denied, then to allowed again.
    OPENS = '''
import os, sys, time

def can(name):
    try:
        os.close(os.open(name, os.O_RDONLY))
        return True
    except PermissionError:
        return False

for wanted in (True, False, True):
    input()
    while any(can(name) != wanted for name in sys.argv[1:]):
        time.sleep(0.01)
    print("seen", flush=True)
'''

    def follows(self, below, *names):
        """A process that only opens these names notices that a file's mode changed."""
        mode = stat.S_IMODE(os.stat(below).st_mode)
        command = mountlib.as_other('/usr/bin/python3', '-c', self.OPENS, *names)
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            for bits in (mode, mode & 0o700, mode):
                os.chmod(below, bits)
                other.stdin.write('\n')
                other.stdin.flush()
                self.assertEqual(other.stdout.readline(), 'seen\n')
            other.stdin.close()

    def test_bits_that_change(self):
        """Changes apply while the model is mounted, within a second."""
        top, tensors = mountlib.path('top'), ('tensors/t/raw', 'tensors/t', 'tensors')
        model = mountlib.put('top/sub/m.gguf', gguf.encode(samples.ARCH, [Tensor(b't', 0, (1,), bytes(4))]))
        for what, option, below, names in (
                (model, 'ro', model, tensors), (model, 'tensors=edit', model, tensors),
                (model, 'rw', model, ('metadata/general.architecture', 'info', '')),
                (top, 'rw', model, ('sub/m.gguf/tensors/t/raw', 'sub/m.gguf/info')),
                (top, 'rw', top + '/sub', ('sub', 'sub/m.gguf/info'))):
            with served(what, option) as at:
                self.follows(below, *(os.path.join(at, name) for name in names))
