# SPDX-License-Identifier: Apache-2.0
"""The Python kernel in a real sandbox: careless and hostile steps, interrupts, and
what ends a kernel."""

import os
import select
import struct
import time
import unittest

import isoproto
import kernels
from again import again
from kernels import Kernel, KernelCase
from sandbox import Failed, setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here


class TestInterrupt(KernelCase):
    def interrupt_one(self, code):
        """(seconds, step)"""
        self.kernel.begin("print('up', flush=True)\n" + code)
        self.kernel.printed()
        time.sleep(0.5)
        began = time.monotonic()
        self.kernel.interrupt()
        s = self.kernel.end(10)
        took = time.monotonic() - began
        self.assertEqual((s.code, s.raised, s.interrupted), (1, True, True))
        self.assertTrue(s.err.rstrip().endswith("KeyboardInterrupt"), s.err)
        self.good("print('lives')", "lives\n")
        return took, s

    def interrupted(self, code):
        took, s = again(lambda: self.interrupt_one(code), lambda x: x[0] < 2)
        self.assertLess(took, 2)
        return s

    def test_loops_and_sleeps(self):
        self.good("kept = 1")
        s = self.interrupted("while True: pass")
        self.assertEqual(s.err.count("File "), 1, s.err)
        self.interrupted("import time; time.sleep(100)")
        self.interrupted("import subprocess; subprocess.run(['sleep', '100'])")
        self.good("print(kept)", "1\n")

    def test_children_get_it_too(self):
        self.kernel.begin("import subprocess\n"
                          "p = subprocess.Popen(['sleep', '100'])\n"
                          "print('up', flush=True)\nprint(p.wait())")
        self.kernel.printed()
        time.sleep(0.5)
        self.kernel.interrupt()
        s = self.kernel.end(10)
        self.assertTrue(s.interrupted)
        self.good("print(p.wait(5))", "-2\n")

    def test_await(self):
        self.good("import asyncio")
        s = self.interrupted("try:\n"
                             "  await asyncio.sleep(100)\nfinally:\n"
                             "  print('cleaned')")
        self.assertEqual(s.out, "up\ncleaned\n")
        self.interrupted("import asyncio\nawait asyncio.sleep(0)\n"
                         "while True: pass")
        self.good("print(await asyncio.sleep(0, 3))", "3\n")

    def test_while_it_floods(self):
        self.interrupted("while True: print('x' * 70)")

    def test_nobody_reads(self):
        """The interrupt arrives although init cannot get rid of output."""
        self.kernel.slow_reader()
        self.kernel.begin("print('y' * 60000)\nwhile True: pass")
        select.select([self.kernel.output], [], [], 30)
        time.sleep(0.5)
        os.write(self.kernel.input, struct.pack("<IB3x", 0, 42))
        time.sleep(1)
        s = self.kernel.end(10)
        self.assertTrue(s.interrupted)
        self.assertEqual(len(s.out), 60001)

    def test_early_and_late(self):
        for _ in range(20):
            self.kernel.begin("while True: pass")
            self.kernel.interrupt()
            self.assertTrue(self.kernel.end(10).interrupted)
            self.kernel.interrupt()  # nothing runs
            self.good("print(1)", "1\n")

    def test_stopped(self):
        self.interrupted("import os, signal\n"
                         "os.kill(os.getpid(), signal.SIGSTOP)\n"
                         "while True: pass")

    def test_in_a_repr(self):
        self.good("class Slow:\n  def _repr_html_(self):\n    while True: pass")
        self.interrupted("Slow()")

    def test_handlers_of_the_users(self):
        self.good("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)")
        self.interrupted("while True: pass")
        self.good("signal.signal(signal.SIGINT, signal.SIG_DFL)")
        self.interrupted("while True: pass")

    def test_swallowed_twice(self):
        self.kernel.begin("n = 0\nwhile n < 2:\n  try:\n"
                          "    print('up', flush=True)\n    while True: pass\n"
                          "  except KeyboardInterrupt: n += 1\nprint(n)")
        for n in (1, 2):
            self.kernel.printed(b"up\n" * n)
            self.kernel.interrupt()
        s = self.kernel.end(10)
        self.assertEqual((s.code, s.out, s.interrupted),
                         (0, "up\nup\n2\n", False))

    def test_figures_of_time(self):
        def two():
            s = self.step("t = __import__('time').process_time\n"
                          "e = t() + .5\nwhile t() < e: pass")
            return s.cpu_us, self.step("pass").cpu_us
        busy, idle = again(two, lambda us: us[1] < 200000)
        self.assertGreater(busy, 200000)
        self.assertLess(idle, 200000)


class TestCareless(KernelCase):
    """What replaces or breaks things that the kernel might rely on."""

    def survives(self, code):
        self.step(code)
        self.good("print('ok', flush=True)", "ok\n")
        s = self.step("def f(): raise ValueError('v')\nf()")
        self.assertEqual(s.code, 1, code)
        self.assertIn("ValueError", s.err, code)
        s = self.good("display({'text/html': 'h'}, raw=True)")
        self.assertEqual(s.artifacts, [("text/html", "h")])

    def test_builtins(self):
        self.good("import builtins; saved = dict(vars(builtins))")
        for name in ("len", "isinstance", "getattr", "dict", "compile", "eval",
                     "open", "Exception", "BaseException", "bytes", "hasattr",
                     "memoryview", "map", "sum", "type"):
            with self.subTest(name):
                self.step("builtins.%s = None" % name)
                self.good("builtins.%s = saved['%s']" % (name, name))
        self.survives("pass")

    def test_modules(self):
        for code in (
                "import sys; sys.displayhook = None",
                "sys.excepthook = sys.__excepthook__",
                "import json, os; json.dumps = json.loads = None",
                "r, w, k = os.read, os.write, os.getpid\n"
                "os.read = os.getpid = os.fstat = os._exit = None",
                "import struct, io; struct.Struct = struct.pack = None",
                "import traceback, linecache\nlinecache.clearcache()",
                "linecache.getline = linecache.updatecache = None",
                "sys.modules.pop('__main__')",
                "for m in ('os', 'io', 'ast', 'traceback', 'linecache',\n"
                "          'contextvars', 'struct', 'warnings', 'asyncio'):\n"
                "    sys.modules.pop(m, None)",
                "import gc; gc.disable(); gc.collect()",
                "sys.path[:] = []; sys.meta_path[:] = []"):
            with self.subTest(code):
                self.survives(code)

    def test_limits_and_hooks(self):
        for code in ("import sys; sys.setrecursionlimit(60)",
                     "sys.setrecursionlimit(1000)",
                     "def t(*a): raise RuntimeError\nsys.settrace(t)",
                     "sys.settrace(None)",
                     "sys.setprofile(lambda *a: 1/0)", "sys.setprofile(None)",
                     "import threading; threading.settrace(lambda *a: 1/0)",
                     "threading.settrace(None)",
                     "import os; os.chdir('/')"):
            with self.subTest(code):
                self.step(code)
        self.survives("pass")

    def test_trace_is_the_users(self):
        self.good("import sys\nseen = []\ndef t(f, e, a):\n"
                  "  seen.append(f.f_code.co_filename); return None\n"
                  "sys.settrace(t)")
        self.good("def g(): pass\ng()\nsys.settrace(None)")
        self.good("print(set(s for s in seen if not s.startswith('<step')))",
                  "set()\n")

    def test_alarms(self):
        """A handler that raises, wherever it hits the kernel."""
        self.good("import signal\nclass A(Exception): pass\n"
                  "def h(*_): raise A\nsignal.signal(signal.SIGALRM, h)\n"
                  "signal.setitimer(signal.ITIMER_REAL, .02, .02)")
        for _ in range(50):
            self.step("x = list(range(1000))")
            time.sleep(0.01)
        off = "signal.setitimer(signal.ITIMER_REAL, 0); print('off')"
        for _ in range(50):  # they hit this, too, and the last comes late
            if self.step(off).out == "off\n" and self.step("pass").code == 0:
                break
        self.good("print('ok')", "ok\n")

    def test_descriptor_limits(self):
        self.survives("import os\nfds = []\ntry:\n"
                      "  while True: fds.append(os.open('/dev/null', 0))\n"
                      "except OSError: pass")
        self.good("for fd in fds: os.close(fd)")


class TestEnds(unittest.TestCase):
    """What ends the kernel, or must be ended by the supervisor."""

    def setUp(self):
        if not kernels.have("python-slim"):
            self.skipTest("there is no image for python-slim")

    def dies(self, code, want, **kw):
        with Kernel("python-slim", **kw) as kernel:
            kernel.step("x = 1")
            kernel.begin(code)
            self.assertEqual(kernel.dies(), want, code)
            self.assertEqual(kernel.ended(), 0)

    def test_by_itself(self):
        self.dies("import os; print('last'); os._exit(3)", (3, 0))
        self.dies("import os; os.kill(os.getpid(), 9)", (137, 9))
        self.dies("import os; os.abort()", (134, 6))
        self.dies("import ctypes; ctypes.string_at(0)", (139, 11))

    def test_between_steps(self):
        with Kernel("python-slim") as kernel:
            kernel.step("import os, threading\n"
                        "threading.Timer(2, os._exit, (7,)).start()")
            self.assertEqual(kernel.dies(), (7, 0))

    def test_what_was_written_before(self):
        with Kernel("python-slim") as kernel:
            kernel.begin("import os; print('last'); os.abort()")
            with self.assertRaises(kernels.Dead) as dead:
                kernel.end()
            self.assertEqual(dead.exception.out, b"last\n")

    def test_not_interruptible(self):
        for code in ("while True:\n  try:\n    while True: pass\n"
                     "  except KeyboardInterrupt: pass",
                     "import signal\n"
                     "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
                     "while True: pass",
                     "import itertools; sum(itertools.repeat(1))"):
            with self.subTest(code), Kernel("python-slim") as kernel:
                kernel.begin("print('up', flush=True)\n" + code)
                kernel.expect(isoproto.GUEST_STDOUT)
                time.sleep(0.5)
                kernel.interrupt()
                with self.assertRaises(AssertionError):
                    kernel.next(2)

    def test_forged_frames(self):
        """Whatever is written to init's socket: it is believed where the step
        could have done the same, or the kernel is ended."""
        head = "import os, struct\ndef f(t, p=b''): return struct.pack(" \
            "'<IB3x', len(p), t) + p\ndef s(b): os.write(1022, b)\n"
        done = "struct.pack('<II3xQ', %d, 0, 0)"
        for code in ("s(f(64, bytes(4)))", "s(f(66, b'x'))", "s(f(99))",
                     "s(b'\\xff' * 8)", "s(f(67, %s))" % (done % 9),
                     "s(f(67, b'short'))", "s(f(48))", "s(f(52, bytes(17)))",
                     "s(f(65, struct.pack('<I', 3) + b'a/b' + "
                     "struct.pack('<BI', 1, 99999999)))",
                     "s(f(65, struct.pack('<I', 3) + b'A B' + "
                     "struct.pack('<BI', 1, 9)))",
                     "for _ in range(9): s(f(65, struct.pack('<I', 3) + "
                     "b'a/b' + struct.pack('<BI', 1, 0)))",
                     "s(f(65, struct.pack('<I', 3) + b'a/b' + "
                     "struct.pack('<BI', 1, 5)) + f(66, b'toomuch'))",
                     "os.close(1022)"):
            with self.subTest(code), Kernel("python-slim") as kernel:
                kernel.begin(head + code + "\nimport time; time.sleep(20)")
                try:
                    kernel.end(15)
                    self.fail("believed")
                except kernels.Dead as dead:
                    self.assertEqual((dead.code, dead.signal), (137, 9))

    def test_a_forged_end(self):
        """As good as a true one, for that step; the true one then is one too
        many."""
        with Kernel("python-slim") as kernel:
            kernel.begin("import os, struct\nos.write(1022, struct.pack("
                         "'<IB3xII3xQ', 19, 67, 1, 5, 0))")
            self.assertEqual(kernel.end().code, 5)
            self.assertEqual(kernel.dies(), (137, 9))

    def test_a_fork_bomb(self):
        with Kernel("python-slim", pids=20) as kernel:
            kernel.step("import os, time")
            kernel.begin("while True:\n  try: os.fork()\n"
                         "  except OSError: time.sleep(.01)")
            time.sleep(2)
            kernel.interrupt()
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                try:
                    s = kernel.end(2)
                    self.assertTrue(s.interrupted)
                    break
                except AssertionError:
                    kernel.interrupt()
            else:
                self.fail("no end")
            s = kernel.step("print('lives')")
            self.assertEqual(s.out, "lives\n")

    def test_the_supervisors_mistakes(self):
        for name, send in (
                ("a step too many", lambda k: (k.begin("while True: pass"),
                                               k.begin("pass"))),
                ("a job", lambda k: k.job(["x"])),
                ("garbage", lambda k: k.send(b"\xff" * 100)),
                ("restored in a step", lambda k: (
                    k.begin("while True: pass"),
                    k.send(struct.pack("<IB3x", 0, 43))))):
            with self.subTest(name), Kernel("python-slim") as kernel:
                with self.assertRaises(Failed):
                    send(kernel)
                    kernel.next(15)

    def test_the_pipe_closed(self):
        with Kernel("python-slim") as kernel:
            kernel.begin("while True: pass")
            os.close(kernel.input)
            kernel.input = None
            kernel.ended()

    def test_no_such_language(self):
        with Kernel("python-slim", start=False) as kernel:
            kernel.language = "cobol"
            with self.assertRaisesRegex(Failed, "no kernel for.*cobol"):
                kernel.start_kernel()

    def test_no_such_program(self):
        with Kernel("python-slim", start=False) as kernel:
            kernel.argv = ["/nosuch"]
            with self.assertRaisesRegex(Failed, "/nosuch"):
                kernel.start_kernel()


class TestMany(KernelCase):
    def test_a_thousand_steps(self):
        """Neither init nor the kernel grows."""
        code = ("import os, resource\ndef rss(pid):\n"
                "  for line in open('/proc/%s/status' % pid):\n"
                "    if line.startswith('VmRSS'): return int(line.split()[1])")
        self.good(code)
        for i in range(100):
            self.good("x = %d; print(x)" % i, "%d\n" % i)
        before = self.step("print(rss(1), rss('self'))").out.split()
        for i in range(900):
            self.good("x = %d; print(x)" % i, "%d\n" % i)
        after = self.step("print(rss(1), rss('self'))").out.split()
        self.assertLessEqual(int(after[0]), int(before[0]) + 64)
        self.assertLessEqual(int(after[1]), int(before[1]) + 2048)
        fds = self.step("print(len(os.listdir('/proc/self/fd')))").out
        self.assertLess(int(fds), 12)


if __name__ == "__main__":
    unittest.main()
