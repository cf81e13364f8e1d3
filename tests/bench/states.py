# SPDX-License-Identifier: MIT
"""What the history of the keys costs an edit, against -o history=0."""
import os
import shutil
import statistics
import subprocess
import sys

import ggufmodel
from benchlib import GGUFS, Table, ggufs, goal, show_ms, timed

COUNT = 20  # edits of each kind
JOINED = 1.2  # of an edit without a history


def write(metadata, i):
    """As a shell does it, a value of the same length."""
    with open(os.path.join(metadata, 'general.name'), 'w', encoding='utf-8') as file:
        file.write(f'number {i:06}')


def undo(at):
    """An undo has a state of its own, and so has the edit after it."""
    subprocess.run([GGUFS, '--undo', at], check=True, stdout=subprocess.DEVNULL)


def state_of(folder, size):
    """What a state costs at least: the keys written, and two fsyncs."""
    name = os.path.join(folder, 'state-written-by-hand')
    with open(name + '.new', 'wb') as file:
        file.write(bytes(size))
        file.flush()
        os.fsync(file.fileno())
    os.rename(name + '.new', name)
    fd = os.open(folder, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    os.unlink(name)


def edits(run, model, keep):
    """Seconds of edits that have a state of their own, and of those that join one."""
    first, joined = [], []
    with ggufs(run.work, model, '-o', f'history={keep},relayout=copy') as (at, _):
        metadata = os.path.join(at, 'metadata')
        write(metadata, 999999)
        for i in range(COUNT):
            if keep:
                undo(at)
            first.append(timed(write, metadata, 2 * i))
            joined.append(timed(write, metadata, 2 * i + 1))
    return first, joined


def header_bytes(model):
    with open(model, 'rb') as file:
        return ggufmodel.read(file.read()).data_offset


def measure(run, table, name, model):
    copy = shutil.copy(model, os.path.join(run.work, 'history.gguf'))
    without, with_one = edits(run, copy, 0), edits(run, copy, 20)
    by_hand = [timed(state_of, run.work, header_bytes(copy)) for _ in range(COUNT)]
    os.unlink(copy)
    plain, own, joined, least = map(statistics.median, (without[0] + without[1], *with_one, by_hand))
    table.add(name, 'without a history', show_ms(without[0] + without[1]), '')
    table.add(name, 'a state written by hand', show_ms(by_hand), '')
    table.add(name, 'the first of a state', show_ms(with_one[0]),
              goal(round((own - plain) * 1e3, 1), round(least * 1e3, 1), False, ' ms more'))
    table.add(name, 'another of a state', show_ms(with_one[1]),
              goal(round(joined / plain, 2), JOINED, False, ' of one without'))


def history(run):
    here = os.path.dirname(os.path.abspath(__file__))
    table = Table('Edits of small models with a history', 'model', 'edit', 'ms', 'goal')
    vocabulary = run.made('vocabulary.gguf', sys.executable, os.path.join(here, 'make-vocabulary'))
    measure(run, table, '100,000 tokens', vocabulary)
    small = run.script('small.gguf', 'make-sample')
    measure(run, table, 'a few keys', small)
    yield table
