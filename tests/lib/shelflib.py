# SPDX-License-Identifier: MIT
"""Shared by tests of directories of models: a directory for files, its listing, the daemon."""
import json
import os
import unittest

import ggufmodel as gguf
import llama
import mountlib
import samples

A64, B64, C64, COMMIT, OTHER = 64 * 'a', 64 * 'b', 64 * 'c', 40 * '1', 40 * '2'
LIBRARY = 'manifests/registry.ollama.ai/library'


def shards(parts=2):
    """Return the files of a split model with a tensor in each."""
    return samples.shards(llama.keys(), [[tensor] for tensor in llama.tensors()[:parts]])


def manifest(*layers):
    kinds = 'application/vnd.ollama.image.'
    return json.dumps({'schemaVersion': 2, 'layers': [
        {'mediaType': kinds + kind, 'digest': 'sha256:' + digest, 'size': 1}
        for kind, digest in layers]}).encode()


def listing(at):
    """Return the whole listing, except the contents of models."""
    shown = []
    for folder, folders, files in os.walk(at):
        inside = 'source' in folders + files
        name = os.path.relpath(folder, at)
        shown += [name] if name != '.' else []
        if inside:
            folders.clear()
        else:
            shown += [os.path.relpath(os.path.join(folder, file), at) for file in files]
    return sorted(shown)


def contents(at, model):
    """Return everything in a model's tree: names, types, modes, sizes, bytes."""
    found = {}
    for folder, folders, files in os.walk(at):
        if folder == at:
            folders[:] = [name for name in folders if name != 'source']
            files = [name for name in files if name != 'source']
        for name in folders + files:
            path = os.path.join(folder, name)
            stat = os.lstat(path)
            data = b'' if name in folders else mountlib.get(path)
            found[os.path.relpath(path, at)] = (
                stat.st_mode, stat.st_uid, stat.st_gid, stat.st_nlink, stat.st_size,
                stat.st_mtime_ns if name not in ('check',) else 0,
                data.replace(os.fsencode(model), b'MODEL'))
    return found


def descriptors(at):
    return len(os.listdir(f'/proc/{mountlib.daemon(at)}/fd'))


def value(path):
    """Return the name of a model file's model."""
    return dict(gguf.read(mountlib.get(path)).kv)[b'general.name'].data


class Shelf(unittest.TestCase):
    def setUp(self):
        self.top = mountlib.path(self.id().rsplit('.', 1)[-1])
        os.mkdir(self.top)

    def put(self, name, data=llama.image()):
        return mountlib.put(os.path.join(self.top, name), data)

    def link(self, name, target):
        os.makedirs(os.path.dirname(os.path.join(self.top, name)), exist_ok=True)
        os.symlink(target, os.path.join(self.top, name))
