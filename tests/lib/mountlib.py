# SPDX-License-Identifier: MIT
"""Mounting for tests: a private directory, nothing left behind.

    python3 tests/lib/mountlib.py tests/mount/tree.py [Tree.test_values ...]

runs the tests of a module of unittest in a child process; the parent holds the time limit and cleans up, also
after a crash or a hang. For root they run in a private mount namespace; with --as-nobody before the module, as that
user. Exit status 77 = skipped.

Environment: GGUFS (the program), GGUFS_TEST_DIR (where the test's directory is made).
"""
import contextlib
import ctypes
import errno
import glob
import importlib
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest

GGUFS = os.environ.get('GGUFS', 'ggufs')
# Limits in seconds, so that a hanging test ends. No test may come close, however busy the machine
# is.
LIMIT = 300  # for one step, which should take well under a second
ALL = 1500 * int(os.environ.get('GGUFS_SOAK', '1'))  # for the whole program
OTHER = 65534  # ids of an ordinary user and group
PR_SET_CHILD_SUBREAPER = 36
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# nohup(1) ignores SIGHUP, and programs would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

folder = None  # directory of this run


def unescape(field):
    r"""mountinfo writes space, tab, newline and backslash as \ooo."""
    return field.encode('latin-1').decode('unicode_escape').encode('latin-1')


def mounts():
    """Return (mount point, type, source, options) of every mount, as bytes and text."""
    with open('/proc/self/mountinfo', encoding='latin-1') as lines:
        for line in lines:
            left, right = line.split(' - ')
            kind, source, options = right.split()
            yield unescape(left.split()[4]), kind, unescape(source), options


def mount_of(at):
    found = [row for row in mounts() if row[0] == os.fsencode(at)]
    return found[-1] if found else None


def path(*parts):
    return os.path.join(folder, *parts)


def folder_at(*parts):
    """Return a path, and make the directory if it is not there."""
    os.makedirs(path(*parts), exist_ok=True)
    return path(*parts)


def put(name, data):
    """Write a file, in the test's directory or elsewhere; its directory is made there."""
    if not os.path.isdir(os.path.dirname(path(name))):
        folder_at(os.path.dirname(path(name)))
    with open(path(name), 'wb') as out:
        out.write(data.encode() if isinstance(data, str) else data)
    return path(name)


def get(name):
    with open(name, 'rb') as file:
        return file.read()


def fails(codes, call, *arguments, **named):
    """Assert that a call fails with this error, or with one of these."""
    try:
        call(*arguments, **named)
    except OSError as e:
        assert e.errno in (codes if isinstance(codes, tuple) else (codes,)), f'{arguments}: {errno.errorcode[e.errno]}'
    else:
        raise AssertionError(f'{call} did not fail: {arguments}')


def sanitized(*kinds):
    """True if the program was built with one of these sanitizers: asan, tsan."""
    return any(f'__{kind}_init'.encode() in get(shutil.which(GGUFS)) for kind in kinds)


def environment():
    """Return the environment: sanitizers of daemons write to files in the test's directory, and
    histories are kept there."""
    log = ':log_path=' + path('sanitizer')
    known = ':suppressions=' + os.path.join(SOURCE, 'tests/lib/')
    more = {'ASAN_OPTIONS': log + known + 'asan.supp', 'TSAN_OPTIONS': log + known + 'tsan.supp',
            'UBSAN_OPTIONS': log, 'LSAN_OPTIONS': known + 'lsan.supp:print_suppressions=0'}
    state = os.environ.get('GGUFS_TEST_STATE', path('state'))
    return {**os.environ, 'XDG_STATE_HOME': state,
            **{name: os.environ.get(name, '') + text for name, text in more.items()}}


def assert_no_faults():
    """Print the findings of sanitizers, and fail if there are any."""
    for name in glob.glob(path('sanitizer.*')):
        report = get(name).decode(errors='replace')
        os.unlink(name)  # so that the next test does not fail because of it
        # A thread that is just ending is not a fault.
        if any(line and 'Unable to get registers' not in line for line in report.splitlines()):
            raise AssertionError(report)


def run(*command, limit=LIMIT, **options):
    """Run the program, or another command, to its end, without pipes that a daemon could keep open.
    The result has returncode, out and err (text)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                              timeout=limit, env=environment(), **options)
        for name, file in (('out', out), ('err', err)):
            file.seek(0)
            setattr(done, name, file.read().decode(errors='surrogateescape'))
    return done


def works(*command, **options):
    """Run a command that succeeds, and prints nothing on standard error. Returns its output."""
    done = run(*command, **options)
    assert (done.returncode, done.err) == (0, ''), f'{command}: {done.returncode}: {done.out}{done.err}'
    return done.out


def refuses(status, *arguments, names=()):
    """Assert that the program ends with this status and one line on standard error, which has these names."""
    done = run(GGUFS, *arguments)
    assert (done.returncode, done.out, done.err.count('\n'), done.err[-1:]) == (status, '', 1, '\n'), done.out + done.err
    assert all(name in done.err for name in names), (names, done.err)


def sample(name='sample.gguf'):
    works(os.path.join(SOURCE, 'scripts/make-sample'), path(name))
    return path(name)


def enterable(place):
    """True if every user can enter this directory."""
    place = os.path.realpath(place)
    while os.stat(place).st_mode & stat.S_IXOTH:
        if place == '/':
            return True
        place = os.path.dirname(place)
    return False


def program_for_others():
    """Return a copy of the program that every user can run."""
    copy = path('program-for-others')
    if not os.path.exists(copy):
        shutil.copy(shutil.which(GGUFS), copy)
        os.chmod(copy, 0o755)
    return copy


def as_other(*command):
    """Return the command line that lets root run a command as an ordinary user. The test ends in
    main(others=True); the directory must be opened to others (it is 0700)."""
    words = [program_for_others() if word == GGUFS else word for word in command]
    state = path('state-of-other')
    if not os.path.exists(state):
        os.mkdir(state, 0o700)
        os.chown(state, OTHER, OTHER)
    return ['setpriv', f'--reuid={OTHER}', f'--regid={OTHER}', '--clear-groups', '--', 'env',
            f'XDG_STATE_HOME={state}', *words]


class Mount:
    """`with Mount(model, '-o', 'ro') as at:` mounts the model by a daemon, on a new directory. The
    daemon inherits the write end of a pipe: end of file on the other end means that it has ended,
    after all its work at the unmount."""

    def __init__(self, model, *options, at=None, **how):
        self.command = [GGUFS, *options, model]
        self.at, self.how = at, how

    def __enter__(self):
        self.at = self.at or tempfile.mkdtemp(prefix='mnt-', dir=folder)
        self.life, end = os.pipe()
        try:
            done = run(*self.command, self.at, pass_fds=[end], **self.how)
        finally:
            os.close(end)
        if done.returncode != 0:
            os.close(self.life)
            raise AssertionError(f'{done.args} failed ({done.returncode}): {done.err}')
        if not mount_of(self.at):
            raise AssertionError('the parent returned before the mount was live')
        return self.at

    def wait(self, limit=LIMIT):
        ready, _, _ = select.select([self.life], [], [], limit)
        if not ready:
            raise AssertionError('the daemon lives on after unmount')

    def __exit__(self, *error):
        if mount_of(self.at):
            unmount(self.at, lazy=bool(error[0]))
        if not error[0]:
            self.wait()
        os.close(self.life)
        assert_no_faults()


def daemon(at):
    """Return the process that serves a mount: its /dev/fuse has the connection of the mount's device.
    A daemon that is ending may have had a device of the same number, so the youngest one counts."""
    with open('/proc/self/mountinfo', encoding='latin-1') as lines:
        rows = [line.split() for line in lines]
    minor = [row[2].split(':')[1] for row in rows if unescape(row[4]) == os.fsencode(at)][-1]
    found = []
    for name in glob.glob('/proc/[0-9]*/fdinfo/*'):
        with contextlib.suppress(OSError):
            if f'\nfuse_connection:\t{minor}\n' in get(name).decode():
                pid = name.split('/')[2]
                found.append((int(get(f'/proc/{pid}/stat').rpartition(b') ')[2].split()[19]), int(pid)))
    return max(found)[1]


def memory(at, kind='RssAnon'):
    """Return the bytes of memory of the mount's daemon: by default, of anonymous memory."""
    with open(f'/proc/{daemon(at)}/status', encoding='ascii') as lines:
        return [int(line.split()[1]) << 10 for line in lines if line.startswith(kind + ':')][0]


def unmount(at, lazy=False):
    """Unmount, lazily if the test has failed and may still hold a file open."""
    done = run('fusermount3', '-u', *(['-z'] if lazy else []), at)
    if done.returncode != 0:
        raise AssertionError(f'cannot unmount: {done.err}')


class Foreground:
    """`with Foreground(model, ...) as (at, process):` mounts with -f; the log is in .log()."""

    def __init__(self, model, *options, program=(GGUFS,)):
        self.command = [*program, '-f', *options, model]

    def __enter__(self):
        self.at = tempfile.mkdtemp(prefix='mnt-', dir=folder)
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*self.command, self.at], stdin=subprocess.DEVNULL,
                                        stdout=self.err, stderr=self.err, env=environment())
        while not mount_of(self.at):
            if self.process.poll() is not None:
                raise AssertionError(f'{self.command} did not mount: {self.log()}')
            time.sleep(0.001)
        return self.at, self.process

    def begin(self, case):
        """Mount for a test that calls __exit__() itself. If it fails before that, its cleanup ends the mount."""
        def kill():
            if not self.err.closed:
                self.__exit__(True)

        case.addCleanup(kill)
        return self.__enter__()

    def log(self):
        # The daemon shares the file's offset, so a seek would make it overwrite its first lines.
        fd = self.err.fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors='surrogateescape')

    def __exit__(self, *error):
        if mount_of(self.at):
            unmount(self.at, lazy=bool(error[0]))
        if error[0]:
            self.process.kill()
        status = self.process.wait(LIMIT)
        self.err.close()
        assert_no_faults()
        if status != 0 and not error[0]:
            raise AssertionError(f'exit status {status} after unmount')


def clean_up():
    """Unmount, and kill every process that the tests have left: what waits for a mount ends only when the daemon has."""
    for at in reversed([row[0] for row in mounts()
                        if row[0].startswith(os.fsencode(folder) + b'/')]):
        subprocess.run(['umount', '-l', at] if os.getuid() == 0
                       else ['fusermount3', '-u', '-z', at], check=False)
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in get(f'/proc/self/task/{os.getpid()}/children').split():
                os.kill(int(pid), signal.SIGKILL)
            os.wait()
    shutil.rmtree(folder, ignore_errors=True)


def has_namespaces():
    """Return whether this process may make a mount namespace: not in a chroot whose root is not a mount point."""
    return os.getuid() == 0 and subprocess.run(['unshare', '--mount', 'true'], stderr=subprocess.DEVNULL,
                                               check=False).returncode == 0


def skip(reason):
    print('skipped:', reason)
    sys.exit(77)


class Result(unittest.TextTestResult):
    """Counts the passed tests, because releases of unittest differ in how they count tests of a
    class that is skipped as a whole."""
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


def tests(module, names):
    """Run the tests in the child, and end it. An exception in a thread of a test is a failure. A run in which
    every test was skipped counts as skipped."""
    failed, print_it = [], threading.excepthook
    threading.excepthook = lambda args: (failed.append(args), print_it(args))
    runner = unittest.TextTestRunner(verbosity=1, warnings='error', resultclass=Result)
    result = unittest.main(module, argv=[module.__name__, *names], exit=False, testRunner=runner).result
    for test, why in result.skipped:
        print(f'skipped: {test.id()}: {why}')
    status = 0 if result.passed else 77 if result.skipped else 1
    sys.stdout.flush()
    sys.stderr.flush()
    # sys.exit() would wait for threads and processes of a test that has failed.
    os._exit(status if result.wasSuccessful() and not failed else 1)


def own_namespace():
    """Run again in a private mount namespace, so that nothing can be left behind. Without the copies of other tests'
    mounts there: while they exist, those daemons live."""
    if os.environ.get('GGUFS_OWN_NAMESPACE'):
        for at, kind, _, _ in list(mounts()):
            if kind == 'fuse.ggufs':
                subprocess.run(['umount', '--lazy', at], check=False)
    elif has_namespaces():
        os.environ['GGUFS_OWN_NAMESPACE'] = '1'
        os.execvp('unshare', ['unshare', '--mount', '--propagation', 'private', sys.executable, *sys.argv])


def fuse_for_all(node):
    os.mknod(node, stat.S_IFCHR, os.makedev(10, 229))
    os.chmod(node, 0o666)
    subprocess.run(['mount', '--bind', node, '/dev/fuse'], check=True)


def as_nobody(program, *names):
    """Run again as the user nobody, with the sources, the program and what tests preload on a tmpfs, so that their
    place and mode do not matter (/root is 0700)."""
    place, work = '/var/tmp', '/var/tmp/work'
    subprocess.run(['mount', '-t', 'tmpfs', '-o', 'mode=0755', 'tmpfs', place], check=True)
    env = {**os.environ, 'HOME': work, 'GGUFS_TEST_DIR': work}
    for name, file in os.environ.items():
        if name.startswith('GGUFS') and os.path.isfile(file):
            env[name] = shutil.copy(file, place)
    for part in 'lib', 'mount':
        shutil.copytree(f'{SOURCE}/tests/{part}', f'{place}/tests/{part}')
    os.mkdir(work, 0o700)
    subprocess.run(['chown', '-R', f'{OTHER}:{OTHER}', place], check=True)
    fuse_for_all(place + '/fuse')
    os.chdir(work)
    env.pop('TMPDIR', None)
    os.execvpe('setpriv', ['setpriv', f'--reuid={OTHER}', f'--regid={OTHER}', '--clear-groups', sys.executable,
                           f'{place}/tests/lib/mountlib.py', f'{place}/tests/mount/{os.path.basename(program)}', *names], env)


def main(program, *names):
    global folder
    if not os.path.exists('/dev/fuse'):
        skip('no /dev/fuse')
    if not os.access('/dev/fuse', os.R_OK | os.W_OK):
        skip('/dev/fuse is not for this user')
    own_namespace()
    if program == '--as-nobody':
        if os.getuid() or not os.environ.get('GGUFS_OWN_NAMESPACE'):
            skip('an ordinary user already, or no private mount namespace')
        as_nobody(*names)
    sys.path.insert(0, os.path.dirname(program))
    module = importlib.import_module(os.path.basename(program).removesuffix('.py'))
    place = os.environ.get('GGUFS_TEST_DIR', tempfile.gettempdir())
    if os.getuid() == 0 and not enterable(place):  # /root is only for root, and tests have other users
        place = '/var/tmp'
    folder = os.path.realpath(tempfile.mkdtemp(prefix='mount-', dir=place))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)  # daemons and all the others become its children
    child = os.fork()
    if child == 0:
        tests(module, names)

    def late(*_):
        print(f'not done after {ALL} s', flush=True)
        clean_up()
        sys.exit(1)

    signal.signal(signal.SIGALRM, late)
    signal.alarm(ALL)
    pid = status = None
    while pid != child:
        pid, status = os.wait()
    signal.alarm(0)
    clean_up()
    sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


if __name__ == '__main__':
    import mountlib  # the module of which the tests know
    mountlib.main(*sys.argv[1:])
