# SPDX-License-Identifier: MIT
"""Completions: their table, compared with --help, the manual and the program; and the completion of
a line by the shells when TAB is pressed."""
import fcntl
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import termios
import tty
import unittest

import mountlib
import samples
from mountlib import GGUFS, Mount, run

SOURCE = pathlib.Path(mountlib.SOURCE)
MADE = pathlib.Path(os.environ['GGUFS_PACKAGING'])


class Row:
    def __init__(self, spec, columns):
        self.kind, _, self.takes, self.default, self.help, self.screen = columns + [''] * (6 - len(columns))
        self.name, _, self.value = spec.partition('=')
        self.words = [word for word in self.value.split('|') if word.islower()]


ROWS = [Row(spec, line.split('\t')) for line in (SOURCE / 'scripts/packaging/options.tsv').read_text().splitlines()
        if line[0] != '#' for spec in line.split('\t')[1].split(' ')]


def rows(*kinds):
    return [row for row in ROWS if row.kind in kinds]


def names(*kinds):
    return {row.name for row in rows(*kinds)}


class Table(unittest.TestCase):
    """The program parses scripts/packaging/options.tsv, from which --help and the completions are
    generated."""

    def test_help(self):
        """--help fits one screen, and names only options of the table."""
        lines = run(GGUFS, '--help').out.splitlines()
        self.assertLessEqual((len(lines), max(map(len, lines))), (24, 80))
        text = '\n'.join(lines)
        self.assertEqual(set(re.findall(r'-o (\w+)', text)) - names('mount', 'fuse') - {'OPTION'}, set())
        self.assertEqual(set(re.findall(r'(?<!\w)--[\w-]+', text)) - {'--COMMAND'}, names('command') - {'--help', '--version'})
        for row in ROWS:
            if row.screen:
                self.assertIn(f'  {row.screen:28}{row.help}', lines)

    def test_used(self):
        """The program uses every option that it parses."""
        code = '\n'.join(path.read_text() for path in (SOURCE / 'src').rglob('*.c'))
        for row in rows('command', 'option', 'mount'):
            name = f"{row.kind.upper()}_{row.name.strip('-_').upper()}"
            self.assertRegex(code, rf'\b{name}\b')

    def test_commands(self):
        """A command takes the options of its row, and no others."""
        options = rows('option')
        for row in rows('command'):
            if row.name in ('--help', '--version', '--list') or row.value:
                continue
            for option in options:
                spec = option.name + ('=' + (option.words or ['1'])[0] if option.value else '')
                shown = option.name + ('=' + (option.value if len(option.words) == 1 else '') if option.value else '')
                done = run(GGUFS, row.name, spec)
                self.assertEqual(done.returncode, 2)
                self.assertEqual('unknown option' not in done.err, shown in row.takes.split(), done.err)
            done = run(GGUFS, row.name)
            self.assertRegex(done.err, 'is missing|takes two models')

    def manual(self):
        """Return the items in the manual's list of options, by name, and the names in its synopsis,
        by command."""
        page = (SOURCE / 'docs/ggufs.1').read_text()
        items = {}
        for item in re.split(r'^\.It ', page.split('.Sh OPTIONS')[1].split('.Sh ')[0], flags=re.M)[1:]:
            head = re.sub(r'=|\b(?:Ns|Op|Cm|Fl o|Fl)\b|\bAr \w+|\w+=(?=edit)', ' ', item.splitlines()[0].replace('=edit', ''))
            items.update((name.lstrip('-'), item) for name in re.findall(r'[\w-]+', head))
        synopsis = {block.split()[1].lstrip('-').rstrip(','): block
                    for block in re.split(r'^\.Nm\n\.Fl ', page.split('.Sh SYNOPSIS')[1].split('.Sh ')[0], flags=re.M)[1:]
                    for block in ['Fl ' + block]}
        return items, synopsis

    def test_manual(self):
        """The manual has the same options, with the same words and defaults."""
        items, synopsis = self.manual()
        listed = {row.name.lstrip('-') for row in rows('mount', 'fuse', 'flag') if row.help}
        self.assertEqual(set(items) - {'help', 'version'}, listed)
        for row in rows('mount'):
            for word in row.words:
                self.assertRegex(items[row.name], rf'\b{word}\b')
            if row.default and row.words:
                self.assertRegex(items[row.name], rf'Cm {row.default} ?,\n?(?:the )?default|[Dd]efault[^.]*,\n\.Cm {row.default} ')
            elif row.default:
                self.assertRegex(items[row.name], rf'{row.default}(?!\w).*\n?.*default|default[^.]*\n.*{row.default}')
        self.assertEqual(set(synopsis), {name[2:] for name in names('command')} - {'version'})
        for row in rows('command'):
            for option in (word for word in row.takes.split() if word[0] == '-'):
                name, _, value = option.partition('=')
                self.assertRegex(synopsis[row.name[2:]], rf'Fl {name[1:]}\b.*{value}')
            if row.words:
                self.assertRegex(synopsis[row.name[2:]], rf'Op Cm ={row.value}')


class Shell:
    """An interactive shell on a terminal, which completes a line when TAB is pressed."""

    def __init__(self, command, begin):
        self.fd, terminal = pty.openpty()
        tty.setraw(terminal)  # input sent while the shell is busy is unchanged
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
        """Return the completed line: ^Xp shows it, after a rising number, and drops it."""
        self.send(line + '\t\x18p')
        self.count += 1
        end = f'LINE{self.count}\\[(.*?)\\]END'
        while not re.search(end, self.seen, re.DOTALL):
            ready, _, _ = select.select([self.fd], [], [], mountlib.LIMIT)
            if not ready:
                raise AssertionError(f'no answer: {self.seen!r}')
            self.seen += os.read(self.fd, 65536).decode(errors='replace')
        return re.search(end, self.seen, re.DOTALL)[1]

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

# Typed text, and its completion. zsh adds a possible next character, and drops it at a space.
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
        mountlib.folder_at('home/place')
        for name in ('one.gguf', 'text', 'spa ce.GGUF', 'sub/two.gguf', 'sub/other'):
            mountlib.put('home/' + name, b'')
        self.addCleanup(shutil.rmtree, mountlib.path('home'))

    def lines(self, command, begin):
        shell = Shell(command, begin.format(made=MADE))
        self.addCleanup(shell.end)
        for typed, want in LINES:
            with self.subTest(line=typed):
                self.assertEqual(shell.complete(typed).rstrip(ENDS), want.rstrip(ENDS))
        for typed in ("ggufs -o 'fsname=$(touch ran),co", "ggufs -o 'fsname=`touch ran`,commit=s",
                      "ggufs --check '--ignore=$(touch ran),ga", "ggufs '$(touch ran)"):
            shell.complete(typed)  # the typed text is literal
            self.assertFalse(os.path.exists(mountlib.path('home/ran')), typed)
        with Mount(mountlib.put('model.gguf', samples.editable()), at=mountlib.folder_at('a mount')) as at:
            line = shell.complete('ggufs --unmount ' + mountlib.folder + '/a').rstrip(ENDS + '/')
            self.assertEqual(line, 'ggufs --unmount ' + at.replace(' ', '\\ '))

    def test_bash(self):
        self.lines(['bash', '--norc', '--noprofile', '-i'], BASH)

    @unittest.skipUnless(os.path.exists('/usr/share/bash-completion/bash_completion'), 'no bash-completion')
    def test_bash_completion(self):
        """The completion works beside everything that bash-completion sets."""
        self.lines(['bash', '--norc', '--noprofile', '-i'],
                   '. /usr/share/bash-completion/bash_completion\n' + BASH)

    @unittest.skipUnless(shutil.which('zsh'), 'no zsh')
    def test_zsh(self):
        self.lines(['zsh', '-f', '-i'], ZSH)

    @unittest.skipUnless(shutil.which('fish'), 'no fish')
    def test_fish(self):
        """fish itself prints its offers."""
        def offered(line):
            done = subprocess.run(
                ['fish', '--no-config', '-c', 'source $argv[1]; complete -C $argv[2]',
                 MADE / 'ggufs.fish', line], cwd=mountlib.path('home'), check=True,
                env={**os.environ, 'HOME': mountlib.path('home')}, capture_output=True, text=True)
            self.assertEqual(done.stderr, '')
            found = [row.split('\t')[0] for row in done.stdout.splitlines()]
            # fish also offers names that contain the letters anywhere.
            return [row for row in found if row.startswith(line.split(' ')[-1])]
        for typed, want in LINES:
            word = typed.split()[-1]
            want = want.split(' ', len(typed.split()) - 1)[-1].replace('\\', '')
            wanted = [want] if want != word else []
            if want == '--ignore=':
                wanted = ['--ignore']
            elif want.endswith('='):  # with its values, if known
                wanted = offered(typed)
                self.assertTrue(wanted and all(row.startswith(want) for row in wanted), typed)
            elif want == '--check':
                wanted = ['--check', '--check=full']
            with self.subTest(line=typed):
                self.assertEqual(offered(typed), wanted)
        with Mount(mountlib.put('model.gguf', samples.editable()), at=mountlib.folder_at('a mount')) as at:
            self.assertIn(at, offered('ggufs --unmount '))
