# SPDX-License-Identifier: MIT
"""Compares this program with an earlier version, GGUFS_BEFORE, in turns within one run."""
import contextlib
import os
import shutil

import benchlib
from benchlib import Table, goal, quiet, serve, show_ms, show_ratio, speed_ratio, timed, turns
from edits import KEY, to_disk, write

READS = (('F32', 'raw'), ('F32', 'f32'), ('Q8_0', 'f32'), ('Q4_K', 'f32'), ('Q6_K', 'f32'))
EDITS = 20     # in each round
BOUND = 0.95   # relative to the earlier speed
PROGRAMS = {'before': os.environ.get('GGUFS_BEFORE'), 'now': benchlib.GGUFS}


def add(table, what, seconds):
    """Add a row. `seconds`: for each program, per round."""
    ratio = speed_ratio(seconds['before'], seconds['now'])
    table.add(what, show_ms(seconds['before']), show_ms(seconds['now']), show_ratio(ratio),
              goal(round(ratio[0], 2), BOUND))


def in_turns(rounds, acts):
    """Return the seconds that each program's act takes in each round; the order of the programs
    alternates."""
    seconds = {name: [] for name in acts}
    for i in range(rounds):
        for name in sorted(acts, reverse=i % 2 == 1):
            seconds[name].append(timed(acts[name], i))
    return seconds


def reads(run, table, at):
    for name, file in READS:
        path = os.path.join('tensors', name, file)
        both = turns([os.path.join(at['before'], path), os.path.join(at['now'], path)], '-c', rounds=run.rounds)
        add(table, f'{file} of {name}', dict(zip(('before', 'now'), both)))


def listings(run, table, at):
    """Measure listings with names only, and with attributes."""
    for what in (['ls'], ['ls', '-l']):
        acts = {name: lambda i, at=folder: quiet(*what, os.path.join(at, 'tensors')) for name, folder in at.items()}
        add(table, f'{" ".join(what)} of {len(os.listdir(os.path.join(at["now"], "tensors")))} tensors',
            in_turns(run.rounds, acts))


def edit(metadata, i):
    for n in range(EDITS):
        write(os.path.join(metadata, KEY), f'edit {i} {n}')


def accept(metadata, i):
    """Measure new keys in each round. The disk does not count: it is written once at the end, which
    is not measured."""
    for n in range(EDITS * 10):
        write(os.path.join(metadata, f'bench.key.{i}.{n}'), f'{n}')


def edits(run, table, at, label, act):
    seconds = in_turns(run.rounds, {name: lambda i, at=folder: act(os.path.join(at, 'metadata'), i)
                                    for name, folder in at.items()})
    add(table, label, seconds)
    for folder in at.values():
        to_disk(os.path.join(folder, 'metadata'))


@contextlib.contextmanager
def one_processor():
    """Use one processor for this program and everything that it starts in the block: an edit takes
    some ten requests, and the choice of the processors on which the kernel wakes threads changes
    the time of a request by more than the bound."""
    all_of_them = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of_them)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def mounted(run, models, *options):
    """Mount with both programs at once, and measure a function of the mount point of each."""
    def do(act, *args):
        with serve(run.work, PROGRAMS['before'], *options, models['before']) as (one, _), \
                serve(run.work, PROGRAMS['now'], *options, models['now']) as (two, _):
            act(run, *args, {'before': one, 'now': two})
    return do


def copies(run, model):
    """Return a copy for each program, because only one process at a time may edit a model."""
    names = {name: os.path.join(run.work, f'edited-{name}.gguf') for name in PROGRAMS}
    for path in names.values():
        shutil.copyfile(model, path)
    return names


def before(run):
    if not PROGRAMS['before']:
        return
    table = Table('Now against before, in one run', 'what', 'before ms', 'now ms', 'speed of before', 'goal')
    same = dict.fromkeys(PROGRAMS, run.types())
    mounted(run, same, '-o', 'ro')(reads, table)
    huge = dict.fromkeys(PROGRAMS, run.script('huge.gguf', 'make-huge'))
    mounted(run, huge, '-o', 'ro')(listings, table)
    small = copies(run, run.script('sample.gguf', 'make-sample'))
    mounted(run, small)(lambda run, at: edits(run, table, at, f'{EDITS} edits, each on the disk', edit))
    with one_processor():
        mounted(run, small, '-o', 'commit=sync')(
            lambda run, at: edits(run, table, at, f'{10 * EDITS} new keys, accepted', accept))
    for path in small.values():
        os.remove(path)
    yield table
