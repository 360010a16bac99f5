# SPDX-License-Identifier: Apache-2.0
"""Attacks on the whole service that once were tried by hand: by the program, by
who sends it, and by what happens to our own processes beside them."""

import json
import os
import random
import signal
import socket
import struct
import threading
import time
import unittest

from again import again
from client import Broken
from harness import (FRONT_USER, RUNNER_USER, WEB_USER, Service, command_line,
                     end, signal_each, spawn, wait_for)

MIB = 1 << 20

# Each grows something other than its own pages, in as many processes as it may
# have, until the memory of the sandbox is gone.
FLOOD = """
import os, resource, select, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
kept = []
def fill(write):
    try:
        while True:
            write(b"x" * 65536)
    except BlockingIOError:
        pass
%s
for _ in range(100):
    if os.fork() == 0:
        try:
            while True:
                grow()
        except OSError:
            time.sleep(60)
time.sleep(60)
"""
FLOODS = {
    "sockets": """
def grow():
    a, b = socket.socketpair()
    a.setblocking(False)
    kept.extend((a, b))
    fill(a.send)
""",
    "connections": """
door = socket.create_server(("127.0.0.1", 0), backlog=1000)
def grow():
    a = socket.create_connection(door.getsockname())
    b, _ = door.accept()
    a.setblocking(False)
    kept.extend((a, b))
    fill(a.send)
""",
    "pipes and what waits for them": """
def grow():
    r, w = os.pipe()
    os.set_blocking(w, False)
    fill(lambda data: os.write(w, data))
    e = select.epoll()
    e.register(r)
    kept.extend((r, w, e))
""",
    "empty files": """
number = 0
def grow():
    global number
    number += 1
    os.close(os.open("/tmp/%d-%d" % (os.getpid(), number), os.O_CREAT))
""",
}

LIBC = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
def call(f, *args):
    return ctypes.get_errno() if f(*args) < 0 else 0
def clone(flags):
    return libc.syscall(56, flags | 17, 0, 0, 0, 0)
"""
CLONE_PARENT, CLONE_NEWNS = 0x8000, 0x20000


def setUpModule():
    global service, client
    # Without sandboxes that wait: what is found and stopped here is the run's.
    service = Service("lighttpd", allowed_users=[WEB_USER, FRONT_USER],
                      warm=False)
    unittest.addModuleCleanup(service.stop)
    service.start()
    client = service.client()


class Attack(unittest.TestCase):
    def setUp(self):
        self.failures = client.metrics()["isobox_run_failures_total"]

    def tearDown(self):
        self.assertEqual(client.run("python-slim", "print('alive')")
                         ["stdout"], "alive\n")
        service.assert_clean(20)
        self.assertEqual(client.metrics()["isobox_runner_running"], 0)

    def assert_no_failures(self):
        """The sandboxes held: what ended was ended by a limit."""
        self.assertEqual(client.metrics()["isobox_run_failures_total"],
                         self.failures, service.logs())


class TestPrograms(Attack):
    def test_floods_of_kernel_objects_run_out_of_memory(self):
        answers = {}

        def flood(name):
            answers[name] = client.execute(
                "python-slim", FLOOD % FLOODS[name],
                limits={"memoryBytes": 32 * MIB, "wallTimeMs": 20000})
        threads = [threading.Thread(target=flood, args=(n,)) for n in FLOODS]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for name in FLOODS:
            with self.subTest(name):
                r = answers[name]
                self.assertEqual(r.status, 200, r)
                run = r.json()["run"]
                self.assertEqual(
                    (run["oomKilled"], run["timedOut"], run["exitCode"]),
                    (True, False, 137), run)
        self.assert_no_failures()

    def test_timers_do_not_delay_the_end(self):
        begun = time.monotonic()
        run = client.run("python-slim", """
import ctypes, time
libc = ctypes.CDLL(None)
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int),
                ("notify", ctypes.c_int), ("rest", ctypes.c_char * 48)]
event, timer = Event(notify=1), ctypes.c_int()
while libc.syscall(222, 1, ctypes.byref(event), ctypes.byref(timer)) == 0:
    libc.syscall(223, timer.value, 0, (ctypes.c_long * 4)(0, 1, 0, 1), None)
time.sleep(60)
""", limits={"memoryBytes": 256 * MIB, "wallTimeMs": 2000})
        self.assertTrue(run["timedOut"] or run["oomKilled"], run)
        self.assertLess(time.monotonic() - begun, 8)
        self.assert_no_failures()

    def test_children_of_init_are_no_result(self):
        """CLONE_PARENT makes them; they count, and their ends say nothing."""
        run = client.run("python-slim", LIBC + """
r, w = os.pipe()
made = 0
for _ in range(40):
    pid = clone(%d)
    if pid == 0:
        os.close(w)
        os.read(r, 1)
        os._exit(99)
    made += pid > 0
print(made, os.getppid(), flush=True)
os.close(w)
time.sleep(0.5)
os._exit(7)
""" % CLONE_PARENT, limits={"pids": 20})
        self.assertEqual((run["stdout"], run["exitCode"]), ("19 1\n", 7), run)

    def test_a_mount_namespace_gives_nothing(self):
        """gVisor lets everybody have one; it takes nobody anywhere."""
        run = client.run("python-slim", LIBC + """
pid = clone(%d)
if pid == 0:
    print(call(libc.unshare, 0x10000000),
          call(libc.mount, b"x", b"/tmp", b"tmpfs", 0, None),
          call(libc.mount, None, b"/", None, 32, None),
          call(libc.umount2, b"/proc", 2), call(libc.chroot, b"/tmp"),
          sorted(os.listdir("/..")) == sorted(os.listdir("/")), flush=True)
    os._exit(0)
if pid > 0:
    os.waitpid(pid, 0)
else:
    print("1 1 1 1 1 True")
""" % CLONE_NEWNS)
        self.assertEqual(run["stdout"], "1 1 1 1 1 True\n", run)

    def test_init_is_closed(self):
        run = client.run("python-slim", LIBC + """
for name in ("root", "cwd", "exe", "mem"):
    try:
        os.open("/proc/1/" + name, os.O_RDONLY)
        print(name, "opened")
    except OSError:
        pass
for fd in range(3):
    for mode in (os.O_RDONLY, os.O_WRONLY):
        try:
            os.open("/proc/1/fd/%d" % fd, mode | os.O_NONBLOCK)
            print(fd, "opened")
        except OSError:
            pass
with open("/proc/1/maps") as f:
    at = int(f.readline().split("-")[0], 16)
room = ctypes.create_string_buffer(16)
class Part(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("len", ctypes.c_size_t)]
mine, its = Part(ctypes.addressof(room), 16), Part(at, 16)
print(libc.syscall(310, 1, ctypes.byref(mine), 1, ctypes.byref(its), 1, 0),
      libc.ptrace(16, 1, 0, 0))
""")
        self.assertEqual(run["stdout"], "-1 -1\n", run)


class TestCompilers(Attack):
    """What a compiler is made to do is held as the program is."""

    def test_source_without_end(self):
        run = client.run(
            "rust", 'fn main() { print!("{}", '
            'include_bytes!("/dev/zero").len()); }')
        self.assertEqual((run["oomKilled"], run["exitCode"]), (True, 137), run)
        self.assert_no_failures()

    def test_constant_without_end(self):
        run = client.run("rust", """
const fn f(n: u64) -> u64 { let mut i = 0; while i < n { i += 1; } i }
#[allow(long_running_const_eval)]
const X: u64 = f(1 << 50);
fn main() { println!("{}", X) }
""", limits={"wallTimeMs": 3000})
        self.assertEqual((run["timedOut"], run["exitCode"]), (True, 137), run)
        self.assert_no_failures()

    def test_no_process_to_compile_with(self):
        run = client.run("go", "package main\nfunc main() { println(1) }",
                         limits={"pids": 1})
        self.assertNotEqual(run["exitCode"], 0, run)
        self.assert_no_failures()


class TestClients(Attack):
    PROGRAMS = ("print(1)", "while True: pass", "import time; time.sleep(3)",
                "import os\nwhile True: os.write(1, b'x' * 65536)",
                "import os\nfor _ in range(20): os.fork()")

    def abort(self, number):
        """A request that ends at a moment and in a way of its own."""
        rng = random.Random(number)
        body = json.dumps({"language": "python-slim",
                           "code": rng.choice(self.PROGRAMS),
                           "limits": {"wallTimeMs": 2500}}).encode()
        with client.open() as c:
            try:
                c.send(b"POST /execute HTTP/1.1\r\nHost: x\r\n%s"
                       b"Content-Length: %d\r\n\r\n" % (rng.choice(
                           (b"", b"Accept: text/event-stream\r\n")),
                           len(body)))
                c.send(body[:rng.choice((5,) + (len(body),) * 4)])
                time.sleep(rng.random() ** 2 * 2)
                how = rng.random()
                if how < 0.5:  # a reset
                    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                      struct.pack("ii", 1, 0))
                elif how < 0.7:
                    c.sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass

    def test_aborts_at_random_moments(self):
        before = service.usage()
        numbers = iter(range(60))
        lock = threading.Lock()

        def work():
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                self.abort(number)
        threads = [threading.Thread(target=work) for _ in range(10)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        # A JSON answer cannot be watched for long: its wall time bounds it.
        wait_for("free slots", lambda: client.metrics()[
            "isobox_runner_running"] == 0, 10, 0.2)
        self.assert_no_failures()
        wait_for("the descriptors of before", lambda: all(
            now[0] <= before[name][0] + 1
            for name, now in service.usage().items()), 20, 0.2)

    def test_pipelined_and_half_closed(self):
        body = b'{"language":"python-slim","code":"print(40+2)"}'
        ask = (b"POST /execute HTTP/1.1\r\nHost: x\r\n"
               b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        with client.open() as c:
            c.send(ask * 3)
            c.sock.shutdown(socket.SHUT_WR)
            for _ in range(3):
                r = c.response("POST")
                self.assertEqual(r.status, 200, r)
                self.assertEqual(r.json()["run"]["stdout"], "42\n")

    def test_two_ideas_of_where_a_body_ends(self):
        body = b'{"language":"python-slim","code":"print(1)"}'
        for length in (b"Content-Length: 0\r\nTransfer-Encoding: chunked",
                       b"Content-Length: 0\r\nContent-Length: %d" % len(body),
                       b"Content-Length: +%d" % len(body),
                       b"Transfer-Encoding: xchunked"):
            with self.subTest(length), client.open() as c:
                c.send(b"POST /execute HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n%s"
                       % (length, body))
                try:
                    self.assertIn(c.response("POST").status, (400, 411, 501))
                except (Broken, ConnectionResetError):
                    pass


class TestStopped(Attack):
    """Who is stopped does not end by itself; others must end it."""

    def pids(self, name):
        return [p for p in service.subtree.pids()
                if command_line(p).startswith(name)]

    def stop(self, what, pids, wall_ms):
        """The answer to a run during which the processes were stopped."""
        answer = {}

        def run():
            answer["r"] = service.client(timeout=120).execute(
                "python-slim", "while True: pass",
                limits={"wallTimeMs": wall_ms})
        t = threading.Thread(target=run)
        t.start()
        wait_for("a running program", lambda: client.metrics()[
            "isobox_runner_running"] == 1 and self.pids("runsc-gofer"))
        time.sleep(1)
        found = wait_for(what, pids)
        signal_each(found, signal.SIGSTOP)
        t.join()
        return answer["r"]

    def stop_one(self, name):
        begun = time.monotonic()
        r = self.stop(name, lambda: self.pids(name), 4000)
        self.assertEqual(r.status, 200, r)
        self.assertTrue(r.json()["run"]["timedOut"], r)
        return time.monotonic() - begun

    def test_processes_of_the_sandbox(self):
        for name in ("runsc-sandbox", "runsc-gofer", "/runsc"):
            with self.subTest(name):
                took = again(lambda n=name: self.stop_one(n),
                             lambda took: took < 9)
                self.assertLess(took, 9)

    def test_supervisor(self):
        """It watches the wall time; the runner watches it."""
        def supervisors():
            return [p for p in self.pids(service.program("isobox-runner"))
                    if p != service.runner.pid]
        r = self.stop("supervisor", supervisors, 6000)
        self.assertEqual((r.status, r.json()["error"]),
                         (503, "sandbox_failed"), r)
        wait_for("the slot", lambda: client.metrics()[
            "isobox_runner_running"] == 0, 60, 0.5)
        self.assertIn("late with its end", service.logs())


class TestRunner(Attack):
    def start_second(self, prefix=(), **settings):
        """The exit status and the log of one more runner."""
        config, log = (service.path("log", n) for n in ("second.yaml",
                                                        "second.log"))
        with open(service.config) as f:
            lines = f.readlines()
        with open(config, "w") as f:
            f.writelines(line for line in lines
                         if line.split(":")[0] not in settings)
            f.writelines("%s: %s\n" % pair for pair in settings.items())
        os.chmod(config, 0o644)
        one = spawn([*prefix, service.program("isobox-runner"), "--config",
                     config], RUNNER_USER, log, service.subtree)
        try:
            status = one.wait(10)
        finally:
            end(one)
        with open(log) as f:
            return status, f.read().splitlines()[-1]

    def test_no_second_runner(self):
        status, said = self.start_second()
        self.assertEqual(status, 1)
        self.assertIn("another isobox-runner is at", said)
        other = service.path("run", "other.sock")
        status, said = self.start_second(runner_socket=other)
        os.unlink(other + ".lock")
        self.assertEqual(status, 1)
        self.assertIn("another isobox-runner lives in cgroup", said)

    def test_too_few_descriptors(self):
        """Said at the start, not by sandboxes that do not boot."""
        status, said = self.start_second(
            prefix=("prlimit", "--nofile=64:64", "--"))
        self.assertEqual(status, 1)
        self.assertIn("64 open files are allowed", said)

    def test_storm_of_hangups_with_a_bad_registry(self):
        bad = service.path("registry", "bad.yaml")
        with open(bad, "w") as f:
            f.write("name: [\n")
        os.chmod(bad, 0o644)
        until = time.monotonic() + 2

        def storm():
            while time.monotonic() < until:
                for process in (service.runner, service.fcgi):
                    process.send_signal(signal.SIGHUP)
                time.sleep(0.002)
        t = threading.Thread(target=storm)
        t.start()
        while t.is_alive():
            self.assertEqual(client.run("python-slim", "print(1)")["stdout"],
                             "1\n")
        t.join()
        os.unlink(bad)
