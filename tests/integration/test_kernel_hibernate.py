# SPDX-License-Identifier: Apache-2.0
"""Kernels that go to disk and come back, by HTTP and in numbers.
ISOBOX_KERNELS, ISOBOX_KERNEL_CYCLES, ISOBOX_KERNEL_KILLS: how many share the
slots, how often one comes and goes, how often the runner is killed meanwhile (in
full: 200, 100, 50)."""

import os
import random
import time
import unittest

from harness import wait_for
from kernel_case import KernelCase

MANY = int(os.environ.get("ISOBOX_KERNELS", "8"))
CYCLES = int(os.environ.get("ISOBOX_KERNEL_CYCLES", "3"))
KILLS = int(os.environ.get("ISOBOX_KERNEL_KILLS", "4"))
SLOTS = 6 if MANY >= 100 else 3
MIB = 1 << 20

STATE = """
import threading, time
n = 0
def run():
    global n
    while True: time.sleep(.02); n += 1
threading.Thread(target=run, daemon=True).start()
f = open('/workspace/open', 'w+')
"""
LOOK = """
m = n
for _ in range(200):
    time.sleep(.02)
    if n > m: break
_ = f.write('x'); f.flush(); _ = f.seek(0)
print(n > m, len(f.read()), abs(time.time() - %r) < 60)
"""


class Case(KernelCase):
    settings = {"warm": False, "session_disk_mb": 128,
                "min_free_disk_gb": 1, "kernel_mem_mb": 256,
                "kernel_slots": SLOTS, "kernel_hibernate_sec": 1,
                "concurrency": 4, "acquire_wait_ms": 30000,
                "max_sessions": 1000, "max_sessions_per_tenant": 1000,
                "sessions_disk_max_gb": 50}

    def until(self, k, state, seconds=90):
        wait_for("a kernel that is " + state, lambda: k.state() == state,
                 seconds, .1)
        return k.look()

    def folder(self, k):
        return self.service.path("workspaces", "kernels", k.id)

    def kill_runner(self):
        self.service.runner.kill()
        self.service.runner.wait()
        self.service.start_runner()
        self.service.wait_ready(60)

    def left_half_made(self):
        return [n for n in os.listdir(self.service.path(
            "workspaces", "kernels")) if n.startswith(".")]


class Cycles(Case):
    def test_one_comes_and_goes(self):
        k = self.kernel()
        self.good(k, STATE)
        for i in range(1, CYCLES + 1):
            kernel = self.until(k, "hibernated")["kernel"]
            self.assertGreater(kernel["checkpointBytes"], MIB)
            self.assertIsNone(kernel["memoryBytes"])
            self.good(k, LOOK % time.time(), "True %d True\n" % i)


class Rooms(Case):
    """What a checkpoint takes, and when it goes."""

    def test_it_counts_and_is_deleted(self):
        k = self.kernel()

        def resident():
            self.good(k, "x = 1")
            facts = k.look()
            return facts if facts["kernel"]["state"] == "resident" else None
        # A second later it is on the disk.
        before = wait_for("one in memory", resident)["disk"]["usedBytes"]
        facts = self.until(k, "hibernated")
        size = facts["kernel"]["checkpointBytes"]
        self.assertGreaterEqual(facts["disk"]["usedBytes"], before + size)
        self.assertTrue(os.path.isdir(self.folder(k)))
        self.assertEqual(k.end(), 204)
        wait_for("the end of the checkpoint",
                 lambda: not os.path.exists(self.folder(k)), 20)

    def test_over_the_quota_it_stays(self):
        k = self.kernel()
        self.good(k, "import os; x = os.urandom(90 << 20)")
        self.good(k, "_ = open('a', 'wb').write(x[:60 << 20])")
        wait_for("a reason",
                 lambda: "quota" in k.look()["kernel"].get("reason", ""),
                 90, .2)
        self.assertEqual(k.state(), "resident")
        self.good(k, "print(len(x) >> 20)", "90\n")


class Many(Case):
    settings = dict(Case.settings, kernel_hibernate_sec=3600)

    def used(self):
        """The kernels' sandboxes: how many, and what memory they take."""
        names, total = set(), 0
        for group in self.service.subtree.leaves():
            names.add(os.path.basename(group))
            for name in ("memory.current", "memory.usage_in_bytes"):
                try:
                    with open(os.path.join(group, name)) as f:
                        total += int(f.read())
                except OSError:
                    pass  # the other version of cgroups, or just gone
        return len(names), total

    def test_many_share_the_slots(self):
        kernels, peak = [], 0
        for i in range(MANY):
            kernels.append(self.kernel())
            self.good(kernels[-1], "x = %d" % i)
        order = list(range(MANY))
        random.shuffle(order)
        for i in order:
            self.good(kernels[i], "print(x)", "%d\n" % i)
            count, memory = self.used()
            # A new one may come while the last one is on its way out.
            self.assertLessEqual(count, SLOTS + 1)
            self.assertLess(memory, (SLOTS + 1) * 100 * MIB)
            peak = max(peak, memory)
        states = [k.state() for k in kernels]
        self.assertLessEqual(states.count("resident"), SLOTS)
        self.assertEqual(states.count("hibernated") + states.count("resident"),
                         MANY, states)
        print("        %d kernels in %d slots: %d MiB at most" % (
            MANY, SLOTS, peak // MIB))


class Killed(Case):
    def test_runner_at_any_moment(self):
        """A kernel is there, as it was, or dead and says why."""
        seen = {"alive": 0, "dead": 0}
        for _ in range(KILLS):
            k = self.kernel()
            self.good(k, "x = 0")
            self.until(k, "hibernated")
            self.good(k, "x = 1")
            time.sleep(random.uniform(.9, 2))
            self.kill_runner()
            if k.state() == "dead":
                self.assert_dead(k)
                seen["dead"] += 1
            else:
                self.good(k, "print(x)", "1\n")
                seen["alive"] += 1
            self.assertEqual(self.left_half_made(), [])
            k.end()
        print("        %(alive)d alive, %(dead)d dead" % seen)

    def test_hibernated_ones_outlive_it(self):
        k = self.kernel()
        self.good(k, "x = 'kept'")
        self.until(k, "hibernated")
        self.kill_runner()
        self.assertEqual(k.state(), "hibernated")
        self.good(k, "print(x)", "kept\n")


if __name__ == "__main__":
    unittest.main()
