# SPDX-License-Identifier: Apache-2.0
"""Live kernels that misbehave: each ends, or lives on, as the API says and
within its time; nothing of it is left."""

import os
import signal
import unittest

from cgroups import children
from harness import wait_for
from kernel_case import Kernel, KernelCase

WALL = {"limits": {"wallTimeMs": 1000}}
# An interrupt's 2 s come on top of the wall time; the rest is a busy machine's.
LATE_S = 6


class EndsCase(KernelCase):
    settings = {"kernel_warm": 0, "kernel_mem_mb": 128, "warm": False}

    def tearDown(self):
        self.doCleanups()
        self.service.assert_clean(20)

    def ended(self, a, code, kernel, **run):
        """The answer of a step that ended so."""
        self.assertEqual((a["run"]["exitCode"], a["kernel"]), (code, kernel),
                         a)
        run = {"timedOut": False, "oomKilled": False, **run}
        self.assertEqual({k: a["run"][k] for k in run}, run, a)


class Time(EndsCase):
    def test_it_yields(self):
        k = self.kernel()
        self.good(k, "x = 1")
        for code in ("while True: pass", "import time; time.sleep(1e9)",
                     "import subprocess; subprocess.run(['sleep', '999'])",
                     "import threading; threading.Event().wait()",
                     "import asyncio; await asyncio.sleep(1e6)",
                     "input_ = open('/dev/zero', 'rb')\n"
                     "while input_.read(1 << 20): pass"):
            took, a = self.timed(k.step, code, **WALL)
            self.ended(a, 137, "alive", timedOut=True)
            self.assertTrue(1 <= took < LATE_S, (code, took))
            self.good(k, "print(x)", "1\n")

    def test_it_does_not(self):
        for code in ("while True:\n  try:\n    while True: pass\n"
                     "  except KeyboardInterrupt: pass",
                     "import signal\n"
                     "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                     "while True: pass",
                     # C code that looks at no signal
                     "import itertools; sum(itertools.repeat(1))",
                     "import os, signal; os.kill(os.getpid(), "
                     "signal.SIGSTOP); import time; time.sleep(99)"):
            with self.subTest(code):
                k = self.kernel()
                self.good(k, "open('kept', 'w').write('1')")
                took, a = self.timed(k.step, code, **WALL)
                if "SIGSTOP" in code and a["kernel"] == "alive":
                    continue  # it was woken by the interrupt
                self.ended(a, 137, "dead", timedOut=True)
                self.assertTrue(3 <= took < 3 + LATE_S, (code, took))
                self.assert_dead(k, "wall time")
                self.assertEqual(k.fs("GET", "kept").body, b"1")

    def test_in_a_stream(self):
        k = self.kernel()
        with k.stream("while True: pass", **WALL) as c:
            done = [e for e in c.events() if e.name][-1]
        self.ended(done.data, 137, "alive", timedOut=True)
        with k.stream("import itertools; sum(itertools.repeat(1))",
                      **WALL) as c:
            done = [e for e in c.events() if e.name][-1]
        self.ended(done.data, 137, "dead", timedOut=True)

    def test_a_client_that_leaves_what_does_not_yield(self):
        k = self.kernel()
        c = k.stream("print('on', flush=True)\n"
                     "import itertools; sum(itertools.repeat(1))",
                     limits={"wallTimeMs": 60000})
        try:
            next(e for e in c.events() if e.name == "stdout")
        finally:
            c.close()
        wait_for("its end", lambda: k.state() == "dead", 15)
        self.assert_dead(k, "client")


class Itself(EndsCase):
    def dies(self, code, want, **run):
        k = self.kernel()
        took, a = self.timed(k.step, code)
        self.ended(a, want, "dead", **run)
        self.assertLess(took, LATE_S)
        self.assert_dead(k)
        return a

    def test_ends(self):
        self.dies("import os; os._exit(3)", 3, signal=None)
        self.dies("import os; os._exit(0)", 0, signal=None)
        self.dies("import os; os.kill(os.getpid(), 9)", 137,
                  signal="SIGKILL")
        self.dies("import ctypes; ctypes.string_at(0)", 139,
                  signal="SIGSEGV")
        a = self.dies("import os; print('last', flush=True); os.abort()", 134,
                      signal="SIGABRT")
        self.assertEqual(a["run"]["stdout"], "last\n")

    def test_memory(self):
        a = self.dies("x = bytearray(1 << 30)\n"
                      "for i in range(0, 1 << 30, 4096): x[i] = 1", 137,
                      oomKilled=True)
        self.assertEqual(a["run"]["signal"], "SIGKILL")

    def test_between_steps(self):
        k = self.kernel()
        self.good(k, "import os, threading\n"
                     "threading.Timer(2, os._exit, (7,)).start()")
        wait_for("its end", lambda: k.state() == "dead", 20)
        self.assert_dead(k, "exit code 7")

    def test_a_forged_frame(self):
        k = self.kernel()
        a = k.step("import os; os.write(1022, b'\\xff' * 64)\n"
                   "import time; time.sleep(5)")
        self.assertEqual(a["kernel"], "dead")
        self.assert_dead(k)


class Output(EndsCase):
    def test_closed(self):
        k = self.kernel()
        for code in ("import os, sys\nos.close(1)", "sys.stdout.close()",
                     "sys.stderr.close()", "os.close(2); os.close(0)",
                     "sys.stdout = None"):
            self.assertEqual(k.step(code)["kernel"], "alive")
            self.good(k, "print('there', flush=True)", "there\n")

    def test_floods(self):
        k = self.kernel()
        took, a = self.timed(
            k.step, "for i in range(1000000): print('line', i)",
            limits={"wallTimeMs": 30000})
        self.ended(a, 0, "alive", truncated=True)
        self.assertEqual(len(a["run"]["stdout"]), 65536)
        a = k.step("while True: print('x' * 1000)", **WALL)
        self.ended(a, 137, "alive", timedOut=True, truncated=True)
        self.good(k, "print('after')", "after\n")

    def test_a_child_keeps_stdout(self):
        k = self.kernel()
        took, _ = self.timed(
            self.good, k, "import subprocess\n"
            "p = subprocess.Popen(['sleep', '1000'])\nprint('on')", "on\n")
        self.assertLess(took, LATE_S)
        self.good(k, "print(p.poll())", "None\n")

    def test_from_the_background(self):
        k = self.kernel()
        self.good(k, "import os, threading, time\ndef late():\n"
                     "  while not os.path.exists('go'): time.sleep(.05)\n"
                     "  print('late'); open('gone', 'w').close()\n"
                     "threading.Thread(target=late).start()")
        self.assertEqual(k.fs("PUT", "go", b"").status, 200)
        wait_for("what it prints", lambda: k.fs("GET", "gone").status == 200,
                 20)
        self.good(k, "print('now')", "late\nnow\n")

    def test_not_utf8(self):
        k = self.kernel()
        self.good(k, "import os; _ = os.write(1, b'a\\xffb')", "a\ufffdb")


class Processes(EndsCase):
    def test_a_fork_bomb(self):
        """The limit of processes holds; the service and others go on."""
        k = self.kernel()
        other = self.kernel()
        self.good(other, "y = 2")
        took, a = self.timed(
            k.step, "import os\nwhile True:\n  try: os.fork()\n"
            "  except OSError: pass", limits={"wallTimeMs": 2000})
        # Its time is over, or its copies have filled its memory.
        self.assertEqual(a["run"]["exitCode"], 137, a)
        self.assertNotEqual(a["run"]["timedOut"], a["run"]["oomKilled"], a)
        self.assertLess(took, 20)
        self.good(other, "print(y)", "2\n")

    def test_the_supervisor_is_killed(self):
        k = self.kernel()
        self.good(k, "x = 1")
        pid = self.supervisor()
        end = k.begin("import time; time.sleep(50)")
        wait_for("its step", lambda: k.look()["busy"])
        os.kill(pid, signal.SIGKILL)
        took, r = self.timed(end)
        self.assertLess(took, LATE_S)
        self.assertIn(r.status, (409, 503))
        self.assert_dead(k)

    def supervisor(self):
        """The runner's only child by now."""
        found, = children(self.service.runner.pid)
        return found


class Restarts(EndsCase):
    def test_of_the_web_side(self):
        """A kernel does not notice."""
        k = self.kernel()
        self.good(k, "x = 8")
        self.service.fcgi.terminate()
        self.service.fcgi.wait()
        self.service.start_fcgi()
        self.service.wait_ready()
        self.good(k, "print(x)", "8\n")

    def restart_runner(self, number):
        self.service.runner.send_signal(number)
        self.service.runner.wait()
        self.service.start_runner()
        self.service.wait_ready()
        self.service.baseline = self.service.snapshot()

    def test_of_the_runner(self):
        """It has put its kernels on disk."""
        k = self.kernel()
        self.good(k, "x = 9")
        self.restart_runner(signal.SIGTERM)
        self.assertEqual(k.state(), "hibernated")
        self.good(k, "print(x)", "9\n")

    def test_of_a_runner_that_was_killed(self):
        """What was in memory only is dead and says so; no other interpreter
        takes its place."""
        k = self.kernel()
        self.good(k, "x = 9; open('f', 'w').write('1')")
        self.restart_runner(signal.SIGKILL)
        self.assert_dead(k, "restarted")
        self.assertEqual(k.fs("GET", "f").body, b"1")
        self.good(self.kernel(), "print('x' in globals())", "False\n")

    def test_the_sweep_ends_what_has_expired(self):
        import sqlite3
        k = Kernel(self.client)
        db = sqlite3.connect(self.service.path("state", "isobox.db"),
                             timeout=10)
        with db:
            db.execute("UPDATE sessions SET expires_ms = 1 WHERE id = ?",
                       (k.id,))
        db.close()
        self.error(k.post("/exec", code=""), 404, "session_not_found")
        os.utime(self.service.path("state", "sweep.lock"), (1, 1))
        self.service.fcgi.terminate()
        self.service.fcgi.wait()
        self.service.start_fcgi()
        self.service.wait_ready()


if __name__ == "__main__":
    unittest.main()
