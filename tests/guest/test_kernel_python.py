# SPDX-License-Identifier: Apache-2.0
"""The Python kernel in a real sandbox: what a step gets, shows and leaves."""

import struct
import time
import unittest

from again import again
from kernels import HELD, HOLD, SHELL_HELD, SHELL_HOLD, KernelCase
from sandbox import setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here

PNG = b"\x89PNG\r\n\x1a\n"


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
        s = self.step("class H(Exception):\n"
                      "    __class__ = property(lambda self: 1 / 0)\nraise H")
        self.assertEqual((s.code, s.raised), (1, True))
        s = self.step("class I(int):\n"
                      "    def __and__(self, other): return 'x'\n"
                      "raise SystemExit(I(259))")
        self.assertEqual((s.code, s.raised), (3, False))

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

    def test_cpu_time(self):
        """Of the step, and of the children that it has waited for."""
        burn = "import time\nwhile time.process_time() < %s: pass"
        begin = "import subprocess\nsubprocess.run(['python3', '-c', %r])"

        def three():
            before = self.kernel.step("1").cpu_us
            step = self.kernel.step(begin % (burn % ".5"))
            self.assertEqual(step.code, 0, step)
            return before, step.cpu_us, self.kernel.step("1").cpu_us
        before, busy, after = again(
            three, lambda us: us[0] < 200000 and us[2] < 200000)
        self.assertLess(before, 200000)
        self.assertGreaterEqual(busy, 400000)
        self.assertLess(after, 200000)

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

    def test_detached(self):
        self.good("import sys; held = sys.stdout.detach(), "
                  "sys.stderr.detach(), sys.stdin.detach()")
        self.good("print('out'); held = None", "out\n")
        self.assertEqual(self.step("sys.stderr.write('err')").err, "err")
        self.good("print(input())", "in\n", stdin=b"in\n")
        self.good("import io; sys.stdout = mine = io.TextIOWrapper("
                  "sys.stdout.detach(), 'utf-16-le', write_through=True)")
        self.good("print('x', sys.stdout is mine)",
                  "x True\n".encode("utf-16-le").decode())
        self.good("sys.stdout = None")

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
        self.good("import os\ndef late():\n  %s\n  print('late'); %s\n"
                  "threading.Thread(target=late).start()" % (HOLD, HELD))
        self.kernel.go()
        self.good("print('now')", "late\nnow\n")
        s = self.step("def boom(): 1/0\n"
                      "t = threading.Thread(target=boom)\nt.start(); t.join()")
        self.assertEqual((s.code, s.raised), (0, False))
        self.assertIn("ZeroDivisionError", s.err)

    def test_a_child_keeps_stdout(self):
        def start():
            began = time.monotonic()
            self.good("import subprocess\nif 'p' in globals(): p.kill()\n"
                      "p = subprocess.Popen(['sh', '-c', "
                      "'%s; echo child; %s; sleep 100'])\nprint('started')"
                      % (SHELL_HOLD, SHELL_HELD), "started\n")
            return time.monotonic() - began
        self.assertLess(again(start, lambda took: took < 2), 2)
        self.kernel.go()
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
        self.good("import asyncio, os\nticks = []\nasync def tick():\n"
                  "  while True:\n"
                  "    await asyncio.sleep(.05); ticks.append(1)\n"
                  "    if os.path.exists('/workspace/go') and "
                  "len(ticks) > 3: %s\n"
                  "task = asyncio.create_task(tick())\nawait asyncio.sleep(0)"
                  % HELD)
        self.kernel.go()
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
        self.good("import os, threading, time\ndef late():\n  %s\n"
                  "  display('late'); %s\n"
                  "threading.Thread(target=late).start()" % (HOLD, HELD))
        self.kernel.go()
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
                     "return 5", "return '\\ud800'"):
            with self.subTest(body):
                self.good("class X:\n  def _repr_html_(self): %s\n"
                          "  def __repr__(self): %s\nX()" % (body, body))
        self.good("class Any:\n  def __getattr__(self, n): return lambda: n\n"
                  "Any()")

    def test_what_one_form_raises_is_only_its_own(self):
        self.good("class Half:\n  def _repr_html_(self): 1 / 0\n"
                  "  def _repr_png_(self): return b'\\x89PNG'\n"
                  "class None_:\n  def _repr_html_(self): 1 / 0")
        png = ("image/png", b"\x89PNG")
        self.assertEqual(self.good("Half()").artifacts, [png])
        s = self.good("Half()", display=True)
        self.assertEqual([a[0] for a in s.artifacts],
                         ["image/png", "text/plain"])
        s = self.good("None_()", display=True)
        self.assertEqual([a[0] for a in s.artifacts], ["text/plain"])
        s = self.good("display({'application/json': {1, 2}, 'text/html': 'h'},"
                      " raw=True)")
        self.assertEqual(s.artifacts, [("text/html", "h")])
        self.bad("display(None_())", "ZeroDivisionError: division by zero")

    def test_what_init_would_not_take(self):
        s = self.good("display({'a' * 32 + '/x': 'no', 'b' * 31 + '/' + 'c' * "
                      "64: 'yes'}, raw=True)")
        self.assertEqual([a[1] for a in s.artifacts], ["yes"])
        s = self.good("class S(str):\n  def encode(self, *a): return 'no'\n"
                      "class B(bytes):\n  def __len__(self): return 1\n"
                      "  def __getitem__(self, i): return 'no'\n"
                      "  def __bytes__(self): return self\n"
                      "display({'text/html': S('h'), 'image/png': B(b'png')},"
                      " raw=True)")
        self.assertEqual(s.artifacts, [("text/html", "h"),
                                       ("image/png", b"png")])

    def test_many_threads_show_something(self):
        self.good("import sys, threading\n"
                  "def show():\n  b.wait()\n  for i in range(3): display(i)\n"
                  "usual = sys.getswitchinterval()\n"
                  "sys.setswitchinterval(1e-6)")
        for _ in range(100):
            s = self.good("b = threading.Barrier(12)\n"
                          "t = [threading.Thread(target=show) "
                          "for _ in range(12)]\n"
                          "for x in t: x.start()\nfor x in t: x.join()")
            self.assertEqual((len(s.artifacts), s.dropped), (8, True))
        self.good("sys.setswitchinterval(usual)")


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
