# SPDX-License-Identifier: MIT
"""Common editors and tools, each on a mount of its own.

A tool is a function that makes one line the whole content of a file, and returns whether it
reported success. All go through the same trials: see Editors.
"""
import itertools
import os
import shutil
import unittest

import mountlib
from editing import COUNT, KV, LENGTH, NAME, Editing, replaced
from ggufmodel import Value

ERRORS = 'Invalid argument', 'Too many links'
VIM_ERRORS = ('E212: Can\'t open file', 'E512: Close failed', 'E514: Write error',
              'E667: Fsync failed')
TOOLS = {}  # name -> (function, required programs, helpers that stay)


def succeeds(*command, **options):
    """True if the exit status reports success. A failure must also be reported in words: a refused
    write (dash and vim have their own words) or a refused rename (mv knows only one reason)."""
    done = mountlib.run(*command, **options)
    words = (*ERRORS, 'I/O error', 'to a subdirectory of itself', *VIM_ERRORS)
    if done.returncode and not any(text in done.out + done.err for text in words):
        raise AssertionError(f'{command}: {done.returncode}: {done.out}{done.err}')
    return done.returncode == 0


def source(line):
    return mountlib.put('source', line.encode() + b'\n')


# ---- shells and the like ----

def shell_tool(name, script, *programs, stays=()):
    """The script's arguments are $1, the file; $2, the line; $3, a file that contains the line."""
    def run(path, line):
        return succeeds('bash', '-c', script, 'bash', path, line, source(line))
    TOOLS[name] = run, programs, stays


shell_tool('echo', 'echo "$2" > "$1"')
shell_tool('cat', 'cat "$3" > "$1"')
shell_tool('tee', 'echo "$2" | tee "$1" > /dev/null')
shell_tool('dd', 'dd if="$3" of="$1" status=none')
shell_tool('cp', 'cp "$3" "$1"')
shell_tool('cp-a', 'cp -a "$3" "$1"')
shell_tool('cp-force', 'cp --remove-destination "$3" "$1"')
shell_tool('cp-backup', 'cp --backup "$3" "$1"', stays=['~'])
shell_tool('mv', 'mv "$3" "$1"')
shell_tool('mv-helper', 'cp "$3" "$1.new" && mv "$1.new" "$1"; s=$?; rm -f "$1.new"; exit $s')
shell_tool('mv-dance', 'mv "$1" "$1.old" && if cp "$3" "$1"; then rm "$1.old"; else '
           'mv "$1.old" "$1"; exit 1; fi')
shell_tool('rm-and-cp', 'rm "$1" && cp "$3" "$1"')
shell_tool('install', 'install -m 600 "$3" "$1"')
shell_tool('sed', 'sed -i "1s/.*/$2/" "$1"')
shell_tool('sed-suffix', 'sed -i.bak "1s/.*/$2/" "$1"', stays=['.bak'])
shell_tool('perl', 'perl -i -pe "s/.*/$2/" "$1"', 'perl')
shell_tool('rsync', 'rsync -I "$3" "$1"', 'rsync')
shell_tool('rsync-a', 'rsync -aI "$3" "$1"', 'rsync')
shell_tool('rsync-inplace', 'rsync -I --inplace "$3" "$1"', 'rsync')
shell_tool('gio-save', 'gio save "$1" < "$3"', 'gio')
shell_tool('ed', r'printf "1c\n%s\n.\nw\nq\n" "$2" | ed "$1"', 'ed')


REPLACE = '''
import os, sys
name, line = sys.argv[1:]
with open(name + '.tmp', 'w') as file:
    file.write(line + '\\n')
    os.fsync(file.fileno())
try:
    os.replace(name + '.tmp', name)
finally:
    if os.path.exists(name + '.tmp'):
        os.unlink(name + '.tmp')
'''
shell_tool('python-write', """python3 -c 'import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2] + "\\n")' "$1" "$2" """)
shell_tool('python-replace', f'python3 -c "{REPLACE}" "$1" "$2"')


# ---- editors ----

def vim_tool(name, *settings, stays=()):
    def run(path, line):
        commands = [word for text in ('backupskip=', *settings) for word in ('-c', 'set ' + text)]
        script = mountlib.put('script', f'%s/.*/{line}/\nw\nq!\n'.encode())
        done = mountlib.run('bash', '-c', 'script=$1; shift; "$@" < "$script"', 'bash', script, 'vim', '-e', '-s', '-V1', '-u', 'NONE',
                            '-N', '-i', 'NONE', *commands, path)
        return not any(text in done.out + done.err for text in VIM_ERRORS)
    TOOLS[name] = run, ('vim',), stays


vim_tool('vim')
vim_tool('vim-copy', 'backupcopy=yes')
vim_tool('vim-rename', 'backupcopy=no')
vim_tool('vim-rename-backup', 'backup', 'backupcopy=no', stays=['~'])
vim_tool('vim-no-writebackup', 'nowritebackup')


def emacs_tool(name, *settings, stays=()):
    lisp = '(progn ' + ' '.join(('(setq backup-enable-predicate (lambda (name) t))', *settings)) + ')'

    def run(path, line):
        edit = f'(progn (erase-buffer) (insert "{line}\\n") (save-buffer))'
        return succeeds('emacs', '--batch', '-Q', '--eval', lisp, path, '--eval', edit)
    TOOLS[name] = run, ('emacs',), stays


emacs_tool('emacs', stays=['~'])
emacs_tool('emacs-copying', '(setq backup-by-copying t)', stays=['~'])
emacs_tool('emacs-precious', '(setq file-precious-flag t)', stays=['~'])


# ---- trials ----

class Editors(Editing):
    """One test for each tool, made below."""

    def use(self, function, name, line):
        """Run a tool while watching the listing."""
        good = function(self.key(name), line)
        self.assertIn(name, os.listdir(self.metadata))
        return good

    def trial(self, function, stays):
        before = self.marks()
        self.assertTrue(self.use(function, NAME, 'a new name'))
        self.assertEqual(self.text(NAME), b'a new name\n')
        named = {NAME: Value('string', b'a new name')}
        self.assert_model(named)
        self.assertTrue(self.use(function, LENGTH, '409600000000'))
        changes = {**named, LENGTH: Value('u64', 409600000000)}
        self.assert_model(changes)
        self.assert_marks(before, {NAME, LENGTH})
        self.unchanged(function)
        for name, end in itertools.product((NAME, LENGTH), stays):  # else `cp KEY~ KEY` refuses
            self.assertFalse(os.path.samefile(self.key(name), self.key(name + end)))
        helpers = [name + end for name in (NAME, LENGTH) for end in stays]
        self.assert_listing(replaced(changes), *helpers)
        self.refused(function, changes)
        self.remove_leftovers(helpers)
        self.assert_listing(replaced(changes), *helpers)
        self.not_written(function, changes)
        self.remove_leftovers(helpers)
        self.assert_listing(replaced(changes), *helpers)
        self.unmount()
        self.assert_model(changes)

    def remove_leftovers(self, helpers):
        """Remove leftovers after a failure. A key stays when its copies are removed."""
        keep = [key.decode() for key, _ in KV] + helpers
        for name in os.listdir(self.metadata):
            if name not in keep:
                os.unlink(self.key(name))

    def assert_marks(self, before, written):
        """Check that inode numbers stay, and that the time of a key changes if and only if it was
        written."""
        after = self.marks()
        for name in (key.decode() for key, _ in KV):
            mark = before[name]
            self.assertEqual(after[name][:2], mark[:2], name)
            self.assertEqual(after[name][2] != mark[2], name in written, name)

    def unchanged(self, function):
        """Writing back an unchanged text rewrites nothing."""
        before, marks = self.state(), self.marks()
        self.assertTrue(self.use(function, LENGTH, '409600000000'))
        self.assertEqual(self.state(), before)
        self.assert_marks(marks, set())

    def not_written(self, function, changes):
        """A valid value cannot be written to the model file, because it has a second name: every
        tool reports that, even shells, which ignore the result of close(2)."""
        other = mountlib.path('other-name')
        os.link(self.model, other)
        before = self.state()
        self.assertFalse(self.use(function, COUNT, '7'))
        self.assertEqual(self.text(COUNT), b'2\n')
        self.assertIn('hard links', self.error(COUNT))
        self.assertEqual(self.state(), before)
        os.unlink(other)
        self.assert_model(changes)

    def refused(self, function, changes):
        """If the text is not a value of the type, the tool reports that, and the old value
        stays."""
        before, marks = self.state(), self.marks()
        self.assertFalse(self.use(function, COUNT, 'abc'))
        self.assertEqual(self.text(COUNT), b'2\n')
        self.assertIsNotNone(self.error(COUNT))
        self.assert_model(changes)
        self.assertEqual(self.state(), before)
        self.assert_marks(marks, set())

    @unittest.skipUnless(shutil.which('gio'), 'gio: not installed')
    def test_gio_etag(self):
        """gedit compares the tag from its last save with the file's at the next save."""
        path = self.key(NAME)
        saved = mountlib.run('bash', '-c', 'gio save --print-etag "$1" < "$2"', 'bash', path,
                             source('first')).out.split()[-1]
        again = mountlib.run('bash', '-c', 'gio save --etag="$3" "$1" < "$2"', 'bash', path,
                             source('second'), saved)
        self.assertEqual((again.returncode, again.err), (0, ''))
        self.assertEqual(self.text(NAME), b'second\n')
        again = mountlib.run('bash', '-c', 'gio save --etag="$3" "$1" < "$2"', 'bash', path,
                             source('third'), saved)
        self.assertNotEqual(again.returncode, 0)
        self.assertEqual(self.text(NAME), b'second\n')


def make_test(name, function, programs, stays):
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        print(f'skipped: {name}: not installed: {" ".join(missing)}')

    @unittest.skipIf(missing, f'{name}: not installed: {" ".join(missing)}')
    def test(self):
        self.trial(function, stays)
    return test


for NAME_OF, ROW in TOOLS.items():
    setattr(Editors, 'test_' + NAME_OF.replace('-', '_'), make_test(NAME_OF, *ROW))
