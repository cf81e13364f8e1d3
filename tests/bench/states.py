# SPDX-License-Identifier: MIT
"""Measures the cost of the history of keys for an edit, compared with -o history=0."""
import contextlib
import os
import shutil
import statistics
import subprocess
import sys

import ggufmodel
from benchlib import GGUFS, Table, ggufs, goal, show_ms, timed

COUNT = 60  # number of rounds
JOINED = 1.2  # relative to an edit without a history


def write(metadata, i):
    """Write a value of the same length, like a shell."""
    with open(os.path.join(metadata, 'general.name'), 'w', encoding='utf-8') as file:
        file.write(f'number {i:06}')


def undo(at):
    """Undo an edit. An undo has a state of its own, and so has the edit after it."""
    subprocess.run([GGUFS, '--undo', at], check=True, stdout=subprocess.DEVNULL)


def write_by_hand(folder, header):
    """Do the least that a state requires: write the header to a new file, with two fsyncs."""
    file = os.open('written-by-hand', os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    os.write(file, header)
    os.fsync(file)
    os.fsync(folder)
    os.close(file)


def header_of(model):
    with open(model, 'rb') as file:
        data = file.read()
    return data[:ggufmodel.read(data).data_offset]


@contextlib.contextmanager
def copies(run, model):
    """Yield metadata/ of a copy that is edited without a history, the mount of a copy with a
    history, and a directory."""
    folder = os.path.join(run.work, 'states')
    os.makedirs(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        at = []
        for keep in (0, 20):
            copy = shutil.copy(model, os.path.join(folder, f'{keep}.gguf'))
            options = '-o', f'history={keep},relayout=copy'
            at.append(stack.enter_context(ggufs(run.work, copy, *options))[0])
            write(os.path.join(at[-1], 'metadata'), 999999)
        fd = os.open(folder, os.O_RDONLY)
        stack.callback(os.close, fd)
        yield os.path.join(at[0], 'metadata'), at[1], fd


def in_turn(i, *edits):
    """Time two edits, in alternating order."""
    order = edits if i % 2 == 0 else edits[::-1]
    times = [timed(*edit) for edit in order]
    return times if i % 2 == 0 else times[::-1]


def measure(run, table, name, model):
    """Measure everything in turns, so that other load on the machine affects all measurements. Each
    round has an allowance of its own, and the medians of the differences count."""
    header = header_of(model)
    without, first, joined, by_hand = [], [], [], []
    beyond, spare, shares = [], [], []  # one element per round
    with copies(run, model) as (plain, at, folder):
        metadata = os.path.join(at, 'metadata')
        for i in range(COUNT):
            undo(at)
            alone, state = in_turn(i, (write, plain, 2 * i), (write, metadata, 2 * i))
            other, more = in_turn(i, (write, plain, 2 * i + 1), (write, metadata, 2 * i + 1))
            least = timed(write_by_hand, folder, header)
            os.unlink('written-by-hand', dir_fd=folder)
            without += [alone, other]
            first.append(state)
            joined.append(more)
            by_hand.append(least)
            beyond.append(state - alone)
            spare.append(least - (state - alone))
            shares.append(more / other)
    more, left = (statistics.median(x) * 1e3 for x in (beyond, spare))
    share = statistics.median(shares)
    table.add(name, 'without a history', show_ms(without), '', '')
    table.add(name, 'the header and two fsyncs', show_ms(by_hand), '', '')
    table.add(name, 'the first of a state', show_ms(first), f'{more:+.1f} ms, {left:.1f} to spare',
              goal(round(left, 1), 0.0))
    table.add(name, 'another of a state', show_ms(joined), f'{share:.2f} of it', goal(round(share, 2), JOINED, False))


def history(run):
    here = os.path.dirname(os.path.abspath(__file__))
    table = Table('Edits of small models with a history', 'model', 'edit', 'ms', 'beyond one without', 'goal')
    vocabulary = run.made('vocabulary.gguf', sys.executable, os.path.join(here, 'make-vocabulary'))
    measure(run, table, '100,000 tokens', vocabulary)
    small = run.script('small.gguf', 'make-sample')
    measure(run, table, 'a few keys', small)
    yield table
