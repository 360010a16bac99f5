# SPDX-License-Identifier: Apache-2.0
"""make uninstall and make purge, of what `make install` has put below a folder of
its own."""

import fcntl
import os
import subprocess
import tempfile
import unittest

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))


class Uninstall(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.root = os.path.join(folder, "root")
        self.build = os.path.join(folder, "build")
        for name in ("isobox.fcgi", "isobox-runner", "isobox-init"):
            self.put("../build/" + name)
        self.make("install")
        for name in ("images/python/x", "state/isobox.db",
                     "workspaces/sessions/one/deep/x"):
            self.put("var/lib/isobox/" + name)

    def make(self, target, status=0):
        p = subprocess.run(
            ["make", "--no-print-directory", "--old-file=all", target,
             "DESTDIR=" + self.root, "B=" + self.build], cwd=REPO, capture_output=True, text=True, check=False)
        self.assertEqual(p.returncode == 0, status == 0, p)
        return p.stdout + p.stderr

    def at(self, name):
        return os.path.join(self.root, name)

    def put(self, name, text=""):
        os.makedirs(os.path.dirname(self.at(name)), exist_ok=True)
        with open(self.at(name), "a") as f:
            f.write(text)

    def files(self):
        return sorted(os.path.relpath(os.path.join(folder, f), self.root)
                      for folder, _, files in os.walk(self.root)
                      for f in files)

    def told(self, out, title):
        """The lines below it."""
        lines = out.splitlines()
        self.assertIn(title, lines)
        rest = lines[lines.index(title) + 1:]
        end = next((i for i, x in enumerate(rest) if x[:1] != " "), len(rest))
        return [x.split()[0] for x in rest[:end]]

    LEFT = 'left, for "make purge" to remove:'
    YOURS = "left, yours to remove:"

    def test_uninstall_says_what_it_leaves(self):
        out = self.make("uninstall")
        self.assertEqual(self.files(), [
            "etc/isobox/isobox.yaml", "var/lib/isobox/images/python/x",
            "var/lib/isobox/state/isobox.db",
            "var/lib/isobox/workspaces/sessions/one/deep/x"])
        self.assertEqual(self.told(out, self.LEFT),
                         [self.at("etc/isobox"), self.at("var/lib/isobox")])
        self.assertNotIn(self.YOURS, out)

    def test_places_of_the_operators_own(self):
        self.put("srv/a/x")
        self.put("srv/b b/x")
        self.put("etc/isobox/isobox.yaml", "state_dir: /srv/a  # big disk\n"
                 "workspaces_dir: \"/srv/b b\"\nimages_dir: '/srv/none'\n"
                 "access_log: \"-\"\napi_keys_file: /etc/isobox/keys\n")
        unit = "etc/systemd/system/isobox-runner.service.d/memory.conf"
        self.put(unit)
        for target in ("uninstall", "purge"):
            out = self.make(target)
            lines = out[out.index(self.YOURS):].splitlines()[1:]
            self.assertEqual(lines, [
                "  %s  state_dir" % self.at("srv/a"),
                "  %s  workspaces_dir" % self.at("srv/b b"),
                "  %s  for systemd" % self.at(os.path.dirname(unit))])
        self.assertEqual(self.files(), [unit, "srv/a/x", "srv/b b/x"])

    def test_purge(self):
        out = self.make("purge")
        self.assertEqual(self.files(), [])
        self.assertEqual(self.told(out, "removed:"),
                         [self.at("etc/isobox"), self.at("var/lib/isobox")])
        out = self.make("purge")
        self.assertNotIn("removed:", out)

    def test_purge_behind_uninstall(self):
        self.make("uninstall")
        self.make("purge")
        self.assertEqual(self.files(), [])
        self.assertNotIn(self.LEFT, self.make("uninstall"))

    def test_nothing_is_purged_while_it_runs(self):
        """isobox-runner locks its workspaces, isobox-run its own folder."""
        self.put("var/lib/isobox/run.abcdef/lock")
        before = self.files()
        for name in ("workspaces", "run.abcdef/lock"):
            fd = os.open(self.at("var/lib/isobox/" + name), os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            self.assertIn("in use", self.make("purge", 1))
            self.assertEqual(self.files(), before)
            os.close(fd)
        self.make("purge")
        self.assertEqual(self.files(), [])

    def test_links_are_not_followed(self):
        self.put("data/x")
        os.rename(self.at("var/lib/isobox"), self.at("data/isobox"))
        os.symlink("../../data/isobox", self.at("var/lib/isobox"))
        out = self.make("purge")
        self.assertFalse(os.path.lexists(self.at("var/lib/isobox")))
        self.assertEqual(self.told(out, self.YOURS),
                         [self.at("data/isobox")])
        self.assertIn("data/isobox/state/isobox.db", self.files())


if __name__ == "__main__":
    unittest.main()
