# SPDX-License-Identifier: MIT
"""model.gguf where the kernel reads the model's own file (FUSE passthrough), against that file."""
import os
import tempfile

import benchlib
from benchlib import Table, drop, ggufs, goal, show_ratio, speed_ratio, turns

CASES = (  # what is read, options of bench_read, whether the model's pages are dropped before
    ('in order, cold', ('-c',), True),
    ('in order, warm', (), False),
    ('4 KiB at random places through mmap, cold', ('-m', '4096', '-c'), True),
    ('4 KiB at random places through mmap, warm', ('-m', '65536'), False),
)


def once(path, options, model, cold):
    """To drop the pages of the mount's file drops none of the model's."""
    if cold:
        drop(model)
    return turns([path], *options, rounds=1)[0][0]


def is_used(path, log):
    with open(path, 'rb') as file:
        file.read(1)
    return b'FUSE passthrough' in os.pread(log.fileno(), 1 << 16, 0)


def measure(run, model, whole, table):
    for label, options, cold in CASES:
        pairs = []
        for turn in range(run.rounds):
            paths = [model, whole][::1 if turn % 2 else -1]
            seconds = {path: once(path, options, model, cold) for path in paths}
            pairs.append((seconds[model], seconds[whole]))
        base, own = zip(*pairs)
        ratio = speed_ratio(base, own)
        size = int(options[1]) * 4096 if options[:1] == ('-m',) else os.path.getsize(model)
        table.add(label, benchlib.gb_per_s(size, base), benchlib.gb_per_s(size, own), show_ratio(ratio),
                  goal(round(ratio[0], 2), 0.95))


def passthrough(run):
    table = Table('model.gguf by passthrough', 'read', 'the file itself GB/s', 'model.gguf GB/s', 'ratio', 'goal')
    model = run.types()
    with tempfile.TemporaryFile() as log, \
            ggufs(run.work, model, *run.args.mount_options, '-o', 'ro', log=log) as (own, _):
        whole = os.path.join(own, 'model.gguf')
        if is_used(whole, log):
            measure(run, model, whole, table)
        else:
            table.add('(it is not used here: it needs libfuse 3.17, Linux 6.9 and root)', '', '', '', '')
    yield table
