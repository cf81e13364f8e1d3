# SPDX-License-Identifier: MIT
"""A directory of models under one mount: each kind of store, broken models beside valid ones, and
changes while it is mounted."""
import contextlib
import errno
import json
import os
import struct
import unittest

import editlib
import llama
import mountlib
from editlib import Gate, needs_gate
from mountlib import Foreground, GGUFS, Mount, daemon, fails, run, works
from shelflib import (A64, B64, C64, COMMIT, LIBRARY, OTHER, Shelf, contents, descriptors, listing,
                      manifest, shards)


STORE = 'it is a store of models: edit a copy of a model.gguf (cp --no-preserve=mode)'


class Stores(Shelf):
    def same(self, at, name, model, *options):
        """Check that a model's tree is identical to that of its own mount."""
        with Mount(os.path.join(self.top, model), *options) as alone:
            self.assertEqual(contents(os.path.join(at, name), model), contents(alone, model))

    def listed(self, at, mode, reason):
        found = [row for row in json.loads(run(GGUFS, '--list', '--json').out) if row['mountpoint'] == at]
        self.assertEqual([(row['model'], row['mode'], row['reason']) for row in found], [(self.top, mode, reason)])

    @unittest.skipIf(os.getuid() == 0, 'root may read all')
    def test_not_to_be_read(self):
        """Even the user's own model cannot be read if its mode denies reading."""
        os.chmod(self.put('m.gguf'), 0)
        with Mount(self.top) as at:
            self.assertEqual(sorted(os.listdir(at + '/m.gguf')), ['error', 'source'])
            self.assertIn(b'Permission denied', mountlib.get(at + '/m.gguf/error'))

    def test_plain(self):
        self.put('a.gguf')
        self.put('sub/B.GGUF', llama.image(general__name=llama.text('B')))
        self.put('sub/50%.gguf')
        for i, data in enumerate(shards()):
            self.put(f's-0000{i + 1}-of-00002.gguf', data)
        for name in ('.hidden/h.gguf', 'sub/.h.gguf', 'README.md'):
            self.put(name)
        os.mkfifo(os.path.join(self.top, 'fifo.gguf'))
        self.link('linked.gguf', 'sub/B.GGUF')
        self.link('again.gguf', './linked.gguf')
        self.link('loop', '.')
        with Mount(self.top) as at:
            self.assertEqual(listing(at), ['a.gguf', 'again.gguf', 'linked.gguf', 's.gguf', 'sub', 'sub/50%25.gguf',
                                           'sub/B.GGUF'])
            for name, model in (('a.gguf', 'a.gguf'), ('sub/B.GGUF', 'sub/B.GGUF'),
                                ('s.gguf', 's-00001-of-00002.gguf'), ('linked.gguf', 'linked.gguf'),
                                ('again.gguf', 'again.gguf')):
                with self.subTest(name=name):
                    self.same(at, name, model)
            self.assertEqual(os.readlink(at + '/a.gguf/source'), self.top + '/a.gguf')
            self.assertEqual(os.readlink(at + '/linked.gguf/source'), self.top + '/sub/B.GGUF')
            self.assertEqual(sorted(os.listdir(at + '/s.gguf/source')),
                             ['s-00001-of-00002.gguf', 's-00002-of-00002.gguf'])
            self.assertEqual(os.readlink(at + '/s.gguf/source/s-00002-of-00002.gguf'),
                             self.top + '/s-00002-of-00002.gguf')
            self.assertEqual(mountlib.get(at + '/a.gguf/source'), llama.image())

    def test_links_in_a_circle(self):
        """Programs that walk directories that link to each other come to an end: below a directory
        that was reached by a link, no links to directories are shown."""
        self.put('b/m.gguf')
        for link, target in (('a/to', '../b'), ('b/to', '../c'), ('c/to', '../a'), ('c/back', '../b'),
                             ('x.gguf', 'y.gguf'), ('y.gguf', 'x.gguf'), ('self', 'self')):
            self.link(link, target)
        with Mount(self.top) as at:
            self.assertEqual(listing(at), ['a', 'a/to', 'a/to/m.gguf', 'b', 'b/m.gguf', 'b/to', 'c', 'c/back',
                                           'c/back/m.gguf', 'c/to', 'x.gguf', 'y.gguf'])
            self.assertIn(b'a link on the way', mountlib.get(at + '/x.gguf/error'))
            for command in ('find', 'du'):
                works(command, at)

    def test_hugging_face(self):
        hub = 'models--org--name/'
        self.put(hub + 'blobs/' + A64)
        self.link(f'{hub}snapshots/{COMMIT}/m.gguf', '../../blobs/' + A64)
        self.put(f'{hub}snapshots/{OTHER}/old.gguf')
        self.put(hub + 'refs/main', COMMIT.encode())
        self.put(f'{hub}.no_exist/{COMMIT}/x.gguf', b'')
        self.put('.locks/x', b'')
        self.put('datasets--org--data/refs/main', b'')
        with Mount(self.top) as at:
            self.listed(at, 'ro', STORE)
            self.assertEqual(listing(at), ['datasets--org--data', 'datasets--org--data/refs', 'org', 'org/name',
                                           'org/name/m.gguf', f'org/name@{OTHER}',
                                           f'org/name@{OTHER}/old.gguf'])
            self.assertEqual(os.readlink(at + '/org/name/m.gguf/source'),
                             f'{self.top}/{hub}blobs/{A64}')
            self.assertEqual(os.getxattr(at + '/org/name/m.gguf', 'user.gguf.readonly'),
                             b'it lies in a store of models: edit a copy of model.gguf (cp --no-preserve=mode)')
            fails(errno.EROFS, editlib.write, at + '/org/name/m.gguf', 'general.name', 'x')
            fails(errno.EROFS, os.open, at + '/org/name/m.gguf/metadata/general.name',
                  os.O_RDONLY | os.O_TRUNC)
            self.assertEqual(os.listxattr(at), ['user.gguf.readonly'])
            self.assertEqual(os.getxattr(at, 'user.gguf.readonly'), STORE.encode())
            self.put(hub + 'refs/main', OTHER.encode())  # another revision is pulled
            editlib.until(lambda: os.listdir(at + '/org/name') == ['old.gguf'])  # within a second
        self.assertEqual(mountlib.get(os.path.join(self.top, hub, 'blobs', A64)), llama.image())

    def test_ollama(self):
        self.put('blobs/sha256-' + A64)
        self.put('blobs/sha256-' + C64)
        self.put('blobs/sha256-' + B64, b'{{ .Prompt }}')
        self.put(LIBRARY + '/tiny/1k', manifest(('model', A64), ('template', B64), ('adapter', A64),
                                                ('adapter', C64)))
        self.put(LIBRARY + '/tiny/tensors', manifest(('tensor', A64)))
        self.put('manifests/registry.ollama.ai/me/mine/latest', manifest(('model', A64)))
        self.put('manifests/example.org/library/far/q4', manifest(('model', A64)))
        self.put(LIBRARY + '/broken/1', manifest(('model', '../../../etc/passwd')))
        with Mount(self.top) as at:
            models = {'broken:1', 'tiny:tensors', 'tiny:1k/model', 'tiny:1k/adapter',
                      'tiny:1k/adapter~2', 'me/mine:latest/model', 'example.org/library/far:q4/model'}
            above = {'tiny:1k', 'me', 'me/mine:latest', 'example.org', 'example.org/library',
                     'example.org/library/far:q4', 'tiny:1k/template'}
            self.listed(at, 'ro', STORE)
            self.assertEqual(listing(at), sorted(models | above))
            self.assertEqual(mountlib.get(at + '/tiny:1k/template'), b'{{ .Prompt }}')
            self.assertEqual(os.stat(at + '/tiny:1k/template').st_size, 13)
            fails(errno.EROFS, editlib.write, at + '/tiny:1k/model', 'general.name', 'x')
            self.assertIn(b'digest', mountlib.get(at + '/broken:1/error'))
            self.assertEqual(sorted(os.listdir(at + '/broken:1')), ['error', 'source'])
        with Mount(self.top, '-o', 'ro') as at:
            self.same(at, 'tiny:1k/model', 'blobs/sha256-' + A64, '-o', 'ro')

    def test_equal_names(self):
        """A namespace and a host of an ollama store have the same name, which may be as long as a name
        can be: one of them gets a number."""
        self.put('blobs/sha256-' + A64)
        long = 250 * 'x'
        for name in ('same', long):
            self.put(f'manifests/registry.ollama.ai/{name}/m/1', manifest(('model', A64)))
            self.put(f'manifests/{name}/library/m/1', manifest(('model', A64)))
        with Mount(self.top) as at:
            names = os.listdir(at)
            self.assertEqual(sorted(names), sorted(['same', 'same~2', long, long[:247] + '~2']))
            self.assertEqual(sum(os.path.exists(f'{at}/{name}/m:1/model') for name in names), 2)
            self.assertEqual(sum(os.path.exists(f'{at}/{name}/library/m:1/model') for name in names), 2)

    def test_name_with_a_number(self):
        """A name that would get a number has a number already: a real directory keeps its name."""
        self.put(f'models--org--name/snapshots/{COMMIT}/m.gguf')
        self.put('org/a.gguf')
        self.put('org~2/b.gguf')
        with Mount(self.top) as at:
            self.assertEqual(listing(at), ['org', 'org/a.gguf', 'org~2', 'org~2/b.gguf', 'org~2~2', 'org~2~2/name',
                                           'org~2~2/name/m.gguf'])

    def test_broken(self):
        """Broken models stand beside valid ones; each has the line that a mount would print."""
        self.put('whole.gguf')
        self.put('cut.gguf', llama.image()[:-1088])
        self.put('html.gguf', b'<!DOCTYPE html><html>secret')
        self.put('empty.gguf', b'')
        self.link('nowhere.gguf', 'gone')
        self.put('half-00001-of-00002.gguf', next(shards()))
        with Mount(self.top) as at:
            for name, word in (('cut', '1088 bytes are missing'), ('html', 'HTML'), ('empty', 'empty'),
                               ('nowhere', 'No such file'), ('half', 'half-00002-of-00002.gguf')):
                with self.subTest(name=name):
                    folder = f'{at}/{name}.gguf'
                    self.assertEqual(sorted(os.listdir(folder)), ['error', 'source'])
                    line = mountlib.get(folder + '/error').decode()
                    self.assertIn(word, line)
                    self.assertEqual((line.count('\n'), line[-1]), (1, '\n'))
                    self.assertNotIn('secret', line)
                    self.assertEqual(os.stat(folder + '/error').st_size, len(line))
                    self.assertFalse(os.path.exists(folder + '/info'))
            self.assertIn(b'Tiny', mountlib.get(at + '/whole.gguf/info'))
            self.assertFalse(os.path.exists(at + '/whole.gguf/error'))
            self.assertEqual(run('find', at, '-name', 'info').out, f'{at}/whole.gguf/info\n')

    def test_other_mount_below(self):
        """Another mount is neither entered nor queried, not even through a link."""
        model = self.put('m.gguf')
        os.mkdir(os.path.join(self.top, 'mnt'))
        self.link('in', 'mnt/tensors')
        self.link('copy.gguf', 'mnt/model.gguf')
        with Mount(model, at=os.path.join(self.top, 'mnt')), Mount(self.top) as at:
            self.assertEqual(listing(at), ['copy.gguf', 'm.gguf'])
            self.assertEqual(mountlib.get(at + '/copy.gguf/error'), b'is in a ggufs mount\n')

    def test_mount_point_in_the_directory(self):
        self.put('a/m.gguf')
        os.mkdir(os.path.join(self.top, 'a/mnt'))
        for at in ('', 'a', 'a/mnt'):
            done = run(GGUFS, os.path.join(self.top, 'a'), os.path.join(self.top, at))
            self.assertEqual(done.returncode, 1)
            self.assertIn('mount it elsewhere', done.err)

    def test_bits(self):
        """The modes of directories follow the directories that they show, and those of models their
        files."""
        os.chmod(self.put('sub/m.gguf'), 0o640)
        os.chmod(self.put('private/m.gguf'), 0o644)
        os.chmod(os.path.join(self.top, 'sub'), 0o750)
        os.chmod(os.path.join(self.top, 'private'), 0o700)
        with Mount(self.top) as at:
            self.assertEqual(os.stat(at + '/private').st_mode & 0o777, 0o700)
            self.assertEqual(os.stat(at + '/private/m.gguf').st_mode & 0o777, 0o555)
            self.assertEqual(os.stat(at + '/sub').st_mode & 0o777, 0o750)
            self.assertEqual(os.stat(at + '/sub/m.gguf').st_mode & 0o777, 0o550)
            self.assertEqual(os.stat(at + '/sub/m.gguf/info').st_mode & 0o777, 0o440)
        with Mount(self.top, '-o', 'umask=077') as at:
            self.assertEqual(os.stat(at + '/sub').st_mode & 0o777, 0o700)
            self.assertEqual(os.stat(at + '/sub/m.gguf').st_mode & 0o777, 0o500)

    def test_acl(self):
        """An ACL gives no more access than the file does, before a model is opened and after."""
        path = self.put('m.gguf')
        entries = ((1, 6, -1), (2, 0, 65533), (4, 4, -1), (16, 4, -1), (32, 4, -1))
        acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHi', *entry) for entry in entries)
        try:
            os.setxattr(path, 'system.posix_acl_access', acl)
        except OSError as e:
            self.skipTest(f'no ACLs here: {e}')
        with Mount(path, '-o', 'ro') as alone:
            bits = os.stat(alone).st_mode
        with Mount(self.top) as at:
            self.assertEqual(os.stat(at + '/m.gguf').st_mode, bits)
            mountlib.get(at + '/m.gguf/info')
            self.assertEqual(os.stat(at + '/m.gguf').st_mode, bits)


class Live(Shelf):
    def test_come_and_go(self):
        self.put('a.gguf')
        with Mount(self.top) as at:
            self.assertEqual(os.listdir(at), ['a.gguf'])
            self.put('b.gguf')
            self.assertIn(b'Tiny', mountlib.get(at + '/b.gguf/info'))
            os.rename(os.path.join(self.top, 'b.gguf'), os.path.join(self.top, 'c.gguf'))
            self.assertEqual(os.listdir(at), ['a.gguf', 'c.gguf'])
            editlib.until(lambda: not os.path.exists(at + '/b.gguf'))
            self.put('sub/d.gguf')
            os.rename(os.path.join(self.top, 'sub'), os.path.join(self.top, 'away'))
            self.assertEqual(listing(at), ['a.gguf', 'away', 'away/d.gguf', 'c.gguf'])
            self.put('e.gguf', llama.image()[:700])  # a download, which goes on
            self.assertEqual(sorted(os.listdir(at + '/e.gguf')), ['error', 'source'])
            self.put('e.gguf')
            editlib.until(lambda: os.path.exists(at + '/e.gguf/info'))
            for name in ('a.gguf', 'c.gguf', 'e.gguf', 'away/d.gguf'):
                os.unlink(os.path.join(self.top, name))
            self.assertEqual(listing(at), ['away'])

    def test_replaced(self):
        """Open files keep their content, and a path leads to the new model within a second."""
        self.put('m.gguf')
        with Mount(self.top) as at:
            before = os.stat(at + '/m.gguf/info').st_ino
            with open(at + '/m.gguf/model.gguf', 'rb', buffering=0) as old:
                self.put('new', llama.image(general__name=llama.text('New')))
                os.rename(os.path.join(self.top, 'new'), os.path.join(self.top, 'm.gguf'))
                editlib.until(lambda: editlib.read(at + '/m.gguf', 'general.name') == b'New\n')
                self.assertEqual(old.read(), llama.image())
            self.assertNotEqual(os.stat(at + '/m.gguf/info').st_ino, before)
            self.assertEqual(os.stat(at + '/m.gguf/info').st_ino,
                             os.stat(at + '/m.gguf/info').st_ino)

    def test_text_that_grows(self):
        """An open text keeps its size and content, and its path leads to the new content within a
        second."""
        self.put('blobs/sha256-' + A64)
        text = self.put('blobs/sha256-' + B64, b'old')
        self.put(LIBRARY + '/m/1', manifest(('model', A64), ('template', B64)))
        with Mount(self.top) as at, open(at + '/m:1/template', 'rb', buffering=0) as old:
            with open(text, 'ab') as file:
                file.write(b' and new')
            editlib.until(lambda: mountlib.get(at + '/m:1/template') == b'old and new')
            self.assertEqual(os.stat(at + '/m:1/template').st_size, len('old and new'))
            self.assertEqual(os.fstat(old.fileno()).st_size, len(old.read()))

    def test_few_descriptors(self):
        """Of many models that are visited in turn, not all are kept open, nor are their
        replacements; inode numbers stay."""
        for i in range(300):
            self.put(f'm{i:03}.gguf')
        with Mount(self.top) as at:
            numbers, files = [], f'/proc/{daemon(at)}/fd'
            for i in range(300):
                numbers.append(os.stat(f'{at}/m{i:03}.gguf/info').st_ino)
                self.assertLess(len(os.listdir(files)), 512)
            self.assertEqual(len(set(numbers)), 300)
            editlib.until(lambda: descriptors(at) < 250)
            self.assertEqual([os.stat(f'{at}/m{i:03}.gguf/info').st_ino for i in range(300)], numbers)
            held = [open(f'{at}/m{i:03}.gguf/info', 'rb') for i in range(100)]
            for i in range(100, 300):
                mountlib.get(f'{at}/m{i:03}.gguf/info')
            for file in held:
                with file:
                    self.assertIn(b'Tiny', file.read())

    def test_descriptors_run_short(self):
        """Idle models make room for others if the process may have only 100 files open."""
        for i in range(60):
            for no, data in enumerate(shards()):
                self.put(f'm{i:02}-0000{no + 1}-of-00002.gguf', data)
        with Foreground(self.top, program=('prlimit', '--nofile=100:100', GGUFS)) as (at, _):
            for _ in range(2):
                held = [open(f'{at}/m{i:02}.gguf/tensors/{llama.tensors()[0].name.decode()}/raw', 'rb')
                        for i in range(8)]
                for i in range(60):
                    self.assertIn(b'llama', mountlib.get(f'{at}/m{i:02}.gguf/info'))
                editlib.write(at + '/m59.gguf', 'general.name', 'New')
                for file in held:
                    with file:
                        self.assertTrue(file.read())

    def test_listing_opens_nothing(self):
        for i in range(50):
            self.put(f'm{i:03}.gguf')
        with Mount(self.top) as at:
            before = descriptors(at)
            self.assertEqual(run('ls', '-lR', '-I', '*.gguf', at).returncode, 0)
            self.assertEqual(run('ls', '-l', at).out.count('.gguf'), 50)
            for name in ('system.posix_acl_access', 'security.selinux'):  # ls then asks for no more of them
                fails(errno.EOPNOTSUPP, os.getxattr, at + '/m000.gguf', name)
            editlib.until(lambda: descriptors(at) <= before)  # files held open at the start may be closed by now


@needs_gate
class Unused(Shelf):
    """The test controls the program's clock, so it does not wait for real time."""

    def setUp(self):
        super().setUp()
        self.clock = self.top + '.clock'
        self.at(0)

    def at(self, seconds):
        mountlib.put(self.clock + '.new', str(seconds * 1000))
        os.rename(self.clock + '.new', self.clock)

    def test_closed_after_a_minute(self):
        """A model that is in use stays open, and so does a model with unwritten edits."""
        for i in range(40):
            self.put(f'm{i:02}.gguf')
        gate = Gate(self.clock)
        with contextlib.ExitStack() as stack:
            with gate.before('GATE_CLOCK'):
                at = stack.enter_context(Mount(self.top, '-o', 'commit=sync'))
            before = descriptors(at)
            numbers = [os.stat(f'{at}/m{i:02}.gguf/info').st_ino for i in range(30)]
            held = stack.enter_context(open(at + '/m00.gguf/model.gguf', 'rb', buffering=0))
            editlib.write(at + '/m01.gguf', 'general.name', 'Pending')
            self.at(59)
            mountlib.get(at + '/m38.gguf/info')  # another model is opened: the clock is checked
            opened = descriptors(at)
            self.assertGreater(opened, before + 60)
            self.at(61)
            mountlib.get(at + '/m39.gguf/info')
            editlib.until(lambda: descriptors(at) < before + 30)
            self.assertEqual(held.read(), llama.image())
            self.assertEqual(editlib.read(at + '/m01.gguf', 'general.name'), b'Pending\n')
            self.assertEqual([os.stat(f'{at}/m{i:02}.gguf/info').st_ino for i in range(2, 30)], numbers[2:])
            held.close()

    @unittest.skipIf(os.getuid() == 0, 'root may write all')
    def test_writable_later(self):
        """The kernel keeps what a read-only model shows. Once the model can be edited, it does not."""
        path = self.put('m.gguf')
        os.chmod(path, 0o444)
        with Gate(self.clock).before('GATE_CLOCK'), Mount(self.top) as at:
            size = len(mountlib.get(at + '/m.gguf/metadata.json'))
            self.assertEqual(os.stat(at + '/m.gguf/metadata.json').st_size, size)
            os.chmod(path, 0o644)
            for minute in (1, 2):
                self.at(minute * 61)
                mountlib.get(f'{at}/{os.path.basename(self.put(f"{minute}.gguf"))}/info')
            fails(errno.ENODATA, os.getxattr, at + '/m.gguf', 'user.gguf.readonly')
            editlib.write(at + '/m.gguf', 'general.name', 'Longer than before')
            size = os.stat(at + '/m.gguf/metadata.json').st_size
            self.assertEqual(size, len(mountlib.get(at + '/m.gguf/metadata.json')))

    def test_no_descriptors(self):
        """While models that are in use take all descriptors, a valid model is not called invalid;
        when they are not in use any more, they make room at once."""
        for i in range(40):
            self.put(f'm{i:02}.gguf')
        for limit in range(60, 66):
            mount, held = Foreground(self.top, program=('prlimit', f'--nofile={limit}:{limit}', GGUFS)), []
            with Gate(self.clock).before('GATE_CLOCK'):
                at, _ = mount.__enter__()
            with self.subTest(limit=limit), self.assertRaises(OSError) as caught:
                for i in range(40):
                    held.append(open(f'{at}/m{i:02}.gguf/info', 'rb'))
            self.assertEqual(caught.exception.errno, errno.EMFILE)
            for file in held:
                file.close()
            editlib.until(lambda at=at: os.path.exists(at + '/m39.gguf'))
            mount.__exit__(None, None, None)
