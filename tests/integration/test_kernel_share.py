# SPDX-License-Identifier: Apache-2.0
"""Whose kernels are in memory when several tenants want slots, and when memory
gets short."""

import os
import threading
import time
import unittest

import kernel_case
import livekernel
import workspaces
from harness import Service, wait_for
from livekernel import ALIVE, Kernel
from workspaces import Refused

MIB = 1 << 20
UNSAVABLE = "import os\nf = open('g', 'w+')\nos.unlink('g')"


def start(**settings):
    service = Service("caddy", allowed_users=["0"], session_disk_mb=512,
                      min_free_disk_gb=1, kernel_mem_mb=256,
                      kernel_hibernate_sec=3600, **settings)
    service.start_runner()
    path = service.settings["runner_socket"]
    wait_for("ready runner", lambda: workspaces.ready(path), 60)
    return service


class Case(unittest.TestCase):
    settings = {}

    @classmethod
    def setUpClass(cls):
        cls.service = start(**cls.settings)
        cls.addClassCleanup(cls.service.stop)
        cls.socket = cls.service.settings["runner_socket"]
        cls.version = livekernel.versions(cls.service)["python-slim"]

    def kernel(self, tenant=1):
        k = Kernel(self.socket, "python-slim", self.version, tenant=tenant)
        self.addCleanup(self.remove, k)
        return k

    def remove(self, k):
        k.remove()
        wait_for("its slot", lambda: livekernel.status(
            self.socket).used <= self.slots(k))

    def slots(self, k):
        return self.settings["kernel_slots"] - 1

    def good(self, k, code, out=""):
        s = k.step(code)
        self.assertEqual((s.out, s.err, s.result.code, s.result.kernel),
                         (out, "", 0, ALIVE))


class Tenants(Case):
    settings = {"warm": False, "kernel_slots": 2, "concurrency": 4,
                "acquire_wait_ms": 5000}

    def test_who_has_most_makes_room(self):
        many = [self.kernel() for _ in range(3)]
        for n, k in enumerate(many):
            self.good(k, "x = %d" % n)
        one = self.kernel(tenant=2)
        self.good(one, "y = 1")
        # Idle for longest, and still in memory: who has one slot of two does
        # not push out who has the other.
        for _ in range(2):
            for n, k in enumerate(many):
                self.good(k, "print(x)", "%d\n" % n)
            self.assertEqual(one.stat().state, "resident")
        self.good(one, "print(y)", "1\n")
        wait_for("its second step", lambda: one.stat().steps == 2)

    def test_over_a_restart(self):
        """Whose it is, is on the disk."""
        many = [self.kernel() for _ in range(2)]
        one = self.kernel(tenant=2)
        for k in many + [one]:
            self.good(k, "x = 1")
        self.service.runner.terminate()
        self.service.runner.wait(60)
        self.service.start_runner()
        wait_for("ready runner", lambda: workspaces.ready(self.socket), 60)
        self.good(one, "print(x)", "1\n")
        for _ in range(2):
            for k in many:
                self.good(k, "print(x)", "1\n")
        self.assertEqual(one.stat().state, "resident")

    def test_what_cannot_be_saved(self):
        """Of who has all slots: one ends for who has none."""
        many = [self.kernel() for _ in range(2)]
        for k in many:
            self.good(k, UNSAVABLE)
        one = self.kernel(tenant=2)
        self.good(one, "print(1)", "1\n")
        states = sorted(k.stat().state for k in many)
        self.assertEqual(states, ["dead", "resident"])
        for k in many:
            if k.stat().state == "dead":
                self.assertIn("slot was needed", k.stat().reason)
        # Nor for a second one: each has its share.
        with self.assertRaises(Refused) as caught:
            self.good(one, UNSAVABLE)
            self.kernel(tenant=2)
        self.assertEqual(caught.exception.kind, "too_many_kernels")

    def test_steps_without_a_pause(self):
        """Nobody is kept out by steps that wait for each other."""
        many = [self.kernel() for _ in range(2)]
        stop = time.monotonic() + 12
        failed = []

        def work(k):
            while time.monotonic() < stop:
                try:
                    k.step("import time; time.sleep(.5)", wall_ms=20000)
                except Refused as e:
                    failed.append(e)
        threads = [threading.Thread(target=work, args=[k])
                   for k in many for _ in range(2)]
        for t in threads:
            t.start()
        try:
            time.sleep(1)
            one = self.kernel(tenant=2)
            self.good(one, "print(1)", "1\n")
            self.good(one, "print(2)", "2\n")
        finally:
            for t in threads:
                t.join()
        # They shared the other slot, and who waited too long was told so.
        self.assertLessEqual({e.kind for e in failed},
                             {"too_many_kernels", "session_busy"})
        for k in many:
            self.good(k, "print(3)", "3\n")


class Keys(unittest.TestCase):
    def test_each_is_a_tenant(self):
        """By HTTP, where the key says who it is."""
        keys = ["first-key", "second-key"]
        service = Service("caddy", api_keys=keys, warm=False, kernel_slots=2,
                          kernel_mem_mb=256, session_disk_mb=512,
                          min_free_disk_gb=1, kernel_hibernate_sec=3600,
                          acquire_wait_ms=20000, concurrency=4)
        self.addCleanup(service.stop)
        service.start()
        first, second = [service.client([("X-API-Key", k)]) for k in keys]
        many = [kernel_case.Kernel(first) for _ in range(2)]
        one = kernel_case.Kernel(second)
        for _ in range(2):
            for k in many:
                self.assertEqual(k.run("print(1)")["stdout"], "1\n")
            self.assertEqual(one.state(), "resident")
        self.assertEqual(sorted(k.state() for k in many),
                         ["hibernated", "resident"])


class Churn(Case):
    settings = {"warm": False, "kernel_slots": 2, "concurrency": 2,
                "acquire_wait_ms": 60000}

    def test_all_get_on(self):
        """Two sets of clients over more kernels than slots: each step that had
        a kernel fetched is run by it."""
        kernels = [self.kernel(tenant=1 + n % 2) for n in range(6)]
        before = livekernel.status(self.socket)
        failed = []

        def work(k, n):
            try:
                for i in range(4):
                    self.good(k, "x = globals().get('x', -1) + 1; print(x)",
                              "%d\n" % i)
            except Exception as e:  # of a thread: told below
                failed.append(e)
        threads = [threading.Thread(target=work, args=[k, n])
                   for n, k in enumerate(kernels)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
        status = livekernel.status(self.socket)
        self.assertLessEqual(status.restores - before.restores, 6 * 4)


class Weight(Case):
    settings = {"warm": False, "kernel_slots": 2, "concurrency": 2,
                "acquire_wait_ms": 5000}

    def weights(self):
        """The leaves' shares of the CPU, in hundredths."""
        found = []
        for leaf in self.service.subtree.leaves():
            for name, part in (("cpu.weight", 1), ("cpu.shares", 10.24)):
                try:
                    with open(os.path.join(leaf, name)) as f:
                        found.append(round(int(f.read()) / part))
                except OSError:
                    pass  # the other version of cgroups, or just gone
        return found

    def test_what_goes_on_between_steps(self):
        """Has a low share of the CPU; a step has the usual one."""
        k = self.kernel()
        self.good(k, "import threading, time\ndef run():\n"
                  "  while True: pass\n"
                  "threading.Thread(target=run, daemon=True).start()")
        for name in ("one", "two"):
            wait_for("a low share", lambda: self.weights() == [10])
            c = k.begin("import os\nwhile not os.path.exists('%s'): "
                        "time.sleep(.05)\nprint(1)" % name)
            wait_for("the usual share", lambda: self.weights() == [100])
            k.workspace.write(name, b"")
            self.assertEqual(k.end(c).out, "1\n")
        wait_for("a low share", lambda: self.weights() == [10])
        # Who is saved is not held up.
        self.kernel(), self.kernel()
        self.assertEqual(k.stat().state, "hibernated")
        self.good(k, "print(2)", "2\n")


class MemoryCase(Case):
    def fill(self, k, mib, n):
        """Its variables x and n. Piece by piece: each when what the runner
        keeps free is free again, however long that took."""
        self.good(k, "import os; x = []; n = %d" % n)
        memory = self.settings["memory"]
        for _ in range(mib // 5):
            self.good(k, "x.append(os.urandom(5 << 20))")
            wait_for("free memory", lambda: self.service.subtree.memory_used()
                     <= memory - memory // 8, 60)

    def filled(self, k, mib, n):
        self.good(k, "print(n, sum(map(len, x)) >> 20)", "%d %d\n" % (n, mib))


class Memory(MemoryCase):
    settings = {"warm": False, "kernel_slots": 4, "concurrency": 4,
                "acquire_wait_ms": 20000, "memory": 700 * MIB}

    def test_idle_ones_go(self):
        """More than fits in the subtree's memory: the longest idle are on disk,
        and nobody is killed."""
        kernels = [self.kernel() for _ in range(4)]
        for n, k in enumerate(kernels):
            self.fill(k, 190, n)
        states = [k.stat().state for k in kernels]
        self.assertIn("hibernated", states)
        self.assertEqual(states[-1], "resident")
        for n, k in enumerate(kernels):
            self.filled(k, 190, n)
        status = livekernel.status(self.socket)
        self.assertEqual(set(status.deaths.values()), {0})
        self.assertGreater(status.evictions, 0)


class Waiting(MemoryCase):
    """An interpreter that waits goes before a session's kernel does."""

    settings = {"warm": True, "warm_max": 1, "kernel_slots": 3,
                "kernel_warm": 1, "concurrency": 4,
                "acquire_wait_ms": 20000, "memory": 600 * MIB}

    def test_first(self):
        def waiting():
            return livekernel.status(self.socket).waiting
        wait_for("one that waits", lambda: waiting() == 1, 60)
        kernels = [self.kernel() for _ in range(2)]
        for n, k in enumerate(kernels):
            self.fill(k, 215, n)
        wait_for("none that waits", lambda: waiting() == 0)
        self.assertEqual(livekernel.status(self.socket).deaths["oom"], 0)
        for n, k in enumerate(kernels):
            self.filled(k, 215, n)


if __name__ == "__main__":
    unittest.main()
