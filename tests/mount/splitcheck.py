# SPDX-License-Identifier: MIT
"""--check of split models: one verdict on the whole, and one on each file, in the same words as in
the mount. Sets that do not belong together are refused by both."""
import json
import os
import unittest

import ggufmodel as gguf
import llama
import mountlib
import samples
from ggufmodel import Value
from mountlib import GGUFS, Mount, Refused, run

STEM = 'Tiny-3.5K-v1.0-Q8_0'


def names(count=2, stem=STEM):
    return [f'{stem}-{no + 1:05}-of-{count:05}.gguf' for no in range(count)]


def split_keys(no):
    return samples.split_keys(no, 2, len(llama.tensors()))


def first(how=None, more=(), **changed):
    """Return the model's embedding and keys."""
    keys = llama.keys(**changed) + split_keys(0) + list(more)
    return gguf.encode(keys, llama.tensors()[:1], **(how or {}))


def second(how=None, q8=llama.TINY, keys=None, tensors=None):
    """Return the model's block."""
    keys = split_keys(1) if keys is None else keys
    return gguf.encode(keys, llama.tensors(q8)[1:] if tensors is None else tensors, **(how or {}))


class SplitCheck(unittest.TestCase):
    """A directory with a split model. Commands run in it, so that paths are names."""

    def make(self, *files, stem=STEM):
        self.folder = mountlib.path(self.id().rsplit('.', 1)[-1])
        run('rm', '-rf', self.folder)
        os.mkdir(self.folder)
        self.names = names(max(len(files), 2), stem)
        for name, data in zip(self.names, files):
            if data is not None:
                mountlib.put(self.at(name), data)

    def at(self, name):
        return os.path.join(self.folder, name)

    def check(self, *arguments):
        done = run(GGUFS, '--check', *arguments, cwd=self.folder)
        self.assertEqual(done.err, '')
        return done

    def tells(self, status, *lines, option=None):
        """Check that any one file, and all of them, give exactly these lines (as far as their
        beginnings go)."""
        options = [option] if option else []
        there = [name for name in self.names if os.path.lexists(self.at(name))]
        for files in [[name] for name in there] + [there]:
            done = self.check(*options, *files)
            told = done.out.splitlines()
            self.assertEqual(len(told), len(lines), done.out)
            for line, want in zip(told, lines):
                self.assertTrue(line.startswith(want), (line, want))
            self.assertEqual(done.returncode, status)
        return told

    def mounted(self):
        """Check that `check` in the mount shows the output of --check, whichever file is
        mounted."""
        said = [self.check(self.names[0]).out]
        for name in self.names:
            with Mount(self.at(name)) as at:
                size = os.stat(at + '/check').st_size
                said.append(mountlib.get(at + '/check').decode())
                self.assertEqual(size, len(said[-1].encode()))
        self.assertEqual(said[1:], said[:1] * len(self.names))
        return said[0]

    def refused(self, *words, file=None):
        """Check that the mount refuses the model with one line."""
        with self.assertRaises(Refused) as caught:
            with Mount(self.at(file or self.names[0])):
                pass
        done = caught.exception.done
        self.assertEqual((done.returncode, done.err.count('\n')), (1, 1), done.err)
        for word in words:
            self.assertIn(word, done.err)

    def test_clean(self):
        """Neither file has a tensor for each block, or all keys; together they do."""
        self.make(first(), second())
        self.tells(0)
        self.tells(0, option='--check=full')
        self.assertEqual(self.mounted(), '')

    def test_model(self):
        """A fault of the model is reported once, for its first file."""
        a, _ = names()
        self.make(first(llama__context_length=None, llama__block_count=llama.u32(2),
                        general__quantization_version=None), second())
        self.tells(1, f'{a}: warning: is Q8_0, but general.quantization_version is missing',
                   f'{a}: error: 1 of 2 blocks has no tensors; the first is blk.1',
                   f'{a}: error: the required key llama.context_length is missing (metadata)')
        self.assertEqual(self.mounted().count('\n'), 3)

    def test_files(self):
        """A fault of a file is reported for that file."""
        a, b = names()
        data = bytearray(first({'gap': 32}, general__file_type=Value('u64', 7)))
        self.make(bytes(data), second({'trailing': b'\1' * 8}, keys=split_keys(1) + [
            (b'My.key', Value('u8', 1))]))
        self.tells(1, f"{a}: error: begins at byte ",
                   f"{a}: error: is u64, must be u32 (key 'general.file_type')",
                   f'{b}: warning: 8 extra bytes after the data',
                   f"{b}: warning: is not lower_snake_case (key 'My.key')")
        self.mounted()

    def test_escaped(self):
        """Names of files and keys are escaped in lines, in JSON and in the mount."""
        self.make(first(more=[(b'x.\x1b[31m', Value('u8', 1))]), second(), stem='x\x1b[2J\n')
        shown = 'x\\x1b[2J\\x0a-00001-of-00002.gguf'
        lines = self.tells(1, f"{shown}: error: is not a valid key: must be ASCII segments "
                           "separated by single dots (key 'x.\\x1b[31m')", f'{shown}: note: by convention it should be')
        self.assertFalse(any('\x1b' in line for line in lines))
        self.assertEqual(json.loads(self.check('--json', self.names[0]).out)[0]['file'], shown)
        self.assertNotIn('\x1b', self.mounted())

    def test_links(self):
        """Links have the names of shards, and lead to files named by a hash."""
        self.make(first(), second())
        os.mkdir(self.at('blobs'))
        for no, name in enumerate(self.names):
            os.rename(self.at(name), self.at('blobs/%064x' % no))
            os.symlink('blobs/%064x' % no, self.at(name))
        self.tells(0)
        self.assertEqual(self.mounted(), '')

    def test_missing(self):
        for no, name in enumerate(names()):
            self.make(first(), second())
            os.unlink(self.at(name))
            self.tells(2, f'{name}: error: No such file or directory (shard {no + 1} of 2)')
            self.refused(name, 'No such file', file=names()[1 - no])

    def test_damaged(self):
        """The faults of each file are reported, and the rules are applied to the others."""
        a, b = names()
        self.make(first(general__file_type=Value('u64', 7)), second()[:-64])
        done = self.check('--check=full', b)
        self.assertIn(f'{b}: error: 64 bytes are missing', done.out)
        self.assertIn(f"{a}: error: is u64, must be u32 (key 'general.file_type')", done.out)
        self.assertEqual(done.returncode, 2)
        self.make(first(), b'GGUX' + second()[4:])
        self.assertIn(f"{b}: error: 'GGUX' is not 'GGUF' (magic at byte 0)",
                      self.check(a).out)

    def test_joined(self):
        """Shards that were joined by cat are called by their name, once, whatever is ignored."""
        self.make()
        mountlib.put(self.at('joined.gguf'), first() + second())
        why = f'continues with another GGUF file at byte {len(first())}: shards joined by cat'
        for option in ('--check', '--check=full'):
            done = self.check(option, '--ignore=structure,split,trailing', 'joined.gguf')
            self.assertEqual((done.returncode, done.out.count('\n')), (2, 1), done.out)
            self.assertIn(why, done.out)
        for command in ((GGUFS, '-f', self.at('joined.gguf'), self.at('')), (GGUFS, '--info', self.at('joined.gguf'))):
            self.assertIn(why, run(*command).err)
