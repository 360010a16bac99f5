# SPDX-License-Identifier: Apache-2.0
"""The cgroup layer on this host's kernel: cgroup_live.c as user isobox, in
subtrees that are capped, not capped, or capped in ways that protect nothing."""

import os
import re
import subprocess
import unittest

import cgroups
from harness import BUILD, REPO, RUNNER_USER

PROGRAM = os.path.join(BUILD, "integration", "cgroup_live")
CAP_MIB = 512
LIMIT_FILES = ("memory.max", "memory.limit_in_bytes")


def total_mib():
    with open("/proc/meminfo") as f:
        return int(re.search(r"MemTotal: +(\d+)", f.read())[1]) // 1024


class Live(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run(["make", "-s", "-C", REPO, os.path.join(
            os.environ.get("B", "build"), "integration/cgroup_live")],
            check=True)

    def setUp(self):
        self.subtree = cgroups.Subtree("isobox-test-cgroup", RUNNER_USER,
                                       CAP_MIB << 20)
        subprocess.run(self.subtree.command(["true"]), check=True)
        self.addCleanup(self.subtree.remove)

    def limit_file(self):
        found = [os.path.join(group, name) for group in self.subtree.groups()
                 for name in LIMIT_FILES]
        found = [f for f in found if os.path.exists(f)]
        return min(found, key=len)  # the subtree's own, not that of main

    def set_cap(self, v1, v2):
        """Raises the cap; v1 wants memory and swap together raised first."""
        path = self.limit_file()
        both = os.path.join(os.path.dirname(path),
                            "memory.memsw.limit_in_bytes")
        for file in filter(os.path.exists, (both, path)):
            with open(file, "w") as f:
                f.write(v2 if path.endswith(".max") else v1)

    def run_live(self, expected):
        # The command line of isobox-cgroup would cap it again: enter by hand.
        script = 'for g; do echo $$ >"$g/main/cgroup.procs" || exit; done; ' \
            'exec setpriv --reuid %s --regid %s --clear-groups "$0" %s' % (
                RUNNER_USER, RUNNER_USER, expected)
        tops = [g for g in self.subtree.groups()
                if os.path.basename(g) != "main"]
        done = subprocess.run(["sh", "-c", script, PROGRAM, *tops],
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("[  PASSED  ]", done.stdout)
        self.assertEqual(self.subtree.leaves(), [])
        self.assertEqual(self.subtree.pids(), set())
        return done.stdout

    def test_capped(self):
        self.run_live(CAP_MIB)

    def test_no_cap(self):
        self.set_cap("-1", "max")
        self.assertIn("has no memory cap: ", self.run_live("none"))

    def test_cap_that_the_runner_could_lift(self):
        os.chmod(self.limit_file(), 0o666)
        self.assertIn("is the runner's own to lift", self.run_live("none"))

    def test_cap_over_the_memory_of_the_host(self):
        mib = total_mib() + 1024
        self.set_cap(str(mib << 20), str(mib << 20))
        self.assertIn("is not below this host's", self.run_live(mib))


if __name__ == "__main__":
    unittest.main()
