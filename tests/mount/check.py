# SPDX-License-Identifier: MIT
"""ggufs --check: its lines, JSON and exit status; and `check` at the root of the mount. Of a split model: one
verdict on the whole, and one on each file, in the same words."""
import json
import os
import shutil
import struct
import unittest

import ggufmodel as gguf
import llama
import mountlib
import mutations
import published
import samples
from ggufmodel import Tensor, Value
from llama import F32, NAME, image, keys, tensors
from mountlib import GGUFS, Mount, run
from shelflib import Shelf, manifest

def check(*arguments):
    return run(GGUFS, *arguments)


class Check(Shelf):
    def file(self, data, name=NAME):
        return mountlib.put('models/' + name, data)

    def finds(self, status, *parts, data, name=NAME, option='--check', ignore='missing'):
        """Check the exit status, and that one line contains all the parts (no parts: there is no
        line)."""
        model = self.file(data, name)
        done = check(option, '--ignore=' + ignore, model)
        self.assertEqual(done.returncode, status, done.out + done.err)
        self.assertEqual(done.err, '')
        self.assertEqual(len(done.out.splitlines()), 1 if parts else 0, done.out)
        for part in parts:
            self.assertIn(part, done.out)
        if parts:
            self.assertTrue(done.out.startswith(model + ': '), done.out)
        return done.out

    def test_findings(self):
        """(status, what a line says; none: no line; the model, its name, how it is checked.)"""
        data, infinite = image(), bytearray(34 * 32)
        struct.pack_into('<e', infinite, 34 * 7, float('inf'))
        zeros, bias = bytes(34 * 32), Tensor(b'blk.0.attn_q.bias', F32, (32,), bytes(128))
        extra = [Tensor(b'v.blk.%d.attn_q.weight' % at, F32, (1,), b'\0\0\x80?') for at in range(9)]
        parts = [(2, ['one part of a file', 'join them first'], part, name, '--check') for name, part in (
            ('m.gguf.part1of2', data[:6000]), ('m.gguf.part2of2', data[6000:]), ('m.gguf-split-b', data[6000:]), ('m.gguf.002', data[6000:]))]
        for status, words, model, name, option in (
                (0, [], data, NAME, '--check'), (0, [], data, NAME, '--check=full'),
                (0, ['warning: 8 extra bytes'], image(how={'trailing': b'\1' * 8}), NAME, '--check'),
                (1, ['error: is u64, must be u32', 'general.file_type'], image(general__file_type=Value('u64', 7)), NAME, '--check'),
                (0, ['note: ', 'Tiny-3.5K-v1.0-Q8_0.gguf'], data, 'model.gguf', '--check'),
                (2, ['error: ', "'GGUX' is not 'GGUF'"], b'GGUX' + data[4:], NAME, '--check'),
                (2, ['error: 1088 bytes are missing'], data[:-1088], NAME, '--check'), (2, ['error: '], b'', NAME, '--check'),
                (0, [], image(bytes(infinite)), NAME, '--check'),
                (1, ['1 blocks have a NaN or infinite scale', 'element 224', '32 values are NaN, 0 are infinite'],
                 image(bytes(infinite)), NAME, '--check=full'),
                (0, ['warning: every byte is zero', 'attn_q.weight'], gguf.encode(keys(), tensors(zeros) + [bias]), NAME, '--check=full'),
                (1, ['9 of 20 have a name', 'v.blk.3.attn_q.weight', ', ... (tensors)'], gguf.encode(keys(), tensors() + extra), NAME, '--check'),
                (2, ["PrismML's old Q2_0"], self.old_q2(), NAME, '--check'), (2, ["PrismML's old Q2_0"], self.old_q2() + bytes(16), NAME, '--check'),
                *parts):
            with self.subTest(words=words, option=option, name=name):
                self.finds(status, *words, data=model, name=name, option=option,
                           ignore='missing' if name.endswith('.gguf') else 'file-name')
        done = check('--check', self.file(data), self.file(image(llama__context_length=None), 'odd.gguf'), mountlib.path('none.gguf'))
        self.assertEqual((done.returncode, done.err), (2, ''))  # the worst counts
        self.assertIn(mountlib.path('none.gguf') + ': error: ', done.out)

    @staticmethod
    def old_q2():
        """Blocks of 34 bytes for 128 values, under the id of Q2_0."""
        rows = [Tensor(b'blk.0.%s.weight' % name, 42, (256, 64), b'') for name in (b'attn_q', b'attn_k', b'attn_v')]
        size = 256 * 64 // 128 * 34
        head = gguf.header(keys(), rows, [0, size, 2 * size])
        return head + bytes(gguf.pad(len(head), 32) + 3 * size)

    def test_architectures(self):
        """What an architecture takes: fused gates only some of them; a projector needs a type, for everything or for
        images."""
        for arch, missing in (('qwen3moe', True), ('gpt-oss', True), ('qwen3next', False)):
            kv, rows = published.small(next(m for m in published.MODELS if m.arch == arch), L=4)
            rows = [row._replace(name=row.name.replace(b'gate_exps', b'gate_up_exps'),
                                 dims=(row.dims[0], 2 * row.dims[1], *row.dims[2:])) if b'gate_exps.weight' in row.name else row
                    for row in rows if b'up_exps.weight' not in row.name]
            self.misses(kv, rows, 'blk.0.ffn_gate_exps.weight' if missing else None)
        kv, rows = published.make(next(m for m in published.MODELS if m.arch == 'clip'))
        for name, missing in ((b'projector_type', False), (b'vision.projector_type', False), (b'vision.type', True)):
            self.misses([(key.replace(b'clip.projector_type', b'clip.' + name), value) for key, value in kv],
                        rows, 'clip.projector_type' if missing else None)

    def misses(self, kv, rows, name):
        published.write(kv, rows, mountlib.path('misses.gguf'))
        done = check('--check', mountlib.path('misses.gguf'))
        self.assertEqual(done.returncode, 1 if name else 0, done.out)
        if name:
            self.assertIn(name + ' is missing', done.out)

    def test_strict(self):
        """Warnings count only with --strict, and notes never count."""
        warned = self.file(image(how={'trailing': b'\1' * 8}))
        self.assertEqual(check('--check', warned).returncode, 0)
        done = check('--check', '--strict', warned)
        self.assertEqual((done.returncode, done.out), (1, check('--check', warned).out))
        self.assertEqual(check('--check=full', '--strict', '--json', warned).returncode, 1)
        noted = self.file(image(how={'big': True}))
        self.assertEqual(check('--check', '--strict', noted).returncode, 0)

    def test_ignore(self):
        odd = self.file(image(llama__context_length=None, how={'trailing': b'\1' * 8}), 'odd.gguf')
        def rules(*options):
            done = check('--check', '--json', *options, odd)
            return done.returncode, [f['rule'] for f in json.loads(done.out)[0]['findings']]
        self.assertEqual(rules(), (1, ['trailing', 'required', 'file-name']))
        self.assertEqual(rules('--ignore=required'), (0, ['trailing', 'file-name']))
        self.assertEqual(rules('--ignore=required', '--strict'), (1, ['trailing', 'file-name']))
        self.assertEqual(rules('--ignore=trailing,file-name'), (1, ['required']))
        self.assertEqual(rules('--ignore=trailing', '--ignore=required,', '--ignore=file-name'),
                         (0, []))
        for word, meant in (('reqired', "did you mean 'required'?"), ('qqqqqqqqqq', 'unknown rule')):
            done = check('--check', '--ignore=utf8,' + word, odd)
            self.assertEqual((done.returncode, done.out), (2, ''))
            self.assertIn(word, done.err)
            self.assertIn(meant, done.err)

    # ---- called by its name ----

    def test_forks(self):
        """The type of a fork, and whose it is, once for each type."""
        ids = (142, 142, 143, 144, 212)
        rows = [Tensor(b'blk.0.%d.weight' % at, kind, (256, 64), b'') for at, kind in enumerate(ids)]
        head = gguf.header([], rows, [4096 * at for at in range(len(ids))])
        out = check('--check', self.file(head + bytes(gguf.pad(len(head), 32) + 4096 * len(ids)))).out
        for note in ("is PQ2_0 (type 142), which only PrismML's llama.cpp reads (2 tensors) (tensor 'blk.0.0.weight')",
                     "is PTQ1_0 (type 143), which only PrismML's llama.cpp reads (tensor 'blk.0.2.weight')",
                     "is IQ4_KS (type 144), which only ik_llama.cpp reads (tensor 'blk.0.3.weight')",
                     "is Q4_K with interleaved rows (type 212), which only ik_llama.cpp reads (tensor 'blk.0.4.weight')"):
            self.assertEqual(out.count(f': note: {note}\n'), 1, out)
        self.assertEqual(out.count(' reads '), 4)

    def test_duplicate_tokens(self):
        """Both numbers of each; empty tokens do not count."""
        words = [b'a', b'', b'b', b'', b'a', b'b', b'a', b'c']
        rows = [t._replace(dims=(32, 8), data=t.data * 2) if t.name.startswith(b'token_embd') else t for t in tensors()]
        model = self.file(gguf.encode(keys(tokenizer__ggml__tokens=gguf.array('string', words)), rows))
        self.assertEqual(check('--check', '--ignore=file-name,size-label', model).out, ''.join(
            f"{model}: error: tokens {a} and {b} are both '{text}' (key 'tokenizer.ggml.tokens')\n"
            for a, b, text in ((0, 4, 'a'), (2, 5, 'b'), (0, 6, 'a'))))

    def test_endless_hole(self):
        """Only a part of a sparse file with a terabyte between its tensors is read."""
        gap, data = 1 << 40, image()
        start, begin = (gguf.read(data).tensors[i].offset for i in (0, -1))
        at = data.rindex(struct.pack('<Q', begin - start), 0, start)
        model = self.file(data[:at] + struct.pack('<Q', begin - start + gap) + data[at + 8:begin])
        try:
            with open(model, 'r+b') as file:
                file.seek(begin + gap)
                file.write(data[begin:])
        except OSError:
            self.skipTest('no file of a terabyte here')
        lines = check('--check', model).out
        self.assertIn('note: only part of it was read (padding)', lines)
        self.assertIn(f'{gap} bytes late: ggml refuses gaps', lines)
        with Mount(model, '-o', 'ro') as at:
            shown = mountlib.get(os.path.join(at, 'check')).decode()
            self.assertEqual(shown, lines.replace(model, NAME))

    # ---- directories ----

    def tree(self, *paths, data=image()):
        """Make a directory with a model for each path; links are (path, target)."""
        for path in paths:
            if isinstance(path, tuple):
                self.link(*path)
            else:
                self.put(path, data)
        return self.top

    def files(self, *arguments, status=0):
        """Return the checked files, in order, one object each."""
        done = check('--check', '--json', *arguments)
        self.assertEqual(done.returncode, status, done.out + done.err)
        return [model['file'] for model in json.loads(done.out)]

    def test_folder(self):
        """All models in the directory and below it are checked, sorted by name, and no other
        files."""
        top = self.tree('b.gguf', 'a/z.GGUF', 'a/y.gguf', 'c/deep/er/x.gguf', '.hidden/h.gguf',
                        'a/.h.gguf', 'a/README.md', 'gguf', 'B.gguf')
        os.mkfifo(os.path.join(top, 'fifo.gguf'))
        want = ['B.gguf', 'a/y.gguf', 'a/z.GGUF', 'b.gguf', 'c/deep/er/x.gguf']
        self.assertEqual(self.files(top), [f'{top}/{name}' for name in want])
        self.assertEqual(self.files(top + '/'), [f'{top}/{name}' for name in want])
        self.assertEqual(self.files(top + '/c', top + '/b.gguf'),
                         [f'{top}/c/deep/er/x.gguf', f'{top}/b.gguf'])

    def test_folder_links(self):
        """Links are followed as in a mount: no parent of the directory is visited; a dangling link is
        an error."""
        top = self.tree('in/real/m.gguf', ('in/again', 'real'), ('in/loop', '.'), ('in/up', '../..'),
                        ('in/root', '/'), ('in/other', '../out'), 'out/o.gguf',
                        ('in/file.gguf', 'real/m.gguf'))
        self.assertEqual(self.files(top + '/in'),
                         [f'{top}/in/{name}' for name in ('again/m.gguf', 'file.gguf', 'other/o.gguf', 'real/m.gguf')])
        os.symlink('nowhere', top + '/in/none.gguf')
        self.assertIn(f'{top}/in/none.gguf', self.files(top + '/in', status=2))

    def test_stores(self):
        """Models in stores have the names that people know, including in their findings; broken
        models stand beside valid ones."""
        odd, commit, digest = image(llama__context_length=None), 40 * '1', 64 * 'a'
        hub, library = 'hub/models--org--name', 'o/manifests/registry.ollama.ai/library/'
        top = self.tree(f'{hub}/snapshots/{commit}/Tiny-3.5K-v1.0-Q8_0.gguf', f'{hub}/snapshots/.x/no.gguf',
                        f'o/blobs/sha256-{digest}', data=odd)
        for path, text in ((f'{hub}/refs/main', commit), (library + 'broken/1', '[]'),
                           (library + 'tiny/1k', manifest(('model', digest)))):
            mountlib.put(f'{top}/{path}', text)
        done = check('--check', top)
        self.assertEqual(done.returncode, 2)
        missing = ': error: the required key llama.context_length is missing (metadata)\n'
        self.assertEqual(done.out, f'{top}/hub/org/name/Tiny-3.5K-v1.0-Q8_0.gguf' + missing
                         + f'{top}/o/broken:1: error: manifest: is not a manifest: no JSON object '
                         f'(store)\n{top}/o/tiny:1k/model' + missing)
        self.assertEqual(self.files(top, status=2),
                         [f'{top}/{name}' for name in ('hub/org/name/Tiny-3.5K-v1.0-Q8_0.gguf',
                                                       'o/broken:1', 'o/tiny:1k/model')])
        shown = run(GGUFS, '--info', top).out.splitlines()
        self.assertEqual([line.split()[0] for line in shown[1:]],
                         ['hub/org/name/Tiny-3.5K-v1.0-Q8_0.gguf', 'o/broken:1', 'o/tiny:1k/model'])

    @unittest.skipIf(os.getuid() == 0, 'root may read everything')
    def test_folder_unreadable(self):
        """An unreadable directory is reported, and the others are checked."""
        top = self.tree('a/m.gguf', 'c/m.gguf', 'd.gguf')
        os.chmod(top + '/a', 0)
        self.addCleanup(os.chmod, top + '/a', 0o755)
        done = check('--check', '--ignore=file-name', top)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.out, f'{top}/a: error: Permission denied (directory)\n')
        self.assertEqual(self.files(top, status=2),
                         [f'{top}/{name}' for name in ('a', 'c/m.gguf', 'd.gguf')])

    def test_folder_with_a_mount(self):
        """A mount of ggufs inside the directory is skipped."""
        top = self.tree('m.gguf')
        os.mkdir(top + '/mnt')
        with Mount(top + '/m.gguf', at=top + '/mnt'):
            self.assertEqual(self.files(top), [top + '/m.gguf'])

    def test_json(self):
        odd = self.file(image(llama__context_length=None), 'odd\udcff"name.gguf')
        done = check('--check', '--json', self.file(image()), odd)
        self.assertEqual(done.returncode, 1)
        good, bad = json.loads(done.out)
        self.assertEqual(good['result'], 'clean')
        self.assertEqual(good['findings'], [])
        self.assertEqual(bad['result'], 'findings')
        self.assertEqual((good['shards'], bad['shards']), (0, 0))
        self.assertEqual({f['file'] for f in bad['findings']}, {bad['file']})
        self.assertTrue(bad['file'].endswith('odd\\xff"name.gguf'), bad['file'])
        self.assertEqual([(f['severity'], f['rule']) for f in bad['findings']],
                         [('error', 'required'), ('note', 'file-name')])
        self.assertEqual(set(bad['findings'][0]), {'severity', 'rule', 'file', 'what', 'where'})

    def test_link(self):
        """The name of the link is checked, since files in a download cache are named by hashes."""
        blob, link = self.put('blob'), f'{self.top}/links/{NAME}'
        self.link(link, '../blob')
        self.assertEqual(check('--check', link).returncode, 0)
        self.assertIn('by convention it should be ', check('--check', '--strict', blob).out)
        with Mount(link, '-o', 'ro') as at:
            self.assertEqual(mountlib.get(at + '/check'), b'')
            self.assertIn(f'file:            {NAME}\n', mountlib.get(at + '/info').decode())

    # ---- in the mount ----
    
    def test_mount_follows_edits(self):
        with Mount(self.file(image())) as at:
            name = os.path.join(at, 'check')
            self.assertEqual(mountlib.get(name), b'')
            mountlib.put(os.path.join(at, 'metadata/llama.attention.head_count'), '5\n')
            self.assertIn(b'5 heads do not divide embedding_length (32)', mountlib.get(name))
            self.assertEqual(os.stat(name).st_size, len(mountlib.get(name)))

    # ---- published models ----

    def test_published(self):
        """No published model has an error or a warning."""
        folder = mountlib.folder_at('published')
        for model in published.MODELS:
            published.write(*published.make(model), os.path.join(folder, model.name + '.gguf'))
        done = check('--check', '--strict', folder)
        self.assertEqual([line for line in done.out.splitlines() if ': note: ' not in line], [])
        self.assertEqual((done.returncode, done.err), (0, ''))
        shutil.rmtree(folder)

    def test_changed(self):
        """A change that llama.cpp refuses is an error. A change that it accepts is not, except for a
        template that it does not use. Lines fit a terminal unless names are
        long."""
        loads, wrong = mutations.loads(), []
        folder = mountlib.path('changed')
        for name, model in mutations.MODELS.items():
            os.makedirs(folder)
            changes = [what for what, *_ in mutations.mutations(*model)]
            for at, (_, kv, rows) in enumerate(mutations.mutations(*model)):
                published.write(kv, rows, f'{folder}/{at:04}.gguf')
            found = json.loads(check('--check', '--json', folder).out)
            shutil.rmtree(folder)
            for what, model in zip(changes, found, strict=True):
                rules = {f['rule'] for f in model['findings'] if f['severity'] == 'error'}
                if rules - {'chat-template'} if what in loads[name] else not rules:
                    wrong.append((name, what, rules))
                for f in model['findings']:
                    line = f'm.gguf: {f["severity"]}: {f["what"]} ({f["where"]})'
                    if len(line) > 100 and 'general.' not in what and f['rule'] != 'file-name':
                        wrong.append((name, what, line))
        self.assertEqual(wrong, [], wrong[:20])


STEM = 'Tiny-3.5K-v1.0-Q8_0'


def names(count=2, stem=STEM):
    return [f'{stem}-{no + 1:05}-of-{count:05}.gguf' for no in range(count)]


def split_keys(no):
    return samples.split_keys(no, 2, len(llama.tensors()))


def first(how=None, more=(), **changed):
    """Return the model's embedding and keys."""
    keys = llama.keys(**changed) + split_keys(0) + list(more)
    return gguf.encode(keys, llama.tensors()[:1], **(how or {}))


def second(how=None, more=()):
    return gguf.encode(split_keys(1) + list(more), llama.tensors()[1:], **(how or {}))


class SplitCheck(unittest.TestCase):
    """A directory with a split model. Commands run in it, so that paths are names."""

    def make(self, *files, stem=STEM):
        shutil.rmtree(mountlib.path('split'), ignore_errors=True)
        self.folder = mountlib.folder_at('split')
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
        self.make(bytes(data), second({'trailing': b'\1' * 8}, [(b'My.key', Value('u8', 1))]))
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

    def test_clean(self):
        """Neither file has a tensor for each block, or all keys; together they do, also if links have the names of
        shards, and lead to files named by a hash."""
        self.make(first(), second())
        os.mkdir(self.at('blobs'))
        for linked in (False, True):
            for no, name in enumerate(self.names if linked else ()):
                os.rename(self.at(name), self.at('blobs/%064x' % no))
                os.symlink('blobs/%064x' % no, self.at(name))
            self.tells(0)
            self.tells(0, option='--check=full')
            self.assertEqual(self.mounted(), '')

    def test_missing(self):
        for no, name in enumerate(names()):
            self.make(first(), second())
            os.unlink(self.at(name))
            self.tells(2, f'{name}: error: No such file or directory (shard {no + 1} of 2)')
            mountlib.refuses(1, self.at(names()[1 - no]), mountlib.folder_at('at'), names=(name, 'No such file'))

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
