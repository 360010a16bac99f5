# SPDX-License-Identifier: Apache-2.0
"""Live kernels of the runner: created, stepped, interrupted, dead. Spoken to
directly, as isobox.fcgi does."""

import threading
import time
import unittest

import livekernel
import workspaces
from harness import Service, wait_for
from livekernel import ALIVE, DEAD, Kernel
from workspaces import Refused, Workspace


def setUpModule():
    global service, socket_path, versions
    # The runner alone: isobox.fcgi removes sessions that it does not know.
    # "0": these tests, which are root, may speak to it.
    service = Service("caddy", allowed_users=["0"], warm=False,
                      session_disk_mb=64, vol_disk_mb=32, min_free_disk_gb=1,
                      kernel_mem_mb=256, kernel_slots=3, concurrency=4,
                      kernel_max_step_ms=10000, acquire_wait_ms=500)
    unittest.addModuleCleanup(service.stop)
    socket_path = service.settings["runner_socket"]
    service.start_runner()
    wait_for("ready runner", lambda: workspaces.ready(socket_path), 30)
    service.baseline = service.snapshot()
    versions = livekernel.versions(service)


class Case(unittest.TestCase):
    def kernel(self, runtime="python-slim", **more):
        k = Kernel(socket_path, runtime, versions[runtime], **more)
        self.addCleanup(k.remove)
        return k

    def tearDown(self):
        self.doCleanups()
        service.assert_clean()

    def good(self, step, out):
        self.assertEqual((step.out, step.err, step.result.code,
                          step.result.kernel), (out, "", 0, ALIVE))

    def refused(self, kind, call, *args, **more):
        with self.assertRaises(Refused) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.kind, kind,
                         caught.exception.detail)
        return caught.exception

    def printed(self, c):
        """Once the step is behind what it prints. Then a moment more: Python
        that is told just before it sleeps sleeps on."""
        while c.next()[0] != workspaces.STDOUT:
            pass
        time.sleep(.3)

    def dead(self, k, *words):
        """No step any more, for a reason with these words."""
        e = self.refused("kernel_dead", k.step, "1")
        i = k.stat()
        self.assertEqual((i.state, i.reason), ("dead", e.detail))
        for word in words:
            self.assertIn(word, e.detail)
        self.assertEqual(k.stat().memory, -1)


class Steps(Case):
    def test_variables_stay(self):
        k = self.kernel()
        self.assertEqual(k.created.state, "resident")
        self.assertEqual(k.created.reason, "")
        self.assertFalse(k.created.busy or k.created.network)
        self.assertGreater(k.created.memory, 1 << 20)
        self.good(k.step("x = 20; import os"), "")
        self.good(k.step("x += 1\nprint(x * 2, os.getcwd())"),
                  "42 /workspace\n")
        s = k.step("print('out'); 1/0")
        self.assertEqual((s.out, s.result.code, s.result.raised,
                          s.result.kernel), ("out\n", 1, True, ALIVE))
        self.assertIn("ZeroDivisionError", s.err)
        self.assertEqual(k.step("raise SystemExit(7)").result.code, 7)
        s = k.step("print(x)")
        self.good(s, "21\n")
        self.assertTrue(s.result.warm)
        self.assertGreater(s.result.duration_us, 0)
        wait_for("the count", lambda: k.stat().steps == 5)

    def test_node(self):
        k = self.kernel("javascript")
        self.good(k.step("let x = 20"), "")
        self.good(k.step("x += 1; console.log(await x * 2)"), "42\n")

    def test_environment(self):
        k = self.kernel()
        s = k.step("import os, sys, site\n"
                   "for n in 'HOME', 'PYTHONUSERBASE': print(os.environ[n])\n"
                   "print(os.environ['PATH'].split(':')[0], os.getuid())\n"
                   "print(site.getuserbase(), sys.stdin.read())",
                   stdin=b"input")
        self.good(s, "/workspace\n/workspace/.local\n"
                     "/workspace/.local/bin 65534\n/workspace/.local input\n")

    def test_artifacts(self):
        k = self.kernel()
        s = k.step("6 * 7", display=True)
        self.assertEqual(s.artifacts, [("text/plain", "42")])
        self.assertEqual(k.step("6 * 7").artifacts, [])
        s = k.step("class H:\n  def _repr_html_(self): return '<b>'*9\nH()")
        self.assertEqual(s.artifacts, [("text/html", "<b>" * 9)])
        s = k.step("class P:\n"
                   "  def _repr_png_(self): return b'\\x89PNG' * 300000\nP()")
        self.assertEqual(len(s.artifacts[0][1]), 1200000)
        s = k.step("class P:\n"
                   "  def _repr_png_(self): return b'\\x89PNG' * 600000\nP()")
        self.assertEqual((s.artifacts, s.result.dropped), ([], True))

    def test_the_workspace_is_the_sessions(self):
        k = self.kernel()
        k.workspace.write("in.txt", b"from outside")
        self.good(k.step("print(open('in.txt').read())\n"
                         "open('out.txt', 'w').write('from inside')"),
                  "from outside\n")
        self.assertEqual(k.workspace.read("out.txt"), b"from inside")

    def test_a_volume(self):
        v = Workspace(socket_path, "vol-1", workspaces.VOLUME).create()
        self.addCleanup(v.remove)
        v.write("a", b"kept")
        k = self.kernel(volume="vol-1")
        self.good(k.step("print(open('/memory/a').read())\n"
                         "open('/memory/b', 'w').write('x')"), "kept\n")
        self.assertEqual(v.read("b"), b"x")
        self.refused("volume_not_found", Kernel, socket_path, "python-slim",
                     versions["python-slim"], volume="none")

    def test_output_is_capped(self):
        k = self.kernel()
        limits = livekernel.LIMITS[:3] + (2048, 10000)
        s = k.step("import sys\nfor i in range(100000): print(i)\n"
                   "print('e' * 5000, file=sys.stderr)", limits=limits)
        self.assertEqual((len(s.out), len(s.err)), (2048, 2048))
        self.assertTrue(s.result.out_cut and s.result.err_cut)
        self.good(k.step("print('next')"), "next\n")

    def test_one_step_at_a_time(self):
        k = self.kernel()
        c = k.begin("import time; time.sleep(6); print('first')")
        c.next()
        self.assertTrue(k.stat().busy)
        self.refused("session_busy", k.step, "1", wall_ms=200)
        began = time.monotonic()
        self.good(k.step("print('second')"), "second\n")
        self.assertGreater(time.monotonic() - began, .3)
        self.good(k.end(c), "first\n")
        wait_for("its rest", lambda: not k.stat().busy)

    def test_many_steps(self):
        k = self.kernel()
        k.step("n = 0")
        for _ in range(200):
            k.step("n += 1")
        self.good(k.step("print(n)"), "200\n")
        self.assertEqual(livekernel.status(socket_path).used, 1)


class Interrupts(Case):
    def test_wall_time(self):
        k = self.kernel()
        k.step("x = 1")
        s = k.step("while True: pass", wall_ms=500)
        self.assertEqual((s.result.code, s.result.timed_out,
                          s.result.interrupted, s.result.kernel),
                         (137, True, True, ALIVE))
        self.good(k.step("print(x)"), "1\n")

    def test_the_longest_step(self):
        k = self.kernel()
        began = time.monotonic()
        s = k.step("import time; time.sleep(60)", wall_ms=60000)
        self.assertTrue(s.result.timed_out)
        self.assertLess(time.monotonic() - began, 20)

    def test_who_does_not_yield_dies(self):
        k = self.kernel()
        s = k.step("print('a', flush=True)\nwhile True:\n  try:\n"
                   "    while True: pass\n  except KeyboardInterrupt: pass",
                   wall_ms=3000)
        self.assertEqual((s.out, s.result.code, s.result.timed_out,
                          s.result.kernel), ("a\n", 137, True, DEAD))
        self.dead(k, "interrupted")

    def test_interrupt(self):
        k = self.kernel()
        self.assertFalse(k.interrupt().busy)
        c = k.begin("import time\ntry:\n  print('up', flush=True)\n"
                    "  time.sleep(30)\nfinally: y = 5")
        self.printed(c)
        self.assertTrue(k.interrupt().busy)
        s = k.end(c)
        self.assertEqual((s.result.code, s.result.interrupted,
                          s.result.timed_out, s.result.kernel),
                         (1, True, False, ALIVE))
        self.assertIn("KeyboardInterrupt", s.err)
        self.good(k.step("print(y)"), "5\n")

    def test_a_client_that_leaves(self):
        k = self.kernel()
        k.step("z = 3")
        c = k.begin("import time\nz = 4\nprint(z, flush=True)\n"
                    "time.sleep(30)\nz = 5")
        self.printed(c)
        c.close()
        began = time.monotonic()
        self.good(k.step("print(z)"), "4\n")
        self.assertLess(time.monotonic() - began, 5)

    def test_a_client_that_leaves_who_does_not_yield(self):
        k = self.kernel()
        c = k.begin("while True:\n  try:\n    print('up', flush=True)\n"
                    "    while True: pass\n"
                    "  except KeyboardInterrupt: pass")
        self.printed(c)
        c.close()
        wait_for("its end", lambda: k.stat().state == "dead", 15)
        self.dead(k, "client")


class Deaths(Case):
    def test_it_ends_itself(self):
        for code, exit_code, signal, word in (
                ("import os; os._exit(3)", 3, 0, "exit code 3"),
                ("import os; os.kill(os.getpid(), 9)", 137, 9, "signal 9"),
                ("import os; os.abort()", 134, 6, "signal 6")):
            with self.subTest(code):
                k = self.kernel()
                s = k.step("print('last words', flush=True)\n" + code)
                self.assertEqual(
                    (s.out, s.result.code, s.result.signal, s.result.kernel,
                     s.result.timed_out),
                    ("last words\n", exit_code, signal, DEAD, False))
                self.dead(k, word)
                k.remove()

    def test_it_dies_while_idle(self):
        k = self.kernel()
        k.step("import threading, os, time\n"
               "threading.Thread(target=lambda: (time.sleep(2), "
               "os._exit(9))).start()")
        wait_for("its end", lambda: k.stat().state == "dead", 20)
        self.dead(k, "exit code 9")

    def test_out_of_memory(self):
        k = self.kernel()
        s = k.step("x = bytearray(600 << 20)")
        if s.result.kernel == DEAD:
            self.assertEqual((s.result.code, s.result.oom), (137, True))
            self.dead(k, "memory")
        else:
            self.fail("it has more memory than it may: %r" % (s,))

    def test_fork_bomb(self):
        k = self.kernel()
        s = k.step("import os\nn = 0\ntry:\n  while True:\n"
                   "    os.posix_spawn('/bin/sleep', ['sleep', '60'], {})\n"
                   "    n += 1\nexcept OSError as e: print(n > 50, e.errno)")
        self.assertEqual((s.out, s.result.kernel), ("True 11\n", ALIVE))

    def test_the_quota(self):
        k = self.kernel()
        k.step("print(1)")
        self.refused("quota_exceeded", k.step,
                     "with open('big', 'wb') as f:\n"
                     "  while True: f.write(b'x' * 1000000); f.flush()")
        self.dead(k, "quota")

    def test_removed_while_it_runs(self):
        k = self.kernel()
        c = k.begin("import time; time.sleep(30)")
        c.next()
        k.remove()
        with self.assertRaises(Refused) as caught:
            k.end(c)
        self.assertEqual(caught.exception.kind, "session_not_found")
        self.refused("session_not_found", k.step, "1")
        self.refused("session_not_found", k.stat)
        wait_for("a free slot",
                 lambda: livekernel.status(socket_path).used == 0, 10)


class Slots(Case):
    def test_more_than_there_are(self):
        kernels = [self.kernel() for _ in range(3)]
        conns = [k.begin("import time; time.sleep(6); print('ok')")
                 for k in kernels]
        for c in conns:
            c.next()
        e = self.refused("too_many_kernels", Kernel, socket_path,
                         "python-slim", versions["python-slim"])
        self.assertGreater(e.retry_after, 0)
        for k, c in zip(kernels, conns):
            self.good(k.end(c), "ok\n")
        status = livekernel.status(socket_path)
        self.assertEqual((status.used, status.max), (3, 3))
        self.assertEqual(sorted(kernels[0].workspace.ids()),
                         sorted(k.name for k in kernels))

    def test_refused_requests(self):
        self.refused("session_not_found", Kernel(
            socket_path, "x", "y", create=False).stat)
        with open(service.path("registry", "ruby.yaml")) as f:
            ruby = [line.split(":")[1].strip().strip('"') for line in f
                    if line.startswith("version:")][0]
        self.refused("kernel_unsupported", Kernel, socket_path, "ruby", ruby)
        self.refused("unknown_language", Kernel, socket_path, "cobol", "1")
        plain = Workspace(socket_path, "plain-1").create()
        self.addCleanup(plain.remove)
        k = Kernel(socket_path, "python-slim", versions["python-slim"],
                   create=False, name="plain-1")
        self.refused("kernel_dead", k.step, "1")

    def test_created_twice_is_one(self):
        k = self.kernel()
        k.step("x = 1")
        self.assertEqual(k.create().state, "resident")
        self.good(k.step("print(x)"), "1\n")

    def test_at_once(self):
        """Steps of several kernels side by side, each its own."""
        kernels = [self.kernel() for _ in range(3)]
        wrong = []

        def work(n, k):
            for i in range(30):
                s = k.step("print(%d, %d)" % (n, i))
                if s.out != "%d %d\n" % (n, i):
                    wrong.append(s)

        threads = [threading.Thread(target=work, args=a)
                   for a in enumerate(kernels)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    unittest.main()
