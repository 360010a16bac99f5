# SPDX-License-Identifier: Apache-2.0
"""Kernels at rest and forks, where the disk of all sessions together has an end:
sessions_disk_max_gb."""

import os
import pwd
import signal
import unittest

import livekernel
import workspaces
from harness import RUNNER_USER, Service, wait_for
from livekernel import Kernel
from workspaces import Refused, Workspace

MIB = 1 << 20
CEILING = 1 << 30


def start_runner():
    service.start_runner()
    wait_for("ready runner", lambda: workspaces.ready(socket_path), 60)


def fill(name, size):
    """A session that somebody left there."""
    top = service.path("workspaces", "sessions", name)
    who = pwd.getpwnam(RUNNER_USER)
    os.makedirs(top)
    with open(os.path.join(top, "filler"), "wb") as f:
        os.posix_fallocate(f.fileno(), 0, size)
    for path in (os.path.dirname(top), top, os.path.join(top, "filler")):
        os.chown(path, who.pw_uid, who.pw_gid)


def setUpModule():
    global service, socket_path, versions
    service = Service("caddy", allowed_users=["0"], warm=False,
                      session_disk_mb=1024, sessions_disk_max_gb=1,
                      min_free_disk_gb=1, kernel_mem_mb=256, kernel_slots=2,
                      concurrency=4, kernel_hibernate_sec=3600,
                      acquire_wait_ms=5000)
    unittest.addModuleCleanup(service.stop)
    socket_path = service.settings["runner_socket"]
    fill("filler", CEILING - 200 * MIB)
    start_runner()
    versions = livekernel.versions(service)


def on_disk():
    """What all sessions and checkpoints take, each file once."""
    seen = {}
    for part in ("sessions", "kernels", "staging", "trash"):
        for folder, _, files in os.walk(service.path("workspaces", part)):
            for name in files:
                try:
                    st = os.lstat(os.path.join(folder, name))
                except FileNotFoundError:
                    continue
                seen[st.st_ino] = st.st_blocks * 512
    return sum(seen.values())


class Ceiling(unittest.TestCase):
    def setUp(self):
        self.filler = Workspace(socket_path, "filler")
        # Counted: by the sweep of the start, or now.
        self.assertGreater(self.filler.stat().used, 800 * MIB)

    def kernel(self):
        k = Kernel(socket_path, "python-slim", versions["python-slim"])
        self.addCleanup(k.remove)
        return k

    def forks(self, k, most=12):
        """As many as are let in; the refusal."""
        made = []
        for _ in range(most):
            try:
                other, _ = k.fork()
            except Refused as e:
                return made, e
            self.addCleanup(other.remove)
            made.append(other)
            self.assertLess(on_disk(), CEILING)
        self.fail("%d forks, %d MiB" % (most, on_disk() // MIB))

    def test_forks_and_restarts(self):
        k = self.kernel()
        k.step("open('f', 'wb').write(bytes(4 << 20)); x = 5")
        made, e = self.forks(k)
        self.assertEqual(e.kind, "storage_full")
        self.assertIn("1 GiB", e.detail)
        self.assertGreaterEqual(len(made), 2)
        self.assertEqual(k.step("print(x)").out, "5\n")
        # Another life counts the same.
        service.runner.send_signal(signal.SIGKILL)
        service.runner.wait(60)
        start_runner()
        self.filler.stat()
        again, e = self.forks(made[0])
        # A restored kernel may have less in memory, and so promise less.
        self.assertLessEqual(len(again), 1)
        self.assertEqual(e.kind, "storage_full")
        # What goes is given back, and what was refused took nothing.
        for other in made[1:]:
            other.remove()
        again = wait_for("room", lambda: self.forks(made[0])[0])
        self.assertLessEqual(len(again), len(made))
        self.assertEqual(made[0].step("print(x)").out, "5\n")

    def test_at_rest(self):
        """Who finds no room stays."""
        kernels = [self.kernel() for _ in range(2)]
        for k in kernels:
            k.step("import os; x = os.urandom(180 << 20)")
        with self.assertRaises(Refused) as caught:
            self.kernel()
        self.assertEqual(caught.exception.kind, "too_many_kernels")
        for k in kernels:
            i = k.stat()
            self.assertEqual((i.state, i.checkpoint), ("resident", 0))
            self.assertIn("1 GiB", i.reason)
            self.assertEqual(k.step("print(len(x) >> 20)").out, "180\n")
        # What was promised in vain is not held.
        self.filler.delete("filler")
        self.addCleanup(self.refill)
        self.filler.stat()
        other, i = kernels[0].fork()
        self.addCleanup(other.remove)
        self.assertGreater(i.checkpoint, 180 * MIB)
        self.assertEqual(kernels[0].step("print(len(x) >> 20)").out, "180\n")

    def refill(self):
        service.runner.send_signal(signal.SIGTERM)
        service.runner.wait(60)
        os.rmdir(service.path("workspaces", "sessions", "filler"))
        fill("filler", CEILING - 200 * MIB)
        start_runner()


if __name__ == "__main__":
    unittest.main()
