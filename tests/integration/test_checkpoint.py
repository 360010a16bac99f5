# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of kernels (runner/checkpoint*.c) with the real runsc, without a
runner. ISOBOX_CHECKPOINT_CYCLES and ISOBOX_CHECKPOINT_KILLS: how often a kernel is
saved and restored in a row (100 is the full number), and a process killed while
it saves."""

import os
import random
import shutil
import signal
import time
import unittest
from errno import EBADMSG, EBUSY, ENOENT, ESTALE, ETIMEDOUT

import checkpoints
import isoproto
import kernels
import sandbox
from checkpoints import MIB, Live, Refused, Store
from harness import IMAGES, wait_for

CYCLES = int(os.environ.get("ISOBOX_CHECKPOINT_CYCLES", "5"))
KILLS = int(os.environ.get("ISOBOX_CHECKPOINT_KILLS", "10"))

STATE = """
import threading, time
n, words = 0, ['kept']
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
f.write('x'); f.flush(); f.seek(0)
print(n > m, len(f.read()), words)
"""
PANDAS = """
import pandas, numpy
frame = pandas.DataFrame({'a': range(10000)})
frame['b'] = frame.a ** 2
"""
WRITER = """
import threading, time
def run():
    i = 0
    with open('/workspace/lines', 'w', buffering=1) as f:
        while True:
            f.write('%d\\n' % i); i += 1; time.sleep(.001)
threading.Thread(target=run, daemon=True).start()
time.sleep(.2)
"""

store = None


def setUpModule():
    global store
    store = Store()


def tearDownModule():
    store.close()


class Case(unittest.TestCase):
    language = "python-slim"

    def setUp(self):
        if not kernels.have(self.language):
            self.skipTest("there is no image for " + self.language)
        self.key = "k%d" % next(store.count)

    def live(self, **kw):
        live = Live(store, self.language, **kw)
        self.addCleanup(self.end, live)
        return live

    def end(self, live):
        if live.input is not None:
            live.close()
            live.input = None

    def saved(self, code="x = 1", **kw):
        """The workspace of a kernel that was saved as self.key."""
        with Live(store, self.language) as live:
            self.assertEqual(live.step(code, timeout=60).err, "")
            live.save(self.key, **kw)
            return live.workspace

    def says(self, live, code, out):
        s = live.step(code)
        self.assertEqual((s.err, s.out), ("", out))

    def refused(self, code, **kw):
        with self.assertRaises(Refused) as caught:
            self.live(restore=self.key, **kw)
        self.assertEqual(caught.exception.code, code, caught.exception.why)
        return caught.exception.why


class Cycles(Case):
    """Variables, a thread and an open workspace file, generation after
    generation."""

    language = "python"
    code = PANDAS + STATE

    def test_generations(self):
        live = self.live()
        self.assertEqual(live.step(self.code, timeout=90).err, "")
        for i in range(1, CYCLES + 1):
            live.save(self.key)
            self.end(live)
            live = self.live(restore=self.key, workspace=live.workspace)
            self.says(live, LOOK, "True %d ['kept']\n" % i)
            self.says(live, "print(frame.b.sum())", "333283335000\n")
        self.assertEqual(store.ids(dotted=True), [])


class Saving(Case):
    def test_files_are_private(self):
        self.saved()
        top = os.path.join(store.kernels, self.key)
        self.assertEqual(os.stat(store.kernels).st_mode & 0o7777, 0o700)
        self.assertEqual(os.stat(top).st_mode & 0o7777, 0o700)
        names = os.listdir(top)
        self.assertIn("stamp", names)
        for name in names:
            st = os.lstat(os.path.join(top, name))
            self.assertEqual((st.st_mode & 0o7777, st.st_uid),
                             (0o600, store.user.pw_uid), name)

    def test_nothing_happens_after_it(self):
        """What a thread writes to the workspace is there once."""
        with Live(store, self.language) as live:
            self.assertEqual(live.step(WRITER).err, "")
            live.save(self.key)
            time.sleep(.3)

        def lines():
            with open(os.path.join(live.workspace, "lines")) as f:
                return f.read().split("\n")[:-1]
        before = len(lines())
        live = self.live(restore=self.key, workspace=live.workspace)
        wait_for("more lines", lambda: len(lines()) > before + 50)
        found = lines()
        self.assertEqual(found, ["%d" % i for i in range(len(found))])

    def test_what_cannot_be_saved_lives_on(self):
        live = self.live()
        live.step("import os; f = open('/workspace/gone', 'w'); x = 5; "
                  "os.unlink('/workspace/gone')")
        for _ in range(2):
            with self.assertRaises(Refused) as caught:
                live.save(self.key)
            self.assertEqual(caught.exception.kind, "kernel_unsupported")
            self.assertIn("cannot be saved", caught.exception.why)
            self.says(live, "print(x)", "5\n")
        self.assertNotIn(self.key, store.ids())
        self.assertEqual(store.ids(dotted=True), [])
        live.step("f.close()")
        live.save(self.key)
        self.end(live)
        live = self.live(restore=self.key, workspace=live.workspace)
        self.says(live, "print(x)", "5\n")

    def test_a_failure_keeps_the_old_one(self):
        live = self.live()
        live.step("x = 1")
        live.save(self.key, go_on=True)
        live.step("x = 2; f = open('/workspace/gone', 'w'); import os; "
                  "os.unlink('/workspace/gone')")
        with self.assertRaises(Refused):
            live.save(self.key)
        self.says(live, "print(x)", "2\n")
        self.end(live)
        live = self.live(restore=self.key, workspace=live.workspace)
        self.says(live, "print(x)", "1\n")

    def test_sockets_and_pipes_are_saved(self):
        ws = self.saved(
            "import os, select, socket, subprocess, mmap\n"
            "l = socket.socket(); l.bind(('127.0.0.1', 0)); l.listen()\n"
            "c = socket.create_connection(l.getsockname())\n"
            "d = l.accept()[0]; c.send(b'hi')\n"
            "a, b = socket.socketpair(); a.send(b'ho')\n"
            "u = socket.socket(socket.AF_UNIX); u.bind('/workspace/s')\n"
            "os.mkfifo('/workspace/f'); q = os.open('/workspace/f', os.O_RDWR)\n"
            "m = mmap.mmap(-1, 4096); m[:2] = b'mm'\n"
            "p = subprocess.Popen(['cat'], stdin=-1, stdout=-1)\n")
        live = self.live(restore=self.key, workspace=ws)
        self.says(live, "print(b.recv(2), m[:2], "
                        "p.communicate(b'cat', timeout=9)[0])",
                  "b'ho' b'mm' b'cat'\n")

    def test_quota(self):
        live = self.live()
        live.step("x = bytes(range(256)) * 100000")
        with self.assertRaises(Refused) as caught:
            live.save(self.key, max_bytes=MIB)
        self.assertEqual(caught.exception.kind, "quota_exceeded")
        self.assertNotIn(self.key, store.ids())
        self.says(live, "print(len(x))", "25600000\n")
        # As it is it would be more than 30 MB; compressed it fits.
        size = live.save(self.key, max_bytes=20 * MIB)[0]
        self.assertLess(size, 20 * MIB)
        self.end(live)
        live = self.live(restore=self.key, workspace=live.workspace)
        self.says(live, "print(len(x), x[-1])", "25600000 255\n")

    def test_no_room_on_the_disk(self):
        live = self.live()
        with self.assertRaises(Refused) as caught:
            live.save(self.key, min_free=1 << 60)
        self.assertEqual(caught.exception.kind, "storage_full")
        self.says(live, "print(3)", "3\n")

    def test_no_time(self):
        """A deadline in the middle of it: the kernel goes on."""
        live = self.live()
        live.step("x = 4")
        for ms in (0, 20, 60, 120):
            begun = time.monotonic()
            try:
                live.save(self.key, timeout=ms)
                break
            except Refused as e:
                self.assertEqual(e.code, EBUSY, e.why)
            self.assertLess(time.monotonic() - begun, 10)
            self.says(live, "print(x)", "4\n")
        else:
            self.assertNotIn(self.key, store.ids())

    def hangs(self, live, ready, timeout):
        """A save whose process stands still from a moment on, as one that the
        disk does not answer."""
        pid = live.begin_save(self.key, timeout=timeout)
        wait_for("the moment", ready, every=.001)
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        with self.assertRaises(Refused) as caught:
            live.end_save()
        self.assertEqual(caught.exception.code, EBUSY, caught.exception.why)
        self.assertLess(time.monotonic() - begun, 15)
        self.says(live, "print(len(x), len(y))", "3 150000000\n")
        self.assertNotIn(self.key, store.ids())
        wait_for("the end of its image",
                 lambda: store.ids(dotted=True) == [], 5)

    def test_a_disk_that_does_not_answer(self):
        """While it syncs, and before: the kernel goes on."""
        live = self.live()
        live.step("import os; x = 'abc'; y = os.urandom(150000000)")
        new = os.path.join(store.kernels, ".new-" + self.key)
        # With time to come as far as that.
        self.hangs(live, lambda: os.path.exists(os.path.join(new, "about")),
                   5000)
        self.hangs(live, lambda: os.path.exists(new), 5000)
        self.hangs(live, lambda: True, 1500)
        live.save(self.key)
        self.end(live)
        live = self.live(restore=self.key, workspace=live.workspace)
        self.says(live, "print(len(x), len(y))", "3 150000000\n")

    def test_dead_sandbox(self):
        live = self.live()
        os.kill(live.pid, signal.SIGKILL)
        begun = time.monotonic()
        with self.assertRaises(Refused):
            live.save(self.key)
        self.assertLess(time.monotonic() - begun, 10)
        self.assertEqual(store.ids(dotted=True), [])

    def test_cancelled(self):
        live = self.live()
        live.begin_save(self.key)
        live.ask("cancel")
        live.ask("sweep")
        self.assertEqual(store.ids(dotted=True), [])


class Killed(Case):
    """kill -9 at any moment: what is there was so before or is so now."""

    def one(self, number, kill):
        """A kernel with x == number, from what the last one left."""
        known = self.key in store.ids()
        live = Live(store, self.language, workspace=self.workspace,
                    restore=self.key if known else None)
        try:
            s = live.step("print(x if 'x' in globals() else -1); x = %d"
                          % number)
            self.assertIn(int(s.out), self.could_be)
            self.assertEqual(known, int(s.out) != -1)
            self.could_be = {int(s.out), number}
            kill(live)
        finally:
            live.close()
        with Live(store, self.language, boot=False) as other:
            other.ask("sweep")
        self.assertEqual(store.ids(dotted=True), [])

    def run_all(self, kill):
        self.workspace = store.directory()
        self.could_be = {-1}
        for number in range(KILLS):
            self.one(number, kill)

    def test_supervisor(self):
        def kill(live):
            live.begin_save(self.key)
            time.sleep(random.uniform(0, .5))
            live.process.kill()
            live.process.wait()
            wait_for("the end of the sandbox",
                     lambda: not store.subtree.pids(), 20)
        self.run_all(kill)

    def test_saving_process(self):
        def kill(live):
            pid = live.begin_save(self.key)
            time.sleep(random.uniform(0, .4))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                live.end_save()
            except Refused as e:
                self.assertIn(e.code, (EBUSY, ETIMEDOUT), e.why)
        self.run_all(kill)


class Broken(Case):
    """Refused, and the one who asked is told why."""

    def setUp(self):
        super().setUp()
        self.workspace = self.saved()
        self.top = os.path.join(store.kernels, self.key)

    def refused(self, code, **kw):
        return super().refused(code, workspace=self.workspace, **kw)

    def images(self):
        return [os.path.join(self.top, n) for n in os.listdir(self.top)
                if n != "stamp"]

    def test_absent(self):
        shutil.rmtree(self.top)
        self.refused(ENOENT)

    def test_truncated(self):
        for path in self.images():
            size = os.path.getsize(path)
            with open(path, "rb") as f:
                data = f.read()
            for left in (size - 1, size // 2, 0):
                os.truncate(path, left)
                self.assertIn("another length", self.refused(EBADMSG))
            with open(path, "wb") as f:
                f.write(data)

    def test_one_bit(self):
        for path in self.images():
            at = random.randrange(os.path.getsize(path))
            with open(path, "r+b") as f:
                for _ in range(2):
                    f.seek(at)
                    byte = f.read(1)[0]
                    f.seek(at)
                    f.write(bytes([byte ^ 1]))
                    f.flush()
                    if _ == 0:
                        self.assertIn("another content",
                                      self.refused(EBADMSG))
        live = self.live(restore=self.key, workspace=self.workspace)
        self.says(live, "print(x)", "1\n")

    def test_about(self):
        path = os.path.join(self.top, "about")
        with Live(store, self.language, boot=False) as s:
            self.assertEqual(s.ask("about", self.key), self.key)
            with open(path, "a") as f:
                f.write("x")
            with self.assertRaises(Refused) as caught:
                s.ask("about", self.key)
        self.assertEqual(caught.exception.code, EBADMSG)
        self.refused(EBADMSG)

    def test_a_file_is_gone(self):
        os.unlink(self.images()[0])
        self.assertIn("lacks", self.refused(EBADMSG))

    def test_a_link_or_a_fifo_is_no_file(self):
        path = self.images()[0]
        os.rename(path, path + ".old")
        os.symlink(path + ".old", path)
        self.refused(EBADMSG)
        os.unlink(path)
        os.mkfifo(path)
        os.chown(path, store.user.pw_uid, store.user.pw_gid)
        self.refused(EBADMSG)

    def test_stamps(self):
        path = os.path.join(self.top, "stamp")
        with open(path, "rb") as f:
            good = f.read()
        lines = good.splitlines(keepends=True)
        bad = [b"", b"\0" * 100, good[:-1], good[:-4], good + b"x",
               good.replace(b"checkpoint 1", b"checkpoint 2"),
               b"".join(lines[:3] + lines[4:]),
               b"".join(lines[:7] + lines[6:]),
               good.replace(b"file ", b"file ../"), b"A" * 100000]
        for text in bad:
            with open(path, "wb") as f:
                f.write(text)
            self.refused(EBADMSG)
        os.unlink(path)
        self.refused(EBADMSG)
        os.symlink("/etc/passwd", path)
        self.refused(EBADMSG)

    def test_foreign_content(self):
        """A stamp that is right for files that runsc never wrote: runsc says
        no, and nothing of ours is the worse for it."""
        path = os.path.join(self.top, "stamp")
        with open(path) as f:
            lines = f.read().splitlines()
        junk = os.urandom(5000)
        for i, line in enumerate(lines):
            if line.startswith("file "):
                name = line.split()[1]
                with open(os.path.join(self.top, name), "wb") as f:
                    f.write(junk)
                lines[i] = "file %s %d %s" % (name, len(junk), digest(junk))
        with open(path, "w") as f:
            f.write("\n".join(lines) + "\n")
        live = Live(store, self.language, restore=self.key, start=False,
                    workspace=self.workspace)
        self.addCleanup(self.end, live)
        with self.assertRaises((sandbox.Failed, BrokenPipeError)):
            live.expect(isoproto.GUEST_KERNEL_READY, 30)
        self.assertTrue(live.ask("bytes", self.key))

    def test_another_init(self):
        with open(store.init, "ab") as f:
            f.write(b"x")
        try:
            self.assertIn("another version of isobox-init",
                          self.refused(ESTALE))
        finally:
            os.truncate(store.init, os.path.getsize(store.init) - 1)

    def test_another_runsc(self):
        other = os.path.join(store.path, "runsc")
        shutil.copy(checkpoints.RUNSC, other)
        with open(other, "ab") as f:
            f.write(b"x")
        os.chmod(other, 0o755)
        self.addCleanup(os.unlink, other)
        self.assertIn("another version of runsc",
                      self.refused(ESTALE, runsc=other))

    def test_another_image(self):
        other = os.path.join(store.path, "image")
        os.symlink(os.path.join(IMAGES, kernels.LANGUAGES[self.language][2]),
                   other)
        self.addCleanup(os.unlink, other)
        with open(other + ".digest", "w") as f:
            f.write("0" * 64 + "\n")
        os.chmod(other + ".digest", 0o644)
        self.assertIn("another image", self.refused(ESTALE, rootfs=other))


class Copies(Case):
    def test_fork_of_a_running_kernel(self):
        live = self.live()
        live.step("import os; x = 8; open('/workspace/a', 'w').write('one')\n"
                  "f = open('/workspace/open', 'w+')")
        other = store.directory()
        size, pause, _, files = live.save(
            self.key, go_on=True, copy=(live.workspace, other))
        self.assertGreater(size, MIB)
        self.assertGreater(pause, 0)
        self.assertEqual(files, 3)
        self.says(live, "print(x)", "8\n")
        fork = self.live(restore=self.key, workspace=other)
        again = self.live(restore=self.key, workspace=self.same(other))
        for i, one in enumerate((live, fork, again)):
            one.step("open('/workspace/a', 'a').write(' %d'); x = %d" % (i, i))
            one.step("_ = f.write('%d'); f.flush()" % i)
        for i, one in enumerate((live, fork, again)):
            self.says(one, "print(x, open('/workspace/a').read(), "
                           "open('/workspace/open').read())",
                      "%d one %d %d\n" % (i, i, i))
            with open(os.path.join(one.workspace, "a")) as f:
                self.assertEqual(f.read(), "one %d" % i)

    def same(self, path):
        """A copy by our own code."""
        other = store.directory()
        with Live(store, self.language, boot=False) as copier:
            copier.ask("tree", path, other, 1 << 30)
        return other

    def test_workspace_over_its_quota(self):
        live = self.live()
        live.step("open('/workspace/a', 'wb').write(bytes(range(250)) * 8000)")
        with self.assertRaises(Refused) as caught:
            live.save(self.key, go_on=True, copy=(
                live.workspace, store.directory()), copy_max=MIB)
        self.assertEqual(caught.exception.kind, "quota_exceeded")
        self.assertNotIn(self.key, store.ids())
        self.says(live, "print(1)", "1\n")

    def test_of_a_checkpoint(self):
        ws = self.saved("x = 6")
        trash = os.listdir(os.path.join(store.workspaces, "trash"))
        with Live(store, self.language, boot=False) as s:
            before = int(s.ask("bytes", self.key))
            s.ask("copy", self.key, self.key + "-b")
            with self.assertRaises(Refused):
                s.ask("copy", "nobody", self.key + "-c")
            self.assertIn("%s-b:%d" % (self.key, before),
                          s.ask("list").split())
            s.ask("remove", self.key)
            s.ask("remove", self.key)
            self.assertNotIn(self.key, store.ids())
            self.assertEqual(os.listdir(os.path.join(
                store.workspaces, "trash")), trash)
        live = self.live(restore=self.key + "-b", workspace=ws)
        self.says(live, "print(x)", "6\n")

    def test_sweep(self):
        self.saved()
        half = os.path.join(store.kernels, ".new-" + self.key)
        for name in (half, half + "/deep", half + "/deep/er"):
            os.mkdir(name)
            os.chown(name, store.user.pw_uid, store.user.pw_gid)
        with Live(store, self.language, boot=False) as s:
            s.ask("sweep")
        self.assertFalse(os.path.exists(half))
        self.assertIn(self.key, store.ids())


class Trees(unittest.TestCase):
    """ws_copy() of what a program may leave in its workspace."""

    def setUp(self):
        self.a, self.b = store.directory(), store.directory()

    def own(self):
        for top, dirs, files in os.walk(self.a):
            for name in dirs + files:
                os.lchown(os.path.join(top, name), store.user.pw_uid,
                          store.user.pw_gid)

    def copy(self, limit=1 << 30):
        self.own()
        with Live(store, boot=False) as s:
            return [int(n) for n in
                    s.ask("tree", self.a, self.b, limit).split()]

    def path(self, side, *names):
        return os.path.join(side, *names)

    def test_kinds(self):
        a = self.a
        os.makedirs(a + "/d/e")
        with open(a + "/d/e/file", "wb") as f:
            f.write(b"content")
        os.chmod(f.name, 0o4751)
        os.utime(f.name, ns=(10**18, 10**18 + 5))
        os.link(f.name, a + "/other")
        os.symlink("/etc/passwd", a + "/out")
        os.symlink("../../..", a + "/d/up")
        os.symlink("d/e", a + "/in")
        os.mkfifo(a + "/fifo")
        with open(a + "/holes", "wb") as f:
            f.seek(1 << 30)
            f.write(b"end")
        os.makedirs(a + "/closed")
        with open(a + "/closed/x", "w"):
            pass
        os.chmod(a + "/closed", 0)
        os.utime(a + "/d", ns=(10**18, 10**18 + 7))
        size, files = self.copy()
        self.assertEqual(files, 12)
        self.assertLess(size, MIB)
        b = self.b
        st = os.stat(b + "/d/e/file")
        self.assertEqual((st.st_mode & 0o7777, st.st_mtime_ns, st.st_nlink),
                         (0o751, 10**18 + 5, 2))
        self.assertTrue(os.path.samefile(b + "/other", b + "/d/e/file"))
        for name in ("out", "d/up", "in"):
            self.assertEqual(os.readlink(os.path.join(b, name)),
                             os.readlink(os.path.join(a, name)))
        self.assertEqual(os.stat(b + "/fifo").st_mode & 0o170000, 0o010000)
        st = os.stat(b + "/holes")
        self.assertEqual(st.st_size, (1 << 30) + 3)
        self.assertLess(st.st_blocks * 512, MIB)
        with open(b + "/holes", "rb") as f:
            f.seek(1 << 30)
            self.assertEqual(f.read(), b"end")
        self.assertEqual(os.stat(b + "/closed").st_mode & 0o7777, 0)
        self.assertTrue(os.path.exists(b + "/closed/x"))
        self.assertEqual(os.stat(b + "/d").st_mtime_ns, 10**18 + 7)

    def test_many_and_deep(self):
        at = self.a
        for i in range(200):
            at = os.path.join(at, "folder%d" % i)
        os.makedirs(at)
        for i in range(500):
            with open(os.path.join(self.a, "f%d" % i), "w") as f:
                f.write(str(i))
        self.assertEqual(self.copy()[1], 701)
        self.assertTrue(os.path.isdir(at.replace(self.a, self.b)))

    def test_too_deep(self):
        """Deeper than a path can say: refused, not half copied."""
        top = os.open(self.a, os.O_RDONLY)
        for _ in range(40):
            os.mkdir("x" * 200, dir_fd=top)
            os.chown("x" * 200, store.user.pw_uid, store.user.pw_gid,
                     dir_fd=top)
            inner = os.open("x" * 200, os.O_RDONLY, dir_fd=top)
            os.close(top)
            top = inner
        os.close(top)
        with Live(store, boot=False) as s:
            with self.assertRaises(Refused) as caught:
                s.ask("tree", self.a, self.b, 1 << 30)
        self.assertEqual(caught.exception.kind, "invalid_path")

    def test_quota(self):
        for i in range(10):
            with open(os.path.join(self.a, str(i)), "wb") as f:
                f.write(os.urandom(200000))
        with self.assertRaises(Refused) as caught:
            self.copy(MIB)
        self.assertEqual(caught.exception.kind, "quota_exceeded")


def digest(data):
    import hashlib
    return hashlib.blake2b(data, digest_size=32).hexdigest()


if __name__ == "__main__":
    unittest.main()
