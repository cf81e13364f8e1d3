# SPDX-License-Identifier: MIT
"""Mounts beside each other: one writer, waiting for a daemon that still writes, unmounting, and
directories that are mount points; --list; the end of a mount whose daemon is killed, of an idle one, and of
one that another mount covers."""
import ctypes
import errno
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import subprocess
import tempfile
import unittest

import editlib
import mountlib
import samples
import shelflib
from editlib import Gate, needs_gate, read, write
from mountlib import Foreground, GGUFS, Mount, fails, run, works

ROOT = os.getuid() == 0
needs_namespaces = unittest.skipUnless(mountlib.has_namespaces(), 'may not make a mount namespace')
READ_ONLY = 'user.gguf.readonly'


def why(at):
    return os.getxattr(at, READ_ONLY).decode()


class Case(unittest.TestCase):
    def setUp(self):
        self.model = mountlib.put('model.gguf', samples.editable())
        self.addCleanup(os.unlink, self.model)

    def folder(self, name=None):
        return mountlib.folder_at(name) if name else tempfile.mkdtemp(prefix='at-', dir=mountlib.folder)

    def killed(self, at, hold=False):
        """Mount there, and kill the daemon; hold: the directory stays open."""
        mount = Mount(self.model, at=at)
        mount.__enter__()
        if hold:
            self.addCleanup(os.close, os.open(at, os.O_RDONLY))
        os.kill(mountlib.daemon(at), signal.SIGKILL)
        mount.wait()
        os.close(mount.life)

    def mounted(self, *command):
        """Mount, and return the program's output."""
        done = run(GGUFS, *command)
        self.assertEqual((done.returncode, done.out), (0, ''), done.err)
        return done.err


class ReadOnly(Case):
    """A mount that is read-only without having been requested always gives a reason."""

    def check(self, at, said, reason):
        self.assertRegex(said, rf'^ggufs: {re.escape(self.model)}: mounted read-only: {reason}\n$')
        self.assertRegex(why(at), f'^{reason}$')
        self.assertIn(READ_ONLY, os.listxattr(at))
        self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
        mountlib.unmount(at)

    def test_another_mount(self):
        with Mount(self.model) as first:
            self.assertNotIn(READ_ONLY, os.listxattr(first))
            fails(errno.ENODATA, why, first)
            reason = f'another ggufs has it mounted on {first}'
            for options in ([], ['-o', 'rw']):
                at = self.folder()
                self.check(at, self.mounted(*options, self.model, at), reason)

    def test_another_program(self):
        """A lock that no mount explains is waited for; -o ro does not need it."""
        at = self.folder()
        with open(self.model, 'rb') as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assertEqual(self.mounted('-o', 'ro', self.model, at), '')
            mountlib.unmount(at)
            done = run(GGUFS, self.model, at)
        self.assertEqual((done.returncode, done.err), (
            1, f'ggufs: {self.model}: waiting: another process is still writing it\n'
               f'ggufs: {self.model}: is still being written; -o ro shows it as it is now\n'))
        self.assertIsNone(mountlib.mount_of(at))

    def test_folder_of_the_model(self):
        """A mount of a directory that edits the model is named, too."""
        top, at = self.folder(), self.folder()
        model = shutil.copy(self.model, top)
        with Mount(top) as first:
            write(first + '/model.gguf', 'general.name', 'x')
            said = self.mounted(model, at)
            self.assertEqual(said, f'ggufs: {model}: mounted read-only: another ggufs has it mounted on {first}\n')
            mountlib.unmount(at)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_model_bound_by_itself(self):
        """Containers are given single files; such a file cannot be replaced."""
        bound = os.path.join(self.folder('container'), 'bound.gguf')
        mountlib.put(bound, b'')
        works('mount', '--bind', self.model, bound)
        # until their daemons have ended
        self.addCleanup(lambda: editlib.until(lambda: run('umount', bound).returncode == 0))
        for option in ('relayout=auto', 'relayout=inplace'):
            at = self.folder()
            said = self.mounted('-o', option, bound, at)
            reason = 'the file is a mount point and cannot be replaced: bind its directory instead'
            self.assertEqual(said, f'ggufs: {bound}: mounted read-only: {reason}\n')
            self.assertEqual(why(at), reason)
            mountlib.unmount(at)
        with Mount(os.path.dirname(bound)) as at:
            self.assertEqual(why(os.path.join(at, 'bound.gguf')), reason)

    @unittest.skipUnless(ROOT, 'for root only')
    def test_append_only_directory(self):
        """Files can be created there, but not exchanged or removed."""
        where, at = self.folder('append-only'), self.folder()
        model = shutil.copy(self.model, where)
        if run('chattr', '+a', where).returncode:
            self.skipTest('the file system has no such attribute')
        self.addCleanup(lambda: self.assertEqual(run('chattr', '-a', where).returncode, 0))
        self.assertIn('mounted read-only: its directory is append-only', self.mounted(model, at))
        mountlib.unmount(at)
        self.assertEqual(os.listdir(where), ['model.gguf'])

    def test_asked_for(self):
        for option, reason in (('ro', 'requested by -o ro'), ('ro,partial', 'requested by -o ro')):
            at = self.folder()
            self.assertEqual(self.mounted('-o', option, self.model, at), '')
            self.assertEqual(why(at), reason)
            mountlib.unmount(at)
        at = self.folder()
        self.check(at, self.mounted('-o', 'partial', self.model, at),
                   'nothing can be edited with -o partial')


class Again(Case):
    def test_at_once(self):
        """A mount right after an unmount shows the edits, and is writable."""
        at = self.folder()
        for number in range(30):
            self.assertEqual(self.mounted('-o', 'commit=sync', self.model, at), '')
            if number:
                self.assertEqual(read(at, 'general.name'), b'number %d\n' % (number - 1))
            write(at, 'general.name', f'number {number}')
            works(*(['umount'] if ROOT else ['fusermount3', '-u']), at)
        self.assertEqual(self.mounted('-o', 'ro', self.model, at), '')
        self.assertEqual(read(at, 'general.name'), b'number 29\n')
        mountlib.unmount(at)

    @needs_gate
    def test_while_writing(self):
        """While the daemon of an ended mount still writes, the next mount waits, and says so."""
        gate = Gate(mountlib.path('gate'))
        self.addCleanup(gate.open)
        at, there = self.folder(), self.folder()
        with gate.before('GATE'):
            self.mounted('-o', 'relayout=copy,commit=sync', self.model, at)
        write(at, 'general.name', 'late')
        gate.shut()
        mountlib.unmount(at)
        gate.wait()
        with tempfile.TemporaryFile() as said:
            again = subprocess.Popen([GGUFS, self.model, there], stderr=said, stdin=subprocess.DEVNULL)
            editlib.until(lambda: os.fstat(said.fileno()).st_size)
            self.assertIsNone(mountlib.mount_of(there))
            gate.open()
            self.assertEqual(again.wait(mountlib.LIMIT), 0)
            said.seek(0)
            self.assertEqual(said.read().decode(),
                             f'ggufs: {self.model}: waiting: another process is still writing it\n')
        self.assertEqual(read(there, 'general.name'), b'late\n')
        self.assertNotIn(READ_ONLY, os.listxattr(there))
        mountlib.unmount(there)

    def test_side_by_side(self):
        """If several mounts begin at the same time, one writes, and the others name it."""
        places = [self.folder() for _ in range(4)]
        started = [subprocess.Popen([GGUFS, self.model, at], stderr=subprocess.DEVNULL)
                   for at in places]
        for process in started:
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
        writer, = [at for at in places if READ_ONLY not in os.listxattr(at)]
        for at in places:
            if at != writer:
                self.assertEqual(why(at), f'another ggufs has it mounted on {writer}')
        for at in places:
            mountlib.unmount(at)


class Places(Case):
    """A directory that is a mount point, or is in a mount."""

    def test_mounted_already(self):
        link = mountlib.path('link')
        with Mount(self.model, '-o', 'ro') as at:
            os.symlink(at, link)
            self.addCleanup(os.unlink, link)
            for name in (at, at + '/', link, at + '/.', at + '/../' + os.path.basename(at)):
                mountlib.refuses(1, self.model, name, names=(name, self.model, '--unmount'))
            for name in ('metadata', 'tensors', 'metadata/..', 'metadata/general.name'):
                mountlib.refuses(1, self.model, os.path.join(at, name), names=(name, at))
            self.assertEqual(len([row for row in mountlib.mounts()
                                  if row[0] == os.fsencode(at)]), 1)

    def test_over_a_dead_mount(self):
        """A dead mount is removed before the new one is made, even if it is in use."""
        at = self.folder()
        self.killed(at, hold=True)
        mountlib.refuses(1, self.model, os.path.join(at, 'metadata'), names=[os.strerror(errno.ENOTCONN)])
        self.assertEqual(self.mounted(self.model, at), f'ggufs: {at}: a dead mount was removed '
                         '(its daemon had been killed)\n')
        self.assertEqual(len([row for row in mountlib.mounts() if row[0] == os.fsencode(at)]), 1)
        self.assertEqual(read(at, 'general.architecture'), b'llama\n')
        mountlib.unmount(at)

    def test_unmount_of_the_dead(self):
        at = self.folder()
        self.killed(at)
        done = run(GGUFS, '--unmount', at)
        self.assertEqual((done.returncode, done.err), (0, f'ggufs: {at}: a dead mount was removed '
                                                       '(its daemon had been killed)\n'))
        self.assertIsNone(mountlib.mount_of(at))
        mountlib.refuses(1, '--unmount', at, names=(at, 'nothing is mounted there'))


class Unmount(Case):
    def failed(self, at, *names):
        done = run(GGUFS, '--unmount', at)
        self.assertEqual(done.returncode, 1)
        for name in names:
            self.assertIn(name, done.err)
        self.assertTrue(mountlib.mount_of(at))

    def test_busy(self):
        """A mount in use stays, and the line says how to find by whom."""
        with Mount(self.model) as at:
            with open(os.path.join(at, 'info'), 'rb') as file:
                self.failed(at, f'ggufs: {at}: is in use; to see by whom: fuser -vm {at}\n')
                file.read(1)
            works(GGUFS, '--unmount', at)

    def test_written_and_ended(self):
        """Pending edits are in the file when --unmount returns, and the daemon has ended."""
        top = self.folder()
        models = [shutil.copy(self.model, f'{top}/{name}.gguf') for name in 'abc']
        for what, places in ((self.model, {'': self.model}),
                             (top, {f'/{os.path.basename(model)}': model for model in models})):
            mount = Mount(what, '-o', 'commit=sync')
            with mount as at:
                for place in places:
                    write(at + place, 'general.name', 'pending' + place)
                works(GGUFS, '--unmount', at)
                self.assertEqual(select.select([mount.life], [], [], 0)[0], [mount.life])
                for place, model in places.items():
                    self.assertEqual(shelflib.value(model), b'pending' + place.encode())

    def test_not_written(self):
        """If an edit cannot be written, the mount stays and names it; later it is written."""
        aside, top = self.model + '.aside', self.folder()
        for what, inside, model in ((self.model, '', self.model),
                                    (top, '/m.gguf', shutil.copy(self.model, top + '/m.gguf'))):
            with Mount(what, '-o', 'commit=sync') as at:
                write(at + inside, 'general.name', 'pending')
                os.rename(model, aside)
                shutil.copy(aside, model)
                self.failed(at, f'ggufs: {at}: not saved: ', 'general.name',
                            f'ggufs: {at}: not unmounted: an edit could not be written: ')
                os.rename(aside, model)
                works(GGUFS, '--unmount', at)
            self.assertEqual(shelflib.value(model), b'pending')

    def test_refused(self):
        """A write that was refused, which a shell does not tell, is named, also in a directory of
        models in which `errors` is one of them."""
        top = self.folder()
        os.mkdir(top + '/errors')
        for name in ('errors/m.gguf', 'm.gguf'):
            shutil.copy(self.model, f'{top}/{name}')
        for what, inside in ((self.model, ''), (top, '/m.gguf')):
            with Mount(what) as at:
                fails(errno.EINVAL, write, at + inside, 'llama.context_length', 'no number')
                done = run(GGUFS, '--unmount', at)
                self.assertRegex(done.err, f'^ggufs: {at}: not saved: .*llama.context_length: .*\n$')
                self.assertEqual(done.returncode, 0)  # the program that wrote has been told
                self.assertIsNone(mountlib.mount_of(at))

    @unittest.skipUnless(ROOT, 'for root only')
    def test_bind_mount(self):
        """The daemon serves for as long as one of its mounts exists."""
        there = self.folder()
        with Mount(self.model) as at:
            works('mount', '--bind', at, there)
            works(GGUFS, '--unmount', there)
            self.assertEqual(read(at, 'general.architecture'), b'llama\n')

    def test_no_mount(self):
        for at, reason in ((self.folder(), 'nothing is mounted there'), ('/proc', 'is a mount of type proc, not of ggufs'),
                           (mountlib.path('missing'), mountlib.path('missing'))):
            mountlib.refuses(1, '--unmount', at, names=[reason])

    @unittest.skipUnless(ROOT, 'for root only')
    def test_of_another_user(self):
        os.chmod(mountlib.folder, 0o755)
        with Mount(self.model) as at:
            done = run(*mountlib.as_other(GGUFS, '--unmount', at))
            self.assertEqual((done.returncode, done.err),
                             (1, f'ggufs: {at}: it is a mount of user 0: only that user and root can do that\n'))
            done = run(*mountlib.as_other(GGUFS, '--list', '--json'))
            found = [x for x in json.loads(done.out) if x['mountpoint'] == at]
            self.assertEqual(found, [{'mountpoint': at, 'model': self.model, 'mode': 'rw',
                                      'reason': None, 'user': 0, 'state': 'unknown'}])

    @needs_namespaces
    def test_by_root(self):
        """Root unmounts mounts that it may not access, and waits for the edits."""
        os.chmod(mountlib.folder, 0o755)
        at, model = self.folder('nobodys'), os.path.join(self.folder('of-nobody'), 'model.gguf')
        shutil.copy(self.model, model)
        for name in (at, model, os.path.dirname(model)):
            os.chown(name, mountlib.OTHER, mountlib.OTHER)
        works('mount', '-t', 'tmpfs', 'tmpfs', mountlib.folder_at('node'))
        mountlib.fuse_for_all(mountlib.path('node/fuse'))
        works(*mountlib.as_other(GGUFS, '-o', 'commit=sync', model, at))
        works(*mountlib.as_other('sh', '-c', f'echo anew > {at}/metadata/general.name'))
        works(GGUFS, '--unmount', at)
        with Mount(model, '-o', 'ro') as at:
            self.assertEqual(read(at, 'general.name'), b'anew\n')


class List(Case):
    def list(self):
        """Return the objects and the lines of this test's mounts."""
        done, lines = run(GGUFS, '--list', '--json'), run(GGUFS, '--list')
        self.assertEqual((done.returncode, done.err, lines.returncode, lines.err), (0, '', 0, ''))
        ours = [x for x in json.loads(done.out) if x['mountpoint'].startswith(mountlib.folder)]
        self.assertNotRegex(lines.out, r'[\x00-\x09\x0b-\x1f\x7f]')  # nothing that moves a cursor
        return ours, [line for line in lines.out.splitlines() if mountlib.folder in line]

    def test_list(self):
        odd = mountlib.put('a b\n\x1b[31mc.gguf', samples.editable())
        self.addCleanup(os.unlink, odd)
        with Mount(self.model) as first, Mount(self.model) as second, \
                Mount(odd, '-o', 'ro', at=self.folder('new\nline')) as third:
            reason = f'another ggufs has it mounted on {first}'
            objects, lines = self.list()
            same = {'user': os.getuid(), 'state': 'alive'}
            self.assertEqual(objects, [
                {'mountpoint': first, 'model': self.model, 'mode': 'rw', 'reason': None, **same},
                {'mountpoint': second, 'model': self.model, 'mode': 'ro', 'reason': reason, **same},
                {'mountpoint': third, 'model': odd, 'mode': 'ro', 'reason': 'requested by -o ro', **same}])
            self.assertEqual(lines[:2], [f'{self.model} on {first}, read-write',
                                         f'{self.model} on {second}, read-only ({reason})'])
            self.assertIn('a b\\x0a\\x1b[31mc.gguf on ', lines[2])
        self.assertEqual(self.list(), ([], []))

    def test_dead(self):
        at = self.folder('dead')
        self.killed(at)
        self.addCleanup(mountlib.unmount, at, lazy=True)
        fails(errno.ENOTCONN, os.statvfs, at)
        objects, lines = self.list()
        self.assertEqual([(x['mountpoint'], x['state']) for x in objects], [(at, 'dead')])
        self.assertEqual(lines, [f'{self.model} on {at}, read-write, dead'])

    @unittest.skipUnless(ROOT, 'for root only')
    def test_no_answer(self):
        """Nothing waits for a server of another user that does not answer."""
        at = self.folder('deaf')
        device = os.open('/dev/fuse', os.O_RDWR)
        options = f'fd={device},rootmode=40000,user_id={mountlib.OTHER},group_id=0,allow_other'
        libc = ctypes.CDLL(None, use_errno=True)
        self.assertEqual(libc.mount(b'fake', os.fsencode(at), b'fuse.ggufs', 0, options.encode()), 0)
        try:
            objects, _ = self.list()
            self.assertEqual([(x['state'], x['model']) for x in objects], [('unknown', 'fake')])
        finally:
            run('umount', '--lazy', at)
            os.close(device)


class Idle(Case):
    def test_idle(self):
        """An unused mount ends by itself, but not while a file is open or a process has its working
        directory there."""
        with Foreground(self.model, '-o', 'idle=1') as (at, process):
            for hold in (lambda: os.open(os.path.join(at, 'info'), os.O_RDONLY),
                         lambda: os.open(at, os.O_PATH | os.O_DIRECTORY)):
                held = hold()
                with self.assertRaises(subprocess.TimeoutExpired):
                    process.wait(3)  # some of the looks at an idle mount
                self.assertTrue(mountlib.mount_of(at))
                os.close(held)
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertEqual(os.listdir(at), [])

    def test_writes_first(self):
        """So does the end by --unmount with -o auto_unmount: fusermount3 then removes the mount (libfuse's race: not always)."""
        for options in ('idle=1,commit=sync', 'auto_unmount'):
            with Mount(self.model, '-o', options) as at:
                write(at, 'general.name', options)
                if 'idle' in options:
                    editlib.until(lambda at=at: not mountlib.mount_of(at))
            self.assertEqual(shelflib.value(self.model), options.encode())

    def test_stays(self):
        """A mount with an edit that cannot be written stays."""
        aside = self.model + '.aside'
        with Foreground(self.model, '-o', 'idle=1,commit=sync') as (at, process):
            write(at, 'general.name', 'written')
            os.rename(self.model, aside)
            mountlib.put('model.gguf', samples.editable())
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(3)
            self.assertTrue(mountlib.mount_of(at))
            os.rename(aside, self.model)
            editlib.until(lambda: not mountlib.mount_of(at))
        self.assertIn(b'written', mountlib.get(self.model))


class Signalled(Case):
    @unittest.skipIf(mountlib.sanitized('asan'), 'it opens files at the end')
    def test_no_descriptors(self):
        """The end of the daemon opens no file that it needs."""
        with Foreground(self.model) as (at, process):
            os.listdir(at)  # it serves: libfuse has received the descriptor of the mount
            _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, most))
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
            # libfuse 3.17 leaves it there then, for the next mount on that place to clear away
            if b' 3.14' in subprocess.check_output(['fusermount3', '--version']):
                self.assertIsNone(mountlib.mount_of(at))

    @unittest.skipUnless(os.getuid() == 0, 'for root only')
    def test_covered(self):
        """A signal does not unmount another file system that is mounted over the daemon's."""
        with Foreground(self.model) as (at, process):
            os.listdir(at)  # it serves, and so knows its own device
            works('mount', '-t', 'tmpfs', 'none', at)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(mountlib.LIMIT), 0)
            kinds = [kind for place, kind, _, _ in mountlib.mounts() if place == os.fsencode(at)]
            self.assertEqual(kinds, ['fuse.ggufs', 'tmpfs'])
            works('umount', at)
