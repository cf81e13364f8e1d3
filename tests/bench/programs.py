# SPDX-License-Identifier: MIT
"""Runs programs that measure functions without a mount: decoders and encoders."""
import os
import subprocess

import benchlib
import ggufmodel
from benchlib import Table


def lines_of(program):
    """Return the fields of each line that a benchmark program prints, or no lines if it was not
    built."""
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


# Goals relative to memcpy, in the cache: types with a scale and a minimum for each group, with a
# code book, with blocks.
GOALS = {'avx512': (0.8, 0.4, 0.55), 'avx2': (0.6, 0.3, 0.4)}
BLOCKS = {name for name, length, _ in ggufmodel.GEOMETRY.values() if length > 1}


def decode_goal(name, kind, ratio):
    if kind not in GOALS or name not in BLOCKS:
        return ''
    which = 0 if name in ('Q4_K', 'Q5_K') else 1 if name.startswith(('IQ1', 'IQ2', 'IQ3')) else 2
    return benchlib.goal(float(ratio), GOALS[kind][which])


def decode_table(rows):
    """Return a table of the kernel sets that have goals for each type, and of the set used on this
    machine, which comes last."""
    table = Table('Decoders, one core', 'type', 'set', 'in cache GB/s', 'of memcpy', 'of plain C',
                  'in memory GB/s', 'of memcpy', 'of plain C', 'goal')
    figures = {(name, kind, case): rest for name, case, kind, *rest in rows}
    last = {row[0]: row[2] for row in rows}
    for name, kind in dict.fromkeys((row[0], row[2]) for row in rows):
        if kind in GOALS or kind == last[name]:
            cache = figures[name, kind, 'cache']
            table.add(name, kind, *cache, *figures.get((name, kind, 'stream'), ('',) * 3),
                      decode_goal(name, kind, cache[1]))
    return table
