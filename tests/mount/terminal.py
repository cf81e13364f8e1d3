# SPDX-License-Identifier: MIT
"""A program on a terminal of its own (tmux): keys in, screen out."""
import os
import subprocess
import time

import mountlib


class Terminal:
    """`with Terminal('vim', file) as term:` runs a program, and waits at the end until it has ended; if an
    exception is raised, the program is killed."""

    def __init__(self, *command, env=()):
        self.socket = mountlib.path('tmux')
        self.command = ['env', 'TERM=screen', 'LC_ALL=C.UTF-8', *env, *command]

    def tmux(self, *arguments, check=True):
        done = subprocess.run(['tmux', '-S', self.socket, '-f', '/dev/null', *arguments],
                              check=check, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=mountlib.LIMIT)
        return done.stdout.decode(errors='replace')

    def __enter__(self):
        self.tmux('new-session', '-d', '-x', '150', '-y', '24', *self.command)
        return self

    def screen(self):
        """Return the screen, which is empty if the program has ended."""
        return self.tmux('capture-pane', '-p', check=False)

    def running(self):
        return self.tmux('list-panes', check=False) != ''

    def until(self, what, is_so):
        """Poll the screen until the condition holds."""
        end = time.monotonic() + mountlib.LIMIT
        while not is_so():
            if time.monotonic() > end:
                raise AssertionError(f'{self.command}: no {what} on:\n{self.screen()}')
            time.sleep(0.01)

    def see(self, *texts):
        """Wait until one of the texts is on the screen, and return it."""
        found = []

        def seen():
            screen = self.screen()
            found[:] = [text for text in texts if text in screen]
            return found
        self.until(' or '.join(texts), seen)
        return found[0]

    def keys(self, *names):
        """Send keys, by tmux's names."""
        self.tmux('send-keys', *names)

    def type(self, text):
        self.tmux('send-keys', '-l', text)

    def ended(self):
        self.until('end', lambda: not self.running())

    def __exit__(self, *error):
        if not error[0]:
            self.ended()
        self.tmux('kill-server', check=False)
        if os.path.exists(self.socket):
            os.unlink(self.socket)
