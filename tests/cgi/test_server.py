# SPDX-License-Identifier: Apache-2.0
"""Starting, ending, sockets, connections: the service as a process."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
import time
import unittest

import fcgi_client
from fake_runner import run_ok
from service import PROGRAM, Service, ServiceCase

BODY = '{"language":"python","code":""}'


def run(*argv, env=None, stdin=subprocess.DEVNULL):
    return subprocess.run([PROGRAM, *argv], env=env or {}, text=True,
                          stdin=stdin, capture_output=True, timeout=30)


class CommandLine(unittest.TestCase):
    def test_help(self):
        r = run("--help")
        self.assertEqual((r.returncode, r.stderr), (0, ""))
        self.assertIn("usage: isobox.fcgi", r.stdout)

    def test_version(self):
        r = run("--version")
        self.assertEqual(r.returncode, 0)
        self.assertRegex(r.stdout, r"\Aisobox\.fcgi \d+\.\d+\.\d+\S*\n\Z")

    def test_usage_errors(self):
        for argv in ([], ["--nonsense"], ["x"], ["--listen"],
                     ["--socket-mode", "9", "--listen", "/tmp/x"],
                     ["--socket-mode", "1777", "--listen", "/tmp/x"],
                     ["--socket-mode", "", "--listen", "/tmp/x"],
                     ["--config", "/dev/null", "x"]):
            r = run(*argv)
            self.assertEqual((r.returncode, r.stdout), (2, ""), argv)
            self.assertIn("usage: isobox.fcgi", r.stderr)

    def test_check_config(self):
        s = Service(api_key="SECRET", rate_per_min=30)
        try:
            r = run("--config", s.config, "--check-config")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("runner_socket", r.stdout)
            self.assertIn("lost 1 is not offered", r.stderr)
            self.assertNotIn("SECRET", r.stdout + r.stderr)
            # It may be asked by root: it must leave no file of root's.
            self.assertEqual(os.listdir(s.path("state")), [])
            self.assertFalse(os.path.exists(s.path("access.log")))
            s.write("isobox.yaml", "threads: 0\n")
            r = run("--config", s.config, "--check-config")
            self.assertEqual(r.returncode, 1)
            self.assertIn("isobox.yaml:1", r.stderr)
            self.assertIn("threads", r.stderr)
        finally:
            s.close()


class Socket(unittest.TestCase):
    def setUp(self):
        self.service = Service()

    def tearDown(self):
        self.service.close()

    def alive(self):
        return self.service.request("GET", "/healthz").status == 200

    def test_mode_and_removal(self):
        for more, mode in (([], 0o660), (["--socket-mode", "600"], 0o600),
                           (["--socket-mode", "0666"], 0o666)):
            self.service.start("--listen", self.service.socket, *more)
            found = os.stat(self.service.socket)
            self.assertTrue(stat.S_ISSOCK(found.st_mode))
            self.assertEqual(stat.S_IMODE(found.st_mode), mode)
            self.assertTrue(self.alive())
            self.assertEqual(self.service.stop(), 0)
            self.assertFalse(os.path.exists(self.service.socket))
            self.assertEqual([f for f in os.listdir(self.service.base)
                              if f.startswith("fcgi.sock")], [])

    def test_left_by_a_dead_process(self):
        self.service.start()
        self.service.process.kill()
        self.service.process.wait()
        self.assertTrue(os.path.exists(self.service.socket))
        before = os.stat(self.service.socket).st_ino
        self.service.process = None
        self.service.start()
        self.service.wait_for(lambda: os.stat(self.service.socket).st_ino !=
                              before, "socket of its own")
        self.assertTrue(self.alive())

    def test_not_anothers(self):
        self.service.start()
        r = run("--config", self.service.config, "--listen",
                self.service.socket)
        self.assertEqual(r.returncode, 1)
        self.assertIn("another process listens there", r.stderr)
        self.assertTrue(self.alive())

    def test_not_a_socket(self):
        path = self.service.write("file", "precious")
        r = run("--config", self.service.config, "--listen", path)
        self.assertEqual(r.returncode, 1)
        self.assertIn("no socket", r.stderr)
        with open(path) as f:
            self.assertEqual(f.read(), "precious")
        for path, text in (("/nonexistent/x", "No such file"),
                           ("/tmp/" + "a" * 200, "1 to 107 bytes"),
                           ("", "1 to 107 bytes")):
            r = run("--config", self.service.config, "--listen", path)
            self.assertEqual(r.returncode, 1)
            self.assertIn(text, r.stderr)

    def test_inherited(self):
        with socket.socket(socket.AF_UNIX) as l:
            l.bind(self.service.socket)
            l.listen(5)
            self.service.start("--config", self.service.config, stdin=l)
        self.assertTrue(self.alive())
        self.assertEqual(self.service.request(
            "POST", "/execute", BODY).status, 200)
        self.assertEqual(self.service.stop(), 0)
        with self.assertRaises(ConnectionRefusedError):
            self.alive()

    def test_inherited_whatever_the_environment_says(self):
        self.service.env = {"GATEWAY_INTERFACE": "CGI/1.1"}
        with socket.socket(socket.AF_UNIX) as l:
            l.bind(self.service.socket)
            l.listen(5)
            self.service.start("--config", self.service.config, stdin=l)
        self.assertTrue(self.alive())

    def test_shared_by_two_processes(self):
        with socket.socket(socket.AF_UNIX) as l:
            l.bind(self.service.socket)
            l.listen(64)
            self.service.start("--config", self.service.config, stdin=l)
            other = subprocess.Popen(self.service.argv(), stdin=l,
                                     stderr=subprocess.DEVNULL, env={})
        for _ in range(100):
            self.assertTrue(self.alive())
        other.terminate()
        self.assertEqual(other.wait(20), 0)
        for _ in range(20):
            self.assertTrue(self.alive())

    def test_not_tcp(self):
        with socket.socket() as l:
            l.bind(("127.0.0.1", 0))
            l.listen(5)
            r = run("--config", self.service.config, stdin=l)
        self.assertEqual(r.returncode, 1)
        self.assertIn("not a unix socket", r.stderr)


class Connections(ServiceCase):
    settings = {"threads": 2}

    def test_kept_open(self):
        with fcgi_client.Connection(self.service.socket) as c:
            for i in range(200):
                r = c.request("GET", "/healthz", flags=1, request_id=i + 1)
                self.assertEqual((r.status, r.whole), (200, True))
            r = c.request("POST", "/execute", BODY, flags=1)
            self.assertEqual(r.status, 200)
            r = c.request("GET", "/nope")  # without the flag: the last
            self.assertEqual(r.status, 404)
            self.assertIsNone(c.read_record())

    def test_closed_unless_kept(self):
        with fcgi_client.Connection(self.service.socket) as c:
            self.assertEqual(c.request("GET", "/healthz").status, 200)
            self.assertIsNone(c.read_record())

    def test_idle_ones_hold_no_thread(self):
        """Many more open connections than threads, idle and half-sent."""
        idle = [fcgi_client.Connection(self.service.socket)
                for _ in range(60)]
        half = fcgi_client.message("GET", "/healthz")
        for i, c in enumerate(idle):
            if i % 3 == 0:
                c.request("GET", "/healthz", flags=1)
            elif i % 3 == 1:
                c.send(half[:i])
        begun = time.monotonic()
        for _ in range(50):
            self.assertEqual(self.service.request("GET", "/healthz").status,
                             200)
        self.assertLess(time.monotonic() - begun, 10)
        for i, c in enumerate(idle):
            if i % 3 == 1:
                c.send(half[i:])
                self.assertEqual(c.response().status, 200)
            c.close()

    def test_pipelined(self):
        """No web server does it, but the answers must not get lost."""
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(b"".join(fcgi_client.message(
                "GET", "/healthz" if i % 2 else "/nope", flags=1,
                request_id=i + 1) for i in range(20)))
            for i in range(20):
                self.assertEqual(c.response().status, 200 if i % 2 else 404)

    def test_who_reads_nothing_does_not_stop_the_others(self):
        """Liveness is answered by the thread that all depend on."""
        with fcgi_client.Connection(self.service.socket) as deaf:
            deaf.sock.settimeout(0.5)
            try:
                for _ in range(2000):
                    deaf.send(fcgi_client.message("GET", "/healthz", flags=1))
            except TimeoutError:
                pass
            begun = time.monotonic()
            for uri in ("/healthz", "/runtimes"):
                self.assertEqual(self.service.request("GET", uri).status, 200)
            self.assertLess(time.monotonic() - begun, 10)

    def test_byte_by_byte(self):
        data = fcgi_client.message("POST", "/execute", BODY)
        with fcgi_client.Connection(self.service.socket) as c:
            for i in range(len(data)):
                c.send(data[i:i + 1])
            self.assertEqual(c.response().status, 200)

    def test_small_records_and_padding(self):
        for padding in (0, 1, 255):
            params = b"".join(fcgi_client.pair(*p) for p in
                              fcgi_client.variables("POST", "/execute", BODY))
            data = fcgi_client.begin()
            for kind, content in ((fcgi_client.PARAMS, params),
                                  (fcgi_client.STDIN, BODY.encode())):
                for i in range(0, len(content), 3):
                    data += fcgi_client.record(kind, content[i:i + 3],
                                               padding=padding)
                data += fcgi_client.record(kind, padding=padding)
            r = fcgi_client.send_raw(self.service.socket, data)
            self.assertEqual(r.status, 200)

    def test_many_at_once(self):
        """More connections than are allowed: all are served."""
        results = []
        lock = threading.Lock()

        def ask():
            r = [self.service.request("GET", "/healthz").status
                 for _ in range(10)]
            with lock:
                results.extend(r)
        idle = [fcgi_client.Connection(self.service.socket)
                for _ in range(1000)]
        for c in idle[:50]:
            c.request("GET", "/healthz", flags=1)
        threads = [threading.Thread(target=ask) for _ in range(100)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for c in idle:
            c.close()
        self.assertEqual(results, [200] * 1000)

    def test_all_threads_busy_then_free(self):
        """Others wait; whether it lives is told all the same."""
        go = threading.Event()
        self.runner.on_run = lambda c: (go.wait(30), run_ok(c))
        busy = [fcgi_client.Connection(self.service.socket)
                for _ in range(10)]
        for c in busy:
            c.send(fcgi_client.message("POST", "/execute", BODY))
        self.service.wait_for(lambda: len(self.runner.calls) == 2,
                              "two at work")
        with fcgi_client.Connection(self.service.socket) as c:
            c.send(fcgi_client.message("GET", "/runtimes"))
            self.assertEqual(self.service.request("GET", "/healthz?").status,
                             200)
            c.sock.settimeout(0.5)
            with self.assertRaises(TimeoutError):
                c.sock.recv(1)
            go.set()
            c.sock.settimeout(10)
            self.assertEqual(c.response().status, 200)
        for c in busy:
            self.assertEqual(c.response().status, 200)
            c.close()


class Descriptors(unittest.TestCase):
    def test_when_they_run_out(self):
        s = Service(threads=4)
        try:
            with open(s.path("log"), "ab") as log:
                s.process = subprocess.Popen(
                    ["sh", "-c", "ulimit -n 60; exec \"$@\"", "sh",
                     *s.argv("--listen", s.socket)], stdin=subprocess.DEVNULL,
                    stderr=log, env={})
            s.wait_for(lambda: os.path.exists(s.socket), "socket")
            many = [fcgi_client.Connection(s.socket) for _ in range(100)]
            many[0].send(fcgi_client.message("GET", "/healthz"))
            self.assertEqual(many[0].response().status, 200)
            s.wait_for(lambda: "accept: Too many open files" in s.log(),
                       "warning")
            time.sleep(0.3)
            with open("/proc/%d/stat" % s.process.pid) as f:
                before = sum(map(int, f.read().split()[13:15]))
            time.sleep(1)
            with open("/proc/%d/stat" % s.process.pid) as f:
                after = sum(map(int, f.read().split()[13:15]))
            self.assertLess(after - before, 30)  # of 100 ticks: no busy loop
            for c in many:
                c.close()
            self.assertEqual(s.request("GET", "/healthz").status, 200)
        finally:
            s.close()


class Ending(unittest.TestCase):
    def setUp(self):
        self.service = Service(boot_timeout_ms=60000)
        self.service.start()
        self.go, self.started = threading.Event(), threading.Event()

        def script(c):
            c.started()
            self.started.set()
            self.go.wait(60)
            c.done()
        self.service.runner.on_run = script

    def tearDown(self):
        self.go.set()
        self.service.close()

    def run_one(self, headers=()):
        c = fcgi_client.Connection(self.service.socket)
        c.send(fcgi_client.message("POST", "/execute", BODY, headers))
        self.assertTrue(self.started.wait(5))
        return c

    def refused(self):
        with socket.socket(socket.AF_UNIX) as s:
            return s.connect_ex(self.service.socket) != 0

    def test_idle_ends_at_once(self):
        with fcgi_client.Connection(self.service.socket) as kept:
            kept.request("GET", "/healthz", flags=1)
            begun = time.monotonic()
            self.assertEqual(self.service.stop(), 0)
            self.assertLess(time.monotonic() - begun, 10)
            self.assertIsNone(kept.read_record())

    def test_requests_finish(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self.go.clear()
            json_one = self.run_one()
            stream = self.run_one({"Accept": "text/event-stream"})
            with fcgi_client.Connection(self.service.socket) as half:
                message = fcgi_client.message("GET", "/healthz", flags=1)
                half.send(message[:50])
                time.sleep(0.1)
                self.service.signal(number)
                self.service.wait_for(self.refused, "refusal")
                half.send(message[50:])
                self.assertEqual(half.response().status, 200)
                self.assertIsNone(half.read_record())  # not kept open
            self.assertIsNone(self.service.process.poll())
            self.go.set()
            self.assertEqual(json_one.response().status, 200)
            self.assertEqual(stream.response().events()[-1][0], "done")
            json_one.close()
            stream.close()
            self.assertEqual(self.service.process.wait(5), 0)
            self.service.process = None
            self.service.start()

    def test_second_signal_ends_at_once(self):
        c = self.run_one()
        self.service.signal(signal.SIGTERM)
        self.service.wait_for(self.refused, "refusal")
        self.service.signal(signal.SIGTERM)
        self.assertEqual(self.service.process.wait(5), 1)
        self.assertIn("1 requests are cut off", self.service.log())
        self.assertIsNone(c.response())
        c.close()

    def test_thirty_seconds_at_most(self):
        self.service.runner.on_run = lambda c: (self.started.set(),
                                                c.gone(60))
        c = self.run_one()
        begun = time.monotonic()
        self.service.signal(signal.SIGTERM)
        self.assertEqual(self.service.process.wait(40), 1)
        self.assertTrue(29.5 < time.monotonic() - begun < 33)
        c.close()

    def test_killed_and_started_again(self):
        c = self.run_one()
        self.service.process.kill()
        self.service.process.wait()
        c.close()
        self.service.process = None
        os.unlink(self.service.socket)
        self.service.start()
        self.assertEqual(self.service.request("GET", "/healthz").status, 200)


class MuteRunner(ServiceCase):
    """One that takes connections and says nothing: /healthz, which tells how
    many kernels there are, waits for it, and nobody else does."""

    def test_liveness_holds_nobody_up(self):
        end = threading.Event()
        self.addCleanup(end.set)
        self.runner.on_status = lambda call: end.wait(20)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(
            self.service.request("GET", "/healthz"))) for _ in range(40)]
        begun = time.monotonic()
        for t in threads:
            t.start()
        self.assertEqual(
            self.service.request("GET", "/runtimes").status, 200)
        for t in threads:
            t.join()
        # One after the other they would take 20 s.
        self.assertLess(time.monotonic() - begun, 8)
        self.assertEqual({(a.status, a.json()["kernels"]["used"])
                          for a in answers}, {(200, None)})


class Small(ServiceCase):
    """The default number of threads, idle and after work."""

    def rss_kib(self):
        with open("/proc/%d/status" % self.service.process.pid) as f:
            return int(next(l for l in f if l.startswith("VmRSS"))
                       .split()[1])

    def test_memory(self):
        if shutil.which("nm") and "asan" in subprocess.run(
                ["nm", "-D", PROGRAM], capture_output=True,
                text=True).stdout:
            self.skipTest("a sanitizer needs memory of its own")
        self.assertLess(self.rss_kib(), 12 * 1024)
        big = '{"language":"python","code":"%s"}' % ("x" * 250000)
        self.runner.on_run = lambda c: run_ok(c, b"\0" * 65536)
        for _ in range(10):
            for c in [self.hold(big) for _ in range(64)]:
                self.assertEqual(c.response().status, 200)
                c.close()
        self.service.wait_for(lambda: self.rss_kib() < 14 * 1024,
                              "memory given back", 15)

    def hold(self, body):
        c = fcgi_client.Connection(self.service.socket)
        c.send(fcgi_client.message("POST", "/execute", body))
        return c


if __name__ == "__main__":
    unittest.main()
