# SPDX-License-Identifier: Apache-2.0
"""tools/isobox-run, what `make run` starts: ready through the front server, a
clear word about a port in use, two beside each other, and nothing left however
it ends."""

import glob
import os
import signal
import subprocess
import tempfile
import time
import unittest

from cgroups import TOOL, alive
from client import Client
from harness import REPO, free_port, wait_for

RUN = os.path.join(REPO, "tools", "isobox-run")
PARTS = ("RUNNER_PID", "FCGI_PID", "FRONT_PID")


class Started:
    """One isobox-run, prepared already: setup is tested by its being used."""

    def __init__(self, front="caddy", port=None, **env):
        self.port = port or free_port()
        self.folder = tempfile.TemporaryDirectory(prefix="isobox-test-run-")
        self.env_file = os.path.join(self.folder.name, "env")
        self.log = os.path.join(self.folder.name, "log")
        with open(self.log, "wb") as out:
            self.process = subprocess.Popen(
                [RUN, "--no-setup", "--env", self.env_file],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                env=dict(os.environ, FRONT=front, PORT=str(self.port), **env))
        self.info = {}

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def ready(self):
        wait_for("ready isobox-run",
                 lambda: os.path.exists(self.env_file)
                 or self.process.poll() is not None, 70)
        if self.process.poll() is not None:
            raise AssertionError(self.said())
        with open(self.env_file, encoding="utf-8") as f:
            self.info = dict(line.rstrip("\n").split("=", 1) for line in f)
        return self

    def pids(self):
        return [int(self.info[p]) for p in PARTS if self.info[p]]

    def wait(self):
        return self.process.wait(30)

    def left(self):
        """What of it is still there."""
        groups = subprocess.run([TOOL, "path", self.info["CGROUP"]],
                                check=True, capture_output=True, text=True)
        found = groups.stdout.split()
        found += [p for p in (self.info["RUN_DIR"], self.env_file)
                  if os.path.exists(p)]
        found += ["process %d" % p for p in self.pids() if alive(p)]
        return found

    def discard(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.wait()
        self.folder.cleanup()


class TestRun(unittest.TestCase):
    def start(self, *args, **env):
        started = Started(*args, **env)
        self.addCleanup(started.discard)
        return started

    def assert_nothing_left(self, started):
        wait_for("end of all parts", lambda: not started.left(), 10)
        with self.assertRaises(OSError):
            Client(("127.0.0.1", started.port), timeout=3).get("/healthz")

    def test_ctrl_c_leaves_nothing(self):
        for front in ("caddy", "apache", "lighttpd", "nginx", "cgi",
                      "cgi-lighttpd"):
            with self.subTest(front):
                started = self.start(front).ready()
                client = Client(("127.0.0.1", started.port))
                self.assertEqual(client.run("python-slim", "print(6 * 7)")
                                 ["stdout"], "42\n")
                self.assertIn("curl -s http://127.0.0.1:%d/execute"
                              % started.port, started.said())
                started.process.send_signal(signal.SIGINT)
                self.assertEqual(started.wait(), 0, started.said())
                self.assert_nothing_left(started)

    def test_end_during_a_run(self):
        started = self.start().ready()
        stream = Client(("127.0.0.1", started.port)).open_stream(
            "python-slim", "import time\nprint('up', flush=True)\n"
            "time.sleep(20)", limits={"wallTimeMs": 20000})
        next(e for e in stream.events() if e.name == "stdout")
        began = time.monotonic()
        started.process.send_signal(signal.SIGTERM)
        self.assertEqual(started.wait(), 0, started.said())
        self.assertLess(time.monotonic() - began, 15)
        stream.close()
        self.assert_nothing_left(started)

    def test_death_of_a_part_ends_all(self):
        for part in PARTS:
            with self.subTest(part):
                started = self.start("nginx").ready()
                os.kill(int(started.info[part]), signal.SIGKILL)
                self.assertEqual(started.wait(), 1)
                self.assertIn("%s has ended with status 137"
                              % part.split("_")[0].lower(), started.said())
                self.assert_nothing_left(started)

    def test_two_beside_each_other(self):
        first = self.start().ready()
        clash = self.start(port=first.port)
        self.assertEqual(clash.wait(), 1)
        self.assertIn("port %d is in use" % first.port, clash.said())
        second = self.start("lighttpd").ready()
        for started in (first, second):
            self.assertEqual(Client(("127.0.0.1", started.port)).run(
                "python-slim", "print(1)")["stdout"], "1\n")
        second.process.terminate()
        self.assertEqual(second.wait(), 0)
        self.assert_nothing_left(second)
        self.assertEqual(Client(("127.0.0.1", first.port)).run(
            "python-slim", "print(1)")["stdout"], "1\n")

    def test_killed_launcher(self):
        """Its parts end by themselves; the next one sweeps the rest."""
        started = self.start().ready()
        started.process.kill()
        started.wait()
        wait_for("end of all parts",
                 lambda: not any(alive(p) for p in started.pids()), 15)
        following = self.start().ready()
        self.assertIn("of a run that was killed", following.said())
        os.unlink(started.env_file)
        self.assert_nothing_left(started)

    def test_settings_and_keys(self):
        started = self.start(ISOBOX_API_KEY="the'key\"$x").ready()
        client = Client(("127.0.0.1", started.port))
        self.assertEqual(client.request("POST", "/execute", [], b"{}").status,
                         401)
        self.assertEqual(client.request(
            "POST", "/execute", [("X-API-Key", "the'key\"$x")],
            b"{}").json()["error"], "language_required")
        # The user that runs sandboxes never learns the key.
        with open("/proc/%s/environ" % started.info["RUNNER_PID"], "rb") as f:
            self.assertNotIn(b"API_KEY", f.read())

    def test_bad_settings(self):
        for name, value, want in (
                ("FRONT", "iis", "must be caddy"), ("BIND", "all", "IPv4"),
                ("ISOBOX_CONCURRENCY", "0", "1 to 256"),
                ("MEMORY", "1", "at least 256M")):
            with self.subTest(name):
                env = dict(os.environ, PORT=str(free_port()))
                env[name] = value
                done = subprocess.run([RUN, "--no-setup"], env=env, timeout=60,
                                      stdin=subprocess.DEVNULL, text=True,
                                      stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False)
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(want, done.stdout)

    def tearDown(self):
        """No run directory without a run."""
        for folder in glob.glob("/var/lib/isobox/run.??????"):
            with open(os.path.join(folder, "lock"), "ab") as lock:
                busy = subprocess.run(["flock", "-n", str(lock.fileno())],
                                      pass_fds=[lock.fileno()], check=False)
            self.assertNotEqual(busy.returncode, 0, folder + " was left")


if __name__ == "__main__":
    unittest.main()
