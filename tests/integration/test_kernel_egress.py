# SPDX-License-Identifier: Apache-2.0
"""Kernels with a network, in the pretend internet of world.py: what becomes of it,
and of open connections, while they rest, when they are fetched, and in a fork."""

import contextlib
import signal
import threading

import world
from cgroups import children
from harness import Service, signal_each, wait_for
from kernel_case import Kernel, KernelCase

CONNECT = r'''
import socket
def connect():
    s = socket.create_connection(("93.184.216.34", 80), 5)
    s.settimeout(5)
    s.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
    seen = b""
    while not seen.endswith(b"\r\n\r\n"):
        seen += s.recv(1)
    return s
def say(s):
    s.sendall(b"go on\n")
    print(s.recv(64).decode(), end="")
'''
# One that was made before, and asks again later: there is nothing to keep up.
ASK = r'''
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(5)
u.connect(("8.8.8.8", 53))
def ask():
    u.send(b"\x12\x34\1\0\0\1\0\0\0\0\0\0\4pypi\3org\0\0\1\0\1")
    print(u.recv(512)[:2].hex())
'''
NAMES = r'''
import socket
def look(name):
    try:
        return socket.gethostbyname(name)
    except socket.gaierror:
        return "no name"
def knock(address):
    try:
        socket.create_connection((address, 80), 5).close()
        return "reached"
    except ConnectionRefusedError:
        return "refused"
def names():
    print(look("pypi.org"), look("evil.org"), knock("9.9.9.9"))
'''
# Opens one by itself, when there is a file `now`.
LATER = r'''
import os, threading, time
def later():
    global s
    while not os.path.exists("now"):
        time.sleep(.001)
    s = connect()
thread = threading.Thread(target=later, daemon=True)
thread.start()
'''
REFUSED = r'''
import errno
try:
    socket.create_connection(("%s", 80), 5)
except OSError as e:
    print(errno.errorcode.get(e.errno, repr(e)))
'''


ZONE = {"pypi.org": [["151.101.0.223"], 300], "evil.org": [["9.9.9.9"], 300]}


def setUpModule():
    global place
    place = world.World()
    place.set_zone(ZONE)


def tearDownModule():
    place.close()


class Case(KernelCase):
    @classmethod
    def setUpClass(cls):
        cls.service = Service(
            "caddy", world=place, warm=False, kernel_slots=3,
            kernel_mem_mb=256, session_disk_mb=256, min_free_disk_gb=1,
            kernel_hibernate_sec=1)
        cls.addClassCleanup(cls.service.stop)
        cls.service.start()
        cls.client = cls.service.client()

    def setUp(self):
        place.assert_closed()

    def online(self):
        k = self.kernel(network=True)
        self.assertIs(k.look()["kernel"]["network"], True)
        self.good(k, CONNECT)
        return k

    def until(self, k, state, timeout=60):
        return wait_for("a kernel that is " + state, lambda: (
            k.look() if k.state() == state else None), timeout, .2)


class Open(Case):
    """gVisor saves no end of a connection; to try would break it."""

    def reason(self, k):
        return wait_for("a reason", lambda: k.look()["kernel"].get("reason"),
                        30, .2)

    def test_an_open_one_goes_on(self):
        k = self.online()
        self.good(k, "s = connect(); say(s)", "still here\n")
        self.assertIn("a connection to 93.184.216.34, port 80, is open",
                      self.reason(k))
        self.assertEqual(k.state(), "resident")
        self.assertEqual(
            self.client.metrics()["isobox_kernels_pinned"], 1)
        self.good(k, "say(s)", "still here\n")
        self.error(k.request("POST", "/fork", b""), 400, "kernel_unsupported",
                   "port 80, is open")
        self.good(k, "say(s)", "still here\n")

    def test_one_that_is_opened_at_the_last_moment(self):
        """A save has begun, but the kernel does not stand still yet. It may be
        that it does before we see the save: then that is tried again."""
        for _ in range(10):
            k = self.online()
            self.good(k, LATER)
            place.forget()
            if self.open_in_a_fork(k):
                break
            self.assertEqual(k.end(), 204)
        else:
            self.fail("no save was seen in time")
        self.good(k, "thread.join(); say(s)", "still here\n")

    def open_in_a_fork(self, k):
        """Whether a connection was opened when k was about to be saved, which
        is refused then."""
        def fork():
            answers.append(k.request("POST", "/fork", b""))

        answers = []
        supervisor, = children(self.service.runner.pid)
        known = children(supervisor)
        thread = threading.Thread(target=fork)
        thread.start()
        saver = wait_for("who saves", lambda: children(supervisor) - known,
                         every=0).pop()
        signal_each([saver], signal.SIGSTOP)
        with open(self.service.path("workspaces", "sessions", k.id, "now"),
                  "w"):
            pass
        with contextlib.suppress(AssertionError):  # it stands already
            wait_for("a connection", lambda: "tcp 93.184.216.34 80" in
                     place.seen()[1], 2)
        signal_each([saver], signal.SIGCONT)
        thread.join()
        if answers[0].status == 201:
            Kernel(self.client, answers[0].json()).end()
            return False
        self.error(answers[0], 400, "kernel_unsupported", "port 80, is open")
        return True

    def test_what_is_closed_is_saved_a_minute_later(self):
        k = self.online()
        self.good(k, "s = connect(); say(s); s.close()", "still here\n")
        self.assertIn("less than a minute ago", self.reason(k))
        # It is tried again after one minute, and then after two.
        self.until(k, "hibernated", 250)
        self.good(k, "t = connect(); say(t)", "still here\n")


class Fetched(Case):
    def test_it_has_its_network_again(self):
        k = self.online()
        self.good(k, ASK)
        self.good(k, "ask()", "1234\n")
        self.until(k, "hibernated")
        self.good(k, "ask()", "1234\n")
        a = self.good(k, "t = connect(); say(t)", "still here\n")
        self.assertTrue(a["run"]["network"])
        self.good(k, REFUSED % world.HOST_PUBLIC, "ECONNREFUSED\n")
        self.good(k, REFUSED % "169.254.169.254", "ECONNREFUSED\n")

    def test_its_names_and_no_others(self):
        """After a restart of the runner, which reads them from the disk."""
        k = self.kernel(network={"allow": ["pypi.org"]})
        self.good(k, NAMES)
        self.good(k, "names()", "151.101.0.223 no name refused\n")
        self.until(k, "hibernated")
        self.service.runner.kill()
        self.service.runner.wait()
        self.service.start_runner()
        self.service.wait_ready(60)
        self.good(k, "names()", "151.101.0.223 no name refused\n")

    def test_a_fork_has_one_of_its_own(self):
        k = self.online()
        f = self.fork(k)
        for x in f, k:
            self.good(x, "t = connect(); say(t)", "still here\n")
            self.good(x, REFUSED % world.HOST_PUBLIC, "ECONNREFUSED\n")
        self.assertEqual(f.end(), 204)
        self.good(k, "say(t)", "still here\n")
