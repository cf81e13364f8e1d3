#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Runs the tests themselves: they run, instead of being skipped, if only root can access the
sources and the build, as in a clone below /root."""
import os
import shutil
import unittest

import mountlib

# Tests of root's that involve another user.
WITH_OTHERS = (('trust', 'Trust.test_readable'), ('options', 'Options.test_allow_other'),
               ('mounts', 'ReadOnly.test_another_user'), ('control', 'Socket.test_other_users'))


class Private(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """Copy the files that a test needs, readable only by root."""
        cls.copy = mountlib.path('private')
        for name in ('tests/lib', 'tests/mount', 'scripts'):
            shutil.copytree(os.path.join(mountlib.SOURCE, name), os.path.join(cls.copy, name))
        shutil.copy(os.path.join(mountlib.SOURCE, 'README.md'), cls.copy)
        program = shutil.copy(shutil.which(mountlib.GGUFS), cls.copy)
        mountlib.run('chmod', '-R', 'go=', cls.copy)
        cls.environment = {'GGUFS': program, 'GGUFS_TEST_DIR': cls.copy,
                           'PYTHONPATH': os.path.join(cls.copy, 'tests/lib')}

    def succeeds(self, *command):
        words = [f'{name}={value}' for name, value in self.environment.items()]
        done = mountlib.run('env', *words, *command, cwd=self.copy)
        self.assertEqual(done.returncode, 0, done.out + done.err)
        self.assertIn('\nOK\n', done.err)

    def test_root(self):
        for program, test in WITH_OTHERS:
            self.succeeds('/usr/bin/python3', f'tests/mount/{program}.py', test)

    def test_ordinary_user(self):
        self.succeeds(os.path.join(self.copy, 'tests/mount/as-user'), '/usr/bin/python3',
                      'tests/mount/trust.py', 'Trust.test_planted_leftovers')


if __name__ == '__main__':
    if os.getuid() != 0:
        mountlib.skip('for root only')
    if not mountlib.has_namespaces():
        mountlib.skip('may not make a mount namespace')
    mountlib.main()
