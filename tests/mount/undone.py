#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Random edits of keys, alignment and tensors, then a return to each state: all keys are the same
bit for bit, and each tensor is unchanged. For single files and split models, with each strategy."""
import os
import shutil
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Value
from historycase import ALL
from undolib import Player

SEED = int(os.environ.get('GGUFS_SEED', 1))
SOAK = int(os.environ.get('GGUFS_SOAK', 1))
GROUPS = 7


class Random(unittest.TestCase):
    def folder(self):
        shutil.rmtree(mountlib.path('state'), ignore_errors=True)
        shutil.rmtree(mountlib.path('models'), ignore_errors=True)
        os.makedirs(mountlib.path('models'))

    def one(self, big):
        self.folder()
        return [mountlib.put('models/m.gguf', gguf.encode(ALL, samples.small(), big=big))]

    def split(self, how):
        """The first shard has tensors, or only keys; a file without data is not written in
        place."""
        self.folder()
        tensors, shards = samples.small(), []
        first = self.count % 2 + (how == 'inplace')
        for no, part in enumerate((tensors[:first], tensors[first:4], tensors[4:])):
            kv = (ALL if no == 0 else []) + [
                (b'split.no', Value('u16', no)), (b'split.count', Value('u16', 3)),
                (b'split.tensors.count', Value('i32', len(tensors)))]
            shards.append(mountlib.put(f'models/m-{no + 1:05}-of-00003.gguf', gguf.encode(kv, part)))
        return shards

    def play(self, how, tensors=False, split=False):
        for self.count in range(2 * SOAK) if SOAK > 1 else [int(tensors) ^ (how == 'inplace')]:
            shards = self.split(how) if split else self.one(self.count % 2 == 1)
            seed = f'{SEED}.{self.count} {how} {tensors} {split}'
            options = (f'relayout={how}', 'reserve=200000' if how == 'inplace' else 'reserve=auto')
            player = Player(self, shards[-1], shards, options, seed, tensors)
            if how == 'inplace':
                self.make_room(shards)
            player.edit_much(GROUPS)
            self.assertGreater(player.back_to_all(), GROUPS)
            self.assertEqual(editlib.leftovers(mountlib.path('models')), [])
            if 'GGUFS_SOAK' in os.environ:
                print(f'\nsoak: {len(player.states)} states restored', flush=True)

    def make_room(self, shards):
        """Make a reserve, so that every edit can be made in place."""
        with mountlib.Mount(shards[0], '-o', 'relayout=copy,reserve=200000,history=0') as at:
            editlib.write(at, 'general.name', 'room')

    def test_copy(self):
        self.play('copy')

    def test_inplace(self):
        self.play('inplace')

    def test_auto_with_tensors(self):
        self.play('auto', tensors=True)

    def test_copy_with_tensors(self):
        self.play('copy', tensors=True)

    def test_inplace_with_tensors(self):
        self.play('inplace', tensors=True)

    def test_split_copy(self):
        self.play('copy', split=True)

    def test_split_inplace(self):
        self.play('inplace', split=True)


if __name__ == '__main__':
    mountlib.main()
