# SPDX-License-Identifier: MIT
"""Shared by the benchmarks: servers to start and end, disks, timed rounds, tables.

Environment: GGUFS (the program), BENCH_PROGRAMS (the directory of the programs of tests/bench).
"""
import contextlib
import os
import select
import shutil
import statistics
import subprocess
import tempfile
import time

GGUFS = os.environ.get('GGUFS', 'ggufs')
PROGRAMS = os.environ.get('BENCH_PROGRAMS', '.')
MIB = 1 << 20
VALUES = 64 * MIB  # bytes of each tensor's float32 values in the model of all types
LIMIT = 60  # seconds for a mount to appear or to end


def program(name):
    return os.path.join(PROGRAMS, name)


# ---- servers ----

def mounted(at):
    with open('/proc/self/mountinfo', encoding='utf-8') as lines:
        return any(line.split()[4] == at for line in lines)


def wait_mounted(at, process):
    """Wait for the mount: the kernel reports each change of the list of mounts as a poll event."""
    poll = select.poll()
    with open('/proc/self/mountinfo', 'rb') as table:
        poll.register(table, select.POLLPRI)
        while not mounted(at):
            if process.poll() is not None:
                raise SystemExit(f'{process.args} ended with status {process.returncode}')
            poll.poll(100)


def bdi(at):
    device = os.stat(at).st_dev
    return f'/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb'


def set_readahead(at, kib):
    """Return False if the readahead has another value and this user may not change it."""
    with contextlib.suppress(OSError), open(bdi(at), 'w', encoding='utf-8') as file:
        file.write(str(kib))
    with open(bdi(at), encoding='utf-8') as file:
        return int(file.read()) == kib


def wait_ended(process):
    """Wait until the mount has ended, even if a mount namespace that another process made meanwhile
    holds it; its server would continue in that."""
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def serve(work, *command, readahead=None, log=subprocess.DEVNULL):
    """Run a FUSE server in the foreground on a new directory, which is added to its command line.
    Yields (directory, process); the server is ended afterwards. It is not in the terminal's
    foreground, so Ctrl-C reaches it only through this program."""
    at = tempfile.mkdtemp(prefix='mnt-', dir=work)
    process = subprocess.Popen([*command, '-f', at], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=log, start_new_session=True)
    try:
        wait_mounted(at, process)
        os.stat(at)  # answered: the FUSE handshake with the kernel is complete
        if readahead:
            set_readahead(at, readahead)
        yield at, process
    finally:
        if mounted(at):
            subprocess.run(['fusermount3', '-u', at], check=True)
        else:
            process.terminate()
        wait_ended(process)
        os.rmdir(at)


def ggufs(work, model, *options, readahead=None, log=subprocess.DEVNULL):
    own = ['-o', f'readahead={readahead}'] if readahead else []
    return serve(work, GGUFS, *options, *own, model, readahead=readahead, log=log)


def ready(work, size, *options, readahead=None):
    return serve(work, program('ready_server'), str(size), *options, readahead=readahead)


# ---- disks ----

class Skipped(Exception):
    """Reason why a measurement is not possible here."""


MAKE = {'ext4': ['mkfs.ext4', '-qF'], 'xfs': ['mkfs.xfs', '-qf', '-m', 'reflink=1'],
        'btrfs': ['mkfs.btrfs', '-qf']}


def call(*command):
    """Run a command; raises Skipped if it fails."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f'{" ".join(command[:3])}: {done.stderr.strip()}')


@contextlib.contextmanager
def mounted_at(folder, *command):
    """Mount a file system by a command, and always unmount it afterwards."""
    call(*command, folder)
    try:
        yield folder
    finally:
        if subprocess.run(['umount', folder], check=False).returncode != 0:
            subprocess.run(['umount', '-l', folder], check=True)


@contextlib.contextmanager
def disk(work, kind, size):
    """Make a new file system of `size` bytes, in a loop-mounted sparse image or on tmpfs. Raises
    Skipped if that is not possible. Yields its directory."""
    if os.geteuid() != 0:
        raise Skipped(f'{kind}: only root can mount it')
    if kind in MAKE and not shutil.which(MAKE[kind][0]):
        raise Skipped(f'{kind}: no {MAKE[kind][0]}')
    with tempfile.TemporaryDirectory(prefix=f'disk-{kind}-', dir=work) as home:
        folder, image = os.path.join(home, 'at'), os.path.join(home, 'image')
        os.mkdir(folder)
        command = ['mount', '-t', 'tmpfs', '-o', f'size={size}', 'tmpfs']
        if kind in MAKE:
            with open(image, 'wb') as file:
                file.truncate(size)
            call(*MAKE[kind], image)
            command = ['mount', '-o', 'loop', image]
        with mounted_at(folder, *command):
            yield folder


def available():
    """Return the available bytes of memory."""
    with open('/proc/meminfo', encoding='utf-8') as lines:
        fields = dict(line.split(':', 1) for line in lines)
    return int(fields['MemAvailable'].split()[0]) * 1024


# ---- figures ----

def timed(function, *args):
    begin = time.perf_counter()
    function(*args)
    return time.perf_counter() - begin


def quiet(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def drop(path):
    """Make the kernel drop the file's pages."""
    with open(path, 'rb') as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def spread(values):
    """Return (median, minimum, maximum)."""
    return statistics.median(values), min(values), max(values)


def turns(files, *options, rounds):
    """Return, for each file, the list of its seconds in all rounds. See bench_read.c."""
    done = subprocess.run([program('bench_read'), '-r', str(rounds), *options, *files], check=True,
                          stdout=subprocess.PIPE, text=True)
    seconds = [[0.0] * rounds for _ in files]
    for line in done.stdout.splitlines():
        turn, number, value = line.split('\t')
        seconds[int(number)][int(turn)] = float(value)
    return seconds


def speed_ratio(base, other):
    """Return the speed of `other` as a fraction of `base`, pair by pair: (median, minimum,
    maximum)."""
    return spread([b / o for b, o in zip(base, other)])


def show_ratio(ratio):
    return f'{ratio[0]:.2f} ({ratio[1]:.2f}-{ratio[2]:.2f})'


def gb_per_s(size, seconds):
    return f'{size / statistics.median(seconds) / 1e9:.2f}'


def show_ms(seconds):
    middle, least, most = spread(seconds)
    return f'{middle * 1e3:.1f} ({least * 1e3:.1f}-{most * 1e3:.1f})'


# ---- tables ----

class Table:
    """Rows of text under a title."""

    def __init__(self, title, *columns):
        self.title, self.columns, self.rows = title, columns, []

    def add(self, *cells):
        self.rows.append([str(cell) for cell in cells])

    def plain(self):
        lines = [list(self.columns)] + self.rows
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return '\n'.join([self.title] + ['  ' + '  '.join(
            cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines])

    def markdown(self):
        lines = [list(self.columns), ['---'] * len(self.columns)] + self.rows
        return '\n'.join([f'**{self.title}**', ''] + [f'| {" | ".join(line)} |' for line in lines])

    def tsv(self):
        return '\n'.join('\t'.join([self.title, *line]) for line in [self.columns, *self.rows])


def goal(value, bound, at_least=True, unit=''):
    met = value >= bound if at_least else value <= bound
    sign = '>=' if at_least else '<='
    return f'{sign} {bound:g}{unit}: {"met" if met else "MISSED"}'
