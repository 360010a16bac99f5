# SPDX-License-Identifier: Apache-2.0
"""Pairs of runs: one leaves what it can, the other looks for it. Files,
processes, descriptors, sockets, shared memory, locks, variables, memory, address
layout, random state: nothing of the one is in the other, whether it comes after
the other or beside it, in a run or in a step of another session. And what waits
shows nothing of anybody.

ISOBOX_PAIRS says how many; 1,000 take some minutes."""

import array
import json
import os
import re
import secrets
import unittest

from harness import Service, command_line, wait_for
from test_sessions import Session
from test_warm import LANGUAGE, is_warm, only

PAIRS = int(os.environ.get("ISOBOX_PAIRS", "50"))
PAGE = 4096

PROGRAM = r'''
import sys, json
told = json.load(sys.stdin)
import os
# Before ctypes, which has libffi keep a file of its own.
def is_open(fd):
    try:
        return os.fstat(fd) is not None
    except OSError:
        return False
fds = set(filter(is_open, range(1024)))
import builtins, ctypes, fcntl, random, re, socket, tempfile, threading, uuid

HINT = told["hint"].encode()
SECRET = re.compile(re.escape(HINT) + rb":[0-9]+:[0-9a-f]{16}")
PORT, KEY = 5757, 0x150B0C
PLACES = ("/box", "/dev/shm", "/tmp", "/var", "/run", "/home", "/root", "/mnt",
          "/srv", "/opt", "/workspace", "/memory")
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
libc.getauxval.restype = ctypes.c_void_p
found = []

def is_own(secret):
    """Left by another step of this session."""
    return told["own"] > 0 and int(secret.split(b":")[1]) % 10 == told["own"]

def read(path):
    try:
        with open(path, "rb") as f:
            return f.read(1 << 20)
    except OSError:
        return b""

def look(where, data):
    found.extend([where, m.decode()] for m in SECRET.findall(data)
                 if m.decode() != told["secret"] and not (
                     "/workspace" in where and is_own(m)))

def names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []

def look_at_files():
    for place in PLACES:
        for at, folders, files in os.walk(place):
            for name in folders + files:
                look("name in " + at, os.fsencode(name))
            for name in files:
                path = os.path.join(at, name)
                if os.path.isfile(path):
                    look(path, read(path))

def look_at_processes():
    for pid in filter(str.isdigit, names("/proc")):
        for name in "cmdline", "environ", "comm", "status", "maps":
            look("/proc/%s/%s" % (pid, name), read("/proc/%s/%s" % (pid, name)))
        for fd in names("/proc/%s/fd" % pid):
            path = "/proc/%s/fd/%s" % (pid, fd)
            try:
                look(path, os.fsencode(os.readlink(path)))
            except OSError:
                pass
    processes = sorted(map(int, filter(str.isdigit, names("/proc"))))
    if processes != sorted({1, os.getpid()}):
        found.append(["processes", str(processes)])

def look_at_descriptors():
    if fds != {0, 1, 2}:
        found.append(["descriptors", str(sorted(fds))])

def look_at_sockets():
    for name in "unix", "tcp", "udp":
        look("/proc/net/" + name, read("/proc/net/" + name))
    for family, address in ((socket.AF_UNIX, b"\0" + HINT),
                            (socket.AF_INET, ("127.0.0.1", PORT))):
        with socket.socket(family) as s:
            s.settimeout(2)
            if s.connect_ex(address) == 0:
                found.append(["socket", repr(address)])

def look_at_shared_memory():
    if libc.shmget(KEY, 0, 0) >= 0:
        found.append(["shared memory", ""])
    if libc.semget(KEY, 0, 0) >= 0:
        found.append(["semaphores", ""])

def look_at_locks():
    with open("/etc/passwd") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            found.append(["lock", "/etc/passwd"])

def look_at_variables():
    if hasattr(builtins, "left") or hasattr(sys, "left") or "LEFT" in os.environ:
        found.append(["variable", ""])
    if threading.active_count() != 1:
        found.append(["thread", ""])

def look_at_memory():
    with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as mem:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split(" ")[0].split("-"))
            if line.split(" ")[1].startswith("rw") and end - begin < 64 << 20:
                try:
                    mem.seek(begin)
                    look("memory", mem.read(end - begin))
                except OSError:
                    pass  # nobody can read it

# Not "[heap]": it lies behind the program's file, at the same place in any run.
def layout():
    at = {"object": id(object()), "code": id(look)}
    for line in open("/proc/self/maps"):
        begin, name = int(line.split("-")[0], 16), line.split(" ")[-1].strip()
        for key in "libc.so", "[stack]", "ld-linux":
            if key in name:
                at.setdefault(key, begin)
    return at

def chance():
    return {"urandom": os.urandom(8).hex(), "random": random.random(),
            "uuid": str(uuid.uuid4()), "hash": hash("x"),
            "name": next(tempfile._get_candidate_names()),
            "auxv": ctypes.string_at(libc.getauxval(25), 16).hex(),
            "boot": read("/proc/sys/kernel/random/boot_id").decode()}

# Memory first: what is read from files is there, too.
for look_there in (look_at_memory, look_at_descriptors, look_at_variables,
                   look_at_files, look_at_processes, look_at_sockets,
                   look_at_shared_memory, look_at_locks):
    look_there()
print(json.dumps({"found": found, "layout": layout(), "chance": chance()}))
if not told["secret"]:
    sys.exit()

# --- and now everything is left -------------------------------------------------
secret = told["secret"]
builtins.left = sys.left = os.environ["LEFT"] = secret
random.seed(1)
for place in PLACES + (os.getcwd(), "/", "/etc", "/usr"):
    for name in "left", secret:
        try:
            with open(os.path.join(place, name), "w") as f:
                f.write(secret)
        except OSError:
            pass
kept = [os.memfd_create(secret), socket.socket(socket.AF_UNIX),
        socket.socket(), open("/etc/passwd")]
os.write(kept[0], secret.encode())
kept[1].bind(b"\0" + HINT)
kept[1].listen()
kept[2].bind(("127.0.0.1", PORT))
kept[2].listen()
fcntl.flock(kept[3], fcntl.LOCK_EX)
shm = libc.shmget(KEY, 4096, 0o1600)
if shm >= 0:
    ctypes.memmove(libc.shmat(shm, None, 0), secret.encode(), len(secret))
libc.semget(KEY, 1, 0o1600)
for i in range(2):
    if os.fork() == 0:
        os.setsid()
        os.execv(sys.executable, [secret, "-c", "import time; time.sleep(60)"])
threading.Thread(target=threading.Event().wait, name=secret, daemon=True).start()
print("left", flush=True)
if told["stays"]:
    threading.Event().wait(20)
'''


def resident(pid):
    """The pages of its memory that there are, mapping by mapping."""
    with open("/proc/%d/smaps" % pid) as f:
        areas = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (r\S+) .*\n(?:.*\n)*?"
                           r"Rss: +(\d+) kB", f.read(), re.M)
    with open("/proc/%d/pagemap" % pid, "rb", 0) as pages, \
            open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for begin, end, _, rss in areas:
            begin, end = int(begin, 16), int(end, 16)
            if rss == "0" or end - begin > 4 << 30:
                continue
            pages.seek(begin // PAGE * 8)
            there = array.array("Q", pages.read((end - begin) // PAGE * 8))
            data = bytearray()
            for i, entry in enumerate(there):
                if entry >> 62:
                    try:
                        mem.seek(begin + i * PAGE)
                        data += mem.read(PAGE)
                    except (OSError, ValueError):
                        pass  # of a device, or gone
            yield bytes(data)


class TestPairs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service("caddy", warm_max=6, concurrency=4,
                              acquire_wait_ms=30000)
        cls.addClassCleanup(cls.service.stop)
        only(cls.service, LANGUAGE)
        cls.service.start()
        cls.client = cls.service.client()
        cls.hint = "isolation-" + secrets.token_hex(8)
        for _ in range(4):  # then more than one waits
            cls.client.execute(LANGUAGE, "pass")
        cls.sessions = [Session(cls.client) for _ in range(2)]

    def stdin(self, session, secret="", stays=False):
        return json.dumps({"hint": self.hint, "secret": secret,
                           "stays": stays, "own": self.number(session)})

    def number(self, session):
        return self.sessions.index(session) + 1 if session else 0

    def report(self, r):
        self.assertEqual(r.status, 200, r)
        run = r.json()["run"]
        self.assertEqual((run["exitCode"], run["stderr"]), (0, ""), run)
        self.warm += is_warm(r)
        return json.loads(run["stdout"].splitlines()[0])

    def one(self, session, **told):
        stdin = self.stdin(session, **told)
        if session is not None:
            return self.report(session.step(PROGRAM, stdin=stdin))
        return self.report(self.client.execute(LANGUAGE, PROGRAM,
                                               stdin=stdin))

    def pair(self, i):
        """What both found and were, and the secret of the first."""
        here, there = self.sessions
        one, two = ((None, None), (None, here), (here, None),
                    (here, there))[i % 4]
        secret = "%s:%d%d:%s" % (self.hint, i, self.number(one),
                                 secrets.token_hex(8))
        self.service.wait_pool(2)
        if i % 3:
            return self.one(one, secret=secret), self.one(two)
        stdin = self.stdin(one, secret, True)
        opened = one.open_stream(PROGRAM, stdin=stdin) if one else \
            self.client.open_stream(LANGUAGE, PROGRAM, stdin=stdin)
        with opened as stream:
            text = ""
            for event in stream.events():
                self.assertNotIn(event.name, ("done", "error"), event)
                if event.name == "stdout":
                    text += event.data["chunk"]
                if text.endswith("left\n"):
                    break
            return json.loads(text.splitlines()[0]), self.one(two)

    def test_pairs(self):
        self.warm = 0
        seen = {}
        reports = [r for i in range(PAIRS) for r in self.pair(i)]
        self.assertEqual(len(reports), 2 * PAIRS)
        for r in reports:
            self.assertEqual(r["found"], [])
            for group in "layout", "chance":
                for key, value in r[group].items():
                    seen.setdefault((group, key), []).append(value)
        shown = {"%s %s" % key: len(set(values))
                 for key, values in seen.items()}
        print("%d pairs, %d runs told of were warm; different: %s" % (
            PAIRS, self.warm, shown))
        for (group, key), values in seen.items():
            self.assertEqual(len(values), 2 * PAIRS, key)
            # Addresses have fewer bits than random values.
            self.assertGreaterEqual(
                len(set(values)),
                2 * PAIRS * (0.98 if group == "layout" else 1), key)
        self.assertGreater(self.warm, PAIRS / 4)
        self.what_waits()
        for s in self.sessions:
            s.end()
        self.service.assert_clean(30)

    def what_waits(self):
        """The memory of each process of the sandboxes that wait: no secret,
        and no request."""
        self.service.wait_pool(2)
        # What has just run may still be on its way out.
        wait_for("nothing but what waits", self.service.pooled, 30)
        looked = size = 0
        for pid in self.service.subtree.pids():
            if "runsc" not in command_line(pid):
                continue
            for data in resident(pid):
                size += len(data)
                self.assertNotIn(self.hint.encode(), data, command_line(pid))
            looked += 1
        print("%d processes that wait, %d MB" % (looked, size >> 20))
        self.assertGreater(looked, 2)
        self.assertGreater(size, 20 << 20)


if __name__ == "__main__":
    unittest.main()
