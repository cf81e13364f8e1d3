# SPDX-License-Identifier: MIT
"""The command line: options and exit status, what mount(8) and the kernel see, signals and
faults; files commonly given instead of a model, which every command recognises and names."""
import errno
import json
import os
import shutil
import subprocess
import unittest
from unittest import mock

import editlib
import ggufmodel as gguf
import mountlib
from ggufmodel import Tensor, Value
from llama import image
from mountlib import GGUFS, Mount, fails, run, works

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

    def test_backup(self):
        """The model is kept as it was before the first edit of the mount, and --unmount names the copy."""
        for option, suffix in (('backup', '~'), ('backup=.old,relayout=copy', '.old')):
            before, at = mountlib.get(self.model), mountlib.folder_at('plain')
            self.assertEqual(run(GGUFS, '-o', option, self.model, at).returncode, 0)
            for name in ('first', 'second' + suffix):
                editlib.write(at, 'general.name', name, fsync=True)
            done = run(GGUFS, '--unmount', at)
            self.assertEqual((done.returncode, done.out), (0, ''), done.err)
            self.assertIn(f'model.gguf{suffix}', done.err)
            self.assertEqual(mountlib.get(self.model + suffix), before)
            os.unlink(self.model + suffix)

    # (exit status, arguments, what the line names); M is the model, AT the mount point
    WRONG = [
        *((2, ['-o', option, 'M', 'AT'], [option.split('=')[0].split(',')[-1]]) for option in (
            'nonsense', 'ro,nonsense=5', 'umask=nonsense', 'commit=5', 'commit=never', 'views=', 'views=some', 'relayout=move',
            'reserve=1T', 'tensors=yes', 'uid=4294967296', 'uid=-1', 'uid=4294967295', 'gid=1x', 'gid=', 'umask=0x1',
            'umask=1000', 'readahead=5k', 'idle=1m', 'subtype=a\\,b', 'ro,remount', 'backup=a/b', 'history=1001')),
        *((2, [*option, 'M', 'AT'], [nearest]) for option, nearest in (
            (['-o', 'comit=sync'], '-o commit='), (['-o', 'ro,viwes=raw'], '-o views='), (['--partial'], '-o partial'),
            (['-ro'], '-o ro'), (['-o', 'commit'], '-o commit='), (['--unmout'], '--unmount'), (['--hlep'], '--help'),
            (['--nonsense'], '--nonsense'))),
        *((2, arguments, ['ggufs --help']) for arguments in ([], ['M'], ['M', 'AT', 'third'], ['--unmount'], ['--recover'],
                                                            ['--list', '--jso'], ['--list', 'M'])),
        *((2, arguments, [meant]) for arguments, meant in (
            (['info', 'M'], '--info'), (['check'], '--check'), (['--undo', '1', 'M'], '--undo=1'),
            (['--history', 'clear', 'M'], '--history=clear'), (['', 'AT'], 'MODEL'), (['M', ''], 'MOUNTPOINT'))),
        (1, ['/none.gguf', 'AT'], ['/none.gguf']), (1, ['AT', 'AT'], []), (1, ['M', '/none/at'], ['mkdir -p /none/at']),
        (1, ['-o', 'backup', '/usr', 'AT'], ['-o backup']), (1, ['-o', 'hashnames=edit', '/usr', 'AT'], ['-o hashnames=edit'])]

    def test_wrong(self):
        """What is given by mistake is named, in one line, and nothing is mounted."""
        at = mountlib.folder_at('plain')
        for status, arguments, names in self.WRONG:
            with self.subTest(arguments):
                mountlib.refuses(status, *({'M': self.model, 'AT': at}.get(word, word) for word in arguments), names=names)
                self.assertIsNone(mountlib.mount_of(at))

    def test_help_and_version(self):
        for option, shown in (('--help', 'MOUNTPOINT'), ('--version', '.')):
            self.assertIn(shown, works(GGUFS, option))
            with open('/dev/full', 'w', encoding='ascii') as full:
                done = subprocess.run([GGUFS, option], stdout=full, stderr=subprocess.PIPE, check=False)
            self.assertEqual((done.returncode, done.stderr.count(b'\n')), (1, 1))

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
        at = mountlib.folder_at('mount,"point\\\n\'')
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

    def test_the_last_of_ro_and_rw(self):
        """The last option counts, as for mount(8)."""
        for options, read_only in (('rw,ro', True), ('ro,rw', False)):
            with Mount(self.model, '-o', options) as at:
                self.assertEqual(bool(os.statvfs(at).f_flag & os.ST_RDONLY), read_only, options)

    def test_dropped_options(self):
        with Mount(self.model, '-o', ',ro,,nofail,_netdev,_rnetdev,noauto,user,x-systemd.automount,'
                   'noatime,nodiratime,atime,lazytime,discard,pri=5,X-mount.mkdir,comment=here,errors=remount-ro,'):
            pass

    @unittest.skipUnless(ROOT and shutil.which('mount.fuse3'), 'for root with mount.fuse3 only')
    @unittest.skipIf(mountlib.sanitized('asan', 'tsan'), 'it needs rights')
    def test_mounted_by_another_program(self):
        """Another program passes an open /dev/fuse. Commands treat the mount like any other."""
        at, programs = mountlib.folder_at('handed'), mountlib.folder_at('programs')
        os.symlink(os.path.abspath(GGUFS), os.path.join(programs, 'ggufs'))
        with mock.patch.dict(os.environ, {'PATH': programs + ':' + os.environ['PATH']}):
            done = run('mount.fuse3', 'ggufs#' + self.model, at, '-o', 'drop_privileges')
        self.assertEqual(done.returncode, 0, done.err)
        self.addCleanup(lambda: mountlib.mount_of(at) and mountlib.unmount(at, lazy=True))
        state = json.loads(run(GGUFS, '--list', '--json').out)
        self.assertEqual([x['state'] for x in state if x['mountpoint'] == at], ['alive'])
        works(GGUFS, '--unmount', at)

    @unittest.skipUnless(shutil.which('mount.fuse') and mountlib.has_namespaces(), 'needs mount.fuse, as root')
    def test_mount(self):
        """mount(8) and fstab. The helper that they run searches only the standard directories, so
        one of these is made to show the program, in a private mount namespace."""
        at = mountlib.folder_at('plain')
        os.makedirs(mountlib.path('bin'), exist_ok=True)
        os.symlink(os.path.abspath(GGUFS), mountlib.path('bin/ggufs'))
        odd = mountlib.put('with space,comma.gguf', MODEL)
        table = mountlib.put('fstab', f'{odd} {at} fuse.ggufs ro,nofail,user,_netdev,x-a.b 0 0\n'
                             .replace('with space', 'with\\040space').encode())
        script = ('set -e; bin=$1 at=$2 model=$3; shift 3; mount --bind "$bin" /usr/local/sbin; '
                  'mount "$@"; cmp "$at/model.gguf" "$model"; umount "$at"')
        for command in (['-t', 'fuse.ggufs', self.model, at, '-o', 'ro,nofail,_netdev'],
                        ['-T', table, at]):
            with self.subTest(command=command):
                works('unshare', '--mount', 'sh', '-c', script, 'sh', mountlib.path('bin'), at,
                           self.model, *command)

    def test_unmount_by_a_link(self):
        at, link = mountlib.folder_at('linked'), mountlib.path('link')
        os.symlink('linked', link)
        for command in ([self.model, link], ['--unmount', link]):
            works(GGUFS, *command)
        self.assertIsNone(mountlib.mount_of(at))

    def test_closed_streams(self):
        """The daemon closes the standard streams without mistaking the model for one."""
        at = mountlib.folder_at('plain')
        for number, closed in enumerate(('<&-', '>&-', '2>&-', '<&- >&- 2>&-')):
            with self.subTest(closed=closed):
                done = run('sh', '-c', f'exec "$@" {closed}', 'sh', GGUFS, self.model, at)
                self.assertEqual(done.returncode, 0)
                try:
                    mountlib.put(os.path.join(at, 'metadata/general.name'), f'closed {number}')
                    shown = mountlib.get(os.path.join(at, 'model.gguf'))
                finally:
                    works(GGUFS, '--unmount', at)
                self.assertEqual(shown, mountlib.get(self.model))
                self.assertIn(b'closed %d' % number, shown)
        done = run('sh', '-c', 'exec "$@" >&-', 'sh', GGUFS, '--check', self.model)
        self.assertEqual((done.returncode, done.err), (2, 'ggufs: cannot write to standard output\n'))

    def test_unmount_at_once(self):
        """The daemon has no file of its own open that would keep a fresh mount busy."""
        at = mountlib.folder_at('at-once')
        for _ in range(50):
            works('sh', '-c', '"$1" "$2" "$3" && fusermount3 -u "$3"', 'sh', GGUFS, self.model,
                       at)

    def lost(self, *name):
        """Check that reading the end of this file fails with EIO."""
        with open(os.path.join(*name), 'rb') as file:
            file.seek(-1, os.SEEK_END)
            fails(errno.EIO, file.read)

    def test_cut_behind_the_cache(self):
        """Once a read has failed, lost bytes in the kernel's cache are no longer shown."""
        with Mount(self.model) as at:
            last = os.path.join(at, 'tensors/last/raw')
            self.assertEqual(mountlib.get(last), DATA[1])
            os.truncate(self.model, len(MODEL) - SIZE // 2)
            self.lost(at, 'model.gguf')
            self.lost(last)


KINDS = {
    'empty': (b'', 'this is an empty file', 'download it again'),
    'lfs': (b'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n',
            'a git-lfs pointer', 'git lfs pull'),
    'html': (b'<!DOCTYPE html>\n<html>', 'a web page', 'direct link'),
    'json': (b'{"error": "not found"}', 'a JSON file', 'download it again'),
    'safetensors': (b'\x02\0\0\0\0\0\0\0{}', 'a safetensors file', 'convert_hf_to_gguf.py'),
    'zip': (b'PK\3\4' + bytes(40), 'a zip archive', 'convert_hf_to_gguf.py'),
    'pickle': (b'\x80\2}q\0.', 'a Python pickle', 'convert_hf_to_gguf.py'),
    'gzip': (b'\x1f\x8b\x08\0', 'a gzip archive', 'gzip -d'),
    'ggml': (b'lmgg' + bytes(28), 'format older than GGUF', 'convert_llama_ggml_to_gguf.py'),
    'ggjt swapped': (b'ggjt\0\0\0\3', 'format older than GGUF', 'convert_llama_ggml_to_gguf.py'),
    'cut': (image()[:100], 'a file of 100 bytes', 'an incomplete download?'),
}


class Wrong(unittest.TestCase):
    def each(self, model, but=()):
        """Yield what each command says of a model, except for the options in `but`."""
        at = mountlib.folder_at('mnt')
        for command, status in ((['-f', model, at], 1), (['--check', model], 2), (['--info', model], 1)):
            if command[0] in but:
                continue
            done = run(GGUFS, *command)
            self.assertEqual(done.returncode, status, done.out + done.err)
            said = done.out + done.err
            self.assertEqual(said.count('\n'), 1, said)
            yield said

    def test_kinds(self):
        for name, (data, *words) in KINDS.items():
            with self.subTest(name):
                but = ['--info'] * (name == 'cut')  # it shows what is there
                for said in self.each(mountlib.put(name + '.gguf', data), but):
                    for word in words:
                        self.assertIn(word, said)

    def test_urls(self):
        for url, todo in (('https://host/m.gguf', 'download the model first'),
                          ('http://host/m.gguf', 'download the model first'),
                          ('hf://org/name/m.gguf', 'hf download'),
                          ('file:///m.gguf', 'give the path')):
            for said in self.each(url):
                self.assertIn('URL', said)
                self.assertIn(todo, said)

    def test_never_hangs(self):
        """A mount is given a FIFO that no process writes (--info and --check read from it), and each
        command a device that never ends."""
        pipe = mountlib.path('pipe.gguf')
        os.mkfifo(pipe)
        for model, but in (pipe, ('--info', '--check')), ('/dev/zero', ()):
            for said in self.each(model, but):
                self.assertIn('regular file', said)
