# SPDX-License-Identifier: MIT
"""The places of files that `meson install` installs, and whether the systems that read these files
accept them: desktop, MIME types, systemd, man, fstab."""
import glob
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import unittest

import mountlib
import samples
from shelflib import shards
from mountlib import GGUFS, run, works

SOURCE = pathlib.Path(mountlib.SOURCE)
MADE = pathlib.Path(os.environ['GGUFS_PACKAGING'])
FILES = {
    'bin/ggufs', 'libexec/ggufs-open', 'lib/systemd/user/ggufs@.service', 'share/man/man1/ggufs.1',
    'share/bash-completion/completions/ggufs', 'share/zsh/site-functions/_ggufs',
    'share/fish/vendor_completions.d/ggufs.fish', 'share/mime/packages/ggufs.xml',
    'share/applications/ggufs.desktop', 'share/doc/ggufs/examples/fstab', 'share/doc/ggufs/README.md',
    'share/doc/ggufs/docs'}


class Install(unittest.TestCase):
    @unittest.skipUnless(shutil.which('meson'), 'no meson')
    def test_files(self):
        """All files are installed, and each feature can be switched off."""
        build = mountlib.path('build')
        self.addCleanup(shutil.rmtree, build)

        def files(*options):
            done = run('meson', 'setup', build, SOURCE, '-Dtests=false', '--prefix=/usr',
                       '-Dlibexecdir=libexec', *options)
            self.assertEqual(done.returncode, 0, done.out)
            found = json.loads(works('meson', 'introspect', '--installed', build)).values()
            names = {os.path.relpath(name, '/usr') for name in found}
            return {name for name in names if not re.match(r'share/doc/ggufs/\w', name) or name in FILES}
        self.assertEqual(files(), FILES)
        self.assertEqual(files('--reconfigure', '-Dman=false', '-Dcompletions=fish', '-Ddesktop=false',
                               '-Dsystemd=false', '-Ddocuments=false'),
                         {'bin/ggufs', 'share/fish/vendor_completions.d/ggufs.fish'})

    @unittest.skipUnless(shutil.which('desktop-file-validate'), 'no desktop-file-validate')
    def test_desktop_entry(self):
        works('desktop-file-validate', MADE / 'ggufs.desktop')

    @unittest.skipUnless(shutil.which('systemd-analyze'), 'no systemd-analyze')
    def test_systemd_unit(self):
        """systemd-analyze checks whether the program exists: the tested one."""
        folder = pathlib.Path(mountlib.path('units'))
        folder.mkdir()
        text = (MADE / 'ggufs@.service').read_text()
        (folder / 'ggufs@.service').write_text(re.sub(r'(?<=[= ])/\S*/bin/ggufs\b', GGUFS, text))
        done = subprocess.run(
            ['systemd-analyze', '--user', '--man=no', 'verify', folder / 'ggufs@models-a.service'],
            env={**os.environ, 'XDG_RUNTIME_DIR': mountlib.folder}, capture_output=True, text=True,
            check=False)
        said = [line for line in done.stderr.splitlines() if 'ggufs' in line]
        self.assertEqual((done.returncode, said), (0, []), done.stderr)

    def test_unit_paths(self):
        """systemd expands "$" in a command, so a path appears only as a variable."""
        text = (MADE / 'ggufs@.service').read_text()
        self.assertIn('\nEnvironment="MODEL=%f"\n', text)
        for line in re.findall(r'^Exec.*$', text, re.MULTILINE):
            self.assertNotIn('%f', line)

    def unit(self, kind, at, **env):
        """Run the unit's commands of a kind like systemd, and return their exit statuses."""
        text = (MADE / 'ggufs@.service').read_text()
        done = []
        for line in re.findall(rf'^{kind}=(-?)(.*)$', text, re.MULTILINE):
            command = [re.sub(r'^/\S*/bin/ggufs$', GGUFS, word).replace('$$', '$').replace('%t/ggufs/%i', at)
                       for word in shlex.split(line[1])]
            code = subprocess.run(command, env={**mountlib.environment(), **env}, capture_output=True,
                                  timeout=mountlib.LIMIT, check=False).returncode
            done.append(0 if line[0] else code)
        return done

    def test_unit_ends(self):
        """A mount that has ended on its own is not a failure; a mount whose daemon was killed is
        removed."""
        model = mountlib.put('unit.gguf', samples.editable())
        at = mountlib.folder_at('a\\x2dunit')
        self.assertEqual(self.unit('ExecStop', at), [0])
        self.assertEqual(self.unit('ExecStop', at, MAINPID='1'), [1])
        self.assertEqual(self.unit('ExecStopPost', at), [0])
        self.assertFalse(os.path.exists(at))
        for killed in (False, True):
            os.mkdir(at)
            works(GGUFS, model, at)
            daemon = mountlib.daemon(at)
            if killed:
                os.kill(daemon, signal.SIGKILL)
                self.assertEqual(self.unit('ExecStop', at), [0])
            else:
                self.assertEqual(self.unit('ExecStop', at, MAINPID=str(daemon)), [0])
            self.assertEqual(self.unit('ExecStopPost', at), [0])
            self.assertFalse(os.path.exists(at))

    @unittest.skipUnless(shutil.which('update-mime-database') and shutil.which('gio'),
                         'no update-mime-database, or no gio')
    def test_mime_type(self):
        """The type is recognised by name, in any case, and by content."""
        mime = pathlib.Path(mountlib.path('data/mime/packages'))
        mime.mkdir(parents=True)
        shutil.copy(SOURCE / 'scripts/packaging/ggufs.xml', mime)
        env = {**os.environ, 'XDG_DATA_HOME': mountlib.path('data')}
        subprocess.run(['update-mime-database', mime.parent], check=True, env=env)
        model = samples.editable()
        for name, data in (('a.gguf', model), ('b.GGUF', model), ('blob', model), ('c.gguf', b'text')):
            with self.subTest(name=name):
                done = subprocess.run(
                    ['gio', 'info', '-a', 'standard::content-type,standard::fast-content-type',
                     mountlib.put(name, data)], check=True, capture_output=True, text=True, env=env)
                if data == model:
                    self.assertIn('standard::content-type: model/x-gguf', done.stdout)
                if '.' in name:
                    self.assertIn('standard::fast-content-type: model/x-gguf', done.stdout)

    @unittest.skipUnless(shutil.which('mandoc'), 'no mandoc')
    def test_manual(self):
        done = run('mandoc', '-T', 'lint', '-W', 'warning', SOURCE / 'docs/ggufs.1')
        self.assertEqual((done.returncode, done.out), (0, ''))

    def test_fstab_examples(self):
        """Each line has six fields, and options that the program accepts."""
        text = (SOURCE / 'scripts/packaging/fstab.example').read_text()
        lines = [line.split() for line in text.splitlines() if line and line[0] != '#']
        self.assertGreater(len(lines), 3)
        for _, _, kind, options, *numbers in lines:
            self.assertEqual((kind, numbers), ('fuse.ggufs', ['0', '0']))
            done = run(GGUFS, '-o', options, '/nowhere.gguf', '/nowhere')
            self.assertEqual(done.returncode, 1, done.err)


class Open(unittest.TestCase):
    """The script behind the desktop entry, with an xdg-open that prints the directory."""

    def setUp(self):
        self.home = pathlib.Path(mountlib.path('session'))
        (self.home / 'bin').mkdir(parents=True)
        self.script = self.home / 'bin/ggufs-open'
        for name, text in (('ggufs-open', re.sub(r'/\S*/bin/ggufs\b', GGUFS,
                                                 (MADE / 'ggufs-open').read_text())),
                           ('xdg-open', '#!/bin/sh\nprintf "%s\\n" "$1"\n')):
            (self.home / 'bin' / name).write_text(text)
            (self.home / 'bin' / name).chmod(0o755)
        self.model = mountlib.put('it is.gguf', samples.editable())
        self.addCleanup(self.clean)

    def clean(self):
        for row in list(mountlib.mounts()):
            if row[0].startswith(os.fsencode(self.home)):
                works(GGUFS, '--unmount', os.fsdecode(row[0]))
        shutil.rmtree(self.home)

    def open(self, model, **more):
        env = {**mountlib.environment(), 'XDG_RUNTIME_DIR': str(self.home),
               'PATH': f'{self.home}/bin:{os.environ["PATH"]}', **more}
        for name in ('DISPLAY', 'WAYLAND_DISPLAY'):
            env.pop(name, None)
        return subprocess.run([self.script, model], env=env, capture_output=True, text=True,
                              timeout=mountlib.LIMIT, check=False)

    def shown(self, model):
        done = self.open(model)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        return done.stdout.rstrip('\n')

    def test_open(self):
        at = self.shown(self.model)
        self.assertEqual(at, str(self.home / 'ggufs/it is'))
        self.assertTrue(os.path.exists(at + '/info'))
        self.assertEqual((self.home / 'ggufs').stat().st_mode & 0o7777, 0o700)
        flags = os.statvfs(at).f_flag
        self.assertEqual(flags & (os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV), os.ST_RDONLY | os.ST_NOSUID | os.ST_NODEV)
        daemon = str(mountlib.daemon(at))
        self.assertIn(b'idle=600', mountlib.get(f'/proc/{daemon}/cmdline'))
        # Opened again, the model has the same mount. Another model of that name gets its own mount.
        self.assertEqual(self.shown(self.model), at)
        self.assertEqual(str(mountlib.daemon(at)), daemon)
        other = mountlib.put('other/it is.gguf', samples.editable())
        self.assertEqual(self.shown(other), at + '~2')
        # A mount that has ended leaves nothing behind once the next model is opened.
        works(GGUFS, '--unmount', at)
        self.assertEqual(self.shown(other), at + '~2')
        self.assertEqual(sorted(os.listdir(self.home / 'ggufs')), ['..lock', '.it is~2', 'it is~2'])

    def test_killed(self):
        """A mount whose daemon was killed is removed, and the model mounted again, under its
        name."""
        at = self.shown(self.model)
        other = self.shown(mountlib.put('more.gguf', samples.editable()))
        for mount in (at, other):
            os.kill(mountlib.daemon(mount), signal.SIGKILL)
        self.assertEqual(self.shown(self.model), at)
        self.assertEqual(mountlib.get(at + '/metadata/general.architecture'), b'llama\n')
        self.assertEqual(sorted(os.listdir(self.home / 'ggufs')), ['..lock', '.it is', 'it is'])

    def test_cache(self):
        """In a cache the files have hashes as names, and the links have their own: a split model is
        shown as a whole."""
        blobs, cache = mountlib.path('blobs'), mountlib.path('cache')
        os.mkdir(cache)
        for i, data in enumerate([samples.editable(), *shards()]):
            mountlib.put(f'{blobs}/{i:064}', data)
            name = f'w-{i:05}-of-00002.gguf' if i else 'single.gguf'
            os.symlink(f'../blobs/{i:064}', f'{cache}/{name}')
        self.assertEqual(self.shown(cache + '/single.gguf'), str(self.home / 'ggufs/single'))
        at = self.shown(cache + '/w-00002-of-00002.gguf')
        self.assertEqual(len(os.listdir(at + '/tensors')), 2)
        done = self.open(f'{blobs}/{1:064}')
        self.assertEqual((done.returncode, done.stdout), (1, ''))
        self.assertIn('split.count: is 2: this is file 1 of a split model', done.stderr)

    def test_changed(self):
        """A replaced model is not shown with its old content."""
        at = self.shown(self.model)
        new = mountlib.put('new', samples.editable(alignment=64))
        os.replace(new, self.model)
        self.assertEqual(self.shown(self.model), at + '~2')

    def test_refused(self):
        for model, said in ((mountlib.put('bad.gguf', b'{"error": 404}'), 'bad.gguf'),
                            (mountlib.path('none.gguf'), 'no such file')):
            done = self.open(model)
            self.assertEqual((done.returncode, done.stdout), (1, ''))
            self.assertRegex(done.stderr, f'^ggufs: .*{said}.*\n$')
        self.assertEqual(glob.glob(str(self.home / 'ggufs/*')), [])
        self.assertEqual(self.open(self.model, XDG_RUNTIME_DIR='').returncode, 1)
