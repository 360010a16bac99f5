# SPDX-License-Identifier: Apache-2.0
"""The same API behind each web server, started with the configuration that
examples/ shows: Caddy, Apache, lighttpd and nginx by FastCGI, Apache's mod_cgid
and lighttpd's mod_cgi by plain CGI."""

import json
import os
import statistics
import subprocess
import time
import unittest

from again import again
from front import KINDS
from harness import REPO, Service, wait_for

BODY_MAX = 256 * 1024
SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(15)"


def job(**members):
    members.setdefault("language", "python-slim")
    return json.dumps(members).encode()


def job_of_size(size):
    """A valid job of exactly so many bytes; its program prints how long the
    padding is."""
    code = "print(len('%s'))"
    empty = len(job(code=code % ""))
    return job(code=code % ("x" * (size - empty))), size - empty


class Common:
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.service = Service(cls.kind, **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        cls.service.start()
        cls.client = cls.service.client()


class Api(Common):
    def tearDown(self):
        self.service.assert_clean()

    def running(self):
        return self.client.metrics()["isobox_runner_running"]

    def test_json(self):
        r = self.client.execute("python-slim", "print('ü')", args=["a b"])
        self.assertEqual(r.status, 200, r)
        self.assertEqual(r.header("content-type"), "application/json")
        self.assertEqual(r.json()["run"]["stdout"], "ü\n")
        self.assertEqual(r.header("access-control-allow-origin"), "*")

    def test_healthz_and_readyz(self):
        r = self.client.get("/healthz")
        self.assertEqual((r.status, r.json()["status"]), (200, "ok"))
        r = self.client.get("/readyz")
        self.assertEqual((r.status, r.json()),
                         (200, {"ready": True, "backend": "gvisor"}))

    def lags(self):
        """Of the events of a program that prints its own clock, in seconds."""
        code = ("import time\nfor i in range(8):\n"
                "    print(time.time(), flush=True); time.sleep(0.4)")
        with self.client.open_stream("python-slim", code) as c:
            offset = time.time() - time.monotonic()
            events = [e for e in c.events() if e.name]
        chunks = [e for e in events if e.name == "stdout"]
        self.assertEqual(len(chunks), 8, events)
        self.assertEqual(events[-1].name, "done")
        self.assertEqual(dict(c.headers)["content-type"].split(";")[0],
                         "text/event-stream")
        return [e.at + offset - float(e.data["chunk"]) for e in chunks]

    def test_stream_comes_as_it_is_printed(self):
        """Events arrive one by one: how late is printed, and only a generous
        bound is asserted."""
        lags = again(self.lags, lambda lags: max(lags) < 0.4)
        print("%s: lag of an event, ms: median %.1f, worst %.1f" % (
            self.kind, 1000 * statistics.median(lags), 1000 * max(lags)))
        self.assertLess(max(lags), 0.4, lags)

    def test_stream_by_query(self):
        with self.client.open() as c:
            c.request("POST", "/execute?stream=1", [],
                      job(code="print(1)"))
            events = [e for e in c.events() if e.name]
        self.assertEqual([e.name for e in events], ["stdout", "done"])

    def test_errors_before_a_stream_are_plain(self):
        r = self.client.post("/execute", b"{", [("Accept",
                                                 "text/event-stream")])
        self.assertEqual((r.status, r.json()["error"]), (400, "invalid_json"))

    def test_body_at_the_cap(self):
        body, padding = job_of_size(BODY_MAX)
        self.assertEqual(len(body), BODY_MAX)
        r = self.client.post("/execute", body)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(r.json()["run"]["stdout"], "%d\n" % padding)

    def test_body_one_byte_over(self):
        body, _ = job_of_size(BODY_MAX + 1)
        r = self.client.post("/execute", body)
        self.assertEqual((r.status, r.json()["error"]), (400, "invalid_json"),
                         r)
        self.assertIn("detail", r.json())

    def test_body_far_over(self):
        r = self.client.post("/execute", b"[" * (5 << 20))
        self.assertIn(r.status, (400, 413), r)

    def test_chunked_body(self):
        body = job(code="print('chunks')")
        parts = [body[i:i + 7] for i in range(0, len(body), 7)]
        r = self.client.request("POST", "/execute", chunked=parts)
        self.assertEqual(r.status, 200, r)
        self.assertEqual(r.json()["run"]["stdout"], "chunks\n")

    def test_chunked_body_over_the_cap(self):
        body, _ = job_of_size(BODY_MAX + 1)
        r = self.client.request("POST", "/execute",
                                chunked=[body[:1000], body[1000:]])
        self.assertEqual((r.status, r.json()["error"]), (400, "invalid_json"))

    def leave(self):
        """Seconds until the slot is free."""
        c = self.client.open_stream("python-slim", SLEEPER)
        next(e for e in c.events() if e.name == "stdout")
        self.assertEqual(self.running(), 1)
        c.close()
        left = time.monotonic()
        wait_for("free slot", lambda: self.running() == 0, 8)
        return time.monotonic() - left

    def test_client_of_a_stream_leaves(self):
        """The run is killed and its slot free within about a second."""
        took = again(self.leave, lambda took: took < 3)
        print("%s: slot free %.2f s after the client left" % (
            self.kind, took))
        self.assertLess(took, 3)

    def leave_silent(self):
        """Seconds until the slot is free."""
        code = "import time\ntime.sleep(15)"
        c = self.client.open_stream("python-slim", code)
        wait_for("run", lambda: self.running() == 1, 10)
        c.close()
        left = time.monotonic()
        wait_for("free slot", lambda: self.running() == 0, 14)
        return time.monotonic() - left

    def test_client_of_a_silent_run_leaves_at_once(self):
        """Gone before anything was answered."""
        took = again(self.leave_silent, lambda took: took < 5)
        print("%s: slot free %.2f s after the client of a silent run left"
              % (self.kind, took))
        self.assertLess(took, 5)

    def test_client_that_reads_nothing(self):
        """Its run ends at its wall time, and no other run waits for it."""
        c = self.client.open_stream(
            "python-slim", "while True: print('x' * 60)",
            limits={"wallTimeMs": 2000, "outputBytes": 262144})
        try:
            self.assertEqual(self.client.run("python-slim", "print(1)")
                             ["stdout"], "1\n")
            wait_for("run", lambda: self.running() == 0, 10)
        finally:
            c.close()

    def test_slash_in_a_path_stays_encoded(self):
        """%2F reaches us as it is: no such path, said by us and not by the
        front server."""
        for path in ("/v1/a%2Fb", "/v1/memory/ns/a%2Fb%2fc?x=%2F"):
            r = self.client.get(path)
            self.assertEqual((r.status, r.json()),
                             (404, {"error": "not_found"}), path)
        r = self.client.get("/v1/%2e%2e/healthz")
        self.assertIn(r.status, (400, 403, 404), r)

    def memory(self, method, key, *args, **kw):
        return self.client.request(method, "/v1/memory/fronts/" + key, *args,
                                   **kw)

    def test_memory_of_encoded_keys(self):
        """A key is decoded once, whatever the front server decodes."""
        keys = {"a%2Fb": "a/b", "a%252Fb": "a%2Fb", "a%20b%2B": "a b+",
                "%C3%A4%3F%23": "\u00e4?#", "a%2f%2F..": "a//.."}
        for i, key in enumerate(keys):
            r = self.memory("PUT", key, [], b"%d" % i)
            self.assertEqual((r.status, r.body), (204, b""), (key, r))
        for i, key in enumerate(keys):
            r = self.memory("GET", key)
            self.assertEqual((r.status, r.body), (200, b"%d" % i), key)
        r = self.client.get("/v1/memory/fronts?limit=100")
        self.assertEqual(r.json()["keys"], sorted(keys.values(),
                                                  key=str.encode))
        for key in keys:
            self.assertEqual(self.memory("DELETE", key).status, 204)
            self.assertEqual(self.memory("GET", key).status, 404)

    def test_memory_of_large_values(self):
        value = os.urandom(8 << 20)
        for kw in ({"body": value}, {"chunked": [
                value[i:i + 100000] for i in range(0, len(value), 100000)]}):
            r = self.memory("PUT", "large", **kw)
            self.assertEqual(r.status, 204, r)
            r = self.memory("GET", "large")
            self.assertEqual((r.status, r.body == value), (200, True))
        tag = r.header("etag")
        r = self.memory("HEAD", "large")
        self.assertEqual(r.status, 200, r)
        # Apache leaves it out of every answer to HEAD.
        self.assertIn(r.header("content-length"), (str(len(value)), None))
        r = self.memory("GET", "large", [("If-None-Match", tag)])
        self.assertEqual((r.status, r.body, r.header("etag")),
                         (304, b"", tag))
        r = self.memory("PUT", "large", [("If-Match", '"other"')], b"x")
        self.assertEqual((r.status, r.json()),
                         (412, {"error": "precondition_failed"}))
        r = self.memory("PUT", "large", [], value + b"x")
        self.assertEqual((r.status, r.json()["error"]),
                         (413, "value_too_large"))
        r = self.memory("DELETE", "large", [("If-Match", tag)])
        self.assertEqual(r.status, 204, r)

    def test_memory_as_the_documentation_shows_it(self):
        """Its shell lines, word for word but for the address."""
        script = """
curl -s -X PUT http://127.0.0.1:8090/v1/memory/facts/pi --data-binary '3.14159'
curl -s http://127.0.0.1:8090/v1/memory/facts/pi    # -> 3.14159
"""
        with open(os.path.join(REPO, "docs", "api.md")) as f:
            text = f.read()
        for line in script.strip().splitlines():
            self.assertIn(line, text)
        done = subprocess.run(
            ["sh", "-e"], input=script.replace("8090",
                                               str(self.service.port)),
            capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr),
                         (0, "3.14159", ""))
        r = self.client.request("DELETE", "/v1/memory/facts/pi")
        self.assertEqual(r.status, 204)

    def test_memory_keeps_types(self):
        r = self.memory("PUT", "t", [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("X-TTL-Seconds", "60")], "\u00fc".encode())
        self.assertEqual(r.status, 204, r)
        self.assertRegex(r.header("x-expires-at"), r"\A20\d\d-.*Z\Z")
        r = self.memory("GET", "t")
        self.assertEqual(r.header("content-type"),
                         "text/plain; charset=utf-8")
        self.assertEqual(r.body, "\u00fc".encode())
        self.memory("DELETE", "t")

    def test_not_found_and_wrong_method(self):
        r = self.client.get("/v1/nothing")
        self.assertEqual((r.status, r.json()), (404, {"error": "not_found"}))
        self.assertEqual(r.header("content-type"), "application/json")
        for method in ("GET", "PUT", "DELETE"):
            r = self.client.request(method, "/execute",
                                    body=None if method == "GET" else b"")
            self.assertEqual((r.status, r.json()),
                             (405, {"error": "method_not_allowed"}), method)
            self.assertIn("POST", r.header("allow"))

    def test_head(self):
        got = self.client.get("/healthz")
        r = self.client.request("HEAD", "/healthz")
        self.assertEqual((r.status, r.body), (200, b""))
        self.assertEqual(r.header("content-type"), got.header("content-type"))

    def test_options(self):
        for path in ("/execute", "/runtimes", "/healthz", "/v1/nothing"):
            r = self.client.request("OPTIONS", path, [
                ("Origin", "https://example.org"),
                ("Access-Control-Request-Method", "POST"),
                ("Access-Control-Request-Headers",
                 "content-type, x-api-key")])
            self.assertEqual((r.status, r.body), (204, b""), path)
            self.assertEqual(r.header("access-control-allow-origin"), "*")
            allowed = r.header("access-control-allow-headers").lower()
            for name in ("content-type", "x-api-key", "authorization"):
                self.assertIn(name, allowed)

    def test_playground_page(self):
        r = self.client.get("/")
        self.assertEqual(r.status, 200, r)
        self.assertTrue(r.header("content-type").startswith("text/html"))
        self.assertIn(b"isobox", r.body)

    def test_request_ids_differ(self):
        ids = {self.client.get("/healthz").header("x-request-id")
               for _ in range(5)}
        self.assertEqual(len(ids), 5)


class Auth(Common):
    settings = {"api_keys": ["first-key-of-the-test", "second-key"]}

    def statuses(self, headers):
        return (self.client.request("POST", "/execute", headers,
                                    job()).status,
                self.client.request("POST", "/execute", headers + [
                    ("Accept", "text/event-stream")], job()).status)

    def test_right_keys(self):
        for headers in ([("Authorization", "Bearer first-key-of-the-test")],
                        [("X-API-Key", "second-key")],
                        [("authorization", "bearer second-key")]):
            # Past the door, and refused for what lacks.
            self.assertEqual(self.statuses(headers), (400, 400), headers)

    def test_wrong_keys(self):
        for headers in ([], [("Authorization", "Bearer nonsense")],
                        [("X-API-Key", "")], [("X-API-Key", "second-ke")],
                        [("X-API-Key", "second-key2")],
                        [("Authorization", "Basic c2Vjb25kLWtleTo=")],
                        [("Authorization", "Bearer ")],
                        [("Authorization", "second-key")]):
            self.assertEqual(self.statuses(headers), (401, 401), headers)
        r = self.client.request("POST", "/execute", [], job())
        self.assertEqual(r.json(), {"error": "unauthorized"})

    def test_run_with_a_key(self):
        r = self.client.request(
            "POST", "/execute", [("Authorization", "Bearer second-key")],
            job(code="import os\nprint(dict(os.environ))"))
        self.assertEqual(r.status, 200, r)
        self.assertNotIn("second-key", r.json()["run"]["stdout"])

    def test_options_without_a_key(self):
        self.assertEqual(self.client.request("OPTIONS", "/execute").status,
                         204)


for _kind in KINDS:
    _word = _kind.title().replace("-", "")
    for _base in (Api, Auth):
        _name = "Test%s%s" % (_word, _base.__name__)
        globals()[_name] = type(_name, (_base, unittest.TestCase),
                                {"kind": _kind, "__module__": __name__})
