# SPDX-License-Identifier: Apache-2.0
"""isobox-runner by itself: it does not trust the web side, and does not run
anything where it could not be held."""

import os
import pwd
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

from cgroups import children
from harness import (FRONT_USER, RUNNER_USER, WEB_USER, Service, descendants,
                     signal_each, wait_for)

RUN, STATUS = 1, 2
STATUS_REPLY, STARTED, STDOUT, DONE, FAIL = 16, 17, 18, 20, 21
LIMITS = (64 << 20, 1000, 16, 4096, 3000)


def text(data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack("<I", len(data)) + data


def job(runtime="python-slim", version=None, limits=LIMITS, network=0, entry=0,
        files=((b"main.py", b"print(1)"),), args=(), stdin=b"",
        request_id="test", session="", volume=""):
    """The payload of a RUN frame, as lib/job.c writes it."""
    return b"".join([
        text(request_id), text(runtime), text(version or VERSION),
        struct.pack("<QIIII", *limits), struct.pack("<BI", network, entry),
        struct.pack("<I", len(files)),
        *[text(n) + text(c) for n, c in files],
        struct.pack("<I", len(args)), *[text(a) for a in args], text(stdin),
        text(session), text(volume), struct.pack("<I", 0),
        bytes([0, 0])])


def frame(kind, payload=b""):
    return struct.pack("<IBBBB", len(payload), kind, 0, 0, 0) + payload


def exchange(data, timeout=20, shut=False):
    """What the runner answers to these bytes, as [(type, payload)]."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(timeout)
        s.connect(service.settings["runner_socket"])
        got = b""
        try:
            s.sendall(data)
            if shut:
                s.shutdown(socket.SHUT_WR)
            while True:
                part = s.recv(65536)
                if not part:
                    break
                got += part
        except (BrokenPipeError, ConnectionResetError):
            pass
    frames = []
    while got:
        length, kind = struct.unpack("<IBxxx", got[:8])
        frames.append((kind, got[8:8 + length]))
        got = got[8 + length:]
    return frames


def setUpModule():
    global service, client, VERSION
    # "0": these tests, which are root, may speak to the runner themselves.
    service = Service("caddy", allowed_users=[WEB_USER, FRONT_USER, "0"])
    unittest.addModuleCleanup(service.stop)
    service.start()
    client = service.client()
    VERSION = {x["language"]: x["version"]
               for x in client.get("/runtimes").json()}["python-slim"]


class TestProtocol(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(exchange(frame(RUN, job()))[-1][0], DONE)
        service.assert_clean()

    def test_a_good_job(self):
        frames = exchange(frame(RUN, job()))
        self.assertEqual([k for k, _ in frames], [STARTED, STDOUT, DONE])
        self.assertEqual(frames[1][1], b"1\n")

    def test_status(self):
        frames = exchange(frame(STATUS))
        self.assertEqual([k for k, _ in frames], [STATUS_REPLY])

    def test_jobs_that_no_honest_web_side_sends(self):
        bad = {
            "no runtime": dict(runtime=""),
            "path as runtime": dict(runtime="../../etc"),
            "unknown runtime": dict(runtime="cobol"),
            "unknown version": dict(version="0"),
            "too much memory": dict(limits=(1 << 40, *LIMITS[1:])),
            "too many CPUs": dict(limits=(LIMITS[0], 99999, *LIMITS[2:])),
            "too many processes": dict(limits=(*LIMITS[:2], 257,
                                               *LIMITS[3:])),
            "no processes": dict(limits=(*LIMITS[:2], 0, *LIMITS[3:])),
            "too much output": dict(limits=(*LIMITS[:3], 1 << 30, 3000)),
            "too much time": dict(limits=(*LIMITS[:4], 3600000)),
            "no time": dict(limits=(*LIMITS[:4], 0)),
            "a network that is no bool": dict(network=2),
            "no file": dict(files=()),
            "no such entry": dict(entry=1),
            "absolute": dict(files=((b"/etc/x", b""),)),
            "parent": dict(files=((b"a/../../x", b""),)),
            "NUL": dict(files=((b"a\0b", b""),)),
            "twice": dict(files=((b"a", b""), (b"a", b""))),
            "file and folder": dict(files=((b"a", b""), (b"a/b", b""))),
            "too many files": dict(files=tuple(
                (b"f%d" % i, b"") for i in range(65))),
            "too many arguments": dict(args=["x"] * 257),
            "NUL in an argument": dict(args=[b"a\0b"]),
            "bad request id": dict(request_id="a b\n"),
            "bad session": dict(session="../x"),
            "no such session": dict(session="none"),
            "a volume without a session": dict(volume="none"),
        }
        for what, members in bad.items():
            with self.subTest(what):
                frames = exchange(frame(RUN, job(**members)))
                self.assertLessEqual({k for k, _ in frames}, {FAIL})

    def test_broken_frames(self):
        good = job()
        for what, data in {
                "longer than a frame may be": struct.pack(
                    "<IBxxx", 1 << 30, RUN) + b"x" * 4096,
                "padding": struct.pack("<IBBBB", 0, STATUS, 1, 0, 0),
                "unknown type": frame(99, b"x"),
                "a frame of the other side": frame(DONE, b""),
                "status with a payload": frame(STATUS, b"x"),
                "two frames": frame(STATUS) * 2,
                "a byte too many": frame(RUN, good + b"\0"),
                "a byte too few": frame(RUN, good[:-1]),
                "a count without bytes": frame(
                    RUN, good[:60] + b"\xff" * 60)}.items():
            with self.subTest(what):
                frames = exchange(data)
                self.assertLessEqual({k for k, _ in frames}, {FAIL})

    def test_half_a_frame_is_not_waited_for_long(self):
        begun = time.monotonic()
        self.assertEqual(exchange(frame(RUN, job())[:50]), [])
        self.assertLess(time.monotonic() - begun, 10)

    def test_random_bytes(self):
        seed = time.time_ns() % 1000000
        print("seed %d" % seed)
        rng = random.Random(seed)
        before = service.usage()["runner"]
        good = frame(RUN, job(args=["a"], stdin=b"x" * 100))
        for _ in range(2000):
            data = bytearray(good)
            for _ in range(rng.randint(1, 5)):
                data[rng.randrange(4, len(data))] = rng.randrange(256)
            if rng.random() < 0.3:
                del data[rng.randrange(len(data)):]
            exchange(bytes(data), shut=True)
        service.assert_clean(30)
        self.assertIsNone(service.runner.poll())
        after = service.usage()["runner"]
        self.assertLessEqual(after[0], before[0])
        self.assertLess(after[2] - before[2], 4096)

    def test_client_that_leaves_while_it_waits(self):
        """Its turn does not come: no sandbox is started for nobody."""
        holders = []
        for _ in range(4):
            c = client.open_stream("python-slim", "import time\n"
                                   "print(1, flush=True)\ntime.sleep(18)",
                                   limits={"wallTimeMs": 20000})
            next(e for e in c.events() if e.name)
            holders.append(c)
        waiting = socket.socket(socket.AF_UNIX)
        waiting.connect(service.settings["runner_socket"])
        waiting.sendall(frame(RUN, job()))
        wait_for("a waiting client", lambda: client.metrics()[
            "isobox_runner_queued"] == 1)
        waiting.close()
        wait_for("an empty queue", lambda: client.metrics()[
            "isobox_runner_queued"] == 0)
        for c in holders:
            c.close()


class TestPeers(unittest.TestCase):
    def ask(self, user):
        """What a process of that user gets from the runner's socket."""
        code = ("import socket, sys\ns = socket.socket(socket.AF_UNIX)\n"
                "s.settimeout(10)\ntry:\n    s.connect(sys.argv[1])\n"
                "    s.sendall(%r)\n    print(len(s.recv(100)))\n"
                "except OSError: print('refused')" % frame(STATUS))
        return subprocess.run(
            ["setpriv", "--reuid", user, "--regid",
             str(pwd.getpwnam(user).pw_gid), "--init-groups", "--",
             "/usr/bin/python3", "-c", code,
             service.settings["runner_socket"]],
            check=True, capture_output=True, text=True).stdout.strip()

    def test_only_those_named(self):
        # The door is open to all here, so that the runner itself must look.
        os.chmod(service.path("run"), 0o755)
        os.chmod(service.settings["runner_socket"], 0o666)
        for user in (RUNNER_USER, WEB_USER, FRONT_USER):
            self.assertGreater(int(self.ask(user)), 8, user)
        for user in ("nobody", "daemon"):
            self.assertIn(self.ask(user), ("0", "refused"), user)


class TestReady(unittest.TestCase):
    """Fail closed, and say why."""

    def start(self, **settings):
        one = Service("caddy", **settings)
        self.addCleanup(one.stop)
        one.start(wait=False)
        wait_for("an answer", lambda: self.status(one) is not None, 15, 0.1)
        return one

    def status(self, one):
        try:
            return one.client().get("/readyz")
        except OSError:
            return None

    def assert_not_ready(self, one, words):
        def reason():
            r = self.status(one)
            if r is None or r.status != 503:
                return None
            self.assertEqual(set(r.json()), {"ready", "reason"})
            self.assertIs(r.json()["ready"], False)
            return any(w in r.json()["reason"] for w in words) and r
        wait_for("503 with one of %r" % (words,), reason, 20, 0.1)
        r = one.client().execute("python-slim", "print(1)")
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"), r)
        self.assertTrue(r.json()["detail"])

    def test_no_memory_cap_no_runs(self):
        one = self.start()
        one.wait_ready()
        for group in one.subtree.groups():
            for name, value in (("memory.max", "max"),
                                ("memory.memsw.limit_in_bytes", "-1"),
                                ("memory.limit_in_bytes", "-1")):
                path = os.path.join(group, name)
                if os.path.exists(path):
                    with open(path, "w") as f:
                        f.write(value)
        self.assert_not_ready(one, ("memory", "cap"))
        with open(one.path("log", "runner.log")) as f:
            told = re.findall(r"not ready: .*cgroup (/\S+)", f.read())
        # Once, and to nobody else.
        self.assertEqual(len(told), 1)
        for r in (self.status(one), one.client().execute("python-slim", "1")):
            self.assertNotIn(told[0], r.body.decode())

    def test_runsc_that_does_not_work(self):
        self.assert_not_ready(self.start(runsc="/bin/false"),
                              ("sandbox", "runsc"))

    def test_no_image(self):
        one = self.start(images="/nonexistent")

        def reason():
            r = self.status(one)
            return r.status == 503 and "image" in r.json()["reason"]
        wait_for("503 that names the images", reason, 15, 0.1)
        self.assertEqual(one.client().get("/runtimes").json(), [])

    def test_runner_gone_and_back(self):
        one = self.start()
        one.wait_ready()
        one.runner.kill()
        one.runner.wait()
        self.assert_not_ready(one, ("runner",))
        self.assertEqual(one.client().get("/healthz").status, 200)
        one.start_runner()
        one.wait_ready()
        self.assertEqual(one.client().run("python-slim", "print(1)")
                         ["stdout"], "1\n")

    def test_a_probe_that_was_killed_tells_nothing(self):
        """After a run that failed the runner tries whether sandboxes boot."""
        one = self.start(warm=False)
        one.wait_ready()
        # It lives for a moment only: it may be missed.
        wait_for("a killed probe", lambda: self.kill_probe(one), 90)
        self.assertEqual(one.client().run("python-slim", "print(1)")
                         ["stdout"], "1\n")

    def kill_probe(self, one):
        wait_for("no probe", lambda: not children(one.runner.pid))
        run = threading.Thread(target=one.client().execute, args=(
            "python-slim", "import time\ntime.sleep(15)"))
        run.start()
        known = wait_for("a supervisor", lambda: children(one.runner.pid))
        sandbox = wait_for("a sandbox", lambda: descendants(
            one.runner.pid) - known)
        signal_each(sandbox, signal.SIGKILL)
        run.join()
        until = time.monotonic() + 1
        while time.monotonic() < until:
            for pid in children(one.runner.pid) - known:
                signal_each([pid], signal.SIGKILL)
                return self.was_killed(one, pid)
        return False

    def was_killed(self, one, pid):
        """Whether it had not just ended by itself."""
        wait_for("its end", lambda: not os.path.exists("/proc/%d" % pid))
        # The runner has written what it does before it answers this.
        one.client().get("/readyz")
        with open(one.path("log", "runner.log")) as f:
            return "supervisor %d ended with status 0x9" % pid in f.read()

    def test_image_that_was_changed_is_refused(self):
        """A digest that differs from images.lock: the runtime is not listed,
        the rest goes on."""
        images = os.path.join(self.enterContext(temporary()), "images")
        one = Service("caddy", images=images)
        self.addCleanup(one.stop)
        os.mkdir(images)
        source = os.environ.get("ISOBOX_IMAGES_DIR", "/var/lib/isobox/images")
        for name in os.listdir(source):
            path = os.path.join(source, name)
            if os.path.isdir(path):
                # A place to mount on, and the tree itself bound there.
                os.mkdir(os.path.join(images, name))
                subprocess.run(["mount", "--bind", path,
                                os.path.join(images, name)], check=True)
                self.addCleanup(subprocess.run, [
                    "umount", "-l", os.path.join(images, name)], check=True)
            else:
                shutil.copy(path, images)
        digest = os.path.join(images, "python-slim.digest")
        with open(digest) as f:
            old = f.read()
        with open(digest, "w") as f:
            f.write(("1" if old[0] == "0" else "0") + old[1:])
        one.start()
        names = [r["language"] for r in one.client().get("/runtimes").json()]
        self.assertNotIn("python-slim", names)
        self.assertIn("ruby", names)
        r = one.client().execute("python-slim", "print(1)")
        self.assertEqual((r.status, r.json()["error"]),
                         (400, "unknown_language"), r)
        # Mended, and told to read again.
        with open(digest, "w") as f:
            f.write(old)
        for process in (one.runner, one.fcgi):
            process.send_signal(signal.SIGHUP)
        wait_for("python-slim", lambda: one.client().execute(
            "python-slim", "print(1)").status == 200, 10, 0.2)

    def test_bad_registry_keeps_the_old_one(self):
        one = self.start()
        one.wait_ready()
        bad = one.path("registry", "bad.yaml")
        with open(bad, "w") as f:
            f.write("name: [\n")
        for process in (one.runner, one.fcgi):
            process.send_signal(signal.SIGHUP)
        wait_for("a complaint", lambda: "bad.yaml" in one.logs(), 10)
        self.assertEqual(one.client().run("python-slim", "print(1)")
                         ["stdout"], "1\n")


class temporary:
    """A directory below /tmp that every user can enter."""

    def __enter__(self):
        self.path = subprocess.run(
            ["mktemp", "-d", "/tmp/isobox-images-XXXXXX"], check=True,
            capture_output=True, text=True).stdout.strip()
        os.chmod(self.path, 0o755)
        return self.path

    def __exit__(self, *exc):
        # Never across a mount: the trees bound there are real.
        subprocess.run(["rm", "-rf", "--one-file-system", self.path])
