# SPDX-License-Identifier: Apache-2.0
"""Programs that want more than they get: each ends with the right flags and
code, in time, and leaves nothing behind."""

import math
import time
import unittest

from again import again
from harness import Service

MIB = 1 << 20


def setUpModule():
    global service, client
    service = Service("caddy").start()
    client = service.client()


def tearDownModule():
    service.stop()


class Hostile(unittest.TestCase):
    def setUp(self):
        self.begun = time.monotonic()

    def tearDown(self):
        service.assert_clean()
        run = client.run("python-slim", "print('alive')")
        self.assertEqual(run["stdout"], "alive\n")

    def run_code(self, code, language="python-slim", wall=3000, memory=None,
                 pids=None, output=None, most=math.inf, **members):
        """most: less than so many milliseconds are expected."""
        limits = {"wallTimeMs": wall}
        for key, value in (("memoryBytes", memory), ("pids", pids),
                           ("outputBytes", output)):
            if value is not None:
                limits[key] = value
        def one():
            self.begun = time.monotonic()
            return client.run(language, code, limits=limits, **members)
        return again(one, lambda run: run["durationMs"] < min(
            wall + 2000, most))

    def check(self, run, code, timed_out=False, oom=False, truncated=False):
        self.assertEqual((run["exitCode"], run["timedOut"], run["oomKilled"],
                          run["truncated"]),
                         (code, timed_out, oom, truncated), run)

    def check_timeout(self, run, wall=3000, truncated=False):
        self.check(run, 137, timed_out=True, truncated=truncated)
        self.assertGreaterEqual(run["durationMs"], wall)
        # On time, as far as a busy machine lets one say so.
        self.assertLess(run["durationMs"], wall + 2000)
        self.assertLess(time.monotonic() - self.begun, wall / 1000 + 10)


class TestTime(Hostile):
    def test_busy_loop(self):
        self.check_timeout(self.run_code("while True: pass"))

    def test_sleep(self):
        run = self.run_code("import time\nprint('before', flush=True)\n"
                            "time.sleep(600)")
        self.check_timeout(run)
        self.assertEqual(run["stdout"], "before\n")

    def test_sleep_with_all_descriptors_closed(self):
        self.check_timeout(self.run_code(
            "import os, time\nos.closerange(0, 1024)\ntime.sleep(600)"))

    def test_ignored_signals(self):
        self.check_timeout(self.run_code(
            "import signal, time\nfor s in range(1, 65):\n"
            "    try: signal.signal(s, signal.SIG_IGN)\n"
            "    except (OSError, ValueError): pass\n"
            "while True: time.sleep(1)"))

    def test_double_fork_with_setsid(self):
        """The main process is gone at once, and with it the rest."""
        run = self.run_code(
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n"
            "    if os.fork() == 0:\n        time.sleep(600)\n"
            "    os._exit(0)\nprint('bye')", most=3000)
        self.check(run, 0)
        self.assertEqual(run["stdout"], "bye\n")
        self.assertLess(run["durationMs"], 3000)

    def test_orphans_of_a_timeout(self):
        self.check_timeout(self.run_code(
            "import os, time\nfor i in range(20):\n    if os.fork() == 0:\n"
            "        os.setsid()\n        while True: time.sleep(1)\n"
            "time.sleep(600)"))

    def test_sigstop_to_the_group(self):
        self.check_timeout(self.run_code(
            "import os, signal\nos.killpg(0, signal.SIGSTOP)\n"))

    def test_background_child_holds_stdout(self):
        run = self.run_code(
            "import os, sys, time\nprint('x', flush=True)\n"
            "if os.fork() == 0:\n    while True: time.sleep(1)\nos._exit(5)",
            most=3000)
        self.check(run, 5)
        self.assertEqual(run["stdout"], "x\n")
        self.assertLess(run["durationMs"], 3000)

    def test_compile_counts(self):
        """A compiler that does not end is stopped like a program."""
        run = self.run_code(
            "package main\n\nimport \"fmt\"\n\nfunc main() {\n"
            "\tfmt.Println(1)\n\tfor {\n\t}\n}\n", "go", wall=15000)
        self.check_timeout(run, 15000)


class TestMemory(Hostile):
    def test_out_of_memory(self):
        run = self.run_code("b = []\nwhile True: b.append(bytearray(1 << 20))"
                            .replace("bytearray(1 << 20)", "b'x' * (1 << 20)"),
                            memory=64 * MIB, wall=15000)
        self.check(run, 137, oom=True)

    def test_out_of_memory_in_a_child(self):
        """memory.oom.group: the whole run ends, whoever took the memory."""
        run = self.run_code(
            "import os, time\nif os.fork() == 0:\n    b = []\n"
            "    while True: b.append(b'x' * (1 << 20))\nos.wait()\n"
            "time.sleep(60)", memory=64 * MIB, wall=15000)
        self.check(run, 137, oom=True)

    def test_tmpfs_flood(self):
        for where in ("/tmp/x", "/box/x", "/dev/shm/x"):
            with self.subTest(where):
                run = self.run_code(
                    "f = open('%s', 'wb', buffering=0)\n"
                    "while True: f.write(b'x' * (1 << 20))" % where,
                    memory=64 * MIB, wall=15000)
                # The memory limit ends it, or the file system was full first.
                if run["oomKilled"]:
                    self.check(run, 137, oom=True)
                else:
                    self.check(run, 1)
                    self.assertRegex(run["stderr"],
                                     "No space left|File too large")

    def test_memory_within_the_limit(self):
        run = self.run_code("b = b'x' * (200 << 20)\nprint(len(b))",
                            memory=256 * MIB, wall=15000)
        self.check(run, 0)

    def test_eight_mebibytes_are_usable(self):
        """The sandbox's own overhead is not the program's."""
        run = self.run_code("print(sum(range(1000)))", memory=8 * MIB)
        self.check(run, 0)
        self.assertEqual(run["stdout"], "499500\n")

    def test_peak(self):
        small = self.run_code("pass", memory=256 * MIB)["memoryPeakBytes"]
        big = self.run_code("b = b'x' * (100 << 20)",
                            memory=256 * MIB)["memoryPeakBytes"]
        if small is None or big is None:
            self.assertIsNone(small)
            self.assertIsNone(big)
            return
        self.assertGreater(big - small, 80 * MIB)

    def test_timeout_is_no_oom(self):
        run = self.run_code("b = b'x' * (32 << 20)\nwhile True: pass",
                            memory=128 * MIB)
        self.check_timeout(run)


# Starts processes until it is told EAGAIN. A forked Python takes 3.6 MB in
# gVisor, so that 256 of them are beyond any memory limit; sleep takes 0.6 MB.
SPAWN = r'''
import errno, os
n = 0
try:
    while n < 1000:
        os.posix_spawn("/usr/bin/sleep", ["sleep", "60"], os.environ)
        n += 1
except OSError as e:
    print(n, errno.errorcode[e.errno])
'''

FORK = r'''
import errno, os, time
n = 0
try:
    while os.fork() != 0:
        n += 1
    time.sleep(60)
except OSError as e:
    print(n, errno.errorcode[e.errno])
'''

THREADS = r'''
import threading
stop = threading.Event()
n = 0
try:
    while n < 1000:
        threading.Thread(target=stop.wait, daemon=True).start()
        n += 1
except RuntimeError:
    print(n, flush=True)
import os
os._exit(0)
'''


class TestProcesses(Hostile):
    def test_fork_to_the_exact_limit(self):
        """The program itself counts as one."""
        for code, pids in ((FORK, 1), (FORK, 2), (FORK, 16), (FORK, 100),
                           (SPAWN, 128), (SPAWN, 256)):
            with self.subTest(pids):
                run = self.run_code(code, pids=pids, wall=20000,
                                    memory=512 * MIB)
                self.check(run, 0)
                self.assertEqual(run["stdout"], "%d EAGAIN\n" % (pids - 1))

    def test_threads_to_the_limit(self):
        for pids in (8, 128, 256):
            with self.subTest(pids):
                run = self.run_code(THREADS, pids=pids, wall=15000)
                self.check(run, 0)
                self.assertEqual(run["stdout"], "%d\n" % (pids - 1))

    def test_fork_bomb(self):
        run = self.run_code(
            "import os\nwhile True:\n    try: os.fork()\n"
            "    except OSError: pass", pids=64, memory=512 * MIB)
        self.check_timeout(run)

    def test_fork_bomb_beyond_the_memory(self):
        """Many processes take much memory, if it comes to that."""
        run = self.run_code(
            "import os\nwhile True:\n    try: os.fork()\n"
            "    except OSError: pass", pids=256, memory=64 * MIB, wall=15000)
        self.check(run, 137, oom=True)

    def test_limit_is_not_to_be_raised(self):
        run = self.run_code(
            "import resource as r\n"
            "try: r.setrlimit(r.RLIMIT_NPROC, (1000, 1000))\n"
            "except (ValueError, OSError) as e: print('no')")
        self.assertEqual(run["stdout"], "no\n")


FLOOD = r'''
import os, sys
chunk = b"0123456789abcdef" * 4096
for fd in (%s):
    if os.fork() == 0:
        while True: os.write(fd, chunk)
import time
time.sleep(%d)
'''


class TestOutput(Hostile):
    def flood(self, fds, language="python-slim"):
        return self.run_code(FLOOD % (fds, 60), output=10000)

    def test_stdout(self):
        run = self.flood("1,")
        self.check_timeout(run, truncated=True)
        self.assertEqual(run["stdout"], ("0123456789abcdef" * 625))
        self.assertEqual(run["stderr"], "")

    def test_stderr(self):
        run = self.flood("2,")
        self.check_timeout(run, truncated=True)
        self.assertEqual((len(run["stdout"]), len(run["stderr"])), (0, 10000))

    def test_both(self):
        run = self.flood("1, 2")
        self.check_timeout(run, truncated=True)
        self.assertEqual((len(run["stdout"]), len(run["stderr"])),
                         (10000, 10000))

    def test_a_flood_that_ends(self):
        run = self.run_code(
            "import sys\nfor i in range(100000): print('x' * 99)\n"
            "sys.exit(4)", wall=15000)
        self.check(run, 4, truncated=True)
        self.assertEqual(run["stdout"], ("x" * 99 + "\n") * 655 + "x" * 36)

    def test_exactly_the_cap_is_not_truncated(self):
        for n, cut in ((4095, False), (4096, False), (4097, True)):
            with self.subTest(n):
                run = self.run_code("print('x' * %d, end='')" % n,
                                    output=4096)
                self.check(run, 0, truncated=cut)
                self.assertEqual(len(run["stdout"]), min(n, 4096))

    def test_caps_are_separate(self):
        run = self.run_code("import sys\nprint('x' * 4096, end='')\n"
                            "print('y' * 4096, end='', file=sys.stderr)",
                            output=4096)
        self.check(run, 0)
        self.assertEqual((len(run["stdout"]), len(run["stderr"])),
                         (4096, 4096))

    def test_character_at_the_cap(self):
        """A character that does not fit whole is left out, not broken."""
        for lead, kept in (("", 341), ("x", 341), ("xx", 340)):
            with self.subTest(lead):
                run = self.run_code(
                    "print('%s' + '世' * 1000, end='')" % lead, output=1024)
                self.check(run, 0, truncated=True)
                self.assertEqual(run["stdout"], lead + "世" * kept)

    def test_stream_has_the_same_cap(self):
        events = client.stream(
            "python-slim", "print('世' * 100000, end='')",
            limits={"outputBytes": 100000})
        text = "".join(e.data["chunk"] for e in events[:-1])
        self.assertEqual(text, "世" * 33333)
        run = events[-1].data["run"]
        self.assertEqual(run["stdout"], text)
        self.assertTrue(run["truncated"])

    def test_closed_stdout(self):
        run = self.run_code("import os, sys\nos.close(1)\n"
                            "print('e', file=sys.stderr)\nos._exit(7)")
        self.check(run, 7)
        self.assertEqual((run["stdout"], run["stderr"]), ("", "e\n"))


class TestFiles(Hostile):
    def test_descriptors(self):
        run = self.run_code(
            "import os\nn = 0\ntry:\n    while True: os.dup(0); n += 1\n"
            "except OSError as e: print(n > 60, e.errno)", wall=15000)
        self.check(run, 0)
        self.assertEqual(run["stdout"], "True 24\n")

    def test_a_hundred_thousand_files(self):
        """Inodes are memory, too: it ends by one limit or the other."""
        run = self.run_code(
            "import os\nfor i in range(10**7): open('/tmp/%d' % i, 'w')"
            ".close()", memory=32 * MIB, wall=8000)
        self.assertTrue(run["timedOut"] or run["oomKilled"] or
                        run["exitCode"] == 1, run)

    def test_sparse_file(self):
        run = self.run_code(
            "f = open('/tmp/x', 'wb')\nf.seek(1 << 40)\n"
            "try: f.write(b'x'); f.flush(); print('sparse')\n"
            "except OSError: print('refused')")
        self.assertIn(run["stdout"], ("sparse\n", "refused\n"))
