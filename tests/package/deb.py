# SPDX-License-Identifier: MIT
"""scripts/package: the content of the Debian package; the same source gives the same bytes; lintian
accepts it. Built without optimisation, which takes a third of the time."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

import mountlib
from mountlib import run

SOURCE = pathlib.Path(mountlib.SOURCE)
FILES = {
    '/usr/bin/ggufs', '/usr/libexec/ggufs-open', '/usr/lib/systemd/user/ggufs@.service',
    '/usr/share/man/man1/ggufs.1.gz', '/usr/share/bash-completion/completions/ggufs',
    '/usr/share/zsh/vendor-completions/_ggufs', '/usr/share/fish/vendor_completions.d/ggufs.fish',
    '/usr/share/mime/packages/ggufs.xml', '/usr/share/applications/ggufs.desktop',
    '/usr/share/doc/ggufs/copyright', '/usr/share/doc/ggufs/changelog.gz',
    '/usr/share/doc/ggufs/examples/fstab', '/usr/share/lintian/overrides/ggufs'}


def build(name):
    """Return the package's path, built in its own directory."""
    folder = mountlib.folder_at(name)
    done = run(SOURCE / 'scripts/package', cwd=folder)
    if done.returncode != 0:
        raise AssertionError(done.err)
    made = os.listdir(folder)
    if len(made) != 1 or not re.fullmatch(r'ggufs_[\d.]+_\w+\.deb', made[0]):
        raise AssertionError(f'left {made}')
    return os.path.join(folder, made[0])


class Deb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which('dpkg-buildpackage'):
            raise unittest.SkipTest('no dpkg-buildpackage')
        os.environ.update(DEB_BUILD_OPTIONS='noopt')
        cls.path = build('one')

    def test_content(self):
        rows = run('dpkg-deb', '--contents', self.path).out.splitlines()
        files = {row.split()[5][1:]: row.split() for row in rows if row[0] == '-'}
        names = {name for name in files if not re.match(r'/usr/share/doc/ggufs/\w', name)}
        self.assertEqual(names, FILES - {name for name in FILES if '/doc/' in name})
        self.assertLess(FILES, set(files))
        for name, (mode, owner, *_) in files.items():
            self.assertEqual(owner, 'root/root')
            self.assertEqual(mode, '-rwxr-xr-x' if '/bin/' in name or 'libexec' in name else '-rw-r--r--')
        self.assertFalse([row for row in rows if row[0] not in 'd-'])

    def test_control(self):
        """No scripts run at installation or removal, so no file is left behind."""
        listed = run('dpkg-deb', '--ctrl-tarfile', self.path)
        self.assertEqual(listed.returncode, 0)
        folder = mountlib.path('control')
        subprocess.run(['dpkg-deb', '--control', self.path, folder], check=True)
        self.assertEqual(sorted(os.listdir(folder)), ['control', 'md5sums'])
        fields = run('dpkg-deb', '--field', self.path, 'Depends').out
        for name in ('libc6', 'libfuse3-', 'libcjson1', 'fuse3'):
            self.assertIn(name, fields)

    def test_texts(self):
        folder = pathlib.Path(mountlib.path('unpacked'))
        subprocess.run(['dpkg-deb', '--extract', self.path, folder], check=True)
        doc = folder / 'usr/share/doc/ggufs'
        copyright_text = (doc / 'copyright').read_text()
        self.assertIn('THE SOFTWARE IS PROVIDED "AS IS"', copyright_text)
        log = subprocess.run(['gzip', '-dc', doc / 'changelog.gz'], check=True, capture_output=True,
                             text=True).stdout
        self.assertRegex(log, r'\Aggufs \([\d.]+\) unstable; urgency=medium\n\n  \* ')
        for page in [doc / 'README.md', *(doc / 'docs').glob('*.md')]:
            for link in re.findall(r'\]\((?!https?:)([^)#\s]+)', page.read_text()):
                self.assertTrue((page.parent / link).exists(), f'{page}: {link}')
        for name in ('usr/libexec/ggufs-open', 'usr/lib/systemd/user/ggufs@.service',
                     'usr/share/applications/ggufs.desktop'):
            self.assertIn('/usr/bin/ggufs', (folder / name).read_text())
            self.assertNotIn('@bindir', (folder / name).read_text())

    @unittest.skipUnless('GGUFS_SOAK' in os.environ, 'a second build, for releases: scripts/soak')
    def test_same_bytes(self):
        self.assertEqual(mountlib.get(self.path), mountlib.get(build('two')))

    @unittest.skipUnless(shutil.which('lintian'), 'no lintian')
    def test_lintian(self):
        """There are no tags, however small; each override has a line with the reason in the
        package's files. Without optimisation, the compiler omits one hardening that lintian looks
        for."""
        done = run('lintian', '--allow-root', '--pedantic', '--suppress-tags', 'hardening-no-fortify-functions',
                   self.path)
        self.assertEqual((done.returncode, done.out), (0, ''))
