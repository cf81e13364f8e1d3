# SPDX-License-Identifier: MIT
"""Measures files computed from tensors: statistics, hashes, the model as safetensors. See
tests/bench/RESULTS.md."""
import ctypes
import os
import subprocess
import time

import benchlib
from benchlib import Table, ggufs, goal, show_ratio, speed_ratio, timed

LIBC = ctypes.CDLL(None, use_errno=True)


def processor_time(pid):
    """Return the processor seconds of all threads; /proc has a resolution of 10 ms."""
    clock = ctypes.c_int()
    if LIBC.clock_getcpuclockid(pid, ctypes.byref(clock)) != 0:
        raise ProcessLookupError(pid)
    return time.clock_gettime(clock.value)


def read_whole(path):
    with open(path, 'rb', buffering=0) as file:
        while file.read(1 << 20):
            pass


def stats(run):
    """Measure how much float32 of a tensor is read per second of the daemon's processor time, which
    does not depend on the number of cores."""
    values = 64 << 20  # bytes of each tensor's float32 values in the model of all types
    table = Table('Statistics, one core', 'file', 'of', 'GB/s of float32', 'goal')
    for name in ('F32', 'F16', 'Q8_0', 'Q4_K'):
        seconds = []
        for _ in range(run.rounds):
            with ggufs(run.work, run.types()) as (at, process):
                before = processor_time(process.pid)
                read_whole(os.path.join(at, 'tensors', name, 'stats'))
                seconds.append(processor_time(process.pid) - before)
        figures = [values / s / 1e9 for s in seconds]
        table.add('stats', name, benchlib.gb_per_s(values, seconds),
                  goal(round(sorted(figures)[len(figures) // 2], 2), 1.5))
    yield table


def pieces(run, model):
    """Write the tensors of a model as plain files."""
    folder = os.path.join(run.work, 'pieces')
    if not os.path.isdir(folder):
        with ggufs(run.work, model) as (at, _):
            subprocess.run(['sh', '-c', 'mkdir "$1.new" && for t in "$0"/tensors/*; do '
                            'cp "$t/raw" "$1.new/${t##*/}"; done && mv "$1.new" "$1"', at, folder], check=True)
    return folder


def hashes(run):
    model, count = run.large(), os.cpu_count()
    folder = pieces(run, model)
    names = sorted(os.path.join(folder, name) for name in os.listdir(folder))
    size = sum(os.path.getsize(name) for name in names)
    table = Table(f'Hashes of a model of 2 GB, {count} at a time', 'sha256sum GB/s', 'hashes GB/s', 'ratio', 'goal')
    base, own = [], []
    for _ in range(run.rounds):
        base.append(timed(lambda: subprocess.run(['xargs', '-0', '-n1', f'-P{count}', 'sha256sum'], check=True,
                                                 input='\0'.join(names).encode(), stdout=subprocess.DEVNULL)))
        with ggufs(run.work, model) as (at, _):
            own.append(timed(lambda: read_whole(os.path.join(at, 'hashes'))))
    ratio = speed_ratio(base, own)
    table.add(benchlib.gb_per_s(size, base), benchlib.gb_per_s(size, own), show_ratio(ratio),
              goal(round(ratio[0], 2), 0.9))
    yield table
