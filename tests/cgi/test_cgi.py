# SPDX-License-Identifier: Apache-2.0
"""isobox.fcgi as a plain CGI program: environment and standard input in, an
answer on standard output."""

import json
import os
import socket
import subprocess
import threading
import time
import unittest

import fcgi_client
from again import again
from fake_runner import run_ok
from service import PROGRAM, Service

BODY = json.dumps({"language": "python", "code": "print(1)"})


class Cgi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service()
        cls.runner = cls.service.runner

    @classmethod
    def tearDownClass(cls):
        cls.service.close()

    def setUp(self):
        self.runner.reset()
        self.runner.calls.clear()

    def test_get(self):
        r = self.service.cgi()
        self.assertEqual((r.returncode, r.status, r.json()["status"]),
                         (0, 200, "ok"))
        self.assertTrue(r.raw.startswith(b"Status: 200 OK\r\n"))
        self.assertEqual(len(r.headers["x-request-id"]), 22)

    def test_routes(self):
        for method, uri, status in (
                ("GET", "/runtimes", 200), ("GET", "/readyz", 200),
                ("GET", "/metrics", 200), ("GET", "/nope", 404),
                ("GET", "/execute", 405), ("OPTIONS", "/x", 204),
                ("GET", "/%", 400)):
            self.assertEqual(self.service.cgi(method, uri).status, status)
        head = self.service.cgi("HEAD", "/healthz")
        self.assertEqual((head.status, head.body), (200, b""))

    def test_execute(self):
        self.runner.on_run = lambda c: run_ok(c, b"1\n")
        r = self.service.cgi("POST", "/execute", BODY)
        self.assertEqual((r.status, r.json()["run"]["stdout"]), (200, "1\n"))
        self.assertEqual(self.runner.calls[0]["files"],
                         [(b"main.py", b"print(1)")])

    def test_stream(self):
        self.runner.on_run = lambda c: run_ok(c, b"1\n")
        r = self.service.cgi("POST", "/execute", BODY,
                             {"Accept": "text/event-stream"})
        self.assertEqual([n for n, _ in r.events()], ["stdout", "done"])

    def test_body_lengths(self):
        for length, stdin, status, calls in (
                (len(BODY), BODY + "trailing", 200, 1),
                (None, BODY, 200, 1), ("", BODY, 200, 1),
                ("-1", BODY, 200, 1), (len(BODY), BODY[:-1], 400, 0),
                (0, BODY, 400, 0), (300000, BODY + " " * 300000, 400, 0),
                (None, BODY + " " * 300000, 400, 0)):
            with self.subTest(length=length, sent=len(stdin)):
                self.runner.calls.clear()
                r = self.service.cgi("POST", "/execute", stdin=stdin.encode(),
                                     extra=[("CONTENT_LENGTH", length)])
                self.assertEqual((r.status, len(self.runner.calls)),
                                 (status, calls), r)

    def test_a_get_does_not_wait_for_input(self):
        env = {"ISOBOX_CONFIG": self.service.config,
               **{k: str(v) for k, v in fcgi_client.variables(
                   "GET", "/healthz")}}
        with subprocess.Popen([PROGRAM], env=env, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as p:
            out = p.stdout.read()
            self.assertEqual(p.wait(10), 0)
        self.assertIn(b"200 OK", out)

    def test_arguments_are_the_clients(self):
        """A query without "=" arrives as arguments: they mean nothing."""
        for argv in (["--check-config"], ["--config", "/etc/passwd"],
                     ["--help"], ["--listen", self.service.path("evil")],
                     ["--nonsense"], ["x"]):
            r = self.service.cgi(argv=argv)
            self.assertEqual((r.returncode, r.status), (0, 200), argv)
        self.assertFalse(os.path.exists(self.service.path("evil")))

    def test_proxy_is_the_clients(self):
        r = self.service.cgi("POST", "/execute", BODY,
                             {"Proxy": "http://192.0.2.1:1"})
        self.assertEqual(r.status, 200)

    def test_log_has_no_secret(self):
        self.service.cgi("POST", "/execute?token=SECRET", BODY)
        self.assertNotIn("SECRET", json.dumps(self.service.access_log()))
        self.assertEqual(self.service.access_log()[-1]["path"], "/execute")

    def leave(self, stdout_of, headers):
        """Seconds from the reader's leaving to the end of the run."""
        begun, times = threading.Event(), []
        ended = threading.Event()

        def script(c):
            c.started()
            begun.set()
            times.append(c.gone(10))
            ended.set()
        self.runner.on_run = script
        env = {"ISOBOX_CONFIG": self.service.config,
               **{k: str(v) for k, v in fcgi_client.variables(
                   "POST", "/execute", BODY, headers)}}
        ours, theirs = stdout_of()
        with subprocess.Popen([PROGRAM], env=env, stdin=subprocess.PIPE,
                              stdout=theirs) as p:
            theirs.close()
            p.stdin.write(BODY.encode())
            p.stdin.close()
            self.assertTrue(begun.wait(10))
            time.sleep(0.1)
            ours.close()
            self.assertTrue(ended.wait(11))
            p.wait(10)
        self.assertIsNotNone(times[0])
        return times[0]

    def test_client_gone(self):
        def pipe():
            r, w = os.pipe()
            return os.fdopen(r, "rb"), os.fdopen(w, "wb")
        for kind in (pipe, socket.socketpair):
            for headers in ({}, {"Accept": "text/event-stream"}):
                took = again(lambda: self.leave(kind, headers),
                             lambda s: s < 1.2)
                self.assertLess(took, 1.2)

    def test_half_closed_is_not_gone(self):
        """mod_cgid shuts its side down when it has sent the body."""
        def script(c):
            c.started()
            time.sleep(1)
            c.done()
        self.runner.on_run = script
        env = {"ISOBOX_CONFIG": self.service.config,
               **{k: str(v) for k, v in fcgi_client.variables(
                   "POST", "/execute", BODY)}}
        ours, theirs = socket.socketpair()
        with subprocess.Popen([PROGRAM], env=env, stdin=theirs,
                              stdout=theirs) as p:
            theirs.close()
            ours.sendall(BODY.encode())
            ours.shutdown(socket.SHUT_WR)
            out = b""
            while True:
                data = ours.recv(65536)
                if not data:
                    break
                out += data
            self.assertEqual(p.wait(10), 0)
        ours.close()
        self.assertEqual(fcgi_client.Response(out).status, 200)


if __name__ == "__main__":
    unittest.main()
