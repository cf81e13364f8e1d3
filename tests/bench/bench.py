# SPDX-License-Identifier: MIT
"""scripts/bench [--markdown] [--rounds N] [--work DIR] [--tsv FILE] [WHAT...]

Measures ggufs against the bound set by this machine, in turns, and prints ratios: the median of all
rounds and, in brackets, the minimum and the maximum. WHAT is any of

  decode      decoders on one core, against memcpy and plain C (bench_decode)
  encode      encoders on one core, against plain C (bench_encode)
  sequential  `f32` of every type and `raw`, in order, against a FUSE server of ready bytes
  whole       the same for model.safetensors and model.f32.safetensors, with few and with many tensors
  disk        `sequential` with the model file not in the page cache
  cached      second read of a file of the mount against a native file
  random      4 KiB at random places through mmap, against a native file
  parallel    1, 2, 4 and 8 readers at a time, against the server of ready bytes
  start       mount, list, memory and unmount: a small model and one of 1 TB with 20,000 tensors
  edit        each kind of edit of a 100 GiB model, on XFS, btrfs and ext4 in images
  tensors     edits of tensors of such a model: renamed, reshaped, removed, 64 MiB of bytes replaced
  gathered    3,000 small tensors written one by one, and committed together
  copy        an edit by copy of a 2 GB model, against cp
  during      `ls -l metadata` and reads of tensors during such a copy, against the same during cp
  latency     single reads of tensor data beside edits and listings, with 1,000,000 tokens
  `folders`   a directory of 10,000 models: mount and list, memory, `info` of 1,000 of them, --info
  before      reads, listings and edits against an earlier commit (--before COMMIT)

(default: all). Each table names its goals; docs/performance.md has figures.
"""
import argparse
import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import before
import benchlib
import copies
import edits
import folders
import programs
import reading
import tensors
import waiting
from benchlib import MIB, VALUES, Table, goal, quiet, show_ms, timed

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

LARGE = 176  # MiB of each tensor's float32 values in the model of 2 GB


class Run:
    """Options, and files shared by several benchmarks."""

    def __init__(self, args):
        self.args, self.work, self.rounds = args, args.work, args.rounds
        os.makedirs(self.work, exist_ok=True)

    def made(self, name, *command):
        """Return the path of a file in the work directory. A command makes it if it does not exist
        yet."""
        path = os.path.join(self.work, name)
        if not os.path.exists(path):
            subprocess.run([*command, path + '.new'], check=True)
            os.rename(path + '.new', path)
        return path

    def types(self, mib=VALUES // MIB):
        """Return the model of all types, whose tensors have that many MiB as float32."""
        name = 'types.gguf' if mib == VALUES // MIB else f'types-{mib}.gguf'
        return self.made(name, sys.executable, os.path.join(HERE, 'make-types'), '--mib', str(mib))

    def many(self):
        """Return the model of all types with many small tensors."""
        count, kib = reading.MANY
        return self.made(f'types-{count}x{kib}.gguf', sys.executable, os.path.join(HERE, 'make-types'),
                         '--count', str(count), '--kib', str(kib))

    def large(self):
        """Return the model of all types with 2 GB of data."""
        return self.made('large.gguf', sys.executable, os.path.join(HERE, 'make-types'), '--mib',
                         str(LARGE))

    def script(self, name, script, *options):
        return self.made(name, sys.executable, os.path.join(SOURCE, 'scripts', script), *options)

    def native(self):
        """Return a plain file as large as the values of one type."""
        path = os.path.join(self.work, 'native')
        if not os.path.exists(path):
            with open(path, 'wb') as out:
                for _ in range(VALUES // MIB):
                    out.write(os.urandom(MIB))
                os.fsync(out.fileno())
        return path

    @contextlib.contextmanager
    def small_pages(self):
        """Return a copy of the plain file, on tmpfs, whose pages in the cache are single, like
        those of all FUSE files. None if there is no tmpfs with single pages."""
        huge = '/sys/kernel/mm/transparent_hugepage/shmem_enabled'
        kinds = subprocess.run(['stat', '-fc', '%T', '/dev/shm'], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, check=False).stdout
        with contextlib.suppress(OSError), open(huge, encoding='utf-8') as file:
            if kinds == 'tmpfs\n' and '[never]' in file.read():
                with tempfile.NamedTemporaryFile(dir='/dev/shm') as copy, \
                        open(self.native(), 'rb') as source:
                    shutil.copyfileobj(source, copy, MIB)
                    copy.flush()
                    yield copy.name
                    return
        yield None


# ---- the benchmarks: each yields tables; mounting is measured here ----

def daemon_of(at):
    """Return the process whose command line ends in this mount point."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open(f'/proc/{pid}/cmdline', 'rb') as file:
            if file.read().split(b'\0')[-2:] == [os.fsencode(at), b'']:
                return int(pid)
    raise SystemExit(f'no daemon serves {at}')


def resident(pid):
    """Return the resident bytes: in total, and without pages of files."""
    with open(f'/proc/{pid}/status', encoding='utf-8') as lines:
        fields = dict(line.split(':', 1) for line in lines)
    return tuple(int(fields[name].split()[0]) * 1024 for name in ('VmRSS', 'RssAnon'))


def mount(model, at):
    subprocess.run([benchlib.GGUFS, model, at], check=True, stdin=subprocess.DEVNULL)


def unmount(at, pid):
    end = os.pidfd_open(pid)
    subprocess.run(['fusermount3', '-u', at], check=True)
    poll = benchlib.select.poll()
    poll.register(end, benchlib.select.POLLIN)
    poll.poll(1000 * benchlib.LIMIT)
    os.close(end)


def mount_and_list(model, at):
    mount(model, at)
    os.listdir(at)


def header_size(model):
    """Return the size of the header in bytes."""
    done = subprocess.run([benchlib.program('bench_parse'), '1', model], check=True,
                          stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[1])


def last_tensor(at):
    folder = os.path.join(at, 'tensors')
    return os.path.join(folder, os.listdir(folder)[-1])


def start_once(model, at, seconds):
    def add(what, function, *args):
        seconds.setdefault(what, []).append(timed(function, *args))

    add('mount to first ls', mount_and_list, model, at)
    pid = daemon_of(at)
    first = resident(pid)
    add('ls -l tensors', quiet, 'ls', '-l', os.path.join(at, 'tensors'))
    add('ls -l tensors again', quiet, 'ls', '-l', os.path.join(at, 'tensors'))
    add('ls -lR', quiet, 'ls', '-lR', at)
    add('tail -c 4096 of the last f32', quiet, 'tail', '-c', '4096',
        os.path.join(last_tensor(at), 'f32'))
    add('cat metadata.json', quiet, 'cat', os.path.join(at, 'metadata.json'))
    after = resident(pid)
    add('unmount', unmount, at, pid)
    return first, after


START_GOALS = {'mount to first ls': 1.0, 'ls -l tensors': 2.0, 'tail -c 4096 of the last f32': 0.1}


def start(run):
    models = {'small (5M weights)': run.script('sample.gguf', 'make-sample'),
              '1 TB, 20,000 tensors, 1,000,000 tokens': run.script('huge.gguf', 'make-huge')}
    at = os.path.join(run.work, 'mnt-start')
    os.makedirs(at, exist_ok=True)
    for name, model in models.items():
        table = Table(f'Mounting: {name}', 'what', 'figure', 'goal')
        seconds = {}
        for _ in range(max(3, run.rounds // 3)):
            first, after = start_once(model, at, seconds)
        for what, values in seconds.items():
            bound = START_GOALS.get(what)
            table.add(what, show_ms(values) + ' ms',
                      goal(round(benchlib.spread(values)[0], 3), bound, False, ' s')
                      if bound else '')
        head = header_size(model)
        bound = (3 * head + 16 * MIB) / MIB
        table.add('header', f'{head / MIB:.1f} MiB', '')
        for when, (rss, anon) in (('after the first ls', first), ('at the end', after)):
            table.add(f'resident memory {when}', f'{rss / MIB:.1f} MiB ({anon / MIB:.1f} its own)',
                      goal(round(rss / MIB, 1), round(bound, 1), False, ' MiB'))
        yield table


BENCHES = {f.__name__: f for f in (
    programs.decode, programs.encode, reading.sequential, reading.whole, reading.disk, reading.cached, reading.random,
    reading.parallel, start, edits.edit, copies.copy, copies.during, waiting.latency, waiting.beside, waiting.signals,
    before.before, folders.folders, tensors.tensors, tensors.gathered)}


def machine():
    with open('/proc/cpuinfo', encoding='utf-8') as lines:
        cpu = next((line.split(':')[1].strip() for line in lines if 'model name' in line), '?')
    with open('/proc/meminfo', encoding='utf-8') as lines:
        memory = int(next(lines).split()[1]) // MIB
    fuse = subprocess.run(['pkg-config', '--modversion', 'fuse3'], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    return (f'{cpu}, {os.cpu_count()} CPUs, {memory} GiB; Linux {platform.release()}, '
            f'libfuse {fuse}; load {os.getloadavg()[0]:.1f}; {time.strftime("%Y-%m-%d")}')


def arguments():
    parser = argparse.ArgumentParser(prog='bench', usage=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', nargs='*', metavar='WHAT')
    parser.add_argument('--markdown', action='store_true')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--work', default=os.path.join(os.getcwd(), 'bench-work'))
    parser.add_argument('--tsv')
    parser.add_argument('--types', nargs='*', help='of `sequential`: `f32` of these alone')
    parser.add_argument('--mib', nargs='*', type=int, help='of `sequential`: of each tensor, as float32')
    parser.add_argument('--readahead', nargs='*', type=int, help='of `sequential` and `disk`: KiB')
    parser.add_argument('--tokens', type=int, default=1000000, help='of `latency`')
    parser.add_argument('--seconds', type=int, default=20, help='of each row of `latency`')
    parser.add_argument('-o', dest='mount_options', action='append', default=[], help='of both servers')
    args = parser.parse_args()
    if unknown := [what for what in args.what if what not in BENCHES]:
        parser.error(f'{unknown[0]}: not one of {", ".join(BENCHES)}')
    args.mount_options = [part for option in args.mount_options for part in ('-o', option)]
    args.work = os.path.realpath(args.work)
    return args


def main():
    # Act as on Ctrl-C: mounts are unmounted on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    args = arguments()
    run = Run(args)
    os.environ['XDG_STATE_HOME'] = os.path.join(run.work, 'state')
    missed = []
    tsv = open(args.tsv or os.path.join(run.work, 'results.tsv'), 'w', encoding='utf-8')
    print(machine())
    for what in args.what or BENCHES:
        for table in BENCHES[what](run):
            print('\n' + (table.markdown() if args.markdown else table.plain()), flush=True)
            print(table.tsv(), file=tsv, flush=True)
            missed += [f'{table.title}: {row[0]}: {row[-1]}' for row in table.rows if row[-1].endswith('MISSED')]
    print(machine(), file=tsv)
    print('\n' + '\n'.join(['goals that were missed:', *missed] if missed else ['no goal was missed']))
    for name in os.listdir(run.work):
        if name.startswith('mnt-'):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(run.work, name))
    tsv.close()


if __name__ == '__main__':
    main()
