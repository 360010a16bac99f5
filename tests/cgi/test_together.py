# SPDX-License-Identifier: Apache-2.0
"""Two processes of isobox.fcgi on one state directory, 16 clients, 10,000 mixed
operations, and kill -9 of either in the middle: what was acknowledged is there
at the end, and nothing else."""

import json
import os
import random
import sqlite3
import subprocess
import threading
import time
import unittest

import fcgi_client
from service import Service

CLIENTS = 16
OPERATIONS = 10000
KILLS = 4


class Lost(Exception):
    """There was no answer: whether it was done nobody knows."""


class Thing:
    """A session, a volume, a value or a file and what it must be now.
    unsure: or what it would be had the last call been done."""

    def __init__(self, state):
        self.state = state
        self.unsure = []

    def done(self, state):
        self.state, self.unsure = state, []

    def maybe(self, state):
        self.unsure.append(state)

    def saw(self, state):
        """What an answer showed; False: that cannot be."""
        if state != self.state and state not in self.unsure:
            return False
        self.done(state)
        return True


class Worker(threading.Thread):
    """One client: nobody else touches what it makes."""

    def __init__(self, test, number, count):
        super().__init__()
        self.test = test
        self.number = number
        self.count = count
        self.random = random.Random(number)
        self.values = {}  # key: Thing of bytes or None
        self.sessions = {}  # id: (token, {path: Thing})
        self.volumes = {}  # id: Thing of the session's id or None
        self.wrong = []
        self.answers = 0
        self.lost_sessions = 0

    def run(self):
        try:
            for _ in range(self.count):
                try:
                    self.random.choice((
                        self.put_value, self.put_value, self.get_value,
                        self.delete_value, self.put_file, self.put_file,
                        self.get_file, self.delete_file, self.step,
                        self.look, self.create, self.end, self.make_volume,
                        self.end_volume))()
                except Lost:
                    pass
        except Exception as e:  # noqa: the main thread looks at it
            self.wrong.append("client %d: %r" % (self.number, e))

    def request(self, method, uri, body=None, headers=()):
        path = self.random.choice(self.test.sockets)
        try:
            r = fcgi_client.request(path, method, uri, body, headers,
                                    timeout=60)
        except OSError:
            r = None
        if r is None or not r.whole:
            time.sleep(0.02)
            # What the killed one asked for is done or will never be.
            self.test.service.runner.settle()
            raise Lost
        self.answers += 1
        return r

    def check(self, good, what, r):
        if not good:
            self.wrong.append("client %d: %s: %r" % (self.number, what, r))

    # Values

    def value(self):
        key = "k%d" % self.random.randrange(20)
        uri = "/v1/memory/c%d/%s" % (self.number, key)
        return self.values.setdefault(key, Thing(None)), uri

    def put_value(self):
        thing, uri = self.value()
        data = self.random.randbytes(self.random.choice((0, 10, 1000, 5000)))
        self.change(thing, data, "PUT", uri, data, (), (204,))

    def delete_value(self):
        thing, uri = self.value()
        self.change(thing, None, "DELETE", uri, None, (), (204, 404))

    def get_value(self):
        thing, uri = self.value()
        r = self.request("GET", uri)
        seen = None if r.status == 404 else r.body
        self.check(r.status in (200, 404) and thing.saw(seen), uri, r)

    def change(self, thing, state, method, uri, body, headers, good):
        try:
            r = self.request(method, uri, body, headers)
        except Lost:
            thing.maybe(state)
            raise
        self.check(r.status in good, "%s %s" % (method, uri), r)
        if r.status in good:
            thing.done(state)

    # Sessions and files

    def create(self):
        if len(self.sessions) > 6:
            return
        free = [v for v, t in self.volumes.items()
                if t.state is None and not t.unsure]
        volume = self.random.choice(free) if free else None
        try:
            r = self.request("POST", "/v1/sessions", json.dumps(
                {"runtime": "py", "volumeId": volume}))
        except Lost:
            self.lost_sessions += 1
            if volume:
                del self.volumes[volume]  # held by a session without a token
            raise
        self.check(r.status == 201, "create", r)
        s = r.json()
        self.sessions[s["id"]] = (s["token"], {})
        if volume:
            self.volumes[volume].done(s["id"])

    def session(self):
        if not self.sessions:
            self.create()
        if not self.sessions:
            raise Lost
        name = self.random.choice(sorted(self.sessions))
        token, files = self.sessions[name]
        return name, {"X-Session-Token": token}, files

    def look(self):
        name, headers, _ = self.session()
        r = self.request("GET", "/v1/sessions/" + name, None, headers)
        self.check(r.status == 200 and r.json()["id"] == name, "look", r)

    def step(self):
        name, headers, _ = self.session()
        r = self.request("POST", "/v1/sessions/%s/exec" % name,
                         '{"code":""}', headers)
        self.check(r.status == 200, "step", r)

    def end(self):
        if len(self.sessions) < 3:
            return
        name, headers, _ = self.session()
        del self.sessions[name]
        held = [v for v, t in self.volumes.items() if t.state == name]
        try:
            r = self.request("DELETE", "/v1/sessions/" + name, None, headers)
        except Lost:
            for v in held:  # free now, or when the sweep has been there
                del self.volumes[v]
            self.lost_sessions += 1
            raise
        self.check(r.status == 204, "end", r)
        for v in held:
            self.volumes[v].done(None)

    def file(self):
        name, headers, files = self.session()
        path = "d/f%d" % self.random.randrange(8)
        return (files.setdefault(path, Thing(None)),
                "/v1/sessions/%s/fs?path=%s" % (name, path), headers)

    def put_file(self):
        thing, uri, headers = self.file()
        data = self.random.randbytes(self.random.choice(
            (0, 10, 5000, 400000)))
        self.change(thing, data, "PUT", uri, data, headers, (200,))

    def delete_file(self):
        thing, uri, headers = self.file()
        self.change(thing, None, "DELETE", uri, None, headers, (204, 404))

    def get_file(self):
        thing, uri, headers = self.file()
        r = self.request("GET", uri, None, headers)
        seen = None if r.status == 404 else r.body
        self.check(r.status in (200, 404) and thing.saw(seen), uri, r)

    # Volumes

    def make_volume(self):
        if len(self.volumes) > 4:
            return
        r = self.request("POST", "/v1/volumes", json.dumps(
            {"name": "c%d" % self.number}))
        self.check(r.status == 201, "volume", r)
        self.volumes[r.json()["id"]] = Thing(None)

    def end_volume(self):
        if not self.volumes:
            return
        name = self.random.choice(sorted(self.volumes))
        held = self.volumes[name].state is not None
        try:
            r = self.request("DELETE", "/v1/volumes/" + name)
        except Lost:
            if not held:
                del self.volumes[name]
            raise
        self.check(r.status == (409 if held else 204), "end volume", r)
        if not held:
            self.volumes.pop(name)

    def look_at_all(self):
        """At the end, with nobody killing any more."""
        for key, thing in self.values.items():
            r = self.request("GET", "/v1/memory/c%d/%s" % (self.number, key))
            seen = None if r.status == 404 else r.body
            self.check(thing.saw(seen), "at the end: " + key, r)
        for name, (token, files) in self.sessions.items():
            headers = {"X-Session-Token": token}
            r = self.request("GET", "/v1/sessions/" + name, None, headers)
            self.check(r.status == 200, "at the end: session", r)
            for path, thing in files.items():
                r = self.request("GET", "/v1/sessions/%s/fs?path=%s" % (
                    name, path), None, headers)
                seen = None if r.status == 404 else r.body
                self.check(thing.saw(seen), "at the end: " + path, r)
        for name, thing in self.volumes.items():
            r = self.request("GET", "/v1/volumes/" + name)
            self.check(r.status == 200 and r.json()["attached"] ==
                       (thing.state is not None), "at the end: volume", r)


class Together(unittest.TestCase):
    def setUp(self):
        self.service = Service(max_sessions=2000,
                               max_sessions_per_tenant=2000, max_volumes=2000)
        self.addCleanup(self.service.close)
        self.sockets = [self.service.path("%d.sock" % i) for i in range(2)]
        self.processes = [None, None]
        self.addCleanup(self.stop)
        for i in range(2):
            self.start(i)

    def start(self, i):
        with open(self.service.path("log"), "ab") as log:
            self.processes[i] = subprocess.Popen(
                self.service.argv("--listen", self.sockets[i]),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={})

    def stop(self):
        for p in self.processes:
            p.terminate()
        self.assertEqual([p.wait(40) for p in self.processes], [0, 0])

    def test_mixed(self):
        workers = [Worker(self, i, OPERATIONS // CLIENTS)
                   for i in range(CLIENTS)]
        for i in range(2):
            self.service.wait_for(
                lambda: os.path.exists(self.sockets[i]), "a socket")
        for w in workers:
            w.start()
        for i in range(KILLS):
            time.sleep(1)
            self.processes[i % 2].kill()
            self.processes[i % 2].wait()
            self.start(i % 2)
        for w in workers:
            w.join()
        for i in range(2):
            self.service.wait_for(lambda: self.answers(i), "an answer")
        self.sweep()
        for w in workers:
            w.look_at_all()
        self.assertEqual(sum((w.wrong for w in workers), []), [])
        self.assertGreater(sum(w.answers for w in workers), OPERATIONS / 2)
        self.check_store(workers)

    def answers(self, i):
        try:
            r = fcgi_client.request(self.sockets[i], "GET", "/healthz")
        except OSError:
            return False
        return r is not None and r.status == 200

    def sweep(self):
        """What the kills left half done: until nothing is ending."""
        def clean():
            os.utime(self.service.path("state/sweep.lock"), (1, 1))
            self.service.cgi("GET", "/v1/volumes")
            return self.sql("SELECT count(*) FROM sessions WHERE "
                            "ending_ms > 0") == [(0,)] and self.sql(
                "SELECT count(*) FROM volumes WHERE ending_ms > 0") == [(0,)]
        self.service.wait_for(clean, "end of the sweep", 60)

    def sql(self, statement):
        db = sqlite3.connect(self.service.path("state/isobox.db"), timeout=10)
        try:
            return db.execute(statement).fetchall()
        finally:
            db.close()

    def check_store(self, workers):
        self.assertEqual(self.sql("PRAGMA integrity_check"), [("ok",)])
        for kind, table, own in (
                (1, "sessions", [s for w in workers for s in w.sessions]),
                (2, "volumes", [v for w in workers for v in w.volumes])):
            records = {r[0] for r in self.sql("SELECT id FROM " + table)}
            folders = set(os.listdir(self.service.workspaces.root(kind)))
            self.assertLessEqual(set(own), records)
            self.assertLessEqual(set(own), folders)
            # A killed creation may leave a record, never a folder alone.
            self.assertLessEqual(folders, records)
            if kind == 1:
                lost = sum(w.lost_sessions for w in workers)
                self.assertLessEqual(len(records - set(own)), lost)


if __name__ == "__main__":
    unittest.main()
