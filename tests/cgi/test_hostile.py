# SPDX-License-Identifier: Apache-2.0
"""Whatever comes over the socket: a clear error or a closed connection, and the
service goes on without losing anything."""

import json
import os
import random
import socket
import struct
import threading
import time
import unittest

import fcgi_client as fc
from fake_runner import run_ok
from service import ServiceCase

BODY = json.dumps({"language": "python", "code": "print(1)"})
SEED = int(os.environ.get("ISOBOX_TEST_SEED", "1"))
MUTATIONS = int(os.environ.get("ISOBOX_TEST_MUTATIONS", "10000"))

PARAMS = b"".join(fc.pair(*p) for p in fc.variables("GET", "/healthz"))
BEGIN = fc.begin()
END_PARAMS = fc.record(fc.PARAMS)
END_STDIN = fc.record(fc.STDIN)
HEAD = BEGIN + fc.record(fc.PARAMS, PARAMS) + END_PARAMS
MAX_CONNS = fc.pair("FCGI_MAX_CONNS", "")


def params_record(raw):
    return BEGIN + fc.record(fc.PARAMS, raw) + END_PARAMS + END_STDIN


# What no web server sends: the connection is closed, without an answer.
BROKEN = {
    "another version": fc.record(fc.BEGIN, b"\0\1\0\0\0\0\0\0", version=2),
    "not FastCGI": b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 100,
    "request 0": fc.begin(request_id=0),
    "authorizer": fc.begin(role=2),
    "filter": fc.begin(role=3),
    "role 0": fc.begin(role=0),
    "short begin": fc.record(fc.BEGIN, b"\0\1"),
    "long begin": fc.record(fc.BEGIN, b"\0\1" + b"\0" * 14),
    "empty begin": fc.record(fc.BEGIN),
    "second begin": BEGIN + BEGIN,
    "second begin, other id": BEGIN + fc.begin(request_id=2),
    "begin in the body": HEAD + BEGIN,
    "parameters first": fc.record(fc.PARAMS, PARAMS),
    "body first": fc.record(fc.STDIN, b"x"),
    "body before parameters": BEGIN + fc.record(fc.STDIN, b"x"),
    "end of body before parameters": BEGIN + END_STDIN,
    "parameters in the body": HEAD + fc.record(fc.PARAMS, PARAMS),
    "another id": BEGIN + fc.record(fc.PARAMS, PARAMS, request_id=2),
    "abort in the head": BEGIN + fc.record(fc.ABORT),
    "abort in the body": HEAD + fc.record(fc.ABORT),
    "filter data": HEAD + fc.record(8, b"x"),
    "end of request": HEAD + fc.record(fc.END, b"\0" * 8),
    "output": HEAD + fc.record(fc.STDOUT, b"x"),
    "type 0": fc.record(0),
    "type 255": HEAD + fc.record(255, b"x"),
    "unknown management": fc.record(77, b"", request_id=0),
    "get values": fc.record(fc.GET_VALUES, MAX_CONNS, request_id=0) + BEGIN,
    # Beyond a buffer on libfcgi's stack:
    "get values, often": fc.record(fc.GET_VALUES, MAX_CONNS * 40,
                                   request_id=0) + BEGIN,
    "get values in the body": HEAD + fc.record(
        fc.GET_VALUES, MAX_CONNS * 40, request_id=0) + END_STDIN,
    # Sums of lengths beyond an int, into libfcgi's assert():
    "lengths that overflow": params_record(struct.pack(
        ">II", 0xfffffff0, 0xfffffff0)),
    "largest lengths": params_record(b"\xff" * 8),
    "name beyond the end": params_record(b"\x7f\x01ab"),
    "value beyond the end": params_record(b"\x01\x7fab"),
    "two gigabytes": params_record(struct.pack(">II", 0xffffffff, 1 << 31)),
    "length cut short": params_record(b"\x80\0"),
    "name length only": params_record(b"\x01"),
    "no name": params_record(b"\0\x01x"),
    "NUL in a name": params_record(fc.pair(b"A\0B", "x")),
    "NUL in a value": params_record(fc.pair("A", b"x\0y")),
    "one byte too many": params_record(PARAMS + b"\x01"),
}


class Hostile(ServiceCase):
    settings = {"threads": 8}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pid = cls.service.process.pid
        cls.service.request("GET", "/healthz")
        cls.fds = cls.service.fds()

    def tearDown(self):
        """The same process, alive, with no descriptor more."""
        self.assertIsNone(self.service.process.poll(), self.service.log())
        self.assertEqual(self.service.request("GET", "/healthz").status, 200)
        self.service.wait_for(lambda: self.service.fds() <= self.fds,
                              "closed descriptors", 10)

    def test_broken_records(self):
        for name, data in BROKEN.items():
            with self.subTest(name):
                self.assertIsNone(fc.send_raw(self.service.socket, data))

    def test_broken_records_on_a_kept_connection(self):
        for name, data in BROKEN.items():
            with self.subTest(name), \
                    fc.Connection(self.service.socket) as c:
                self.assertEqual(c.request("GET", "/healthz",
                                           flags=1).status, 200)
                try:
                    c.send(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.assertIsNone(c.response())

    def test_log_says_why(self):
        fc.send_raw(self.service.socket, BROKEN["another version"])
        self.service.wait_for(lambda: "connection closed: not FastCGI version "
                              "1" in self.service.log(), "reason")

    def test_large_parameters(self):
        def ask(extra):
            return self.service.request("GET", "/healthz", extra=extra)
        fits = 64 * 1024 - 1024
        for size, status in ((fits, 200), (70000, 400), (5 << 20, 400)):
            r = ask([("HTTP_X", "a" * size)])
            self.assertEqual(r.status, status, size)
            self.assert_common(r)
        self.assert_error(r, 400, {
            "error": "invalid_request",
            "detail": "the request headers are too large"})
        self.assertEqual(ask([("HTTP_X%d" % i, "") for i in range(500)])
                         .status, 200)
        self.assert_error(ask([("HTTP_X%d" % i, "") for i in range(600)]),
                          400, {"error": "invalid_request",
                                "detail": "too many request headers"})
        self.assertEqual(ask([("HTTP_X%d" % i, "a" * 100)
                              for i in range(400)]).status, 200)

    def test_every_size_around_the_limit(self):
        """The head has to fit the pipe to libfcgi, to the byte."""
        seen = set()
        for size in range(65150, 65420):
            r = self.service.request("GET", "/healthz",
                                     extra=[("HTTP_X", "a" * size)])
            self.assertIn(r.status, (200, 400))
            seen.add(r.status)
        self.assertEqual(seen, {200, 400})

    def test_endless_parameters(self):
        part = fc.record(fc.PARAMS, fc.pair("A", "a" * 60000))
        self.assertIsNone(fc.send_raw(self.service.socket,
                                      BEGIN + part * 300))

    def test_endless_body(self):
        """Read to a bound, then answered and closed."""
        head = fc.message("POST", "/execute", extra=[
            ("CONTENT_LENGTH", None)])[:-8]
        part = fc.record(fc.STDIN, b"a" * 65528)
        r = fc.send_raw(self.service.socket, head + part * 400)
        self.assertEqual((r.status, r.json()["error"]), (400, "invalid_json"))

    def test_half_sent(self):
        whole = fc.message("POST", "/execute", BODY)
        for n in list(range(0, len(whole), 3)) + [len(whole) - 1]:
            with fc.Connection(self.service.socket) as c:
                c.send(whole[:n])
        self.assertEqual(self.runner.calls, [])

    def test_half_sent_and_shut_down(self):
        whole = fc.message("POST", "/execute", BODY)
        for n in range(0, len(whole), 7):
            with fc.Connection(self.service.socket) as c:
                c.send(whole[:n])
                c.sock.shutdown(socket.SHUT_WR)
                self.assertIsNone(c.response())

    def mutate(self, rng, data):
        data = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
            at = rng.randrange(len(data) or 1)
            kind = rng.randrange(7)
            if not data:
                break
            if kind == 0:
                data[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                data[at] = rng.choice((0, 1, 0x7f, 0x80, 0xff))
            elif kind == 2:
                del data[at:at + rng.randrange(1, 20)]
            elif kind == 3:
                data[at:at] = rng.randbytes(rng.randrange(1, 20))
            elif kind == 4:
                data[at:at] = data[at:at + rng.randrange(1, 200)]
            elif kind == 5:
                del data[at:]
            else:
                end = min(len(data), at + rng.randrange(1, 9))
                data[at:end] = rng.randbytes(end - at)
        return bytes(data)

    def test_mutated(self):
        rng = random.Random(SEED)
        seeds = [
            fc.message("GET", "/healthz?a=b", headers={"Accept": "*/*"}),
            fc.message("POST", "/execute?stream=1", BODY, flags=1),
            fc.message("POST", "/execute", BODY, {"X-API-Key": "k"}),
            fc.message("POST", "/execute", json.dumps({
                "language": "python", "files": [
                    {"name": "a/b.py", "content": "YQ==",
                     "encoding": "base64"}],
                "limits": {"cpus": 1.5}, "args": ["\u00e9"]})),
            fc.message("GET", "/runtimes", flags=1) * 2,
            fc.message("OPTIONS", "/%2e%2e/x"),
        ]
        answered = 0
        for i in range(MUTATIONS):
            data = self.mutate(rng, rng.choice(seeds))
            with fc.Connection(self.service.socket, timeout=10) as c:
                try:
                    c.send(data)
                    c.sock.shutdown(socket.SHUT_WR)
                    while c.read_record() is not None:
                        answered += 1
                except (BrokenPipeError, ConnectionResetError, OSError) as e:
                    self.assertNotIsInstance(e, TimeoutError,
                                             "seed %d, number %d" % (SEED, i))
        self.assertGreater(answered, MUTATIONS // 10)

    def test_mutated_bodies(self):
        """Bodies that reach the JSON parser and what is behind it."""
        rng = random.Random(SEED)
        body = json.dumps({
            "language": "python", "version": "3.11", "code": "x\u00e9",
            "files": [{"name": "a/b", "content": "AA==",
                       "encoding": "base64"}], "stdin": "\0", "args": ["a"],
            "limits": {"memoryBytes": 1, "cpus": 1.5}, "network": False,
            "outputEncoding": "base64"}).encode()
        seen = set()
        with fc.Connection(self.service.socket) as c:
            for _ in range(MUTATIONS // 5):
                r = c.request("POST", "/execute", self.mutate(rng, body),
                              flags=1)
                seen.add(r.status)
                self.assertEqual(set(r.json()) & {"error", "run"},
                                 {"run"} if r.status == 200 else {"error"})
        self.assertEqual(seen, {200, 400})

    def test_nothing_leaks(self):
        """1,000 requests of all kinds, many at once."""
        broken = list(BROKEN.values())
        self.runner.on_run = lambda c: run_ok(c, b"x" * 1000)

        def work(n):
            for i in range(50):
                kind = (i + n) % 5
                if kind == 0:
                    self.service.request("GET", "/healthz")
                elif kind == 1:
                    fc.send_raw(self.service.socket,
                                broken[(i * 7 + n) % len(broken)])
                elif kind == 2:
                    self.service.request("POST", "/execute", BODY)
                elif kind == 3:
                    with fc.Connection(self.service.socket) as c:
                        c.send(fc.message("POST", "/execute", BODY)[:i * 9])
                else:
                    with fc.Connection(self.service.socket) as c:
                        c.send(fc.message("POST", "/execute?stream=1", BODY))
        threads = [threading.Thread(target=work, args=(n,))
                   for n in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


class Slow(ServiceCase):
    settings = {"threads": 2}

    def test_slow_peers(self):
        """Side by side, since each waits for half a minute: one who sends a
        request bit by bit, one who sends a body so, one who reads nothing,
        one who takes a sip now and then."""
        self.runner.on_run = lambda c: run_ok(c, b"\0" * 262144)
        big = json.dumps({"language": "py", "code": "",
                          "limits": {"outputBytes": 262144}})
        whole = fc.message("POST", "/execute", BODY + " " * 1000)
        head, body, deaf, sip = (fc.Connection(self.service.socket, 60)
                                 for _ in range(4))
        deaf.send(fc.message("POST", "/execute", big))
        sip.send(fc.message("POST", "/execute", big))
        body.send(whole[:-1000])
        begun = time.monotonic()
        for i in range(200):  # never silent for long
            if not self.trickle(head, whole[i:i + 1]) or \
                    not self.trickle(body, whole[i - 1000:i - 999]):
                break
            self.assertEqual(self.service.request("GET", "/healthz").status,
                             200)
            sip.sock.recv(512)
            time.sleep(0.2)
        self.assertTrue(28 < time.monotonic() - begun < 33)
        self.assertIsNone(head.response())
        self.assertIsNone(body.response())
        self.service.wait_for(lambda: "a request was not whole after 30 s" in
                              self.service.log(), "reason")
        self.service.wait_for(lambda: 2 == sum(
            "clientGone" in e["flags"] for e in self.service.access_log()),
            "ends of the requests of those who do not read", 40)
        for c in (head, body, deaf, sip):
            c.close()

    @staticmethod
    def trickle(c, data):
        try:
            c.send(data)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True


if __name__ == "__main__":
    unittest.main()
