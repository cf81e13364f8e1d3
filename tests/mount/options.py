#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""The command line: options and exit status, what mount(8) and the kernel see, signals and
faults."""
import errno
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import time
import unittest
from unittest import mock

import disks
import ggufmodel as gguf
import mountlib
from ggufmodel import Tensor, Value
from mountlib import GGUFS, Foreground, Mount, run

ROOT = os.getuid() == 0
SIZE = 1 << 20  # of each of the model's two tensors
KV = [(b'general.architecture', Value('string', b'llama')),
      (b'general.name', Value('string', b'options'))]
DATA = [bytes([number]) * SIZE for number in (1, 2)]
MODEL = gguf.encode(KV, [Tensor(b'first', 24, (SIZE,), DATA[0]),
                         Tensor(b'last', 24, (SIZE,), DATA[1])])


class Options(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', MODEL)

    def refused(self, status, *command, names):
        """Check that the program fails with this status, and one line that contains each of the
        names."""
        done = run(GGUFS, *command)
        self.assertEqual(done.returncode, status, done.err)
        self.assertEqual(done.err.count('\n'), 1, done.err)
        self.assertTrue(done.err.endswith('\n'))
        self.assertEqual(done.out, '')
        for name in names:
            self.assertIn(name, done.err)

    def folder(self):
        at = mountlib.path('plain')
        os.makedirs(at, exist_ok=True)
        return at

    def edited(self, *options):
        """Return the output of an unmount after an edit, and the model before it."""
        with open(self.model, 'rb') as file:
            before = file.read()
        at = self.folder()
        self.assertEqual(run(GGUFS, *options, self.model, at).returncode, 0)
        for name in ('first', f'after {time.monotonic_ns()}'):
            with open(f'{at}/metadata/general.name', 'w', encoding='ascii') as file:
                file.write(name)
                os.fsync(file.fileno())
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.out), (0, ''), done.err)
        return done.err, before

    def test_backup(self):
        for option, suffix in (('backup', '~'), ('backup', '~'), ('backup=.old,relayout=copy', '.old')):
            said, before = self.edited('-o', option)
            with open(self.model + suffix, 'rb') as file:
                self.assertEqual(file.read(), before)
            self.assertRegex(said, rf'^ggufs: .*: backup: model.gguf{suffix}: the model as it was before the first edit, '
                                   r'2\.0 MiB\n$')
        kept = os.stat(self.model + '~')
        with Mount(self.model, '-o', 'backup') as at:
            os.listdir(f'{at}/metadata')
        self.assertEqual(os.stat(self.model + '~').st_mtime_ns, kept.st_mtime_ns)
        for suffix in ('~', '.old'):
            os.unlink(self.model + suffix)
        self.refused(2, '-o', 'backup=a/b', self.model, self.folder(), names=['backup', "'a/b'"])
        for option in ('backup', 'hashnames=edit'):
            self.refused(1, '-o', option, mountlib.folder, self.folder(), names=['directory', '-o ' + option])

    def test_wrong_options(self):
        at = self.folder()
        for option in (['-o', 'nonsense'], ['-o', 'ro,nonsense=5'], ['--nonsense'],
                       ['-o', 'umask=nonsense'], ['-o', 'uid=nonsense']):
            with self.subTest(option=option):
                self.refused(2, *option, self.model, at, names=['nonsense'])
                self.assertIsNone(mountlib.mount_of(at))

    def test_wrong_words(self):
        for option, value, said in (('commit', '5', 'auto, close or sync, not .5. .seconds are for ext4.'),
                                    ('commit', '5s', 'ext4'), ('commit', 'never', "sync, not 'never'$"),
                                    ('views', '', 'std, raw or all'), ('relayout', 'move', 'inplace'),
                                    ('reserve', '1T', "not '1T'$")):
            with self.subTest(option=option, value=value):
                self.refused(2, '-o', f'{option}={value}', self.model, self.folder(), names=[option])
                done = run(GGUFS, '-o', f'{option}={value}', self.model, self.folder())
                self.assertRegex(done.err.strip(), said)

    def test_wrong_numbers(self):
        """A number must be the whole word, and must fit: 2^32 is not root."""
        for option, value in (('uid', '4294967296'), ('uid', '-1'), ('uid', '4294967295'),
                              ('gid', '1x'), ('gid', ''), ('gid', '+1'), ('umask', '0x1'),
                              ('umask', '1000'), ('umask', '-1'), ('readahead', '5k'), ('idle', '1m'),
                              ('readahead', '99999999999999999999')):
            with self.subTest(option=option, value=value):
                self.refused(2, '-o', f'{option}={value}', self.model, self.folder(),
                             names=[option, f"'{value}'"])

    def test_wrong_type(self):
        """fusermount3 would take what follows a comma for another option."""
        for value in ('a\\,b', 'a\\\\b'):
            self.refused(2, '-o', f'subtype={value}', self.model, self.folder(), names=['option subtype'])

    def test_nearest_option(self):
        for option, nearest in ((['-o', 'comit=sync'], '-o commit='),
                                (['-o', 'ro,viwes=raw'], '-o views='),
                                (['--partial'], '-o partial'), (['-ro'], '-o ro'),
                                (['-o', 'commit'], '-o commit='),
                                (['-o', 'alow_other'], '-o allow_other'),
                                (['--unmout'], '--unmount'), (['--hlep'], '--help'),
                                (['-o', 'ro', '--check'], 'first')):
            with self.subTest(option=option):
                self.refused(2, *option, self.model, self.folder(),
                             names=[f"'{option[-1].split(',')[-1]}'" if nearest != 'first' else '',
                                    nearest, 'ggufs --help'])

    def test_remount(self):
        self.refused(2, '-o', 'remount,ro', self.model, self.folder(),
                     names=['remount', 'ggufs --unmount'])

    def test_wrong_arguments(self):
        for arguments in ([], [self.model], [self.model, self.folder(), 'third'], ['--unmount'],
                          ['--recover']):
            with self.subTest(arguments=arguments):
                self.refused(2, *arguments, names=['ggufs --help'])

    def test_meant(self):
        """A command without its dashes, and a value that is not joined to its option, are named."""
        for arguments, meant in ((['info', self.model], '--info'), (['check'], '--check'),
                                 (['check', self.model, self.model, self.model], '--check'),
                                 (['--undo', '1', self.model], '--undo=1'),
                                 (['--history', 'clear', self.model], '--history=clear'),
                                 (['--undo', self.model, self.model], 'takes one MODEL')):
            with self.subTest(arguments=arguments):
                self.refused(2, *arguments, names=[meant])

    def test_failures(self):
        bad = mountlib.put('bad.gguf', b'GGUF' + bytes(100))
        at, missing = self.folder(), mountlib.path('missing')
        self.refused(1, missing, at, names=[missing])
        self.refused(1, bad, at, names=['bad.gguf'])
        self.refused(1, at, at, names=[at])
        self.refused(1, self.model, missing, names=[f'make it first: mkdir -p {missing}'])
        self.assertIsNone(mountlib.mount_of(at))

    def test_help_and_version(self):
        done = run(GGUFS, '--help')
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.assertIn('MOUNTPOINT', done.out)
        done = run(GGUFS, '--version')
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.assertRegex(done.out, r'\b\d+\.\d+\.\d+\b')

    def test_names_in_mountinfo(self):
        odd = mountlib.put('a,b \\,"c\' \\101\n.gguf', MODEL)
        link = mountlib.path('link.gguf')
        os.symlink(odd, link)
        for model in (odd, link):
            with Mount(model) as at:
                _, kind, source, options = mountlib.mount_of(at)
                self.assertEqual((kind, source), ('fuse.ggufs', os.fsencode(odd)))
                self.assertIn('default_permissions', options.split(','))
        for option, name in (('other', b'other'), ('a\\,"b"\\\\', b'a,"b"\\')):
            with Mount(self.model, '-o', f'fsname={option},ro') as at:
                self.assertEqual(mountlib.mount_of(at)[2], name)
        at = mountlib.path('mount,"point\\\n\'')
        os.mkdir(at)
        with Mount(self.model, at=at):
            self.assertEqual(mountlib.get(f'{at}/model.gguf'), MODEL)
            state = json.loads(run(GGUFS, '--list', '--json').out)
            self.assertEqual([x['model'] for x in state if x['mountpoint'] == at], [self.model])

    def test_relative_paths(self):
        """Relative paths work although the daemon's working directory is not the caller's."""
        os.mkdir(mountlib.path('relative'))
        self.assertEqual(run(GGUFS, 'model.gguf', 'relative', cwd=mountlib.folder).returncode, 0)
        self.assertEqual(mountlib.get(mountlib.path('relative/model.gguf')), MODEL)
        mountlib.unmount(mountlib.path('relative'))

    def test_read_only(self):
        with Mount(self.model, '-o', 'ro') as at:
            self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
            with self.assertRaises(OSError) as caught:
                os.open(os.path.join(at, 'metadata/general.name'), os.O_WRONLY)
            self.assertEqual(caught.exception.errno, errno.EROFS)

    def test_the_last_of_ro_and_rw(self):
        """The last option counts, as for mount(8)."""
        for options, read_only in (('rw,ro', True), ('ro,rw', False)):
            with Mount(self.model, '-o', options) as at:
                self.assertEqual(bool(os.statvfs(at).f_flag & os.ST_RDONLY), read_only, options)

    def modes(self, at):
        for folder, folders, files in os.walk(at):
            for name in folders + files:
                yield os.stat(os.path.join(folder, name))

    def test_modes(self):
        os.chmod(self.model, 0o640)
        with Mount(self.model) as at:
            self.assertEqual({status.st_mode & 0o027 for status in self.modes(at)
                              if stat.S_ISREG(status.st_mode)}, {0})
            status = os.stat(os.path.join(at, 'tensors/last/raw'))
            self.assertEqual(stat.S_IMODE(status.st_mode), 0o440)
            self.assertEqual((status.st_uid, status.st_gid), (os.getuid(), os.getgid()))
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(at, 'tensors')).st_mode), 0o550)

    def test_umask(self):
        for mask, absent, present in (('077', 0o077, 0o400), ('0', 0, 0o444)):
            with Mount(self.model, '-o', 'umask=' + mask) as at:
                for status in self.modes(at):
                    self.assertEqual(status.st_mode & (absent | present), present, mask)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_owner(self):
        with Mount(self.model, '-o', 'uid=12345,gid=23456') as at:
            self.assertEqual({(status.st_uid, status.st_gid) for status in self.modes(at)},
                             {(12345, 23456)})

    @unittest.skipUnless(ROOT, 'for root only')
    def test_allow_other(self):
        os.chmod(self.model, 0o644)
        os.chmod(mountlib.folder, 0o755)
        for option, status in (('allow_other', 0), ('umask=0', 1)):
            at = mountlib.path(option)
            os.mkdir(at)
            with Mount(self.model, '-o', option, at=at):
                done = run(*mountlib.as_other('cat', os.path.join(at, 'metadata/general.name')))
                self.assertEqual(done.returncode, status, done.err)

    def test_views(self):
        with Mount(self.model, '-o', 'views=all') as at:
            self.assertTrue({'f16', 'f16.npy', 'bf16'} <=
                            set(os.listdir(os.path.join(at, 'tensors/last'))))

        with Mount(self.model, '-o', 'ro,views=raw') as at:
            self.assertEqual(os.listdir(os.path.join(at, 'tensors/last')), ['type', 'shape', 'raw'])
            self.assertNotIn('model.gguf', os.listdir(at))
            self.assertEqual(mountlib.get(os.path.join(at, 'model.gguf')), MODEL)
        for value in ('RAW', '', 'some'):
            self.refused(2, '-o', 'views=' + value, self.model, self.folder(),
                         names=['views', 'std, raw or all'])

    def test_dropped_options(self):
        with Mount(self.model, '-o', ',ro,,nofail,_netdev,_rnetdev,noauto,user,x-systemd.automount,'
                   'noatime,nodiratime,atime,lazytime,discard,pri=5,X-mount.mkdir,comment=here,errors=remount-ro,'):
            pass

    def test_nowhere_to_print(self):
        for option in ('--help', '--version'):
            with open('/dev/full', 'w', encoding='ascii') as full:
                done = subprocess.run([GGUFS, option], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, done.stderr), (1, b'ggufs: cannot write to standard output\n'))

    @unittest.skipUnless(ROOT and shutil.which('mount.fuse3'), 'for root with mount.fuse3 only')
    @unittest.skipIf(mountlib.sanitized('asan') or mountlib.sanitized('tsan'), 'it needs rights')
    def test_mounted_by_another_program(self):
        """Another program passes an open /dev/fuse. Commands treat the mount like any other."""
        at, programs = mountlib.path('handed'), mountlib.path('programs')
        os.mkdir(at)
        os.mkdir(programs)
        os.symlink(os.path.abspath(GGUFS), os.path.join(programs, 'ggufs'))
        with mock.patch.dict(os.environ, {'PATH': programs + ':' + os.environ['PATH']}):
            done = run('mount.fuse3', 'ggufs#' + self.model, at, '-o', 'drop_privileges')
        self.assertEqual(done.returncode, 0, done.err)
        self.addCleanup(lambda: mountlib.mount_of(at) and mountlib.unmount(at, lazy=True))
        state = json.loads(run(GGUFS, '--list', '--json').out)
        self.assertEqual([x['state'] for x in state if x['mountpoint'] == at], ['alive'])
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.err), (0, ''))

    @unittest.skipUnless(shutil.which('mount.fuse') and mountlib.has_namespaces(), 'needs mount.fuse, as root')
    def test_mount(self):
        """mount(8) and fstab. The helper that they run searches only the standard directories, so
        one of these is made to show the program, in a private mount namespace."""
        at = self.folder()
        os.makedirs(mountlib.path('bin'), exist_ok=True)
        os.symlink(os.path.abspath(GGUFS), mountlib.path('bin/ggufs'))
        odd = mountlib.put('with space,comma.gguf', MODEL)
        table = mountlib.put('fstab', f'{odd} {at} fuse.ggufs ro,nofail,user,_netdev,x-a.b 0 0\n'
                             .replace('with space', 'with\\040space').encode())
        # Copies of other tests' mounts would keep their daemons alive.
        script = ("awk '/ - fuse[.]ggufs /{ print $5 }' /proc/self/mountinfo | "
                  'while read -r other; do umount --lazy "$(printf %b "$other")" || true; done; '
                  'set -e; bin=$1 at=$2 model=$3; shift 3; mount --bind "$bin" /usr/local/sbin; '
                  'mount "$@"; cmp "$at/model.gguf" "$model"; umount "$at"')
        for command in (['-t', 'fuse.ggufs', self.model, at, '-o', 'ro,nofail,_netdev'],
                        ['-T', table, at]):
            with self.subTest(command=command):
                done = run('unshare', '--mount', 'sh', '-c', script, 'sh', mountlib.path('bin'), at,
                           self.model, *command)
                self.assertEqual((done.returncode, done.err), (0, ''))

    def test_unmount(self):
        """--unmount returns when the daemon has ended, and not earlier."""
        mount = Mount(self.model)
        with mount as at:
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.err), (0, ''))
            self.assertIsNone(mountlib.mount_of(at))
            self.assertTrue(select.select([mount.life], [], [], 0)[0])
        self.refused(1, '--unmount', at, names=[at])

    def test_unmount_by_a_link(self):
        at, link = mountlib.path('linked'), mountlib.path('link')
        os.mkdir(at)
        os.symlink('linked', link)
        for command in ([self.model, link], ['--unmount', link]):
            done = run(GGUFS, *command)
            self.assertEqual((done.returncode, done.err), (0, ''))
        self.assertIsNone(mountlib.mount_of(at))

    def test_closed_streams(self):
        """The daemon closes the standard streams without mistaking the model for one."""
        at = self.folder()
        for number, closed in enumerate(('<&-', '>&-', '2>&-', '<&- >&- 2>&-')):
            with self.subTest(closed=closed):
                done = run('sh', '-c', f'exec "$@" {closed}', 'sh', GGUFS, self.model, at)
                self.assertEqual(done.returncode, 0)
                try:
                    with open(os.path.join(at, 'metadata/general.name'), 'w') as file:
                        file.write(f'closed {number}')
                    shown = mountlib.get(os.path.join(at, 'model.gguf'))
                finally:
                    done = run(GGUFS, '--unmount', at)
                self.assertEqual((done.returncode, done.err), (0, ''))
                self.assertEqual(shown, mountlib.get(self.model))
                self.assertIn(b'closed %d' % number, shown)
        done = run('sh', '-c', 'exec "$@" >&-', 'sh', GGUFS, '--check', self.model)
        self.assertEqual((done.returncode, done.err), (2, 'ggufs: cannot write to standard output\n'))

    def test_unmount_at_once(self):
        """The daemon has no file of its own open that would keep a fresh mount busy."""
        at = mountlib.path('at-once')
        os.mkdir(at)
        for _ in range(50):
            done = run('sh', '-c', '"$1" "$2" "$3" && fusermount3 -u "$3"', 'sh', GGUFS, self.model,
                       at)
            self.assertEqual((done.returncode, done.err), (0, ''))

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number), Foreground(self.model) as (at, process):
                os.stat(at)
                process.send_signal(number)
                self.assertEqual(process.wait(mountlib.LIMIT), 0)
                self.assertIsNone(mountlib.mount_of(at))

    def test_log(self):
        """In the foreground, irregularities of a file are reported on standard error."""
        tensors = [Tensor(b'one', 24, (5,), b'abcde'), Tensor(b'two', 24, (3,), b'xyz')]
        odd = mountlib.put('odd.gguf', gguf.encode(KV, tensors, order=[1, 0]))
        mount = Foreground(odd)
        with mount as (at, _):
            os.stat(at)
            log = mount.log()
        self.assertRegex(log, '(?i)order')
        mount = Foreground(self.model, '-o', 'ro')
        with mount as (at, _):
            os.listdir(at)
            self.assertNotRegex(mount.log(), '(?i)warning|error|invalid|ignor')

    def lost(self, *name):
        """Check that reading the end of this file fails with EIO."""
        with open(os.path.join(*name), 'rb') as file:
            file.seek(-1, os.SEEK_END)
            with self.assertRaises(OSError) as caught:
                file.read()
            self.assertEqual(caught.exception.errno, errno.EIO)

    def check_short(self, at):
        """If the file is truncated inside the last tensor, the remaining bytes can be read, and the
        rest gives EIO."""
        self.lost(at, 'tensors/last/raw')
        self.lost(at, 'tensors/last/f32')
        self.lost(at, 'model.gguf')
        self.assertEqual(mountlib.get(os.path.join(at, 'tensors/first/raw')), DATA[0])
        self.assertEqual(mountlib.get(os.path.join(at, 'metadata/general.name')), b'options\n')
        with open(os.path.join(at, 'tensors/last/raw'), 'rb') as file:
            self.assertEqual(file.read(1), DATA[1][:1])

    @unittest.skipIf(mountlib.sanitized('tsan'), 'it does not always hand on SIGBUS')
    def test_cut_while_mounted(self):
        with Mount(self.model) as at:
            os.truncate(self.model, len(MODEL) - SIZE // 2)
            self.check_short(at)
            os.truncate(self.model, 0)
            self.lost(at, 'tensors/first/f32')
            self.assertEqual(sorted(os.listdir(os.path.join(at, 'tensors'))), ['first', 'last'])

    def test_cut_behind_the_cache(self):
        """Once a read has failed, lost bytes in the kernel's cache are no longer shown."""
        with Mount(self.model) as at:
            last = os.path.join(at, 'tensors/last/raw')
            self.assertEqual(mountlib.get(last), DATA[1])
            os.truncate(self.model, len(MODEL) - SIZE // 2)
            self.lost(at, 'model.gguf')
            self.lost(last)

    def test_partial(self):
        at, missing = self.folder(), 12345
        os.truncate(self.model, len(MODEL) - missing)
        self.refused(1, self.model, at, names=[str(missing), 'partial'])
        with Mount(self.model, '-o', 'partial') as at:
            self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
            self.check_short(at)

    def test_terminal_safety(self):
        """Names from a file are escaped in the log."""
        tensors = [Tensor(b'\x1b[31mred\n', 0, (1 << 40,))]
        bad = mountlib.put('bad.gguf', gguf.encode(KV, tensors))
        done = run(GGUFS, bad, self.folder())
        self.assertEqual(done.returncode, 1)
        self.assertIsNone(re.search(r'[\x00-\x09\x0b-\x1f\x7f]', done.err), repr(done.err))
        self.assertEqual(done.err.count('\n'), 1)


if __name__ == '__main__':
    if ROOT:  # other tests keep mounts alive in copied namespaces
        disks.own_namespace()
    mountlib.main(others=True)
