#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Models with their expected content in a JSON file beside each: the mount shows exactly that."""
import glob
import hashlib
import json
import os
import re
import unittest

import numpy as np

import ggufmodel as gguf
import mountlib
import oracle
import second_reader

MODELS = sorted(glob.glob(os.path.join(mountlib.SHARED, 'models', '*.gguf')))
SHARD = re.compile(r'(.*)-\d{5}-of-\d{5}\.gguf$')
TYPE = {'str': 'string', 'arr': 'array'}


def name_of(row, field):
    """Return a name; one that is not UTF-8 is given in hexadecimal."""
    if row.get(field + '_hex') is not None:
        return bytes.fromhex(row[field + '_hex'])
    return row[field].encode()


def payload(row, file):
    """Return the value from its bytes in the file, located by the description."""
    data = file[row['payload_offset']:][:row['payload_size']]
    assert hashlib.sha256(data).hexdigest() == row['payload_sha256']
    reader = gguf.Reader(file)
    reader.at = row['payload_offset']
    return reader.value(TYPE.get(row['type'], row['type']))


def described(row, value):
    """Check that the value in the description agrees with the one read from the bytes."""
    if 'value' not in row or row.get('key') is None or row['type'] == 'str':
        return True
    if row['type'] == 'arr':
        return row['count'] == len(value.data)
    shown = row['value']
    if isinstance(shown, str):
        shown = oracle.NON_FINITE[shown]
    return oracle.is_json(value.type, value.data, shown)


class Shared(unittest.TestCase):
    def check(self, source):
        with open(source + '.json', encoding='utf-8') as file:
            self.want = json.load(file)
        self.file = mountlib.get(source)
        with mountlib.Mount(source, '-o', 'ro') as at:
            self.at = os.fsencode(at)
            self.check_keys()
            self.check_tensors()
            self.assertEqual(mountlib.get(os.path.join(self.at, b'model.gguf')), self.file)
            self.check_findings(source)

    def check_findings(self, source):
        """`check` shows what --check prints."""
        folder, name = os.path.split(source)
        done = mountlib.run(mountlib.GGUFS, '--check', name, cwd=folder)
        self.assertEqual(done.err, '')
        self.assertIn(done.returncode, (0, 1))
        self.assertEqual(mountlib.get(os.path.join(self.at, b'check')).decode(), done.out)

    def check_keys(self):
        rows = self.want['kv']
        entries = os.listdir(os.path.join(self.at, b'metadata'))
        self.assertEqual(len(entries), len(rows))
        with open(os.path.join(self.at, b'metadata.json'), encoding='utf-8') as file:
            shown = oracle.load_json(file.read())
        self.assertEqual([key.encode('utf-8', 'surrogateescape') for key in shown],
                         [name_of(row, 'key') for row in rows])
        for entry, row, (key, json_row) in zip(entries, rows, shown.items()):
            self.assertTrue(oracle.is_name_of(entry, name_of(row, 'key')), entry)
            self.check_value(entry, row, json_row)

    def check_value(self, entry, row, json_row):
        place = os.path.join(self.at, b'metadata', entry)
        value = payload(row, self.file)
        self.assertTrue(described(row, value), row['key'])
        kind = f'array[{TYPE.get(row["array_type"], row["array_type"])}]' \
            if row['type'] == 'arr' else TYPE.get(row['type'], row['type'])
        self.assertEqual(value.type_name(), kind)
        self.assertEqual(os.getxattr(place, 'user.gguf.type').decode(), value.full_type_name())
        self.assertEqual(json_row['type'], kind)
        text = mountlib.get(place)
        self.assertEqual(os.stat(place).st_size, len(text))
        self.assertTrue(oracle.is_text(value, text), (entry, text[:200]))
        self.assertTrue(oracle.is_json(value.type, value if value.type == 'array' else value.data,
                                       json_row['value']), entry)

    def check_tensors(self):
        rows = self.want['tensors']
        entries = os.listdir(os.path.join(self.at, b'tensors'))
        self.assertEqual(len(entries), len(rows))
        for entry, row in zip(entries, rows):
            self.assertTrue(oracle.is_name_of(entry, name_of(row, 'name')), entry)
            self.check_tensor(os.path.join(self.at, b'tensors', entry), row)

    def check_tensor(self, place, row):
        def content(name):
            data = mountlib.get(os.path.join(place, name))
            self.assertEqual(os.stat(os.path.join(place, name)).st_size, len(data))
            return data

        shape = ' '.join(map(str, row['numpy_shape']))
        self.assertEqual(content(b'shape').decode(), shape + '\n')
        self.assertEqual(content(b'type').decode(), row['type'] + '\n')
        self.assertEqual(content(b'offset').decode(), f'{row["abs_offset"]}\n')
        raw = content(b'raw')
        self.assertEqual(len(raw), row['nbytes'])
        self.assertEqual(hashlib.sha256(raw).hexdigest(), row['raw_sha256'], row['name'])
        if row.get('f32_canon_sha256'):
            floats = np.frombuffer(content(b'f32'), '<f4')
            self.assertEqual(hashlib.sha256(oracle.canonical(floats)).hexdigest(),
                             row['f32_canon_sha256'], row['name'])

    def check_split(self, source, whole):
        """A split model shows the keys without split.*, and the tensors of the unsplit one."""
        model = gguf.read(mountlib.get(whole))
        with mountlib.Mount(source, '-o', 'ro') as at:
            self.at = at = os.fsencode(at)
            self.assertEqual(os.listdir(os.path.join(at, b'metadata')),
                             [oracle.file_name(key) for key, _ in model.kv])
            self.assertEqual(os.listdir(os.path.join(at, b'tensors')),
                             [oracle.file_name(tensor.name) for tensor in model.tensors])
            for tensor in model.tensors:
                self.assertEqual(mountlib.get(os.path.join(at, b'tensors', tensor.name, b'raw')),
                                 tensor.data)
            self.assertEqual(mountlib.get(os.path.join(at, b'model.gguf')), mountlib.get(whole))
            self.check_findings(source)
            if second_reader.there():
                second_reader.compare(self, os.path.join(os.fsdecode(at), 'model.gguf'))


def add(source):
    """Make one test for each model; a split model is compared with its unsplit twin."""
    name = os.path.basename(source)
    shard = SHARD.match(source)
    if shard:
        def test(self):
            self.check_split(source, shard[1] + '.gguf')
    else:
        def test(self):
            self.check(source)
    setattr(Shared, 'test_' + re.sub(r'\W', '_', name), test)


if __name__ == '__main__':
    if not MODELS:
        mountlib.skip(f'no models in {mountlib.SHARED}')
    for model in MODELS:
        add(model)
    mountlib.main()
