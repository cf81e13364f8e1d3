# SPDX-License-Identifier: MIT
"""Makes disks hang, for tests and benchmarks: freezes file systems, for root, and stops servers."""
import contextlib
import glob
import os
import signal
import subprocess
import sys

import mountlib

# ioctl(2) FIFREEZE and FITHAW, from linux/fs.h. Thaws when its input ends, or after that many
# seconds, in case an unkillable process that waits for this very disk keeps the input open.
GUARD = '''
import fcntl, os, select, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(fd, 0xc0045877, 0)
print("frozen", flush=True)
if not select.select([0], [], [], 60)[0]:
    print("late", flush=True)
fcntl.ioctl(fd, 0xc0045878, 0)
'''


# Stops a process, which continues when this one ends.
STOPPER = '''
import glob, os, select, signal, sys
os.kill(int(sys.argv[1]), signal.SIGSTOP)
for thread in glob.glob("/proc/" + sys.argv[1] + "/task/*/stat"):
    while open(thread).read().rpartition(") ")[2][0] not in "Tt":
        pass
print("stopped", flush=True)
if not select.select([0], [], [], 60)[0]:
    print("late", flush=True)
os.kill(int(sys.argv[1]), signal.SIGCONT)
'''


def stop(pid):
    """On return, all threads of the process have stopped. SIGSTOP wakes one thread, which stops the
    others."""
    os.kill(pid, signal.SIGSTOP)
    for thread in glob.glob(f'/proc/{pid}/task/*/stat'):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            while mountlib.get(thread).rpartition(b') ')[2][:1] not in b'Tt':
                pass


@contextlib.contextmanager
def stopped(pid):
    """While this lasts, the process answers nothing. After a minute it does, and the test fails."""
    guard = subprocess.Popen([sys.executable, '-c', STOPPER, str(pid)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    try:
        assert guard.stdout.readline() == b'stopped\n'
        yield
    finally:
        late = guard.communicate()[0]
    assert not late, 'something waited for the process until it went on'


@contextlib.contextmanager
def frozen(folder):
    """While this lasts, no call that would write to this file system ends. After a minute it does,
    and the test fails. Raises OSError if that is not possible."""
    guard = subprocess.Popen([sys.executable, '-c', GUARD, folder], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        if guard.stdout.readline() != b'frozen\n':
            raise OSError(f'{folder}: cannot be frozen')
        yield
    finally:
        late = guard.communicate()[0]
    assert not late, 'something waited for the disk until it was thawed'


def in_request(pid):
    """Return how many threads of a process wait for a FUSE reply, or for a page that one brings."""
    count = 0
    for name in glob.glob(f'/proc/{pid}/task/*/wchan'):
        with contextlib.suppress(OSError):
            waits = mountlib.get(name).decode()
            count += any(word in waits for word in ('request', 'folio', 'page'))
    return count


def waits_for_disk(pid):
    """True if a thread of the process is in an uninterruptible wait."""
    for name in glob.glob(f'/proc/{pid}/task/*/stat'):
        with contextlib.suppress(OSError), open(name, 'rb') as file:
            if file.read().rpartition(b') ')[2].startswith(b'D'):
                return True
    return False
