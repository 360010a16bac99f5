# SPDX-License-Identifier: Apache-2.0
"""Interpreters that wait for a kernel session, and what many steps leave."""

import os
import time
import unittest

import livekernel
import workspaces
from harness import Service, wait_for
from livekernel import Kernel

# For the long one: the growth that is told of is that of the whole time.
STEPS = int(os.environ.get("ISOBOX_TEST_KERNEL_STEPS", "300"))


def setUpModule():
    global service, socket_path, versions
    service = Service("caddy", allowed_users=["0"], warm=True, warm_max=1,
                      kernel_warm=1, kernel_slots=2, concurrency=4,
                      session_disk_mb=64, min_free_disk_gb=1,
                      kernel_mem_mb=256)
    unittest.addModuleCleanup(service.stop)
    socket_path = service.settings["runner_socket"]
    service.start_runner()
    wait_for("ready runner", lambda: workspaces.ready(socket_path), 60)
    versions = livekernel.versions(service)


def status():
    return livekernel.status(socket_path)


def resident_kb(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(f.read().split("VmRSS:")[1].split()[0])


class Waiting(unittest.TestCase):
    def kernel(self, runtime):
        k = Kernel(socket_path, runtime, versions[runtime])
        self.addCleanup(k.remove)
        return k

    def wait(self):
        wait_for("an interpreter that waits", lambda: status().waiting == 1,
                 60)

    def test_taken_by_a_session(self):
        k = self.kernel("python-slim")
        self.wait()  # of the kind that was wanted last
        began = time.monotonic()
        other = self.kernel("python-slim")
        took = time.monotonic() - began
        # Not a boot's time, which is some hundred milliseconds.
        self.assertEqual(other.created.state, "resident")
        print("a session that takes one: %.1f ms" % (took * 1000))
        # At once: the word and the first step may be read together.
        self.assertEqual(other.step("open('a', 'w').write('1')\n"
                                    "print(2)").out, "2\n")
        self.assertEqual(other.workspace.read("a"), b"1")
        other.workspace.write("b", b"3")
        self.assertEqual(other.step("print(open('b').read())").out, "3\n")
        self.assertEqual(k.step("import os; print(os.listdir())").out,
                         "[]\n")

    def test_another_kind_replaces_it(self):
        self.wait()
        k = self.kernel("javascript")
        self.assertEqual(k.step("console.log(1)").out, "1\n")
        self.wait()
        other = self.kernel("javascript")
        self.assertEqual(other.step("console.log(2)").out, "2\n")

    def test_killed_while_it_waits(self):
        self.wait()
        before = status().waiting
        self.assertEqual(before, 1)
        # The registry read again gives up who waits for the old one.
        service.runner.send_signal(1)
        wait_for("none that waits", lambda: status().waiting == 0, 30)
        self.wait()

    def test_many_steps_leave_nothing(self):
        k = self.kernel("python-slim")
        k.step("n = 0")
        for _ in range(50):
            k.step("n += 1")
        pid = service.runner.pid
        fds, kb = len(os.listdir("/proc/%d/fd" % pid)), resident_kb(pid)
        began = time.monotonic()
        for _ in range(STEPS):
            k.step("n += 1")
        took = time.monotonic() - began
        self.assertEqual(k.step("print(n)").out, "%d\n" % (STEPS + 50))
        self.assertLessEqual(len(os.listdir("/proc/%d/fd" % pid)), fds + 4)
        self.assertLess(resident_kb(pid), kb + 512)
        print("%d steps: %.2f ms each, runner %d kB" % (
            STEPS, took / STEPS * 1000, resident_kb(pid)))


if __name__ == "__main__":
    unittest.main()
