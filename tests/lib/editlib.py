# SPDX-License-Identifier: MIT
"""Edits to a mounted model by plain system calls, and the expected model file after them.

    want = Want(data)                     the file before
    write(at, 'general.name', 'x')        an edit
    want.set(b'general.name', Value('string', b'x'))
    want.check(mountlib.get(model))       exactly the expected bytes
"""
import contextlib
import errno
import os
import threading
import time
import unittest
from typing import NamedTuple

import ggufmodel as gguf
import mountlib

RESERVE = b'ggufs.reserve'
GATE = os.environ.get('GGUFS_GATE', '')


# ---- the strict reader ----

class Entry(NamedTuple):
    """A key, its type word and the bytes of its value, as in the file."""
    key: bytes
    type_id: int
    raw: bytes


def keys_of(file):
    """Return the entries in order, without ggufs' own key."""
    source, found = gguf.Reader(file), []
    _, n_kv = source.number('Q'), source.number('Q')
    for _ in range(n_kv):
        key, type_id = source.string(), source.number('I')
        begin = source.at
        source.value(gguf.TYPE_NAMES[type_id])
        found.append(Entry(key, type_id, file[begin:source.at]))
    return [entry for entry in found if entry.key != RESERVE]


def without_reserve(file):
    """Return the bytes of model.gguf for the file of an edited model."""
    model, source = gguf.read(file), gguf.Reader(file)
    return gguf.encode([row for row in model.kv if row[0] != RESERVE], model.tensors,
                       version=source.version, big=source.order == '>')


def is_zero(data):
    return not any(data)


def strict(file, unknown=()):
    """Assert the requirements of the strictest reader. `unknown`: bytes of each tensor of unknown
    type."""
    model = gguf.read(file)
    assert len(dict(model.kv)) == len(model.kv), 'a key twice'
    at = model.data_offset
    if not model.tensors:
        assert model.head == len(file), 'bytes after the header'
        return model
    assert is_zero(file[model.head:at]), 'padding of the header'
    unknown = list(unknown)
    for tensor in model.tensors:
        assert tensor.offset == at, f'{tensor.name}: at {tensor.offset}, not {at}'
        known = tensor.type_id in gguf.GEOMETRY
        size = gguf.nbytes(tensor.type_id, tensor.dims) if known else unknown.pop(0)
        end = at + size + gguf.pad(size, model.alignment)
        if not known and tensor is model.tensors[-1]:
            end = at + size  # the following bytes would become part of it
        assert len(file) >= end and is_zero(file[at + size:end]), f'{tensor.name}: padding'
        at = end
    assert at == len(file), f'{len(file) - at} bytes after the data'
    return model


class Want:
    """The expected content of a model file, without ggufs' own key: entries `kv`; `tensors`, each (name, type,
    dims, bytes)."""

    def __init__(self, file):
        self.head, self.kv = file[:8], keys_of(file)
        self.tensors = [tensor[:4] for tensor in gguf.read(file).tensors]
        self.writer = gguf.Writer(gguf.Reader(file).version, gguf.Reader(file).order == '>')
        self.unknown = [len(data) for _, type_id, _, data in self.tensors if type_id not in gguf.GEOMETRY]

    def index(self, key):
        return [entry.key for entry in self.kv].index(key)

    def set(self, key, value):
        """Set a value of an existing key, or of a new key at the end."""
        entry = Entry(key, gguf.TYPE_IDS[value.type], self.writer.value(value))
        if key in [old.key for old in self.kv]:
            self.kv[self.index(key)] = entry
        else:
            self.kv.append(entry)

    def remove(self, *keys):
        for key in keys:
            del self.kv[self.index(key)]

    def rename(self, old, new):
        self.kv[self.index(old)] = self.kv[self.index(old)]._replace(key=new)

    def check(self, file):
        assert file[:8] == self.head, 'version or byte order'
        model, found = strict(file, self.unknown), keys_of(file)
        assert [entry.key for entry in found] == [entry.key for entry in self.kv], \
            [entry.key for entry in found]
        for entry, wanted in zip(found, self.kv):
            assert entry == wanted, (entry, wanted)
        self.check_tensors(model)
        return model

    def check_tensors(self, model):
        assert [tensor[:3] for tensor in model.tensors] == [row[:3] for row in self.tensors], model.tensors
        for new, old in zip(model.tensors, self.tensors):
            assert new.data == old[3], f'{new.name}: its bytes'


# ---- edits ----

def place(at, key, folder='metadata'):
    return os.path.join(os.fsencode(at), os.fsencode(folder), os.fsencode(key))


@contextlib.contextmanager
def opened(name, flags, mode=0o600):
    """Yield a descriptor. An error of its close is raised."""
    fd = os.open(name, flags, mode)
    try:
        yield fd
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    os.close(fd)


def write_all(fd, text, piece=1 << 20):
    text = os.fsencode(text)
    for begin in range(0, len(text), piece):
        assert os.write(fd, text[begin:begin + piece]) == len(text[begin:begin + piece])


def write(at, key, text, *, fsync=False, piece=1 << 20):
    """Write like `>`: truncate or create, write, close."""
    with opened(place(at, key), os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        write_all(fd, text, piece)
        if fsync:
            os.fsync(fd)


def sync(at, folder='metadata'):
    """Make all accepted edits durable."""
    with opened(os.path.join(os.fsencode(at), os.fsencode(folder)), os.O_RDONLY) as fd:
        os.fsync(fd)


def read(at, key):
    return mountlib.get(place(at, key))


def keys(at):
    return os.listdir(os.path.join(os.fsencode(at), b'metadata'))


def retype(at, key, name):
    os.setxattr(place(at, key), 'user.gguf.type', name.encode())


def type_of(at, key):
    return os.getxattr(place(at, key), 'user.gguf.type').decode()


def error_of(at, key):
    """Return user.gguf.error, or None if there is none."""
    try:
        return os.getxattr(place(at, key), 'user.gguf.error').decode()
    except OSError as e:
        assert e.errno == errno.ENODATA
        return None


def until(condition):
    """Wait for an effect of a call that may come after the call returns."""
    end = time.monotonic() + mountlib.LIMIT
    while not condition():
        assert time.monotonic() < end, 'it did not come'
        time.sleep(0.001)


def leftovers(folder):
    """Return our files beside a model."""
    return [name for name in os.listdir(folder) if '.ggufs-' in name]


# ---- a program that waits ----

def waits(task):
    """Return whether a thread (its number) has sent a request to a file server, and waits for its answer. Where the
    server has one thread (max_threads=1), it has taken that request when it answers a later one."""
    return b'wait_answer' in mountlib.get(f'/proc/{task}/wchan')


class Call:
    """A call in a thread; when it is done, the exception that it raised."""

    def __init__(self, function, *arguments):
        self.error = None
        self.thread = threading.Thread(target=self.run, args=(function, arguments))
        self.thread.start()

    def run(self, function, arguments):
        try:
            function(*arguments)
        except OSError as e:
            self.error = e

    def waits(self):
        return waits(self.thread.native_id)

    def wait(self):
        self.thread.join(mountlib.LIMIT)
        assert not self.thread.is_alive(), 'it hangs'
        return self.error


needs_gate = unittest.skipIf(not os.path.exists(GATE) or mountlib.sanitized('asan'), 'no gate')


class Gate:
    """A FIFO at which the program waits: see gate.c."""

    def __init__(self, name):
        self.name, self.fd = name, -1

    @contextlib.contextmanager
    def before(self, what):
        """Make programs started while this lasts wait before that call: GATE, GATE_FREE and so on."""
        os.environ[what], os.environ['LD_PRELOAD'] = self.name, GATE
        try:
            yield
        finally:
            del os.environ[what]
            os.environ.pop('LD_PRELOAD', None)

    def shut(self):
        os.mkfifo(self.name)

    def wait(self):
        """Wait until a process waits at the gate."""
        self.fd = os.open(self.name, os.O_WRONLY)

    def hold(self, function, *arguments):
        """Begin a call that waits at the gate."""
        self.shut()
        call = Call(function, *arguments)
        self.wait()
        return call

    def let_others(self):
        """Later processes no longer wait."""
        os.unlink(self.name)

    def open(self):
        """Let all go on; also at the end of a test, however it has ended."""
        with contextlib.suppress(FileNotFoundError):
            self.let_others()
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1


def gated(case, what, *command):
    """Mount in the foreground, until the test ends, with a gate before that call. Returns (gate, mount, its place,
    the process)."""
    gate, mount = Gate(mountlib.path('gate')), mountlib.Foreground(*command)
    case.addCleanup(gate.open)
    with gate.before(what):
        return gate, mount, *mount.begin(case)
