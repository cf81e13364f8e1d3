# SPDX-License-Identifier: MIT
"""`info` at the root of the mount, and ggufs --info, which prints the same for models and
directories."""
import errno
import json
import os
import unittest

import editlib
import ggufmodel as gguf
import llama
import mountlib
import samples
from ggufmodel import array
from llama import NAME, image
from mountlib import GGUFS, Mount, fails, run


def mount_line(at):
    """Return the line about the mount in `info`, whose size stat reported before."""
    name = os.path.join(at, 'info')
    size = os.stat(name).st_size
    text = mountlib.get(name).decode()
    assert len(text.encode()) == size, (size, text)
    return text.splitlines()[-1].removeprefix('mount:').strip()


class State(unittest.TestCase):
    def model(self):
        return mountlib.put('models/' + NAME, image())

    def write(self, at, text, sync=False):
        with open(os.path.join(at, 'metadata/llama.context_length'), 'w') as file:
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def test_pending(self):
        """An edit is shown before it is written; an earlier handle keeps its content."""
        with Mount(self.model(), '-o', 'commit=sync') as at:
            with open(os.path.join(at, 'info'), 'rb') as before:
                self.write(at, '66\n')
                self.assertEqual(mount_line(at), 'read-write; edits not written yet: 1')
                os.unlink(os.path.join(at, 'metadata/general.file_type'))
                self.assertEqual(mount_line(at), 'read-write; edits not written yet: 2')
                self.write(at, '65\n', sync=True)
                self.assertEqual(mount_line(at), 'read-write')
                text = before.read()
                self.assertIn(b'mount:           read-write\n', text)
                self.assertEqual(os.fstat(before.fileno()).st_size, len(text))

    def test_refused(self):
        with Mount(self.model()) as at:
            fails(errno.EINVAL, self.write, at, 'many\n')
            refused = 'read-write; writes refused (see errors): 1'
            self.assertEqual(mount_line(at), refused)
            with open(os.path.join(at, 'info'), 'rb') as before:
                for key in ('llama.block_count', 'llama.embedding_length', 'llama.rope.dimension_count'):
                    fails(errno.EINVAL, mountlib.put, os.path.join(at, 'metadata', key), 'many\n')
                self.assertEqual(mount_line(at), 'read-write; writes refused (see errors): 4')
                self.assertTrue(before.read().decode().endswith(refused + '\n'))
            for key in ('llama.block_count', 'llama.embedding_length', 'llama.rope.dimension_count'):
                mountlib.put(os.path.join(at, 'metadata', key), '16\n')
            self.write(at, '66\n')
            self.assertEqual(mount_line(at), 'read-write')


def info(*arguments):
    return run(GGUFS, '--info', *arguments)


LONG = 'long_name' * 20


class Command(unittest.TestCase):
    """Tests of --info without a mount."""

    def models(self, **files):
        top = mountlib.path(self.id().rsplit('.', 1)[-1])
        for name, data in files.items():
            mountlib.put(os.path.join(top, name.replace('__', '/') + '.gguf'), data)
        return top

    def test_failures(self):
        """All other models are shown, with one line for each that cannot be."""
        top = self.models(a=image(), bad=b'<html>')
        done = info(top + '/bad.gguf', top + '/a.gguf', top + '/none.gguf')
        self.assertEqual(done.returncode, 1)
        self.assertIn('architecture:    llama\n', done.out)
        self.assertEqual(done.err.count('\n'), 2)
        self.assertIn(f'ggufs: {top}/bad.gguf: magic at byte 0: this is a web page', done.err)
        self.assertIn(f'ggufs: {top}/none.gguf: No such file', done.err)

    def test_folder(self):
        """The table has one line per model, errors as lines, and aligned columns."""
        top = self.models(a=image(), **{'sub__' + LONG: image()},
                          bad=b'PK\3\4\0', none=gguf.encode([], []))
        done = info(top)
        self.assertEqual((done.returncode, done.err), (1, ''))
        head, a, bad, none, other = done.out.splitlines()
        self.assertEqual(head.split(), ['MODEL', 'ARCHITECTURE', 'PARAMETERS', 'SIZE', 'TYPE', 'CONTEXT'])
        self.assertEqual(a.split(), ['a.gguf', 'llama', '3.5K', '11.9', 'KiB', 'Q8_0', '64'])
        self.assertTrue(bad.startswith('bad.gguf'), bad)
        self.assertIn('  error: magic at byte 0: this is a zip archive', bad)
        self.assertEqual(none.split(), ['none.gguf', '-', '0', '24', 'bytes', '-', '-'])
        self.assertTrue(other.startswith('sub/' + LONG))
        self.assertEqual(a.index(' llama'), head.index(' ARCH'))
        self.assertEqual(other.index(' llama'), head.index(' ARCH'))
        self.assertEqual(info(top + '/sub', top).out.count(top), 5)

    def test_shards_missing(self):
        """Of a split model, what is there is shown, also of the beginning of its first file alone; what
        the missing files decide is left out."""
        tensors = llama.tensors()
        parts = samples.shards(llama.keys(llama__vocab=array('string', [b'%05d' % i for i in range(20000)])),
                               [tensors[:2], tensors[2:6], tensors[6:]])
        top = self.models(**{f'm-{i:05}-of-00003': data for i, data in enumerate(parts, 1)})
        first = top + '/m-00001-of-00003.gguf'
        whole = json.loads(info('--json', first).out)[0]
        for gone, size in ((2, None), (3, None), (None, 1 << 17)):
            with self.subTest(gone=gone, size=size):
                if gone:
                    os.unlink(f'{top}/m-{gone:05}-of-00003.gguf')
                else:
                    os.truncate(first, size)
                done = info('--json', first)
                self.assertEqual((done.returncode, done.err), (0, ''))
                found = json.loads(done.out)[0]
                self.assertEqual(found.pop('missing_files'), gone - 1 if gone else 2)
                if size:
                    self.assertEqual(found.pop('missing_keys'), 4)
                    self.assertNotIn('chat_template', found)
                size = found.pop('size')
                self.assertEqual(found, {key: whole[key] for key in found})
                self.assertEqual((found['name'], found['context_length'], found['shards']), ('Tiny', 64, 3))
                for key in 'parameters', 'tensors', 'types', 'bits_per_weight':
                    self.assertNotIn(key, found)
                self.assertIn(f"{gone - 1 if gone else 2} of 3 files are missing\n", info(first).out)
                self.assertIn(' -  ', info(top).out.splitlines()[1])

    def test_incomplete(self):
        top = self.models(cut=image()[:-1088])
        done = info(top + '/cut.gguf')
        self.assertEqual(done.returncode, 0)
        self.assertIn('missing:         1088 bytes of data (an incomplete download)\n', done.out)
        self.assertIn('KiB, incomplete  ', info(top).out)
        with Mount(top + '/cut.gguf', '-o', 'partial') as at:
            self.assertIn(b'missing:         1088 bytes of data', mountlib.get(at + '/info'))

    def test_pipe(self):
        """Of a model in a pipe only the header is read, whatever follows; names and data are not its."""
        top = self.models(a=image(general__description=llama.text('x' * 300000)))
        want = info(top + '/a.gguf').out
        fifo = top + '/fifo'
        os.mkfifo(fifo)
        header = len(mountlib.get(top + '/a.gguf')) - sum(len(t.data) for t in llama.tensors())
        for command, lines, status in (
                (f'head -c {header} a.gguf | {GGUFS} --info -', want.replace('a.gguf', '-'), 0),
                (f'cat a.gguf /dev/zero | {GGUFS} --info /dev/stdin', want.replace('a.gguf', 'stdin'), 0),
                (f'cat a.gguf /dev/zero >fifo & {GGUFS} --info fifo', want.replace('a.gguf', 'fifo'), 0),
                (f'head -c {header} a.gguf | {GGUFS} --check -', '', 0),
                (f'cat a.gguf /dev/zero >fifo & {GGUFS} --check fifo', '', 0),
                (f'cat a.gguf /dev/zero | {GGUFS} --check=full - | grep pipe', None, 0),
                (f'head -c 1000 a.gguf | {GGUFS} --check -', None, 2),
                (f'{GGUFS} --info - </dev/null', None, 1),
                (f'echo "<html>" | {GGUFS} --info -', None, 1)):
            with self.subTest(command):
                done = run('sh', '-c', command, cwd=top)
                self.assertEqual((done.returncode, (done.out + done.err).count('\n') if lines is None else done.out),
                                 (status, 1 if lines is None else lines), done.err)
        mountlib.refuses(1, fifo, mountlib.folder_at('at'))

    def test_like_a_mount(self):
        """An ordinary directory with the attribute of a model's directory is one that may hold models."""
        top = self.models(sub__a=image())
        os.setxattr(top + '/sub', 'user.gguf.source', b'a')
        os.mkfifo(top + '/sub/model.gguf')
        self.assertEqual([line.split()[0] for line in info(top).out.splitlines()], ['MODEL', 'sub/a.gguf'])

    def test_mount(self):
        """A mount, and a model's directory in one, stand for the model, with its edits."""
        top = self.models(a=image(), **{'sub__' + LONG: image()})
        alone = mountlib.put('alone.gguf', image())
        with Mount(alone, '-o', 'commit=sync') as at, Mount(top) as folder:
            for file in at, folder + '/a.gguf':
                editlib.write(file, 'general.name', 'edited')
                self.assertEqual(info(file).out, mountlib.get(file + '/info').decode())
                one, = json.loads(info('--json', file).out)
                self.assertEqual((one['file'], one['name'], one['tensors']), (file, 'edited', 11))
                self.assertEqual(run(GGUFS, '--check', file).out, '')
            self.assertEqual([line.split()[0] for line in info(folder).out.splitlines()],
                             ['MODEL', 'a.gguf', 'sub/' + LONG + '.gguf'])
            self.assertEqual(info(folder + '/sub', at).out.splitlines()[2].split()[0], at)
