# SPDX-License-Identifier: Apache-2.0
"""What reaches the runner, and what becomes of its answer."""

import base64
import json
import os
import socket
import threading
import time
import unittest

import fake_runner
import fcgi_client
from again import again
from fake_runner import frame, run_ok
from service import ServiceCase

WARNING = ("network requested but currently unavailable (egress firewall not "
           "verified); ran with network OFF")


class Job(ServiceCase):
    """The request as the runner gets it."""

    def job(self, **members):
        members.setdefault("language", "python")
        r = self.service.execute(**members)
        self.assertEqual(r.status, 200, r)
        self.request_id = r.headers["x-request-id"]
        return self.runner.calls[-1]

    def test_smallest(self):
        job = self.job(code="print(1)")
        self.assertEqual(job, {
            "request_id": self.request_id.encode(), "runtime": b"python",
            "version": b"3.14-agent", "memory_bytes": 384 << 20,
            "cpus_milli": 1500, "pids": 128, "output_bytes": 65536,
            "wall_time_ms": 15000, "network": True, "entry": 0,
            "files": [(b"main.py", b"print(1)")], "args": [], "stdin": b"",
            "session": b"", "volume": b"", "allow": [],
            "kernel": False, "display": False})

    def test_everything(self):
        job = self.job(
            language="rs", version="1-alpine", stdin="in\0\u00e9",
            args=["", "a b", '"', "$(x)", "\u00e9"], network=False,
            files=[{"name": "lib/a.rs", "content": "a"},
                   {"name": "main.rs", "content": "bWFpbgA=",
                    "encoding": "base64"},
                   {"name": "b.rs", "content": "00fF", "encoding": "hex"},
                   {"name": "c", "content": "", "encoding": "base64"},
                   {"name": "d", "content": "\0", "encoding": "utf8"}],
            limits={"memoryBytes": 134217728, "cpus": 0.5, "pids": 64,
                    "outputBytes": 131072, "wallTimeMs": 5000},
            unknown={"a": [1, None]})
        job.pop("request_id")
        self.assertEqual(job, {
            "runtime": b"rust", "version": b"1-alpine",
            "memory_bytes": 134217728, "cpus_milli": 500, "pids": 64,
            "output_bytes": 131072, "wall_time_ms": 5000, "network": False,
            "entry": 1, "files": [
                (b"lib/a.rs", b"a"), (b"main.rs", b"main\0"),
                (b"b.rs", b"\x00\xff"), (b"c", b""), (b"d", b"\0")],
            "args": [b"", b"a b", b'"', b"$(x)", "\u00e9".encode()],
            "stdin": "in\0\u00e9".encode(), "session": b"", "volume": b"",
            "allow": [], "kernel": False, "display": False})

    def test_network(self):
        for asked, on, names in (
                (True, True, []), (False, False, []), (None, True, []),
                ({"allow": ["pypi.org", "*.GitHub.com"]}, True,
                 [b"pypi.org", b"*.GitHub.com"]),
                ({"allow": ["a_b-c.x1"] * 64, "more": 1}, True,
                 [b"a_b-c.x1"] * 64)):
            job = self.job(code="1", network=asked)
            self.assertEqual((job["network"], job["allow"]), (on, names))

    def test_entry_point(self):
        one = {"name": "x.py", "content": "1"}
        two = {"name": "main.py", "content": "2"}
        self.assertEqual(self.job(files=[one, two])["entry"], 1)
        self.assertEqual(self.job(files=[one])["entry"], 0)
        job = self.job(files=[one], code="3")
        self.assertEqual(job["files"][job["entry"]], (b"main.py", b"3"))

    def test_empty_and_null_members(self):
        self.assertEqual(self.job(code="")["files"], [(b"main.py", b"")])
        job = self.job(code="1", files=None, stdin=None, args=None,
                       limits=None, network=None, version=None,
                       outputEncoding=None)
        self.assertEqual((job["network"], job["args"]), (True, []))
        self.assertEqual(self.job(code="1", version="")["version"],
                         b"3.14-agent")
        self.assertEqual(self.job(code="1", version="3.11")["version"],
                         b"3.11")

    def test_clamped(self):
        low = self.job(code="", limits={
            "memoryBytes": 0, "cpus": 0.01, "pids": 0, "outputBytes": 1,
            "wallTimeMs": -5})
        high = self.job(code="", limits={
            "memoryBytes": 1 << 40, "cpus": 64, "pids": 100000,
            "outputBytes": 1 << 30, "wallTimeMs": 10 ** 9})
        keys = ("memory_bytes", "cpus_milli", "pids", "output_bytes",
                "wall_time_ms")
        self.assertEqual([low[k] for k in keys], [8 << 20, 100, 1, 1024, 100])
        self.assertEqual([high[k] for k in keys],
                         [512 << 20, 2000, 256, 262144, 20000])

    def test_clamped_beyond_64_bits(self):
        for number, value in (("9" * 400, 512 << 20), ("-" + "9" * 400,
                                                       8 << 20)):
            r = self.service.execute(
                '{"language":"py","code":"","limits":{"memoryBytes":%s,'
                '"cpus":%s}}' % (number, number))
            self.assertEqual(r.status, 200)
            self.assertEqual(self.runner.calls[-1]["memory_bytes"], value)

    def test_fractions_of_a_cpu(self):
        for cpus, milli in ((1, 1000), (1.5, 1500), (0.1004, 100),
                            (0.3335, 334), (2, 2000), (1e-300, 100)):
            self.assertEqual(self.job(code="", limits={"cpus": cpus})
                             ["cpus_milli"], milli)

    def test_large(self):
        text = "\u00e9" * 100000
        self.assertEqual(self.job(code="", stdin=text)["stdin"],
                         text.encode())
        files = [{"name": "f%d" % i, "content": "x" * 100}
                 for i in range(64)]
        self.assertEqual(len(self.job(files=files, args=["a"] * 256)
                             ["files"]), 64)


class Result(ServiceCase):
    def run_script(self, script, headers=(), **members):
        self.runner.on_run = script
        return self.service.execute(language="python", code="", **members)

    def test_exact_body(self):
        r = self.run_script(lambda c: run_ok(
            c, b"out\n", b"err", exit_code=3, duration_us=214499,
            cpu_us=30500, peak=1234567))
        self.assertEqual(r.status, 200)
        self.assertEqual(r.headers["content-type"], "application/json")
        self.assertEqual(int(r.headers["content-length"]), len(r.body))
        self.assert_common(r)
        self.assertEqual(
            r.body.decode(),
            '{"language":"python","version":"3.14-agent","backend":"gvisor",'
            '"run":{"stdout":"out\\n","stderr":"err","exitCode":3,'
            '"timedOut":false,"oomKilled":false,"truncated":false,'
            '"durationMs":214,"network":true,"signal":null,"cpuTimeMs":31,'
            '"memoryPeakBytes":1234567}}')

    def test_timing(self):
        r = self.run_script(lambda c: run_ok(
            c, queue_us=12, boot_us=1234567, duration_us=3000, warm=True))
        self.assertEqual(r.headers["server-timing"],
                         'queue;dur=0.012, boot;dur=1234.567;desc="warm", '
                         'run;dur=3.000')
        r = self.run_script(lambda c: run_ok(c, boot_us=999))
        self.assertEqual(r.headers["server-timing"],
                         "queue;dur=0.000, boot;dur=0.999, run;dur=214.000")

    def test_alias_is_resolved(self):
        r = self.service.execute(language="rs", code="")
        self.assertEqual((r.json()["language"], r.json()["version"]),
                         ("rust", "1-alpine"))

    def test_flags(self):
        for kw, members in (
                ({"exit_code": 137, "signal": 9, "timed_out": True},
                 {"exitCode": 137, "timedOut": True, "oomKilled": False,
                  "signal": "SIGKILL"}),
                ({"exit_code": 137, "signal": 9, "oom": True},
                 {"exitCode": 137, "timedOut": False, "oomKilled": True}),
                ({"exit_code": 139, "signal": 11}, {"signal": "SIGSEGV"}),
                ({"exit_code": 168, "signal": 40}, {"signal": "SIG40"}),
                ({"cut_out": True}, {"truncated": True}),
                ({"cut_err": True}, {"truncated": True}),
                ({}, {"truncated": False, "signal": None,
                      "memoryPeakBytes": None})):
            run = self.run_script(lambda c: run_ok(c, **kw)).json()["run"]
            self.assertEqual({k: run[k] for k in members}, members)

    def test_network_warning(self):
        for asked, given, warned in ((True, False, True), (True, True, False),
                                     (False, False, False)):
            for members in ({"network": asked}, {} if asked else None):
                if members is None:
                    continue
                r = self.run_script(lambda c: run_ok(c, network=given),
                                    **members).json()
                self.assertEqual(r["run"]["network"], given)
                self.assertEqual(r.get("warning"),
                                 WARNING if warned else None)

    def test_bytes_that_are_no_text(self):
        raw = b"a\xff\xfe\xc3\xa9\xf0\x9f\x98\x80\xe2\x82" + b"\0\x1b\x7f\"\\"
        for size in (1, 2, 3, 100):
            def script(c):
                c.started()
                for i in range(0, len(raw), size):
                    c.stdout(raw[i:i + size])
                c.done()
            r = self.run_script(script)
            self.assertEqual(r.json()["run"]["stdout"],
                             raw.decode("utf-8", "replace"))
            self.assertIn(b"\\u0000\\u001b\\u007f\\\"\\\\", r.body)

    def test_cut_character(self):
        for cut, end in ((False, "\ufffd"), (True, "")):
            r = self.run_script(lambda c: run_ok(
                c, b"ab\xe2\x82", b"\xf0\x9f", cut_out=cut, cut_err=cut))
            self.assertEqual(r.json()["run"]["stdout"], "ab" + end)
            self.assertEqual(r.json()["run"]["stderr"], end)

    def test_base64(self):
        raw = bytes(range(256))
        r = self.run_script(lambda c: run_ok(c, raw, raw[:-1]),
                            outputEncoding="base64").json()["run"]
        self.assertEqual(base64.b64decode(r["stdout"], validate=True), raw)
        self.assertEqual(base64.b64decode(r["stderr"], validate=True),
                         raw[:-1])
        r = self.run_script(lambda c: run_ok(c), outputEncoding="base64")
        self.assertEqual(r.json()["run"]["stdout"], "")

    def test_largest_output(self):
        out = os.urandom(262144)

        def script(c):
            c.started()
            for i in range(0, len(out), 50000):
                c.stdout(out[i:i + 50000])
            c.stderr(b"\0" * 262144)
            c.done()
        r = self.run_script(script, limits={"outputBytes": 262144})
        self.assertEqual(r.json()["run"]["stdout"],
                         out.decode("utf-8", "replace"))
        self.assertEqual(r.json()["run"]["stderr"], "\0" * 262144)


LEFT = "isobox-runner closed the connection before the end"
PROTOCOL = "isobox-runner does not keep to the protocol"


class BrokenRunner(ServiceCase):
    """isobox-runner dies or talks nonsense at each stage."""

    STAGES = [
        (lambda c: None, LEFT),
        (lambda c: c.started(), LEFT),
        (lambda c: (c.started(), c.stdout(b"half")),
         LEFT),
        (lambda c: c.send(b"\x05\0"), LEFT),
        (lambda c: c.send(b"\xff\xff\xff\xff\x12\0\0\0"), PROTOCOL),
        (lambda c: c.send(b"\0\0\0\0\x63\0\0\0"), PROTOCOL),
        (lambda c: c.send(b"\0\0\0\0\x11\0\0\x01"), PROTOCOL),
        (lambda c: c.stdout(b"early"), PROTOCOL + ": output before the start"),
        (lambda c: c.done(), PROTOCOL + ": bad end"),
        (lambda c: (c.started(), c.started()), PROTOCOL + ": bad start"),
        (lambda c: c.send(frame(fake_runner.STARTED, b"x")),
         PROTOCOL + ": bad start"),
        (lambda c: (c.started(), c.send(frame(fake_runner.DONE, b"x"))),
         PROTOCOL + ": bad end"),
        (lambda c: (c.started(), c.stdout(b"x" * 65537)),
         PROTOCOL + ": more output than was asked for"),
        (lambda c: (c.started(), c.stderr(b"x" * 65536), c.stderr(b"x")),
         PROTOCOL + ": more output than was asked for"),
        (lambda c: c.send(frame(fake_runner.FAIL, b"x")),
         PROTOCOL + ": bad failure"),
        (lambda c: c.fail("sandbox_failed", 0, b"\xff"),
         PROTOCOL + ": bad failure"),
        (lambda c: c.send(frame(fake_runner.STATUS_REPLY)),
         PROTOCOL + ": a frame of another conversation"),
        (lambda c: c.send(frame(50, b"guest")),
         PROTOCOL + ": a frame of another conversation"),
    ]

    def test_json(self):
        for script, detail in self.STAGES:
            with self.subTest(detail=detail):
                self.runner.on_run = script
                r = self.service.execute(language="py", code="")
                self.assert_error(r, 503, {"error": "sandbox_failed",
                                           "detail": detail})
                self.assertIn(r.headers["x-request-id"], self.service.log())

    def test_stream(self):
        for script, detail in self.STAGES:
            with self.subTest(detail=detail):
                self.runner.on_run = script
                r = self.service.execute(
                    json.dumps({"language": "py", "code": ""}),
                    {"Accept": "text/event-stream"})
                body = {"error": "sandbox_failed", "detail": detail}
                if r.status == 503:
                    self.assert_error(r, 503, body)
                    continue
                name, data = r.events()[-1]
                self.assertEqual((name, json.loads(data)), ("error", body))

    def test_status(self):
        for script in (lambda c: None, lambda c: c.send(b"\x05\0"),
                       lambda c: c.send(frame(fake_runner.STATUS_REPLY, b"x")),
                       lambda c: c.started()):
            self.runner.on_status = script
            r = self.service.request("GET", "/readyz")
            self.assertEqual((r.status, r.json()["ready"]), (503, False))
            self.assertIn("isobox-runner", r.json()["reason"])
            self.assertIn("isobox_runner_up 0", self.service.request(
                "GET", "/metrics").body.decode())


class SlowRunner(ServiceCase):
    settings = {"acquire_wait_ms": 0, "boot_timeout_ms": 1000}

    def test_readyz_gives_up(self):
        self.runner.on_status = lambda c: c.gone(10)
        begun = time.monotonic()
        r = self.service.request("GET", "/readyz")
        self.assertEqual((r.status, r.json()), (503, {
            "ready": False, "reason":
            "isobox-runner does not answer: Connection timed out"}))
        self.assertTrue(1.9 < time.monotonic() - begun < 3)

    def test_never_hangs(self):
        """No start: wait + boot + margin. No end: wall + margin."""
        silent = lambda c: c.gone(30)
        endless = lambda c: (c.started(), c.gone(30))
        answers = {}

        def ask(name, script, headers):
            begun = time.monotonic()
            r = self.service.execute(json.dumps(
                {"language": "py", "code": name,
                 "limits": {"wallTimeMs": 1000}}), headers)
            answers[name] = (r, time.monotonic() - begun)
        scripts = {b"silent": silent, b"endless": endless, b"stream": endless}
        self.runner.on_run = lambda c: scripts[c.job["files"][0][1]](c)
        threads = [threading.Thread(target=ask, args=(
            n.decode(), s, {"Accept": "text/event-stream"}
            if n == b"stream" else {})) for n, s in scripts.items()]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        late = {"error": "sandbox_failed",
                "detail": "isobox-runner does not answer in time"}
        for name, (r, seconds) in answers.items():
            self.assertTrue(5.9 < seconds < 8, (name, seconds))
            if name == "stream":
                self.assertEqual(json.loads(r.events()[-1][1]), late)
            else:
                self.assert_error(r, 503, late)


class ClientGone(ServiceCase):
    """A client that leaves ends its run within a second."""

    def leave(self, *how):
        took = again(lambda: self.leave_once(*how), lambda s: s < 1.0)
        self.assertLess(took, 1.0)

    def leave_once(self, headers, script_before, close):
        """Seconds until the runner hears of it."""
        times = []
        event = threading.Event()

        def script(c):
            script_before(c)
            event.set()
            times.append(c.gone(10))
            event.set()
        self.runner.on_run = script
        c = fcgi_client.Connection(self.service.socket)
        c.send(fcgi_client.message("POST", "/execute", json.dumps(
            {"language": "py", "code": ""}), headers))
        self.assertTrue(event.wait(5))
        event.clear()
        close(c)
        self.assertTrue(event.wait(11))
        c.close()
        self.assertEqual(len(times), 1)
        self.assertIsNotNone(times[0])
        return times[0]

    def test_closed(self):
        for headers in ({}, {"Accept": "text/event-stream"}):
            for before in (lambda c: None, lambda c: c.started(),
                           lambda c: (c.started(), c.stdout(b"x"))):
                self.leave(headers, before, lambda c: c.close())
                self.leave(headers, before,
                           lambda c: c.sock.shutdown(socket.SHUT_RDWR))

    def test_aborted(self):
        for headers in ({}, {"Accept": "text/event-stream"}):
            self.leave(headers, lambda c: c.started(), lambda c: c.send(
                fcgi_client.record(fcgi_client.ABORT)))

    def test_logged(self):
        self.leave({}, lambda c: c.started(), lambda c: c.close())
        self.service.wait_for(lambda: any(
            "clientGone" in e["flags"] and e["status"] == 499
            for e in self.service.access_log()), "log line")


class OneThread(ServiceCase):
    settings = {"threads": 1}

    def test_gone_before_its_turn(self):
        """A request whose client left while it waited starts no run."""
        running, end = threading.Event(), threading.Event()

        def script(c):
            running.set()
            end.wait(10)
            run_ok(c)
        self.runner.on_run = script
        message = fcgi_client.message("POST", "/execute", json.dumps(
            {"language": "py", "code": ""}))
        with fcgi_client.Connection(self.service.socket) as first:
            first.send(message)
            self.assertTrue(running.wait(5))
            with fcgi_client.Connection(self.service.socket) as c:
                c.send(message)
                time.sleep(0.2)  # it is in the queue
            end.set()
            self.assertEqual(first.response().status, 200)
        self.assertEqual(self.service.request("GET", "/healthz").status, 200)
        self.assertEqual(len(self.runner.calls), 1)


if __name__ == "__main__":
    unittest.main()
