# SPDX-License-Identifier: MIT
"""scripts/bench [--rounds N] [--work DIR] [--mib N] [--types T...] [WHAT...]

Measures ggufs against the bound set by this machine, in turns, and prints ratios: the median of all
rounds and, in brackets, the minimum and the maximum. WHAT is any of

  sequential  `f32` of every type and `raw`, in order, against a FUSE server of ready bytes
  disk        the same with the model file not in the page cache, against a native file
  cached      second read of a file of the mount, against a native file
  random      4 KiB at random places, against a native file
  start       mount, list, memory and unmount: a small model and one of 1 TB with 20,000 tensors
  edit        each kind of edit of a 100 GiB model, on XFS, btrfs and ext4 in images
  copy        an edit by copy of a 2 GB model, against cp
  folder      a directory of 10,000 models: mount and list, memory, `info`, --info

(default: all). Environment: GGUFS (the program), BENCH_PROGRAMS (the directory of the programs of
tests/bench). docs/performance.md has figures.
"""
import argparse
import contextlib
import os
import random as dice
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import disks
import editlib
import ggufmodel as gguf
import llama
import mountlib
import samples

GGUFS = mountlib.GGUFS
PROGRAMS = os.environ.get('BENCH_PROGRAMS', '.')
KIB, MIB = 1 << 10, 1 << 20
READAHEADS = (128, 1024)  # in KiB: the default of FUSE, and a value that root may set
KEY = 'general.name'
missed = []


# ---- figures ----

def timed(function, *args):
    begin = time.perf_counter()
    function(*args)
    return time.perf_counter() - begin


def quiet(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def spread(values, scale=1.0, digits=2):
    """Return the median, and the extremes in brackets."""
    middle, least, most = (scale * f(values) for f in (statistics.median, min, max))
    return f'{middle:.{digits}f} ({least:.{digits}f}-{most:.{digits}f})'


def goal(what, value, bound, at_least=True):
    met = value >= bound if at_least else value <= bound
    if not met:
        missed.append(f'{what}: {value:.3g}')
    return f'{">=" if at_least else "<="} {bound:g}: {"met" if met else "MISSED"}'


def table(title, columns, rows):
    rows = [[str(cell) for cell in row] for row in [columns, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    print('\n' + title)
    for row in rows:
        print('  ' + '  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip(), flush=True)


# ---- reading ----

def drop(path):
    with open(path, 'rb') as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path, buffer=bytearray(MIB)):
    with open(path, 'rb', buffering=0) as file:
        while file.readinto(buffer):
            pass


def read_places(path, count=4096):
    places = dice.Random(1)
    with open(path, 'rb', buffering=0) as file:
        pages = os.fstat(file.fileno()).st_size // 4096
        for _ in range(count):
            os.pread(file.fileno(), 4096, places.randrange(pages) * 4096)


def turns(files, rounds, cold=(), how=read):
    """Return, for each file, the list of its seconds; its place in a round changes from round to
    round. cold: the files whose pages are dropped before each turn."""
    seconds = {path: [] for path in files}
    for path in files:
        how(path)
    for i in range(rounds):
        for k in range(len(files)):
            path = files[(i + k) % len(files)]
            for other in cold:
                drop(other)
            seconds[path].append(timed(how, path))
    return [seconds[path] for path in files]


def compare(title, what, base, own, rounds, bound, cold=(), how=read):
    """Return a row: how fast `own` is read, as a fraction of `base`."""
    base_s, own_s = turns([base, own], rounds, cold, how)
    ratios = [b / o for b, o in zip(base_s, own_s)]
    size = os.stat(own).st_size
    return [what, *(f'{size / statistics.median(s) / 1e9:.2f}' for s in (base_s, own_s)), spread(ratios),
            goal(f'{title}: {what}', statistics.median(ratios), bound)]


READ = ('file', 'base GB/s', 'ggufs GB/s', 'ratio', 'goal')


# ---- mounts ----

@contextlib.contextmanager
def serve(model, *options, readahead=None, program=(GGUFS,)):
    """Run a FUSE server in the foreground on a new directory."""
    with mountlib.Foreground(model, *options, program=program) as (at, _):
        device = os.stat(at).st_dev  # answered: the handshake with the kernel is complete
        if readahead:
            with contextlib.suppress(OSError), \
                    open(f'/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb', 'w', encoding='utf-8') as file:
                file.write(str(readahead))
        yield at


def ggufs(model, *options, readahead=None):
    own = ['-o', f'readahead={readahead}'] if readahead else []
    return serve(model, *options, *own, readahead=readahead)


def ready(size, readahead=None):
    return serve(str(size), readahead=readahead, program=(os.path.join(PROGRAMS, 'ready_server'),))


def made(run, name, make):
    """Return the path of a generated file, which is made if it does not exist yet."""
    path = os.path.join(run.work, name)
    if not os.path.exists(path):
        make(path + '.new')
        os.rename(path + '.new', path)
    return path


def by_script(run, name, script, *options):
    return made(run, name, lambda new: quiet(sys.executable, os.path.join(mountlib.SOURCE, script), *options, new))


def types(run, mib=None):
    """Return the model with a tensor of each type, of as many MiB as float32."""
    mib = mib or run.mib
    dims = (8192, (mib << 20) // 4 // 8192)
    tensors = [gguf.Tensor(name.encode(), type_id, dims) for type_id, (name, _, _) in sorted(gguf.GEOMETRY.items())]
    sizes = [gguf.nbytes(tensor.type_id, dims) for tensor in tensors]
    offsets, _ = gguf.place(sizes, range(len(sizes)), 4096, 0)
    head = gguf.header([*samples.ARCH, (b'general.alignment', gguf.Value('u32', 4096))], tensors, offsets)
    base = len(head) + gguf.pad(len(head), 4096)

    def make(new):
        with open(new, 'wb') as out:
            out.write(head)
            for tensor, offset, size in zip(tensors, offsets, sizes):
                pool = samples.blocks(tensor.type_id, 1024)  # again and again
                out.seek(base + offset)
                for at in range(0, size, len(pool)):
                    out.write(pool[:size - at])
            out.truncate(base + offsets[-1] + sizes[-1] + gguf.pad(sizes[-1], 4096))
    return made(run, f'types-{mib}.gguf', make)


def native(run):
    """Return a plain file as large as the values of one type."""
    return made(run, f'native-{run.mib}', lambda new: mountlib.put(new, os.urandom(run.mib * MIB)))


def tensor(at, name, file='f32'):
    return os.path.join(at, 'tensors', name, file)


# ---- the benchmarks ----

def sequential(run):
    model = types(run)
    for kib in READAHEADS:
        title = f'Sequential read, readahead {kib} KiB, model in the page cache'
        with ggufs(model, readahead=kib) as own, ready(run.mib * MIB, readahead=kib) as base:
            far = os.path.join(base, 'far')
            read(model)
            rows = []
            for name, file, bound in [(name, 'f32', 0.9) for name in run.types] + [('F32', 'raw', 0.95)]:
                path = tensor(own, name, file)
                rows.append(compare(title, f'{file} of {name}', far, path, run.rounds, bound, (far, path)))
            table(title, READ, rows)


def disk(run):
    model = types(run)
    for kib in READAHEADS:
        title = f'Sequential read, readahead {kib} KiB, model not in the page cache'
        rows = []
        for name, file in (('F32', 'raw'), ('F32', 'f32'), ('Q8_0', 'f32'), ('Q4_K', 'f32')):
            pairs = []
            for _ in range(run.rounds):  # each turn has its own mount: mapped pages cannot be dropped
                drop(model)
                with ggufs(model, readahead=kib) as own:
                    drop(native(run))
                    pairs.append(timed(read, native(run)) / timed(read, tensor(own, name, file)))
            rows.append([f'{file} of {name}', spread(pairs),
                         goal(f'{title}: {file} of {name}', statistics.median(pairs), 0.9)])
        table(title, ('file', 'speed, of native', 'goal'), rows)


def cached(run):
    with ggufs(types(run)) as own:
        table('Second read, from the page cache', READ,
              [compare('cached', f'f32 of {name}', native(run), tensor(own, name), 2 * run.rounds, 0.3)
               for name in ('F32', 'Q4_K')])


def random(run):
    with ggufs(types(run)) as own:
        for title, is_cold in (('4 KiB at random places, cached', False), ('the same, not cached', True)):
            table(title, READ, [compare(title, f'f32 of {name}', native(run), tensor(own, name), run.rounds,
                                        0.1 if is_cold else 0.8, (tensor(own, name),) if is_cold else (), read_places)
                                for name in ('F32', 'Q4_K')])


def unmount(at):
    quiet(GGUFS, '--unmount', at)


def mount_and_list(model, at):
    quiet(GGUFS, model, at)
    os.listdir(at)


START_GOALS = {'mount to first ls': 1.0, 'ls -l tensors': 2.0, 'tail of the last f32': 0.1}


def start(run):
    models = {'small (5M weights)': by_script(run, 'sample.gguf', 'scripts/make-sample'),
              '1 TB, 20,000 tensors, 1,000,000 tokens': by_script(run, 'huge.gguf', 'scripts/make-huge')}
    for name, model in models.items():
        seconds, memory = {}, []
        at = tempfile.mkdtemp(prefix='mnt-', dir=run.work)
        tensors = os.path.join(at, 'tensors')
        for _ in range(run.rounds):
            def add(what, function, *args):
                seconds.setdefault(what, []).append(timed(function, *args))

            add('mount to first ls', mount_and_list, model, at)
            add('ls -l tensors', quiet, 'ls', '-l', tensors)
            add('ls -lR', quiet, 'ls', '-lR', at)
            add('tail of the last f32', quiet, 'tail', '-c', '4096', tensor(at, os.listdir(tensors)[-1]))
            add('cat metadata.json', quiet, 'cat', os.path.join(at, 'metadata.json'))
            memory.append(mountlib.memory(at, 'VmRSS') / MIB)
            add('unmount', unmount, at)
        os.rmdir(at)
        rows = [[what, spread(values, 1e3, 1) + ' ms',
                 goal(f'{name}: {what}', statistics.median(values), START_GOALS[what], False) if what in START_GOALS else '']
                for what, values in seconds.items()]
        table(f'Mounting: {name}', ('what', 'figure', 'goal, in s'),
              rows + [['resident memory', f'{max(memory):.1f} MiB', '']])


# ---- edits ----

def write(path, text):
    """Write like a shell's `echo TEXT > PATH`, which closes the truncated file once before it writes."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.close(os.dup(fd))
    os.write(fd, text.encode() + b'\n')
    os.close(fd)


def remove(path):
    os.unlink(path)
    editlib.sync(os.path.dirname(os.path.dirname(path)))


def added(metadata, i):
    return os.path.join(metadata, f'bench.added.{i}')


COUNT, LENGTH = 20, 400  # edits of each kind; initial bytes of KEY
# name -> the i-th edit of that kind, i from 0. Longer and shorter undo each other, as do add and remove.
EDITS = {
    'same size': lambda at, i: write(os.path.join(at, KEY), chr(97 + i % 26) * LENGTH),
    'longer': lambda at, i: write(os.path.join(at, KEY), 'x' * (LENGTH + 20 * (i + 1))),
    'shorter': lambda at, i: write(os.path.join(at, KEY), 'x' * (LENGTH + 20 * (COUNT - i - 1))),
    'add a key': lambda at, i: write(added(at, i), f'number {i}'),
    'remove a key': lambda at, i: remove(added(at, i)),
}


def edit_on(run, kind):
    source = by_script(run, 'sparse-100g.gguf', 'scripts/make-huge', '--size', '100G', '--tensors', '1000', '--tokens', '128000')
    rows = []
    with disks.new_disk(kind, 16 << 30) as folder:
        model = os.path.join(folder, 'model.gguf')
        quiet('cp', '--sparse=always', source, model)
        size = os.stat(model).st_size
        with open(model, 'r+b') as file:  # some data in each tensor, so that it is not a single hole
            for i in range(1000):
                file.seek(size // 1000 * i + size // 2000)
                file.write(dice.randbytes(64 * KIB))
            os.fsync(file.fileno())
        with ggufs(model, '-o', 'commit=close') as at:
            metadata = os.path.join(at, 'metadata')
            write(os.path.join(metadata, KEY), 'x' * LENGTH)  # makes the reserve
            editlib.sync(at)
            for what, once in EDITS.items():
                seconds = [timed(once, metadata, i) for i in range(COUNT)]
                rows.append([kind, what, spread(seconds, 1e3, 1), goal(f'{kind}: {what}', 1e3 * max(seconds), 200, False)])
    return rows


def edit(run):
    rows = []
    for kind in ('ext4', 'xfs', 'btrfs'):
        try:
            rows += edit_on(run, kind)
        except unittest.SkipTest as why:
            rows.append([kind, f'skipped: {why}', '', ''])
    table('Edits of a model of 100 GiB', ('file system', 'edit', 'ms', 'goal: the slowest'), rows)


def copy(run):
    """Both end when the copy is on the disk. The file that cp leaves is removed outside the timing;
    the file that an edit replaces is freed by the edit."""
    source, ratios = types(run, 176), []
    with tempfile.TemporaryDirectory(prefix='copy-', dir=run.work) as folder:
        model, new = os.path.join(folder, 'model.gguf'), os.path.join(folder, 'new')
        quiet('cp', source, model)
        quiet('sync', model)
        with ggufs(model, '-o', 'relayout=copy,commit=close') as at:
            for i in range(max(3, run.rounds // 2)):
                native_s = timed(quiet, 'sh', '-c', 'cp --reflink=never "$1" "$2" && sync "$2"', 'sh', model, new)
                os.unlink(new)
                quiet('sync', folder)
                ratios.append(native_s / timed(write, os.path.join(at, 'metadata', KEY), f'copy {i}'))
                quiet('sync', folder)
    table('An edit by copy of a model of 2 GB', ('speed, of cp and sync', 'goal'),
          [[spread(ratios), goal('copy', statistics.median(ratios), 0.9)]])


# ---- folders ----

def folder(run):
    rows = []
    with tempfile.TemporaryDirectory(prefix='folder-', dir=run.work) as top:
        at, models = os.path.join(top, 'mnt'), os.path.join(top, 'models')
        os.mkdir(at)
        os.mkdir(models)
        for i in range(10000):
            mountlib.put(os.path.join(models, f'model-{i:05}.gguf'), llama.image())
        seconds, long, memory = [], [], []
        for _ in range(run.rounds):
            seconds.append(timed(mount_and_list, models, at))
            long.append(timed(quiet, 'ls', '-l', at))
            memory.append(mountlib.memory(at, 'VmRSS') / MIB)
            unmount(at)
        rows.append(['mount and first `ls`', spread(seconds, 1e3, 1) + ' ms',
                     goal('folder: ls', statistics.median(seconds), 0.2, False)])
        rows.append(['`ls -l`', spread(long, 1e3, 1) + ' ms', goal('folder: ls -l', statistics.median(long), 0.5, False)])
        rows.append(['resident, with nothing open', f'{max(memory):.1f} MiB', goal('folder: memory', max(memory), 32, False)])
        quiet(GGUFS, models, at)
        spent = timed(quiet, 'cat', *(os.path.join(at, name, 'info') for name in os.listdir(at)[:1000]))
        rows.append(['`cat` of `info` of 1,000', f'{spent:.2f} s', goal('folder: info', spent, 3, False)])
        unmount(at)
        spent = timed(quiet, GGUFS, '--info', '--json', models)
        rows.append(['`ggufs --info --json`', f'{spent:.2f} s', goal('folder: --info', spent, 20, False)])
    table('A folder of 10,000 models', ('what', 'figure', 'goal'), rows)


BENCHES = {f.__name__: f for f in (sequential, disk, cached, random, start, edit, copy, folder)}


def main():
    # Act as on Ctrl-C: mounts are unmounted on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(prog='bench', usage=__doc__)
    parser.add_argument('what', nargs='*')
    parser.add_argument('--rounds', type=int, default=15)
    parser.add_argument('--work', default=os.path.join(os.getcwd(), 'bench-work'))
    parser.add_argument('--mib', type=int, default=64, help='of each tensor, as float32')
    parser.add_argument('--types', nargs='*', default=[name for _, (name, _, _) in sorted(gguf.GEOMETRY.items())])
    run = parser.parse_args()
    if unknown := [what for what in run.what if what not in BENCHES]:
        parser.error(f'{unknown[0]}: not one of {", ".join(BENCHES)}')
    run.work = os.path.realpath(run.work)
    os.makedirs(run.work, exist_ok=True)
    mountlib.folder = run.work
    os.environ['XDG_STATE_HOME'] = mountlib.path('state')
    for what in run.what or BENCHES:
        BENCHES[what](run)
    print('\n' + '\n'.join(['goals that were missed:', *missed] if missed else ['no goal was missed']))


if __name__ == '__main__':
    main()
