# SPDX-License-Identifier: MIT
"""Measures quantities that must stay small however many edits are pending, and however large or
slow they are: the time of an edit of a key, the daemon's memory, and the time that readers wait."""
import contextlib
import itertools
import os
import subprocess
import tempfile
import threading
import time

import benchlib
import edits
import freeze
import ggufmodel as gguf
from benchlib import Skipped, Table, ggufs, goal, program, quiet, timed
from ggufmodel import Tensor, Value

KIB, MIB = 1 << 10, 1 << 20


# ---- keys made, renamed and removed one by one ----

def make(at, i):
    fd = os.open(os.path.join(at, f'bench.made.{i}'), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(fd, b'%d\n' % i)
    os.close(fd)


def rename(at, i):
    os.rename(os.path.join(at, f'bench.made.{i}'), os.path.join(at, f'bench.moved.{i}'))


def remove(at, i):
    os.unlink(os.path.join(at, f'bench.moved.{i}'))


STEPS = {'make': make, 'rename': rename, 'remove': remove}
MODES = ('sync', 'auto')
PARTS = (0.1, 0.5, 1.0)  # fractions of all keys at which the time per key is shown
EACH = 1.0  # ms


def one_by_one(metadata, step, count):
    """Return the seconds of each call."""
    seconds = []
    for i in range(count):
        seconds.append(timed(step, metadata, i))
    return seconds


def near(seconds, part):
    """Return the mean, in ms, over the tenth of all calls that ends at that call."""
    end = round(len(seconds) * part)
    window = seconds[max(0, end - max(1, len(seconds) // 10)):end]
    return sum(window) / len(window) * 1e3


def expect_keys(metadata, before, prefix, count):
    names = os.listdir(metadata)
    found = sum(name.startswith(prefix) for name in names)
    if found != count or len(names) != before + count:
        raise SystemExit(f'{found} keys {prefix}*, {len(names)} in all; not {count}')


def many(run):
    """Measure a model of 80 MiB, which has to be copied."""
    count = run.args.keys
    source = run.script('sparse-80m.gguf', 'make-huge', '--size', '80M', '--tensors', '8',
                        '--tokens', '1000')
    table = Table(f'{count:,} keys one by one', 'commit', 'step',
                  *(f'ms near {round(count * part):,}' for part in PARTS), 'all s', 'then to the disk s',
                  'most ms', 'goal')
    for mode in MODES:
        with tempfile.TemporaryDirectory(prefix='many-', dir=run.work) as folder:
            model = os.path.join(folder, 'model.gguf')
            quiet('cp', '--sparse=always', source, model)
            with ggufs(run.work, model, '-o', f'commit={mode},relayout=copy') as (at, _):
                many_rows(table, mode, os.path.join(at, 'metadata'), count)
    yield table


def many_rows(table, mode, metadata, count):
    before = len(os.listdir(metadata))
    for name, step in STEPS.items():
        seconds = one_by_one(metadata, step, count)
        to_disk = timed(edits.to_disk, metadata)
        expect_keys(metadata, before, {'make': 'bench.made.', 'rename': 'bench.moved.'}.get(name, 'bench.'),
                    count if name != 'remove' else 0)
        table.add(f'commit={mode}', name, *(f'{near(seconds, part):.3f}' for part in PARTS),
                  f'{sum(seconds):.1f}', f'{to_disk:.1f}', f'{max(seconds) * 1e3:.0f}',
                  goal(round(near(seconds, 1.0), 3), EACH, False, ' ms'))


# ---- memory of the daemon ----

LARGE = 32 * MIB  # bytes of the string
WRITES = 100
MOST = 150  # MiB, at any moment during the edit
KEPT = 32  # MiB of its own, after editing many keys


def status(pid, *names):
    """Return these fields of the process, in MiB."""
    with open(f'/proc/{pid}/status', encoding='utf-8') as lines:
        fields = dict(line.split(':', 1) for line in lines)
    return tuple(int(fields[name].split()[0]) / KIB for name in names)


def forget_peak(pid):
    with open(f'/proc/{pid}/clear_refs', 'w', encoding='utf-8') as file:
        file.write('5')


def small_model(path, count):
    """Return a model with that many keys, each a number, and one small tensor."""
    kv = [(b'general.architecture', Value('string', b'llama')),
          (b'general.name', Value('string', b'small'))]
    kv += [(b'bench.key.%d' % i, Value('u32', i)) for i in range(count)]
    data = gguf.encode(kv, [Tensor(b'a.weight', 24, (4096,), bytes(4096))])
    with open(path, 'wb') as out:
        out.write(data)


def write_large(metadata, i):
    """Write like cp, in pieces of 128 KiB."""
    piece = bytes([97 + i % 26]) * (128 * KIB)
    fd = os.open(os.path.join(metadata, edits.KEY), os.O_WRONLY | os.O_TRUNC)
    for _ in range(LARGE // len(piece)):
        os.write(fd, piece)
    os.close(fd)


def large_rows(table, mode, metadata, pid, writes):
    forget_peak(pid)
    for i in range(writes):
        write_large(metadata, i)
    peak, own = status(pid, 'VmHWM', 'RssAnon')
    table.add(f'{writes} writes of one string of {LARGE // MIB} MiB, {mode}', f'{peak:.1f}',
              f'{own:.1f}', goal(round(peak, 1), MOST, False, ' MiB, the most'))


def large(run, table):
    """Measure each mode: edits kept for later, written by each close, and batched while copies are
    made."""
    source = run.script('sparse-80m.gguf', 'make-huge', '--size', '80M', '--tensors', '8',
                        '--tokens', '1000')
    for mode in ('commit=sync', 'commit=close', 'relayout=copy'):
        with tempfile.TemporaryDirectory(prefix='memory-', dir=run.work) as folder:
            model = os.path.join(folder, 'model.gguf')
            quiet('cp', '--sparse=always', source, model)
            with ggufs(run.work, model, '-o', mode) as (at, process):
                large_rows(table, mode, os.path.join(at, 'metadata'), process.pid, run.args.writes)


def key_rows(table, metadata, pid, count):
    os.listdir(metadata)
    before, = status(pid, 'RssAnon')
    for i in range(count):
        edits.write(os.path.join(metadata, f'bench.key.{i}'), str(i + 1))
    edits.to_disk(metadata)
    peak, own = status(pid, 'VmHWM', 'RssAnon')
    table.add(f'{count:,} keys edited once each', f'{peak:.1f}', f'{own:.1f}',
              goal(round(own, 1), KEPT, False, ' MiB of its own'))
    table.add('... of which a key has kept', '', f'{(own - before) * KIB / count:.2f} KiB', '')


def memory(run):
    table = Table('Resident memory of the daemon, MiB', 'after', 'the most', 'its own at the end', 'goal')
    count = max(1, run.args.keys // 4)
    large(run, table)
    with tempfile.TemporaryDirectory(prefix='memory-', dir=run.work) as folder:
        model = os.path.join(folder, 'model.gguf')
        small_model(model, count)
        with ggufs(run.work, model) as (at, process):
            key_rows(table, os.path.join(at, 'metadata'), process.pid, count)
    yield table


# ---- readers of tensor data, beside everything else ----

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


# ---- a hanging disk ----

DISK = 320 * MIB  # XFS needs at least 300 MiB
ANSWERED = 5  # seconds within which a command should end


@contextlib.contextmanager
def begun_later(act, *args):
    """Run act(*args) in a thread as soon as the yielded event is set, and wait for the thread at
    the end."""
    begin = threading.Event()

    def wait():
        begin.wait()
        act(*args)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield begin
    finally:
        begin.set()
        thread.join()


def edit_to_disk(path, text):
    """Wait until an edit is on the disk. An fsync of the directory would block listings, because
    the kernel locks the directory during the call."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)


def answered(command):
    """Return the seconds that a command takes, or None if it hangs."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        process.wait(ANSWERED)
        return time.perf_counter() - begin
    except subprocess.TimeoutExpired:
        process.kill()  # it ends when the disk is thawed
        return None


def asked(at):
    tensor = os.path.join(at, 'tensors/blk.0.ffn_up.weight')
    return {
        'ls -l metadata': ['ls', '-l', os.path.join(at, 'metadata')],
        'cat of all keys': ['sh', '-c', 'cat "$1"/metadata/*', 'sh', at],
        'cat metadata.json': ['cat', os.path.join(at, 'metadata.json')],
        'raw of a tensor': ['dd', f'if={tensor}/raw', 'iflag=direct', 'bs=64k', 'status=none'],
        'model.gguf': ['dd', f'if={at}/model.gguf', 'iflag=direct', 'bs=1M', 'status=none'],
    }


def frozen_rows(table, kind, folder, run):
    model = os.path.join(folder, 'model.gguf')
    quiet('cp', run.script('16m.gguf', 'make-huge', '--size', '16M', '--tensors', '8', '--tokens',
                           '10000'), model)
    for mode, before in itertools.product(('auto', 'close', 'sync'), (0, 1)):
        when = f'commit={mode}, {"a later edit" if before else "the first edit"}'
        with ggufs(run.work, model) as (at, _):
            idle = {what: answered(command) for what, command in asked(at).items()}
        # Mount again, because the kernel caches data that it has read once.
        with ggufs(run.work, model, '-o', f'commit={mode}') as (at, process):
            path = os.path.join(at, 'metadata', edits.KEY)
            for i in range(before):
                edits.write(path, f'before {i}')
            with begun_later(edit_to_disk, path, when) as begin, \
                    freeze.frozen(folder):
                begin.set()
                while not freeze.waits_for_disk(process.pid):
                    time.sleep(0.01)
                for what, command in asked(at).items():
                    frozen_row(table, kind, when, what, idle[what], answered(command))


def frozen_row(table, kind, when, what, idle, seconds):
    table.add(kind, when, what, f'{idle * 1e3:.1f}', f'{seconds * 1e3:.1f}' if seconds else 'hangs',
              f'ends: {"met" if seconds else "MISSED"}')


def hanging(run):
    table = Table('While an edit waits for a disk that hangs', 'file system', 'waits', 'what', 'idle ms',
                  'meanwhile ms', 'goal')
    for kind in ('ext4', 'xfs'):
        try:
            with benchlib.disk(run.work, kind, DISK) as folder:
                frozen_rows(table, kind, folder, run)
        except (Skipped, OSError) as why:
            table.add(kind, 'skipped: ' + str(why), *[''] * 4)
    yield table
