# SPDX-License-Identifier: Apache-2.0
"""POST /execute in every language, as a user sees it."""

import base64
import json
import unittest

from harness import Service
from languages import GREETING, LANGUAGES

WARNING = ("network requested but currently unavailable (egress firewall not "
           "verified); ran with network OFF")

# Arguments that any quoting on the way would spoil.
ARGS = ["plain", "two words", "", " ", "it's", 'say "hi"', "$HOME `id` $(id)",
        "a\nb", "tab\tback\\slash", "*", "-n", "--", "ü世🌍", "a;b&c|d>e",
        "%s%n", "x" * 5000]


def setUpModule():
    global service, client
    service = Service("caddy").start()
    client = service.client()


def tearDownModule():
    service.stop()


def hexdump(args):
    return "".join("%d %s\n" % (len(a.encode()), a.encode().hex())
                   for a in args)


class Common:
    """The tests that each language must pass; `language` is set below."""

    def check(self, run, stdout, code=0):
        self.assertEqual(
            (run["stdout"], run["exitCode"], run["timedOut"],
             run["oomKilled"], run["truncated"]),
            (stdout, code, False, False, False), run)

    def run_code(self, code, **members):
        return client.run(self.language.name, code, **members)

    def test_hello_unicode(self):
        run = self.run_code(self.language.hello)
        self.check(run, GREETING)
        self.assertEqual(run["stderr"], "")

    def test_arguments(self):
        self.check(self.run_code(self.language.args, args=ARGS),
                   hexdump(ARGS))

    def test_arguments_many(self):
        args = [str(i) for i in range(256)]
        self.check(self.run_code(self.language.args, args=args),
                   hexdump(args))

    def test_stdin(self):
        for text in ("", "one line\n", "\0nul\0\0", "ü" * 1000,
                     "0123456789abcdef" * (200 * 1024 // 16)):
            with self.subTest(len=len(text)):
                data = text.encode()
                run = self.run_code(self.language.stdin, stdin=text)
                self.check(run, "%d %d %d\n" % (len(data), data.count(0),
                                                sum(data)))

    def test_files(self):
        files = [{"name": n, "content": c} for n, c in self.language.tree]
        r = client.execute(self.language.name, files=files)
        self.assertEqual(r.status, 200, r)
        self.check(r.json()["run"], "42\n")

    def test_files_order_does_not_matter(self):
        """The entry point is found by its name, wherever it stands."""
        files = [{"name": n, "encoding": "base64",
                  "content": base64.b64encode(c.encode()).decode()}
                 for n, c in reversed(self.language.tree)]
        r = client.execute(self.language.name, files=files)
        self.assertEqual(r.status, 200, r)
        self.check(r.json()["run"], "42\n")

    def test_exit_code(self):
        self.check(self.run_code(self.language.exit_3), "", 3)

    def test_runtime_error_names_the_line(self):
        run = self.run_code(self.language.error)
        self.check(run, "", self.language.error_code)
        self.assertIn(self.language.error_line, run["stderr"])

    def test_compile_error(self):
        run = self.run_code(self.language.bad_source)
        self.check(run, "", self.language.bad_code)
        self.assertNotEqual(run["stderr"], "")

    def test_alias(self):
        for alias in self.language.aliases:
            with self.subTest(alias):
                r = client.execute(alias, self.language.hello)
                self.assertEqual(r.status, 200, r)
                self.assertEqual(r.json()["language"], self.language.name)
                self.check(r.json()["run"], GREETING)

    def test_stream(self):
        events = client.stream(self.language.name, self.language.hello)
        self.assertEqual(events[-1].name, "done")
        self.assertEqual({e.name for e in events[:-1]}, {"stdout"})
        self.assertEqual("".join(e.data["chunk"] for e in events[:-1]),
                         GREETING)
        self.check(events[-1].data["run"], GREETING)


for _language in LANGUAGES:
    _name = "Test" + _language.name.title().replace("-", "")
    globals()[_name] = type(_name, (Common, unittest.TestCase),
                            {"language": _language, "__module__": __name__})


class TestResult(unittest.TestCase):
    """The members of an answer, exact and typed."""

    def test_members(self):
        r = client.execute("python-slim", "import sys\nprint('out')\n"
                           "print('err', file=sys.stderr)")
        self.assertEqual(r.status, 200, r)
        self.assertEqual(r.header("content-type"), "application/json")
        answer = r.json()
        self.assertEqual(set(answer), {"language", "version", "backend",
                                       "run", "warning"})
        self.assertEqual(answer["language"], "python-slim")
        self.assertEqual(answer["backend"], "gvisor")
        self.assertEqual(answer["warning"], WARNING)
        run = answer["run"]
        types = {"stdout": str, "stderr": str, "exitCode": int,
                 "timedOut": bool, "oomKilled": bool, "truncated": bool,
                 "durationMs": int, "network": bool,
                 "signal": type(None), "cpuTimeMs": int}
        for key, kind in types.items():
            self.assertIs(type(run[key]), kind, key)
        self.assertIn(type(run["memoryPeakBytes"]), (int, type(None)))
        self.assertEqual(set(run), set(types) | {"memoryPeakBytes"})
        self.assertEqual((run["stdout"], run["stderr"]), ("out\n", "err\n"))
        self.assertEqual(run["network"], False)
        self.assertRegex(r.header("x-request-id"), r"^[A-Za-z0-9_-]{1,64}$")

    def test_network_off_has_no_warning(self):
        r = client.execute("python-slim", "print(1)", network=False)
        self.assertNotIn("warning", r.json())
        self.assertIs(r.json()["run"]["network"], False)

    def test_duration_is_the_programs(self):
        run = client.run("python-slim", "import time\ntime.sleep(0.7)")
        self.assertGreaterEqual(run["durationMs"], 700)
        self.assertLess(run["durationMs"], 5000)
        self.assertLess(run["cpuTimeMs"], run["durationMs"])

    def test_cpu_time(self):
        run = client.run("python-slim", "import time\nt = time.process_time()\n"
                         "while time.process_time() - t < 0.5: pass",
                         limits={"cpus": 2.0})
        self.assertGreaterEqual(run["cpuTimeMs"], 400)
        self.assertLess(run["cpuTimeMs"], 5000)

    def test_signal(self):
        for name, number in (("SIGSEGV", 11), ("SIGKILL", 9), ("SIGTERM", 15),
                             ("SIGABRT", 6)):
            with self.subTest(name):
                run = client.run(
                    "python-slim", "import os\nprint(1, flush=True)\n"
                    "os.kill(os.getpid(), %d)" % number)
                self.assertEqual(run["exitCode"], 128 + number, run)
                self.assertEqual(run["signal"], name)
                self.assertEqual(run["stdout"], "1\n")
                self.assertFalse(run["timedOut"] or run["oomKilled"])

    def test_output_encoding_base64(self):
        code = ("import sys\nsys.stdout.buffer.write(bytes(range(256)))\n"
                "sys.stderr.buffer.write(b'\\xff\\0\\xfe')")
        run = client.run("python-slim", code, outputEncoding="base64")
        self.assertEqual(base64.b64decode(run["stdout"]), bytes(range(256)))
        self.assertEqual(base64.b64decode(run["stderr"]), b"\xff\0\xfe")
        events = client.stream("python-slim", code, outputEncoding="base64")
        got = {"stdout": b"", "stderr": b""}
        for e in events[:-1]:
            got[e.name] += base64.b64decode(e.data["chunk"])
        self.assertEqual(got, {"stdout": bytes(range(256)),
                               "stderr": b"\xff\0\xfe"})

    def test_bytes_that_are_no_utf8(self):
        """Each maximal ill-formed part is one U+FFFD, as Python decodes it."""
        raw = (b"a\xffb\xc3(\xe2\x82x\xf0\x9f\x98\xed\xa0\x80\xc0\xaf"
               b"\xf4\x90\x80\x80\0\x1b[1m\x7f\xe2\x82\xac")
        code = "import sys\nsys.stdout.buffer.write(%r)" % raw
        self.assertEqual(client.run("python-slim", code)["stdout"],
                         raw.decode("utf-8", "replace"))

    def test_character_split_over_writes(self):
        code = ("import sys, time\nfor b in '€🌍'.encode():\n"
                "    sys.stdout.buffer.write(bytes([b]))\n"
                "    sys.stdout.buffer.flush()\n    time.sleep(0.05)")
        events = client.stream("python-slim", code)
        self.assertEqual("".join(e.data["chunk"] for e in events[:-1]), "€🌍")
        self.assertNotIn("\ufffd", json.dumps([e.data for e in events],
                                              ensure_ascii=False))

    def test_nul_in_code_and_stdin(self):
        run = client.run("python-slim", "print(repr('a\\0b'))\n"
                         "print(repr(input()))", stdin="x\0y\n")
        self.assertEqual(run["stdout"], "'a\\x00b'\n'x\\x00y'\n")
        run = client.run("ruby", "p DATA.read.bytes\n__END__\na\0b")
        self.assertEqual(run["stdout"], "[97, 0, 98]\n")

    def test_binary_file(self):
        data = bytes(range(256))
        for encoding, text in (("base64", base64.b64encode(data).decode()),
                               ("hex", data.hex())):
            with self.subTest(encoding):
                r = client.execute(
                    "python-slim", "print(open('d/x.bin', 'rb').read() == "
                    "bytes(range(256)))",
                    files=[{"name": "d/x.bin", "content": text,
                            "encoding": encoding}])
                self.assertEqual(r.json()["run"]["stdout"], "True\n", r)

    def test_background_child_does_not_hold_the_answer(self):
        run = client.run(
            "python-slim", "import os, time\nprint('x', flush=True)\n"
            "if os.fork() == 0:\n    time.sleep(60)\n")
        self.assertEqual((run["stdout"], run["exitCode"]), ("x\n", 0))
        self.assertLess(run["durationMs"], 5000)

    def test_working_directory(self):
        run = client.run("python-slim", "import os\nprint(os.getcwd())\n"
                         "open('f', 'w').write('x'); print(os.listdir('.'))\n"
                         "h = os.environ['HOME']; open(h + '/y', 'w')")
        lines = run["stdout"].splitlines()
        self.assertEqual(lines[0], "/box", run)
        self.assertIn("f", lines[1])
        self.assertEqual(run["exitCode"], 0)


class TestLimits(unittest.TestCase):
    """Out of range is clamped; the program sees what it got."""

    def test_pids_clamped(self):
        code = ("import resource\n"
                "print(resource.getrlimit(resource.RLIMIT_NPROC)[0])")
        for asked, got in ((0, 1), (-5, 1), (64, 64), (256, 256), (257, 256),
                           (10**30, 256), (None, 128)):
            with self.subTest(asked=asked):
                limits = {} if asked is None else {"pids": asked}
                run = client.run("python-slim", code, limits=limits)
                self.assertEqual(run["stdout"], "%d\n" % got, run)

    def test_output_clamped(self):
        code = ("import os\nd = b'x' * 300000\n"
                "while d: d = d[os.write(1, d):]")
        for asked, got in ((1, 1024), (1024, 1024), (5000, 5000),
                           (262144, 262144), (2**31, 262144),
                           (-2**70, 1024), (None, 65536)):
            with self.subTest(asked=asked):
                limits = {} if asked is None else {"outputBytes": asked}
                run = client.run("python-slim", code, limits=limits)
                self.assertEqual(len(run["stdout"]), got)
                self.assertTrue(run["truncated"])

    def test_wall_time_clamped(self):
        run = client.run("python-slim", "import time\ntime.sleep(30)",
                         limits={"wallTimeMs": 1})
        self.assertTrue(run["timedOut"], run)
        self.assertGreaterEqual(run["durationMs"], 100)
        self.assertLess(run["durationMs"], 5000)

    def test_memory_clamped_up(self):
        """1 byte asked is 8 MiB given: a small program works."""
        run = client.run("python-slim", "print(1)", limits={"memoryBytes": 1})
        self.assertEqual(run["exitCode"], 0, run)

    def test_wrong_types(self):
        for limits, detail in (
                ({"memoryBytes": "1"}, "limits.memoryBytes must be an integer"),
                ({"pids": 1.5}, "limits.pids must be an integer"),
                ({"cpus": "1"}, "limits.cpus must be a number"),
                ({"wallTimeMs": True}, "limits.wallTimeMs must be an integer"),
                ([], "limits must be an object")):
            with self.subTest(limits=limits):
                r = client.execute("python-slim", "print(1)", limits=limits)
                self.assertEqual((r.status, r.json()),
                                 (400, {"error": "invalid_request",
                                        "detail": detail}))

    def test_cpus(self):
        """A tenth of a CPU takes several times as long for the same work. (The
        clock of the process is no measure of work: gVisor's counts the time
        that it waits for a CPU, too.)"""
        def took(cpus):
            return client.run("python-slim", "for i in range(4_000_000): pass",
                              limits={"cpus": cpus, "wallTimeMs": 20000}
                              )["durationMs"]
        fast = min(took(1) for _ in range(5))
        slow = took(0.1)
        self.assertGreater(slow, 3 * fast, (slow, fast))


class TestRuntimes(unittest.TestCase):
    def test_list(self):
        r = client.get("/runtimes")
        self.assertEqual(r.status, 200)
        found = {x["language"]: x for x in r.json()}
        self.assertEqual(set(found), {x.name for x in LANGUAGES})
        for language in LANGUAGES:
            entry = found[language.name]
            self.assertEqual(set(entry), {"language", "version", "aliases",
                                          "compiled", "kernel", "backend"})
            self.assertEqual(sorted(entry["aliases"]),
                             sorted(language.aliases))
            self.assertIs(entry["compiled"], language.name in ("go", "rust"))
            self.assertIs(entry["kernel"], language.name in (
                "python", "python-slim", "javascript"))
            self.assertEqual(entry["backend"], "gvisor")

    def test_version(self):
        version = {x["language"]: x["version"]
                   for x in client.get("/runtimes").json()}["python"]
        r = client.execute("python", "print(1)", version=version)
        self.assertEqual((r.status, r.json()["version"]), (200, version))
        r = client.execute("python", "print(1)", version="2.7")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"))
        self.assertIn(version, r.json()["detail"])

    def test_agent_libraries(self):
        run = client.run("python", "import requests, httpx, bs4, lxml.etree, "
                         "pandas, numpy, matplotlib, yt_dlp\nprint(numpy.ones"
                         "(3).sum(), pandas.Series([1, 2]).mean())",
                         limits={"wallTimeMs": 20000,
                                 "memoryBytes": 512 << 20})
        self.assertEqual(run["stdout"], "3.0 1.5\n", run)

    def test_agent_tools(self):
        run = client.run("python", "import subprocess, shutil\n"
                         "for t in 'pip curl wget jq git rg unzip file'.split"
                         "():\n    print(t, bool(shutil.which(t)))\n")
        self.assertNotIn("False", run["stdout"], run)

    def test_typescript_enums(self):
        """Syntax that cannot merely be erased works, too."""
        code = ("enum E { A = 1, B }\nnamespace N { export const x = 5; }\n"
                "class P { constructor(private readonly v: number) {}\n"
                "  get() { return this.v; } }\n"
                "console.log(E.B, E[1], N.x, new P(7).get());")
        run = client.run("typescript", code)
        self.assertEqual((run["stdout"], run["exitCode"]), ("2 A 5 7\n", 0),
                         run)

    def test_javascript_modules(self):
        r = client.execute("javascript", files=[
            {"name": "main.mjs", "content": "import { x } from './a.mjs';\n"
             "console.log(await Promise.resolve(x));"},
            {"name": "a.mjs", "content": "export const x = 42;"}])
        self.assertEqual(r.json()["run"]["stdout"], "42\n", r)


class TestEntry(unittest.TestCase):
    def test_first_file_without_source_file(self):
        r = client.execute("python-slim", files=[
            {"name": "b.py", "content": "print('b')"},
            {"name": "a.py", "content": "print('a')"}])
        self.assertEqual(r.json()["run"]["stdout"], "b\n", r)

    def test_code_with_files(self):
        r = client.execute("python-slim", "import a", files=[
            {"name": "a.py", "content": "print('a')"}])
        self.assertEqual(r.json()["run"]["stdout"], "a\n", r)

    def test_bad_names(self):
        for name in ("", "/etc/x", "../x", "a/../b", "./a", "a//b", "a/",
                     "a\0b", "x" * 256, "a/" * 600 + "b"):
            with self.subTest(name=name[:20]):
                r = client.execute("python-slim", "print(1)", files=[
                    {"name": name, "content": ""}])
                self.assertEqual((r.status, r.json()["error"]),
                                 (400, "invalid_file"), r)
                self.assertTrue(r.json()["detail"].startswith("files[0]"), r)
