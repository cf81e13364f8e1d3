# SPDX-License-Identifier: MIT
"""Runs a daemon that is killed before one of its system calls, or whose system call fails
(tests/lib/killer.c)."""
import contextlib
import os
import subprocess
import unittest.mock

import disks
import mountlib

KILLER = os.environ.get('GGUFS_KILLER', '')


def begin(source, options, number, failure=''):
    """Return a mount whose calls are counted from now on: (mount, its directory, its process)."""
    count = mountlib.path('count')
    mount = mountlib.Foreground(source, *options)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(count)
    with unittest.mock.patch.dict(os.environ, KILL_AT=count, LD_PRELOAD=KILLER):
        at, process = mount.__enter__()
    with open(count + '.new', 'w', encoding='ascii') as out:
        out.write(f'{number} {failure}\n')
    os.rename(count + '.new', count)
    return mount, at, process


def end(mount, at, process, done):
    """Unmount it if its work is finished, and wait for its end. Returns whether it was killed."""
    if process.poll() is None and done:
        with contextlib.suppress(AssertionError):
            mountlib.unmount(at)
    status = process.wait(mountlib.LIMIT)
    subprocess.run(['umount', '-l', at], check=False, stderr=subprocess.DEVNULL)
    log = mount.log()
    mount.err.close()
    assert status in (0, -9), log
    return status != 0


@contextlib.contextmanager
def failing(source, options, number, error):
    """Yield a mount whose call fails with the error; it continues, and is unmounted. It is killed
    if the test fails."""
    mount, at, process = begin(source, options, number, error)
    try:
        yield mount, at
    except BaseException:
        process.kill()
        process.wait(mountlib.LIMIT)
        subprocess.run(['umount', '-l', at], check=False)
        raise
    mount.__exit__(None, None, None)


def main():
    """Main function of a program whose tests need the kills, on separate disks."""
    disks.own_namespace()
    if not os.path.exists(KILLER) or mountlib.sanitized('asan'):
        mountlib.skip('no way to kill it')
    mountlib.main()
