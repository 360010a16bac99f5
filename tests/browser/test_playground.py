# SPDX-License-Identifier: Apache-2.0
"""The page at / in a real browser: code is typed, run, and its output shows
while the program still runs."""

import os
import unittest

from cdp import CHROMIUM, Browser
from harness import BUILD, Service, wait_for

PROGRAM = """import sys, time
print("first ü", flush=True)
time.sleep(3)
print("problem", file=sys.stderr, flush=True)
time.sleep(1)  # two pipes: what comes at once comes in any order
print("<b>last</b>", input())
sys.exit(3)
"""


def setUpModule():
    global service, browser
    if CHROMIUM is None:
        raise unittest.SkipTest("no chromium here; tools/isobox-setup "
                                "test-packages installs it")
    service = Service("caddy").start()
    unittest.addModuleCleanup(service.stop)
    browser = Browser()
    unittest.addModuleCleanup(browser.close)


class TestPlayground(unittest.TestCase):
    def setUp(self):
        browser.events.clear()
        browser.open("http://127.0.0.1:%d/" % service.port)
        browser.wait_for("!document.querySelector('#run').disabled")

    def tearDown(self):
        path = os.path.join(BUILD, "playground-%s.png"
                            % self.id().rsplit(".", 1)[1])
        browser.screenshot(path)
        self.assertEqual(browser.complaints(), [])
        service.assert_clean()

    def enter(self, selector, text):
        browser.focus_and_clear(selector)
        browser.type(text)

    def text(self, selector):
        return browser.evaluate("document.querySelector('%s').innerText"
                                % selector)

    def choose(self, language):
        browser.evaluate(
            "(() => { const s = document.querySelector('#language');"
            "s.value = [...s.options].find((o) => o.value.startsWith('%s@'))"
            ".value; s.dispatchEvent(new Event('change')); })()" % language)

    def running(self):
        return service.client().metrics()["isobox_runner_running"]

    def test_typed_code_runs_and_streams(self):
        self.choose("python-slim")
        browser.evaluate("document.querySelector('details').open = true")
        self.enter("#stdin", "from stdin\n")
        self.enter("#code", PROGRAM)
        browser.click("#run")
        browser.wait_for("output.innerText.includes('first ü')")
        # While the program sleeps: the output is there, the result is not.
        self.assertTrue(browser.evaluate("result.hidden"))
        self.assertTrue(browser.evaluate(
            "document.querySelector('#run').disabled"))
        browser.wait_for("!result.hidden")
        self.assertEqual(browser.evaluate("output.textContent"),
                         "first ü\nproblem\n<b>last</b> from stdin\n")
        self.assertEqual(browser.evaluate(
            "document.querySelector('#output .stderr').textContent"),
            "problem\n")
        # Output is text, whatever it looks like.
        self.assertIsNone(browser.evaluate(
            "document.querySelector('#output b')"))
        self.assertRegex(self.text("#result"), r"(?s)exit code\s+3\b")
        self.assertFalse(browser.evaluate(
            "document.querySelector('#run').disabled"))

    def test_languages_are_listed(self):
        names = browser.evaluate(
            "[...document.querySelector('#language').options]"
            ".map((o) => o.value)")
        want = ["%s@%s" % (r["language"], r["version"])
                for r in service.client().get("/runtimes").json()]
        self.assertEqual(sorted(names), sorted(want))

    def test_stop_kills_the_run(self):
        self.choose("python-slim")
        self.enter("#code", "import time\nprint('up', flush=True)\n"
                   "time.sleep(15)")
        browser.click("#run")
        browser.wait_for("output.innerText.includes('up')")
        self.assertEqual(self.running(), 1)
        browser.click("#stop")
        wait_for("free slot", lambda: self.running() == 0, 8)
        browser.wait_for("!document.querySelector('#run').disabled")

    def test_second_run_replaces_the_first(self):
        self.choose("python-slim")
        for text in ("one", "two"):
            self.enter("#code", "print('%s')" % text)
            browser.click("#run")
            browser.wait_for("!result.hidden && output.innerText.includes"
                             "('%s')" % text)
        self.assertEqual(browser.evaluate("output.textContent"), "two\n")

    def test_curl_command(self):
        self.choose("python-slim")
        self.enter("#code", "print(\"it's\")")
        browser.click("#run")
        browser.wait_for("!result.hidden")
        browser.evaluate("document.querySelector('#curl-box').open = true")
        command = browser.evaluate(
            "document.querySelector('#curl').textContent")
        self.assertIn("http://127.0.0.1:%d/execute" % service.port, command)
        self.assertIn("'\\''", command)
