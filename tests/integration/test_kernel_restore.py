# SPDX-License-Identifier: Apache-2.0
"""Kernels that cannot be fetched from disk just now: what is the host's fault ends
none, and what can never work does."""

import hashlib
import os
import shutil
import signal
import unittest

import livekernel
import workspaces
import world
from cgroups import children
from harness import Service, wait_for
from livekernel import ALIVE, Kernel
from workspaces import Refused

SLIRP = "#!/bin/sh\nexec /usr/bin/slirp4netns \"$@\"\n"


class Case(unittest.TestCase):
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.service = Service(
            "caddy", allowed_users=["0"], warm=False, session_disk_mb=256,
            min_free_disk_gb=1, kernel_mem_mb=256, kernel_slots=1,
            concurrency=2, kernel_hibernate_sec=3600, acquire_wait_ms=20000,
            **cls.settings)
        cls.addClassCleanup(cls.service.stop)
        cls.socket = cls.service.settings["runner_socket"]
        cls.prepare()
        cls.service.write_config()
        cls.service.start_runner()
        wait_for("ready runner", lambda: workspaces.ready(cls.socket), 60)
        cls.versions = livekernel.versions(cls.service)

    @classmethod
    def prepare(cls):
        cls.runsc = cls.service.path("bin", "runsc")
        shutil.copy(cls.service.settings["runsc"], cls.runsc)
        cls.service.settings["runsc"] = cls.runsc

    def kernel(self, runtime="python-slim", **more):
        k = Kernel(self.socket, runtime, self.versions[runtime], create=False,
                   **more)
        self.addCleanup(k.remove)
        wait_for("a kernel", lambda: self.was_made(k), 30, .2)
        return k

    def was_made(self, k):
        """The runner may still think that no sandbox boots."""
        try:
            return k.create()
        except Refused as e:
            self.assertEqual(e.kind, "sandbox_failed")
            return None

    def good(self, k, code, out=""):
        s = k.step(code)
        self.assertEqual((s.out, s.err, s.result.code, s.result.kernel),
                         (out, "", 0, ALIVE))

    def at_rest(self, **more):
        k = self.kernel(**more)
        self.good(k, "x = 5")
        self.kernel().remove()
        self.assertEqual(k.stat().state, "hibernated")
        return k

    def refused(self, k, kind):
        with self.assertRaises(Refused) as caught:
            k.step("print(x)")
        e = caught.exception
        self.assertEqual(e.kind, kind, e.detail)
        return e

    def fails(self, k, why, kind="sandbox_failed"):
        e = self.refused(k, kind)
        self.assertIn(why, e.detail)
        return e

    def fails_for_now(self, k, why):
        """More often than once, and is none the worse. After the first time the
        runner looks whether anything can be started, and may know it by now."""
        for n in range(3):
            e = self.refused(k, "sandbox_failed")
            if n == 0 or "no sandbox could be started" not in e.detail:
                self.assertIn(why, e.detail)
                self.assertGreater(e.retry_after, 0)
            self.assertEqual(k.stat().state, "hibernated")


class Host(Case):
    def test_no_runsc(self):
        k = self.at_rest()
        os.chmod(self.runsc, 0)
        try:
            self.fails_for_now(k, "Permission denied")
        finally:
            os.chmod(self.runsc, 0o755)
        wait_for("a step", lambda: self.works(k), 30, .2)

    def works(self, k):
        try:
            return k.step("print(x)").out == "5\n"
        except Refused as e:
            self.assertEqual(e.kind, "sandbox_failed")
            return False

    def test_its_supervisor_is_killed(self):
        k = self.at_rest()
        for _ in range(3):
            before = self.children()
            c = k.begin("print(x)")
            pid = wait_for("a supervisor", lambda before=before:
                           self.children() - before, every=.001).pop()
            os.kill(pid, signal.SIGKILL)
            with self.assertRaises(Refused) as caught:
                k.end(c)
            self.assertEqual(caught.exception.kind, "sandbox_failed")
            self.assertEqual(k.stat().state, "hibernated")
            wait_for("its end", lambda: livekernel.status(
                self.socket).used == 0, 30)
            wait_for("ready runner",
                     lambda: workspaces.ready(self.socket), 60)
        self.good(k, "print(x)", "5\n")

    def children(self):
        return children(self.service.runner.pid)

    def test_what_runsc_never_takes(self):
        """A checkpoint whose stamp is right, and that is none: once may be
        bad luck, twice is death."""
        k = self.at_rest()
        top = self.service.path("workspaces", "kernels", k.name)
        path = os.path.join(top, "stamp")
        with open(path) as f:
            lines = f.read().splitlines()
        junk = os.urandom(5000)
        for i, line in enumerate(lines):
            name = line.split()[1] if line.startswith("file ") else "about"
            if name != "about":
                with open(os.path.join(top, name), "wb") as f:
                    f.write(junk)
                lines[i] = "file %s %d %s" % (
                    name, len(junk),
                    hashlib.blake2b(junk, digest_size=32).hexdigest())
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        self.fails(k, "")
        wait_for("ready runner", lambda: workspaces.ready(self.socket), 60)
        self.fails(k, "could not be restored", "kernel_dead")
        self.assertEqual(k.stat().state, "dead")


class Busy(Case):
    """What the user's code does beside steps holds a kernel up, when it is saved
    and whenever it is fetched."""

    def at_work(self, runtime, code):
        k = self.kernel(runtime)
        self.good(k, code)
        k.workspace.write("go", b"")
        wait_for("its work", lambda: b"busy" in k.workspace.names(), 30)
        self.kernel().remove()
        self.assertEqual(k.stat().state, "hibernated")
        return k

    def test_python_is_interrupted(self):
        k = self.at_work("python-slim", """
import asyncio, os, time
async def work():
    while not os.path.exists("go"):
        await asyncio.sleep(0.05)
    open("busy", "w").close()
    time.sleep(3600)
x = 5
task = asyncio.create_task(work())
await asyncio.sleep(0)
""")
        self.good(k, "print(x, type(task.exception()).__name__)",
                  "5 KeyboardInterrupt\n")

    def test_node_cannot_be(self):
        k = self.at_work("javascript", """
const fs = require("fs");
setInterval(() => {
    if (fs.existsSync("go")) {
        fs.writeFileSync("busy", "");
        for (;;);
    }
}, 50); 0
""")
        for _ in range(2):
            self.fails(k, "busy", "kernel_dead")

    def test_it_ends_at_once(self):
        k = self.at_work("python-slim", """
import asyncio, os, threading, time
def end():
    while not os.path.exists("end"):
        time.sleep(0.01)
    os._exit(3)
async def work():
    while not os.path.exists("go"):
        await asyncio.sleep(0.05)
    open("busy", "w").close()
    time.sleep(3600)
threading.Thread(target=end).start()
task = asyncio.create_task(work())
await asyncio.sleep(0)
""")
        k.workspace.write("end", b"")
        for _ in range(2):
            self.fails(k, "exit code 3", "kernel_dead")


class Egress(Case):
    @classmethod
    def setUpClass(cls):
        cls.place = world.World()
        cls.addClassCleanup(cls.place.close)
        cls.settings = {"world": cls.place}
        super().setUpClass()

    @classmethod
    def prepare(cls):
        super().prepare()
        cls.slirp = cls.service.path("bin", "slirp4netns")
        cls.service.settings["slirp4netns"] = cls.slirp
        cls.set_egress(True)

    @classmethod
    def set_egress(cls, works):
        with open(cls.slirp + ".new", "w") as f:
            f.write(SLIRP if works else "#!/bin/sh\nexit 1\n")
        os.chmod(cls.slirp + ".new", 0o755)
        os.rename(cls.slirp + ".new", cls.slirp)

    def test_none_for_now(self):
        k = self.at_rest(network=True)
        self.set_egress(False)
        try:
            self.fails_for_now(k, "network")
        finally:
            self.set_egress(True)
        self.good(k, "print(x)", "5\n")
        self.assertTrue(k.stat().network)

    def test_none_at_its_begin(self):
        self.set_egress(False)
        try:
            k = self.at_rest(network=True)
            self.good(k, "x += 1")
            self.assertFalse(k.stat().network)
            self.kernel().remove()
        finally:
            self.set_egress(True)
        # As it began: it is not another sandbox because there is one now.
        self.good(k, "print(x)", "6\n")
        i = k.stat()
        self.assertFalse(i.network)
        self.assertNotEqual(i.network_reason, "")


if __name__ == "__main__":
    unittest.main()
