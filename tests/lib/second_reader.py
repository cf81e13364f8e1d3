# SPDX-License-Identifier: MIT
"""How another reader, which shares no code with the program or its tests, reads a file: the
@huggingface/gguf in the directory GGUFS_NODE_MODULES (see tests/mount/another_reader.mjs)."""
import json
import os

import ggufmodel as gguf
import mountlib
import samples

MODULES = os.environ.get('GGUFS_NODE_MODULES', '')
SCRIPT = os.path.join(mountlib.SOURCE, 'tests/mount/another_reader.mjs')


def there():
    return os.path.isdir(os.path.join(MODULES, '@huggingface', 'gguf'))


def compare(test, file):
    """Check that the other reader reads the same from `file` as ggufmodel."""
    done = mountlib.run('node', SCRIPT, MODULES, file)
    test.assertEqual(done.returncode, 0, done.err)
    theirs, ours = json.loads(done.out), gguf.read(mountlib.get(file))
    test.assertEqual([row['key'].encode() for row in theirs['kv']], [key for key, _ in ours.kv])
    for row, (key, value) in zip(theirs['kv'], ours.kv):
        test.assertEqual(row['type'], gguf.TYPE_IDS[value.type], key)
        if value.elem != 'array':
            test.assertEqual(row['value'], samples.as_json(value), key)
    if ours.tensors:
        test.assertEqual(theirs['data_offset'], ours.data_offset)
    test.assertEqual([(row['name'].encode(), row['type'], tuple(row['dims']), row['offset'])
                      for row in theirs['tensors']],
                     [(t.name, t.type_id, t.dims, t.offset - ours.data_offset)
                      for t in ours.tensors])


def compare_all(test, files):
    if not there():
        test.skipTest('no @huggingface/gguf in GGUFS_NODE_MODULES')
    test.assertTrue(files)
    for file in files:
        compare(test, file)
