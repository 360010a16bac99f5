# SPDX-License-Identifier: Apache-2.0
"""suites.py [SUITE...]: runs the test suites one after another, each with a
time limit, its output in build/check/SUITE.log. For each it prints a line with
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

import harness

HERE = os.path.dirname(os.path.abspath(__file__))
REPO = os.path.dirname(os.path.dirname(HERE))
LOGS = os.path.join(REPO, "build", "check")
COUNTS = re.compile(r"^(?:\S+: )?(\d+) passed, (\d+) failed"
                    r"(?:, (\d+) skipped)?\.?$", re.M)
SKIP = re.compile(r"^(?:skipped|SKIP|\[  SKIPPED \])\b.*", re.M)
TAIL = 60000  # of a failed suite's log, bytes


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
    files = subprocess.run(["git", "ls-files"], cwd=REPO, check=True,
                           capture_output=True, text=True).stdout.split("\n")
    found = []
    for name in filter(None, files):
        path = os.path.join(REPO, name)
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as f:
                if re.match(rb"#!\s*/\S*\b(env )?(ba|da)?sh\b", f.read(64)):
                    found.append(name)
    return found


def lint_steps():
    steps = [make("format-check"), make("cppcheck"), make("tidy")]
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
    return [Step("unit tests under ASan and UBSan",
                 ["make", "asan"], True)]


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
    return [make("fuzz-build"), Step("fuzz", ["make", "fuzz"], True)]


# name: (minutes, steps). In this order.
SUITES = {
    "build": (15, build_steps),
    "lint": (20, lint_steps),
    "unit": (10, unit_steps),
    "asan": (15, asan_steps),
    "valgrind": (15, valgrind_steps),
    "tools": (10, lambda: [own("tests/tools/run")]),
    "images": (10, lambda: [own("tests/images/run")]),
    "guest": (10, lambda: [own("tests/guest/run")]),
    "cgi": (15, lambda: [own("tests/cgi/run")]),
    "integration": (50, integration_steps),
    "browser": (5, lambda: [python("tests/browser")]),
    "fuzz": (20, fuzz_steps),
    "vm": (20, lambda: [own("tests/vm/run")]),
}


class Suite:
    def __init__(self, name):
        self.name = name
        self.minutes, self.steps = SUITES[name]
        self.passed = self.failed = self.skipped = 0
        self.path = os.path.join(LOGS, name + ".log")

    def run(self):
        self.begun = time.monotonic()
        with open(self.path, "wb") as log:
            try:
                steps = self.steps()
            except OSError as e:
                log.write(("%s\n" % e).encode())
                self.failed += 1
                return
            for step in steps:
                self.run_step(step, log)

    def left(self):
        return self.begun + 60 * self.minutes - time.monotonic()

    def run_step(self, step, log):
        log.write(("--- %s\n" % step.name).encode())
        log.flush()
        start = log.tell()
        begun = time.monotonic()
        status = execute(step, log, max(1.0, self.left()))
        log.seek(0, os.SEEK_END)
        with open(self.path, "rb") as f:
            f.seek(start)
            text = f.read().decode("utf-8", "replace")
        passed, failed, skipped = count(text, status, step.wants_counts)
        self.passed += passed
        self.failed += failed
        self.skipped += skipped
        log.write(("--- %s: exit status %s, %.1f s\n" % (
            step.name, status, time.monotonic() - begun)).encode())
        for line in SKIP.findall(text):
            print("  " + line[:300])
        if failed:
            print("  FAILED: %s (exit status %s)" % (step.name, status))
        sys.stdout.flush()

    def report(self):
        print("%-12s %5d passed %4d failed %4d skipped %7.1f s" % (
            self.name, self.passed, self.failed, self.skipped,
            time.monotonic() - self.begun), flush=True)
        if self.failed:
            with open(self.path, "rb") as f:
                f.seek(max(0, os.path.getsize(self.path) - TAIL))
                sys.stdout.write(f.read().decode("utf-8", "replace"))
            print("--- end of %s" % os.path.relpath(self.path, REPO),
                  flush=True)


def execute(step, log, seconds):
    """Runs the step in a process group of its own; its exit status, or "time
    out". What it started ends with it: by SIGTERM first, since the services
    under test clean up after themselves."""
    try:
        process = subprocess.Popen(
            step.argv, cwd=REPO, stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, env=dict(os.environ, **step.env),
            process_group=0)
    except OSError as e:
        log.write(("%s\n" % e).encode())
        return str(e)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return "time out"
    finally:
        end_group(process)


def end_group(process):
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
    for sig in (signal.SIGTERM, signal.SIGHUP):
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
