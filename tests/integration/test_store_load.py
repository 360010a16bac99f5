# SPDX-License-Identifier: Apache-2.0
"""Two processes of isobox.fcgi on one state directory, 16 clients, 10,000 mixed
operations of the memory, and kill -9 between any two of them: in the end
everything is as the answers said."""

import contextlib
import os
import random
import sqlite3
import threading
import time
import unittest

from client import Broken
from harness import Service

CLIENTS = 16
OPERATIONS = 10000
KILLS = 20
LOST = object()  # no answer: it may have been done or not


class Worker(threading.Thread):
    """A client with keys of its own; what each may hold is known. All share the
    counters, which they increment by If-Match."""

    def __init__(self, number, clients, operations, enough):
        """enough: an Event, before which it goes on beyond its operations."""
        super().__init__()
        self.rng = random.Random(number)
        self.space = "w%d" % number
        self.clients = clients
        self.operations = operations
        self.enough = enough
        self.known = {}  # key: set of values it may have; None: not there
        self.counted = {i: [0, 0] for i in range(3)}  # sure, perhaps
        self.done = self.lost = 0
        self.error = None

    def run(self):
        try:
            for i in range(10 * self.operations):
                if i >= self.operations and self.enough.is_set():
                    break
                self.done += 1
                self.rng.choice((self.put, self.put, self.put, self.get,
                                 self.get, self.get, self.delete, self.list,
                                 self.count))(i)
        except Exception as e:
            self.error = e

    def ask(self, method, path, body=None, headers=()):
        """The answer, or LOST when the process was killed meanwhile. What has
        no effect is asked again until somebody answers."""
        until = time.monotonic() + 60
        while True:
            client = self.rng.choice(self.clients)
            with contextlib.suppress(OSError, Broken):
                r = client.request(method, "/v1/memory/" + path, headers,
                                   body)
                if r.status not in (500, 502, 503, 504):
                    return r
            self.lost += 1
            if method != "GET":
                return LOST
            if time.monotonic() > until:
                raise AssertionError("nobody answers")
            time.sleep(0.02)

    def key(self):
        return "k%d" % self.rng.randrange(20)

    def values(self, key):
        return self.known.get(key, {None})

    def put(self, i):
        key = self.key()
        value = b"%d " % i + b"x" * self.rng.choice((0, 100, 1000, 20000))
        r = self.ask("PUT", self.space + "/" + key, value)
        self.changed(key, r, value, 204)

    def delete(self, i):
        key = self.key()
        r = self.ask("DELETE", self.space + "/" + key)
        self.changed(key, r, None, 204)

    def changed(self, key, r, value, status):
        if r is LOST:
            self.known[key] = self.values(key) | {value}
        else:
            assert r.status == status, r
            self.known[key] = {value}

    def get(self, i):
        key = self.key()
        r = self.ask("GET", self.space + "/" + key)
        assert r.status in (200, 404), r
        value = r.body if r.status == 200 else None
        assert value in self.values(key), (key, value, self.values(key))
        self.known[key] = {value}

    def list(self, i):
        """In pages; nobody else changes these keys."""
        found, cursor = [], ""
        while cursor is not None:
            r = self.ask("GET", "%s?limit=7&cursor=%s" % (
                self.space, cursor))
            assert r.status == 200, r
            found += r.json()["keys"]
            cursor = r.json()["nextCursor"]
        assert found == sorted(set(found)), found
        for key in {"k%d" % n for n in range(20)}:
            may = {v is not None for v in self.values(key)}
            assert (key in found) in may, key

    def count(self, i):
        n = self.rng.randrange(3)
        path = "counters/c%d" % n
        r = self.ask("GET", path)
        if r.status == 404:
            r = self.ask("PUT", path, b"1", [("If-None-Match", "*")])
        else:
            r = self.ask("PUT", path, b"%d" % (int(r.body) + 1),
                         [("If-Match", r.header("etag"))])
        if r is LOST:
            self.counted[n][1] += 1
        else:
            assert r.status in (204, 412), r
            self.counted[n][0] += r.status == 204


class Load(unittest.TestCase):
    def setUp(self):
        self.service = Service("caddy")
        self.addCleanup(self.service.stop)
        self.service.start()
        self.clients = [self.service.client(), self.service.second()]

    def kill_one(self, rng):
        """kill -9 of either process, and another in its place."""
        s = self.service
        if rng.random() < 0.5:
            s.fcgi.kill()
            s.fcgi.wait()
            s.start_fcgi()
        else:
            s.extra[0].kill()
            s.extra[0].wait()
            s.extra[0] = s.spawn_fcgi(s.path("fcgi", "second.sock"))

    def test_mixed(self):
        enough = threading.Event()
        workers = [Worker(i, self.clients, OPERATIONS // CLIENTS, enough)
                   for i in range(CLIENTS)]
        begun = time.monotonic()
        for w in workers:
            w.start()
        rng = random.Random(7)
        kills = 0
        while any(w.is_alive() for w in workers):
            time.sleep(rng.uniform(0.3, 1.2))
            if kills < KILLS:
                self.kill_one(rng)
                kills += 1
            if kills >= 10:
                enough.set()
        took = time.monotonic() - begun
        for w in workers:
            if w.error is not None:
                raise w.error
        self.assertGreaterEqual(kills, 10)
        self.check(workers)
        print("%d operations in %.1f s, %d kills, %d without an answer" % (
            sum(w.done for w in workers), took, kills,
            sum(w.lost for w in workers)))

    def check(self, workers):
        for w in workers:
            for key in sorted(w.known):
                r = w.ask("GET", w.space + "/" + key)
                value = r.body if r.status == 200 else None
                self.assertIn(value, w.known[key], (w.space, key))
        for n in range(3):
            r = workers[0].ask("GET", "counters/c%d" % n)
            sure = sum(w.counted[n][0] for w in workers)
            perhaps = sum(w.counted[n][1] for w in workers)
            self.assertTrue(sure <= int(r.body) <= sure + perhaps,
                            (sure, r.body, perhaps))
        with contextlib.closing(sqlite3.connect(os.path.join(
                self.service.path("state"), "isobox.db"))) as db:
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchall(),
                             [("ok",)])


if __name__ == "__main__":
    unittest.main()
