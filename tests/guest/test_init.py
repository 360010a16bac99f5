# SPDX-License-Identifier: Apache-2.0
"""isobox-init under real runsc: what a job gets, and what comes back."""

import os
import signal
import time
import unittest

import isoproto
import sandbox
from again import again
from sandbox import Failed, Sandbox, run, setUpModule, tearDownModule

assert setUpModule and tearDownModule  # unittest finds them here


def words(text):
    """{first word: [rest, ...]} of the lines of the hostile programs."""
    found = {}
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    return found


class TestExit(unittest.TestCase):
    def test_codes(self):
        for code in (0, 1, 42, 255):
            with self.subTest(code):
                r = run(["badguy", "exit", str(code)])
                self.assertEqual((r.code, r.signal, r.compile_failed),
                                 (code, 0, False))
                self.assertEqual((r.out, r.err), (b"", b""))

    def test_signals(self):
        for n in (signal.SIGHUP, signal.SIGKILL, signal.SIGSEGV,
                  signal.SIGTERM, signal.SIGPIPE, 64):
            with self.subTest(n):
                r = run(["badguy", "signal", str(int(n))])
                self.assertEqual((r.code, r.signal), (128 + n, n))

    def test_sandbox_ends_with_the_program(self):
        with Sandbox() as box:
            box.run(["badguy", "exit", "0"])
            self.assertEqual(box.ended(), 0, box.log_text())

    def test_main_thread_ends_first(self):
        r = again(lambda: run(["badguy", "mainthread", "300"]),
                  lambda r: r.seconds > 0.25)
        self.assertEqual((r.code, r.signal), (0, 0))
        self.assertGreater(r.seconds, 0.25)

    def test_cpu_time(self):
        """gVisor counts ticks of 10 ms."""
        for command in ("spin", "spinner"):
            with self.subTest(command):
                r = again(lambda: run(["badguy", command, "1000"]),
                          lambda r: r.cpu_us > 300000)
                self.assertGreater(r.cpu_us, 300000)
        r = again(lambda: run(["badguy", "sleep", "1000"]),
                  lambda r: r.cpu_us < 400000)
        self.assertLess(r.cpu_us, 400000)


class TestExec(unittest.TestCase):
    def check(self, argv, code, reason, **kw):
        r = run(argv, **kw)
        self.assertEqual(r.err.decode(), "isobox: cannot run %s: %s\n" % (
            argv[0], reason))
        self.assertEqual((r.code, r.signal, r.out), (code, 0, b""))

    def test_not_found(self):
        self.check(["nosuch"], 127, "No such file or directory")
        self.check(["/bin/nosuch"], 127, "No such file or directory")
        self.check(["badguy"], 127, "No such file or directory", env=[])
        self.check(["badguy"], 127, "No such file or directory",
                   env=["PATH=/tmp::/nosuch:"])

    def test_not_executable(self):
        self.check(["/etc/note"], 126, "Permission denied")
        self.check(["note"], 126, "Permission denied",
                   env=["PATH=/etc:/nosuch"])
        self.check(["/bin"], 126, "Permission denied")
        self.check(["noformat"], 126, "Exec format error")
        self.check(["/etc/note/x"], 126, "Not a directory")

    def test_found(self):
        for argv0, env in (("/bin/badguy", []), ("../bin/badguy", []),
                           ("badguy", ["PATH=/etc/note:/nosuch:/etc:/bin"])):
            with self.subTest(argv0):
                self.assertEqual(run([argv0, "exit", "9"], env=env).code, 9)

    def test_arguments_and_environment_arrive_untouched(self):
        args = [b"", b" ", b"a b", b"'\"\\$(id)`;|&", b"\xff\xfe\n\t",
                b"x" * 9000, "\u00e4\U0001f600".encode()]
        env = [b"PATH=/bin", b"EMPTY=", b"A=b=c\xff\n", b"B= x "]
        seen = words(run(["snoop", "identity", *args], env=env).out)
        self.assertEqual([bytes.fromhex(h) for h in seen["argv"]],
                         [b"snoop", b"identity", *args])
        self.assertEqual([bytes.fromhex(h) for h in seen["env"]], env)
        seen = words(run(["/bin/snoop", "identity"], env=[]).out)
        self.assertNotIn("env", seen)


class TestFiles(unittest.TestCase):
    def test_files_and_folders(self):
        files = [("main.py", "print(1)\n"), ("pkg/sub/mod.py", b"\0\xff" * 999),
                 ("pkg/a", ""), ("-rf *", "x"), ("\u00e4/\u4e2d", "y"),
                 ("z" * 255, "z"), ("a/" * 250 + "end", "deep")]
        r = run(["snoop", "tree", "/box"], files=files, output_bytes=262144)
        seen = {}
        for line in r.out.decode().splitlines():
            name, uid, gid, mode, size = line.rsplit(" ", 4)
            seen[name] = (int(uid), int(gid), int(mode, 8), int(size))
        for name, content in files:
            content = content.encode() if isinstance(content, str) else content
            self.assertEqual(seen["/box/" + name],
                             (65534, 65534, 0o100644, len(content)), name)
        self.assertEqual(seen["/box/pkg/sub"][:3], (65534, 65534, 0o40755))
        self.assertEqual(seen["/box"][:3], (65534, 65534, 0o41777))

    def test_only_in_box(self):
        files = [("marker-file", "x")]
        r = run(["snoop", "tree", "/"], files=files)
        found = [line.split(" ")[0] for line in r.out.decode().splitlines()
                 if "marker-file" in line]
        self.assertEqual(found, ["/box/marker-file"])

    def test_content(self):
        content = os.urandom(200000)
        r = run(["badguy", "show", "/box/x"], files=[("x", content)],
                output_bytes=262144)
        self.assertEqual(r.out, content)

    def test_refused(self):
        for name in ("/abs", "../up", "a/../b", "", "a//b", "./a", "a/", "."):
            with self.subTest(name), self.assertRaises(Failed):
                run(["badguy", "exit", "0"], files=[(name, "x")])
        for files in ([("a", "1"), ("a", "2")], [("a", "1"), ("a/b", "2")],
                      [("a/b", "1"), ("a", "2")]):
            with self.subTest(files), self.assertRaisesRegex(
                    Failed, r"files\[1\]"):
                run(["badguy", "exit", "0"], files=files)

    def test_scratch_exec(self):
        for scratch_exec, there in ((False, "EACCES"), (True, "done")):
            for where in ("/box", "/tmp"):
                with self.subTest((scratch_exec, where)):
                    r = run(["snoop", "noexec", where],
                            sandbox={"scratch_exec": scratch_exec})
                    self.assertEqual(r.out.decode(), "exec %s\n" % there)
        r = run(["snoop", "noexec", "/dev/shm"],
                sandbox={"scratch_exec": True})
        self.assertEqual(r.out, b"exec EACCES\n")


class TestInput(unittest.TestCase):
    def test_sizes(self):
        for size in (0, 1, 4096, 65536, 65537, 700000):
            with self.subTest(size):
                data = os.urandom(size)
                r = run(["badguy", "cat"], stdin=data, output_bytes=262144)
                self.assertEqual(r.out, data[:262145])
                self.assertEqual(r.code, 0)

    def test_not_read(self):
        data = b"x" * 700000
        begun = time.monotonic()
        self.assertEqual(run(["badguy", "exit", "2"], stdin=data).code, 2)
        self.assertEqual(run(["badguy", "nostdin", "200"], stdin=data).code, 6)
        r = run(["badguy", "flood", "3", "100000"], stdin=data)
        self.assertEqual((len(r.out), len(r.err)), (65537, 65537))
        self.assertLess(time.monotonic() - begun, 20)

    def test_reopened_descriptors(self):
        r = run(["badguy", "reopen"], stdin="line\n")
        self.assertEqual((r.out, r.err), (b"line\n" * 3, b"err\n"))


class TestOutput(unittest.TestCase):
    def test_exact_cap(self):
        for limit, written in ((1024, 1023), (1024, 1024), (1024, 1025),
                               (1024, 5000000), (262144, 50000000)):
            with self.subTest((limit, written)):
                r = run(["badguy", "flood", "3", str(written)],
                        output_bytes=limit, timeout=60)
                self.assertEqual(len(r.out), min(written, limit + 1))
                self.assertEqual(len(r.err), min(written, limit + 1))
                self.assertEqual((r.code, r.signal), (0, 0))

    def test_flood_in_few_frames(self):
        r = run(["badguy", "flood", "1", "262144"], output_bytes=262144)
        self.assertLess(len(r.frames), 60)

    def test_at_once(self):
        """Each byte comes when it was written: a frame of its own, unless the
        machine is so busy that init does not get to run between two."""
        r = again(lambda: run(["badguy", "trickle", "10", "100"]),
                  lambda r: len(r.frames) >= 15 and
                  r.frames[-1][0] - r.frames[0][0] > 0.8)
        self.assertEqual((r.out, r.err), (b"o" * 10, b"e" * 10))
        self.assertGreaterEqual(len(r.frames), 15)
        self.assertGreater(r.frames[-1][0] - r.frames[0][0], 0.8)

    def test_slow_supervisor(self):
        """init waits and does not grow; all comes in the end."""
        with Sandbox() as box:
            box.slow_reader()
            box.job(["badguy", "flood", "3", "3000000"], stdin=b"x" * 500000,
                    output_bytes=262144)
            time.sleep(2)
            self.assertIsNone(box.process.poll())
            r = box.finish()
            self.assertEqual((len(r.out), len(r.err)), (262145, 262145))
            self.assertEqual(r.code, 0)

    def test_descriptors_closed(self):
        r = again(lambda: run(["badguy", "closesleep", "500"],
                              stdin=b"x" * 500000),
                  lambda r: r.seconds > 0.45 and r.cpu_us < 400000)
        self.assertEqual((r.code, r.out, r.err), (7, b"", b""))
        self.assertGreater(r.seconds, 0.45)
        self.assertLess(r.cpu_us, 400000, "init or the program spins")


class TestCompile(unittest.TestCase):
    def test_good(self):
        r = run(["badguy", "cat"], compile=["badguy", "flood", "3", "10"],
                stdin="input")
        self.assertEqual((r.out, r.err), (b"input", b"abcdefghij" * 2))
        self.assertEqual((r.code, r.compile_failed), (0, False))

    def test_failing(self):
        for command, code, n in ((["badguy", "exit", "3"], 3, 0),
                                 (["badguy", "signal", "11"], 139, 11),
                                 (["nosuch"], 127, 0)):
            with self.subTest(command):
                r = run(["badguy", "flood", "1", "10"], compile=command)
                self.assertEqual((r.code, r.signal, r.compile_failed, r.out),
                                 (code, n, True, b""))

    def test_program_fails(self):
        r = run(["badguy", "exit", "3"], compile=["badguy", "exit", "0"])
        self.assertEqual((r.code, r.compile_failed), (3, False))

    def test_reads_nothing(self):
        r = run(["badguy", "exit", "0"], compile=["badguy", "cat"],
                stdin="secret")
        self.assertEqual((r.code, r.err), (0, b""))

    def test_writes_what_is_run(self):
        r = run(["/box/copy", "hello"], compile=["snoop", "noexec", "/box"],
                sandbox={"scratch_exec": True})
        self.assertEqual((r.out, r.err, r.code),
                         (b"exec done\n", b"exec done\n", 0))

    def test_same_privileges(self):
        r = run(["snoop", "identity"], compile=["snoop", "identity"])
        mine, compilers = words(r.out), words(r.err)
        for key in ("uid", "gid", "CapEff:\t0000000000000000", "cwd", "env",
                    "limit-nproc", "limit-nofile", "no_new_privs", "umask"):
            self.assertEqual(mine[key], compilers[key], key)

    def test_leftovers_are_gone(self):
        """A program that the compile step left behind does not see the run."""
        for left in (["badguy", "daemon", "600000", "0"],
                     ["badguy", "daemonflood", "2", "0"],
                     ["badguy", "orphans", "20"]):
            with self.subTest(left):
                r = run(["snoop", "processes"], compile=left)
                self.assertEqual(len(words(r.out)["process"]), 2, r)


class TestEnd(unittest.TestCase):
    """Only the end of the main process counts."""

    def test_daemon_holds_the_pipes(self):
        r = run(["badguy", "daemon", "600000", "3"])
        self.assertEqual((r.code, r.out), (3, b"main\n"))
        self.assertLess(r.seconds, 5)

    def test_daemon_floods(self):
        for streams in "123":
            r = run(["badguy", "daemonflood", streams, "4"],
                    output_bytes=262144)
            self.assertEqual(r.code, 4)
            self.assertLess(r.seconds, 10)

    def test_kill_all(self):
        r = run(["badguy", "killall", "600000"])
        self.assertIn((r.code, r.signal), ((5, 0), (137, 9)))

    def test_orphans_are_reaped(self):
        r = run(["badguy", "orphans", "200"], pids=10)
        self.assertEqual(words(r.out), {"orphans": ["200"]})

    def test_stopped(self):
        """It stays stopped; init still hears its supervisor."""
        with Sandbox() as box:
            box.job(["badguy", "stopgroup"])
            box.expect(isoproto.GUEST_STARTED)
            self.assertEqual(box.expect(isoproto.GUEST_STDOUT)[2],
                             b"stopping\n")
            with self.assertRaises(AssertionError):
                box.next(1.0)
            os.close(box.input)
            box.input = None
            box.ended()

    def test_signals_ignored(self):
        with Sandbox() as box:
            box.job(["badguy", "ignore", "600000"])
            box.expect(isoproto.GUEST_STARTED)
            box.expect(isoproto.GUEST_STDOUT)
            os.close(box.input)
            box.input = None
            box.ended()


class TestProtocol(unittest.TestCase):
    """What a broken supervisor would send. None may hang."""

    def refused(self, data, message):
        with Sandbox() as box:
            box.send(data)
            with self.assertRaisesRegex(Failed, message):
                box.next(10)
            self.assertNotEqual(box.ended(), 0)

    def test_not_a_job(self):
        job = isoproto.guest_job(["badguy", "exit", "0"])
        frame = isoproto.frame
        good = frame(isoproto.GUEST_JOB, job)
        for what, data, message in (
                ("garbage", b"\xff" * 64, "not a frame"),
                ("another type", frame(isoproto.GUEST_EXIT), "not one job"),
                ("two jobs", good + good, "not one job"),
                ("too long", frame(isoproto.GUEST_JOB, job + b"\0"), "job"),
                ("cut short", frame(isoproto.GUEST_JOB, job[:-1]), "job"),
                ("empty", frame(isoproto.GUEST_JOB), "job"),
                ("nothing to run", frame(
                    isoproto.GUEST_JOB, isoproto.guest_job([])), "job"),
                ("NUL", frame(isoproto.GUEST_JOB, isoproto.guest_job(
                    ["badguy", "a\0b"])), "NUL"),
                ("no limit", frame(isoproto.GUEST_JOB, isoproto.guest_job(
                    ["badguy"], pids=0)), "limits"),
                ("no folder", frame(isoproto.GUEST_JOB, isoproto.guest_job(
                    ["badguy"], cwd="/nosuch")), "cannot enter /nosuch")):
            with self.subTest(what):
                self.refused(data, message)

    def test_a_frame_too_many(self):
        with Sandbox() as box:
            box.job(["badguy", "sleep", "600000"])
            box.expect(isoproto.GUEST_STARTED)
            box.send(b"x")
            with self.assertRaisesRegex(Failed, "after the job"):
                box.next(10)

    def test_supervisor_gone(self):
        for when in ("before", "within", "running"):
            with self.subTest(when), Sandbox() as box:
                if when == "within":
                    box.send(b"\0\0\1\0 ")
                if when == "running":
                    box.job(["badguy", "sleep", "600000"])
                    box.expect(isoproto.GUEST_STARTED)
                os.close(box.input)
                box.input = None
                box.ended()

    def test_job_before_ready(self):
        with Sandbox(ready=False) as box:
            box.job(["badguy", "exit", "8"], stdin=b"x" * 700000)
            box.expect(isoproto.GUEST_READY)
            self.assertEqual(box.finish().code, 8)

    def test_job_in_bits(self):
        with Sandbox() as box:
            data = isoproto.frame(isoproto.GUEST_JOB, isoproto.guest_job(
                ["badguy", "exit", "8"], env=sandbox.ENV))
            for i in range(0, len(data), 7):
                box.send(data[i:i + 7])
                time.sleep(0.002)
            self.assertEqual(box.finish().code, 8)

    def test_descriptors_for_everybody(self):
        """The program must not be able to open what init speaks through."""
        with Sandbox(ready=False, log_mode=0o644) as box:
            with self.assertRaisesRegex(Failed, "descriptor 2 could be"):
                box.next()

    def test_without_capabilities(self):
        """Fail closed: no run when init cannot do its work."""
        for lacking in sandbox.CAPS:
            caps = [c for c in sandbox.CAPS if c != lacking]
            with self.subTest(lacking), Sandbox(ready=False, caps=caps) as box:
                with self.assertRaises(Failed):
                    box.expect(isoproto.GUEST_READY)
                    box.run(["badguy", "exit", "0"],
                            compile=["badguy", "daemon", "600000", "0"])


if __name__ == "__main__":
    unittest.main()
