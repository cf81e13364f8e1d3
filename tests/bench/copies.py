# SPDX-License-Identifier: MIT
"""Measures edits that copy the model: their speed, and how they slow down the rest of the
system."""
import contextlib
import os
import signal
import statistics
import subprocess
import tempfile

import benchlib
import edits
from benchlib import Skipped, Table, ggufs, goal, quiet, show_ms, show_ratio, speed_ratio, timed, turns

GIB = 1 << 30
OPTIONS = ('-o', 'relayout=copy,commit=close')
ROOM = 5 * GIB  # a disk for two copies of the model
NEEDED = 8 * GIB  # memory, including that disk


@contextlib.contextmanager
def place(run, kind):
    """Return a directory that contains the model: in the work directory, or on tmpfs."""
    source = run.large()
    if kind == 'tmpfs' and benchlib.available() < NEEDED:
        raise Skipped(f'tmpfs: needs {NEEDED // GIB} GiB of memory')
    where = (benchlib.disk(run.work, kind, ROOM) if kind == 'tmpfs'
             else tempfile.TemporaryDirectory(prefix='copy-', dir=run.work))
    with where as folder:
        quiet('cp', source, os.path.join(folder, 'model.gguf'))
        quiet('sync', os.path.join(folder, 'model.gguf'))
        yield folder


def kind_of(folder):
    return subprocess.run(['findmnt', '-no', 'FSTYPE', '-T', folder], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()


# Both end when the copy is on the disk. The file that cp leaves is removed outside the timing; the
# file that an edit replaces is freed by the edit.
CP = 'cp --reflink=never "$1/model.gguf" "$1/new" && sync "$1/new"'


def native_copy(folder):
    quiet('sh', '-c', CP, 'sh', folder)


def clean(folder):
    """Remove the file that cp left, and wait for the disk."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, 'new'))
    quiet('sync', folder)


def edited_copy(metadata, i):
    edits.write(os.path.join(metadata, edits.KEY), f'copy {i}')


def copy_rounds(folder, metadata, rounds):
    """Return the seconds of cp and of edits, in turns, after an untimed round."""
    pairs = []
    for i in range(rounds + 1):
        both = [lambda: native_copy(folder), lambda i=i: edited_copy(metadata, i)]
        order = (0, 1) if i % 2 else (1, 0)
        pair = [0.0, 0.0]
        for which in order:
            pair[which] = timed(both[which])
            clean(folder)
        pairs.append(pair)
    return list(zip(*pairs[1:]))


def copy(run):
    table = Table('An edit by copy of a model of 2 GB', 'file system', 'cp GB/s', 'ggufs GB/s',
                  'ratio', 'goal')
    for kind in ('work folder', 'tmpfs'):
        try:
            with place(run, kind) as folder, \
                    ggufs(run.work, os.path.join(folder, 'model.gguf'), *OPTIONS) as (at, _):
                size = os.stat(os.path.join(folder, 'model.gguf')).st_size
                base, own = copy_rounds(folder, os.path.join(at, 'metadata'),
                                        max(3, run.rounds // 2))
                ratio = speed_ratio(base, own)
                table.add(kind_of(folder), benchlib.gb_per_s(size, base),
                          benchlib.gb_per_s(size, own), show_ratio(ratio),
                          goal(round(ratio[0], 2), 0.9))
        except Skipped as why:
            table.add(kind, '', '', '', f'skipped: {why}')
    yield table


# ---- other work meanwhile ----

def nothing():
    return None


def start_native(folder):
    return subprocess.Popen(['sh', '-c', CP, 'sh', folder], start_new_session=True)


def start_edit(metadata, i):
    return subprocess.Popen(['sh', '-c', 'echo "$1" > "$2"', 'sh', f'during {i}',
                             os.path.join(metadata, edits.KEY)], start_new_session=True)


# name -> the seconds that one run takes
SAMPLES = {
    'ls -l metadata': lambda at: timed(quiet, 'ls', '-l', os.path.join(at, 'metadata')),
    'f32 of Q4_K': lambda at: turns([os.path.join(at, 'tensors/Q4_K/f32')], '-c', rounds=1)[0][0],
    'raw of F32': lambda at: turns([os.path.join(at, 'tensors/F32/raw')], '-c', rounds=1)[0][0],
}
IDLE = 5  # number of samples of each kind while no copy runs


@contextlib.contextmanager
def running(load):
    """Run a load, and end it if the measurement meanwhile fails."""
    try:
        yield load
    finally:
        if load and load.poll() is None:
            os.killpg(load.pid, signal.SIGKILL)
            load.wait()


def sample(at, load):
    """Return the seconds of each kind of work, one after another, for as long as the load runs; a
    sample counts only if the load ran throughout."""
    found = {what: [] for what in SAMPLES}
    while True:
        for what, once in SAMPLES.items():
            seconds = once(at)
            if load and load.poll() is not None:
                if load.returncode != 0:
                    raise SystemExit(f'{load.args} ended with status {load.returncode}')
                return found
            found[what].append(seconds)
        if not load and len(found[what]) == IDLE:
            return found


def during_rounds(folder, at, rounds):
    """Return {name: ([idle], [cp], [edit])} with the median of each round."""
    metadata = os.path.join(at, 'metadata')
    seen = {what: ([], [], []) for what in SAMPLES}
    for i in range(rounds):
        loads = [nothing, lambda: start_native(folder), lambda i=i: start_edit(metadata, i)]
        found = [None] * 3
        for which in (0, 1, 2) if i % 2 else (0, 2, 1):
            for once in SAMPLES.values():  # so that the pages of the new file are mapped
                once(at)
            with running(loads[which]()) as load:
                found[which] = sample(at, load)
            clean(folder)
        for what, columns in seen.items():
            if all(f[what] for f in found):
                for column, f in zip(columns, found):
                    column.append(statistics.median(f[what]))
    return seen


def during(run):
    table = Table('While the model of 2 GB is copied by an edit', 'what', 'idle ms', 'while cp runs ms',
                  'while an edit runs ms', 'speed against cp', 'goal')
    with place(run, 'work folder') as folder, \
            ggufs(run.work, os.path.join(folder, 'model.gguf'), *OPTIONS) as (at, _):
        for what, columns in during_rounds(folder, at, max(3, run.rounds // 2)).items():
            if not columns[0]:
                table.add(what, '', '', '', '', 'not seen: copies end too soon')
                continue
            ratio = speed_ratio(columns[1], columns[2])
            table.add(what, *(show_ms(column) for column in columns), show_ratio(ratio),
                      goal(round(ratio[0], 2), 0.9))
    yield table
