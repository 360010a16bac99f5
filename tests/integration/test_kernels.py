# SPDX-License-Identifier: Apache-2.0
"""Live kernels against the real service: what persists, exit codes, artifacts,
interrupts, forks, files, many steps."""

import base64
import io
import json
import os
import re
import subprocess
import threading
import time
import unittest
import zipfile

from again import again
from harness import Service, wait_for
from kernel_case import PYTHON, Kernel, KernelCase

REFERENCE = r"""
S=$(curl -s -X POST https://isobox.hsingh.app/v1/sessions -d '{"runtime":"python","type":"kernel"}')
ID=$(echo "$S"|jq -r .id); TOK=$(echo "$S"|jq -r .token)
curl -s -X POST https://isobox.hsingh.app/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" -d '{"code":"import numpy as np; arr = np.arange(10)"}'
curl -s -X POST https://isobox.hsingh.app/v1/sessions/$ID/exec -H "X-Session-Token: $TOK" -d '{"code":"print(arr.sum())"}'   # -> 45  (arr persisted)
"""
SHELL = ("import subprocess, sys\n"
         "sys.exit(subprocess.run(['bash', '-c', %r]).returncode)")
PNG = b"\x89PNG\r\n\x1a\n"


class Reference(KernelCase):
    """The examples of the API, word for word."""

    def test_example(self):
        script = REFERENCE.replace(
            "https://isobox.hsingh.app",
            "http://127.0.0.1:%d" % self.service.port)
        done = subprocess.run(["bash", "-ec", script + "\necho\necho $S"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        decoder = json.JSONDecoder()
        first, at = decoder.raw_decode(done.stdout)
        second, _ = decoder.raw_decode(done.stdout, at)
        session = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual((first["run"]["stdout"], first["run"]["stderr"]),
                         ("", ""))
        self.assertEqual((second["run"]["stdout"], second["run"]["exitCode"]),
                         ("45\n", 0))
        self.assertEqual(second["language"], "python")
        self.assertEqual(session["type"], "kernel")
        self.assertNotIn("artifacts", second)
        Kernel(self.client, session).end()


class State(KernelCase):
    def test_what_persists(self):
        k = self.kernel()
        self.good(k, "import math\nx = 41\ndef f(): return x + 1\n"
                     "class C: pass\nc = C()")
        self.good(k, "print(f(), type(c) is C, math.floor(2.5))",
                  "42 True 2\n")
        self.good(k, "import os; print(os.getcwd())", "/workspace\n")

    def test_files_of_a_step_and_its_input(self):
        k = self.kernel()
        self.good(k, "import m; print(m.X, input(), open('/box/d').read())",
                  "5 in \u00e9\n", stdin="in\n", files=[
                      {"name": "m.py", "content": "X = 5"},
                      {"name": "d", "content": "w6k=", "encoding": "base64"}])

    def test_the_workspace_and_the_file_api(self):
        k = self.kernel()
        self.good(k, "open('a', 'w').write('1')")
        self.assertEqual(k.fs("GET", "a").body, b"1")
        self.assertEqual(k.fs("PUT", "d/b", b"\xff\0").status, 200)
        self.good(k, "print(open('/workspace/d/b', 'rb').read())",
                  "b'\\xff\\x00'\n")
        names = {e["name"] for e in k.fs("GET").json()["entries"]}
        self.assertLessEqual({"a", "d"}, names)
        self.assertEqual(k.fs("DELETE", "d").status, 204)
        self.good(k, "import os; print(os.path.exists('d'))", "False\n")

    def test_a_volume(self):
        made = self.client.post("/v1/volumes", {"name": "mem"}).json()["id"]
        k = self.kernel(volumeId=made)
        self.good(k, "open('/memory/note', 'w').write('later')")
        self.error(k.request("POST", "/fork"), 409, "volume_busy")
        self.assertEqual(k.end(), 204)
        other = self.kernel(volumeId=made)
        self.good(other, "print(open('/memory/note').read())", "later\n")

    def test_no_memory_without_a_volume(self):
        k = self.kernel()
        self.assertNotEqual(k.run("open('/memory/x', 'w')")["exitCode"], 0)

    def test_kernels_see_only_their_own(self):
        a, b = self.kernel(), self.kernel()
        self.good(a, "open('secret', 'w').write('a'); y = 1")
        self.good(b, "import os; print(os.path.exists('secret'), "
                     "'y' in globals())", "False False\n")

    def test_stream(self):
        k = self.kernel()
        with k.stream("import sys, time\nprint('one', flush=True)\n"
                      "time.sleep(2); print('two', file=sys.stderr)\nz = 7"
                      ) as c:
            events = [e for e in c.events() if e.name]
        self.assertEqual([e.name for e in events],
                         ["stdout", "stderr", "done"])
        self.assertEqual(events[0].data, {"chunk": "one\n"})
        self.assertGreater(events[-1].at - events[0].at, 0.2)
        self.assertEqual((events[-1].data["kernel"],
                          events[-1].data["run"]["stdout"]),
                         ("alive", "one\n"))
        self.good(k, "print(z)", "7\n")

    def test_one_at_a_time(self):
        k = self.kernel()
        first = k.begin("import time; time.sleep(1.5); q = 1")
        wait_for("its step", lambda: k.look()["busy"], 20)
        self.good(k, "print(q)", "1\n")
        self.assertEqual(first().status, 200)
        first = k.begin("time.sleep(8)")
        wait_for("its step", lambda: k.look()["busy"], 20)
        r = k.post("/exec", code="1", limits={"wallTimeMs": 500})
        self.error(r, 429, "session_busy")
        self.assertGreaterEqual(int(r.header("retry-after")), 1)
        self.assertTrue(k.look()["busy"])
        self.assertEqual(first().status, 200)
        self.assertFalse(k.look()["busy"])

    def test_limits(self):
        k = self.kernel()
        facts = k.look()
        self.assertEqual(facts["limits"]["memoryBytes"], 512 << 20)
        self.assertGreaterEqual(facts["kernel"]["memoryBytes"], 1 << 20)
        run = k.run("print('x' * 5000)", limits={"outputBytes": 1024})
        self.assertEqual((len(run["stdout"]), run["truncated"]), (1024, True))
        run = k.run("for i in range(100000): print(i)")
        self.assertEqual((len(run["stdout"]), run["truncated"],
                          run["exitCode"]), (65536, True, 0))
        self.good(k, "print('after')", "after\n")

    def test_network_is_off_when_nobody_may_have_one(self):
        k = self.kernel(network=True)
        a = k.step("print(1)", network=False)
        self.assertFalse(a["run"]["network"])
        self.assertIn("network requested", a["warning"])
        self.assertIn("network requested", k.facts["warning"])

    def test_the_quota(self):
        with_quota = self.kernel()
        r = with_quota.post(
            "/exec", code="f = open('big', 'wb')\n"
            "for _ in range(700): f.write(bytes(1 << 20)); f.flush()")
        self.error(r, 413, "quota_exceeded")

    def test_what_the_environment_is(self):
        k = self.kernel()
        self.good(k, "import os\nprint(os.environ['HOME'], "
                     "os.environ['PYTHONUSERBASE'], "
                     "os.environ['PATH'].split(':')[0], os.getuid())",
                  "/workspace /workspace/.local /workspace/.local/bin "
                  "65534\n")

    def test_a_package_is_installed(self):
        """By pip, from a wheel that we made; it survives the kernel."""
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as z:
            z.writestr("tiny.py", "WORD = 'tiny'\n")
            z.writestr("tiny-1.dist-info/METADATA",
                       "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
            z.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\n"
                       "Generator: x\nRoot-Is-Purelib: true\n"
                       "Tag: py3-none-any\n")
            z.writestr("tiny-1.dist-info/RECORD", "tiny.py,,\n"
                       "tiny-1.dist-info/METADATA,,\n"
                       "tiny-1.dist-info/WHEEL,,\n"
                       "tiny-1.dist-info/RECORD,,\n")
        k = self.kernel(runtime="python")
        name = "tiny-1-py3-none-any.whl"
        self.assertEqual(k.fs("PUT", name, out.getvalue()).status, 200)
        a = k.step(SHELL % ("pip install --user --no-index --no-deps "
                            "--break-system-packages -q ./" + name),
                   limits={"wallTimeMs": 60000})
        self.assertEqual(a["run"]["exitCode"], 0, a)
        self.good(k, "import tiny; print(tiny.WORD)", "tiny\n")
        self.assertIn("tiny.py", json.dumps(k.fs(
            "GET", ".local/lib").json()) + json.dumps([
                k.fs("GET", ".local/lib/%s/site-packages" % e["name"]).json()
                for e in k.fs("GET", ".local/lib").json()["entries"]]))


class Codes(KernelCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.k = Kernel(cls.client)
        cls.addClassCleanup(cls.k.end)

    def test_codes(self):
        for code, want in (
                ("", 0), ("pass", 0), ("1/0", 1), ("raise ValueError", 1),
                ("(", 1), ("\tx", 1), ("raise SystemExit", 0),
                ("import sys; sys.exit(0)", 0), ("sys.exit(3)", 3),
                ("sys.exit(255)", 255), ("sys.exit(256)", 0),
                ("sys.exit('no')", 1), ("sys.exit()", 0), ("exit()", 0),
                ("exit(4)", 4), ("quit(5)", 5), ("raise SystemExit(6)", 6),
                ("raise KeyboardInterrupt", 1), ("assert False", 1),
                ("import asyncio; await asyncio.sleep(0)", 0)):
            a = self.k.step(code)
            self.assertEqual((a["run"]["exitCode"], a["kernel"],
                              a["run"]["timedOut"], a["run"]["signal"]),
                             (want, "alive", False, None), (code, a))

    def test_tracebacks(self):
        run = self.k.run("def f():\n    return 1 / 0\nf()")
        self.assertIn("return 1 / 0", run["stderr"])
        self.assertTrue(run["stderr"].rstrip().endswith(
            "ZeroDivisionError: division by zero"), run)
        self.assertNotIn("/usr/libexec", run["stderr"])

    def test_shell_cells(self):
        for command, want, out in (
                ("no-such-command", 127, ""), ("exit 3", 3, ""),
                ("echo hi", 0, "hi\n"), ("/etc/passwd", 126, ""),
                ("kill -9 $$", 247, ""), ("ls /nope", 2, "")):
            run = self.k.run(SHELL % command)
            self.assertEqual((run["exitCode"], run["stdout"]), (want, out),
                             (command, run))
        self.assertIn("no-such-command: command not found",
                      self.k.run(SHELL % "no-such-command")["stderr"])


class Interrupts(KernelCase):
    def await_up(self, k):
        """Once the step has made a file."""
        wait_for("its file", lambda: k.fs("GET", "up").status == 200, 20)
        time.sleep(0.5)

    def interrupt_one(self, k):
        end = k.begin("while True: pass")
        k.interrupt_running()
        return self.timed(end)

    def test_interrupt(self):
        k = self.kernel()
        self.good(k, "x = 5")
        self.assertFalse(k.interrupt())
        took, r = again(lambda: self.interrupt_one(k), lambda x: x[0] < 3)
        a = r.json()
        self.assertLess(took, 3)
        self.assertEqual((a["run"]["exitCode"], a["run"]["timedOut"],
                          a["run"]["interrupted"], a["kernel"]),
                         (1, False, True, "alive"), a)
        self.assertIn("KeyboardInterrupt", a["run"]["stderr"])
        self.good(k, "print(x)", "5\n")

    def test_an_answered_step_has_ended(self):
        """At once: whoever has the answer finds nothing to interrupt."""
        k = self.kernel()
        for _ in range(200):
            k.run("1")
            self.assertFalse(k.interrupt())
            k.run("1")
            self.assertFalse(k.look()["busy"])

    def test_children_are_interrupted_too(self):
        k = self.kernel()
        end = k.begin("import subprocess; open('up', 'w').close()\n"
                      "subprocess.run(['sleep', '50'])")
        self.await_up(k)
        k.interrupt_running()
        self.assertEqual(end().json()["kernel"], "alive")
        self.good(k, "print(1)", "1\n")

    def test_one_that_is_handled(self):
        k = self.kernel()
        end = k.begin("import time\ntry:\n  open('up', 'w').close()\n"
                      "  time.sleep(50)\n"
                      "except KeyboardInterrupt: print('caught')")
        self.await_up(k)
        k.interrupt_running()
        a = end().json()
        self.assertEqual((a["run"]["stdout"], a["run"]["exitCode"],
                          a["run"]["interrupted"]), ("caught\n", 0, False))

    def test_the_client_leaves(self):
        """Its step is interrupted, its kernel lives."""
        k = self.kernel()
        self.good(k, "x = 6")
        c = k.stream("print('on', flush=True)\nwhile True: pass",
                     limits={"wallTimeMs": 60000})
        try:
            next(e for e in c.events() if e.name == "stdout")
        finally:
            c.close()
        took, _ = self.timed(
            wait_for, "the step's end", lambda: not k.look()["busy"], 15)
        self.assertLess(took, 5)
        self.good(k, "print(x)", "6\n")


class Artifacts(KernelCase):
    def artifacts(self, k, code, **members):
        a = k.step(code, **members)
        self.assertEqual((a["run"]["exitCode"], a["run"]["stderr"]), (0, ""),
                         a)
        return a.get("artifacts", []), a["run"]["truncated"]

    def test_figures_and_frames(self):
        k = self.kernel(runtime="python")
        found, cut = self.artifacts(
            k, "import matplotlib.pyplot as plt, pandas as pd\n"
            "for n in (1, 2):\n    plt.figure(figsize=(n, 1)); plt.plot([n])\n"
            "pd.DataFrame({'a': [1, 2]})")
        self.assertFalse(cut)
        self.assertEqual([sorted(a) for a in found], [
            ["data", "type"] if a["type"] == "text/html"
            else ["dataB64", "type"] for a in found])
        pngs = [base64.b64decode(a["dataB64"], validate=True) for a in found
                if a["type"] == "image/png"]
        self.assertEqual([p[:8] for p in pngs], [PNG, PNG])
        width = [int.from_bytes(p[16:20], "big") for p in pngs]
        self.assertLess(width[0], width[1])  # in order
        html, = [a["data"] for a in found if a["type"] == "text/html"]
        self.assertIn("<table", html)
        # They were closed.
        self.assertEqual(self.artifacts(k, "print(plt.get_fignums())")[0], [])
        found, cut = self.artifacts(
            k, "for i in range(9): plt.figure(figsize=(1, 1)); plt.plot([i])",
            limits={"wallTimeMs": 60000})
        self.assertEqual((len(found), cut), (8, True))
        # In a stream: with `done`.
        with k.stream("plt.plot([1]); None") as c:
            events = [e for e in c.events() if e.name]
        self.assertEqual([e.name for e in events], ["done"])
        self.assertEqual(events[0].data["artifacts"][0]["type"], "image/png")

    def test_values(self):
        k = self.kernel()
        self.assertEqual(self.artifacts(k, "1 + 1"), ([], False))
        self.assertEqual(self.artifacts(k, "1 + 1", display=True), (
            [{"type": "text/plain", "data": "2"}], False))
        self.assertEqual(self.artifacts(k, "None", display=True)[0], [])
        self.artifacts(
            k, "class S:\n def __init__(self, n): self.n = n\n"
            " def _repr_html_(self): return '<b>' + 'x' * self.n\n"
            "class V:\n def _repr_svg_(self): return '<svg/>'\n")
        self.assertEqual(self.artifacts(k, "S(3)")[0], [
            {"type": "text/html", "data": "<b>xxx"}])
        self.assertEqual(self.artifacts(k, "display(V(), S(1)); S(2)")[0], [
            {"type": "image/svg+xml", "data": "<svg/>"},
            {"type": "text/html", "data": "<b>x"},
            {"type": "text/html", "data": "<b>xx"}])

    def test_too_large(self):
        k = self.kernel()
        self.artifacts(k, "class S:\n"
                       " def __init__(self, n): self.n = n\n"
                       " def _repr_html_(self): return 'x' * self.n")
        found, cut = self.artifacts(k, "S(2 << 20)")
        self.assertEqual((len(found[0]["data"]), cut), (2 << 20, False))
        self.assertEqual(self.artifacts(k, "S((2 << 20) + 1)"), ([], True))
        found, cut = self.artifacts(
            k, "for _ in range(9): display(S(2 << 20))",
            limits={"wallTimeMs": 30000})
        self.assertEqual(([len(a["data"]) for a in found], cut),
                         ([2 << 20] * 8, True))
        self.good(k, "print(1)", "1\n")

    def test_capture_breaks_nothing(self):
        k = self.kernel()
        a = k.step("class B:\n def _repr_html_(self): 1/0\nx = 1\nB()")
        self.assertEqual((a["run"]["exitCode"], a["kernel"]), (0, "alive"))
        self.good(k, "print(x)", "1\n")

    def test_scripts_of_the_world(self):
        """No box stands for a glyph that is missing: matplotlib would say so.
        ISOBOX_TEST_PICTURES: a folder to look at them in."""
        k = self.kernel(runtime="python")
        for name, word in (
                ("chinese", "\u4e2d\u6587\u6807\u9898"),
                ("japanese", "\u65e5\u672c\u8a9e\u306e\u56f3"),
                ("arabic", "\u0627\u0644\u0639\u0631\u0628\u064a\u0629"),
                ("emoji", "\U0001f600 \U0001f680 \u2764")):
            found, _ = self.artifacts(
                k, "import matplotlib.pyplot as plt\n"
                "plt.figure(figsize=(4, 2)); plt.title(%r); "
                "plt.xlabel(%r)\nplt.plot([1, 3, 2], label=%r); "
                "plt.legend(); None" % (word, word, word),
                limits={"wallTimeMs": 60000})
            png = base64.b64decode(found[0]["dataB64"])
            self.assertEqual(png[:8], PNG)
            folder = os.environ.get("ISOBOX_TEST_PICTURES")
            if folder:
                with open(os.path.join(folder, name + ".png"), "wb") as f:
                    f.write(png)


class Forks(KernelCase):
    DRAW = ("import random, uuid, secrets\n"
            "print(random.random(), uuid.uuid4(), secrets.token_hex(8))")

    def test_fork(self):
        k = self.kernel()
        self.good(k, "x = [1, 2]; import random; random.seed(1)\n"
                     "open('/workspace/f', 'w').write('both')")
        a, b = self.fork(k), self.fork(k)
        self.assertEqual(len({a.id, b.id, k.id}), 3)
        self.assertEqual(len({a.token[0], b.token[0], k.token[0]}), 3)
        draws = set()
        for each, n in ((a, 3), (b, 4), (k, 5)):
            self.good(each, "print(x, open('/workspace/f').read())",
                      "[1, 2] both\n")
            self.good(each, "x.append(%d); open('/workspace/f', 'w')"
                            ".write('%d')" % (n, n))
            draws.update(each.run(self.DRAW)["stdout"].split())
        self.assertEqual(len(draws), 9)
        for each, n in ((a, 3), (b, 4), (k, 5)):
            self.good(each, "print(x)", "[1, 2, %d]\n" % n)
            self.assertEqual(each.fs("GET", "f").body, b"%d" % n)
        self.assertEqual(k.end(), 204)
        self.good(a, "print(x)", "[1, 2, 3]\n")

    def test_numpy(self):
        k = self.kernel(runtime="python")
        self.good(k, "import numpy as np; np.random.seed(3)")
        f = self.fork(k)
        draws = [each.run("print(np.random.rand())")["stdout"]
                 for each in (k, f)]
        self.assertNotEqual(*draws)

    def test_while_a_step_runs(self):
        k = self.kernel()
        end = k.begin("import time; time.sleep(2); x = 1")
        wait_for("its step", lambda: k.look()["busy"], 20)
        r = k.request("POST", "/fork")
        if r.status == 201:  # it waited for its turn
            f = Kernel(self.client, r.json())
            self.addCleanup(f.end)
            self.good(f, "print(x)", "1\n")
        else:
            self.error(r, 429, "session_busy")
        self.assertEqual(end().json()["kernel"], "alive")
        self.good(k, "print(x)", "1\n")

    def test_a_dead_one(self):
        k = self.kernel()
        k.step("import os; os._exit(2)")
        self.error(k.request("POST", "/fork"), 409, "kernel_dead")


class Slots(KernelCase):
    settings = {"kernel_slots": 2, "kernel_warm": 1}

    def used(self):
        return self.client.get("/healthz").json()["kernels"]

    def test_slots(self):
        self.assertEqual(self.used(), {"used": 0, "max": 2})
        a = self.kernel()
        self.good(a, "x = 'a'")
        b = self.kernel()
        self.good(b, "x = 'b'")
        self.assertEqual(self.used(), {"used": 2, "max": 2})
        c = self.kernel()  # the longest idle one makes room
        self.good(c, "x = 'c'")
        self.assertEqual(a.state(), "hibernated")
        self.assertEqual(self.used(), {"used": 2, "max": 2})
        for k, x in ((a, "a"), (b, "b"), (c, "c"), (a, "a")):
            self.good(k, "print(x)", x + "\n")

    def test_too_many(self):
        a, b = self.kernel(), self.kernel()
        ends = [k.begin("import time; time.sleep(9)") for k in (a, b)]
        wait_for("both steps", lambda: a.look()["busy"] and b.look()["busy"])
        r = self.client.post("/v1/sessions", {
            "runtime": PYTHON, "type": "kernel"})
        self.error(r, 429, "too_many_kernels")
        self.assertGreaterEqual(int(r.header("retry-after")), 1)
        for end in ends:
            self.assertEqual(end().json()["kernel"], "alive")
        self.kernel()


class Many(KernelCase):
    STEPS = int(os.environ.get("ISOBOX_TEST_STEPS", "1000"))

    def test_no_growth(self):
        k = self.kernel()
        for _ in range(50):
            self.good(k, "")
        before = self.service.usage()
        memory = k.look()["kernel"]["memoryBytes"]
        for i in range(self.STEPS):
            self.good(k, "n = %d; print(n)" % i, "%d\n" % i)
        after = self.service.usage()
        for name in before:
            fds, threads, rss = after[name]
            self.assertLessEqual(fds, before[name][0] + 2, name)
            self.assertLessEqual(threads, before[name][1], name)
            self.assertLess(rss, before[name][2] + 2048, name)
        self.assertLess(k.look()["kernel"]["memoryBytes"], memory + (8 << 20))
        self.assertEqual(k.look()["kernel"]["steps"], self.STEPS + 50)

    def test_at_the_same_time(self):
        """Sessions side by side, each with its own answers."""
        kernels = [self.kernel() for _ in range(4)]
        wrong = []

        def work(n, k):
            for i in range(25):
                run = k.run("v = globals().get('v', 0) + %d; print(v)" % n)
                if run["stdout"] != "%d\n" % (n * (i + 1)):
                    wrong.append((n, i, run))
        threads = [threading.Thread(target=work, args=(n + 1, k))
                   for n, k in enumerate(kernels)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])


class JavaScript(KernelCase):
    def js(self, **members):
        return self.kernel(runtime="javascript", **members)

    def test_all(self):
        k = self.js()
        self.good(k, "const a = 40; let b = 2; function f() { return a + b }")
        self.good(k, "console.log(f())", "42\n")
        self.good(k, "const {readFile} = await import('fs/promises');"
                     "console.log(typeof readFile)", "function\n")
        a = k.step("a + b", display=True)
        self.assertEqual(a["artifacts"], [{"type": "text/plain",
                                           "data": "42"}])
        self.assertNotIn("artifacts", k.step("a + b"))
        run = k.run("throw new Error('no')")
        self.assertEqual(run["exitCode"], 1)
        self.assertIn("Error: no", run["stderr"])
        self.assertEqual(k.run("process.exit(5)")["exitCode"], 5)

    def test_loops(self):
        k = self.js()
        self.good(k, "var x = 3")
        a = k.step("for (;;);", limits={"wallTimeMs": 700})
        self.assertEqual((a["run"]["exitCode"], a["run"]["timedOut"],
                          a["kernel"]), (137, True, "alive"), a)
        self.good(k, "console.log(x)", "3\n")

    def test_fork(self):
        k = self.js()
        self.good(k, "let y = 'js'; Math.random()")
        f = self.fork(k)
        self.good(f, "console.log(y)", "js\n")
        draws = [each.run("console.log(Math.random(), crypto.randomUUID())")
                 ["stdout"] for each in (k, f)]
        self.assertEqual(len(set(draws[0].split() + draws[1].split())), 4)


class Fronts(unittest.TestCase):
    def test_all(self):
        """A step and its stream through each front server."""
        for kind in ("lighttpd", "nginx", "apache", "cgi-lighttpd"):
            with self.subTest(kind):
                service = Service(kind, kernel_warm=0, warm=False)
                try:
                    service.start()
                    k = Kernel(service.client())
                    k.run("x = 1")
                    self.assertEqual(k.run("print(x)")["stdout"], "1\n")
                    with k.stream("display(type('', (), {'_repr_html_': "
                                  "lambda s: '<p>'})()); print(x)") as c:
                        done = [e for e in c.events() if e.name][-1]
                    self.assertEqual(done.data["artifacts"], [
                        {"type": "text/html", "data": "<p>"}])
                    self.assertFalse(k.interrupt())
                    self.assertEqual(k.end(), 204)
                    service.assert_clean()
                finally:
                    service.stop()


class NothingIsLeft(KernelCase):
    settings = {"kernel_warm": 0}

    def test_all(self):
        k = Kernel(self.client)
        k.run("import subprocess; subprocess.Popen(['sleep', '1000'])")
        self.assertEqual(k.end(), 204)
        self.service.assert_clean()
        d = Kernel(self.client)
        d.step("import os; os.abort()")
        self.assertEqual(d.end(), 204)
        f = Kernel(self.client)
        g = f.fork()
        self.assertEqual((f.end(), g.end()), (204, 204))
        busy = Kernel(self.client)
        end = busy.begin("import time; time.sleep(100)")
        wait_for("its step", lambda: busy.look()["busy"], 20)
        took, status = self.timed(busy.end)
        self.assertEqual(status, 204)
        self.assertLess(took, 5)
        self.error(end(), 404, "session_not_found")
        self.service.assert_clean()
        self.assertFalse(re.findall(r'isobox_kernels\{[^}]*\} [^0]',
                                    self.client.get("/metrics").body.decode()))


if __name__ == "__main__":
    unittest.main()
