# SPDX-License-Identifier: Apache-2.0
"""Kernels of the runner that go to disk and come back: idle ones, those whose slot
is needed, over restarts and kills; and forks."""

import os
import signal
import subprocess
import time
import unittest

import livekernel
import workspaces
from cgroups import children
from harness import Service, wait_for
from livekernel import ALIVE, Kernel
from workspaces import Refused


def start_runner():
    service.start_runner()
    wait_for("ready runner", lambda: workspaces.ready(socket_path), 60)


def setUpModule():
    global service, socket_path, versions
    service = Service("caddy", allowed_users=["0"], warm=False,
                      session_disk_mb=256, min_free_disk_gb=1,
                      kernel_mem_mb=256, kernel_slots=2, concurrency=4,
                      kernel_hibernate_sec=3600, acquire_wait_ms=5000)
    unittest.addModuleCleanup(service.stop)
    socket_path = service.settings["runner_socket"]
    start_runner()
    service.baseline = service.snapshot()
    versions = livekernel.versions(service)


class Case(unittest.TestCase):
    def kernel(self, runtime="python-slim", **more):
        k = Kernel(socket_path, runtime, versions[runtime], **more)
        self.addCleanup(k.remove)
        return k

    def good(self, step, out):
        self.assertEqual((step.out, step.err, step.result.code,
                          step.result.kernel), (out, "", 0, ALIVE))

    def state(self, k, state):
        wait_for("a kernel that is " + state,
                 lambda: k.stat().state == state, 60)

    def checkpoint(self, k):
        return service.path("workspaces", "kernels", k.name)

    def push_out(self, k):
        """Two others take the slots."""
        for _ in range(2):
            self.kernel()
        self.state(k, "hibernated")

    def restart(self, sig):
        service.runner.send_signal(sig)
        service.runner.wait(60)
        start_runner()


class Slots(Case):
    def test_more_kernels_than_slots(self):
        before = livekernel.status(socket_path)
        kernels = [self.kernel() for _ in range(4)]
        for n, k in enumerate(kernels):
            self.good(k.step("v = %d; f = open('f', 'w+')" % n), "")
        for _ in range(2):
            for n, k in enumerate(kernels):
                self.good(k.step("f.write('x'); f.flush(); f.seek(0); "
                                 "print(v, len(f.read()) > 0)"),
                          "%d True\n" % n)
        status = livekernel.status(socket_path)
        self.assertEqual((status.used, status.hibernated, status.created),
                         (2, 2, before.created + 4))
        self.assertGreaterEqual(status.restores, before.restores + 6)
        self.assertGreaterEqual(status.evictions, before.evictions + 6)
        self.assertEqual(status.refused, before.refused)
        self.assertGreater(status.checkpoint_bytes, 1 << 20)
        self.assertEqual(status.deaths, before.deaths)
        for k in kernels:
            k.remove()
            wait_for("no checkpoint",
                     lambda k=k: not os.path.exists(self.checkpoint(k)))

    def test_its_files_are_private_and_counted(self):
        k = self.kernel()
        self.good(k.step("x = 1"), "")
        self.push_out(k)
        top = self.checkpoint(k)
        self.assertEqual(os.stat(top).st_mode & 0o777, 0o700)
        for name in os.listdir(top):
            self.assertEqual(os.stat(os.path.join(top, name)).st_mode & 0o777,
                             0o600, name)
        i = k.stat()
        self.assertGreater(i.checkpoint, 1 << 20)
        self.assertEqual(i.memory, -1)
        self.assertGreaterEqual(k.workspace.stat().used, i.checkpoint)

    def test_what_cannot_be_saved_stays(self):
        k = self.kernel()
        self.good(k.step("import os, socket\nf = open('g', 'w+')\n"
                         "os.unlink('g')\nx = 7"), "")
        other = self.kernel()
        third = self.kernel()
        self.state(other, "hibernated")
        i = k.stat()
        self.assertEqual(i.state, "resident")
        self.assertNotEqual(i.reason, "")
        self.assertEqual(livekernel.status(socket_path).pinned, 1)
        self.good(k.step("print(x)"), "7\n")
        third.remove()

    def test_who_saves_is_killed(self):
        """The kernel goes on, as one whose disk takes too long."""
        before = children(service.runner.pid)
        k = self.kernel()
        supervisor, = children(service.runner.pid) - before
        self.good(k.step("import os; x = os.urandom(100 << 20)"), "")
        known = children(supervisor)
        fork = Kernel(socket_path, k.runtime, k.version, create=False)
        self.addCleanup(fork.remove)
        with workspaces.Connection(socket_path) as c:
            k.ask_on(c, livekernel.FORK, fork.name)
            pid = wait_for("who saves", lambda: children(supervisor) - known,
                           every=.001).pop()
            new = service.path("workspaces", "kernels", ".new-" + fork.name)
            wait_for("its image", lambda: os.path.exists(new), every=.001)
            os.kill(pid, signal.SIGKILL)
            with self.assertRaises(Refused):
                c.expect(livekernel.INFO)
        self.good(k.step("print(len(x) >> 20)"), "100\n")
        self.push_out(k)
        self.good(k.step("print(len(x) >> 20)"), "100\n")

    def test_it_is_saved_and_takes_long_to_die(self):
        """A process of its namespace that nobody waits for holds that up."""
        before = children(service.runner.pid)
        k = self.kernel()
        supervisor, = children(service.runner.pid) - before
        self.good(k.step("x = 6"), "")
        here = os.readlink("/proc/%d/ns/pid" % supervisor)
        inside = next(q for p in children(supervisor) for q in children(p)
                      if os.readlink("/proc/%d/ns/pid" % q) != here)
        holder = subprocess.Popen(["nsenter", "--target", str(inside), "--pid",
                                   "sleep", "1000"])
        try:
            wait_for("a process in there", lambda: children(holder.pid))
            holder.send_signal(signal.SIGSTOP)
            self.push_out(k)
        finally:
            holder.kill()
            holder.wait()
        self.good(k.step("print(x)"), "6\n")

    def test_node(self):
        k = self.kernel("javascript")
        self.good(k.step("let x = 41"), "")
        self.push_out(k)
        self.good(k.step("console.log(x + 1)"), "42\n")


class Restarts(Case):
    def test_over_the_end_of_the_service(self):
        k = self.kernel()
        self.good(k.step("x = [1, 2]; import random; random.seed(1)"), "")
        self.restart(signal.SIGTERM)
        i = k.stat()
        self.assertEqual((i.state, i.steps), ("hibernated", 1))
        self.good(k.step("print(x)"), "[1, 2]\n")
        self.assertFalse(os.path.exists(self.checkpoint(k)))
        wait_for("the count", lambda: k.stat().steps == 2)

    def test_over_a_kill(self):
        k, resident = self.kernel(), self.kernel()
        self.good(k.step("x = 5"), "")
        self.good(resident.step("x = 6"), "")
        self.kernel()
        self.state(k, "hibernated")
        self.restart(signal.SIGKILL)
        self.assertEqual(k.stat().state, "hibernated")
        self.good(k.step("print(x)"), "5\n")
        with self.assertRaises(Refused) as caught:
            resident.step("1")
        self.assertEqual(caught.exception.kind, "kernel_dead")
        self.assertIn("restarted", caught.exception.detail)

    def test_killed_at_any_moment(self):
        """Of a save: afterwards it is whole, or dead with a reason."""
        for delay in (.05, .2, .4, .7, 1.2):
            with self.subTest(delay):
                k = self.kernel()
                self.good(k.step("x = 9"), "")
                service.runner.send_signal(signal.SIGTERM)
                time.sleep(delay)
                service.runner.kill()
                service.runner.wait(60)
                start_runner()
                try:
                    self.good(k.step("print(x)"), "9\n")
                except Refused as e:
                    self.assertEqual(e.kind, "kernel_dead")
                    self.assertNotEqual(e.detail, "")
                k.remove()

    def test_a_damaged_checkpoint(self):
        k = self.kernel()
        self.good(k.step("x = 5"), "")
        self.push_out(k)
        top = self.checkpoint(k)
        largest = max((os.path.join(top, n) for n in os.listdir(top)),
                      key=os.path.getsize)
        with open(largest, "r+b") as f:
            f.seek(os.path.getsize(largest) // 2)
            f.write(b"damage" * 100)
        with self.assertRaises(Refused) as caught:
            k.step("print(x)")
        self.assertEqual(caught.exception.kind, "kernel_dead")
        self.assertIn("restored", caught.exception.detail)
        with self.assertRaises(Refused):
            k.step("print(x)")
        self.assertEqual(k.stat().state, "dead")


class Forks(Case):
    def test_a_fork(self):
        k = self.kernel()
        self.good(k.step("import random, uuid, secrets\nx = {'a': 1}\n"
                         "open('shared', 'w').write('both')"), "")
        other, i = k.fork()
        self.addCleanup(other.remove)
        self.assertEqual(i.state, "hibernated")
        self.good(k.step("x['b'] = 2; print(sorted(x))\n"
                         "open('shared', 'w').write('mine')"),
                  "['a', 'b']\n")
        self.good(other.step("print(sorted(x), open('shared').read())"),
                  "['a'] both\n")
        draw = "print(random.random(), uuid.uuid4(), secrets.token_hex(4))"
        self.assertNotEqual(k.step(draw).out.split(),
                            other.step(draw).out.split())
        other.workspace.write("only", b"here")
        self.assertNotIn(b"only", k.workspace.names())
        self.assertEqual(livekernel.status(socket_path).forks, 1)

    def test_a_fork_of_one_on_disk(self):
        k = self.kernel()
        self.good(k.step("x = 3"), "")
        self.push_out(k)
        other, _ = k.fork()
        self.addCleanup(other.remove)
        self.good(other.step("print(x)"), "3\n")
        self.good(k.step("print(x)"), "3\n")

    def test_refused(self):
        k = self.kernel()
        with self.assertRaises(Refused) as caught:
            k.ask(livekernel.FORK, k.name)
        self.assertEqual(caught.exception.kind, "internal_error")
        self.good(k.step("print(1)"), "1\n")


class Idle(Case):
    def restart_with(self, **settings):
        before = {key: service.settings.get(key) for key in settings}
        service.settings.update(settings)
        service.write_config()
        self.restart(signal.SIGTERM)
        return before

    def test_one_that_ended_holds_no_slot(self):
        """It cannot be saved and ends of its idleness: then others push each
        other out as before."""
        before = self.restart_with(kernel_idle_sec=10,
                                   kernel_hibernate_sec=3600)
        before["kernel_idle_sec"] = 1800
        self.addCleanup(lambda: self.restart_with(**before))
        k = self.kernel()
        self.good(k.step("import os\nf = open('g', 'w+')\nos.unlink('g')"),
                  "")
        self.state(k, "dead")
        kernels = [self.kernel() for _ in range(3)]
        for n, other in enumerate(kernels):
            self.good(other.step("x = %d" % n), "")
        for n, other in enumerate(kernels):
            self.good(other.step("print(x)"), "%d\n" % n)
        self.assertIn("idle", k.stat().reason)

    def test_without_slots(self):
        """What is on disk counts, stays, and goes with its session."""
        k, other = self.kernel(), self.kernel()
        self.good(k.step("x = 8"), "")
        before = self.restart_with(kernel_slots=0)
        try:
            i = k.stat()
            self.assertEqual(i.state, "hibernated")
            self.assertGreaterEqual(k.workspace.stat().used, i.checkpoint)
            with self.assertRaises(Refused) as caught:
                k.step("print(x)")
            self.assertEqual(caught.exception.kind, "kernel_unsupported")
            self.assertTrue(os.path.exists(self.checkpoint(other)))
            other.remove()
            wait_for("its end",
                     lambda: not os.path.exists(self.checkpoint(other)))
        finally:
            self.restart_with(**before)
        self.good(k.step("print(x)"), "8\n")

    def test_idle_ones_go(self):
        before = self.restart_with(kernel_hibernate_sec=1)
        self.addCleanup(lambda: self.restart_with(**before))
        k = self.kernel()
        self.good(k.step("import threading, time\nn = 0\ndef run():\n"
                         "  global n\n  while True: n += 1; time.sleep(.01)\n"
                         "threading.Thread(target=run, daemon=True).start()"),
                  "")
        for _ in range(2):
            self.state(k, "hibernated")
            self.good(k.step("a = n\nfor _ in range(200):\n"
                             "  time.sleep(.02)\n  if n > a: break\n"
                             "print(n > a)"), "True\n")


if __name__ == "__main__":
    unittest.main()
