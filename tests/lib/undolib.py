# SPDX-License-Identifier: MIT
"""Random edits to keys and tensors, each group a state, and undos to any of these states.

    player = Player(test, model, [model], options, seed)
    player.edit_much(10)                  each group followed by an undo to some state
    player.back_to_all()                  each existing state, in any order

After each step every shard is read by a reader that shares no code with the program: an undo
restores all keys, bit for bit and in their order, and leaves each tensor unchanged.
"""
import os
import random
import shutil
import struct

import ggufmodel as gguf
import mountlib
from editlib import RESERVE, entries, keys, place, strict, sync, write
from mountlib import GGUFS, Mount, get, run

ALIGNMENT = b'general.alignment'


def own(key):
    return key == RESERVE or key.startswith(b'split.')


class Player:
    def __init__(self, test, model, shards, options, seed, tensors=False):
        """`tensors`: also edit these. `options`: options of a mount."""
        self.test, self.model, self.shards, self.tensors = test, model, shards, tensors
        self.lot, self.made = random.Random(seed), 0
        self.options = ('-o', ','.join(options + (('tensors=edit',) if tensors else ())))
        self.aligns = not any('inplace' in option for option in options)
        self.states = {}  # number -> keys
        self.seed = seed

    # ---- contents of the files ----

    def keys(self):
        return [entry for entry in entries(get(self.shards[0]))[0] if not own(entry.key)]

    def data(self):
        """Return every tensor of every shard, and every byte of later shards."""
        first = strict(get(self.shards[0]))
        return ([(t.name, t.type_id, t.dims, t.data) for t in first.tensors],
                [get(shard) for shard in self.shards[1:]])

    def numbers(self):
        """Return the numbers of the states."""
        return {int(line.split('\t')[0]) for line in self.command('--history', self.model).splitlines()}

    def command(self, *words):
        done = run(GGUFS, *words)
        self.test.assertEqual((done.returncode, done.err), (0, ''), self.seed)
        return done.out

    def note(self, before):
        """Note the state that a step has made, if any."""
        found = self.numbers()
        new = found - set(self.states)
        self.test.assertLessEqual(len(new), 1, self.seed)
        self.test.assertEqual(set(self.states) - found, set(), self.seed)
        for number in new:
            self.test.assertGreater(number, max(self.states, default=0))
            self.states[number] = before
        return len(new)

    # ---- edits ----

    def name(self):
        self.made += 1
        return f'x.n{self.made}'

    def any_key(self, at):
        found = [key for key in keys(at) if key not in (b'general.architecture', ALIGNMENT)]
        return self.lot.choice(found or [b'none.left'])

    def set_value(self, at):
        write(at, self.lot.choice(('type.u8', 'type.i64', 'type.f32')), f'{self.lot.randrange(100)}\n')

    def set_text(self, at):
        write(at, 'general.name', 'n' * self.lot.randrange(200) + '\n')

    def set_list(self, at):
        write(at, 'list.string', '"a"\n' * self.lot.randrange(60))

    def add(self, at):
        write(at, self.name(), self.lot.choice(('7\n', 'text\n', '[1,2]\n')))

    def remove(self, at):
        os.unlink(place(at, self.any_key(at)))

    def rename(self, at):
        os.rename(place(at, self.any_key(at)), place(at, self.name()))

    def align(self, at):
        if self.lot.random() < 0.3 and ALIGNMENT in keys(at):
            os.unlink(place(at, ALIGNMENT))
        else:
            write(at, ALIGNMENT, f'{8 << self.lot.randrange(8)}\n')

    def all_keys(self, at):
        for key in keys(at):
            if key != b'general.architecture':
                os.unlink(place(at, key))

    def tensor(self, at, *parts):
        return os.path.join(at, 'tensors', *parts)

    def any_tensor(self, at):
        return self.lot.choice(sorted(os.listdir(self.tensor(at))))

    def tensor_rename(self, at):
        os.rename(self.tensor(at, self.any_tensor(at)), self.tensor(at, self.name()))

    def tensor_remove(self, at):
        if len(os.listdir(self.tensor(at))) > 2:
            shutil.rmtree(self.tensor(at, self.any_tensor(at)))

    def tensor_bytes(self, at):
        with open(self.tensor(at, self.any_tensor(at), 'raw'), 'r+b') as file:
            file.write(self.lot.randbytes(4))

    def tensor_add(self, at):
        name = self.name()
        os.mkdir(self.tensor(at, name))
        count = self.lot.randrange(1, 30)
        for part, data in (('type', b'F32\n'), ('shape', b'%d\n' % count),
                           ('raw', struct.pack(f'<{count}f', *range(count)))):
            with open(self.tensor(at, name, part), 'wb') as file:
                file.write(data)

    def group(self, at):
        steps = [self.set_value, self.set_text, self.set_list, self.add, self.add, self.remove, self.rename]
        steps += [self.align] * (2 if self.aligns else 0) + [self.all_keys] * (self.lot.random() < 0.1)
        if self.tensors:
            steps += [self.tensor_bytes, self.tensor_rename]
            steps += [self.tensor_remove, self.tensor_add] if self.aligns else []
        for _ in range(self.lot.randrange(1, 6)):
            try:
                self.lot.choice(steps)(at)
            except FileNotFoundError:  # it no longer exists
                pass
        sync(at)
        if self.tensors:
            sync(at, 'tensors')

    # ---- states ----

    def undo(self, at, number):
        """Undo through the daemon, or in a model that is not mounted."""
        before, data = self.keys(), self.data()
        self.command(f'--undo={number}', at)
        self.test.assertEqual(self.keys(), self.states[number], f'{self.seed}: state {number}')
        self.test.assertTrue(self.data() == data, f'{self.seed}: tensors after state {number}')
        self.note(before)

    def take_back(self, at):
        """Check that --undo without a number restores the newest state."""
        before, data = self.keys(), self.data()
        self.command('--undo', at)
        self.test.assertEqual(self.keys(), self.states[max(self.states)], self.seed)
        self.test.assertTrue(self.data() == data, self.seed)
        self.test.assertEqual(self.note(before), 1)

    def shown(self, at):
        """Check that the mount shows the keys of the file, and a model with them."""
        self.test.assertEqual(keys(at), [entry.key for entry in self.keys()])
        whole = get(os.path.join(at, 'model.gguf'))
        self.test.assertEqual([entry for entry in entries(whole)[0] if not own(entry.key)], self.keys())
        gguf.read(whole)

    def edit_much(self, groups):
        """Edit randomly. The mount is sometimes ended and made again, and some undos run without
        one."""
        while groups > 0:
            with Mount(self.model, *self.options) as at:
                for _ in range(self.lot.randrange(1, 5)):
                    groups -= 1
                    before = self.keys()
                    self.group(at)
                    if self.note(before) and self.keys() != before:
                        self.take_back(at)
                        self.take_back(at)
                    if self.states:
                        self.undo(at, self.lot.choice(list(self.states)))
                    self.shown(at)
            if self.states and self.lot.random() < 0.5:
                self.undo(self.model, self.lot.choice(list(self.states)))

    def back_to_all(self):
        numbers = list(self.states)
        self.lot.shuffle(numbers)
        with Mount(self.model, *self.options) as at:
            for number in numbers:
                self.undo(at, number)
            self.shown(at)
        return len(numbers)
