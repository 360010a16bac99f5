# SPDX-License-Identifier: Apache-2.0
"""tools/isobox-setup, the steps that can be tried without installing anything:
in a mount namespace of their own."""

import os
import subprocess
import unittest

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


def with_devices(before):
    """What the step "network" says where /dev/net is as `before` leaves it, and
    what is there afterwards."""
    return subprocess.run(
        ["unshare", "--mount", "--", "sh", "-ec",
         "mount -t tmpfs -o mode=755 none /dev/net; " + before +
         "\ntools/isobox-setup network; stat -c '%a %F' /dev/net/*"],
        cwd=REPO, capture_output=True, text=True)


class Network(unittest.TestCase):
    def test_what_only_root_may_open(self):
        p = with_devices("mknod -m 600 /dev/net/tun c 10 200")
        self.assertIn("chmod 666 /dev/net/tun\n", p.stdout, p.stderr)
        self.assertTrue(p.stdout.endswith("666 character special file\n"), p)

    def test_what_is_right_already(self):
        p = with_devices("mknod -m 666 /dev/net/tun c 10 200")
        self.assertNotIn("chmod", p.stdout)
        self.assertTrue(p.stdout.endswith("666 character special file\n"), p)

    def test_what_a_group_may_open(self):
        """That is the operator's own choice, if isobox is in the group."""
        p = with_devices("mknod -m 660 /dev/net/tun c 10 200\n"
                         "chgrp isobox /dev/net/tun")
        self.assertNotIn("chmod", p.stdout)
        self.assertTrue(p.stdout.endswith("660 character special file\n"), p)

    def test_none_is_said_and_no_failure(self):
        p = with_devices("")
        self.assertIn("no /dev/net/tun here: runs will have no network",
                      p.stdout, p.stderr)
        self.assertIn("ok (", p.stdout)


if __name__ == "__main__":
    unittest.main()
