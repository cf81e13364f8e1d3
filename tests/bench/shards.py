# SPDX-License-Identifier: MIT
"""Measures split models merged by cp, and --check=full."""
import os
import re
import subprocess

import benchlib
from benchlib import Skipped, Table, ggufs, goal, quiet, ready, show_ratio, speed_ratio, timed

GIB = 1 << 30
READAHEADS = (128, 1024)  # KiB
ROOM = 5 * GIB  # the shards and the files made from them
NEEDED = 8 * GIB  # memory, including ROOM


def sh(script, *args):
    quiet('sh', '-c', script, 'sh', *args)


def once(script, args, out, cold):
    """Return the seconds. The resulting file is removed, and so are the pages of FUSE mounts in the
    page cache."""
    for path in cold:
        benchlib.drop(path)
    seconds = timed(sh, script, out, *args)
    os.unlink(out)
    return seconds


CAT = 'out=$1; shift; cat "$@" > "$out"'
COPY = 'cp "$2" "$1"'
DIRECT = 'dd if="$2" of="$1" bs=1M iflag=direct status=none'
TO_DISK = ' && sync "$out"', ' && sync "$1"'


def compare(table, kib, ways, out, size, rounds):
    """Compare ways, which are (label, script, files, files to drop, goal); the first is the
    reference for the others. An untimed round comes first."""
    seconds = [[] for _ in ways]
    for i in range(rounds + 1):
        for k in range(len(ways)):
            which = (i + k) % len(ways)
            _, script, args, cold, _ = ways[which]
            seconds[which].append(once(script, args, out, cold))
    base = seconds[0][1:]
    for (label, _, _, _, bound), own in zip(ways[1:], seconds[1:]):
        ratio = speed_ratio(base, own[1:])
        table.add(label, f'{kib} KiB', benchlib.gb_per_s(size, base),
                  benchlib.gb_per_s(size, own[1:]), show_ratio(ratio),
                  goal(round(ratio[0], 2), bound) if bound else '')


def in_memory(shards, merged, hot):
    return [('', CAT, shards, [], None),
            ('cp model.gguf', COPY, [merged], [merged], 1.0),
            ('cp of ready bytes', COPY, [hot], [hot], None),
            ('dd iflag=direct bs=1M', DIRECT, [merged], [merged], None)]


def on_disk(shards, merged, _):
    return [('', CAT + TO_DISK[0], shards, [], None),
            ('cp model.gguf', COPY + TO_DISK[1], [merged], [merged], 1.0)]


def split_at(run, folder, ways, table):
    """Run the benchmark once the shards exist."""
    paths = [os.path.join(folder, os.path.basename(path)) for path in run.shards()]
    out, size = os.path.join(folder, 'whole.gguf'), sum(os.stat(path).st_size for path in paths)
    for kib in READAHEADS:
        with ggufs(run.work, paths[0], '-o', 'ro', readahead=kib) as (at, _), \
                ready(run.work, size, readahead=kib) as (base, _):
            if benchlib.set_readahead(at, kib) and benchlib.set_readahead(base, kib):
                merged, hot = os.path.join(at, 'model.gguf'), os.path.join(base, 'hot0')
                compare(table, kib, ways(paths, merged, hot), out, size, max(3, run.rounds // 2))


def split(run):
    columns = 'by', 'readahead', 'cat GB/s', 'this GB/s', 'ratio', 'goal'
    table = Table('Three shards of 2 GB made one, in the work folder, to the disk', *columns)
    split_at(run, run.work, on_disk, table)
    yield table
    table = Table('Three shards of 2 GB made one, in memory (tmpfs)', *columns)
    try:
        if benchlib.available() < NEEDED:
            raise Skipped(f'tmpfs: needs {NEEDED // GIB} GiB of memory')
        with benchlib.disk(run.work, 'tmpfs', ROOM) as folder:
            for path in run.shards():
                quiet('cp', path, folder)
            split_at(run, folder, in_memory, table)
    except Skipped as why:
        table.add('skipped: ' + str(why), *[''] * 5)
    yield table


# ---- --check=full ----

def check(run):
    table = Table('--check=full of a model of 2 GB', 'what', 'decoding alone GB/s', 'GB/s', 'ratio',
                  'goal')
    model = run.large()
    done = subprocess.run([benchlib.program('bench_scan'), model], check=True, text=True,
                          stdout=subprocess.PIPE)
    alone, scan, ratio = map(float, re.findall(r'\d+\.\d+', done.stdout)[:3])
    table.add('one thread, processor time', f'{alone:.2f}', f'{scan:.2f}', f'{ratio:.2f}',
              goal(ratio, 0.8))
    values = 0
    with ggufs(run.work, model, '-o', 'ro') as (at, _):
        for name in os.listdir(os.path.join(at, 'tensors')):
            values += os.stat(os.path.join(at, 'tensors', name, 'f32')).st_size
    seconds = [timed(full_check, model) for _ in range(max(3, run.rounds // 3))]
    table.add(f'the command, {os.cpu_count()} processors', '', benchlib.gb_per_s(values, seconds),
              '', '')
    yield table


def full_check(model):
    """Run a full check, whose exit status is 1, because the made-up model has findings."""
    done = subprocess.run([benchlib.GGUFS, '--check=full', model], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(f'--check=full: status {done.returncode}')
