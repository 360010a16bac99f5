# SPDX-License-Identifier: Apache-2.0
"""runsuite.py DIR [MODULE|MODULE.Class.test ...]

Runs the unittest modules of DIR (all test_*.py), prints a line a test with its
seconds, each skip with its reason, and at last `N passed, N failed, N skipped`.
Exit 1 when a test failed or none ran.
"""

import os
import signal
import sys
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.begun = time.monotonic()
        self.passed = 0
        self.bad = set()

    def say(self, word, test, note=""):
        seconds = time.monotonic() - self.begun
        print("%-7s %6.1f s  %s%s" % (word, seconds, test.id(), note),
              flush=True)

    def startTest(self, test):
        super().startTest(test)
        self.begun = time.monotonic()

    def fail(self, test, err):
        """A test counts once, however many of its sub-tests failed."""
        self.bad.add(getattr(test, "test_case", test).id())
        self.say("FAILED", test)
        traceback.print_exception(*err, file=sys.stdout)
        sys.stdout.flush()

    def addError(self, test, err):
        if issubclass(err[0], KeyboardInterrupt):
            raise err[1]
        self.fail(test, err)

    def addFailure(self, test, err):
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.fail(subtest, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skipped", test, ": " + reason)

    def addExpectedFailure(self, test, err):
        self.fail(test, err)

    def addSuccess(self, test):
        if test.id() not in self.bad:
            self.passed += 1
            self.say("ok", test)


def run(folder, names):
    """(passed, failed, skipped) of the modules or tests called names."""
    folder = os.path.abspath(folder)
    sys.path.insert(0, HERE)
    sys.path.insert(0, folder)
    if not names:
        names = sorted(f[:-3] for f in os.listdir(folder)
                       if f.startswith("test_") and f.endswith(".py"))
    suite = unittest.TestSuite()
    for name in names:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(name))
    result = Result()
    suite.run(result)
    return result.passed, len(result.bad), len(result.skipped)


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        counts = run(sys.argv[1], sys.argv[2:])
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
    print("%d passed, %d failed, %d skipped" % counts, flush=True)
    sys.exit(1 if counts[1] or not sum(counts) else 0)


if __name__ == "__main__":
    main()
