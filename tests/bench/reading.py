# SPDX-License-Identifier: MIT
"""Measures reads of tensors and views of the model, in order, at random places, in parallel, from
memory and from the disk."""
import contextlib
import os

import benchlib
import ggufmodel
from benchlib import MIB, VALUES, Table, ggufs, goal, ready, show_ratio, speed_ratio, turns

TYPES = [name for _, (name, _, _) in sorted(ggufmodel.GEOMETRY.items())]
READAHEADS = (128, 1024)  # in KiB: the default of FUSE, and a value that root may set
SIZES = (64, 256)  # in MiB, of each tensor's float32 values
MANY = 60, 128  # tensors of each type, KiB of float32 values per tensor

# Before each turn, the mount's pages are dropped, and as much memory is touched as the turn needs.
FAIR = ('-c', '-w', '-t', '1')


def warm(path):
    """Read the file again sequentially, so that its pages are placed as after such a read."""
    with open(path, 'rb', buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass


def tensor(at, name, file='f32'):
    return os.path.join(at, 'tensors', name, file)


def compare(table, base, path, label, bound, rounds):
    """Compare two files of the same size."""
    base_s, own_s = turns([base, path], *FAIR, rounds=rounds)
    ratio = speed_ratio(base_s, own_s)
    size = os.stat(path).st_size
    assert os.stat(base).st_size == size
    table.add(label, benchlib.gb_per_s(size, base_s), benchlib.gb_per_s(size, own_s),
              show_ratio(ratio), goal(round(ratio[0], 2), bound) if bound else '')


@contextlib.contextmanager
def both(run, kib, mib=VALUES // MIB):
    """Mount the model of all types and the server of ready bytes alike: with files of the model's
    sizes, and with ready bytes that stay in the processor's cache."""
    options, model = run.args.mount_options, run.types(mib)
    warm(model)
    with ggufs(run.work, model, *options, readahead=kib) as (own, _), \
            ready(run.work, mib * MIB, *options, readahead=kib) as (base, _):
        if benchlib.set_readahead(own, kib) and benchlib.set_readahead(base, kib):
            yield own, os.path.join(base, 'hot0')
        else:
            yield None, None


def sequential(run):
    for mib in run.args.mib or SIZES:
        for kib in run.args.readahead or READAHEADS:
            with both(run, kib, mib) as (own, hot):
                if own:
                    yield in_order(run, own, hot, f'{mib} MiB each, readahead {kib} KiB')


def in_order(run, own, hot, how):
    far = hot.replace('hot', 'far')
    table = Table(f'Sequential read, {how}, model in the page cache',
                  'file', 'ready bytes GB/s', 'ggufs GB/s', 'ratio', 'goal')
    for name in run.args.types or TYPES:
        compare(table, far, tensor(own, name), f'f32 of {name}', 0.9, run.rounds)
    if run.args.types:
        return table
    compare(table, far, tensor(own, 'F32', 'raw'), 'raw of F32', 0.95, run.rounds)
    compare(table, hot, far, '(those bytes, to ready bytes in the cache)', None, run.rounds)
    compare(table, hot, tensor(own, 'F32', 'raw'), '(raw of F32, to ready bytes in the cache)', None, run.rounds)
    return table


WHOLE = ('model.safetensors', 'model.f32.safetensors')


def whole(run):
    """Compare views of the model with the same number of ready bytes in memory."""
    models = {'tensors of 128 KiB': run.many(), 'tensors of 8 MiB': run.types(8), 'tensors of 64 MiB': run.types()}
    for kib in READAHEADS:
        table = Table(f'Sequential read of a view of the whole, readahead {kib} KiB, model in the page cache',
                      'file', 'of', 'MiB', 'ready bytes GB/s', 'ggufs GB/s', 'ratio', 'goal')
        for label, model in models.items():
            warm(model)
            with ggufs(run.work, model, *run.args.mount_options, readahead=kib) as (own, _):
                for name in WHOLE if benchlib.set_readahead(own, kib) else ():
                    whole_row(run, table, kib, os.path.join(own, name), label)
        yield table


def whole_row(run, table, kib, path, label):
    size = os.stat(path).st_size
    with ready(run.work, size, *run.args.mount_options, readahead=kib) as (base, _):
        benchlib.set_readahead(base, kib)
        rounds = run.rounds if size < 1 << 30 else max(5, run.rounds // 2)
        compare(table, os.path.join(base, 'far0'), path, os.path.basename(path), 0.9, rounds)
    table.rows[-1][1:1] = [label, f'{size // MIB}']


DISK = (('F32', 'raw'), ('F32', 'f32'), ('Q8_0', 'f32'), ('Q4_K', 'f32'))
# Touch memory for the pages of the model, of the mount, and of the native file.
COLD = ('-c', '-t', '3')


def disk_once(run, kib, name, file):
    """Run one turn. Each turn has its own mount, because pages that the daemon has mapped cannot be
    dropped."""
    model = run.types()
    benchlib.drop(model)
    with ggufs(run.work, model, *run.args.mount_options, readahead=kib) as (own, _):
        return turns([tensor(own, name, file)], *COLD, rounds=1)[0][0]


def ready_once(run, kib):
    with ready(run.work, VALUES, *run.args.mount_options, readahead=kib) as (base, _):
        return turns([os.path.join(base, 'far0')], *COLD, rounds=1)[0][0]


def disk(run):
    """Compare with a native file as large as the values that is not in the page cache either."""
    sizes = {name: row for name, *row in ggufmodel.GEOMETRY.values()}
    for kib in run.args.readahead or READAHEADS:
        table = Table(f'Sequential read, readahead {kib} KiB, model not in the page cache',
                      'file', 'native GB/s', 'ggufs GB/s', 'ratio', 'GB/s of the model file', 'goal')
        for name, file in DISK:
            seconds, ratio = disk_row(run, table, f'{file} of {name}', disk_once, kib, name, file)
            block_len, block_bytes = sizes[name]
            table.rows[-1] += [benchlib.gb_per_s(VALUES // 4 // block_len * block_bytes, seconds),
                               goal(round(ratio, 2), 0.9)]
        disk_row(run, table, '(ready bytes in memory)', ready_once, kib)
        table.rows[-1] += ['', '']
        yield table


def disk_row(run, table, label, once, *which):
    """Run pairs of a turn of the native file and once(run, *which), in alternating order."""
    native, pairs = run.native(), []
    for i in range(run.rounds + 1):
        pair = [0.0, 0.0]
        for own in (i % 2, 1 - i % 2):
            pair[own] = once(run, *which) if own else turns([native], *COLD, rounds=1)[0][0]
        pairs.append(pair)
    base, seconds = zip(*pairs[1:])  # the first round reads the files into the memory of the host
    ratio = speed_ratio(base, seconds)
    table.add(label, benchlib.gb_per_s(VALUES, base), benchlib.gb_per_s(VALUES, seconds), show_ratio(ratio))
    return seconds, ratio[0]


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
                base_s, seconds = turns([ready_paths, paths], *FAIR, rounds=run.rounds)
                table.add(n, benchlib.gb_per_s(n * VALUES, base_s),
                          benchlib.gb_per_s(n * VALUES, seconds),
                          show_ratio(speed_ratio(base_s, seconds)))
        yield table
