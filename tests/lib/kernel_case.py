# SPDX-License-Identifier: Apache-2.0
"""What the tests of live kernels against the real service share."""

import json
import threading
import time
import unittest
import urllib.parse

from harness import Service, wait_for

PYTHON = "python-slim"


class Kernel:
    """A kernel session by HTTP."""

    def __init__(self, client, facts=None, **members):
        self.client = client
        if facts is None:
            r = client.post("/v1/sessions", {
                "runtime": PYTHON, "network": False, **members,
                "type": "kernel"})
            if r.status != 201:
                raise AssertionError("no kernel: %r" % r)
            facts = r.json()
        self.facts = facts
        self.id = facts["id"]
        self.path = "/v1/sessions/" + self.id
        self.token = [("X-Session-Token", facts["token"])]

    def request(self, method, rest="", body=None, headers=(), **kw):
        return self.client.request(method, self.path + rest,
                                   self.token + list(headers), body, **kw)

    def post(self, rest, **members):
        return self.client.post(self.path + rest, members, self.token)

    def step(self, code, **members):
        """The whole answer of a step that must have been run."""
        r = self.post("/exec", code=code, **members)
        if r.status != 200:
            raise AssertionError("no step: %r" % r)
        return r.json()

    def run(self, code, **members):
        return self.step(code, **members)["run"]

    def stream(self, code, **members):
        """A connection on which the step's events come."""
        c = self.client.open()
        c.request("POST", self.path + "/exec", self.client.headers +
                  self.token + [("Accept", "text/event-stream")],
                  json.dumps(dict(members, code=code)).encode())
        return c

    def begin(self, code, **members):
        """A step in a thread; what the returned function waits for is its
        answer, a Response."""
        found = []
        t = threading.Thread(target=lambda: found.append(
            self.post("/exec", code=code, **members)))
        t.start()

        def end():
            t.join()
            return found[0]
        return end

    def interrupt(self):
        """Whether there was a step."""
        r = self.request("POST", "/interrupt", b"")
        if r.status != 200:
            raise AssertionError("no interrupt: %r" % r)
        return r.json()["interrupted"]

    def interrupt_running(self):
        """Once there is a step, which may take a moment."""
        wait_for("a step to interrupt", self.interrupt, 20, 0.05)

    def look(self):
        r = self.request("GET")
        if r.status != 200:
            raise AssertionError("no session: %r" % r)
        return r.json()

    def state(self):
        return self.look()["kernel"]["state"]

    def fs(self, method, path="", body=None, more=""):
        return self.request(method, "/fs?path=" + urllib.parse.quote(path)
                            + more, body)

    def fork(self):
        r = self.request("POST", "/fork", b"")
        if r.status != 201:
            raise AssertionError("no fork: %r" % r)
        return Kernel(self.client, r.json())

    def end(self):
        return self.request("DELETE").status


class KernelCase(unittest.TestCase):
    front = "caddy"
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.service = Service(cls.front, **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        cls.service.start()
        cls.client = cls.service.client()

    def kernel(self, **members):
        k = Kernel(self.client, **members)
        self.addCleanup(k.end)
        return k

    def fork(self, k):
        f = k.fork()
        self.addCleanup(f.end)
        return f

    def error(self, r, status, word, detail=None):
        self.assertEqual((r.status, r.json()["error"]), (status, word), r)
        if detail is not None:
            self.assertIn(detail, r.json()["detail"])

    def good(self, k, code, out="", **members):
        """A step that must succeed and print `out`; its answer."""
        a = k.step(code, **members)
        self.assertEqual(
            (a["run"]["stdout"], a["run"]["stderr"], a["run"]["exitCode"],
             a["kernel"]), (out, "", 0, "alive"), a)
        return a

    def assert_dead(self, k, detail=None):
        self.error(k.post("/exec", code="print(1)"), 409, "kernel_dead",
                   detail)
        self.assertEqual(k.state(), "dead")
        # Files are there all the same.
        self.assertEqual(k.fs("GET").status, 200)

    def timed(self, call, *args, **kw):
        """(seconds, what it returned)"""
        begun = time.monotonic()
        result = call(*args, **kw)
        return time.monotonic() - begun, result
