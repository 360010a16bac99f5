# SPDX-License-Identifier: Apache-2.0
"""The runner's workspaces: files of sessions, steps in them, quotas. Spoken to
directly, as isobox.fcgi does."""

import contextlib
import io
import os
import pwd
import re
import secrets
import stat
import threading
import time
import unittest
import zipfile

import workspaces
from harness import RUNNER_USER, Service, wait_for
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
        self.ws.write(b"a/\xffx", b"raw")
        self.ws.write("c/d/e", b"")
        with self.open() as z:
            self.assertIsNone(z.testzip())
            self.assertEqual(
                sorted(z.namelist()),
                sorted(["a/", "a/b.txt", "a/\u00e9\U0001f600.txt", "a/%FFx",
                        "c/", "c/d/", "c/d/e"]))
            self.assertEqual(z.read("a/b.txt"), b"hello" * 1000)
            self.assertLess(z.getinfo("a/b.txt").compress_size, 1000)
            self.assertTrue(z.getinfo("a/\u00e9\U0001f600.txt").flag_bits
                            & 0x800)
        with self.open("c") as z:
            self.assertEqual(sorted(z.namelist()), ["d/", "d/e"])
        with self.open("c/d") as z:
            self.assertEqual(z.namelist(), ["e"])

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

    def test_more_entries_than_zip_had_room_for(self):
        """65,535 are what the format knew before Zip64."""
        with as_runner():
            for i in range(70):
                os.mkdir(self.at("d%d" % i))
                for j in range(1000):
                    open(self.at("d%d" % i, "f%d" % j), "w").close()
        with self.open() as z:
            self.assertEqual(len(z.namelist()), 70070)

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
                              "time.sleep(3)")
        first.until(workspaces.STDOUT)
        begun = time.monotonic()
        second = step(self.ws, "print(2)",
                      limits=workspaces.LIMITS[:4] + (500,))
        e = self.refused("session_busy", second.finish)
        self.assertGreaterEqual(e.retry_after, 1)
        self.assertLess(time.monotonic() - begun, 2.5)
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
        self.assertLess(time.monotonic() - begun, 2)
        self.refused("session_not_found", running.finish)
        self.refused("session_not_found", waiting.finish)
        self.refused("session_not_found", self.ws.stat)
        self.assertFalse(os.path.exists(self.dir))

    def test_supervisor_killed(self):
        """The turn comes back all the same."""
        first = step(self.ws, "import time\nprint(1, flush=True)\n"
                              "time.sleep(9)")
        first.until(workspaces.STDOUT)
        for pid in children_of(service.runner.pid):
            os.kill(pid, 9)
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


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(p) for p in f.read().split()]
