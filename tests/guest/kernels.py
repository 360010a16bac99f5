# SPDX-License-Identifier: Apache-2.0
"""A kernel in a sandbox of its own, from a real image, without a runner.

    with Kernel("python") as kernel:
        step = kernel.step("x = 1")
"""

import collections
import os
import select
import subprocess
import time
import unittest

import isoproto
import sandbox

IMAGES = os.environ.get("ISOBOX_IMAGES", "/var/lib/isobox/images")
LANGUAGES = {
    "python": ("python", ["/usr/bin/python3", "-"], "python-agent"),
    "python-slim": ("python", ["/usr/bin/python3", "-"], "python-slim"),
    "node": ("node", ["/usr/local/bin/node", "-"], "node"),
}
ENV = ["PATH=/workspace/.local/bin:/usr/local/bin:/usr/bin:/bin",
       "HOME=/workspace", "PYTHONUSERBASE=/workspace/.local", "LANG=C.UTF-8",
       "PYTHONDONTWRITEBYTECODE=1"]

Step = collections.namedtuple(
    "Step", "code out err artifacts raised interrupted dropped cpu_us seconds")


# For threads that must not be done before their step is: what they do goes
# between these lines of Python, or of a shell. See Kernel.go().
HOLD = "while not os.path.exists('/workspace/go'): time.sleep(.02)"
HELD = "open('/workspace/gone', 'w').write('x')"
SHELL_HOLD = "until [ -e /workspace/go ]; do sleep .1; done"
SHELL_HELD = "echo x >/workspace/gone"


class Dead(Exception):
    """GUEST_EXIT: (code, signal), and what came before it."""

    def __init__(self, code, signal, out, err):
        super().__init__("exit code %d, signal %d: %r" % (code, signal, err))
        self.code, self.signal, self.out, self.err = code, signal, out, err


def have(language):
    return os.path.isdir(os.path.join(IMAGES, LANGUAGES[language][2]))


class Kernel(sandbox.Sandbox):
    """checkpoint: the directory of an image to restore, of a kernel with the
    same workspace."""

    def __init__(self, language, preload=(), pids=64, start=True,
                 checkpoint=None, workspace=None):
        self.language, self.argv, self.image = LANGUAGES[language]
        self.number = 0
        self.checkpoint = checkpoint
        self.workspace = workspace or sandbox.base.directory()
        start = start and checkpoint is None
        super().__init__(ready=checkpoint is None, workspace=self.workspace)
        if start:
            try:
                self.start_kernel(preload, pids)
            except BaseException:
                self.close()
                raise

    def configure(self, of, **settings):
        config = sandbox.config(of, **settings)
        config["root"]["path"] = os.path.join(IMAGES, self.image)
        return config

    def start_kernel(self, preload=(), pids=64):
        self.send(isoproto.frame(isoproto.GUEST_KERNEL, isoproto.guest_kernel(
            self.language, self.argv, ENV, preload, pids=pids)))
        ready = self.expect(isoproto.GUEST_KERNEL_READY, 60)
        self.missing = isoproto.guest_strings(ready[2])

    def begin(self, code, files=None, **kw):
        """Sends a step. files: further (name, content) pairs."""
        self.number += 1
        self.send(isoproto.frame(isoproto.GUEST_STEP, isoproto.guest_step(
            self.number, [("main", code)] + list(files or ()), **kw)))
        self.began = time.monotonic()

    def printed(self, text=b"up\n", timeout=30.0):
        """Once the step has printed all that; end() has it all the same."""
        until = time.monotonic() + timeout
        while not b"".join(
                payload for _, kind, payload in self.seen
                if kind == isoproto.GUEST_STDOUT).startswith(text):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                raise AssertionError("it did not print %r: %r" % (
                    text, self.seen))
            self.receive()

    def path(self, name):
        """A file of the workspace, seen from here."""
        return os.path.join(self.workspace, name)

    def has_bytes(self, name):
        try:
            return os.path.getsize(self.path(name)) > 0
        except FileNotFoundError:
            return False

    def go(self):
        """Lets go what was held up by HOLD, and waits until it is done."""
        with open(self.path("go"), "w"):
            pass
        until = time.monotonic() + 30
        # Not when the file is there: while it is being opened, it must stay.
        while not self.has_bytes("gone"):
            if time.monotonic() > until:
                raise AssertionError("what was held up is not done")
            time.sleep(0.02)
        for name in ("go", "gone"):
            os.unlink(self.path(name))

    def interrupt(self):
        self.send(isoproto.frame(isoproto.GUEST_INTERRUPT))

    def restored(self):
        self.send(isoproto.frame(isoproto.GUEST_RESTORED))
        self.expect(isoproto.GUEST_READY)
        self.expect(isoproto.GUEST_KERNEL_READY)

    def runsc(self, bundle):
        words = super().runsc(bundle)
        if self.checkpoint is not None:
            words[words.index("run"):] = [
                "restore", bundle, "--image-path=" + self.checkpoint, "box"]
        return words

    def save(self, image):
        """Checkpoints the sandbox, which ends: by runsc in its namespaces."""
        pid = self.process.pid
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            inside = f.read().split()[0]
        words = super().runsc("")
        words[words.index("run"):] = ["checkpoint", "--image-path=" + image,
                                      "box"]
        subprocess.run(
            ["nsenter", "--target", inside, "--user", "--mount", "--net",
             "--pid", "--setuid", "0", "--setgid", "0", *words], check=True,
            stdout=subprocess.DEVNULL, stderr=self.log, timeout=60)
        self.ended(30)

    def step(self, code, timeout=30.0, **kw):
        """One step to its end."""
        self.begin(code, **kw)
        return self.end(timeout)

    def end(self, timeout=30.0):
        streams = {isoproto.GUEST_STDOUT: b"", isoproto.GUEST_STDERR: b""}
        artifacts = []
        until = time.monotonic() + timeout
        while True:
            when, kind, payload = self.next(until - time.monotonic())
            if kind == isoproto.GUEST_STEP_DONE:
                break
            if kind == isoproto.GUEST_EXIT:
                code, signal = isoproto.guest_exit(payload)[:2]
                raise Dead(code, signal, streams[isoproto.GUEST_STDOUT],
                           streams[isoproto.GUEST_STDERR])
            if kind == isoproto.GUEST_ARTIFACT:
                mime, text, size = isoproto.guest_artifact(payload)
                artifacts.append([mime, text, size, b""])
            elif kind == isoproto.GUEST_ARTIFACT_DATA:
                artifacts[-1][3] += payload
            else:
                streams[kind] += payload
        number, code, raised, interrupted, dropped, cpu_us = \
            isoproto.guest_step_done(payload)
        assert number == self.number, number
        shown = []
        for mime, text, size, data in artifacts:
            assert len(data) == size, (mime, size, len(data))
            shown.append((mime, data.decode() if text else data))
        return Step(code, streams[isoproto.GUEST_STDOUT].decode(),
                    streams[isoproto.GUEST_STDERR].decode(), shown, raised,
                    interrupted, dropped, cpu_us, when - self.began)

    def dies(self, timeout=30.0):
        """Waits for the kernel's end: (code, signal)."""
        try:
            found = self.end(timeout)
        except Dead as dead:
            return dead.code, dead.signal
        raise AssertionError("the kernel lives: %r" % (found,))


class KernelCase(unittest.TestCase):
    """One kernel for all tests of a class; each uses names of its own."""

    language = "python-slim"
    preload = ()
    pids = 64

    @classmethod
    def setUpClass(cls):
        if not have(cls.language):
            raise unittest.SkipTest("there is no image for " + cls.language)
        cls.kernel = Kernel(cls.language, cls.preload, cls.pids)

    @classmethod
    def tearDownClass(cls):
        cls.kernel.close()

    def step(self, code, **kw):
        return self.kernel.step(code, **kw)

    def good(self, code, out="", **kw):
        """A step without an error: what it wrote, and the rest."""
        s = self.step(code, **kw)
        self.assertEqual((s.code, s.err, s.out), (0, "", out), code)
        return s

    def bad(self, code, last, **kw):
        """A step that raises; the last line of what it says."""
        s = self.step(code, **kw)
        self.assertEqual((s.code, s.raised), (1, True), code)
        self.assertEqual(s.err.rstrip("\n").split("\n")[-1], last)
        return s
