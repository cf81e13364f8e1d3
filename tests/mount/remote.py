#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""Models on other machines (docs/remote.md): the requests that ggufs makes to the file system below
it, the traffic with sshfs and with rclone over HTTP, and servers that disappear. Servers listen on
the loopback interface."""
import contextlib
import errno
import http.server
import os
import shutil
import socket
import struct
import subprocess
import threading
import unittest

import editlib
import ggufmodel as gguf
import mountlib
import samples
from ggufmodel import Tensor, Value, array
from mountlib import GGUFS, Foreground, Mount, run
from stores import SFTP, served

SMALL = b'blk.20.attn_norm.weight'
SMALL_SIZE, LARGE_SIZE, TENSORS = 16384, 26214400, 41
MORE = 4 << 20  # allowed traffic besides the header and the tensor


def large(name):
    """Make a model of 1 GB, all holes except its header and a tensor of 16 KiB in the middle.
    Returns (header's size, that tensor's bytes)."""
    kv = [(b'general.architecture', Value('string', b'llama')), (b'general.name', Value('string', b'far')),
          (b'tokenizer.ggml.tokens', array('string', [b'token%d' % i for i in range(50000)]))]
    made = gguf.encode(kv, [Tensor(b'first', 24, (32,), bytes(32))])
    head = bytearray(made[:made.index(struct.pack('<Q', 5) + b'first')])
    struct.pack_into('<Q', head, 8, TENSORS)
    end = place = 0
    for i in range(TENSORS):
        tensor, size = (SMALL, SMALL_SIZE) if i == 20 else (b'blk.%d.ffn_up.weight' % i, LARGE_SIZE)
        place = end if i == 20 else place
        head += struct.pack('<Q', len(tensor)) + tensor + struct.pack('<IQIQ', 1, size // 4, 0, end)
        end += size
    begin = (len(head) + 31) // 32 * 32
    data = os.urandom(SMALL_SIZE)
    with open(name, 'wb') as out:
        out.write(head)
        out.seek(begin + place)
        out.write(data)
        out.truncate(begin + end)
    return begin, data


class Remote(unittest.TestCase):
    def setUp(self):
        self.store, self.at = mountlib.path('store'), mountlib.path('far')
        os.mkdir(self.store)
        self.addCleanup(shutil.rmtree, self.store)
        self.model = os.path.join(self.store, 'model.gguf')
        self.far = os.path.join(self.at, 'model.gguf')

    def look(self, data, model=None):
        """Mount, then run ls, read info and one small tensor."""
        with Mount(model or self.far, '-o', 'ro') as at:
            for folder in (at, at + '/metadata', at + '/tensors', f'{at}/tensors/{SMALL.decode()}'):
                for entry in os.scandir(folder):
                    entry.stat()
            self.assertIn(b'far', mountlib.get(at + '/info'))
            self.assertEqual(mountlib.get(f'{at}/tensors/{SMALL.decode()}/f32'), data)
            self.assertEqual(mountlib.get(f'{at}/tensors/{SMALL.decode()}/raw'), data)
            self.assertEqual(mountlib.get(at + '/metadata/general.name'), b'far\n')

    @contextlib.contextmanager
    def counted(self, ahead=None):
        """A file system that counts requests, including those of the kernel for mapped pages and
        for read-ahead of `ahead` KiB. Yields a function that returns the sizes of the requests so
        far."""
        asked = mountlib.path('asked')

        def sizes():
            with open(asked, encoding='ascii') as lines:
                return [int(line.split()[1]) for line in lines]
        with served([os.environ['GGUFS_COUNTED'], self.model, self.at, asked], self.at,
                    stdout=subprocess.DEVNULL):
            if ahead:
                device = os.stat(self.at).st_dev
                name = f'/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb'
                if not os.access(name, os.W_OK):
                    self.skipTest('may not set the readahead')
                with open(name, 'w', encoding='ascii') as out:
                    out.write(str(ahead))
            try:
                yield sizes
            finally:
                os.remove(asked)

    def test_asked(self):
        begin, data = large(self.model)
        for ahead in (None, 1024, 16384):
            with self.subTest(ahead=ahead), self.counted(ahead) as sizes:
                self.look(data)
                self.assertLessEqual(sum(sizes()), begin + SMALL_SIZE + MORE)
                self.assertGreaterEqual(sum(sizes()), begin + SMALL_SIZE)

    def test_asked_in_order(self):
        """A tensor that is read as a whole is transferred once, in large pieces."""
        begin, _ = large(self.model)
        for name in ('raw', 'f32', 'f16', 'sha256', 'stats', 'heatmap.png'):
            for ahead in (None, 16384):
                with self.subTest(name=name, ahead=ahead), self.counted(ahead) as sizes, \
                        Mount(self.far, '-o', 'ro') as at:
                    mountlib.get(f'{at}/tensors/blk.3.ffn_up.weight/{name}')
                    self.assertLessEqual(sum(sizes()), begin + LARGE_SIZE + MORE)
                    self.assertLessEqual(len(sizes()), (begin + LARGE_SIZE) // (64 << 10))

    @contextlib.contextmanager
    def sshfs(self):
        """An sshfs whose server is behind a relay: yields (bytes received, how to cut it off)."""
        near, near_end = socket.socketpair()
        far, far_end = socket.socketpair()
        came = [0]

        def pump(source, target, count):
            with contextlib.suppress(OSError):
                while piece := source.recv(1 << 16):
                    came[0] += len(piece) if count else 0
                    target.sendall(piece)

        def cut():
            for end in (near_end, far_end):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        threads = [threading.Thread(target=pump, args=(far_end, near_end, True)),
                   threading.Thread(target=pump, args=(near_end, far_end, False))]
        with near, near_end, far, far_end, \
                subprocess.Popen([SFTP], stdin=far, stdout=far) as server:
            far.close()
            for thread in threads:
                thread.start()
            try:
                with served(['sshfs', '-f', '-o', 'passive', f':{self.store}', self.at], self.at,
                            stdin=near, stdout=near):
                    near.close()
                    yield came, cut
            finally:
                cut()
                for thread in threads:
                    thread.join()
                server.wait(mountlib.LIMIT)

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_sshfs(self):
        begin, data = large(self.model)
        with self.sshfs() as (came, _):
            self.look(data)
            self.assertLessEqual(came[0], begin + SMALL_SIZE + MORE)

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_server_gone(self):
        """Data that was read stays, other reads fail; the mount ends, and no file is left."""
        large(self.model)
        with self.sshfs() as (_, cut):
            mount = Foreground(self.far)
            with mount as (at, process):
                cut()
                self.assertEqual(mountlib.get(at + '/metadata/general.name'), b'far\n')
                self.assertEqual(len(os.listdir(at + '/tensors')), TENSORS)
                with self.assertRaises(OSError) as caught:
                    mountlib.get(at + '/tensors/blk.3.ffn_up.weight/raw')
                self.assertEqual(caught.exception.errno, errno.EIO)
                done = run(GGUFS, '--unmount', at)
                self.assertEqual((done.returncode, done.err), (0, ''))
                process.wait(mountlib.LIMIT)
        self.assertEqual(os.listdir(self.store), ['model.gguf'])

    @unittest.skipUnless(shutil.which('sshfs') and os.path.exists(SFTP), 'no sshfs, or no sftp-server')
    def test_server_gone_while_editing(self):
        """The writing program gets an error, and the old file is complete."""
        data = samples.editable()
        with open(self.model, 'wb') as out:
            out.write(data)
        with self.sshfs() as (_, cut):
            mount = Foreground(self.far)
            with mount as (at, process):
                self.assertFalse(os.statvfs(at).f_flag & os.ST_RDONLY)
                editlib.write(at, 'general.name', 'before')
                before = mountlib.get(self.model)
                self.assertIn(b'before', before)
                # sshfs renames replaced files that are still open; they disappear when ggufs closes
                # them.
                editlib.until(lambda: os.listdir(self.store) == ['model.gguf'])
                cut()
                with self.assertRaises(OSError):
                    editlib.write(at, 'general.name', 'after')
                self.assertEqual(mountlib.get(at + '/metadata/general.name'), b'before\n')
                run(GGUFS, '--unmount', at)
                process.wait(mountlib.LIMIT)
        self.assertEqual(mountlib.get(self.model), before)
        self.assertEqual(os.listdir(self.store), ['model.gguf'])

    @contextlib.contextmanager
    def http(self):
        """Run a web server that supports ranges in front of the store. Yields (its port, bytes
        sent, how to end it: from then on it closes connections without an answer)."""
        sent, store, gone = [0], self.store, threading.Event()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_HEAD(self):
                self.answer(False)

            def do_GET(self):
                self.answer(True)

            def answer(self, body):
                if gone.is_set():
                    self.close_connection = True
                    return
                if self.path == '/':
                    page = b'<a href="model.gguf">model.gguf</a>'
                    self.head(200, len(page), 'text/html')
                    self.wfile.write(page if body else b'')
                    return
                with open(os.path.join(store, 'model.gguf'), 'rb') as file:
                    size = os.fstat(file.fileno()).st_size
                    begin, end = 0, size - 1
                    given = self.headers.get('Range')
                    if given:
                        first, last = given.split('=')[1].split('-')
                        begin, end = int(first), min(int(last), end) if last else end
                    self.head(206 if given else 200, end - begin + 1, 'application/octet-stream',
                              f'bytes {begin}-{end}/{size}')
                    file.seek(begin)
                    with contextlib.suppress(OSError):  # the client has closed the connection
                        while body and begin <= end and not gone.is_set():
                            piece = file.read(min(1 << 16, end - begin + 1))
                            self.wfile.write(piece)
                            begin += len(piece)
                            sent[0] += len(piece)
                    self.close_connection = gone.is_set()

            def head(self, status, length, kind, content_range=None):
                self.send_response(status)
                self.send_header('Content-Length', str(length))
                self.send_header('Content-Type', kind)
                self.send_header('Accept-Ranges', 'bytes')
                self.send_header('Last-Modified', 'Sat, 01 Jan 2022 00:00:00 GMT')
                if content_range and status == 206:
                    self.send_header('Content-Range', content_range)
                self.end_headers()

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # rclone drops connections that it no longer needs

        with Server(('127.0.0.1', 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield server.server_address[1], sent, gone.set
            finally:
                server.shutdown()
                thread.join()

    def rclone(self, port, *options):
        return served(['rclone', 'mount', ':http:', self.at, '--config', '/dev/null', '--http-url',
                       f'http://127.0.0.1:{port}/', '--low-level-retries', '1', *options], self.at)

    @unittest.skipUnless(shutil.which('rclone'), 'no rclone')
    def test_rclone_http(self):
        """By default rclone fetches ahead, 16 MiB for each place that is read; with --buffer-size 0
        the traffic is what is requested, plus what was in flight."""
        begin, data = large(self.model)
        for options, more in (((), 128 << 20), (('--read-only',), 128 << 20),
                              (('--buffer-size', '0', '--vfs-read-chunk-size', '1M'), 2 * MORE)):
            with self.subTest(options=options), self.http() as (port, sent, _), \
                    self.rclone(port, *options):
                self.look(data)
                self.assertLessEqual(sent[0], begin + SMALL_SIZE + more)

    @unittest.skipUnless(shutil.which('rclone'), 'no rclone')
    def test_rclone_http_read_only(self):
        """Every byte is right. Edits are impossible, and the mount says so."""
        data = samples.editable()
        with open(self.model, 'wb') as out:
            out.write(data)
        for options in ((), ('--read-only',)):
            with self.subTest(options=options), self.http() as (port, *_), \
                    self.rclone(port, *options), Foreground(self.far) as (at, _):
                self.assertTrue(os.statvfs(at).f_flag & os.ST_RDONLY)
                self.assertTrue(os.getxattr(at, 'user.gguf.readonly'))
                self.assertEqual(mountlib.get(at + '/model.gguf'), data)
                with self.assertRaises(OSError) as caught:
                    editlib.write(at, 'general.name', 'x')
                self.assertIn(caught.exception.errno, (errno.EROFS, errno.EACCES))
            self.assertEqual(os.listdir(self.store), ['model.gguf'])
            self.assertEqual(mountlib.get(self.model), data)

if __name__ == '__main__':
    mountlib.main()
