# SPDX-License-Identifier: Apache-2.0
"""The runner's workspaces: files of sessions, steps in them, quotas. Spoken to
directly, as isobox.fcgi does."""

import contextlib
import fcntl
import io
import os
import pwd
import random
import re
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zipfile

import workspaces
from cgroups import children
from harness import RUNNER_USER, Service, signal_each, wait_for
from workspaces import Refused, Step, Workspace

MIB = 1 << 20
LONG = workspaces.LIMITS[:4] + (20000,)


def setUpModule():
    global service, socket_path, version
    # The runner alone: isobox.fcgi removes sessions that it does not know.
    # "0": these tests, which are root, may speak to it.
    service = Service("caddy", allowed_users=["0"], warm=False,
                      session_disk_mb=64, vol_disk_mb=32, min_free_disk_gb=1)
    unittest.addModuleCleanup(service.stop)
    socket_path = service.settings["runner_socket"]
    start()
    with open(service.path("registry", "python-slim.yaml")) as f:
        version = re.search(r'^version: "?([^"\n]*)', f.read(), re.M)[1]


def start():
    service.start_runner()
    wait_for("ready runner", lambda: workspaces.ready(socket_path), 30)
    service.baseline = service.snapshot()


@contextlib.contextmanager
def as_runner():
    """What this process makes then is the runner's, as if a program had."""
    user = pwd.getpwnam(RUNNER_USER)
    os.setegid(user.pw_gid)
    os.seteuid(user.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def session():
    return Workspace(socket_path, secrets.token_hex(16)).create()


def step(space, code, volume=None, **more):
    return Step(socket_path, "python-slim", version, code, space.name,
                volume.name if volume else "", **more)


def run(space, code, volume=None, **more):
    """stdout of a step that ends well."""
    s = step(space, code, volume, **more)
    code, _ = s.finish()
    assert code == 0, s.stderr.decode()
    return s.stdout.decode()


class Case(unittest.TestCase):
    def setUp(self):
        self.ws = session()
        self.dir = service.path("workspaces", "sessions", self.ws.name)

    def tearDown(self):
        self.ws.remove()
        service.assert_clean()

    def at(self, *parts):
        return os.path.join(self.dir, *parts)

    def refused(self, kind, call, *args, **more):
        with self.assertRaises(Refused) as caught:
            call(*args, **more)
        self.assertEqual(caught.exception.kind, kind,
                         caught.exception.detail)
        return caught.exception


class Files(Case):
    def test_write_read_list_delete(self):
        info = self.ws.write("a/b/c.txt", b"hello")
        self.assertEqual(info.size, 5)
        self.assertEqual(self.ws.read("a/b/c.txt"), b"hello")
        self.assertEqual(self.ws.read("/a//b/./x/../c.txt"), b"hello")
        self.assertEqual(self.ws.read("../../a/b/c.txt"), b"hello")
        self.assertEqual(self.ws.list("a"),
                         [(b"b", workspaces.DIR, 0, self.ws.list("a")[0][3])])
        name, kind, size, mtime = self.ws.list("a/b")[0]
        self.assertEqual((name, kind, size),
                         (b"c.txt", workspaces.FILE, 5))
        self.assertLess(abs(mtime / 1e9 - time.time()), 60)
        self.ws.write("a/b/c.txt", b"")
        self.assertEqual(self.ws.read("a/b/c.txt"), b"")
        self.ws.delete("a")
        self.assertEqual(self.ws.list(), [])
        self.refused("not_found", self.ws.read, "a/b/c.txt")
        self.refused("not_found", self.ws.delete, "a")

    def test_etag_parts_change(self):
        first = self.ws.write("x", b"1")
        second = self.ws.write("x", b"2")
        self.assertNotEqual((first.inode, first.ctime_ns),
                            (second.inode, second.ctime_ns))
        with self.ws.ask(workspaces.OPEN, "x") as c:
            seen = workspaces.Info(c.expect(workspaces.INFO))
        self.assertEqual((seen.inode, seen.mtime_ns, seen.ctime_ns),
                         (second.inode, second.mtime_ns, second.ctime_ns))

    def test_any_year(self):
        run(self.ws, "import os\nopen('x', 'w').close()\n"
            "os.utime('x', (10 ** 10, 10 ** 10))")
        # As far as the file system goes, and 64 bits of nanoseconds.
        far = os.stat(self.at("x")).st_mtime_ns
        self.assertEqual([e[3] for e in self.ws.list()],
                         [min(far, 2 ** 63 - 1)])

    def test_names_of_any_bytes(self):
        for name in (b"\xff\xfe", b"a\nb", b"%2e%2e", b"..%2f", b"con\x01",
                     "\u00e9\U0001f600".encode(), b"...", b"..a", b" ",
                     b"-rf", b"x" * 255):
            self.ws.write(name, name)
            self.assertEqual(self.ws.read(name), name)
            self.assertIn(name, self.ws.names())
            self.ws.delete(name)
        self.assertEqual(self.ws.names(), [])

    def test_paths_that_are_refused(self):
        for path in (b"a\0b", b"x" * 256, b"d/" * 3000, b"x" * 5000):
            for call in (self.ws.read, self.ws.list, self.ws.delete,
                         self.ws.zip, lambda p: self.ws.write(p, b"")):
                self.refused("invalid_path", call, path)
        self.refused("invalid_path", self.ws.write, "", b"")
        self.refused("invalid_path", self.ws.write, "a/..", b"")
        self.refused("invalid_path", self.ws.delete, "..")
        self.ws.write("f", b"")
        self.refused("invalid_path", self.ws.write, "f/g", b"")
        self.refused("not_found", self.ws.read, "f/g")
        self.ws.write("d/f", b"")
        self.refused("invalid_path", self.ws.write, "d", b"")
        self.refused("invalid_path", self.ws.zip, "f")
        self.assertEqual(self.ws.names(), [b"d", b"f"])

    def test_longest_path(self):
        path = "/".join(["d" * 200] * 20) + "/f"  # 4,021 bytes
        self.ws.write(path, b"deep")
        self.assertEqual(self.ws.read(path), b"deep")

    def test_unknown_ids(self):
        none = Workspace(socket_path, "none")
        self.refused("session_not_found", none.stat)
        self.refused("session_not_found", none.read, "x")
        self.refused("session_not_found", none.write, "x", b"")
        self.refused("session_not_found", none.zip)
        none.remove()
        none.kind = workspaces.VOLUME
        self.refused("volume_not_found", none.list)
        with self.assertRaises(Refused):
            Workspace(socket_path, "../sessions").stat()

    def test_list_ids(self):
        self.assertIn(self.ws.name, self.ws.ids())
        other = session()
        self.assertLessEqual({self.ws.name, other.name}, set(self.ws.ids()))
        other.remove()
        wait_for("the end of an id", lambda: other.name not in self.ws.ids())

    def test_broken_uploads_leave_nothing(self):
        self.ws.write("x", b"old")
        for size in (10, workspaces.UNKNOWN):
            with self.ws.ask(workspaces.WRITE, "new/x", size) as c:
                c.expect(workspaces.INFO)
                os.write(c.fds[0], b"half")
        for lie in (3, 5):
            with self.ws.ask(workspaces.WRITE, "x", 4) as c:
                c.expect(workspaces.INFO)
                os.write(c.fds[0], b"four")
                c.send(workspaces.COMMIT, workspaces.u64(lie))
                with self.assertRaises(Refused):
                    c.next()
        with self.ws.ask(workspaces.WRITE, "x", 4) as c:
            c.expect(workspaces.INFO)
            os.write(c.fds[0], b"four")
            c.send(workspaces.END)
            with self.assertRaises(Refused):
                c.next()
        self.assertEqual(self.ws.read("x"), b"old")
        self.assertEqual(self.ws.names(), [b"x"])
        self.assertEqual(os.listdir(service.path("workspaces", "staging")),
                         [])

    def test_too_large(self):
        self.refused("too_large", self.ws.write, "x", b"",
                     size=16 * MIB + 1)
        data = secrets.token_bytes(MIB) * 16
        self.assertEqual(self.ws.write("x", data).size, 16 * MIB)
        self.assertEqual(self.ws.read("x"), data)
        self.refused("too_large", self.ws.write, "y", data + b"1",
                     size=workspaces.UNKNOWN)
        self.assertEqual(self.ws.names(), [b"x"])

    def test_nobody_counts_while_an_upload_is_put_in_place(self):
        """Else the count, begun before, would be without it."""
        top = os.open(service.path("workspaces", "sessions", self.ws.name),
                      os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, top)
        self.ws.write("new/x", b"x")  # a new folder calls for a new count
        fcntl.flock(top, fcntl.LOCK_EX)
        with self.ws.ask(workspaces.STAT) as c:
            self.assertEqual(select.select([c.socket], [], [], 1)[0], [])
            fcntl.flock(top, fcntl.LOCK_UN)
            self.assertEqual(workspaces.Info(c.expect(workspaces.INFO)).files,
                             3)

    def test_stat_counts_hard_links_once(self):
        self.ws.write("x", b"x" * MIB)
        one = self.ws.stat()
        self.assertGreaterEqual(one.used, MIB)
        self.assertLess(one.used, MIB + 64 * 1024)
        self.assertEqual(one.files, 2)
        self.assertEqual(one.quota, 64 * MIB)
        run(self.ws, "import os\nfor i in range(50): os.link('x', 'y%d' % i)")
        many = self.ws.stat()
        self.assertEqual(many.files, 52)
        self.assertLess(many.used, MIB + 64 * 1024)
        wait_for("the end of the step", lambda: not self.ws.stat().busy)


class Zip(Case):
    def open(self, path=b""):
        return zipfile.ZipFile(io.BytesIO(self.ws.zip(path)))

    def test_contents(self):
        self.ws.write("a/b.txt", b"hello" * 1000)
        self.ws.write("a/\u00e9\U0001f600.txt", b"u")
        self.ws.write("c/d/e", b"")
        with self.open() as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(
                sorted(z.namelist()),
                sorted(["a/", "a/b.txt", "a/\u00e9\U0001f600.txt",
                        "c/", "c/d/", "c/d/e"]))
            self.assertEqual(z.read("a/b.txt"), b"hello" * 1000)
            self.assertLess(z.getinfo("a/b.txt").compress_size, 1000)
            self.assertTrue(z.getinfo("a/\u00e9\U0001f600.txt").flag_bits
                            & 0x800)
        with self.open("c") as z:
            self.assertEqual(sorted(z.namelist()), ["d/", "d/e"])
        with self.open("c/d") as z:
            self.assertEqual(z.namelist(), ["e"])

    def test_names_that_are_no_text(self):
        """Each file has a name of its own, and text stays as it is."""
        names = {b"a\xff": "a\ufffdFF", b"a%FF": "a%FF",
                 "a\ufffdFF".encode(): "a\ufffdEF\ufffdBF\ufffdBDFF",
                 b"\xc0d/caf\xe9": "\ufffdC0d/caf\ufffdE9",
                 b"\xff" * 255: "\ufffdFF" * 255}
        for name in names:
            self.ws.write(name, name)
        with self.open() as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(sorted(z.namelist()),
                             sorted([*names.values(), "\ufffdC0d/"]))
            for raw, name in names.items():
                self.assertEqual(z.read(name), raw)

    def test_empty(self):
        with self.open() as z:
            self.assertEqual(z.namelist(), [])

    def test_links_and_the_like_are_left_out(self):
        self.ws.write("real", b"1")
        run(self.ws, """
import os, socket
os.symlink("real", "inside")
os.symlink("/etc/passwd", "outside")
os.symlink("..", "up")
os.mkfifo("fifo")
s = socket.socket(socket.AF_UNIX); s.bind("sock")
""")
        with self.open() as z:
            self.assertEqual(z.namelist(), ["real"])

    def test_too_large_is_known_before(self):
        run(self.ws, "open('sparse', 'w').truncate(257 << 20)")
        with self.ws.ask(workspaces.ZIP) as c:
            self.refused("too_large", c.next)
        os.truncate(self.at("sparse"), 255 << 20)
        with self.open() as z:
            self.assertEqual(z.getinfo("sparse").file_size, 255 << 20)

    def test_while_it_changes(self):
        """Whatever comes is a sound archive, or the end of one."""
        stop = threading.Event()

        def change():
            n = 0
            while not stop.is_set():
                n += 1
                path = self.at("f%d" % (n % 20))
                try:
                    with open(path, "wb") as f:
                        f.write(b"x" * (n * 7919 % 300000))
                    if n % 3 == 0:
                        os.remove(path)
                    if n % 5 == 0:
                        os.truncate(path, 10)
                except FileNotFoundError:
                    pass

        worker = threading.Thread(target=change)
        with as_runner():
            worker.start()
            try:
                for _ in range(20):
                    with self.open() as z:
                        self.assertIsNone(z.testzip())
            finally:
                stop.set()
                worker.join()


class Steps(Case):
    def test_a_step_sees_and_keeps_files(self):
        self.ws.write("in.txt", b"from the API")
        out = run(self.ws, """
import os
print(os.getcwd(), open("in.txt").read(), os.path.abspath(__file__))
open("/workspace/out.txt", "w").write("from the step")
os.makedirs("sub/dir")
print(sorted(os.listdir("/box")), os.stat("/workspace/out.txt").st_uid)
""")
        self.assertEqual(out, "/workspace from the API /box/main.py\n"
                              "['main.py'] 65534\n")
        self.assertEqual(self.ws.read("out.txt"), b"from the step")
        self.assertEqual(self.ws.names(), [b"in.txt", b"out.txt", b"sub"])
        self.assertEqual(run(self.ws, "print(open('out.txt').read())"),
                         "from the step\n")

    def test_volume(self):
        volume = Workspace(socket_path, secrets.token_hex(16),
                           workspaces.VOLUME).create()
        try:
            run(self.ws, "open('/memory/note', 'w').write('later')", volume)
            other = session()
            self.assertEqual(
                run(other, "print(open('/memory/note').read())", volume),
                "later\n")
            other.remove()
            self.assertEqual(volume.read("note"), b"later")
            self.assertEqual(
                run(self.ws, "import os; print(os.listdir('/memory'))"),
                "[]\n")
        finally:
            volume.remove()

    def test_upload_during_a_step_is_seen(self):
        s = step(self.ws, """
import os, time
print("ready", flush=True)
while not os.path.exists("late"):
    time.sleep(0.01)
print(open("late").read(), flush=True)
open("early", "w").write("1")
while open("early").read() != "2":
    time.sleep(0.01)
print("both")
""")
        s.until(workspaces.STDOUT)
        self.ws.write("late", b"it came")
        s.until(workspaces.STDOUT)
        self.assertTrue(s.stdout.endswith(b"it came\n"), s.stdout)
        wait_for("the program's file",
                 lambda: b"early" in self.ws.names())
        self.assertEqual(self.ws.read("early"), b"1")
        self.ws.write("early", b"2")
        self.assertEqual(s.finish(), (0, False))
        self.assertTrue(s.stdout.endswith(b"both\n"))

    def test_one_step_at_a_time(self):
        code = """
import os, time
assert not os.path.exists("busy")
open("busy", "w").close()
time.sleep(0.3)
os.remove("busy")
"""
        steps = [step(self.ws, code) for _ in range(4)]
        wait_for("a step", lambda: self.ws.stat().busy)
        for s in steps:
            self.assertEqual(s.finish(), (0, False), s.stderr)

    def test_who_waits_too_long_is_refused(self):
        first = step(self.ws, "import time\nprint(1, flush=True)\n"
                              "time.sleep(6)")
        first.until(workspaces.STDOUT)
        begun = time.monotonic()
        second = step(self.ws, "print(2)",
                      limits=workspaces.LIMITS[:4] + (500,))
        e = self.refused("session_busy", second.finish)
        self.assertGreaterEqual(e.retry_after, 1)
        self.assertLess(time.monotonic() - begun, 5)
        # Another session does not wait.
        other = session()
        self.assertEqual(run(other, "print(3)"), "3\n")
        other.remove()
        self.assertEqual(first.finish(), (0, False))

    def test_who_leaves_while_waiting(self):
        first = step(self.ws, "import time\nprint(1, flush=True)\n"
                              "time.sleep(1)")
        first.until(workspaces.STDOUT)
        second = step(self.ws, "open('second', 'w')")
        second.connection.close()
        third = step(self.ws, "print(3)")
        self.assertEqual(third.finish(), (0, False))
        self.assertEqual(first.finish(), (0, False))
        self.assertEqual(self.ws.names(), [])

    def test_removal_ends_the_step(self):
        running = step(self.ws, "import time\nprint(1, flush=True)\n"
                                "time.sleep(9)")
        running.until(workspaces.STDOUT)
        waiting = step(self.ws, "print(2)")
        begun = time.monotonic()
        self.ws.remove()
        self.assertLess(time.monotonic() - begun, 8)
        self.refused("session_not_found", running.finish)
        self.refused("session_not_found", waiting.finish)
        self.refused("session_not_found", self.ws.stat)
        self.assertFalse(os.path.exists(self.dir))

    def test_supervisor_killed(self):
        """The turn comes back all the same."""
        first = step(self.ws, "import time\nprint(1, flush=True)\n"
                              "time.sleep(9)")
        first.until(workspaces.STDOUT)
        signal_each(children(service.runner.pid), signal.SIGKILL)
        with self.assertRaises((workspaces.Gone, Refused)):
            first.finish()
        self.assertEqual(run(self.ws, "print(2)"), "2\n")


class Watcher(threading.Thread):
    """The most that a session takes of the disk while a step runs, deleted
    files that are open included."""

    def __init__(self, top):
        super().__init__()
        self.top = top
        self.most = 0
        self.before = service.subtree.pids()
        self.ended = threading.Event()

    def run(self):
        while not self.ended.is_set():
            self.most = max(self.most, self.look())
            time.sleep(0.02)

    def look(self):
        found = {}
        for folder, names, files in os.walk(self.top):
            for name in names + files:
                self.take(found, os.path.join(folder, name), False)
        # runsc, gofer and sentry; the stubs have the sentry's descriptors.
        for pid in sorted(service.subtree.pids() - self.before)[:6]:
            try:
                for fd in os.listdir("/proc/%d/fd" % pid):
                    self.take(found, "/proc/%d/fd/%s" % (pid, fd), True)
            except OSError:
                continue
        return sum(found.values())

    def take(self, found, path, deleted):
        try:
            st = os.stat(path, follow_symlinks=deleted)
        except OSError:
            return
        if not deleted or (st.st_nlink == 0 and stat.S_ISREG(st.st_mode) and
                           st.st_dev == os.stat(self.top).st_dev):
            found[st.st_ino] = st.st_blocks * 512

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.join()


class Quota(Case):
    QUOTA = 64 * MIB
    OVERSHOOT = 64 * MIB

    def assert_stopped(self, code, **more):
        """The step is ended for its quota, in time."""
        with Watcher(self.dir) as seen:
            e = self.refused("quota_exceeded", step(
                self.ws, code, limits=LONG, **more).finish)
            seen.most = max(seen.most, seen.look())
        self.assertIn("64 MiB", e.detail)
        self.assertLessEqual(seen.most, self.QUOTA + self.OVERSHOOT)
        print("%s: at most %.1f MiB" % (self.id(), seen.most / MIB))

    def test_one_large_file(self):
        self.assert_stopped("""
with open("big", "wb") as f:
    while True:
        f.write(bytes(1 << 20))
""")
        self.refused("quota_exceeded", self.ws.write, "x", b"1")
        self.refused("quota_exceeded", self.ws.write, "x", b"1",
                     size=workspaces.UNKNOWN)
        self.ws.delete("big")
        self.ws.write("x", b"1")

    def test_many_small_files(self):
        self.assert_stopped("""
import os
n = 0
while True:
    os.mkdir("d%d" % n)
    for i in range(100):
        with open("d%d/f%d" % (n, i), "wb") as f:
            f.write(b"x" * 20000)
    n += 1
""")

    def test_deleted_but_open(self):
        self.assert_stopped("""
import os
f = open("gone", "wb")
os.remove("gone")
while True:
    f.write(bytes(1 << 20))
""")
        self.assertLess(self.ws.stat().used, MIB)

    def test_many_deleted_files(self):
        self.assert_stopped("""
import os
held = []
while True:
    f = open("gone", "wb")
    os.remove("gone")
    f.write(bytes(200000))
    f.flush()
    held.append(f)
""")

    def test_mapped(self):
        self.assert_stopped("""
import mmap
f = open("map", "w+b")
f.truncate(1 << 30)
m = mmap.mmap(f.fileno(), 1 << 30)
for at in range(0, 1 << 30, 4096):
    m[at] = 1
""")

    def test_nothing_is_taken_without_writing(self):
        """fallocate(2) could fill the disk in one call."""
        self.assertEqual(run(self.ws, """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
f = os.open("r", os.O_CREAT | os.O_RDWR)
for mode in (0, 1, 16):
    if libc.fallocate(f, mode, ctypes.c_long(0), ctypes.c_long(1 << 30)) == 0:
        print("given", mode)
os.posix_fallocate(f, 0, 1 << 20)
print(os.stat("r").st_size)
"""), "%d\n" % MIB)
        self.assertLess(self.ws.stat().used, 2 * MIB)

    def test_several_processes(self):
        self.assert_stopped("""
import os
for i in range(4):
    if os.fork() == 0:
        break
with open("f%d" % os.getpid(), "wb") as f:
    while True:
        f.write(bytes(1 << 18))
""")

    def test_holes_take_no_room(self):
        run(self.ws, "open('hole', 'w').truncate(1 << 40)")
        self.assertLess(self.ws.stat().used, MIB)
        self.assert_stopped("""
with open("hole", "r+b") as f:
    for at in range(0, 1 << 40, 1 << 24):
        f.seek(at)
        f.write(bytes(1 << 16))
""")

    def test_its_cpu_comes_back(self):
        """What writes fast near its quota gets less, until it is done."""
        with as_runner():
            with open(self.at("nearly"), "wb") as f:
                f.write(bytes(50 * MIB))
        s = step(self.ws, """
import os, time
while not os.path.exists("enough"):
    with open("again", "wb") as f:
        f.write(bytes(6 << 20))
print("written", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    pass
""", limits=LONG)
        wait_for("a tenth of a CPU", lambda: service.subtree.cpu_limits() ==
                 {10000}, 10, 0.002)
        self.ws.write("enough", b"")
        s.until(workspaces.STDOUT)
        wait_for("all of its CPU", lambda: service.subtree.cpu_limits() ==
                 {100000}, 3)
        self.assertEqual(s.finish(), (0, False), s.stderr)

    def test_a_volume_has_its_own(self):
        volume = Workspace(socket_path, secrets.token_hex(16),
                           workspaces.VOLUME).create()
        try:
            e = self.refused("quota_exceeded", step(self.ws, """
with open("/memory/big", "wb") as f:
    while True:
        f.write(bytes(1 << 20))
""", volume, limits=LONG).finish)
            self.assertIn("volume", e.detail)
            self.assertIn("32 MiB", e.detail)
        finally:
            volume.remove()

    def beside_noise(self, code):
        """stdout of a step that is nearly over its quota, while others write:
        it is stopped and counted again and again."""
        with as_runner():
            with open(self.at("nearly"), "wb") as f:
                f.write(bytes(62 * MIB))
        s = step(self.ws, code, limits=LONG)
        noise = service.path("noise")
        until = time.monotonic() + 5
        while time.monotonic() < until:
            with open(noise, "wb") as f:
                for _ in range(100):
                    f.write(bytes(MIB))
            os.remove(noise)
        self.assertEqual(s.finish(), (0, False), s.stderr)
        return s.stdout.decode()

    def test_what_others_write_does_no_harm(self):
        self.assertEqual(self.beside_noise("""
import subprocess, sys, threading, time
done = []
def work():
    while time.monotonic() < end:
        sum(range(10000))
    done.append(1)
end = time.monotonic() + 4
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print(subprocess.run([sys.executable, "-c", "print(len(b'x' * 9))"],
                     capture_output=True, text=True).stdout, len(done))
"""), "9\n 4\n")

    def test_what_begins_while_it_is_stopped(self):
        """The sentry traces a process or thread that it makes, and takes no
        signal of ours for its own: it would end."""
        self.assertEqual(self.beside_noise("""
import os, threading, time
end = time.monotonic() + 5
ended = set()
while time.monotonic() < end:
    pids = [os.fork() for _ in range(4)]
    if 0 in pids:
        threads = [threading.Thread(target=sum, args=(range(9),))
                   for _ in range(4)]
        for t in threads:
            t.start()
        os._exit(3)
    ended |= {os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids}
print(ended)
"""), "{3}\n")

    def test_what_is_over_may_shrink_but_not_grow(self):
        with as_runner():
            for i in range(5):
                with open(self.at("f%d" % i), "wb") as f:
                    f.write(bytes(16 * MIB))
        self.assertEqual(run(self.ws, "import os\nos.remove('f0')\n"
                             "open('small', 'w').write('1')\nprint(1)"),
                         "1\n")
        with as_runner():
            with open(self.at("f0"), "wb") as f:
                f.write(bytes(16 * MIB))
        self.refused("quota_exceeded", step(self.ws, """
import time
open("more", "wb").write(bytes(4 << 20))
time.sleep(5)
""", limits=LONG).finish)

    def test_parallel_uploads(self):
        """As many as there is room for, and not one more."""
        data = secrets.token_bytes(MIB) * 8
        done, refused = [], []

        def upload(i):
            try:
                self.ws.write("f%d" % i, data, size=(
                    len(data) if i % 2 else workspaces.UNKNOWN))
                done.append(i)
            except Refused as e:
                refused.append(e.kind)

        threads = [threading.Thread(target=upload, args=(i,))
                   for i in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(set(refused), {"quota_exceeded"})
        used = self.ws.stat().used
        self.assertLessEqual(used, self.QUOTA)
        self.assertEqual(len(done), len(self.ws.names()))
        # Of unknown length some were promised more than they needed.
        self.assertGreaterEqual(len(done), 4)
        while True:
            try:
                self.ws.write("g%d" % len(done), data)
                done.append(0)
            except Refused as e:
                self.assertEqual(e.kind, "quota_exceeded")
                break
        self.assertEqual(len(done), 7)  # and 8 MiB less 4 KiB are left

    def test_claims_of_broken_uploads_come_back(self):
        held = []
        for i in range(4):
            c = self.ws.ask(workspaces.WRITE, "f%d" % i, 15 * MIB)
            c.expect(workspaces.INFO)
            held.append(c)
        self.refused("quota_exceeded", self.ws.write, "x",
                     bytes(8 * MIB))
        for c in held:
            c.close()
        wait_for("room", lambda: self.fits("x", 16 * MIB))

    def fits(self, name, size):
        try:
            return self.ws.write(name, bytes(size)).size == size
        except Refused:
            return False


class Links(Case):
    """What a program can plant: the kernel keeps us inside, whatever it is."""

    def setUp(self):
        super().setUp()
        # The runner may write there: an escape would succeed.
        self.outside = service.path("workspaces", "outside")
        with as_runner():
            os.mkdir(self.outside)
            for name in ("secret", "victim"):
                with open(os.path.join(self.outside, name), "w") as f:
                    f.write("outside")
        self.ws.write("real", b"inside")
        self.ws.write("d/secret", b"inside")

    def tearDown(self):
        self.assertEqual(sorted(os.listdir(self.outside)),
                         ["secret", "victim"])
        shutil.rmtree(self.outside)
        super().tearDown()

    def link(self, target, name):
        with as_runner():
            os.symlink(target, self.at(name))

    def test_links_that_leave(self):
        up = "../../outside"
        for n, target in enumerate((
                self.outside, up, "d/../../../outside", "/", "..", "/proc",
                "/proc/self/root", "/proc/self/cwd", "../..",
                "/proc/self/fd", "/workspace")):
            name = "l%d" % n
            self.link(target, name)
            for path in (name + "/secret", name + "/workspaces/outside/secret",
                         name + "/victim"):
                self.refused("invalid_path", self.ws.read, path)
                self.refused("invalid_path", self.ws.write, path, b"x")
                self.refused("invalid_path", self.ws.delete, path)
                self.refused("invalid_path", self.ws.zip, path)
            self.refused("invalid_path", self.ws.list, name)
            self.refused("invalid_path", self.ws.zip, name)
            self.refused("invalid_path", self.ws.write, name + "/new/x", b"x")
            self.assertEqual([e[1:3] for e in self.ws.list()
                              if e[0] == name.encode()],
                             [(workspaces.LINK, 0)])
            self.ws.delete(name)

    def test_files_that_are_links_out(self):
        for target in (self.outside + "/secret", "../../outside/victim",
                       "/proc/self/environ", "/proc/self/fd/0",
                       "/proc/self/exe", "/etc/passwd", "/workspace/real"):
            self.link(target, "l")
            self.refused("invalid_path", self.ws.read, "l")
            self.refused("invalid_path", self.ws.write, "l", b"x")
            self.ws.delete("l")
            with open(os.path.join(self.outside, "victim")) as f:
                self.assertEqual(f.read(), "outside")

    def test_links_in_a_row_and_in_circles(self):
        self.link("loop", "loop")
        self.link("b", "a")
        self.link("a", "b")
        for name in ("loop", "a", "loop/x", "a/x"):
            self.refused("invalid_path", self.ws.read, name)
            self.refused("invalid_path", self.ws.write, name, b"x")
        self.link("real", "n0")
        for i in range(1, 30):
            self.link("n%d" % (i - 1), "n%d" % i)
        self.assertEqual(self.ws.read("n29"), b"inside")
        self.ws.write("n29", b"new")
        self.assertEqual(self.ws.read("real"), b"new")

    def test_links_that_stay_work(self):
        self.link("real", "l")
        self.link("d", "ld")
        self.link("../real", "d/up")
        self.link("nowhere", "dangling")
        self.assertEqual(self.ws.read("l"), b"inside")
        self.assertEqual(self.ws.read("ld/secret"), b"inside")
        self.assertEqual(self.ws.read("ld/up"), b"inside")
        self.assertEqual(self.ws.names("ld"), [b"secret", b"up"])
        kinds = {e[0]: e[1:3] for e in self.ws.list()}
        self.assertEqual(kinds[b"l"], (workspaces.FILE, 6))
        self.assertEqual(kinds[b"ld"], (workspaces.DIR, 0))
        self.assertEqual(kinds[b"dangling"], (workspaces.LINK, 0))
        self.ws.write("ld/new", b"1")
        self.assertEqual(self.ws.read("d/new"), b"1")
        self.ws.write("d/up", b"through")
        self.assertEqual(self.ws.read("real"), b"through")
        self.assertTrue(os.path.islink(self.at("d/up")))
        self.ws.write("dangling", b"made")
        self.assertEqual(self.ws.read("nowhere"), b"made")
        with zipfile.ZipFile(io.BytesIO(self.ws.zip("ld"))) as z:
            self.assertEqual(sorted(z.namelist()), ["new", "secret"])
        self.ws.delete("ld")
        self.ws.delete("l")
        self.assertEqual(self.ws.read("d/secret"), b"inside")
        self.assertEqual(self.ws.read("real"), b"through")

    def test_what_must_not_be_opened(self):
        """Opening a FIFO would wait for ever, a device do anything."""
        with as_runner():
            os.mkfifo(self.at("fifo"))
            s = socket.socket(socket.AF_UNIX)
            s.bind(self.at("sock"))
            s.close()
        os.mknod(self.at("dev"), stat.S_IFCHR | 0o666, os.makedev(1, 5))
        self.link("fifo", "link")
        begun = time.monotonic()
        for name in ("fifo", "sock", "dev", "link"):
            self.refused("invalid_path", self.ws.read, name)
            self.refused("invalid_path", self.ws.write, name, b"x")
            self.refused("invalid_path", self.ws.zip, name)
        for name in ("fifo", "sock", "dev"):
            self.refused("not_found", self.ws.read, name + "/x")
        self.assertEqual({e[0]: e[1] for e in self.ws.list()}[b"fifo"],
                         workspaces.OTHER)
        with zipfile.ZipFile(io.BytesIO(self.ws.zip())) as z:
            self.assertEqual(sorted(z.namelist()),
                             ["d/", "d/secret", "real"])
        self.ws.stat()
        self.assertLess(time.monotonic() - begun, 10)
        for name in ("link", "fifo", "sock", "dev"):
            self.ws.delete(name)
        self.assertEqual(self.ws.names(), [b"d", b"real"])

    def test_modes_do_not_hold_us_up(self):
        run(self.ws, """
import os
os.makedirs("shut/in")
open("shut/in/f", "w").write("hidden")
open("none", "w").write("none")
os.chmod("none", 0)
os.chmod("shut/in/f", 0)
os.chmod("shut/in", 0)
os.chmod("shut", 0)
""")
        self.assertEqual(self.ws.read("none"), b"none")
        self.assertEqual(self.ws.read("shut/in/f"), b"hidden")
        self.assertEqual(self.ws.names("shut"), [b"in"])
        self.ws.write("shut/in/g", b"1")
        self.assertEqual(self.ws.stat().files, 9)
        with zipfile.ZipFile(io.BytesIO(self.ws.zip("shut"))) as z:
            self.assertEqual(z.read("in/f"), b"hidden")
        self.ws.delete("shut/in/f")
        self.ws.delete("shut")
        run(self.ws, "import os\nos.makedirs('a/b')\nos.chmod('a', 0)\n"
                     "os.chmod('/workspace', 0)")
        self.assertEqual(self.ws.names(), [b"a", b"d", b"none", b"real"])

    def test_hard_links(self):
        run(self.ws, "import os\nos.link('real', 'h')\n"
                     "open('h', 'w').write('both')")
        self.assertEqual(self.ws.read("real"), b"both")
        self.ws.write("h", b"own")
        self.assertEqual(self.ws.read("real"), b"both")

    def test_race(self):
        """A folder and a link out of the workspace change places all the time,
        as fast as can be, while we read, write, list and delete there."""
        seconds = float(os.environ.get("ISOBOX_TEST_RACE_SECONDS", "5"))
        self.link("../../outside", "x")
        swapping = Swap(self.at("d"), self.at("x"))
        ends = {}
        until = time.monotonic() + seconds
        n = 0
        while time.monotonic() < until:
            n += 1
            for what, call in (
                    ("read", lambda: self.ws.read("d/secret")),
                    ("list", lambda: self.ws.names("d")),
                    ("write", lambda: self.ws.write("d/w%d" % n, b"x")),
                    ("folders", lambda: self.ws.write(
                        "d/n%d/w" % n, b"x")),
                    ("delete", lambda: self.ws.delete("d/victim")),
                    ("zip", lambda: self.ws.zip("d"))):
                try:
                    got = call()
                    if what == "read":
                        self.assertEqual(got, b"inside")
                    elif what == "list":
                        self.assertNotIn(b"victim", got)
                    elif what == "zip":
                        self.assertNotIn(b"victim", got)
                    end = "done"
                except Refused as e:
                    self.assertIn(e.kind, (
                        "invalid_path", "not_found", "session_busy"))
                    end = e.kind
                ends[what, end] = ends.get((what, end), 0) + 1
        swapping.stop()
        print("%d rounds, %d swaps: %s" % (n, swapping.count, ends))
        self.assertGreater(swapping.count, 10 * n)
        self.assertGreater(ends.get(("read", "done"), 0), 0)


class Swap:
    """Exchanges two names without a pause, in a process of its own."""

    def __init__(self, a, b):
        self.count = 0
        self.child = subprocess.Popen(
            [sys.executable, "-c", """
import ctypes, signal, sys
libc = ctypes.CDLL(None)
a, b = (n.encode() for n in sys.argv[1:])
count, end = 0, []
signal.signal(signal.SIGTERM, lambda *_: end.append(1))
while not end:
    for _ in range(100):
        libc.renameat2(-100, a, -100, b, 2)
    count += 100
print(count)
""", a, b], stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.child.terminate()
        self.count = int(self.child.communicate()[0])


class Frames(Case):
    """The runner does not trust the web side."""

    def exchange(self, data):
        with workspaces.Connection(socket_path, 20) as c:
            c.socket.sendall(data)
            c.socket.shutdown(socket.SHUT_WR)
            try:
                while True:
                    c.next()
            except (Refused, workspaces.Gone, ConnectionResetError):
                pass

    def request(self, op=workspaces.OPEN, kind=workspaces.SESSION, who=None,
                path=b"x", size=0):
        return bytes([op, kind]) + b"".join((
            workspaces.string("test"),
            workspaces.string(self.ws.name if who is None else who),
            workspaces.string(path), workspaces.u64(size)))

    def test_what_no_honest_web_side_sends(self):
        for payload in (
                b"", self.request(op=0), self.request(op=9),
                self.request(kind=0), self.request(kind=3),
                self.request(who="../sessions/" + self.ws.name),
                self.request(who=""), self.request(who="a\0b"),
                self.request(who="x" * 65), self.request(size=1),
                self.request(op=workspaces.STAT),
                self.request() + b"\0", self.request()[:-1]):
            with workspaces.Connection(socket_path) as c:
                c.send(workspaces.WS, payload)
                self.refused("sandbox_failed", c.next)
        self.assertIsNone(service.runner.poll())

    def test_random_bytes(self):
        seed = time.time_ns() % 1000000
        print("seed %d" % seed)
        rng = random.Random(seed)
        self.ws.write("x", b"1")
        for _ in range(300):
            data = bytearray(workspaces.frame(workspaces.WS, self.request(
                op=rng.choice((workspaces.STAT, workspaces.OPEN,
                               workspaces.WRITE, workspaces.ZIP)),
                path=rng.choice((b"", b"x", b"a/b")),
                size=rng.choice((0, 1, workspaces.UNKNOWN)))))
            for _ in range(rng.randint(0, 3)):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
            self.exchange(bytes(data))
        self.assertIsNone(service.runner.poll())
        self.ws.stat()

    def test_too_many_at_once(self):
        """Uploads wait for their clients; they do not keep others away."""
        held = []
        try:
            for i in range(48):
                c = self.ws.ask(workspaces.WRITE, "f%d" % i, 1)
                c.expect(workspaces.INFO)
                held.append(c)
            e = self.refused("capacity", self.ws.write, "more", b"x")
            self.assertGreaterEqual(e.retry_after, 1)
            self.ws.stat()
            self.assertEqual(run(self.ws, "print(1)"), "1\n")
        finally:
            for c in held:
                c.close()
        wait_for("an upload", lambda: self.try_write())
        self.assertEqual(self.ws.names(), [b"more"])

    def try_write(self):
        try:
            return self.ws.write("more", b"x").size == 1
        except Refused:
            return False


class Storage(unittest.TestCase):
    """Disk of all together, and of the host."""

    def serve(self, **settings):
        s = Service("caddy", allowed_users=["0"], warm=False, **settings)
        self.addCleanup(s.stop)
        s.start_runner()
        path = s.settings["runner_socket"]
        wait_for("ready runner", lambda: workspaces.ready(path), 30)
        return s, path

    def refused(self, call, *args):
        with self.assertRaises(Refused) as caught:
            call(*args)
        self.assertEqual(caught.exception.kind, "storage_full",
                         caught.exception.detail)

    def step(self, path, ws, code):
        return Step(path, "python-slim", version, code, ws.name,
                    limits=LONG).finish()

    def test_all_together(self):
        s, path = self.serve(sessions_disk_max_gb=1, session_disk_mb=2048,
                             min_free_disk_gb=0)
        big = Workspace(path, "big").create()
        other = Workspace(path, "other").create()
        other.write("x", b"x")
        self.fill(s, "big")
        self.assertGreater(big.stat().used, 1100 * MIB)
        self.refused(other.write, "y", b"y")
        self.refused(Workspace(path, "third").create)
        self.refused(self.step, path, other, """
import time
open("z", "wb").write(bytes(3 << 20))
time.sleep(10)
""")
        self.assertEqual(self.step(path, other, "print(1)"), (0, False))
        big.delete("f")
        third = Workspace(path, "third").create()
        # What a step deletes, too, though nobody looks there.
        self.fill(s, "big")
        big.write("new/x", b"")  # a new folder calls for a new count
        self.assertGreater(big.stat().used, 1100 * MIB)
        self.refused(other.write, "y", b"y")
        self.assertEqual(self.step(
            path, big, "import os; os.remove('f'); os._exit(0)"), (0, False))
        wait_for("room", lambda: not self.is_full(other))
        # What is on the disk is counted anew at a start.
        self.fill(s, "big")
        s.runner.kill()
        s.runner.wait()
        s.start_runner()
        wait_for("ready runner", lambda: workspaces.ready(path), 30)
        wait_for("a count", lambda: self.is_full(other))
        self.assertEqual(sorted(big.ids()), ["big", "other", "third"])
        third.remove()
        big.remove()
        wait_for("room", lambda: not self.is_full(other))

    def fill(self, s, name):
        with as_runner():
            fd = os.open(s.path("workspaces", "sessions", name, "f"),
                         os.O_CREAT | os.O_WRONLY)
            os.posix_fallocate(fd, 0, 1100 * MIB)
            os.close(fd)

    def is_full(self, ws):
        try:
            ws.write("probe", b"")
            ws.write("probe", b"1")
            return False
        except Refused as e:
            return e.kind == "storage_full"

    def test_what_was_not_counted_is_not_taken_off(self):
        """An upload takes the place of a file that a program has made since
        the last count."""
        s, path = self.serve(min_free_disk_gb=0)
        ws = Workspace(path, "one").create()
        with ws.ask(workspaces.WRITE, "x", 4) as c:
            c.expect(workspaces.INFO)
            os.write(c.fds[0], b"four")
            with as_runner():
                fd = os.open(s.path("workspaces", "sessions", "one", "x"),
                             os.O_CREAT | os.O_WRONLY)
                os.posix_fallocate(fd, 0, 30 * MIB)
                os.close(fd)
            c.send(workspaces.COMMIT, workspaces.u64(4))
            c.expect(workspaces.INFO)
            c.expect(workspaces.END)
        Workspace(path, "two").create()

    def test_free_disk(self):
        _, path = self.serve(min_free_disk_gb=1048576)
        self.refused(Workspace(path, "one").create)
        wait_for("no id", lambda: not Workspace(path, "one").ids())

    def test_directory_that_cannot_be_used(self):
        """Runs without sessions go on."""
        for folder in ("/proc/none", "/tmp"):
            s, path = self.serve(workspaces_dir=folder)
            with self.assertRaises(Refused) as caught:
                Workspace(path, "one").create()
            self.assertEqual(caught.exception.kind, "sandbox_failed")
            self.assertIn(folder, caught.exception.detail)
            self.assertEqual(Step(path, "python-slim", version,
                                  "print(1)").finish(), (0, False))

    def test_one_runner_in_a_directory(self):
        one, path = self.serve()
        two, other = self.serve(
            workspaces_dir=one.settings["workspaces_dir"])
        Workspace(path, "one").create()
        with self.assertRaises(Refused) as caught:
            Workspace(other, "two").create()
        self.assertIn("another isobox-runner", caught.exception.detail)
        self.assertIsNone(two.runner.poll())


class Large(unittest.TestCase):
    """Trees as a hostile program makes them; in memory, that is faster."""

    @classmethod
    def setUpClass(cls):
        cls.top = tempfile.mkdtemp(prefix="isobox-test-", dir="/dev/shm")
        cls.addClassCleanup(shutil.rmtree, cls.top, True)
        who = pwd.getpwnam(RUNNER_USER)
        os.chown(cls.top, who.pw_uid, who.pw_gid)
        cls.service = Service("caddy", allowed_users=["0"], warm=False,
                              workspaces_dir=cls.top, min_free_disk_gb=0)
        cls.addClassCleanup(cls.service.stop)
        cls.path = cls.service.settings["runner_socket"]
        cls.service.start_runner()
        wait_for("ready runner", lambda: workspaces.ready(cls.path), 30)

    def setUp(self):
        self.ws = Workspace(self.path, secrets.token_hex(16)).create()
        self.dir = os.path.join(self.top, "sessions", self.ws.name)

    def tearDown(self):
        self.ws.remove()
        wait_for("empty trash", lambda: not os.listdir(
            os.path.join(self.top, "trash")), 60)

    def fill(self, count, each=1000):
        """Folders of that many names of one file."""
        with as_runner():
            first = os.path.join(self.dir, "file")
            open(first, "w").close()
            for i in range(0, count, each):
                d = os.path.join(self.dir, "d%d" % i)
                os.mkdir(d)
                fd = os.open(d, os.O_DIRECTORY)
                for j in range(min(each, count - i)):
                    os.link(first, "f%d" % j, dst_dir_fd=fd)
                os.close(fd)

    def test_100000_entries(self):
        self.fill(100000, each=100000)
        begun = time.monotonic()
        names = self.ws.names("d0")
        listed = time.monotonic()
        self.assertEqual(len(set(names)), 100000)
        self.assertEqual(self.ws.stat().files, 100003)
        counted = time.monotonic()
        self.ws.delete("d0")
        print("listed in %.1f s, counted in %.1f s, deleted in %.1f s" % (
            listed - begun, counted - listed, time.monotonic() - counted))
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(self.ws.names(), [b"file"])

    def test_sorted_as_long_as_that_is_possible(self):
        self.fill(5000, each=5000)
        names = self.ws.names("d0")
        self.assertEqual(names, sorted(names))

    def test_10000_levels(self):
        with as_runner():
            here = os.open(self.dir, os.O_DIRECTORY)
            for _ in range(10000):
                os.mkdir("deeper", dir_fd=here)
                below = os.open("deeper", os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = below
            os.close(os.open("f", os.O_CREAT, dir_fd=here))
            os.close(here)
        self.assertEqual(self.ws.stat().files, 10002)
        self.assertEqual(self.ws.names("deeper/" * 500), [b"deeper"])
        with self.ws.ask(workspaces.ZIP) as c, \
                self.assertRaises(Refused) as caught:
            c.next()
        self.assertEqual(caught.exception.kind, "too_large")
        begun = time.monotonic()
        self.ws.delete("deeper")
        print("deleted in %.1f s" % (time.monotonic() - begun))
        self.assertEqual(self.ws.stat().files, 1)

    def test_more_entries_than_zip_had_room_for(self):
        """65,535 are what the format knew before Zip64."""
        self.fill(70000)
        with zipfile.ZipFile(io.BytesIO(self.ws.zip())) as z:
            self.assertEqual(len(z.namelist()), 70071)

    def test_number_of_files(self):
        self.fill(199980 - 200)
        e = None
        try:
            Step(self.path, "python-slim", version, """
import time
for i in range(100):
    open("new%d" % i, "w").close()
time.sleep(15)
""", self.ws.name, limits=LONG).finish()
        except Refused as caught:
            e = caught
        self.assertEqual(e and e.kind, "quota_exceeded")
        self.assertIn("200000", e.detail)
        with self.assertRaises(Refused) as caught:
            self.ws.write("one more", b"")
        self.assertEqual(caught.exception.kind, "quota_exceeded")


class Kill(Case):
    """kill -9 of the runner between any two of its steps."""

    def restart(self):
        service.runner.kill()
        service.runner.wait()
        service.start_runner()
        wait_for("ready runner", lambda: workspaces.ready(socket_path), 30)

    def work(self, name, done, end):
        """Writes whole files of one letter over each other, deletes trees."""
        n = 0
        while not end.is_set():
            n += 1
            letter = bytes([97 + n % 26])
            try:
                self.ws.write(name, letter * (1 + n * 7919 % 200000))
                done[name] = letter
                self.ws.write("%s.d/a/b/c" % name, letter)
                self.ws.delete("%s.d" % name)
            except (OSError, Refused, workspaces.Gone):
                time.sleep(0.01)

    def test_files_are_old_or_new(self):
        done, end = {}, threading.Event()
        workers = [threading.Thread(target=self.work,
                                    args=("f%d" % i, done, end))
                   for i in range(4)]
        for w in workers:
            w.start()
        rng = random.Random(1)
        try:
            for _ in range(10):
                time.sleep(rng.uniform(0.05, 0.4))
                self.restart()
        finally:
            end.set()
            for w in workers:
                w.join()
        self.assertEqual(sorted(done), ["f0", "f1", "f2", "f3"])
        for name in done:
            self.assertEqual(len(set(self.ws.read(name))), 1)
        for folder in ("trash", "staging"):
            wait_for("empty " + folder, lambda: not os.listdir(
                service.path("workspaces", folder)), 30)
        service.baseline = service.snapshot() - {
            line for line in service.snapshot() if self.ws.name in line}

    def test_session_and_step_survive_or_end(self):
        s = step(self.ws, "import time\nopen('before', 'w').write('1')\n"
                          "print(1, flush=True)\ntime.sleep(9)\n"
                          "open('after', 'w')", limits=LONG)
        s.until(workspaces.STDOUT)
        self.restart()
        with self.assertRaises((workspaces.Gone, Refused, OSError)):
            s.finish()
        self.assertEqual(self.ws.names(), [b"before"])
        self.assertEqual(run(self.ws, "print(open('before').read())"), "1\n")
        service.baseline = service.snapshot() - {
            line for line in service.snapshot() if self.ws.name in line}
