# SPDX-License-Identifier: MIT
"""Models with one thing changed, and whether llama.cpp loads them.

    MODELS      ten small ones of published.py
    mutations() of one of them: (what, keys, tensors)
    loads()     those that llama.cpp of August 2026 loads: model -> names; it refuses all others
"""
import os
import re

import published
from ggufmodel import GEOMETRY, Tensor, Value

FIGURES = os.path.join(os.path.dirname(__file__), 'mutations.tsv')
# Numbers of blocks that give models with several kinds of blocks one of each.
NUMBERS = {'qwen3next': {'L': 4}, 'granitehybrid': {'L': 6, 'i': 256}, 'lfm2': {'L': 3}, 'glm4moe': {'L': 3}}
NAMES = ('Llama-3.2', 'gemma-3', 'gpt-oss', 'Kimi-K2', 'Phi-4', 'Qwen3-Next', 'granite-4', 'LFM2', 'GLM-4.5', 'bge-m3')
MODELS = {model.arch: published.small(model, **NUMBERS.get(model.arch, {'L': 2}))
          for model in published.MODELS if model.name.startswith(NAMES)}


def changed(some, at, *with_what):
    return [*some[:at], *with_what, *some[at + 1:]]


def values(value):
    """Yield (description, another value) for a key."""
    kind, data = value.type, value.data
    number = isinstance(data, (int, float)) and kind != 'bool'
    if number:
        for other in ('u32', 'u64', 'i32', 'f32'):
            if other != kind:
                yield f'as {other}', Value(other, float(data) if other == 'f32' else int(data))
        for other in sorted({data * 2, data // 2 if kind != 'f32' else data / 2, 0} - {data}):
            yield f'= {other}', value._replace(data=other)
    if kind == 'string':
        yield 'as u32', Value('u32', 1)
        yield '= foo', value._replace(data=b'foo')
    else:
        yield 'as string', Value('string', b'1')
    if kind in ('string', 'array'):
        yield 'empty', value._replace(data=data[:0])
        yield 'half', value._replace(data=data[:len(data) // 2])
        yield 'twice', value._replace(data=data * 2)
    if kind == 'bool':
        yield 'not', value._replace(data=not data)


def kinds_of_blocks(rows):
    """Return the tensors of the first block of each kind, and those outside blocks."""
    blocks = {}
    for row in rows:
        block = re.match(rb'blk\.(\d+)\.(.*)', row.name)
        if block:
            blocks.setdefault(int(block[1]), []).append(block[2])
    first = {tuple(names): b'blk.%d.' % number for number, names in reversed(blocks.items())}
    return [at for at, row in enumerate(rows)
            if not row.name.startswith(b'blk.') or row.name.startswith(tuple(first.values()))]


def mutations(kv, rows):
    """Yield each key removed, retyped, doubled, halved, emptied; each tensor removed, retyped,
    doubled and halved in each dimension."""
    for at, (key, value) in enumerate(kv):
        yield f'without {key.decode()}', changed(kv, at), rows
        for what, other in values(value):
            yield f'{key.decode()} {what}', changed(kv, at, (key, other)), rows
    for at in kinds_of_blocks(rows):
        name, kind, dims = rows[at][:3]
        yield f'without {name.decode()}', kv, changed(rows, at)
        others = [(1 if kind == 0 else 0, dims)]
        others += [(kind, (*dims[:axis], length, *dims[axis + 1:]))
                   for axis, dim in enumerate(dims) for length in (dim * 2, dim // 2) if length]
        for other, lengths in others:
            if lengths[0] % GEOMETRY[other][1] == 0:
                shape = ' x '.join(map(str, reversed(lengths)))
                yield f'{name.decode()} {GEOMETRY[other][0]} {shape}', kv, changed(rows, at, Tensor(name, other, lengths))


def loads():
    with open(FIGURES, encoding='ascii') as file:
        return {model: set(names) for model, *names in (line.rstrip('\n').split('\t') for line in file if line[0] != '#')}
