# SPDX-License-Identifier: MIT
"""Files commonly given instead of a model are recognised and named by every command."""
import os
import unittest

import mountlib
from llama import image
from mountlib import GGUFS, run

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
        at = mountlib.path('mnt')
        os.makedirs(at, exist_ok=True)
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
