# SPDX-License-Identifier: Apache-2.0
"""The Python kernel in a real sandbox: what a step gets, shows and leaves."""

import os
import signal
import struct
import time
import unittest

import kernels
from kernels import Kernel
from sandbox import Failed, setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here

PNG = b"\x89PNG\r\n\x1a\n"


class KernelCase(unittest.TestCase):
    """One kernel for all tests of a class; each uses names of its own."""

    language = "python-slim"
    preload = ()
    pids = 64

    @classmethod
    def setUpClass(cls):
        if not kernels.have(cls.language):
            raise unittest.SkipTest("there is no image for " + cls.language)
        cls.kernel = Kernel(cls.language, cls.preload, cls.pids)

    @classmethod
    def tearDownClass(cls):
        cls.kernel.close()

    def step(self, code, **kw):
        return self.kernel.step(code, **kw)

    def good(self, code, out="", **kw):
        """A step without an error: what it wrote, and the rest."""
        s = self.step(code, **kw)
        self.assertEqual((s.code, s.err, s.out), (0, "", out), code)
        return s

    def bad(self, code, last, **kw):
        """A step that raises; the last line of what it says."""
        s = self.step(code, **kw)
        self.assertEqual((s.code, s.raised), (1, True), code)
        self.assertEqual(s.err.rstrip("\n").split("\n")[-1], last)
        return s


class TestNamespace(KernelCase):
    def test_what_persists(self):
        self.good("import math\nx = [1]\ndef f(): return x\nclass C: y = 1")
        self.good("x.append(math.floor(2.5)); print(f(), C.y)", "[1, 2] 1\n")
        self.good("del x")
        self.bad("f()", "NameError: name 'x' is not defined")

    def test_main(self):
        self.good("import __main__, sys, pickle, dataclasses\n"
                  "@dataclasses.dataclass\nclass P:\n  a: 'int'\n"
                  "print(__name__, __main__.P is P, P.__module__)",
                  "__main__ True __main__\n")
        self.good("print(pickle.loads(pickle.dumps(P(3))))", "P(a=3)\n")
        self.good("import inspect; print(inspect.getsource(P.__init__) if 0 "
                  "else sys.argv, __builtins__ is __import__('builtins'))",
                  "[''] True\n")
        self.good("import typing; print(typing.get_type_hints(P))",
                  "{'a': <class 'int'>}\n")

    def test_future_statements_persist(self):
        self.good("from __future__ import annotations")
        self.good("def g(a: nowhere): pass\nprint(g.__annotations__)",
                  "{'a': 'nowhere'}\n")

    def test_processes(self):
        self.good("import multiprocessing as mp\n"
                  "def square(n): return n * n\n"
                  "with mp.Pool(2) as pool: print(pool.map(square, [2, 3]))",
                  "[4, 9]\n")
        self.good("from concurrent.futures import ProcessPoolExecutor as E\n"
                  "with E(2) as e: print(list(e.map(square, [4])))", "[16]\n")
        self.good("mp.set_start_method('spawn', force=True)\n"
                  "print(mp.get_start_method())\n"
                  "mp.set_start_method('fork', force=True)", "spawn\n")

    def test_fork_ends_with_the_step(self):
        s = self.good("import os, sys, time\npid = os.fork()\n"
                      "if pid: print(os.waitpid(pid, 0)[1])\n"
                      "else: print('child', flush=True)", "child\n0\n")
        self.good("pid = os.fork()\nif pid == 0: sys.exit(5)\n"
                  "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))",
                  "5\n")
        s = self.step("pid = os.fork()\nif pid == 0: 1/0\n"
                      "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))")
        self.assertEqual((s.code, s.out), (0, "1\n"))
        self.assertIn("ZeroDivisionError", s.err)

    def test_files(self):
        self.good("import helper\nprint(helper.word, open('/box/d/t').read())",
                  "1 \u00e4\n", files=[("helper.py", "word = 1"),
                                       ("d/t", "\u00e4")])
        self.good("import later; print(later.word)", "2\n",
                  files=[("later.py", "word = 2")])
        self.good("open('/workspace/mine.py', 'w').write('a = 3')\n"
                  "import mine; print(mine.a, mine.__file__)",
                  "3 /workspace/mine.py\n")

    def test_user_site_appears_later(self):
        self.good(
            "import os, site\np = site.getusersitepackages()\n"
            "print(p.startswith('/workspace/.local/'), os.path.isdir(p))\n"
            "os.makedirs(p)\n"
            "open(p + '/fresh.py', 'w').write('word = 7')\n"
            "import fresh; print(fresh.word)", "True False\n7\n")

    def test_sources_of_any_kind(self):
        self.good("\ufeffprint('bom')", "bom\n")
        self.good("print(1)\r\nprint(2)\r\n", "1\n2\n")
        self.good("")
        self.good("# nothing")
        s = self.step(b"\xff")
        self.assertEqual((s.code, s.raised), (1, True))
        self.assertIn("UnicodeDecodeError", s.err)
        s = self.step("\0")
        self.assertEqual((s.code, s.raised), (1, True))
        self.assertIn("null bytes", s.err)


class TestExit(KernelCase):
    def test_codes(self):
        for code, want in (("pass", 0), ("import sys; sys.exit()", 0),
                           ("sys.exit(0)", 0), ("sys.exit(3)", 3),
                           ("exit(4)", 4), ("quit(5)", 5), ("exit()", 0),
                           ("sys.exit(None)", 0), ("sys.exit(256)", 0),
                           ("sys.exit(-1)", 255), ("sys.exit(True)", 1),
                           ("raise SystemExit(9)", 9)):
            s = self.step(code)
            self.assertEqual((s.code, s.raised, s.out, s.err),
                             (want, False, "", ""), code)
        s = self.step("sys.exit('why')")
        self.assertEqual((s.code, s.raised, s.err), (1, False, "why\n"))
        self.assertEqual(self.step("1/0").code, 1)

    def test_shell_cells(self):
        cell = ("import subprocess, sys\n"
                "sys.exit(subprocess.run(['bash', '-c', %r]).returncode)")
        s = self.step(cell % "echo out; nosuchcommand")
        self.assertEqual((s.code, s.out), (127, "out\n"))
        self.assertIn("nosuchcommand: command not found", s.err)
        self.assertEqual(self.step(cell % "exit 42").code, 42)
        self.assertEqual(self.step(cell % "true").code, 0)

    def test_in_a_coroutine(self):
        self.assertEqual(self.step("import asyncio, sys\n"
                                   "await asyncio.sleep(0)\nsys.exit(6)").code,
                         6)
        self.good("await asyncio.sleep(0)")


class TestTracebacks(KernelCase):
    def test_only_the_users(self):
        s = self.bad("def f(n):\n    return 1 / n\n\nf(0)",
                     "ZeroDivisionError: division by zero")
        n = self.kernel.number
        self.assertTrue(s.err.startswith(
            "Traceback (most recent call last):\n"
            '  File "<step %d>", line 4, in <module>\n    f(0)\n' % n), s.err)
        self.assertIn('  File "<step %d>", line 2, in f\n    return 1 / n\n'
                      % n, s.err)
        self.assertEqual(s.err.count("File "), 2, s.err)
        s = self.bad("f(0)", "ZeroDivisionError: division by zero")
        self.assertIn('"<step %d>", line 2, in f\n    return 1 / n\n' % n,
                      s.err)

    def test_syntax(self):
        s = self.bad("x = 1\ny = = 2", "SyntaxError: invalid syntax")
        self.assertEqual(s.err, '  File "<step %d>", line 2\n    y = = 2\n'
                         "        ^\nSyntaxError: invalid syntax\n"
                         % self.kernel.number)

    def test_chains(self):
        s = self.bad("try:\n    1/0\nexcept Exception as e:\n"
                     "    raise KeyError('k') from e", "KeyError: 'k'")
        self.assertIn("direct cause", s.err)
        self.assertEqual(s.err.count("File "), 2, s.err)
        self.assertEqual(s.err.count("<stdin>"), 0)

    def test_async(self):
        s = self.bad("import asyncio\nasync def g():\n    raise OSError('x')\n"
                     "await g()", "OSError: x")
        self.assertEqual(s.err.count("File "), 2, s.err)

    def test_library_frames_stay(self):
        s = self.bad("import json; json.loads('{')",
                     "json.decoder.JSONDecodeError: Expecting property name "
                     "enclosed in double quotes: line 1 column 2 (char 1)")
        self.assertIn("json/decoder.py", s.err)

    def test_recursion(self):
        s = self.bad("def r(): r()\nr()", "RecursionError: maximum recursion "
                     "depth exceeded")
        self.assertIn("more times]", s.err)

    def test_hostile_exceptions(self):
        s = self.step("class E(Exception):\n"
                      "    def __str__(self): raise KeyboardInterrupt\n"
                      "raise E")
        self.assertEqual((s.code, s.raised), (1, True))
        s = self.step("class F(Exception):\n"
                      "    def __str__(self): import os; os._exit(1)\n"
                      "class G(BaseException): pass\nraise G('g')")
        self.assertTrue(s.err.endswith("G: g\n"), s.err)

    def test_excepthook(self):
        s = self.step("import sys\n"
                      "sys.excepthook = lambda *a: print('mine', a[0])\n1/0")
        self.assertEqual((s.code, s.out),
                         (1, "mine <class 'ZeroDivisionError'>\n"))
        s = self.step("sys.excepthook = None\n1/0")
        self.assertIn("ZeroDivisionError", s.err)
        self.good("sys.excepthook = sys.__excepthook__")

    def test_inspect_and_warnings(self):
        self.good("def h():\n    return 1\nimport inspect\n"
                  "print(inspect.getsource(h))", "def h():\n    return 1\n\n")
        for _ in range(2):  # each step says it again
            s = self.step("import warnings; warnings.warn('careful')")
            self.assertEqual(s.err, "<step %d>:1: UserWarning: careful\n"
                             "  import warnings; warnings.warn('careful')\n"
                             % self.kernel.number)


class TestStreams(KernelCase):
    def test_order_with_children_and_descriptors(self):
        self.good("import os, subprocess\nprint('a')\n"
                  "subprocess.run(['echo', 'b'])\nos.write(1, b'c\\n')\n"
                  "print('d', end='')", "a\nb\nc\nd")

    def test_c_code(self):
        self.good("import ctypes; libc = ctypes.CDLL(None)\n"
                  "_ = libc.printf(b'from C\\n')", "from C\n")

    def test_input(self):
        self.bad("input()", "EOFError: EOF when reading a line")
        self.good("print(input('? '), input())", "? one two\n",
                  stdin="one\ntwo\n")
        self.bad("input()", "EOFError: EOF when reading a line")
        self.good("import sys, subprocess\nsubprocess.run(['cat'])\n"
                  "print(sys.stdin.read())", "x\u00e4\n\n", stdin="x\u00e4\n")
        self.good("print(sys.stdin.buffer.read())", "b'\\x00\\xff'\n",
                  stdin=b"\0\xff")
        self.good("print(repr(sys.stdin.read()))", "''\n")
        self.good("sys.stdin.close()")
        self.good("print(input())", "again\n", stdin="again\n")

    def test_large_input(self):
        data = b"0123456789abcdef" * 12000
        self.good("import sys; print(len(sys.stdin.read()))",
                  "%d\n" % len(data), stdin=data)

    def test_closed(self):
        for code in ("import os, sys\nos.close(1)", "os.close(2); os.close(0)",
                     "sys.stdout.close()", "sys.stderr.close()",
                     "sys.stdin.close()", "del sys.stdout",
                     "sys.stdout = None", "os.dup2(0, 1)", "exit()"):
            self.step(code)
            self.good("print('there', flush=True)", "there\n")
            s = self.step("os.write(2, b'err'); os.write(1, b'out')")
            self.assertEqual((s.out, s.err), ("out", "err"), code)
            self.good("print(input())", "in\n", stdin="in")
            s = self.step("print('e', file=sys.stderr)")
            self.assertEqual(s.err, "e\n", code)

    def test_replaced(self):
        self.good("import io, sys\nsys.stdout = io.StringIO()\nprint('hidden')")
        self.bad("1/0", "ZeroDivisionError: division by zero")
        self.good("text = sys.stdout.getvalue()\nsys.stdout = sys.__stdout__\n"
                  "print(text)", "hidden\n\n")
        s = self.step("class Bad:\n  def write(self, t): raise OSError(t)\n"
                      "  def flush(self): raise SystemExit(9)\n"
                      "sys.stdout = sys.stderr = Bad()\n1/0")
        self.assertEqual(s.code, 1)
        self.assertIn("ZeroDivisionError", s.err)
        self.good("sys.stdout = sys.__stdout__; sys.stderr = sys.__stderr__")

    def test_threads(self):
        self.good("import threading, time\n"
                  "t = threading.Thread(target=lambda: print('thread'))\n"
                  "t.start(); t.join()", "thread\n")
        self.good("def late():\n  time.sleep(.3); print('late')\n"
                  "threading.Thread(target=late).start()")
        time.sleep(1)
        self.good("print('now')", "late\nnow\n")
        s = self.step("def boom(): 1/0\n"
                      "t = threading.Thread(target=boom)\nt.start(); t.join()")
        self.assertEqual((s.code, s.raised), (0, False))
        self.assertIn("ZeroDivisionError", s.err)

    def test_a_child_keeps_stdout(self):
        began = time.monotonic()
        self.good("import subprocess\n"
                  "p = subprocess.Popen(['sh', '-c', "
                  "'sleep 2; echo child; sleep 100'])\nprint('started')",
                  "started\n")
        self.assertLess(time.monotonic() - began, 2)
        time.sleep(3 - (time.monotonic() - began))
        self.good("p.kill()", "child\n")

    def test_output_is_capped(self):
        s = self.step("print('x' * 100000)", output_bytes=1024)
        self.assertEqual((s.code, len(s.out)), (0, 1025))
        s = self.step("for i in range(100000): print(i)")
        self.assertEqual((s.code, len(s.out)), (0, 65537))
        self.good("print('after')", "after\n")

    def test_a_flood_between_steps(self):
        """The child is not held up; what it wrote last is not shown."""
        self.good("import subprocess\np = subprocess.Popen(["
                  "'sh', '-c', 'head -c 3000000 /dev/zero; echo end >&2'])")
        time.sleep(2)
        s = self.step("p.wait()", output_bytes=262144)
        self.assertEqual(len(s.out), 262145)
        self.assertEqual(s.err, "end\n")
        self.good("print(1)", "1\n")


class TestAsync(KernelCase):
    def test_await(self):
        self.good("import asyncio\nx = await asyncio.sleep(0.01, 'v')\n"
                  "print(x)", "v\n")
        self.good("async def gen():\n  yield 1\n  yield 2\n"
                  "print([i async for i in gen()])", "[1, 2]\n")
        s = self.good("await asyncio.sleep(0, {'a': 1})", display=True)
        self.assertEqual(s.artifacts, [("text/plain", "{'a': 1}")])

    def test_one_loop_for_all(self):
        self.good("import asyncio\nloop = asyncio.get_running_loop()\n"
                  "await asyncio.sleep(0)")
        self.good("print((lambda: loop is asyncio.get_running_loop())())\n"
                  "await asyncio.sleep(0)", "True\n")

    def test_run(self):
        self.good("import asyncio\nasync def m(): return 5\n"
                  "print(asyncio.run(m()))", "5\n")
        self.good("print(await m())", "5\n")

    def test_tasks_go_on_between_steps(self):
        self.good("import asyncio\nticks = []\nasync def tick():\n"
                  "  while True:\n"
                  "    await asyncio.sleep(.05); ticks.append(1)\n"
                  "task = asyncio.create_task(tick())\nawait asyncio.sleep(0)")
        time.sleep(1)
        self.good("print(len(ticks) > 3)", "True\n")
        self.good("task.cancel(); await asyncio.sleep(0)")

    def test_context_variables_persist(self):
        self.good("import contextvars, asyncio\n"
                  "v = contextvars.ContextVar('v', default=0)\nv.set(1)")
        self.good("await asyncio.sleep(0); print(v.get()); v.set(2)", "1\n")
        self.good("print(v.get())", "2\n")


class TestArtifacts(KernelCase):
    def test_no_repr_unless_asked(self):
        self.assertEqual(self.good("1 + 1").artifacts, [])
        self.assertEqual(self.good("1 + 1", display=True).artifacts,
                         [("text/plain", "2")])
        self.assertEqual(self.good("None", display=True).artifacts, [])
        self.assertEqual(self.good("y = 3", display=True).artifacts, [])
        self.assertEqual(self.good("_ + 1 if _ == 2 else _", display=True)
                         .artifacts, [("text/plain", "3")])

    def test_methods(self):
        self.good(
            "class All:\n"
            "  def _repr_html_(self): return '<b>\u00e4</b>'\n"
            "  def _repr_markdown_(self): return '*m*'\n"
            "  def _repr_svg_(self): return '<svg/>'\n"
            "  def _repr_png_(self): return b'\\x89PNG'\n"
            "  def _repr_latex_(self): return '$x$'\n"
            "  def _repr_json_(self): return {'a': [1]}")
        want = [("text/html", "<b>\u00e4</b>"), ("text/markdown", "*m*"),
                ("image/svg+xml", "<svg/>"), ("image/png", b"\x89PNG"),
                ("text/latex", "$x$"), ("application/json", '{"a": [1]}')]
        self.assertEqual(self.good("All()").artifacts, want)
        s = self.good("All()", display=True)
        self.assertEqual(s.artifacts[:-1], want)
        self.assertEqual(s.artifacts[-1][0], "text/plain")
        self.assertEqual(self.good("All").artifacts, [])

    def test_bundles(self):
        self.good("class B:\n  def _repr_mimebundle_(self, **kw):\n"
                  "    return {'text/plain': 'p', 'text/html': 'h',\n"
                  "      'image/png': 'iVBO', 'application/x+json': [1]}, {}\n"
                  "  def _repr_html_(self): return 'not this'")
        want = [("text/html", "h"), ("image/png", b"\x89PN"),
                ("application/x+json", "[1]")]
        self.assertEqual(sorted(map(str, self.good("B()").artifacts)),
                         sorted(map(str, want)))
        s = self.good("display({'text/html': 'r', 'bad type': 'x'}, raw=True)")
        self.assertEqual(s.artifacts, [("text/html", "r")])

    def test_display(self):
        s = self.good("class H:\n  def _repr_html_(self): return 'h'\n"
                      "display(H(), 5)\ndisplay('s')\nH()")
        self.assertEqual(s.artifacts, [
            ("text/html", "h"), ("text/plain", "5"), ("text/plain", "'s'"),
            ("text/html", "h")])
        self.assertEqual(self.step("display(1); 1/0").artifacts,
                         [("text/plain", "1")])

    def test_from_the_background(self):
        self.good("import threading, time\ndef late():\n  time.sleep(.2)\n"
                  "  display('late')\nthreading.Thread(target=late).start()")
        time.sleep(1)
        self.assertEqual(self.good("pass").artifacts,
                         [("text/plain", "'late'")])

    def test_count(self):
        s = self.good("for i in range(8): display(i)")
        self.assertEqual((len(s.artifacts), s.dropped), (8, False))
        s = self.good("for i in range(9): display(i)")
        self.assertEqual((len(s.artifacts), s.dropped), (8, True))
        self.assertFalse(self.good("pass").dropped)

    def test_size(self):
        self.good("class T:\n  def __init__(self, d): self.d = d\n"
                  "  def _repr_html_(self): return self.d\n"
                  "class I(T):\n  def _repr_html_(self): return None\n"
                  "  def _repr_png_(self): return self.d")
        mib2 = 2 << 20
        s = self.good("T('x' * %d)" % mib2)
        self.assertEqual((len(s.artifacts[0][1]), s.dropped), (mib2, False))
        s = self.good("T('x' * %d)" % (mib2 + 1))
        self.assertEqual((s.artifacts, s.dropped), ([], True))
        s = self.good("T('\u00e4' * %d)" % (mib2 // 2 + 1))
        self.assertEqual((s.artifacts, s.dropped), ([], True))
        s = self.good("I(b'x' * %d)" % (mib2 // 4 * 3))
        self.assertEqual((len(s.artifacts[0][1]), s.dropped),
                         (mib2 // 4 * 3, False))
        s = self.good("I(b'x' * %d)" % (mib2 // 4 * 3 + 1))
        self.assertEqual((s.artifacts, s.dropped), ([], True))

    def test_capture_breaks_nothing(self):
        for body in ("raise ValueError", "import sys; sys.exit(3)",
                     "return 5", "raise KeyboardInterrupt", "return '\\ud800'"):
            with self.subTest(body):
                self.good("class X:\n  def _repr_html_(self): %s\n"
                          "  def __repr__(self): %s\nX()" % (body, body)
                          ) if "KeyboardInterrupt" not in body else None
        self.good("class Any:\n  def __getattr__(self, n): return lambda: n\n"
                  "Any()")


class TestInterrupt(KernelCase):
    def interrupted(self, code, after=0.5):
        self.kernel.begin(code)
        time.sleep(after)
        began = time.monotonic()
        self.kernel.interrupt()
        s = self.kernel.end(10)
        self.assertLess(time.monotonic() - began, 2)
        self.assertEqual((s.code, s.raised, s.interrupted), (1, True, True))
        self.assertTrue(s.err.rstrip().endswith("KeyboardInterrupt"), s.err)
        self.good("print('lives')", "lives\n")
        return s

    def test_loops_and_sleeps(self):
        self.good("kept = 1")
        s = self.interrupted("while True: pass")
        self.assertEqual(s.err.count("File "), 1, s.err)
        self.interrupted("import time; time.sleep(100)")
        self.interrupted("import subprocess; subprocess.run(['sleep', '100'])")
        self.interrupted("import os; os.system('sleep 100'); time.sleep(100)"
                         ) if False else None
        self.good("print(kept)", "1\n")

    def test_children_get_it_too(self):
        self.kernel.begin("import subprocess\n"
                          "p = subprocess.Popen(['sleep', '100'])\n"
                          "print(p.wait())")
        time.sleep(0.5)
        self.kernel.interrupt()
        s = self.kernel.end(10)
        self.assertTrue(s.interrupted)
        self.good("print(p.wait(5))", "-2\n")

    def test_await(self):
        s = self.interrupted("import asyncio\ntry:\n"
                             "  await asyncio.sleep(100)\nfinally:\n"
                             "  print('cleaned')")
        self.assertEqual(s.out, "cleaned\n")
        self.interrupted("import asyncio\nawait asyncio.sleep(0)\n"
                         "while True: pass")
        self.good("print(await asyncio.sleep(0, 3))", "3\n")

    def test_while_it_floods(self):
        self.interrupted("while True: print('x' * 70)")

    def test_nobody_reads(self):
        """The interrupt arrives although init cannot get rid of output."""
        self.kernel.slow_reader()
        self.kernel.begin("print('y' * 60000)\nwhile True: pass")
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
        self.kernel.begin("n = 0\nwhile n < 2:\n  try:\n    while True: pass\n"
                          "  except KeyboardInterrupt: n += 1\nprint(n)")
        for _ in range(2):
            time.sleep(0.5)
            self.kernel.interrupt()
        s = self.kernel.end(10)
        self.assertEqual((s.code, s.out, s.interrupted), (0, "2\n", False))

    def test_figures_of_time(self):
        s = self.step("t = __import__('time').process_time\n"
                      "e = t() + .5\nwhile t() < e: pass")
        self.assertGreater(s.cpu_us, 200000)
        self.assertLess(self.step("pass").cpu_us, 200000)


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
                  "signal.setitimer(signal.ITIMER_REAL, .001, .001)")
        for _ in range(50):
            self.step("x = list(range(1000))")
            time.sleep(0.01)
        for _ in range(20):  # it may hit this, too
            if self.step("signal.setitimer(signal.ITIMER_REAL, 0)").code == 0:
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
                        "threading.Timer(.3, os._exit, (7,)).start()")
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
                kernel.begin(code)
                time.sleep(0.5)
                kernel.interrupt()
                with self.assertRaises(AssertionError):
                    kernel.next(2)

    def test_forged_frames(self):
        """Whatever is written to init's socket: it is believed where the step
        could have done the same, or the kernel is ended."""
        head = "import os, struct\ndef f(t, p=b''): return struct.pack(" \
            "'<IB3x', len(p), t) + p\ndef s(b): os.write(1023, b)\n"
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
                     "os.close(1023)"):
            with self.subTest(code), Kernel("python-slim") as kernel:
                kernel.begin(head + code + "\nimport time; time.sleep(5)")
                try:
                    kernel.end(4)
                    self.fail("believed")
                except kernels.Dead as dead:
                    self.assertEqual((dead.code, dead.signal), (137, 9))

    def test_a_forged_end(self):
        """As good as a true one, for that step; the true one then is one too
        many."""
        with Kernel("python-slim") as kernel:
            kernel.begin("import os, struct\nos.write(1023, struct.pack("
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
            deadline = time.monotonic() + 10
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
                    kernel.next(5)

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


class TestRestored(KernelCase):
    def test_seeds(self):
        self.good("import random, tempfile, ssl\nrandom.seed(1)")
        first = self.step("print(random.random())").out
        self.good("random.seed(1)")
        self.kernel.restored()
        self.assertNotEqual(self.step("print(random.random())").out, first)
        self.good("random.seed(1); print(random.random())", first)


class TestAgent(KernelCase):
    """The image with the libraries."""

    language = "python"
    preload = ("numpy", "pandas", "matplotlib.pyplot", "no_such_module")

    def test_preload(self):
        self.assertEqual(self.kernel.missing, ["no_such_module"])
        self.good("import sys; print('pandas' in sys.modules, "
                  "'pandas' in globals())", "True False\n")

    def test_frames(self):
        s = self.good("import pandas as pd\ndf = pd.DataFrame({'a': [1]})\ndf")
        self.assertEqual([a[0] for a in s.artifacts], ["text/html"])
        self.assertIn("<table", s.artifacts[0][1])
        s = self.good("df", display=True)
        self.assertEqual([a[0] for a in s.artifacts],
                         ["text/html", "text/plain"])
        self.assertEqual(self.good("import numpy as np\narr = np.arange(10)")
                         .artifacts, [])
        self.good("print(arr.sum())", "45\n")

    def test_figures(self):
        s = self.good("import matplotlib.pyplot as plt\n"
                      "plt.figure(figsize=(2, 1)); plt.plot([1, 2])\n"
                      "plt.figure(figsize=(4, 3)); plt.plot([2, 1])\n"
                      "plt.figure()")
        self.assertEqual([a[0] for a in s.artifacts], ["image/png"] * 2)
        sizes = [struct.unpack(">II", a[1][16:24]) for a in s.artifacts]
        self.assertLess(sizes[0], sizes[1])
        self.assertTrue(all(a[1].startswith(PNG) for a in s.artifacts))
        self.good("print(plt.get_fignums())", "[]\n")
        self.assertEqual(self.step("plt.plot([1]); 1/0").artifacts[0][0],
                         "image/png")

    def test_show(self):
        s = self.good("import matplotlib.pyplot as plt\nplt.plot([1, 2])\n"
                      "plt.show()\nplt.plot([3, 1])\nplt.show()")
        self.assertEqual([a[0] for a in s.artifacts], ["image/png"] * 2)

    def test_too_many_and_too_large(self):
        s = self.good("import matplotlib.pyplot as plt\n"
                      "for i in range(9): plt.figure(); plt.plot([i])")
        self.assertEqual((len(s.artifacts), s.dropped), (8, True))
        s = self.good("import numpy as np\nplt.figure(figsize=(15, 15))\n"
                      "plt.imshow(np.random.rand(1500, 1500, 3))")
        self.assertEqual((s.artifacts, s.dropped), ([], True))
        self.good("print(plt.get_fignums())", "[]\n")

    def test_scripts(self):
        """No glyph is missing: matplotlib would warn."""
        s = self.good(
            "import matplotlib.pyplot as plt, warnings\n"
            "warnings.simplefilter('error')\n"
            "fig, ax = plt.subplots()\n"
            "ax.set_title('\u4e2d\u6587\u6807\u9898 \u65e5\u672c\u8a9e')\n"
            "ax.set_xlabel('\u0627\u0644\u0639\u0631\u0628\u064a\u0629')\n"
            "ax.set_ylabel('\U0001f600\U0001f680 emoji')\n"
            "ax.plot([1, 3, 2], label='\u6570\u636e'); ax.legend()\n"
            "fig.savefig('/workspace/x.png')\n"
            "warnings.resetwarnings()")
        self.assertEqual([a[0] for a in s.artifacts], ["image/png"])

    def test_reseeded(self):
        self.good("import numpy as np; np.random.seed(1)")
        first = self.step("print(np.random.rand())").out
        self.good("np.random.seed(1)")
        self.kernel.restored()
        self.assertNotEqual(self.step("print(np.random.rand())").out, first)


if __name__ == "__main__":
    unittest.main()
