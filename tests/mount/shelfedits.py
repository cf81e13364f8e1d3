# SPDX-License-Identifier: MIT
"""Edits of models in a directory of models: their results, the state at the end, and the options that
each model gets."""
import errno
import os

import editlib
import ggufmodel as gguf
import llama
import mountlib
from ggufmodel import Tensor, Value
from mountlib import GGUFS, Mount, fails, run
from shelflib import Shelf, value

MODELS = 100  # more than are kept open while unused


class Edits(Shelf):
    def test_edit(self):
        path = self.put('m.gguf')
        model = editlib.Want(llama.image())
        self.put('other.gguf')
        with Mount(self.top, '-o', 'commit=close') as at:
            editlib.write(at + '/m.gguf', 'general.name', 'New')
            self.assertEqual(editlib.read(at + '/m.gguf', 'general.name'), b'New\n')
            model.set(b'general.name', Value('string', b'New'))
            model.check(mountlib.get(path))
            os.rename(at + '/m.gguf/metadata/general.name', at + '/m.gguf/metadata/general.title')
            os.unlink(at + '/m.gguf/metadata/llama.rope.dimension_count')
            editlib.write(at + '/m.gguf', 'my.key', '5')
            editlib.sync(at + '/m.gguf')
            self.assertIn(b'read-write', mountlib.get(at + '/m.gguf/info'))
            self.assertEqual(editlib.read(at + '/other.gguf', 'general.name'), b'Tiny\n')
        keys = [key for key, _ in gguf.read(mountlib.get(path)).kv]
        self.assertIn(b'general.title', keys)
        self.assertNotIn(b'llama.rope.dimension_count', keys)
        self.assertEqual(mountlib.get(os.path.join(self.top, 'other.gguf')), llama.image())
        self.assertEqual(sorted(os.listdir(self.top)), ['m.gguf', 'other.gguf'])

    def test_kernel_keeps_nothing_stale(self):
        """Data read before the first edit is not shown after it."""
        self.put('m.gguf')
        with Mount(self.top) as at:
            folder = at + '/m.gguf/'
            names = ['info', 'metadata.json', 'model.gguf', 'metadata/general.name',
                     'metadata/general.file_type']
            before = {name: mountlib.get(folder + name) for name in names}
            with open(folder + 'metadata.json', 'rb', buffering=0) as old:
                editlib.write(at + '/m.gguf', 'general.name', 'A much longer name than before')
                after = {name: mountlib.get(folder + name) for name in names}
                self.assertEqual(old.read(), before['metadata.json'])
            self.assertEqual([name for name in names if before[name] == after[name]],
                             ['metadata/general.file_type'])
            for name in names:
                self.assertEqual(os.stat(folder + name).st_size, len(after[name]))
            self.assertIn(b'A much longer name', after['model.gguf'])

    def test_follows_its_path(self):
        """An edit goes to the file to which the name leads now, also if another one was edited."""
        first, second = self.put('a.gguf'), self.put('b.gguf')
        self.put('x/m.gguf')
        self.put('z/m.gguf')
        link, at_ = os.path.join(self.top, 'link.gguf'), lambda name: os.path.join(self.top, name)
        os.symlink('a.gguf', link)
        with Mount(self.top, '-o', 'commit=close') as at:
            for name in ('link.gguf', 'x/m.gguf'):
                editlib.write(f'{at}/{name}', 'general.name', 'First')
            os.unlink(link)
            os.symlink('b.gguf', link)
            os.rename(at_('x'), at_('y'))
            os.rename(at_('z'), at_('x'))
            for name in ('link.gguf', 'x/m.gguf'):
                editlib.until(lambda name=name: editlib.read(f'{at}/{name}', 'general.name') == b'Tiny\n')
                editlib.write(f'{at}/{name}', 'general.name', 'Second')
        self.assertEqual([value(path) for path in (first, second, at_('y/m.gguf'), at_('x/m.gguf'))],
                         [b'First', b'Second', b'First', b'Second'])

    def test_not_a_models(self):
        """Names of the shelf itself cannot be changed."""
        self.put('a.gguf')
        self.put('sub/b.gguf')
        with Mount(self.top) as at:
            for call, *arguments in ((os.mkdir, at + '/x'), (os.rmdir, at + '/sub'),
                                     (os.unlink, at + '/a.gguf/source'),
                                     (os.rename, at + '/sub', at + '/other'),
                                     (os.rename, at + '/a.gguf', at + '/b.gguf'),
                                     (os.mkdir, at + '/a.gguf/x'), (open, at + '/x.gguf', 'w'),
                                     (open, at + '/a.gguf/x', 'w'),
                                     (os.rename, at + '/a.gguf/source', at + '/a.gguf/x')):
                with self.subTest(call=call.__name__, arguments=arguments), \
                        self.assertRaises(OSError) as caught:
                    call(*arguments)
                # In a model's directory, which has no write bits, the kernel itself refuses most
                # users.
                first = os.geteuid() != 0 and '/a.gguf/' in arguments[0]
                self.assertEqual(caught.exception.errno, errno.EACCES if first else errno.EPERM)
            fails(errno.EPERM, os.symlink, 'a', at + '/l')
            fails(errno.EXDEV, os.rename, at + '/a.gguf/metadata/general.name',
                  at + '/sub/b.gguf/metadata/general.name')
        self.assertEqual(mountlib.get(os.path.join(self.top, 'a.gguf')), llama.image())

    def test_two_names(self):
        """A model with two names is edited under one of them; the other shows it within a second."""
        self.put('m.gguf')
        self.link('link.gguf', 'm.gguf')
        self.link('again', 'sub')
        self.put('sub/m.gguf')
        with Mount(self.top, '-o', 'commit=close') as at:
            for one, other in (('m.gguf', 'link.gguf'), ('again/m.gguf', 'sub/m.gguf')):
                self.assertEqual(editlib.read(at + '/' + other, 'general.name'), b'Tiny\n')
                editlib.write(at + '/' + one, 'general.name', 'New')
                editlib.until(lambda other=other: editlib.read(at + '/' + other, 'general.name') == b'New\n')
                fails(errno.EBUSY, editlib.write, at + '/' + other, 'general.name', 'Third')
                self.assertIn('another process', editlib.error_of(at + '/' + other, 'general.name'))

    def test_renamed(self):
        """A model that was edited and renamed is edited under its new name."""
        for commit in ('close', 'sync'):
            path = self.put('old.gguf')
            with self.subTest(commit=commit), Mount(self.top, '-o', 'commit=' + commit) as at:
                editlib.write(at + '/old.gguf', 'general.name', 'First')
                editlib.sync(at + '/old.gguf')
                os.rename(path, self.top + '/new.gguf')
                editlib.until(lambda at=at: editlib.read(at + '/new.gguf', 'general.name') == b'First\n')
                # the old name may be in use until its last handle is released, which comes late: EBUSY
                editlib.until(lambda at=at: not editlib.Call(editlib.write, at + '/new.gguf', 'general.name', 'Second').wait())
            self.assertEqual(value(self.top + '/new.gguf'), b'Second')

    @editlib.needs_gate
    def test_opened_twice(self):
        """A model is edited while another thread is still opening it."""
        path = self.put('m.gguf')
        gate, mount, at, _ = editlib.gated(self, 'GATE_ACCESS', self.top, '-o', 'commit=sync,relayout=copy')
        worker = gate.hold(os.stat, at + '/m.gguf/info')
        gate.let_others()
        editlib.write(at + '/m.gguf', 'general.name', 'First', fsync=True)
        editlib.write(at + '/m.gguf', 'general.name', 'Second')
        gate.open()
        self.assertIsNone(worker.wait())
        os.listdir(at)  # names are looked up anew
        self.assertEqual(editlib.read(at + '/m.gguf', 'general.name'), b'Second\n')
        editlib.write(at + '/m.gguf', 'general.name', 'Third')
        mount.__exit__(None, None, None)
        self.assertEqual(value(path), b'Third')

    @editlib.needs_gate
    def test_others_while_one_is_written(self):
        """A model that is being written stays open, even if many others are opened, and does not hold
        up the edit of another one."""
        data = bytes(40 << 20)  # the old file's memory is freed before the reply
        path = self.put('m.gguf', gguf.encode(llama.keys(), [Tensor(b'w', 24, (len(data),), data)]))
        for i in range(MODELS):
            self.put(f'm{i:02}.gguf')
        gate, mount, at, _ = editlib.gated(self, 'GATE_FREE', self.top, '-o', 'commit=close,relayout=copy')
        worker = gate.hold(os.truncate, at + '/m.gguf/metadata/general.name', 2)
        for i in range(MODELS):
            os.stat(f'{at}/m{i:02}.gguf/info')
        editlib.write(at + '/m00.gguf', 'general.name', 'Near')
        self.assertEqual(value(self.top + '/m00.gguf'), b'Near')
        gate.open()
        self.assertIsNone(worker.wait())
        self.assertEqual(os.stat(at + '/m.gguf/metadata/general.name').st_size, len('Ti\n'))
        mount.__exit__(None, None, None)
        self.assertEqual(value(path), b'Ti')

    def test_how_it_is_written(self):
        """Options for how edits are written: commit, relayout, reserve, history."""
        path = self.put('m.gguf')
        with Mount(self.top, '-o', 'commit=sync') as at:
            editlib.write(at + '/m.gguf', 'general.name', 'Later')
            self.assertEqual(value(path), b'Tiny')
        self.assertEqual(value(path), b'Later')
        os.link(path, os.path.join(self.top, 'second'))
        with Mount(self.top, '-o', 'commit=close') as at:
            fails(errno.EMLINK, editlib.write, at + '/m.gguf', 'general.name', 'Linked')
        os.unlink(os.path.join(self.top, 'second'))
        options = 'commit=close,relayout=copy,reserve=4096,history=0'
        with Mount(self.top, '-o', options) as at:
            editlib.write(at + '/m.gguf', 'general.name', 'Copied')
            self.assertEqual(value(path), b'Copied')
            self.assertIn(editlib.RESERVE, dict(gguf.read(mountlib.get(path)).kv))
            self.assertNotEqual(run(GGUFS, '--undo', at + '/m.gguf').returncode, 0)
        inode = os.stat(path).st_ino
        with Mount(self.top, '-o', 'commit=close,relayout=inplace') as at:
            editlib.write(at + '/m.gguf', 'general.name', 'In place')
        self.assertEqual((os.stat(path).st_ino, value(path)), (inode, b'In place'))
