# SPDX-License-Identifier: MIT
"""Programs that measure functions by themselves, without a mount: decoders and encoders."""
import os
import subprocess

import benchlib
from benchlib import Table


def lines_of(program):
    """The fields of each line that a benchmark of functions prints; none if it was not built."""
    path = benchlib.program(program)
    if not os.path.exists(path):
        return []
    done = subprocess.run([path], check=True, stdout=subprocess.PIPE, text=True)
    return [line.split('\t') for line in done.stdout.splitlines() if not line.startswith('#')]


def decode(run):
    rows = lines_of('bench_decode')
    if rows:
        yield decode_table(rows)


def encode(run):
    table = Table('Encoders, one core', 'type', 'set', 'GB/s', 'of plain C')
    for row in {row[0]: row for row in lines_of('bench_encode')}.values():
        table.add(*row)
    if table.rows:
        yield table


def decode_table(rows):
    """Of each type and case the last set, which is the one that is used on this machine."""
    table = Table('Decoders, one core', 'type', 'set', 'in cache GB/s', 'of memcpy', 'of plain C',
                  'in memory GB/s', 'of memcpy', 'of plain C')
    best = {(name, case): (kind, *figures) for name, case, kind, *figures in rows}
    for name in dict.fromkeys(row[0] for row in rows):
        table.add(name, *best[name, 'cache'], *best.get((name, 'stream'), ('',) * 4)[1:])
    return table
