// SPDX-License-Identifier: MIT
// node llama_cpp.mjs MODULES TEXT MODEL...: load each model with the llama.cpp that node-llama-cpp in the
// folder MODULES brings, and evaluate the text on the processor. Prints a list of what came out: of each
// model its tokens and the logits after each of them, or an error. Exit status 77: cannot be done here.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [modules, text, ...files] = process.argv.slice(2);
const require = createRequire(pathToFileURL(resolve(modules, 'x.js')));
const log = [];
let llama;
try {
    const { getLlama } = await import(pathToFileURL(require.resolve('node-llama-cpp')));
    // Never compiled, never downloaded. One thread: the order of sums is always the same.
    llama = await getLlama({
        gpu: false, build: 'never', skipDownload: true, progressLogs: false, logLevel: 'warn', maxThreads: 1,
        logger: (level, line) => log.push(`${level}: ${line.trim()}`),
    });
} catch (error) {
    console.log(`its llama.cpp does not run here: ${error.message}`);
    process.exit(77);
}

async function evaluate(file) {
    const model = await llama.loadModel({ modelPath: resolve(file) });
    const context = await model.createContext({ contextSize: 64, threads: 1, ignoreMemorySafetyChecks: true });
    const tokens = [model.tokens.bos, ...model.tokenize(text)];
    const wanted = { generateNext: { options: { temperature: 0 }, logits: true } };
    const out = await context.getSequence().controlledEvaluate(tokens.map((token) => [token, wanted]));
    await context.dispose();
    await model.dispose();
    // The map is in the order of the logits.
    return { tokens, logits: out.map(({ next }) => [...next.logits].sort(([a], [b]) => a - b).map((pair) => pair[1])) };
}

const results = [];
for (const file of files) {
    log.length = 0;
    try {
        results.push(await evaluate(file));
    } catch (error) {
        results.push({ error: [error.message, ...log].join('\n') });
    }
}
await llama.dispose();
console.log(JSON.stringify(results));
