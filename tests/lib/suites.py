# SPDX-License-Identifier: Apache-2.0
"""suites.py [SUITE...]: runs the test suites one after another, each with a
time limit, its output in build/check/SUITE-N.log. For each it prints a line with
its counts and seconds, the reason of each skipped test, and of a failed suite
the end of its log; at last `N passed, N failed, N skipped`.

A suite is a list of steps. A step that prints "N passed, N failed" (", N
skipped") counts as that many tests, any other (a compiler, a linter) as one.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent import futures

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
LOGS = os.path.join(REPO, "build", "check")
COUNTS = re.compile(r"^(?:\S+: )?(\d+) passed, (\d+) failed"
                    r"(?:, (\d+) skipped)?\.?$", re.M)
SKIP = re.compile(r"^(?:skipped|SKIP|\[  SKIPPED \])\b.*", re.M)
# What a failed step's report does without: who reads it looks for the rest.
PASSED = re.compile(r"ok\b|\[ +(RUN|OK) +\]")
TAIL = 60000  # of such a report, characters


class Step:
    """One command. wants_counts: it is a failure when it names no test."""

    def __init__(self, name, argv, wants_counts=False, env=None):
        self.name = name
        self.argv = argv
        self.wants_counts = wants_counts
        self.env = env or {}


def make(*words, **env):
    return Step("make " + " ".join(words), ["make", *words], env=env)


def python(folder, *modules):
    return Step(" ".join((folder,) + modules),
                [sys.executable, os.path.join(HERE, "runsuite.py"), folder,
                 *modules], True)


def own(path):
    """A suite that has a program of its own: tests/X/run."""
    return Step(path, [os.path.join(REPO, path)], True)


def build_steps():
    return [make("CC=gcc", "all", "guest-test"),
            make("CC=clang", "B=build/clang", "all")]


def shell_scripts():
    # Root may read a working tree that is somebody else's.
    files = subprocess.run(["git", "-c", "safe.directory=*", "ls-files"],
                           cwd=REPO, check=True, capture_output=True,
                           text=True).stdout.splitlines()
    found = []
    for name in files:
        path = os.path.join(REPO, name)
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as f:
                if re.match(rb"#!\s*/\S*\b(env )?(ba|da)?sh\b", f.read(64)):
                    found.append(name)
    return found


def tidy(*parts):
    """clang-tidy is the longest of all: a step for each half of the tree."""
    all_parts = ("LIB", "FCGI", "RUNNER", "GUEST")
    return Step("tidy " + " ".join(parts), ["make", "tidy"] + [
        "%s_SRC=" % p for p in all_parts if p not in parts])


def lint_steps():
    steps = [tidy("FCGI", "GUEST"), tidy("LIB", "RUNNER"),
             make("format-check"), make("cppcheck")]
    steps += [Step("shellcheck " + f, ["shellcheck", "-x", f])
              for f in shell_scripts()]
    steps += [Step("mandoc " + f, ["mandoc", "-T", "lint", "-W", "warning", f])
              for f in sorted(glob.glob("docs/man/*.[1-8]"))]
    return steps


def unit_programs(build):
    return [os.path.join(build, "unit", os.path.basename(f)[:-2])
            for f in sorted(glob.glob("tests/unit/test_*.c"))]


def unit_steps():
    return [Step("unit", ["make", "unit"], True)]


def asan_steps():
    """Everything once more under ASan and UBSan: the unit tests, isobox.fcgi
    by itself, and the whole service."""
    steps = [Step("make asan", ["make", "asan"], True),
             python("tests/cgi"),
             python("tests/integration", "test_runner", "test_limits",
                    "test_execute.TestResult", "test_execute.TestEntry",
                    "test_execute.TestPythonSlim", "test_workspace.Files",
                    "test_workspace.Links", "test_workspace.Zip",
                    "test_workspace.Frames")]
    for step in steps[1:]:
        step.env["B"] = "build/asan"
    return steps


def valgrind_steps():
    """The unit tests, built without what hides findings, each through a
    little program that tests/unit/run can start."""
    build = "build/valgrind"
    programs = unit_programs(build)
    wrappers = os.path.join(build, "wrap")
    os.makedirs(wrappers, exist_ok=True)
    wrapped = []
    for program in programs:
        name = os.path.join(wrappers, os.path.basename(program))
        with open(name, "w") as f:
            f.write("#!/bin/sh\nexec valgrind --quiet --leak-check=full "
                    "--errors-for-leak-kinds=definite,possible "
                    "--error-exitcode=99 --track-fds=no "
                    "'%s' \"$@\"\n" % program)
        os.chmod(name, 0o755)
        wrapped.append(name)
    return [make("B=" + build, "HARDEN=", "HARDEN_LD=", "OPT=-O1 -g",
                 *programs),
            Step("unit tests under valgrind", ["tests/unit/run", *wrapped],
                 True, {"UNIT_TIMEOUT": "600"})]


def integration_steps():
    return [python("tests/integration", os.path.basename(f)[:-3])
            for f in sorted(glob.glob("tests/integration/test_*.py"))]


def fuzz_steps():
    """Each target by itself: the suite runs two at a time."""
    return [Step("make " + name, ["make", "fuzz", "FUZZ_BIN=" + name], True)
            for name in (os.path.join("build", "fuzz",
                                      os.path.basename(f)[:-2])
                         for f in sorted(glob.glob("tests/fuzz/fuzz_*.c")))]


# name: (minutes, steps at a time, steps). In this order.
SUITES = {
    "build": (15, 2, build_steps),
    "lint": (40, 2, lint_steps),
    "unit": (10, 1, unit_steps),
    "asan": (35, 1, asan_steps),
    "valgrind": (15, 1, valgrind_steps),
    "tools": (15, 1, lambda: [own("tests/tools/run")]),
    "images": (15, 1, lambda: [own("tests/images/run")]),
    "guest": (25, 1, lambda: [own("tests/guest/run")]),
    "cgi": (20, 1, lambda: [python("tests/cgi")]),
    "integration": (50, 1, integration_steps),
    "browser": (5, 1, lambda: [python("tests/browser")]),
    "fuzz-build": (10, 1, lambda: [make("fuzz-build")]),
    "fuzz": (20, 2, fuzz_steps),
    "vm": (20, 1, lambda: [own("tests/vm/run")]),
}


class Suite:
    def __init__(self, name):
        self.name = name
        self.minutes, self.jobs, self.steps = SUITES[name]
        self.passed = self.failed = self.skipped = 0
        self.failures = []  # logs of failed steps
        self.live = set()

    def run(self):
        self.begun = time.monotonic()
        numbered = enumerate(self.steps(), 1)
        with futures.ThreadPoolExecutor(self.jobs) as pool:
            try:
                done = [pool.submit(self.run_step, *n) for n in numbered]
                for f in futures.as_completed(done):
                    self.note(*f.result())
            except KeyboardInterrupt:
                for f in done:
                    f.cancel()
                for process in list(self.live):
                    end_group(process)
                raise

    def left(self):
        return max(1.0, self.begun + 60 * self.minutes - time.monotonic())

    def run_step(self, number, step):
        """Runs a step in a process group of its own: (step, its log, its
        exit status or what went wrong). What it started ends with it."""
        path = os.path.join(LOGS, "%s-%d.log" % (self.name, number))
        with open(path, "w") as log:
            log.write("--- %s\n" % step.name)
            log.flush()
            try:
                process = subprocess.Popen(
                    step.argv, cwd=REPO, stdin=subprocess.DEVNULL, stdout=log,
                    stderr=subprocess.STDOUT, process_group=0,
                    env=dict(os.environ, **step.env))
            except OSError as e:
                return step, path, str(e)
            self.live.add(process)
            try:
                return step, path, process.wait(self.left())
            except subprocess.TimeoutExpired:
                return step, path, "time out"
            finally:
                end_group(process)
                self.live.discard(process)

    def note(self, step, path, status):
        with open(path, errors="replace") as f:
            text = f.read()
        passed, failed, skipped = count(text, status, step.wants_counts)
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        for line in SKIP.findall(text):
            print("  " + line[:300])
        if failed:
            print("  FAILED: %s (exit status %s)" % (step.name, status))
            self.failures.append(path)
        sys.stdout.flush()

    def report(self):
        print("%-12s %5d passed %4d failed %4d skipped %7.1f s" % (
            self.name, self.passed, self.failed, self.skipped,
            time.monotonic() - self.begun), flush=True)
        for path in self.failures:
            with open(path, errors="replace") as f:
                text = "".join(line for line in f if not PASSED.match(line))
            print("%s\n--- end of %s" % (text[-TAIL:],
                                         os.path.relpath(path, REPO)),
                  flush=True)


def end_group(process):
    """SIGTERM first: services under test clean up after themselves."""
    for sig, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            return
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue


def count(text, status, wants_counts):
    """(passed, failed, skipped) of one step's output."""
    lines = COUNTS.findall(text)
    if not lines:
        good = status == 0 and not wants_counts
        return (1, 0, 0) if good else (0, 1, 0)
    passed, failed, skipped = (int(n or 0) for n in lines[-1])
    if not lines[-1][2]:
        more = re.findall(r"^\S+: (\d+) skipped$", text, re.M)
        skipped = int(more[-1]) if more else 0
    if status != 0 and failed == 0 or passed + failed + skipped == 0:
        failed += 1
    return passed, failed, skipped


def select(names):
    for name in names:
        if name not in SUITES:
            sys.exit("tests/run: no suite %r; there are: %s" % (
                name, " ".join(SUITES)))
    return [n for n in SUITES if n in names] if names else list(SUITES)


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(SUITES))
        return
    names = select(sys.argv[1:])
    # SIGINT, too: where it is ignored when we start (in the background of a
    # shell), the programs under test would ignore it as well.
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sig, interrupted)
    os.chdir(REPO)
    shutil.rmtree(LOGS, ignore_errors=True)
    os.makedirs(LOGS)
    harness.sweep_stale()
    suites = []
    try:
        for name in names:
            suites.append(Suite(name))
            suites[-1].run()
            suites[-1].report()
    except KeyboardInterrupt:
        print("interrupted in %s" % suites[-1].name)
        suites[-1].failed += 1
    harness.sweep_stale()
    total = [sum(getattr(s, k) for s in suites)
             for k in ("passed", "failed", "skipped")]
    print("%d passed, %d failed, %d skipped" % tuple(total), flush=True)
    empty = any(s.passed + s.failed + s.skipped == 0 for s in suites)
    sys.exit(1 if total[1] or empty else 0)


if __name__ == "__main__":
    main()
