# SPDX-License-Identifier: Apache-2.0
"""tools/isobox-check on this host, and on this host with lacks that can be
faked: by its configuration, by programs that lie, by bad cgroups."""

import glob
import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

REPO = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(REPO, "tests", "lib"))
import cgroups  # noqa: E402

CHECK = os.path.join(REPO, "tools", "isobox-check")
IMAGES = os.environ.get("ISOBOX_IMAGES_DIR", "/var/lib/isobox/images")
LINE = re.compile(r"(ok  |warn|FAIL)  ([A-Za-z][^:]*): (.+)")


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """A copy for other users: they may not see a checkout in somebody's
        home."""
        cls.share = tempfile.mkdtemp(prefix="isobox-test-check-")
        cls.addClassCleanup(shutil.rmtree, cls.share)
        for name in ("registry", "docs"):
            shutil.copytree(os.path.join(REPO, name),
                            os.path.join(cls.share, name))
        subprocess.run(["chmod", "-R", "go+rX", cls.share], check=True)

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="isobox-test-check-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.chmod(self.dir, 0o755)
        self.settings = {
            "registry_dir": os.path.join(self.share, "registry"),
            "images_dir": self.folder("images"),
            "data_dir": os.path.join(self.share, "docs"),
            "allowed_users": "[isobox-web]",
        }
        self.path = os.environ["PATH"]

    def folder(self, name):
        path = os.path.join(self.dir, name)
        os.makedirs(path, exist_ok=True)
        return path

    def file(self, name, text, mode=0o644):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def fake(self, name, script):
        """A program of that name before all others in PATH."""
        folder = self.folder("bin")
        self.file(os.path.join("bin", name), "#!/bin/sh\n" + script, 0o755)
        self.path = folder + ":" + os.environ["PATH"]

    def raw(self, *argv):
        env = dict(os.environ, PATH=self.path)
        for name in list(env):
            if name.startswith("ISOBOX_"):
                del env[name]
        return subprocess.run([CHECK, *argv], capture_output=True, text=True,
                              env=env, timeout=120)

    def config(self):
        return self.file("isobox.yaml", "".join(
            "%s: %s\n" % item for item in self.settings.items()))

    def check(self, *argv):
        """[(status, what, finding, cure)] of a run with the settings."""
        done = self.raw("--config", self.config(), *argv)
        self.assertEqual(done.stderr, "")
        found = []
        for line in done.stdout.splitlines():
            match = LINE.fullmatch(line)
            if match:
                found.append([match[1].strip(), match[2], match[3], None])
            elif line.startswith("      cure: "):
                found[-1][3] = line[12:]
            else:
                self.assertRegex(line, r"^isobox-check: \d+ to cure before")
        bad = [f for f in found if f[0] == "FAIL"]
        self.assertEqual(done.returncode, 1 if bad else 0, done.stdout)
        for f in bad:
            self.assertTrue(f[3] or f[1] == "kernel", "no cure of %r" % (f,))
        self.assertEqual(glob.glob("/sys/fs/cgroup/**/isobox-check.*",
                                   recursive=True), [])
        return found

    def line(self, what, status, finding, *argv):
        """Exactly one line about `what` says that."""
        found = self.check(*argv)
        fits = [f for f in found if f[1] == what and f[0] == status
                and re.search(finding, f[2])]
        self.assertEqual(len(fits), 1, [f for f in found if f[1] == what])
        return fits[0]

    # Options.

    def test_usage(self):
        for argv in (["--nonsense"], ["extra"], ["--user"], ["--config"],
                     ["--user="]):
            done = self.raw(*argv)
            self.assertEqual(done.returncode, 2, argv)
            self.assertNotEqual(done.stderr, "")
            self.assertEqual(done.stdout, "")
        self.assertEqual(self.raw("--help").returncode, 0)

    def test_json_says_the_same(self):
        lines = self.check()
        done = self.raw("--config", self.config(), "--json")
        told = [[x["status"], x["what"], x["cure"]]
                for x in json.loads(done.stdout)]
        self.assertEqual(told, [[f[0], f[1], f[3]] for f in lines])

    def test_json_of_odd_text(self):
        done = self.raw("--json", "--user", 'a"b\\c\x01\u00e9')
        whats = [x for x in json.loads(done.stdout) if x["status"] == "FAIL"]
        self.assertIn('there is no a"b\\c', whats[0]["finding"])

    # The host.

    def test_this_host(self):
        self.subtree()
        found = {f[1]: f for f in self.check()}
        for what in ("kernel", "user namespaces", "proc mount", "cgroups",
                     "delegation", "memory cap", "swap", "runsc",
                     "isobox-runner", "isobox.fcgi"):
            self.assertEqual(found[what][0], "ok", found[what])

    def test_kernel(self):
        for release, good in (("4.19.0-27-amd64", False), ("5.13.9", False),
                              ("6.1.0-50-cloud-amd64", True),
                              ("10.0", True)):
            self.fake("uname", "case $1 in -r) echo %s;; *) echo x86_64;; "
                      "esac" % release)
            self.line("kernel", "ok" if good else "FAIL", re.escape(release))

    def test_machine(self):
        self.fake("uname", "case $1 in -r) echo 6.1.0;; *) echo riscv64;; "
                  "esac")
        self.line("kernel", "FAIL", "^riscv64: ")

    def test_users(self):
        self.line("user", "FAIL", "no no-such-user", "--user", "no-such-user")
        self.line("user", "FAIL", "root is root", "--user", "root")
        self.line("user", "warn", "both", "--web-user", "isobox")

    def test_namespaces_refused(self):
        self.fake("unshare", "echo 'unshare: unshare failed: Operation not "
                  "permitted' >&2; exit 1")
        self.line("user namespaces", "FAIL", "Operation not permitted")

    def test_proc_mount_refused(self):
        self.fake("unshare", "case \"$*\" in *--mount-proc*) echo 'unshare: "
                  "mount /proc failed' >&2; exit 1;; esac")
        self.line("proc mount", "FAIL", "mount /proc failed")

    # cgroups.

    def subtree(self):
        s = cgroups.Subtree("isobox-test-check", "isobox", 1 << 30)
        subprocess.run(s.command(["true"]), check=True)
        self.addCleanup(s.remove)
        self.settings["cgroup"] = "/isobox-test-check"
        tops = [g for g in s.groups() if os.path.basename(g) != "main"]
        limits = [os.path.join(g, name) for g in tops
                  for name in ("memory.max", "memory.limit_in_bytes")]
        return tops, [f for f in limits if os.path.exists(f)][0]

    def test_subtree(self):
        self.subtree()
        found = {f[1]: f for f in self.check()}
        self.assertIn("/isobox-test-check belongs to isobox (from the "
                      "configuration)", found["delegation"][2])
        self.assertRegex(found["memory cap"][2], "^1024 MiB of this host's ")

    def test_subtree_without_a_cap(self):
        _, limit = self.subtree()
        both = os.path.join(os.path.dirname(limit),
                            "memory.memsw.limit_in_bytes")
        for path in filter(os.path.exists, (both, limit)):
            with open(path, "w") as f:
                f.write("max" if path.endswith(".max") else "-1")
        cure = self.line("memory cap", "FAIL", "^none ")[3]
        self.assertIn(limit, cure)

    def test_subtree_with_a_cap_of_the_user(self):
        _, limit = self.subtree()
        os.chown(limit, pwd.getpwnam("isobox").pw_uid, -1)
        self.line("memory cap", "FAIL", "could lift it")

    def test_subtree_of_another(self):
        tops, _ = self.subtree()
        os.chown(tops[0], 0, 0)
        self.line("delegation", "FAIL", "may not make groups")

    def test_subtree_that_is_not_there(self):
        self.settings["cgroup"] = "/isobox-test-nowhere"
        self.line("delegation", "FAIL", "isobox-test-nowhere is not there")

    # gVisor.

    def runsc(self, script):
        self.settings["runsc"] = self.file("runsc", "#!/bin/sh\n" + script,
                                           0o755)

    def test_runsc_absent(self):
        self.settings["runsc"] = os.path.join(self.dir, "nothing")
        self.line("runsc", "FAIL", "nothing is not there")

    def test_runsc_dates(self):
        for version, status in (("0.0~20221219.0", "FAIL"),
                                ("release-20240708.0", "FAIL"),
                                ("0.0~20240729.0", "ok"),
                                ("release-20260105.1-3-gabc", "ok"),
                                ("VERSION_MISSING", "warn")):
            self.runsc("echo runsc version '%s'\n" % version)
            self.line("runsc", status, ".")

    def image(self):
        """A folder of images with one that is good."""
        os.makedirs(os.path.join(self.settings["images_dir"], "python-slim"))
        self.digest("python-slim", "a" * 64)
        self.file("images/images.lock", "%s  python-slim\n" % ("a" * 64))

    def digest(self, name, digest):
        self.file("images/%s.digest" % name, digest + "\n")

    def test_platform_that_fails(self):
        self.image()
        self.runsc("[ $1 = --version ] && exec echo runsc version 20260101.0\n"
                   "echo noise >&2; echo 'FATAL: no such platform' >&2; exit 1")
        self.line("gVisor's systrap", "FAIL", "FATAL: no such platform$")

    def test_platform_that_works(self):
        if not os.path.exists(os.path.join(IMAGES, "python-slim.digest")):
            self.skipTest("image python-slim is not built here")
        self.settings["images_dir"] = IMAGES
        self.line("gVisor's systrap", "ok", r"a sandbox ran in \d+ ms")

    # What isobox brings.

    def test_no_images(self):
        self.line("images", "FAIL", "^none is there")

    def test_images(self):
        self.image()
        self.line("images", "ok", "^python-slim in ")
        self.digest("python-slim", "b" * 64)
        self.line("images", "FAIL", "python-slim differs from images.lock")
        self.digest("python-slim", "a" * 64)
        os.mkdir(os.path.join(self.dir, "images", "go"))
        self.line("images", "FAIL", "go not in images.lock")

    def test_configuration(self):
        self.settings["colour"] = "blue"
        self.line("isobox-runner", "FAIL", "isobox.yaml.*colour")

    def test_configuration_that_shuts_the_web_side_out(self):
        self.settings["allowed_users"] = "[]"
        self.line("isobox-runner", "FAIL", "not in allowed_users")

    # Sockets.

    def socket(self, mode, group, folder_mode):
        path = os.path.join(self.folder("run"), "runner.sock")
        with socket.socket(socket.AF_UNIX) as s:
            s.bind(path)
        gid = pwd.getpwnam(group).pw_gid
        os.chown(path, pwd.getpwnam("isobox").pw_uid, gid)
        os.chown(os.path.dirname(path), 0, gid)
        os.chmod(path, mode)
        os.chmod(os.path.dirname(path), folder_mode)
        self.settings["runner_socket"] = path
        self.addCleanup(os.unlink, path)

    def test_socket_for_the_web_side(self):
        self.socket(0o660, "isobox-web", 0o750)
        self.line("runner socket", "ok", "isobox-web may connect, strangers")

    def test_socket_for_everybody(self):
        self.socket(0o666, "isobox-web", 0o755)
        self.line("runner socket", "FAIL", "everybody")

    def test_socket_for_nobody(self):
        self.socket(0o660, "isobox", 0o755)
        self.line("runner socket", "FAIL", "none of isobox-web may")

    # The network of runs.

    def test_egress_by_slirp4netns(self):
        if not os.path.exists("/usr/bin/slirp4netns"):
            self.skipTest("slirp4netns is not installed")
        self.settings["egress_driver"] = "slirp4netns"
        self.line("egress", "ok", r"verified in \S+ ms, by slirp4netns, as "
                  "configured")

    def test_egress_by_an_old_pasta(self):
        self.settings["egress_driver"] = "pasta"
        self.settings["pasta"] = self.file(
            "old", "#!/bin/sh\necho pasta 2024_02_20.1e6f92b\n", 0o755)
        self.line("egress", "warn", "no network: .*/old of 2024-02-20 is too "
                  "old, it must be of 2025-05-03 or later")

    def test_egress_without_pasta(self):
        self.settings["egress_driver"] = "pasta"
        self.settings["pasta"] = os.path.join(self.dir, "none")
        self.assertIn("passt", self.line(
            "egress", "warn", "there is no .*/none")[3])


if __name__ == "__main__":
    unittest.main()
