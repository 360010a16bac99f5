# SPDX-License-Identifier: Apache-2.0
"""Requests that nobody should send, through a real front server: each gets a
clear answer or a closed connection, the service goes on, nothing leaks.

ISOBOX_MUTATIONS sets how many (10,000), ISOBOX_MUTATION_SEED repeats a run."""

import collections
import json
import os
import random
import socket
import threading
import time
import unittest

from client import Broken
from harness import Service

MUTATIONS = int(os.environ.get("ISOBOX_MUTATIONS", "10000"))
SEED = int(os.environ.get("ISOBOX_MUTATION_SEED", time.time_ns() % 1000000))

ERRORS = {
    400: {"invalid_json", "invalid_request", "invalid_file",
          "language_required", "unknown_language", "no_source"},
    404: {"not_found"},
    405: {"method_not_allowed"},
    429: {"capacity"},
    503: {"sandbox_failed"},
}

# Whole jobs to begin with; no one of them runs for long.
SEEDS = [
    {"language": "python-slim", "code": "print(1)", "stdin": "x",
     "args": ["a", "b"], "limits": {"memoryBytes": 67108864, "cpus": 0.5,
                                    "pids": 16, "outputBytes": 2048,
                                    "wallTimeMs": 300}, "network": False},
    {"language": "ruby", "files": [
        {"name": "main.rb", "content": "puts 1", "encoding": "utf8"},
        {"name": "d/x", "content": "AAEC", "encoding": "base64"},
        {"name": "d/y", "content": "00ff", "encoding": "hex"}],
     "limits": {"wallTimeMs": 300}},
    {"language": "python-slim", "version": "9", "code": "1",
     "outputEncoding": "base64"},
]
TOKENS = [b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\\u0000",
          b"\\ud800", b"\\udc00\\ud800", b"\xff", b"\xc0\xaf",
          b"\xed\xa0\x80", b"\0", b"null", b"true", b"NaN", b"-", b"1e999",
          b"9" * 400, b"-0", b"0x10", b"'", b"/*", b"\x1f", b"[" * 100,
          b'{"a":' * 60, b"\xf0\x9f\x98\x80", b'"language":"python-slim",',
          b"../", b"/etc/passwd", b"%s%n", b" " * 1000]


def setUpModule():
    global service, client
    service = Service("caddy").start()
    client = service.client(timeout=40)
    for _ in range(20):
        client.run("python-slim", "print(1)")
    print("seed %d" % SEED, flush=True)


def tearDownModule():
    service.stop()


def mutate(rng):
    """A job, changed in its value or in its bytes."""
    job = json.loads(json.dumps(rng.choice(SEEDS)))
    # Most must not run: 10,000 sandboxes would take an hour.
    if rng.random() < 0.97:
        rng.choice((
            lambda: job.pop("language"),
            lambda: job.update(language=rng.choice(
                [7, None, [], {}, "", "cobol", "PYTHON", "python\0", True])),
            lambda: job.update(code=rng.choice([7, [], {}, False]),
                               language="python"),
            lambda: job.update(files=rng.choice(
                [7, {}, "x", [7], [{}], [{"name": 7}], [{"name": "a"}] * 65,
                 [{"name": "a", "content": "x", "encoding": "rot13"}],
                 [{"name": "a", "content": "%%", "encoding": "base64"}],
                 [{"name": "a", "content": "0", "encoding": "hex"}],
                 [{"name": "../a", "content": ""}],
                 [{"name": "a", "content": ""}, {"name": "a/b",
                                                 "content": ""}]])),
            lambda: job.update(args=rng.choice(
                [7, {}, [7], ["a\0b"], ["x"] * 257, [[]]])),
            lambda: job.update(limits=rng.choice(
                [7, [], {"pids": "x"}, {"cpus": []}, {"wallTimeMs": 1.5},
                 {"memoryBytes": None, "pids": {}}])),
            lambda: job.update(stdin=rng.choice([7, [], {}])),
            lambda: job.update(network="yes"),
        ))()
    body = bytearray(json.dumps(job, ensure_ascii=rng.random() < 0.5)
                     .encode())
    if rng.random() < 0.7:
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(body) + 1)
            what = rng.random()
            if what < 0.4:
                body[at:at] = rng.choice(TOKENS)
            elif what < 0.6:
                del body[at:at + rng.randint(1, 40)]
            elif what < 0.8 and body:
                at = rng.randrange(len(body))
                body[at] = rng.randrange(256)
            elif what < 0.9:
                body[at:at] = body[:rng.randrange(len(body) + 1)]
            else:
                del body[at:]
    return bytes(body)


def head(rng, length):
    """Request line and headers, mutated more rarely."""
    method = rng.choice(["POST"] * 20 + ["GET", "PUT", "PATCH", "TRACE",
                                         "post", "X" * 50, "PROPFIND"])
    target = rng.choice(["/execute"] * 20 + [
        "/execute?stream=1", "/execute?stream=%00&&&=", "/execute/", "//",
        "/v1/" + "a/" * 200, "/v1/%00", "/v1/%zz", "/v1/\xff", "/runtimes",
        "/v1/..%2f..%2fetc/passwd", "/metrics?" + "x" * 3000])
    fields = [("Host", "127.0.0.1"), ("Content-Length", str(length)),
              ("Connection", "close")]
    for _ in range(rng.randrange(3)):
        fields.append(rng.choice([
            ("Accept", "text/event-stream"), ("Accept", "x" * 2000),
            ("Content-Type", "text/\x7f"), ("X-API-Key", "\xff" * 30),
            ("Authorization", "Bearer"), ("Cookie", "a=b; " * 500),
            ("Content-Encoding", "gzip"), ("Expect", "100-continue"),
            ("Proxy", "http://127.0.0.1:1/"), ("X-Forwarded-For", "::1"),
            ("X-A", "a" * 6000), ("Range", "bytes=0-1")]))
    return ("%s %s HTTP/1.1\r\n%s\r\n" % (
        method, target, "".join("%s: %s\r\n" % f for f in fields))
    ).encode("latin-1")


class TestHostile(unittest.TestCase):
    def setUp(self):
        service.assert_clean()
        self.before = service.usage()

    def tearDown(self):
        self.assertEqual(client.run("python-slim", "print('alive')")
                         ["stdout"], "alive\n")
        service.assert_clean(30)
        for name in ("runner", "fcgi"):
            self.assertIsNone(getattr(service, name).poll(), name)
        # A request that does not come whole has 30 s.
        until = time.monotonic() + 35
        while True:
            after = service.usage()
            if all(after[n][0] <= self.before[n][0] for n in after):
                break
            self.assertLess(time.monotonic(), until,
                            "descriptors: %r, before %r" % (after,
                                                            self.before))
            time.sleep(0.2)
        for name in after:
            self.assertLess(after[name][2] - self.before[name][2], 8192,
                            "resident KiB of %s: %r, before %r" % (
                                name, after, self.before))

    def judge(self, r, body, counts):
        """An answer of ours is one of the contract's."""
        kind = r.header("content-type") or ""
        if kind.startswith("application/json") and r.status != 200:
            error = r.json().get("error")
            counts["%d %s" % (r.status, error)] += 1
            self.assertIn(error, ERRORS.get(r.status, ()), (body, r))
            self.assertLessEqual(set(r.json()), {"error", "detail"})
        else:
            counts[str(r.status)] += 1
            self.assertLess(r.status, 500, (body, r))

    def test_mutated_requests(self):
        counts, wrong = collections.Counter(), []
        numbers = iter(range(MUTATIONS))
        lock = threading.Lock()

        def work():
            while not wrong:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                rng = random.Random(SEED * 1000003 + number)
                body = mutate(rng)
                top = head(rng, len(body))
                try:
                    with client.open() as c:
                        try:
                            c.send(top + body)
                        except (BrokenPipeError, ConnectionResetError):
                            pass
                        r = c.response("POST")
                        with lock:
                            self.judge(r, top + body, counts)
                except (Broken, ConnectionResetError):
                    with lock:
                        counts["closed"] += 1
                except Exception as e:  # noqa: told in the main thread
                    wrong.append("number %d: %r: %r\n%r" % (
                        number, e, top, body[:2000]))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        print("answers %s" % json.dumps(counts, sort_keys=True), flush=True)
        self.assertEqual(wrong, [])
        self.assertEqual(sum(counts.values()), MUTATIONS)
        # Most of them must have come to us, and not to the front server.
        ours = sum(n for k, n in counts.items() if " " in k or k == "200")
        self.assertGreater(ours, MUTATIONS // 2)

    def test_half_sent_bodies(self):
        """The length says more than comes, then the client goes, or stays."""
        body = json.dumps(SEEDS[0]).encode()
        idle = []
        for i in range(60):
            c = client.open()
            c.send(b"POST /execute HTTP/1.1\r\nHost: x\r\n"
                   b"Content-Length: %d\r\n\r\n" % (len(body) + 1000))
            c.send(body[:i])
            if i % 2:
                c.close()
            elif i % 3:
                c.sock.shutdown(socket.SHUT_WR)
                idle.append(c)
            else:
                idle.append(c)
        self.assertEqual(client.run("python-slim", "print(1)")["exitCode"], 0)
        for c in idle:
            c.close()

    def test_slow_senders(self):
        """A hundred clients that send a byte now and then take nothing away
        from one that does not."""
        slow = [client.open() for _ in range(100)]
        try:
            for c in slow:
                c.send(b"POST /execute HTTP/1.1\r\nHost: x\r\n"
                       b"Content-Length: 1000\r\n\r\n{")
            for _ in range(5):
                for c in slow:
                    c.send(b" ")
                begun = time.monotonic()
                self.assertEqual(client.run("python-slim", "print(1)")
                                 ["exitCode"], 0)
                self.assertLess(time.monotonic() - begun, 10)
        finally:
            for c in slow:
                c.close()

    def test_no_http_at_all(self):
        for garbage in (b"\0" * 100, b"\x16\x03\x01" + b"x" * 200,
                        b"GET\r\n\r\n", b"\r\n" * 1000,
                        b"POST /execute HTTP/1.1\r\n" + b"A" * 100000):
            with client.open() as c:
                try:
                    c.send(garbage)
                    c.sock.shutdown(socket.SHUT_WR)
                    while c.sock.recv(65536):
                        pass
                except OSError:
                    pass

    def test_many_idle_connections(self):
        idle = [client.open() for _ in range(300)]
        try:
            self.assertEqual(client.run("python-slim", "print(1)")
                             ["exitCode"], 0)
        finally:
            for c in idle:
                c.close()

    def test_broken_records_on_the_socket_itself(self):
        """The front server is trusted with the socket, but not to be sane."""
        rng = random.Random(SEED)
        for i in range(300):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(5)
            try:
                s.connect(service.fcgi_socket)
                begin = b"\1\1\0\1\0\10\0\0" + b"\0\1\0" + b"\0" * 5
                junk = bytes(rng.randrange(256) for _ in range(
                    rng.choice((1, 8, 50, 3000))))
                s.sendall((b"", begin)[i % 2] + junk)
                if i % 3 == 0:
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
            except OSError:
                pass
            finally:
                s.close()

    def test_huge_parameters(self):
        """5 MB of params are not kept."""
        begin = b"\1\1\0\1\0\10\0\0" + b"\0\1\0" + b"\0" * 5
        record = b"\1\4\0\1\xff\xff\0\0" + (
            b"\x80\0\x0f\xff\x80\0\xef\xf8" + b"N" * 0xfff
            + b"V" * 0xeff8)[:65535].ljust(65535, b"x")
        for _ in range(5):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(20)
            try:
                s.connect(service.fcgi_socket)
                s.sendall(begin + record * 80)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass
            finally:
                s.close()
