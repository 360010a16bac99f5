# SPDX-License-Identifier: Apache-2.0
"""The resources besides /execute, HEAD, the access log and the counters."""

import json
import re
import time
import unittest

from fake_runner import answer_status, run_ok
from service import REPO, Service, ServiceCase

RUNTIMES = [
    {"language": "live", "version": "2", "aliases": ["lv"],
     "compiled": False, "kernel": True,
     "backend": "gvisor"},
    {"language": "python", "version": "3.11", "aliases": [],
     "compiled": False, "kernel": False,
     "backend": "gvisor"},
    {"language": "python", "version": "3.14-agent", "aliases": ["py", "py3"],
     "compiled": False, "kernel": False,
     "backend": "gvisor"},
    {"language": "rust", "version": "1-alpine", "aliases": ["rs"],
     "compiled": True, "kernel": False,
     "backend": "gvisor"},
]

with open(REPO + "/VERSION") as f:
    VERSION = f.read().strip()


class Routes(ServiceCase):
    def get(self, uri, **kw):
        r = self.service.request("GET", uri, **kw)
        self.assert_common(r)
        return r

    def test_healthz(self):
        r = self.get("/healthz")
        self.assertEqual((r.status, r.body.decode()), (
            200, '{"status":"ok","version":"%s",'
            '"kernels":{"used":60,"max":6}}' % VERSION))
        self.assertEqual(r.headers["content-type"], "application/json")

    def test_healthz_without_the_runner(self):
        for away in (lambda c: None, lambda c: c.gone(5)):
            self.runner.on_status = away
            time.sleep(0.01)  # what was heard in the last 2 ms still holds
            r = self.get("/healthz")
            self.assertEqual((r.status, r.json()), (
                200, {"status": "ok", "version": VERSION,
                      "kernels": {"used": None, "max": 6}}))

    def test_readyz(self):
        r = self.get("/readyz")
        self.assertEqual((r.status, r.body),
                         (200, b'{"ready":true,"backend":"gvisor"}'))
        self.runner.on_status = lambda c: answer_status(
            c, ready=False, reason='no "cap"')
        r = self.get("/readyz")
        self.assertEqual((r.status, r.body), (
            503, b'{"ready":false,"reason":"no \\"cap\\""}'))
        self.runner.on_status = lambda c: answer_status(
            c, ready=False, reason="cgroup /a/b has no memory cap")
        self.assertEqual(self.get("/readyz").json()["reason"],
                         "cgroup [path] has no memory cap")

    def test_runtimes(self):
        r = self.get("/runtimes")
        self.assertEqual((r.status, r.json()), (200, RUNTIMES))
        self.assertIn("lost 1 is not offered", self.service.log())

    def test_forms_of_the_target(self):
        for uri in ("/healthz?", "/healthz?x=%zz", "/%68ealth%7A",
                    "http://example.org/healthz", "HTTPS://a:1/healthz?b"):
            self.assertEqual(self.get(uri).status, 200, uri)
        for uri in ("http://example.org", "http://example.org/"):
            self.assertEqual(self.get(uri).status, 404, uri)

    def test_head(self):
        for uri in ("/healthz", "/readyz", "/runtimes", "/metrics", "/nope"):
            get, head = (self.service.request(m, uri)
                         for m in ("GET", "HEAD"))
            self.assertEqual((head.status, head.body), (get.status, b""))
            self.assert_common(head)
            if uri != "/metrics":
                self.assertEqual(head.headers["content-length"],
                                 str(len(get.body)))

    def test_request_id_is_fresh(self):
        ids = {self.get("/healthz", headers={"X-Request-Id": "mine"})
               .headers["x-request-id"] for _ in range(50)}
        self.assertEqual(len(ids), 50)
        self.assertNotIn("mine", ids)

    def test_no_header_of_the_client_comes_back(self):
        evil = "a\r\nSet-Cookie: x=y"
        r = self.get("/healthz", headers={"Accept": evil, "Origin": evil,
                                          "X-Request-Id": evil})
        self.assertNotIn(b"Set-Cookie", r.raw)


class Texts(unittest.TestCase):
    def test_served(self):
        s = Service()
        try:
            s.write("data/llms.txt", "one \u00e9\n")
            s.write("data/openapi.yaml", "openapi: 3.1.0\n")
            s.start()
            r = s.request("GET", "/llms.txt")
            self.assertEqual((r.status, r.body), (200, b"one \xc3\xa9\n"))
            self.assertEqual(r.headers["content-type"],
                             "text/plain; charset=utf-8")
            r = s.request("GET", "/openapi.yaml")
            self.assertEqual((r.status, r.body), (200, b"openapi: 3.1.0\n"))
            self.assertEqual(r.headers["content-type"],
                             "application/yaml; charset=utf-8")
        finally:
            s.close()


class Log(ServiceCase):
    def last(self, count=1):
        """The newest line. It is written after the answer."""
        self.service.wait_for(lambda: len(self.service.access_log()) >=
                              self.before + count, "log line")
        return self.service.access_log()[-1]

    def setUp(self):
        super().setUp()
        # That of the test before may come late, this one's comes after it.
        r = self.service.request("GET", "/healthz")
        self.service.wait_for(lambda: any(
            e["id"] == r.headers["x-request-id"]
            for e in self.service.access_log()), "log")
        self.before = len(self.service.access_log())

    def test_simple(self):
        r = self.service.request("GET", "/healthz?secret=1",
                                 remote="2001:db8:1:2:3::4")
        line = self.last()
        self.assertEqual(set(line), {
            "time", "id", "remote", "method", "path", "status", "bytes",
            "durationMs", "flags"})
        self.assertEqual(line["id"], r.headers["x-request-id"])
        self.assertEqual(line["remote"], "2001:db8:1:2::/64")
        self.assertEqual((line["method"], line["path"], line["status"]),
                         ("GET", "/healthz", 200))
        self.assertEqual(line["bytes"], len(r.raw))
        self.assertRegex(line["time"],
                         r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
        self.assertGreaterEqual(line["durationMs"], 0)

    def test_run(self):
        self.runner.on_run = lambda c: run_ok(
            c, b"SECRET-OUT", exit_code=137, signal=9, timed_out=True,
            cut_out=True)
        self.service.execute(json.dumps({
            "language": "py", "code": "SECRET-CODE", "stdin": "SECRET-IN",
            "args": ["SECRET-ARG"]}), {"X-API-Key": "SECRET-KEY",
                                       "Accept": "text/event-stream"})
        line = self.last()
        self.assertEqual((line["language"], line["exitCode"],
                          line["tenant"]), ("python", 137, "public"))
        self.assertEqual(line["flags"], ["stream", "timedOut", "truncated"])
        self.assertNotIn("SECRET", json.dumps(self.service.access_log()))
        self.assertNotIn("SECRET", self.service.log())

    def test_hostile_bytes(self):
        for uri in (b"/\xff\xfe\"\\\x01\n", b"/" + b"\xe2\x82" * 300):
            before = len(self.service.access_log())
            self.service.request(b"GE\nT", uri, remote="\"\n::ffff:1.2.3.4")
            self.service.wait_for(lambda: len(self.service.access_log()) ==
                                  before + 1, "log line")
        self.service.request("GET", "/healthz", remote="::ffff:192.0.2.9")
        self.assertEqual(self.last(3)["remote"], "192.0.2.9")


class Metrics(ServiceCase):
    def metrics(self):
        r = self.service.request("GET", "/metrics")
        self.assertEqual(r.headers["content-type"],
                         "text/plain; version=0.0.4; charset=utf-8")
        self.check_format(r.body.decode())
        return dict(line.rsplit(" ", 1)
                    for line in r.body.decode().splitlines()
                    if not line.startswith("#"))

    def check_format(self, text):
        """HELP and TYPE once before each name, and nothing twice."""
        known, seen = {}, set()
        self.assertTrue(text.endswith("\n"))
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ")[2]
                self.assertNotIn(name, known)
                known[name] = None
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                self.assertIn(kind, ("counter", "gauge", "histogram"))
                known[name] = kind
            else:
                m = re.fullmatch(r'([a-z_]+)(\{([a-z]+="(?:[^"\\]|\\.)*",?)+\})? '
                                 r'[0-9.]+', line)
                self.assertIsNotNone(m, line)
                name = re.sub("_(bucket|sum|count)$", "", m.group(1))
                self.assertTrue(known.get(name) or known.get(m.group(1)),
                                line)
                series = m.group(1) + (m.group(2) or "")
                self.assertNotIn(series, seen)
                seen.add(series)

    def test_counts(self):
        name = 'isobox_http_requests_total{route="%s",status="%d"}'
        before = self.metrics()
        for method, uri in (("GET", "/healthz"), ("GET", "/nope"),
                            ("PUT", "/execute"), ("OPTIONS", "/execute")):
            self.service.request(method, uri)
        self.service.execute(language="py", code="")
        self.runner.on_run = lambda c: c.fail("capacity")
        self.service.execute(language="py", code="")
        self.service.wait_for(lambda: "isobox_http_requests_in_progress 1\n"
                              in self.service.request("GET", "/metrics")
                              .body.decode(), "quiet service")
        after = self.metrics()
        for route, status in (("/healthz", 200), ("other", 404),
                              ("/execute", 405), ("/execute", 204),
                              ("/execute", 200), ("/execute", 429)):
            key = name % (route, status)
            self.assertEqual(float(after[key]) - float(before.get(key, 0)),
                             1, key)
        total = "isobox_http_request_duration_seconds_count"
        key = total + '{route="/execute"}'
        self.assertEqual(float(after[key]) - float(before[key]), 4)
        bucket = ('isobox_http_request_duration_seconds_bucket'
                  '{route="/execute",le="%s"}')
        self.assertEqual(after[bucket % "+Inf"], after[key])
        self.assertGreaterEqual(float(after[bucket % "5.000"]),
                                float(after[bucket % "0.001"]))

    def test_runner(self):
        found = self.metrics()
        self.assertEqual(
            [found["isobox_" + k] for k in (
                "runner_up", "runner_ready", "runner_slots",
                "runner_running", "runner_queued", "runs_total",
                "run_timeouts_total", "run_ooms_total",
                "run_failures_total", "run_rejected_total",
                "run_client_gone_total", "boot_cpu_seconds_total")],
            ["1", "1", "4", "1", "2", "10", "11", "12", "13", "14", "15",
             "0.000016"])

    def test_phases(self):
        found = self.metrics()
        for phase in ("queue", "boot", "run", "cleanup", "boot_ahead"):
            name = 'isobox_phase_seconds_%s{phase="' + phase + '"%s}'
            self.assertEqual(
                [found[name % ("bucket", ',le="%s"' % le)]
                 for le in ("0.0005", "0.0010", "30.0000", "+Inf")],
                ["1", "2", "16", "17"])
            self.assertEqual(found[name % ("count", "")], "17")
            self.assertEqual(found[name % ("sum", "")], "2.000000")

    def test_pool(self):
        found = self.metrics()
        self.assertEqual(
            [found["isobox_pool_" + k] for k in (
                'sandboxes{state="waiting"}', 'sandboxes{state="booting"}',
                "memory_bytes", "oldest_seconds", "hits_total",
                "adopted_total", "misses_total", "boots_total",
                "boot_failures_total", "dropped_total")],
            ["30", "31", "32", "0.000033", "34", "35", "36", "37", "38",
             "39"])

    def test_egress(self):
        names = ("allowed", "up", "runs_total", "refused_total")
        for state, reason, values in (
                (0, "", ["0", None, "50", "51"]),
                (1, "", ["1", None, "50", "51"]),
                (2, "", ["1", "1", "50", "51"]),
                (3, 'no "tun" at /x: \\\n', ["1", "0", "50", "51"])):
            self.runner.on_status = lambda c: answer_status(
                c, egress=(state, reason, 50, 51), driver="pasta")
            found = self.metrics()
            self.addCleanup(setattr, self.runner, "on_status", answer_status)
            self.assertEqual([found.get("isobox_egress_" + n)
                              for n in names], values, state)
            self.assertEqual(
                found.get('isobox_egress_down_info{reason='
                          '"no \\"tun\\" at [path]: \\\\ "}'),
                "1" if state == 3 else None)
            self.assertEqual(
                found.get('isobox_egress_driver_info{driver="pasta"}'), "1")


if __name__ == "__main__":
    unittest.main()
