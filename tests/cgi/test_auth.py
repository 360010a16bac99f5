# SPDX-License-Identifier: Apache-2.0
"""Keys, the rate limit, and what SIGHUP changes."""

import hashlib
import json
import math
import os
import signal
import threading
import time
import unittest

import fcgi_client
from service import Service, ServiceCase

BODY = json.dumps({"language": "python", "code": ""})
UNAUTHORIZED = {"error": "unauthorized"}
LIMITED = {"error": "rate_limited"}


class Open(ServiceCase):
    def test_nothing_is_looked_at(self):
        for headers in ({}, {"X-API-Key": "x"}, {"Authorization": "y"},
                        [("X-API-Key", "a"), ("X-API-Key", "b")]):
            self.assertEqual(self.service.execute(BODY, headers).status, 200)


class Keys(ServiceCase):
    settings = {"api_key": "first-key", "api_keys": ["second-key", "third"]}

    def ask(self, *headers):
        return self.service.execute(BODY, list(headers))

    def test_right(self):
        for key in ("first-key", "second-key", "third"):
            for header in (("X-API-Key", key),
                           ("Authorization", "Bearer " + key),
                           ("Authorization", "bearer   " + key)):
                self.assertEqual(self.ask(header).status, 200, header)

    def test_wrong(self):
        for headers in (
                [], [("X-API-Key", "")], [("X-API-Key", "first-ke")],
                [("X-API-Key", "first-key ")], [("X-API-Key", "FIRST-KEY")],
                [("X-API-Key", "first-key, first-key")],
                [("Authorization", "first-key")],
                [("Authorization", "Basic first-key")],
                [("Authorization", "Bearer")], [("Authorization", "Bearer ")],
                [("Authorization", "Bearerfirst-key")],
                [("Authorization", "Bearer first-key,")],
                [("X-API-Key", "wrong"), ("Authorization",
                                          "Bearer first-key")],
                [("X-API-Key", "x" * 20000)]):
            with self.subTest(headers=str(headers)[:80]):
                self.assert_error(self.ask(*headers), 401, UNAUTHORIZED)
        self.assertEqual(self.runner.calls, [])

    def test_repeated(self):
        good = ("X-API-Key", "first-key")
        bearer = ("Authorization", "Bearer first-key")
        for headers in ([good, good], [good, ("X-API-Key", "x")],
                        [bearer, bearer], [good, bearer, bearer]):
            self.assert_error(self.ask(*headers), 401, UNAUTHORIZED)
        self.assertEqual(self.ask(good, bearer).status, 200)

    def test_comes_before_everything_else(self):
        self.assert_error(self.service.execute("not json"), 401, UNAUTHORIZED)
        self.assert_error(self.service.execute("x" * 300000), 401,
                          UNAUTHORIZED)
        self.assert_error(
            self.service.execute("", {"Accept": "text/event-stream"}), 401,
            UNAUTHORIZED)

    def test_what_needs_no_key(self):
        for uri in ("/healthz", "/readyz", "/runtimes", "/metrics"):
            self.assertEqual(self.service.request("GET", uri).status, 200)
        self.assertEqual(self.service.request("GET", "/nope").status, 404)
        self.assertEqual(self.service.request("GET", "/execute").status, 405)
        self.assertEqual(self.service.request("OPTIONS", "/execute").status,
                         204)

    def test_tenant_in_the_log_is_a_hash(self):
        self.ask(("X-API-Key", "second-key"))
        self.service.wait_for(lambda: self.service.access_log(), "log")
        want = hashlib.blake2b(b"second-key",
                               digest_size=32).hexdigest()[:12]
        self.service.wait_for(lambda: any(
            e.get("tenant") == want for e in self.service.access_log()),
            "tenant")
        self.assertNotIn("second-key", str(self.service.access_log()))


class RequiredKey(unittest.TestCase):
    def check(self, status, text, env=None, **settings):
        s = Service(env, **settings)
        try:
            with self.assertRaises(AssertionError) as e:
                s.start()
            self.assertIn("ended with %d" % status, str(e.exception))
            self.assertIn(text, str(e.exception))
            r = s.cgi()
            self.assertEqual((r.status, r.json()),
                             (500, {"error": "internal_error"}))
            self.assertIn(text, r.stderr)
        finally:
            s.close()

    def test_refuses_to_start(self):
        self.check(1, "require_auth", require_auth=True)
        self.check(1, "api_keys_file", api_keys_file="/nonexistent/keys")
        self.check(1, "ISOBOX_API_KEY", {"ISOBOX_API_KEY": ""})
        self.check(1, "ISOBOX_NONSENSE", {"ISOBOX_NONSENSE": "1"})
        self.check(1, "registry", registry_dir="/nonexistent/registry")
        self.check(1, "ratelimit", rate_per_min=30,
                   state_dir="/nonexistent/state")


class Rate(unittest.TestCase):
    def setUp(self):
        self.service = Service(rate_per_min=10, rate_burst=3)
        self.service.start()

    def tearDown(self):
        self.service.close()

    def ask(self, remote="192.0.2.1", body=BODY, **kw):
        return self.service.request("POST", "/execute", body, remote=remote,
                                    **kw)

    def test_burst_then_exact_wait(self):
        begun = time.monotonic()
        self.assertEqual([self.ask().status for _ in range(3)], [200] * 3)
        r = self.ask()
        self.assertEqual((r.status, r.json()), (429, LIMITED))
        # Six seconds from the first, less what these have taken.
        said, took = int(r.headers["retry-after"]), time.monotonic() - begun
        self.assertTrue(math.ceil(6 - took) <= said <= 6, (said, took))
        time.sleep(said)
        self.assertEqual(self.ask().status, 200)
        self.assertEqual(self.ask().status, 429)

    def test_comes_before_the_body(self):
        for _ in range(3):
            self.assertEqual(self.ask(body="nonsense").status, 400)
        self.assertEqual(self.ask(body="nonsense").status, 429)
        self.assertEqual(self.ask(body="x" * 300000).status, 429)

    def test_whose_it_is(self):
        for a, b, same in (("192.0.2.1", "192.0.2.2", False),
                           ("192.0.2.3", "::ffff:192.0.2.3", True),
                           ("2001:db8::1", "2001:db8::ffff:2", True),
                           ("2001:db8:0:1::1", "2001:db8:0:2::1", False)):
            while self.ask(a).status == 200:
                pass
            self.assertEqual(self.ask(b).status, 429 if same else 200)

    def test_forwarded_for_is_the_clients_own(self):
        headers = [{"X-Forwarded-For": "198.51.100.%d" % i,
                    "X-Real-IP": "198.51.100.%d" % i} for i in range(9)]
        statuses = [self.ask(headers=h).status for h in headers]
        self.assertEqual(statuses[:3], [200] * 3)
        self.assertIn(429, statuses[3:5])

    def test_only_runs_are_limited(self):
        while self.ask().status == 200:
            pass
        for uri in ("/healthz", "/readyz", "/runtimes", "/metrics"):
            for _ in range(5):
                self.assertEqual(self.service.request("GET", uri).status, 200)

    def test_holds_across_threads_and_cgi(self):
        statuses = []

        def ask():
            statuses.append(self.ask("198.51.100.9").status)
        threads = [threading.Thread(target=ask) for _ in range(20)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertIn(statuses.count(200), (3, 4))
        r = self.service.cgi("POST", "/execute", BODY,
                             extra=[("REMOTE_ADDR", "198.51.100.9")])
        self.assertEqual(r.status, 429)


class Reload(unittest.TestCase):
    def setUp(self):
        self.service = Service()
        self.keys = self.service.write("keys", "old-key\n", 0o600)
        self.service.settings["api_keys_file"] = self.keys
        self.service.write_config()
        self.service.write("data/llms.txt", "old")
        self.service.start()

    def tearDown(self):
        self.service.close()

    def reload(self, text=None):
        """SIGHUP, and wait until it says so."""
        before = self.service.log().count("reading languages")
        self.service.signal(signal.SIGHUP)
        self.service.wait_for(lambda: self.service.log().count(
            "reading languages") > before, "reload")
        if text is not None:
            self.service.wait_for(lambda: text in self.service.log(), text)

    def status(self, key, **members):
        members.setdefault("language", "python")
        return self.service.execute(json.dumps({"code": "", **members}),
                                    {"X-API-Key": key}).status

    def wait_status(self, want, key, **members):
        self.service.wait_for(lambda: self.status(key, **members) == want,
                              "status %d" % want)

    def test_keys(self):
        self.assertEqual((self.status("old-key"), self.status("new-key")),
                         (200, 401))
        os.rename(self.service.write("keys.new", "new-key\n", 0o600),
                  self.keys)  # as an editor does
        self.reload()
        self.wait_status(200, "new-key")
        self.assertEqual(self.status("old-key"), 401)

    def test_bad_keys_stay_as_they_were(self):
        for spoil in (lambda: self.service.write("keys", "", 0o600),
                      lambda: self.service.write("keys", "a b\n", 0o600),
                      lambda: os.unlink(self.keys)):
            spoil()
            self.reload("the keys stay as they were")
            self.assertEqual((self.status("old-key"), self.status("x")),
                             (200, 401))

    def test_registry(self):
        new = ("name: lua\nversion: 5\naliases: [l]\nimage: py\n"
               "source_file: main.lua\nrun: [lua, \"{source}\"]\n")
        self.assertEqual(self.status("old-key", language="l"), 400)
        self.service.write("registry/lua.yaml", new)
        self.reload()
        self.wait_status(200, "old-key", language="l")
        self.service.write("data/llms.txt", "new")
        os.unlink(self.service.path("registry/lua.yaml"))
        self.reload()
        self.wait_status(400, "old-key", language="l")
        self.assertEqual(self.service.request("GET", "/llms.txt").body,
                         b"new")

    def test_bad_registry_stays_as_it_was(self):
        self.service.write("registry/bad.yaml", "name: [\n")
        self.reload("the languages stay as they were")
        self.assertEqual(self.status("old-key"), 200)
        self.assertIn("bad.yaml", self.service.log())

    def test_running_requests_keep_what_they_saw(self):
        go, started = threading.Event(), threading.Event()

        def script(c):
            started.set()
            go.wait(10)
            c.started()
            c.done()
        self.service.runner.on_run = script
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message("POST", "/execute", json.dumps(
                {"language": "py", "code": ""}), {"X-API-Key": "old-key"}))
            self.assertTrue(started.wait(5))
            for name in os.listdir(self.service.path("registry")):
                if name.startswith("python"):
                    os.unlink(self.service.path("registry/" + name))
            self.reload()
            self.service.wait_for(lambda: b"python" not in self.service
                                  .request("GET", "/runtimes").body, "change")
            go.set()
            r = c.response()
        self.assertEqual((r.status, r.json()["language"]), (200, "python"))

    def test_access_log_is_opened_again(self):
        self.service.request("GET", "/healthz")
        self.service.wait_for(lambda: self.service.access_log(), "log")
        os.rename(self.service.path("access.log"),
                  self.service.path("access.log.1"))
        self.reload()
        self.service.wait_for(lambda: os.path.exists(
            self.service.path("access.log")), "new log")
        self.service.request("GET", "/healthz")
        self.service.wait_for(lambda: len(self.service.access_log()) == 1,
                              "line")

    def test_under_load(self):
        """Requests while it is reloaded again and again: all answered."""
        stop = threading.Event()
        bad = []

        def ask():
            while not stop.is_set():
                for status, want in (
                        (self.status("old-key"), 200),
                        (self.service.request("GET", "/runtimes").status,
                         200)):
                    if status != want:
                        bad.append(status)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for _ in range(30):
            self.service.signal(signal.SIGHUP)
            time.sleep(0.03)
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(bad, [])


if __name__ == "__main__":
    unittest.main()
