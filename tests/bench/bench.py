# SPDX-License-Identifier: MIT
"""scripts/bench [--markdown] [--rounds N] [--work DIR] [--tsv FILE] [WHAT...]

Measures ggufs against what bounds it, on this machine, in turns, and prints ratios: the median of
all rounds and, in brackets, the least and the most. WHAT is any of

  decode      decoders on one core, against memcpy and plain C (bench_decode)
  encode      encoders on one core, against plain C (bench_encode)
  sequential  `f32` of every type and `raw`, in order, against a FUSE server of ready bytes
  whole       the same of model.safetensors and model.f32.safetensors
  disk        `sequential` with the model file not in the page cache
  passthrough model.gguf against the model's file, where the kernel reads that
  cached      second read of a file of the mount against a native file
  random      4 KiB at random places through mmap, against a native file
  parallel    1, 2, 4 and 8 readers at a time, against the server of ready bytes
  start       mount, list, memory and unmount: a small model and one of 1 TB with 20,000 tensors
  vocabulary  a model with a large vocabulary: parsing, and mount, read all metadata, unmount
  edit        each kind of edit of a 100 GiB model, on XFS, btrfs and ext4 in images
  tensors     edits of tensors of such a model: renamed, reshaped, removed, 64 MiB of bytes replaced
  copy        an edit by copy of a 2 GB model, against cp
  during      `ls -l metadata` and reads of tensors while such a copy runs, against while cp runs
  split       `cp model.gguf` of a split model, against cat of the shards
  check       --check=full of a 2 GB model, against decoding alone
  many        20,000 keys made, renamed and removed one by one
  history     an edit whose keys are kept before it, against one with history=0
  memory      of the daemon, during large edits and after many
  latency     single reads of tensor data beside edits and listings, with 1,000,000 tokens
  stats       statistics of values, in processor time
  hashes      SHA-256 of all tensors, against sha256sum of as many files at a time
  hanging     reads while an edit waits for a disk that hangs
  folders     a folder of 10,000 models: mount and list, memory, `info` of 1,000 of them, --info
  before      reads, listings and edits against an earlier commit (--before COMMIT)

(default: all). docs/performance.md explains how each is measured, and its goal; RESULTS.md has figures.
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
import bounds
import copies
import derived
import edits
import folders
import ggufmodel
import passing
import programs
import shards
import states
import tensors
from benchlib import Table, ggufs, goal, quiet, ready, show_ms, show_ratio, speed_ratio, timed, turns

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))

MIB = 1 << 20
VALUES = 64 * MIB  # bytes of each tensor's float32 values in the model of all types
LARGE = 176  # MiB of each tensor's float32 values in the model of 2 GB
TYPES = [name for _, (name, _, _) in sorted(ggufmodel.GEOMETRY.items())]
READAHEADS = (128, 1024)  # KiB: what FUSE mounts get, and what root may set (the default then)


class Run:
    """Options, and the files that several benchmarks share."""

    def __init__(self, args):
        self.args, self.work, self.rounds = args, args.work, args.rounds
        os.makedirs(self.work, exist_ok=True)

    def made(self, name, *command):
        """The path of a file in the work folder, made by a command if it is not there yet."""
        path = os.path.join(self.work, name)
        if not os.path.exists(path):
            subprocess.run([*command, path + '.new'], check=True)
            os.rename(path + '.new', path)
        return path

    def types(self):
        return self.made('types.gguf', sys.executable, os.path.join(HERE, 'make-types'))

    def large(self):
        """The same with 2 GB of data."""
        return self.made('large.gguf', sys.executable, os.path.join(HERE, 'make-types'), '--mib',
                         str(LARGE))

    def shards(self):
        """The same in three files."""
        return [self.made(f'large-{i:05d}-of-00003.gguf', sys.executable,
                          os.path.join(HERE, 'make-types'), '--mib', str(LARGE), '--shard', f'{i}/3')
                for i in (1, 2, 3)]

    def script(self, name, script, *options):
        return self.made(name, sys.executable, os.path.join(SOURCE, 'scripts', script), *options)

    def native(self):
        """A plain file of the size of the values of one type."""
        path = os.path.join(self.work, 'native')
        if not os.path.exists(path):
            with open(path, 'wb') as out:
                for _ in range(VALUES // MIB):
                    out.write(os.urandom(MIB))
                os.fsync(out.fileno())
        return path

    @contextlib.contextmanager
    def small_pages(self):
        """A copy of the plain file whose pages in the cache are single ones, as those of all FUSE
        files are: on tmpfs. None where there is none that is like that."""
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


def warm(path):
    """Read it anew in order, so that its pages lie as they do after that."""
    with open(path, 'rb', buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass


def tensor(at, name, file='f32'):
    return os.path.join(at, 'tensors', name, file)


# ---- the benchmarks: each yields tables ----

def compare(table, base, path, label, bound, rounds):
    """Two files of one size."""
    base_s, own_s = turns([base, path], '-c', rounds=rounds)
    ratio = speed_ratio(base_s, own_s)
    size = os.stat(path).st_size
    assert os.stat(base).st_size == size
    table.add(label, benchlib.gb_per_s(size, base_s), benchlib.gb_per_s(size, own_s),
              show_ratio(ratio), goal(round(ratio[0], 2), bound) if bound else '')


@contextlib.contextmanager
def both(run, kib):
    """The model of all types and the server of ready bytes, mounted alike."""
    options = run.args.mount_options
    warm(run.types())
    with ggufs(run.work, run.types(), *options, readahead=kib) as (own, _), \
            ready(run.work, VALUES, *options, readahead=kib) as (base, _):
        if benchlib.set_readahead(own, kib) and benchlib.set_readahead(base, kib):
            yield own, os.path.join(base, 'hot0')
        else:
            yield None, None


def sequential(run):
    for kib in READAHEADS:
        table = Table(f'Sequential read, readahead {kib} KiB, model in the page cache',
                      'file', 'ready bytes GB/s', 'ggufs GB/s', 'ratio', 'goal')
        with both(run, kib) as (own, base):
            if not own:
                continue
            far = base.replace('hot', 'far')
            compare(table, base, far, '(ready bytes in 64 MiB of memory)', None, run.rounds)
            for name in run.args.types or TYPES:
                compare(table, base, tensor(own, name), f'f32 of {name}',
                        0.95 if name == 'F32' else 0.9, run.rounds)
            compare(table, base, tensor(own, 'F32', 'raw'), 'raw of F32', 0.95, run.rounds)
            compare(table, far, tensor(own, 'F32', 'raw'), 'raw of F32, to 64 MiB of memory', None,
                    run.rounds)
        yield table


def whole(run):
    """Views of the whole, against ready bytes in memory as large as they are."""
    for kib in READAHEADS:
        table = Table(f'Sequential read of a view of the whole, readahead {kib} KiB, model in the page cache',
                      'file', 'ready bytes GB/s', 'ggufs GB/s', 'ratio', 'goal')
        with both(run, kib) as (own, _):
            for name in ('model.safetensors', 'model.f32.safetensors') if own else ():
                path = os.path.join(own, name)
                with ready(run.work, os.stat(path).st_size, *run.args.mount_options, readahead=kib) as (base, _):
                    benchlib.set_readahead(base, kib)
                    compare(table, os.path.join(base, 'far0'), path, f'{name}, all types', 0.9, run.rounds)
        yield table


DISK = (('F32', 'raw'), ('F32', 'f32'), ('Q8_0', 'f32'), ('Q4_K', 'f32'))


def disk_once(run, kib, name, file):
    """Pages that the daemon has mapped cannot be dropped: each turn is a mount of its own."""
    model = run.types()
    with open(model, 'rb') as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with ggufs(run.work, model, *run.args.mount_options, readahead=kib) as (own, _):
        return turns([tensor(own, name, file)], '-c', rounds=1)[0][0]


def disk(run):
    """Against a native file of the size of the values that is not in the page cache either."""
    native, sizes = run.native(), {name: row for name, *row in ggufmodel.GEOMETRY.values()}
    for kib in READAHEADS:
        table = Table(f'Sequential read, readahead {kib} KiB, model not in the page cache',
                      'file', 'native GB/s', 'ggufs GB/s', 'ratio', 'GB/s of the model file')
        for name, file in DISK:
            pairs = [(turns([native], '-c', rounds=1)[0][0], disk_once(run, kib, name, file))
                     for _ in range(max(3, run.rounds // 2))]
            base, seconds = zip(*pairs)
            block_len, block_bytes = sizes[name]
            table.add(f'{file} of {name}', benchlib.gb_per_s(VALUES, base),
                      benchlib.gb_per_s(VALUES, seconds), show_ratio(speed_ratio(base, seconds)),
                      benchlib.gb_per_s(VALUES // 4 // block_len * block_bytes, seconds))
        yield table


def cached(run):
    table = Table('Second read, from the page cache', 'file', 'native GB/s', 'with single pages GB/s',
                  'ggufs GB/s', 'of native', 'of native with single pages', 'goal')
    native = run.native()
    with run.small_pages() as small:
        for kib in READAHEADS:
            with both(run, kib) as (own, hot):
                for label, path in (('(of the server of ready bytes)', hot),
                                    ('f32 of F32', tensor(own, 'F32')),
                                    ('f32 of Q4_K', tensor(own, 'Q4_K'))) if own else ():
                    warm(native)
                    times = turns([native, small or native, path], rounds=2 * run.rounds)
                    ratios = [speed_ratio(base, times[2]) for base in times[:2]]
                    table.add(f'{label}, filled by readahead of {kib} KiB',
                              *(benchlib.gb_per_s(VALUES, t) for t in times),
                              *(show_ratio(ratio) for ratio in ratios),
                              goal(round(ratios[1][0], 2), 0.95) if path != hot else '')
    yield table


RANDOM = (  # case, options of bench_read for the mount, for the native file, places, goal
    ('warm', (), (), 16384, None),
    ('the mount cold, the model and the native file warm', ('-c',), (), 4096, None),
    ('the mount and the native file cold, the model warm', ('-c',), ('-c',), 4096, None),
)
SINGLE_PAGES = ('warm, the native file with single pages', (), (), 16384, 0.95)


def random(run):
    table = Table('4 KiB at random places through mmap', 'case', 'file', 'native us', 'ggufs us',
                  'ratio', 'goal')
    with ggufs(run.work, run.types(), *run.args.mount_options) as (own, _), \
            run.small_pages() as small:
        for case in RANDOM:
            random_rows(run, table, own, run.native(), case)
        if small:
            random_rows(run, table, own, small, SINGLE_PAGES)
    yield table


def random_rows(run, table, own, native, case):
    label, options, native_options, places, bound = case
    for name in ('F32', 'Q4_K'):
        for path in (run.types(), native, tensor(own, name)):
            warm(path)
        pairs = [tuple(turns([path], '-m', str(places), *extra, rounds=1)[0][0]
                       for path, extra in ((native, native_options),
                                           (tensor(own, name), options)))
                 for _ in range(run.rounds)]
        base, seconds = zip(*pairs)
        ratio = speed_ratio(base, seconds)
        table.add(label, f'f32 of {name}', *(f'{benchlib.spread(s)[0] / places * 1e6:.2f}'
                                             for s in (base, seconds)),
                  show_ratio(ratio), goal(round(ratio[0], 2), bound) if bound else '')


PARALLEL = ('Q4_K', 'Q6_K', 'Q8_0', 'Q5_K', 'Q4_0', 'Q5_0', 'IQ4_XS', 'Q3_K')


def parallel(run):
    for kib in READAHEADS:
        table = Table(f'Parallel readers of f32, a type each, readahead {kib} KiB', 'readers',
                      'ready bytes GB/s', 'ggufs GB/s', 'ratio')
        with both(run, kib) as (own, base):
            if not own:
                continue
            for n in (1, 2, 4, 8):
                ready_paths = ','.join(base[:-1] + str(i) for i in range(n))
                paths = ','.join(tensor(own, name) for name in PARALLEL[:n])
                base_s, seconds = turns([ready_paths, paths], '-c', rounds=run.rounds)
                table.add(n, benchlib.gb_per_s(n * VALUES, base_s),
                          benchlib.gb_per_s(n * VALUES, seconds),
                          show_ratio(speed_ratio(base_s, seconds)))
        yield table


# ---- mounting ----

def daemon_of(at):
    """The process whose command line ends in this mount point."""
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError), open(f'/proc/{pid}/cmdline', 'rb') as file:
            if file.read().split(b'\0')[-2:] == [os.fsencode(at), b'']:
                return int(pid)
    raise SystemExit(f'no daemon serves {at}')


def resident(pid):
    """Bytes in memory: all, and without pages of files."""
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
    """Bytes of the header."""
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


def read_metadata(model, at):
    mount(model, at)
    folder = os.path.join(at, 'metadata')
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), 'rb', buffering=0) as file:
            while file.read(MIB):
                pass
    unmount(at, daemon_of(at))


def vocabulary(run):
    table = Table('A vocabulary of 100,000 tokens and 100,000 merges', 'what', 'ms', 'goal')
    model = run.made('vocabulary.gguf', sys.executable, os.path.join(HERE, 'make-vocabulary'))
    at = os.path.join(run.work, 'mnt-start')
    os.makedirs(at, exist_ok=True)
    done = subprocess.run([benchlib.program('bench_parse'), str(3 * run.rounds), model],
                          check=True, stdout=subprocess.PIPE, text=True)
    parse = [float(line.split()[0]) for line in done.stdout.splitlines()]
    table.add('parse', show_ms(parse), goal(round(benchlib.spread(parse)[0] * 1e3, 1), 5, False))
    whole = [timed(read_metadata, model, at) for _ in range(run.rounds)]
    table.add('mount, read all of metadata/, unmount', show_ms(whole),
              goal(round(benchlib.spread(whole)[0] * 1e3), 200, False))
    yield table


BENCHES = {f.__name__: f for f in (
    programs.decode, programs.encode, sequential, whole, disk, passing.passthrough, cached, random, parallel, start,
    vocabulary, edits.edit, copies.copy, copies.during, shards.split, shards.check, bounds.many, states.history,
    bounds.memory, bounds.latency, bounds.hanging, derived.stats, derived.hashes, before.before, folders.folders, tensors.tensors)}


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
    parser.add_argument('--types', nargs='*', help='of `sequential`')
    parser.add_argument('--keys', type=int, default=20000, help='of `many`; a quarter of them of `memory`')
    parser.add_argument('--writes', type=int, default=100, help='of the large string of `memory`')
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
    # As Ctrl-C does: what is mounted is unmounted on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    args = arguments()
    run = Run(args)
    os.environ['XDG_STATE_HOME'] = os.path.join(run.work, 'state')
    tsv = open(args.tsv or os.path.join(run.work, 'results.tsv'), 'w', encoding='utf-8')
    print(machine())
    for what in args.what or BENCHES:
        for table in BENCHES[what](run):
            print('\n' + (table.markdown() if args.markdown else table.plain()), flush=True)
            print(table.tsv(), file=tsv, flush=True)
    print(machine(), file=tsv)
    for name in os.listdir(run.work):
        if name.startswith('mnt-'):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.join(run.work, name))
    tsv.close()


if __name__ == '__main__':
    main()
