# SPDX-License-Identifier: MIT
"""Measures how long readers of tensor data wait beside listings and edits."""
import contextlib
import os
import signal
import subprocess
import sys
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


# ---- beside a large copy ----

COPIES = '-o', 'relayout=copy,commit=close'


def solid(run, folder, size):
    """Make a model without holes, so that its copy takes time. Returns its path."""
    model = os.path.join(folder, f'{size}.gguf')
    quiet('cp', '--sparse=never', run.script(f'huge-{size}.gguf', 'make-huge', '--size', size, '--tensors', '64'), model)
    quiet('sync', model)
    return model


def read_key(at):
    with open(os.path.join(at, 'metadata/general.architecture'), 'rb') as file:
        file.read()


def list_all(folder):
    for entry in os.scandir(folder):
        entry.stat()


def beside(run):
    """Measure other work in a folder of models while a model of 8 GB is copied."""
    table = Table('Beside the copy of a model of 8 GB', 'what', 'times', 'median ms', '99 % ms', 'most ms', 'goal')
    with tempfile.TemporaryDirectory(prefix='beside-', dir=run.work) as folder:
        solid(run, folder, '8G')
        solid(run, folder, '1M')
        with ggufs(run.work, folder, *COPIES) as (top, _):
            large, small = (os.path.join(top, name) for name in ('8G.gguf', '1M.gguf'))
            acts = {'cat of a key': lambda i: read_key(large),
                    'ls -l tensors': lambda i: list_all(os.path.join(large, 'tensors')),
                    'ls -l metadata of another model': lambda i: list_all(os.path.join(small, 'metadata')),
                    'ls -l of the folder': lambda i: list_all(top),
                    'an edit of another model': lambda i: edits.write(os.path.join(small, 'metadata', edits.KEY), f'{i}')}
            took = {what: [] for what in acts}
            list_all(os.path.join(large, 'tensors'))
            with Reader(large) as reader:
                load = subprocess.Popen(['sh', '-c', 'echo copied > "$1"', 'sh', os.path.join(large, 'metadata', edits.KEY)])
                while load.poll() is None:
                    for i, (what, act) in enumerate(acts.items()):
                        begin = time.monotonic()
                        act(len(took[what]) * len(acts) + i)
                        if load.poll() is None:
                            took[what].append(1000 * (time.monotonic() - begin))
            rows = {what: [len(times), *(sorted(times)[int(part * (len(times) - 1))] for part in (.5, .99, 1))]
                    for what, times in took.items()}
            rows['4 KiB of a tensor'] = [reader.figures[i] for i in (0, 1, 2, 4)]
            for what, (times, *ms) in rows.items():
                table.add(what, f'{times:.0f}', *(f'{value:.2f}' for value in ms),
                          f'99 % < 50 ms: {"met" if ms[1] < 50 else "MISSED"}')
    yield table


# ---- signals during a copy ----

WAITER = """
import os, signal, sys
how, path, text = sys.argv[1:]
signal.signal(signal.SIGALRM, lambda *_: None)
signal.siginterrupt(signal.SIGALRM, False)
name = path + '.tmp' if how == 'rename' else path
fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
os.write(fd, text.encode() + b'\\n')
print('waits', flush=True)
if how == 'fsync':
    os.fsync(fd)
if how == 'rename':
    os.rename(name, path)
os.close(fd)
"""


def signals(run):
    """Send signals to programs that wait for the copy of a model of 2 GB."""
    table = Table('Signals to a program that waits for the copy of a model of 2 GB', 'signal', 'waits in', 'gone after s',
                  'goal')
    with tempfile.TemporaryDirectory(prefix='signals-', dir=run.work) as folder:
        model = solid(run, folder, '2G')
        for number, how in [(signal.SIGCHLD, 'close'), (signal.SIGWINCH, 'close'), (signal.SIGALRM, 'close'),
                            (signal.SIGINT, 'close'), (signal.SIGKILL, 'close'), (signal.SIGKILL, 'fsync'),
                            (signal.SIGKILL, 'rename')]:
            text = f'{number.name} in {how}'
            with ggufs(run.work, model, *COPIES) as (at, _):
                key = os.path.join(at, 'metadata', edits.KEY)
                with subprocess.Popen([sys.executable, '-Sc', WAITER, how, key, text], stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL) as waiter:
                    waiter.stdout.readline()
                    time.sleep(0.3)  # it has begun to wait
                    begin = time.monotonic()
                    waiter.send_signal(number)
                    while waiter.poll() is None and number not in (signal.SIGINT, signal.SIGKILL):
                        time.sleep(0.05)
                        waiter.send_signal(number)
                    waiter.wait()
                    took = time.monotonic() - begin
                quiet('sync', os.path.join(at, 'metadata'))
            with ggufs(run.work, model, '-o', 'ro') as (at, _), open(os.path.join(at, 'metadata', edits.KEY), 'rb') as file:
                made = file.read() == text.encode() + b'\n'
            stops = number in (signal.SIGINT, signal.SIGKILL)
            good = made and (took < 1 if stops else waiter.returncode == 0)
            table.add(number.name, how, f'{took:.2f}', ('at once' if stops else 'it waits on') +
                      f', and the edit is made: {"met" if good else "MISSED"}')
    yield table
