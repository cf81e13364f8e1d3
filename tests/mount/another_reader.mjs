// SPDX-License-Identifier: MIT
// node another_reader.mjs MODULES MODEL: what the @huggingface/gguf in the folder MODULES reads.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, model] = process.argv.slice(2);
const require = createRequire(pathToFileURL(resolve(modules, 'x.js')));
const { gguf } = require('@huggingface/gguf');

function plain(key, value) {
    if (typeof value === 'bigint')
        return value.toString();
    return value === Infinity ? 'inf' : value === -Infinity ? '-inf' : value;
}

const read = await gguf(resolve(model), { allowLocalFile: true, typedMetadata: true });
const kv = Object.entries(read.typedMetadata).filter(
    ([key]) => !['version', 'tensor_count', 'kv_count'].includes(key));
console.log(JSON.stringify({
    data_offset: Number(read.tensorDataOffset),
    kv: kv.map(([key, { type, value }]) => ({ key, type, value })),
    tensors: read.tensorInfos.map(({ name, dtype, shape, offset }) => (
        { name, type: dtype, dims: shape.map(Number), offset: Number(offset) })),
}, plain));
