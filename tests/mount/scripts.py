# SPDX-License-Identifier: MIT
"""The output of scripts/run and the example in README.md are true: their commands are run."""
import os
import re
import shutil
import sys
import unittest

import mountlib

# A built checkout: ninja finds nothing to do.
BUILT = 'build all: phony\n'
ODD = "it's a \"$HOME\" & co"


def executable(name, text):
    mountlib.put(name, text.encode())
    os.chmod(mountlib.path(name), 0o755)


def setUpModule():
    """Put programs before those in PATH, so that no package is installed, and only this Python is
    used."""
    executable('bin/dpkg-query', '#!/bin/sh\nprintf installed\n')
    os.symlink(sys.executable, mountlib.path('bin/python3'))


def checkout(*name):
    """Make a copy of the parts of the sources that the scripts need, with the program."""
    root = mountlib.path(*name)
    for part in ('scripts', 'tests/lib'):
        shutil.copytree(os.path.join(mountlib.SOURCE, part), os.path.join(root, part))
    os.makedirs(os.path.join(root, 'build/src'))
    shutil.copy(shutil.which(mountlib.GGUFS), os.path.join(root, 'build/src/ggufs'))
    mountlib.put(os.path.join(root, 'build/build.ninja'), BUILT)
    return root


def run(*command, **options):
    path = mountlib.path('bin') + ':' + os.environ['PATH']
    return mountlib.run('env', 'PATH=' + path, *command, **options)


def ran(root, *arguments, cwd):
    done = run(os.path.join(root, 'scripts/run'), *arguments, cwd=cwd)
    assert done.returncode == 0, done.err
    return done


class Run(unittest.TestCase):
    def check(self, root, at, *arguments, cwd):
        """Check that the mount exists, and that the printed unmount command works from the
        directory in which scripts/run was called."""
        done = ran(root, *arguments, cwd=cwd)
        self.assertIsNotNone(mountlib.mount_of(at), done.out)
        for command in re.findall(r'^\$ ((?:ls|cat|head) .*|.* --unmount .*)$', done.out, re.M):
            mountlib.works('sh', '-c', command, cwd=cwd)
        self.assertIsNotNone(mountlib.mount_of(at), done.out)
        for install in re.findall(r'^  (?:sudo )?meson install -C (.*)$', done.out, re.M):
            mountlib.works('sh', '-c', f'test -f {install}/build.ninja', cwd=cwd)
        unmount, = re.findall(r'^  (.* --unmount .*)$', done.out, re.M)
        mountlib.works('sh', '-c', unmount, cwd=cwd)
        self.assertIsNone(mountlib.mount_of(at))

    def test_sample(self):
        """scripts/run works from the root of the sources, elsewhere and within it."""
        root = checkout(ODD, 'ggufs')
        for cwd in (root, '/', os.path.join(root, 'tests')):
            with self.subTest(cwd=cwd):
                self.check(root, os.path.join(root, 'build/mnt'), cwd=cwd)

    def test_model(self):
        """A model and a directory are given as arguments, also with names that need quotes."""
        root = checkout('plain')
        home = mountlib.path('home')
        os.makedirs(os.path.join(home, 'models'))
        mountlib.sample('home/models/a b.gguf')
        os.symlink('a b.gguf', os.path.join(home, 'models/-x.gguf'))
        for name, cwd, arguments in (
                ('a b', home, ['models/a b.gguf']),
                (ODD, home, ['models/a b.gguf', ODD]),
                (ODD, home, [os.path.join(home, 'models/a b.gguf'), os.path.join(home, ODD)]),
                ('models/-x', os.path.join(home, 'models'), ['-x.gguf'])):
            with self.subTest(arguments=arguments):
                self.check(root, os.path.join(home, name), *arguments, cwd=cwd)

    def test_again(self):
        """A previous mount is replaced, even if its daemon has died."""
        root = checkout('again')
        for _ in range(2):
            ran(root, cwd=root)
        mountlib.unmount(os.path.join(root, 'build/mnt'))


class Demo(unittest.TestCase):
    """scripts/demo leaves the model unchanged, and no file beside it."""

    def check(self, where, *model):
        done = run(os.path.join(checkout(where), 'scripts/demo'), *model)
        self.assertEqual((done.returncode, done.err), (0, ''), done.out)
        self.assertRegex(done.out, r'is as it was\.\n\Z')
        for said in ('general.description', 'A demonstration\n', 'is not an integer', 'back to state', 'Q8_0'):
            self.assertIn(said, done.out)
        return done.out

    def test_sample(self):
        self.check('demo-sample')


class Readme(unittest.TestCase):
    def block(self, begin):
        """Return the one code block that begins with this."""
        text = mountlib.get(os.path.join(mountlib.SOURCE, 'README.md')).decode()
        block, = (block for block in re.findall(r'^```\n(.*?)^```$', text, re.M | re.S) if block.startswith(begin))
        return block

    def test_first(self):
        """The first lines, once the package is installed."""
        home = mountlib.folder_at('first')
        mountlib.sample('first/model.gguf')
        lines = self.block('scripts/package ').splitlines()
        self.assertLessEqual(len(lines), 5)
        path = os.path.dirname(shutil.which(mountlib.GGUFS))
        done = run('sh', '-ec', '\n'.join([f'PATH={path}:$PATH', *lines[1:]]), cwd=home)
        self.assertEqual((done.returncode, done.err), (0, ''))
        self.assertIn('\ngeneral.name\n', done.out)

    def test_demo(self):
        """Each output of a dialogue in the root of the sources, after scripts/run, is the one shown; it can
        be run again."""
        root = checkout('demo')
        dialogue = re.split(r'^\$ ', self.block('$ '), flags=re.M)[1:]
        steps = [re.match(r'((?:[^\n"]|"[^"]*")*)\n(.*)', step, re.S).groups() for step in dialogue]
        self.assertGreater(len(steps), 5)
        enter = steps.pop(0)[0]
        for again in range(2):
            ran(root, cwd=root)
            for command, shown in steps:
                with self.subTest(command=command, again=again):
                    done = run('bash', '-c', f'{enter}\n{command}', cwd=root)
                    said = re.sub('^bash: line [0-9]+: ', 'bash: ', done.out + done.err, flags=re.M)
                    if again:  # other numbers
                        said, shown = (re.sub('(?<=state )[0-9]+', 'N', text) for text in (said, shown))
                    self.assertEqual(said.split(), shown.split())
            self.assertIsNone(mountlib.mount_of(os.path.join(root, 'build/mnt')))
