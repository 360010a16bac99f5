# SPDX-License-Identifier: Apache-2.0
"""POST /execute as a stream of events."""

import base64
import json
import threading
import time
import unittest

import fcgi_client
from again import again
from fake_runner import STDERR, STDOUT, frame, run_ok
from service import ServiceCase

SSE = {"Accept": "text/event-stream"}


class Stream(ServiceCase):
    def message(self, uri="/execute", headers=SSE, **members):
        return fcgi_client.message("POST", uri, json.dumps(
            {"language": "python", "code": "", **members}), headers)

    def run_script(self, script, **kw):
        self.runner.on_run = script
        return fcgi_client.send_raw(self.service.socket, self.message(**kw))

    def chunks(self, response, name):
        return [json.loads(data)["chunk"]
                for event, data in response.events() if event == name]

    def test_exact(self):
        r = self.run_script(lambda c: run_ok(c, b"he", b"oops\n", exit_code=3))
        self.assertEqual(r.status, 200)
        self.assert_common(r)
        self.assertEqual(r.headers["content-type"], "text/event-stream")
        self.assertEqual(r.headers["x-accel-buffering"], "no")
        self.assertNotIn("content-length", r.headers)
        self.assertEqual(
            r.body.decode(),
            ': \n\n'
            'event: stdout\ndata: {"chunk":"he"}\n\n'
            'event: stderr\ndata: {"chunk":"oops\\n"}\n\n'
            ': server-timing queue;dur=0.000, boot;dur=0.000, '
            'run;dur=214.000\n\n'
            'event: done\n'
            'data: {"language":"python","version":"3.14-agent",'
            '"backend":"gvisor","run":{"stdout":"he","stderr":"oops\\n",'
            '"exitCode":3,"timedOut":false,"oomKilled":false,'
            '"truncated":false,"durationMs":214,"network":true,'
            '"signal":null,"cpuTimeMs":30,"memoryPeakBytes":null}}\n\n')

    def test_who_asks_for_it(self):
        self.runner.on_run = run_ok
        for uri, accept, wanted in (
                ("/execute", "text/event-stream", True),
                ("/execute", "application/json, Text/Event-Stream;q=0.1",
                 True),
                ("/execute?stream=1", "*/*", True),
                ("/execute?a=b&stream=1&c", "*/*", True),
                ("/execute?stream=%31", "*/*", True),
                ("/execute?stream=0", "*/*", False),
                ("/execute?stream", "*/*", False),
                ("/execute?stream=11", "*/*", False),
                ("/execute?xstream=1", "*/*", False),
                ("/execute?stream=0&stream=1", "*/*", False),
                ("/execute", "*/*", False),
                ("/execute", "text/event", False)):
            with self.subTest(uri=uri, accept=accept):
                r = fcgi_client.send_raw(self.service.socket, self.message(
                    uri, {"Accept": accept}))
                self.assertEqual(r.headers["content-type"],
                                 "text/event-stream" if wanted
                                 else "application/json")

    def test_errors_before_the_start_are_plain(self):
        r = self.run_script(lambda c: c.fail("capacity", 3))
        self.assert_error(r, 429, {"error": "capacity",
                                   "detail": "no free execution slot"})
        self.assertEqual(r.headers["retry-after"], "3")

    def test_error_after_the_start(self):
        r = self.run_script(lambda c: (c.started(), c.stdout(b"x"), c.fail(
            "sandbox_failed", 0, "the sandbox died")))
        self.assertEqual(r.status, 200)
        self.assertEqual(r.events(), [
            ("stdout", '{"chunk":"x"}'),
            ("error", '{"error":"sandbox_failed",'
             '"detail":"the sandbox died"}')])

    def chunk_lags(self):
        """Seconds from each write of a run's to its event."""
        go = threading.Semaphore(0)
        sent, lags = [], []

        def script(c):
            go.acquire()
            c.started()
            for i in range(5):
                go.acquire()
                sent.append(time.monotonic())
                c.stdout(b"%d" % i)
            go.acquire()
            c.done()
        self.runner.on_run = script
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(self.message())
            pieces = c.pieces()
            go.release()
            head = next(pieces)
            self.assertIn(b"text/event-stream", head)
            self.assertTrue(head.endswith(b"\r\n\r\n: \n\n"), head)
            for i in range(5):
                go.release()
                piece = b": \n\n"
                while piece == b": \n\n":
                    piece = next(pieces)
                lags.append(time.monotonic() - sent[i])
                self.assertEqual(
                    piece, b'event: stdout\ndata: {"chunk":"%d"}\n\n' % i)
            go.release()
            self.assertIn(b"event: done", b"".join(pieces))
            self.assertTrue(c.whole)
        return lags

    def test_headers_and_chunks_come_at_once(self):
        lags = again(self.chunk_lags, lambda lags: max(lags) < 0.1)
        self.assertLess(max(lags), 0.1)

    def test_what_comes_together_is_one_event(self):
        def script(c):
            c.started()
            c.send(*[frame(STDOUT, b"%d" % i) for i in range(9)],
                   frame(STDERR, b"e"), frame(STDOUT, b"z"))
            c.done()
        r = self.run_script(script)
        self.assertEqual("".join(self.chunks(r, "stdout")), "012345678z")
        self.assertLess(len(self.chunks(r, "stdout")), 6)
        order = [name for name, _ in r.events()]
        self.assertEqual(order[-1], "done")
        self.assertLess(order.index("stderr"),
                        len(order) - 1 - order[::-1].index("stdout"))

    def test_whole_characters(self):
        text = "a\u00e9\u20ac\U0001f600" * 3
        raw = text.encode()

        def script(c):
            c.started()
            for i in range(len(raw)):
                c.stdout(raw[i:i + 1])
                c.stderr(raw[i:i + 1])
                time.sleep(0.002)
            c.done()
        r = self.run_script(script)
        for name in ("stdout", "stderr"):
            chunks = self.chunks(r, name)
            self.assertEqual("".join(chunks), text)
            self.assertNotIn("\ufffd", "".join(chunks))

    def test_bytes_that_are_no_text(self):
        for cut, end in ((False, "\ufffd"), (True, "")):
            def script(c):
                c.started()
                c.stdout(b"a\xff")
                c.stdout(b"\xe2\x82")
                c.done(cut_out=cut)
            r = self.run_script(script)
            self.assertEqual("".join(self.chunks(r, "stdout")),
                             "a\ufffd" + end)
            done = json.loads(r.events()[-1][1])
            self.assertEqual(done["run"]["stdout"], "a\ufffd" + end)

    def test_base64(self):
        raw = bytes(range(256))

        def script(c):
            c.started()
            for i in range(0, 256, 7):
                c.stdout(raw[i:i + 7])
                time.sleep(0.001)
            c.done()
        r = again(lambda: self.run_script(script, outputEncoding="base64"),
                  lambda r: len(self.chunks(r, "stdout")) > 1)
        chunks = self.chunks(r, "stdout")
        self.assertGreater(len(chunks), 1)
        self.assertEqual(b"".join(base64.b64decode(c, validate=True)
                                  for c in chunks), raw)
        done = json.loads(r.events()[-1][1])
        self.assertEqual(base64.b64decode(done["run"]["stdout"]), raw)

    def test_newlines_stay_inside(self):
        evil = b"\n\nevent: done\ndata: {}\n\n: \r\n\r"
        r = self.run_script(lambda c: run_ok(c, evil))
        self.assertEqual([name for name, _ in r.events()],
                         ["stdout", "done"])
        self.assertEqual(self.chunks(r, "stdout"), [evil.decode()])

    def gaps(self, script, seconds):
        """How often each third write comes, in a stream of so many seconds."""
        self.runner.on_run = script
        stamps = []
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(self.message())
            begun = time.monotonic()
            for _ in c.pieces():
                stamps.append(time.monotonic())
                if stamps[-1] - begun > seconds:
                    break
        self.assertGreater(len(stamps), 3)
        return [b - a for a, b in zip(stamps, stamps[3:])]

    def test_comments_tell_of_a_client_that_left(self):
        """Behind Caddy the third write tells, so three come in any 0.7 s,
        whether the program is silent or prints now and then."""
        def silent(c):
            c.started()
            c.gone(10)

        def slow(c):
            c.started()
            for _ in range(8):
                time.sleep(0.4)
                c.stdout(b"x")
            c.gone(10)
        for script in (silent, slow):
            widest = again(lambda s=script: max(self.gaps(s, 3)),
                           lambda gap: gap < 0.75)
            self.assertLess(widest, 0.75)

    def test_much_output(self):
        """No event is lost when the client reads slowly."""
        data = b"0123456789abcdef" * 4096

        def script(c):
            c.started()
            for i in range(0, len(data), 1000):
                c.stdout(data[i:i + 1000])
            c.done()
        self.runner.on_run = script
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(self.message())
            time.sleep(0.5)
            r = c.response()
        self.assertEqual("".join(self.chunks(r, "stdout")), data.decode())


if __name__ == "__main__":
    unittest.main()
