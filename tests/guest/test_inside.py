# SPDX-License-Identifier: Apache-2.0
"""What a program has and can do inside: its identity, its limits, and whether
it gets at init, under real runsc."""

import os
import pwd
import stat
import unittest

import sandbox
from sandbox import Sandbox, run, setUpModule, tearDownModule
from test_init import words

assert setUpModule and tearDownModule

NO_CAPS = "0000000000000000"


class TestIdentity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = words(run(["snoop", "identity"], pids=37).out)

    def test_user(self):
        self.assertEqual(self.seen["uid"], ["65534 65534 65534"])
        self.assertEqual(self.seen["gid"], ["65534 65534 65534"])
        self.assertEqual(self.seen["groups"], ["0"])

    def test_capabilities(self):
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd"):
            self.assertIn("%s:\t%s" % (name, NO_CAPS), self.seen)
        for line in self.seen:  # gVisor 2024 has no line for the ambient set
            if line.startswith("CapAmb"):
                self.assertTrue(line.endswith(NO_CAPS), line)
        self.assertEqual(self.seen["no_new_privs"], ["1"])

    def test_limits(self):
        self.assertEqual(self.seen["limit-nproc"], ["37 37"])
        self.assertEqual(self.seen["limit-nofile"], ["1024 4096"])
        self.assertEqual(self.seen["limit-core"], ["0 0"])
        self.assertEqual(self.seen["limit-fsize"], ["-1 -1"])

    def test_descriptors(self):
        self.assertEqual(self.seen["fd"], ["0 0 0", "1 0 0", "2 0 0"])

    def test_signals(self):
        for word in ("signal-handled", "signal-blocked", "signal-pending"):
            self.assertNotIn(word, self.seen)

    def test_session(self):
        self.assertEqual(self.seen["sid"], self.seen["pid"])
        self.assertEqual(self.seen["pgid"], self.seen["pid"])
        self.assertEqual(self.seen["ppid"], ["1"])

    def test_surroundings(self):
        self.assertEqual(self.seen["umask"], ["022"])
        self.assertEqual(self.seen["cwd"], ["/box"])
        self.assertEqual(self.seen["host"], ["isobox"])
        self.assertNotIn(os.uname().release, self.seen["kernel"][0])

    def test_other_directory(self):
        seen = words(run(["snoop", "identity"], cwd="/tmp").out)
        self.assertEqual(seen["cwd"], ["/tmp"])


class TestAttacks(unittest.TestCase):
    def test_init_and_privileges(self):
        r = run(["snoop", "attack"])
        results = [line.split(" ") for line in r.out.decode().splitlines()]
        self.assertGreater(len(results), 45)
        for what, result in results:
            with self.subTest(what):
                self.assertNotEqual(result, "done")
        self.assertEqual((r.code, r.signal), (0, 0))

    def test_no_way_out_of_the_user_namespace(self):
        """In one of its own the limit on processes would not hold."""
        seen = words(run(["badguy", "escape"], pids=9).out)
        self.assertEqual(seen["unshare"], ["1"])
        self.assertEqual(seen["unshare-all"], ["1"])
        self.assertEqual(seen["clone"], ["1"])
        self.assertEqual(seen["chroot"], ["1"])
        self.assertEqual(seen["processes"], ["9"])

    def test_processes(self):
        seen = words(run(["snoop", "processes"]).out)
        self.assertEqual(len(seen["process"]), 2)

    def test_interfaces(self):
        seen = words(run(["snoop", "interfaces"]).out)
        self.assertLessEqual(set(seen.get("interface", [])), {"lo"})

    def test_mounts_tell_no_host_path(self):
        text = run(["snoop", "mounts"]).out.decode()
        self.assertIn(" /box ", text)
        self.assertNotIn(sandbox.base.path, text)
        self.assertNotIn("isobox-guest", text)


class TestWritable(unittest.TestCase):
    """/box, /tmp, /dev/shm, and nothing else."""

    def test_places(self):
        seen = words(run(["snoop", "writable"], output_bytes=262144).out)
        mine = {"/box", "/tmp", "/dev/shm"}
        self.assertEqual(set(seen["created"]), mine)
        self.assertEqual(set(seen["chmod"]), mine)
        devices = {"/dev/" + d for d in (
            "null", "zero", "full", "random", "urandom", "tty", "fuse",
            "net/tun", "ptmx", "pts/ptmx")}
        self.assertLessEqual(set(seen["writable"]) - mine, devices)
        self.assertIn("/dev/null", seen["writable"])


class TestProcessLimit(unittest.TestCase):
    """`pids` processes and threads can exist, the program one of them."""

    def check(self, command, word, pids, **kw):
        seen = words(run(["badguy", command], pids=pids, **kw).out)
        self.assertEqual((seen[word], seen["EAGAIN"]), ([str(pids)], ["11"]))

    def test_fork_bomb(self):
        for pids in (1, 2, 3, 17, 128, 256):
            with self.subTest(pids):
                self.check("forkbomb", "processes", pids, timeout=60)

    def test_fork_chain(self):
        for pids in (1, 2, 16):
            with self.subTest(pids):
                self.check("forkchain", "processes", pids)

    def test_threads(self):
        for pids in (1, 2, 17, 128, 256):
            with self.subTest(pids):
                self.check("threads", "threads", pids, timeout=60)

    def test_after_a_compile_step(self):
        self.check("forkbomb", "processes", 12,
                   compile=["badguy", "daemon", "600000", "0"])
        self.check("threads", "threads", 12, compile=["badguy", "forkbomb"])


class TestOtherLimits(unittest.TestCase):
    def test_file_size(self):
        r = run(["badguy", "fsize", "1000"], file_bytes=1000)
        self.assertEqual((r.code, r.out), (0, b"written 1\n"))
        r = run(["badguy", "fsize", "1001"], file_bytes=1000)
        self.assertEqual((r.code, r.signal), (128 + 25, 25), "SIGXFSZ")

    def test_memory_and_tmpfs_are_usable(self):
        self.assertEqual(run(["badguy", "eat", "64"]).out, b"mib 64\n")
        self.assertEqual(run(["badguy", "fill", "/tmp", "64"]).out,
                         b"mib 64\nerrno 0\n")


class TestWorkspace(unittest.TestCase):
    """A directory of the host, bind-mounted: the program can use it as its own,
    and what it leaves there belongs to the service's user."""

    def setUp(self):
        self.dir = sandbox.base.directory()
        self.user = pwd.getpwnam(sandbox.USER)
        path = os.path.join(self.dir, "given")
        with open(path, "w") as f:
            f.write("given\n")
        os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def test_own(self):
        r = run(["snoop", "create", "/workspace"], cwd="/workspace",
                sandbox={"workspace": self.dir})
        seen = words(r.out)
        for what in ("create", "write", "chmod", "mkdir", "symlink", "append"):
            self.assertEqual(seen[what], ["done"], what)
        self.assertEqual(seen["/workspace/file"][0].split()[:3],
                         ["65534", "65534", "100751"])
        self.assertEqual(seen["/workspace/given"][0].split()[:2],
                         ["65534", "65534"])
        for name in ("file", "folder", "link", "given"):
            st = os.lstat(os.path.join(self.dir, name))
            self.assertEqual((st.st_uid, st.st_gid),
                             (self.user.pw_uid, self.user.pw_gid), name)
        st = os.stat(os.path.join(self.dir, "file"))
        self.assertEqual(stat.S_IMODE(st.st_mode), 0o751)
        with open(os.path.join(self.dir, "given")) as f:
            self.assertEqual(f.read(), "given\nmore\n")

    def test_from_run_to_run(self):
        """A second sandbox finds what the first one left; sources stay out."""
        for _ in range(2):
            run(["badguy", "fill", "/workspace", "1"], files=[("main", "x")],
                cwd="/workspace", sandbox={"workspace": self.dir})
        self.assertEqual(sorted(os.listdir(self.dir)), ["fill", "given"])
        with Sandbox(workspace=self.dir) as box:
            r = box.run(["snoop", "tree", "/workspace"])
        self.assertEqual(words(r.out)["/workspace/fill"][0].split()[3],
                         str(1 << 20))


if __name__ == "__main__":
    unittest.main()
