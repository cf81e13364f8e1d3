# SPDX-License-Identifier: MIT
"""A real llama.cpp (prebuilt, in node-llama-cpp; see llama_cpp.mjs) loads models with edited
tensors, and computes the same with them as with models that were written directly."""
import json
import os
import random
import struct
import unittest

import ggufmodel as gguf
import mountlib
from editlib import strict
from ggufmodel import Tensor, Value
from tensorcase import EDIT
from recipes import played

MODULES = os.environ.get('GGUFS_LLAMA_CPP', '')
SCRIPT = os.path.join(mountlib.SOURCE, 'tests/mount/llama_cpp.mjs')
TEXT = 'the model will have one token'
VOCAB, EMBED, HIDDEN, HEAD, HEADS, KV_HEADS, BLOCKS = 512, 256, 64, 16, 4, 2, 2
F32, Q8_0, Q4_K, Q6_K = 0, 8, 12, 14
# Every type that has an encoder and that llama.cpp accepts for a token embedding, and the maximum
# distance of the logits from those of F32, relative to their own spread.
EMBEDDINGS = {
    'F16': 0.002, 'BF16': 0.01, 'Q8_0': 0.02, 'Q6_K': 0.07, 'Q5_K': 0.15, 'Q5_1': 0.15, 'Q5_0': 0.15, 'Q4_K': 0.3,
    'Q4_1': 0.3, 'Q4_0': 0.3, 'IQ4_NL': 0.3, 'IQ4_XS': 0.3, 'MXFP4': 0.5, 'NVFP4': 0.3, 'Q3_K': 0.6, 'Q2_K': 1,
    'TQ1_0': 2, 'TQ2_0': 2, 'Q2_0': 2, 'Q1_0': 2, 'IQ3_S': 0.6, 'IQ3_XXS': 0.9, 'IQ2_S': 1, 'IQ2_XS': 1, 'IQ2_XXS': 1.2,
    'IQ1_M': 1.5, 'IQ1_S': 1.5,
}


def keys():
    """Return the keys of the sample, with its vocabulary, for a smaller model."""
    file = mountlib.sample()
    kv = dict(gguf.read(mountlib.get(file)).kv)
    os.unlink(file)
    for name, number in {
            'llama.block_count': BLOCKS, 'llama.embedding_length': EMBED, 'llama.feed_forward_length': HIDDEN,
            'llama.attention.head_count': HEADS, 'llama.attention.head_count_kv': KV_HEADS,
            'llama.attention.key_length': HEAD, 'llama.attention.value_length': HEAD,
            'llama.rope.dimension_count': HEAD, 'general.file_type': 0}.items():
        kv[name.encode()] = Value('u32', number)
    return list(kv.items())


def shapes(blocks):
    """Return (name, dims), dims fastest first."""
    yield 'token_embd.weight', (EMBED, VOCAB)
    for block in range(blocks):
        for name, dims in (
                ('attn_norm', (EMBED,)), ('attn_q', (EMBED, HEADS * HEAD)), ('attn_k', (EMBED, KV_HEADS * HEAD)),
                ('attn_v', (EMBED, KV_HEADS * HEAD)), ('attn_output', (HEADS * HEAD, EMBED)), ('ffn_norm', (EMBED,)),
                ('ffn_gate', (EMBED, HIDDEN)), ('ffn_up', (EMBED, HIDDEN)), ('ffn_down', (HIDDEN, EMBED))):
            yield f'blk.{block}.{name}.weight', dims
    yield 'output_norm.weight', (EMBED,)
    yield 'output.weight', (EMBED, VOCAB)


def tensors(seed, blocks=BLOCKS):
    """Return all tensors as F32: scales near 1, and weights that roughly preserve the size of their
    inputs."""
    rng = random.Random(seed)
    pool = [rng.gauss(0, 1) for _ in range(4096)]
    for name, dims in shapes(blocks):
        scale = 0 if len(dims) == 1 else dims[0] ** -0.5
        packed = [struct.pack('<f', scale * value if scale else 1 + value / 20) for value in pool]
        count = gguf.nbytes(F32, dims) // 4
        yield Tensor(name.encode(), F32, dims, b''.join(rng.choices(packed, k=count)))


def matrix(rows):
    """Return an importance matrix for all of them."""
    rng = random.Random(3)
    made = []
    for row in rows:
        sums = [rng.choice([0, 1, 1, 9]) * rng.random() for _ in range(row.dims[0])]
        made += [Tensor(row.name + b'.in_sum2', F32, row.dims[:1], struct.pack(f'<{len(sums)}f', *sums)),
                 Tensor(row.name + b'.counts', F32, (1,), struct.pack('<f', 2))]
    return mountlib.put('it.imatrix', gguf.encode([], made))


def evaluate(*files, vocabulary=VOCAB):
    """Return, for each file, its logits after each token, in one list."""
    done = mountlib.run('node', SCRIPT, MODULES, TEXT, *files)
    if done.returncode == 77:
        raise unittest.SkipTest(done.out.strip())
    assert done.returncode == 0, done.err
    found = json.loads(done.out)
    for file, result in zip(files, found):
        assert 'error' not in result, f'{file}: {result["error"]}'
        assert len(result['tokens']) > 3 and len(result['logits']) == len(result['tokens'])
        assert all(len(row) == vocabulary for row in result['logits'])
    return [sum(result['logits'], []) for result in found]


def apart(ours, others):
    """Return the root mean square difference, relative to the spread of `others`."""
    mean = sum(others) / len(others)
    spread = sum((value - mean) ** 2 for value in others)
    return (sum((a - b) ** 2 for a, b in zip(ours, others)) / spread) ** 0.5


def shell(script, *arguments):
    mountlib.works('sh', '-c', script, 'sh', *arguments)


@unittest.skipUnless(os.path.isdir(os.path.join(MODULES, 'node-llama-cpp')), 'no node-llama-cpp in GGUFS_LLAMA_CPP')
class LlamaCpp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kv = keys()
        cls.ours, cls.others = list(tensors(1)), list(tensors(2))

    def put(self, name, rows, **changed):
        """Write a file, with keys changed or added: two underscores stand for a dot."""
        kv = {**dict(self.kv), **{key.replace('__', '.').encode(): value for key, value in changed.items()}}
        file = mountlib.put(name + '.gguf', gguf.encode(list(kv.items()), rows))
        self.addCleanup(os.unlink, file)
        return file

    def model(self, name, changed=None):
        """Return our model, with some tensors changed: name -> (type, data)."""
        rows = [(row, (changed or {}).get(row.name, (row.type_id, row.data))) for row in self.ours]
        return self.put(name, [row._replace(type_id=type_id, data=data) for row, (type_id, data) in rows])

    def test_grafted(self):
        """token_embd is converted, and a block is replaced by one from another mount, partly
        quantised there."""
        ours, edited, others = self.model('ours'), self.model('edited'), self.put('others', self.others)
        with mountlib.Mount(others, *EDIT) as there, mountlib.Mount(edited, *EDIT) as at:
            for name in 'attn_q', 'attn_k', 'ffn_gate':
                shell('echo Q4_K > "$1"', os.path.join(there, 'tensors', f'blk.1.{name}.weight', 'type'))
            shell('echo Q8_0 > "$1"/tensors/token_embd.weight/type', at)
            embedding = mountlib.get(at + '/tensors/token_embd.weight/f32')
            shell('rm -r "$2"/tensors/blk.1.* && cp -r "$1"/tensors/blk.1.* "$2"/tensors/', there, at)
            shell('sync "$1"', at + '/tensors')
            through = evaluate(at + '/model.gguf')
        graft = {t.name: (t.type_id, t.data) for t in gguf.read(mountlib.get(others)).tensors
                 if t.name.startswith(b'blk.1.')}
        self.assertEqual({type_id for type_id, _ in graft.values()}, {F32, Q4_K})
        grafted = self.model('grafted', graft)
        twin = self.model('twin', {**graft, b'token_embd.weight': (F32, embedding)})
        ours, grafted, twin, found = evaluate(ours, grafted, twin, edited)
        self.assertEqual(found, twin)
        self.assertEqual(through, [twin])
        self.assertLess(apart(found, grafted), EMBEDDINGS['Q8_0'])
        self.assertGreater(apart(found, ours), 0.3)
        rows = {t.name: t for t in strict(mountlib.get(edited)).tensors}
        self.assertEqual({name: (rows[name].type_id, rows[name].data) for name in graft}, graft)

    def test_removed(self):
        """A block and the output are removed: the token embedding, which has another type by then,
        also serves as output."""
        edited = self.model('edited')
        with mountlib.Mount(edited, *EDIT) as at:
            shell('cd "$1" && rm -r tensors/blk.1.* tensors/output.weight && echo 1 > metadata/llama.block_count', at)
            shell('echo Q6_K > "$1"/tensors/token_embd.weight/type', at)
            raw = mountlib.get(at + '/tensors/token_embd.weight/raw')
        rows = [t for t in self.ours if t.name != b'output.weight' and not t.name.startswith(b'blk.1.')]
        rows[0] = rows[0]._replace(type_id=Q6_K, data=raw)
        want, found = evaluate(self.put('twin', rows, llama__block_count=Value('u32', 1)), edited)
        self.assertEqual(found, want)

    def test_embeddings(self):
        """llama.cpp decodes each type to exactly the values that the mount's f32 shows."""
        files, blocks, weighed = [self.model('ours')], {}, ('-o', 'imatrix=' + matrix(self.ours))
        for name in EMBEDDINGS:
            with mountlib.Mount(self.model(name), *EDIT, *weighed) as at:
                place = at + '/tensors/token_embd.weight'
                shell('echo "$1" > "$2"/type', name, place)
                blocks = {b'token_embd.weight': (F32, mountlib.get(place + '/f32'))}
            files += [mountlib.path(name + '.gguf'), self.model(name + '-twin', blocks)]
        ours, *found = evaluate(*files)
        for (name, bound), converted, twin in zip(EMBEDDINGS.items(), found[::2], found[1::2]):
            with self.subTest(name):
                self.assertEqual(converted, twin)
                self.assertNotEqual(converted, ours)
                self.assertLess(apart(converted, ours), bound)

    def test_recipes(self):
        """After the recipes of docs/tensors.md, the model is a llama again, except for one tensor."""
        with played(self) as (edited, at):
            shell('cd "$1"/tensors && rm -r mtp.output.weight', at)
        evaluate(edited, vocabulary=VOCAB + 2)
