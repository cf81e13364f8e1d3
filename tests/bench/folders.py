# SPDX-License-Identifier: MIT
"""Measures the cost of a directory with many models under one mount."""
import contextlib
import json
import os
import subprocess
import tempfile
import time

import llama
from benchlib import GGUFS, Table, goal, quiet, show_ms, spread, timed

MANY, SOME = 10000, 1000
LS, CAT, INFO = 0.2, 3, 2  # seconds
MIB, KEPT, IDLE = 32, 16, 75  # resident memory; descriptors that may stay, and seconds until then


def make(folder, count):
    data = llama.image()
    for i in range(count):
        with open(os.path.join(folder, f'model-{i:05}.gguf'), 'wb') as out:
            out.write(data)


def daemon(at):
    listed = json.loads(subprocess.run([GGUFS, '--list', '--json'], stdout=subprocess.PIPE, check=True).stdout)
    return [x['pid'] for x in listed if x['mountpoint'] == at][-1]


def resident(at):
    """Return the resident memory in MiB."""
    with open(f'/proc/{daemon(at)}/status', encoding='ascii') as lines:
        return [int(line.split()[1]) / 1024 for line in lines if line.startswith('VmRSS')][0]


def descriptors(at):
    return len(os.listdir(f'/proc/{daemon(at)}/fd'))


@contextlib.contextmanager
def unmounted(at):
    try:
        yield
    finally:
        subprocess.run([GGUFS, '--unmount', at], check=True)


def mount_and_list(folder, at):
    quiet(GGUFS, folder, at)
    quiet('ls', at)


def rounds_of(run, folder, at, table):
    """Mount and list again in each round."""
    seconds, memory = [], []
    for _ in range(run.rounds):
        with unmounted(at):
            seconds.append(timed(mount_and_list, folder, at))
            memory.append(resident(at))
    table.add(f'mount and first `ls` of {MANY:,} models', show_ms(seconds) + ' ms',
              goal(spread(seconds)[0], LS, False, ' s'))
    table.add('... resident, with nothing open', f'{max(memory):.1f} MiB', goal(max(memory), MIB, False, ' MiB'))


def cat(run, folder, at, table):
    quiet(GGUFS, folder, at)
    with unmounted(at):
        before = descriptors(at)
        names = [os.path.join(at, name, 'info') for name in os.listdir(at)]
        seconds = timed(quiet, 'cat', *names)
        after, end = descriptors(at), time.monotonic() + IDLE
        table.add(f'`cat mnt/*/info` of {len(names):,} models', f'{seconds:.2f} s', goal(seconds, CAT, False, ' s'))
        while descriptors(at) > before + KEPT and time.monotonic() < end:
            time.sleep(1)
        left = descriptors(at) - before
        table.add(f'... descriptors: {before} before, {after} after, and a minute later', f'{before + left}',
                  goal(left, KEPT, False, ' more'))


def info(run, folder, count, table):
    seconds = [timed(quiet, GGUFS, '--info', '--json', folder) for _ in range(run.rounds)]
    table.add(f'`ggufs --info --json` of {count:,} models', show_ms(seconds) + ' ms',
              goal(spread(seconds)[0], INFO, False, ' s'))


def folders(run):
    table = Table('A folder of many models', 'what', 'figure', 'goal')
    with tempfile.TemporaryDirectory(prefix='folders-', dir=run.work) as top:
        at = os.path.join(top, 'mnt')
        os.mkdir(at)
        for count, measures in ((MANY, (rounds_of,)), (SOME, (cat,))):
            folder = os.path.join(top, str(count))
            os.mkdir(folder)
            make(folder, count)
            for measure in measures:
                measure(run, folder, at, table)
            info(run, folder, count, table)
    yield table
