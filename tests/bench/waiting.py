# SPDX-License-Identifier: MIT
"""Measures how long readers of tensor data wait beside listings and edits."""
import contextlib
import os
import subprocess
import tempfile
import threading
import time

import benchlib
import edits
from benchlib import Table, ggufs, program, quiet


class Reader:
    """`with Reader(at) as reader:` reads 4 KiB of the data of some tensors again and again, each
    time from the daemon. Then .figures = [reads, median, 99 %, 99.9 %, maximum], the times in
    ms."""

    def __init__(self, at, count=16):
        folder = os.path.join(at, 'tensors')
        self.files = [os.path.join(folder, name, 'raw') for name in os.listdir(folder)[:count]]

    def __enter__(self):
        self.process = subprocess.Popen([program('bench_latency'), *self.files], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *error):
        try:
            line, _ = self.process.communicate(timeout=benchlib.LIMIT)  # closes its input
            self.figures = [float(word) for word in line.split()]
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.figures = []


@contextlib.contextmanager
def again_and_again(*acts):
    """Run each act in a thread of its own, as often as possible. Returns how often each one was
    run."""
    counts, end, failures = [0] * len(acts), threading.Event(), []

    def loop(which):
        try:
            while not end.is_set():
                acts[which](counts[which])
                counts[which] += 1
        except (OSError, subprocess.SubprocessError) as why:
            failures.append(why)

    threads = [threading.Thread(target=loop, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        end.set()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def listing(at):
    return lambda _: quiet('ls', '-l', at, os.path.join(at, 'metadata'))


def edit(at):
    return lambda i: edits.write(os.path.join(at, 'metadata', edits.KEY), f'edit {i}')


def edit_tokens(at):
    """Change one of all tokens, in another process, because a fork during the edit would close this
    process's file."""
    path = os.path.join(at, 'metadata/tokenizer.ggml.tokens')

    def act(i):
        with open(path, 'rb') as file:
            text = file.read()
        subprocess.run(['sh', '-c', 'cat > "$1"', 'sh', path], check=True,
                       input=b'"<unk%d>"' % i + text[text.index(b'\n'):])
    return act


# name -> work that is done beside the reader
BESIDE = {
    'nothing': (),
    'listings': (listing,),
    'edits of a key': (edit,),
    'edits of a key and listings': (edit, listing),
    'edits of the tokens and listings': (edit_tokens, listing),
}
P999, MOST_MS = 20, 60


def latency(run):
    """Measure a model of 512 MiB in a directory of its own, so that it can be edited."""
    tokens = run.args.tokens
    source = run.script(f'latency-{tokens}.gguf', 'make-huge', '--size', '512M', '--tensors', '64',
                        '--tokens', str(tokens))
    table = Table(f'4 KiB of tensor data at random places, each asked of the daemon; {tokens:,} tokens',
                  'beside', 'done', 'reads', 'median ms', '99 % ms', '99.9 % ms', 'most ms', 'goal')
    with tempfile.TemporaryDirectory(prefix='latency-', dir=run.work) as folder:
        model = os.path.join(folder, 'model.gguf')
        quiet('cp', '--sparse=always', source, model)
        with ggufs(run.work, model) as (at, _):
            for what, acts in BESIDE.items():
                with Reader(at) as reader, again_and_again(*(act(at) for act in acts)) as counts:
                    time.sleep(run.args.seconds)
                latency_row(table, what, counts, reader.figures)
    yield table


def latency_row(table, what, counts, figures):
    if not figures:
        table.add(what, counts, *[''] * 5, 'MISSED: a read hangs')
        return
    reads, *ms = figures
    met = ms[2] <= P999 and ms[3] <= MOST_MS
    table.add(what, ', '.join(map(str, counts)), f'{reads:.0f}', *(f'{value:.2f}' for value in ms),
              f'99.9 % <= {P999} ms, the most <= {MOST_MS} ms: {"met" if met else "MISSED"}')
