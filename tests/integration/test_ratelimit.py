# SPDX-License-Identifier: Apache-2.0
"""The token bucket of each client address, whoever of several processes
answers."""

import json
import math
import signal
import time
import unittest

from harness import Service


def sentence(r):
    return r.status, r.json()


class TestRateLimit(unittest.TestCase):
    """Five at once, then one every six seconds."""

    def setUp(self):
        self.service = Service("caddy", rate_per_min=10, rate_burst=5)
        self.addCleanup(self.service.stop)
        self.service.start()
        self.client = self.service.client()

    def spend(self, client=None):
        """Requests until one is refused: how many passed, and that one. Ones
        without a source are answered before a sandbox and count, too."""
        for n in range(100):
            r = (client or self.client).post("/execute",
                                             {"language": "python"})
            if r.status == 429:
                return n, r
            self.assertEqual(r.json()["error"], "no_source", r)
        self.fail("no limit after 100 requests")

    def test_burst_then_429(self):
        begun = time.monotonic()
        n, r = self.spend()
        took = time.monotonic() - begun
        self.assertTrue(5 <= n <= 5 + took // 6, (n, took))
        self.assertEqual(sentence(r), (429, {"error": "rate_limited"}))
        # Of the next one, less what these have taken.
        said = int(r.header("retry-after"))
        self.assertTrue(math.ceil(6 * (n - 4) - took) <= said <= 6,
                        (said, took))

    def ask(self, source):
        """(answer, a moment before, a moment after) of that address."""
        before = time.monotonic()
        with self.client.open_from(source) as c:
            c.request("POST", "/execute", [], b'{"language":"python"}')
            return c.response(), before, time.monotonic()

    def is_right(self, source):
        """Whether the host was there when each of its moments came."""
        r = self.ask(source)
        while r[0].status != 429:
            r = self.ask(source)
        said, first, at = int(r[0].header("retry-after")), r[1], r[2]
        time.sleep(2.5)
        r, before, after = self.ask(source)
        if after - first >= 3:
            return False
        self.assertEqual(r.status, 429)
        later = int(r.header("retry-after"))
        self.assertIn(said - later, (2, 3))
        time.sleep(max(0, later - 1 - 0.3))
        r, _, after = self.ask(source)
        if after - before >= later - 1:
            return False
        self.assertEqual(r.status, 429)
        time.sleep(max(0, at + said + 0.3 - time.monotonic()))
        self.assertEqual(self.ask(source)[0].json()["error"], "no_source")
        return True

    def test_retry_after_is_right_to_the_second(self):
        """It never says too little, and at most one second too much."""
        self.assertTrue(any(self.is_right("127.0.0.%d" % i)
                            for i in range(1, 6)))

    def test_reading_is_free(self):
        self.spend()
        for path in ("/healthz", "/runtimes", "/readyz"):
            self.assertEqual(self.client.get(path).status, 200, path)

    def test_a_stream_is_refused_as_plain_http(self):
        self.spend()
        r = self.client.post("/execute",
                             {"language": "python", "code": "print(1)"},
                             [("Accept", "text/event-stream")])
        self.assertEqual(sentence(r), (429, {"error": "rate_limited"}))

    def test_header_of_the_client_changes_nothing(self):
        """X-Forwarded-For and its kin are no address."""
        self.spend()
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded",
                     "CF-Connecting-IP", "True-Client-IP", "Client-IP"):
            r = self.client.post("/execute", {"language": "python"},
                                 [(name, "203.0.113.7")])
            self.assertEqual(r.status, 429, name)

    def test_survives_a_restart(self):
        self.spend()
        self.service.fcgi.send_signal(signal.SIGKILL)
        self.service.fcgi.wait()
        self.service.start_fcgi()
        self.service.wait_ready()
        r = self.client.post("/execute", {"language": "python"})
        self.assertEqual(r.status, 429, r)


class TestTwoProcesses(unittest.TestCase):
    def test_two_processes_share_the_buckets(self):
        """Two isobox.fcgi on one state directory, a front before each."""
        one = Service("caddy", rate_per_min=1, rate_burst=6)
        self.addCleanup(one.stop)
        one.start()
        two = one.second()
        passed = 0
        for i in range(20):
            client = (one.client(), two)[i % 2]
            r = client.post("/execute", {"language": "python"})
            if r.status == 429:
                self.assertEqual(sentence(r), (429, {"error":
                                                     "rate_limited"}))
                self.assertGreater(int(r.header("retry-after")), 50)
            else:
                passed += 1
        self.assertEqual(passed, 6)


class TestCgi(unittest.TestCase):
    def test_cgi_processes_share_the_buckets(self):
        """A process for every request, and still one count."""
        service = Service("cgi", rate_per_min=1, rate_burst=3)
        self.addCleanup(service.stop)
        service.start()
        statuses = [service.client().post(
            "/execute", {"language": "python"}).status for _ in range(6)]
        self.assertEqual(statuses, [400] * 3 + [429] * 3)


class TestAddresses(unittest.TestCase):
    def test_addresses_have_buckets_of_their_own(self):
        """All of 127/8 is this machine: clients with other addresses."""
        service = Service("caddy", rate_per_min=1, rate_burst=2)
        self.addCleanup(service.stop)
        service.start()
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            statuses = []
            for _ in range(3):
                with service.client().open_from(host) as c:
                    body = json.dumps({"language": "python"}).encode()
                    c.request("POST", "/execute", [], body)
                    statuses.append(c.response().status)
            self.assertEqual(statuses, [400, 400, 429], host)
