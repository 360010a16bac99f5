# SPDX-License-Identifier: Apache-2.0
"""A program finds and does the same whether its interpreter was started for it
or had been waiting: each program of programs_*.py runs both ways, in sandboxes
of its own, and everything that comes back is compared."""

import concurrent.futures
import os
import re
import unittest

import programs_node
import programs_python
import programs_ruby
from sandbox import Base, Sandbox

IMAGES = os.environ.get("ISOBOX_IMAGES", "/var/lib/isobox/images")
ENV = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
       "HOME=/tmp", "TMPDIR=/tmp", "LANG=C.UTF-8"]
PYTHON_ENV = ENV + ["PYTHONDONTWRITEBYTECODE=1"]
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                       "registry", "python.yaml")) as registry:
    PRELOAD = re.findall(r"[\w.]+", "".join(
        re.findall(r"^preload: (.*)$", registry.read(), re.M)))
HOOKS = {
    "python-slim": "usr/lib/python3/dist-packages/isobox.pth",
    "python-agent": "usr/lib/python3/dist-packages/isobox.pth",
    "node": "usr/libexec/isobox/warm.cjs",
    "ruby": "usr/lib/ruby/3.3.0/syntax_suggest/core_ext.rb",
}
# The host has two processors at least; more at once disturb each other.
TOGETHER = 2


def alike(data):
    """Addresses differ from run to run, as numbers too."""
    return re.sub(rb"\b(0x[0-9a-f]+|1[0-9]{14})\b", b"0x", data)


class Programs(unittest.TestCase):
    image = entry = run_words = None
    env = ENV
    preload = ()
    programs = {}

    @classmethod
    def setUpClass(cls):
        if cls.image is None:
            raise unittest.SkipTest("has no programs of its own")
        root = os.path.join(IMAGES, cls.image)
        hook = os.path.join(root, HOOKS[cls.image])
        if not os.path.exists(hook):
            raise unittest.SkipTest("no image with " + hook)
        cls.base = Base(root)

    @classmethod
    def tearDownClass(cls):
        cls.base.remove()

    def run_one(self, program, warm):
        source, more = (program if isinstance(program, tuple)
                        else (program, {}))
        more = dict(more)
        run = self.run_words + more.pop("args", [])
        files = [(self.entry, source), *more.pop("files", [])]
        with Sandbox(of=self.base) as box:
            if warm:
                self.assertEqual(
                    box.warm(self.run_words, self.entry, self.preload,
                             env=self.env), (True, [], ""))
            r = box.run(run, env=self.env, files=files, timeout=90, **more)
        return {"exit": (r.code, r.signal), "stdout": alike(r.out),
                "stderr": alike(r.err)}

    def compare(self, name):
        return [self.run_one(self.programs[name], warm)
                for warm in (False, True)]

    def test_programs(self):
        self.maxDiff = None
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
            runs = {name: pool.submit(self.compare, name)
                    for name in self.programs}
            for name, run in runs.items():
                with self.subTest(name):
                    cold, warm = run.result()
                    self.assertEqual(cold, warm)


class TestPython(Programs):
    image, entry, env = "python-slim", "main.py", PYTHON_ENV
    run_words = ["/usr/bin/python3", "main.py"]
    programs = programs_python.GENERAL


    def test_cpu_time(self):
        """That of children counts, whoever tells of the end."""
        child = "import time\nwhile time.process_time() < .7: pass"
        with Sandbox(of=self.base) as box:
            self.assertTrue(box.warm(self.run_words, self.entry, self.preload,
                                     env=self.env)[0])
            r = box.run(self.run_words, env=self.env, timeout=90, files=[
                (self.entry, "import subprocess, sys\n"
                 "subprocess.run([sys.executable, '-c', %r])" % child)])
        self.assertEqual(r.err, b"")
        self.assertGreater(r.cpu_us, 500000)


class TestPythonPreloaded(TestPython):
    """What is loaded ahead is not to be seen, whether a program wants it or
    not."""
    image, preload = "python-agent", PRELOAD
    programs = programs_python.LIBRARIES | {
        name: source for name, source in programs_python.GENERAL.items()
        if name in programs_python.MAY_SEE_LIBRARIES}


class TestNode(Programs):
    image, entry = "node", "main.js"
    run_words = ["/usr/local/bin/node", "--require",
                 "/usr/libexec/isobox/warm.cjs", "main.js"]
    programs = programs_node.JAVASCRIPT


class TestTypeScript(Programs):
    image, entry = "node", "main.ts"
    run_words = ["/usr/local/bin/node", "--require",
                 "/usr/libexec/isobox/warm.cjs", "--require",
                 "/usr/libexec/isobox/ts.cjs", "main.ts"]
    programs = programs_node.TYPESCRIPT


class TestRuby(Programs):
    image, entry = "ruby", "main.rb"
    run_words = ["/usr/bin/ruby", "main.rb"]
    programs = programs_ruby.RUBY


del Programs  # not a test by itself
