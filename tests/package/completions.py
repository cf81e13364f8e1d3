#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Completions: the table that they are made of against --help, the manual and the program, and what the
shells make of a line when TAB is pressed."""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import termios
import tty
import unittest

import mountlib
import samples
from mountlib import GGUFS, Mount, run

SOURCE = pathlib.Path(mountlib.SOURCE)
MADE = pathlib.Path(os.environ['GGUFS_PACKAGING'])
ROWS = [line.split('\t') for line in (SOURCE / 'scripts/packaging/options.tsv').read_text().splitlines()
        if line[0] != '#']


def names(kind):
    return {row[1] for row in ROWS if row[0] == kind}


def bare(found):
    return {name.split('=')[0] for name in found}


class Table(unittest.TestCase):
    """scripts/packaging/options.tsv has what the program takes: an option that is missing there is in
    no completion."""

    def test_help(self):
        """One screen, which names nothing that is not in the table."""
        lines = run(GGUFS, '--help').out.splitlines()
        self.assertLessEqual((len(lines), max(map(len, lines))), (24, 80))
        text = '\n'.join(lines)
        self.assertEqual(set(re.findall(r'-o (\w+)', text)) - bare(names('mount')) - {'OPTION'}, set())
        self.assertEqual(set(re.findall(r'(?<!\w)--[\w-]+', text)) - {'--COMMAND'},
                         bare(names('command')) - {'--help', '--version'})
        for row in ROWS:
            if len(row) > 4:
                self.assertIn(f'  {row[4]:25}{row[3]}', lines)

    def test_program(self):
        """Every option of the table is one, and takes exactly these words."""
        code = (SOURCE / 'src/mount/options.c').read_text()
        self.assertEqual(set(re.findall(r'(?:OPT|SET)\("(\w+)', code)) - bare(names('mount')), set())
        for _, name, takes, *_ in (row for row in ROWS if row[0] == 'mount'):
            words = [word for word in takes.split() if word.islower()]
            value = (words or {'OCTAL': ['22']}.get(takes, ['1']))[0] if takes else ''
            with self.subTest(name=name):
                done = run(GGUFS, '-o', name + value, '/nowhere.gguf', '/nowhere')
                if takes == 'FILE':  # which is looked at first
                    self.assertIn(f'option {name[:-1]}: ', done.err)
                    continue
                self.assertEqual(done.returncode, 1, done.err)
                if words:
                    done = run(GGUFS, '-o', name + '?', '/nowhere.gguf', '/nowhere')
                    said = re.search('must be (.*), not ', done.err)[1].split(' (')[0].replace(' bytes', ' ')
                    self.assertEqual(set(re.findall(r'[a-z]+', said)) - {'or', 'bytes'}, set(words))
        for name in names('command') - {'--help', '--version', '--list'}:
            self.assertNotIn('unknown', run(GGUFS, name).err)

    def test_manual(self):
        page = (SOURCE / 'docs/ggufs.1').read_text()
        for name in bare(names('mount')):
            self.assertRegex(page, rf'Cm {name}\b|[( ]{name}\b')
        for name in bare(names('command') | names('option') | names('flag')):
            self.assertRegex(page, rf'Fl {name[1:]}\b|{name[1:]}\b')


class Shell:
    """An interactive shell on a terminal of its own: what a line becomes when TAB is pressed."""

    def __init__(self, command, begin):
        self.fd, terminal = pty.openpty()
        tty.setraw(terminal)  # what is sent while the shell is busy stays as it is
        home = mountlib.path('home')
        self.process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True, cwd=home,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, 'TERM': 'dumb', 'HOME': home, 'COLUMNS': '300', 'PS1': ''})
        os.close(terminal)
        self.count, self.seen = 0, ''
        self.send(begin + '\n')

    def send(self, text):
        os.write(self.fd, text.encode())

    def complete(self, line):
        """^Xp shows the line, behind a number that rises, and drops it."""
        self.send(line + '\t\x18p')
        self.count += 1
        end = f'LINE{self.count}\\[(.*?)\\]END'
        while not re.search(end, self.seen, re.DOTALL):
            ready, _, _ = select.select([self.fd], [], [], mountlib.LIMIT)
            if not ready:
                raise AssertionError(f'no answer: {self.seen!r}')
            self.seen += os.read(self.fd, 65536).decode(errors='replace')
        found = re.search(end, self.seen, re.DOTALL)[1]
        return found

    def end(self):
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


BASH = """. {made}/ggufs; n=0; set +o history
show() {{ n=$((n + 1)); printf 'LI''NE%s[%s]END\\n' "$n" "$READLINE_LINE"; READLINE_LINE=; }}
bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind -x '"\\C-xp": show'
"""
ZSH = """fpath=({made} $fpath); autoload -Uz compinit; compinit -u -D; n=0
show() {{ n=$((n + 1)); print -r -- "LI""NE${{n}}[$BUFFER]END"; BUFFER= }}
zle -N show; bindkey '^Xp' show; unsetopt beep; unset zle_bracketed_paste
"""

# What is typed, and what TAB makes of it. zsh adds what may follow, and drops it when a space does.
ENDS = ' ,='
LINES = [
    ('ggufs --unm', 'ggufs --unmount'),
    ('ggufs --chec', 'ggufs --check'),
    ('ggufs -o rel', 'ggufs -o relayout='),
    ('ggufs -o commit=sy', 'ggufs -o commit=sync'),
    ('ggufs -o ro,vi', 'ggufs -o ro,views='),
    ('ggufs -o ro,views=ra', 'ggufs -o ro,views=raw'),
    ('ggufs -f -o auto_', 'ggufs -f -o auto_unmount'),
    ('ggufs --check --ign', 'ggufs --check --ignore='),
    ('ggufs --check --ignore=gaps,voc', 'ggufs --check --ignore=gaps,vocabulary'),
    ('ggufs --info --js', 'ggufs --info --json'),
    ('ggufs --list --js', 'ggufs --list --json'),
    ('ggufs --list --str', 'ggufs --list --str'),
    ('ggufs on', 'ggufs one.gguf'),
    ('ggufs te', 'ggufs te'),
    ('ggufs spa', 'ggufs spa\\ ce.GGUF'),
    ('ggufs --recover sub/', 'ggufs --recover sub/two.gguf'),
    ('ggufs --check=full sub/', 'ggufs --check=full sub/two.gguf'),
    ('ggufs one.gguf pl', 'ggufs one.gguf place/'),
    ('ggufs -o ro one.gguf pl', 'ggufs -o ro one.gguf place/'),
]


class Shells(unittest.TestCase):
    def setUp(self):
        home = pathlib.Path(mountlib.path('home'))
        for name in ('sub', 'place'):
            (home / name).mkdir(parents=True)
        for name in ('one.gguf', 'text', 'spa ce.GGUF', 'sub/two.gguf', 'sub/other'):
            (home / name).write_bytes(b'')
        self.addCleanup(shutil.rmtree, home)

    def lines(self, command, begin):
        shell = Shell(command, begin.format(made=MADE))
        self.addCleanup(shell.end)
        for typed, want in LINES:
            with self.subTest(line=typed):
                self.assertEqual(shell.complete(typed).rstrip(ENDS), want.rstrip(ENDS))
        for typed in ("ggufs -o 'fsname=$(touch ran),co", "ggufs -o 'fsname=`touch ran`,commit=s",
                      "ggufs --check '--ignore=$(touch ran),ga", "ggufs '$(touch ran)"):
            shell.complete(typed)  # what was typed is a text
            self.assertFalse(os.path.exists(mountlib.path('home/ran')), typed)
        model = mountlib.put('model.gguf', samples.editable())
        with tempfile.TemporaryDirectory(prefix='a mount ', dir=mountlib.folder) as at, \
                Mount(model, at=at):
            line = shell.complete('ggufs --unmount ' + mountlib.folder + '/a').rstrip(ENDS + '/')
            self.assertEqual(line, 'ggufs --unmount ' + at.replace(' ', '\\ '))

    def test_bash(self):
        self.lines(['bash', '--norc', '--noprofile', '-i'], BASH)

    @unittest.skipUnless(os.path.exists('/usr/share/bash-completion/bash_completion'),
                         'no bash-completion')
    def test_bash_completion(self):
        """Beside all that bash-completion sets."""
        self.lines(['bash', '--norc', '--noprofile', '-i'],
                   '. /usr/share/bash-completion/bash_completion\n' + BASH)

    @unittest.skipUnless(shutil.which('zsh'), 'no zsh')
    def test_zsh(self):
        self.lines(['zsh', '-f', '-i'], ZSH)

    @unittest.skipUnless(shutil.which('fish'), 'no fish')
    def test_fish(self):
        """fish itself prints what it would offer."""
        def offered(line):
            done = subprocess.run(
                ['fish', '--no-config', '-c', 'source $argv[1]; complete -C $argv[2]',
                 MADE / 'ggufs.fish', line], cwd=mountlib.path('home'), check=True,
                env={**os.environ, 'HOME': mountlib.path('home')}, capture_output=True, text=True)
            self.assertEqual(done.stderr, '')
            found = [row.split('\t')[0] for row in done.stdout.splitlines()]
            # fish also offers what has the letters somewhere in it.
            return [row for row in found if row.startswith(line.split(' ')[-1])]
        for typed, want in LINES:
            word = typed.split()[-1]
            want = want.split(' ', len(typed.split()) - 1)[-1].replace('\\', '')
            wanted = [want] if want != word else []
            if want == '--ignore=':
                wanted = ['--ignore']
            elif want.endswith('='):  # with its values, where these are known
                wanted = offered(typed)
                self.assertTrue(wanted and all(row.startswith(want) for row in wanted), typed)
            elif want == '--check':
                wanted = ['--check', '--check=full']
            with self.subTest(line=typed):
                self.assertEqual(offered(typed), wanted)
        model = mountlib.put('model.gguf', samples.editable())
        with tempfile.TemporaryDirectory(prefix='a mount ', dir=mountlib.folder) as at, \
                Mount(model, at=at):
            self.assertIn(at, offered('ggufs --unmount '))


if __name__ == '__main__':
    mountlib.main()
