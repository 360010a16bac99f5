# SPDX-License-Identifier: Apache-2.0
"""Root of the host, or chance, takes parts of filtered egress away. In a pretend
host and internet without a way out, see world.py."""

import contextlib
import signal
import subprocess
import threading
import time
import unittest

import router
import world
from egress_case import LIMITS, Background, EgressCase
from harness import Service, signal_each, wait_for


def setUpModule():
    global place
    place = EgressCase.place = world.World()
    place.assert_closed()


def tearDownModule():
    place.close()


REACH = ("import socket, time\n"
         "end = time.monotonic() + %g\n"
         "while True:\n"
         "    for a in ('169.254.169.254', '84.200.10.10', '10.9.9.9'):\n"
         "        s = socket.socket(); s.settimeout(0.2)\n"
         "        try: s.connect((a, 80)); print('REACHED', a)\n"
         "        except OSError: pass\n"
         "        s.close()\n"
         "    if time.monotonic() > end: break\n"
         "print('done')")
# What the test hears of before the rest begins.
UP = "import socket\nsocket.create_connection(('1.1.1.1', 80), 5).close()\n"


class TestOutsiders(EgressCase):
    """A service for each test: after failures the pool takes its time."""

    def setUp(self):
        super().setUp()
        self.service = Service("caddy", world=place).start()
        self.addCleanup(self.stop)
        self.client = self.service.client()

    def stop(self):
        try:
            self.service.assert_clean(60)
        finally:
            self.service.stop()

    def run_code(self, code):
        return self.client.run("python-slim", code,
                               limits=LIMITS)

    def each_waiting(self):
        """Every router that there is once the pool has come to rest."""
        time.sleep(1)

        def at_rest():
            found = self.client.metrics()
            return (found['isobox_pool_sandboxes{state="waiting"}'] > 0 and
                    found['isobox_pool_sandboxes{state="booting"}'] == 0)
        wait_for("a pool at rest", at_rest, 30)
        return router.await_some(self.service)

    def change(self, routers, *words):
        """Those whose rules were changed: one may have just ended, or have
        no rules yet."""
        changed = []
        for r in routers:
            with contextlib.suppress(subprocess.CalledProcessError):
                r.nft(*words)
                changed.append(r)
        return changed

    def background(self, code):
        """Once it runs."""
        guest = Background(self.client, UP + code)
        self.await_guest()
        return guest

    def await_guest(self):
        wait_for("connection", lambda: "tcp 1.1.1.1 80" in self.new(), 20)

    def check_next_run(self):
        out = self.run_code(REACH % 1)
        self.assertEqual(out["stdout"], "done\n")
        self.assert_no_leak()
        return out

    def test_rules_flushed_while_it_waits(self):
        changed = self.change(self.each_waiting(), "flush", "ruleset")
        self.assertNotEqual(changed, [])
        self.check_next_run()
        wait_for("end of what was changed",
                 lambda: not any(r.alive() for r in changed))

    def test_rules_flushed_just_before(self):
        """However fast the run comes after it."""
        for _ in range(3):
            self.change(router.await_some(self.service), "flush", "ruleset")
            self.check_next_run()

    def test_rules_added_while_it_waits(self):
        for words in (("add", "table", "ip", "mine"),
                      ("insert", "rule", "ip", "fw", "out", "accept"),
                      ("add", "element", "ip", "fw", "host", "{ 5.5.5.5 }")):
            changed = self.change(self.each_waiting(), *words)
            self.assertNotEqual(changed, [])
            self.check_next_run()
            wait_for("end of what was changed",
                     lambda rs=changed: not any(r.alive() for r in rs))

    def test_rules_flushed_during_a_run(self):
        guest = self.background(REACH % 6)
        self.change(router.await_some(self.service), "flush", "ruleset")
        self.assertEqual(guest.end()["stdout"], "done\n")
        self.assert_no_leak()
        self.await_network()

    def await_network(self):
        """One that was just being made may have been met, too: it waits for a
        run without a network."""
        wait_for("a network again",
                 lambda: self.run_code("print(1)")["network"])

    def test_forward_removed_during_a_run(self):
        """The chains go one by one, and packets are on their way meanwhile.
        Here the first moment of it lasts: the router is held, too."""
        guest = self.background(REACH % 5)
        routers = router.await_some(self.service)
        signal_each([r.pid for r in routers], signal.SIGSTOP)
        try:
            changed = self.change(routers, "flush chain ip fw forward; "
                                  "delete chain ip fw forward")
            self.assertNotEqual(changed, [])
            time.sleep(2)
        finally:
            signal_each([r.pid for r in routers], signal.SIGCONT)
        self.assertEqual(guest.end()["stdout"], "done\n")
        self.assert_no_leak()
        wait_for("end of what was changed",
                 lambda: not any(r.alive() for r in changed))

    def test_carrier_killed_while_it_waits(self):
        waiting = self.each_waiting()
        signal_each([r.carrier for r in waiting], signal.SIGKILL)
        out = self.check_next_run()
        self.assertEqual(out["exitCode"], 0)
        out = self.run_code("import socket\nprint(socket.create_connection(("
                  "'1.1.1.1', 80), 5).getpeername()[0])")
        self.assertEqual(out["stdout"], "1.1.1.1\n", out)

    def test_carrier_killed_during_a_run(self):
        guest = Background(
            self.client, "import socket, time\n"
            "socket.create_connection(('1.1.1.1', 80), 5)\n"
            "print('open', flush=True)\ntime.sleep(6)\n"
            "try: socket.create_connection(('8.8.8.8', 80), 2)\n"
            "except OSError: print('closed')\n")
        self.await_guest()
        signal_each([r.carrier for r in router.find(self.service)],
                    signal.SIGKILL)
        self.assertEqual(guest.end()["stdout"], "open\nclosed\n")
        self.assertNotIn("tcp 8.8.8.8 80", self.new())
        self.assertTrue(self.run_code("print(1)")["network"])

    def test_router_killed_during_a_run(self):
        wait_for("the end of all runs", lambda: self.client.metrics()[
            "isobox_runner_running"] == 0)
        before = self.client.metrics()
        guest = self.background(REACH % 4)
        routers = router.find(self.service)
        signal_each([r.pid for r in routers], signal.SIGKILL)
        run = guest.end()
        self.assertEqual(run["stdout"], "done\n")
        self.assertTrue(run["network"])
        wait_for("end of the carrier",
                 lambda: not any(r.alive() for r in routers))
        self.assert_no_leak()
        # It counts as what its answer says.
        wait_for("the end of the run", lambda: self.client.metrics()[
            "isobox_runs_total"] > before["isobox_runs_total"])
        after = self.client.metrics()
        for name in ("isobox_runs_total", "isobox_egress_runs_total"):
            self.assertEqual(after[name], before[name] + 1, name)
        name = "isobox_egress_refused_total"
        self.assertEqual(after[name], before[name])

    def test_runner_killed(self):
        """kill -9: no egress is left, nor any process of it."""
        guest = threading.Thread(target=lambda: self.client.execute(
            "python-slim", UP + REACH % 10))
        guest.start()
        self.await_guest()
        routers = router.await_some(self.service)
        self.service.runner.kill()
        self.service.runner.wait()
        wait_for("end of the routers",
                 lambda: not any(r.alive() for r in routers), 20)
        guest.join()
        self.assert_no_leak()
        self.service.start_runner()
        self.service.wait_ready()
        self.service.baseline = self.service.snapshot()
        self.assertTrue(self.run_code("print(1)")["network"])


if __name__ == "__main__":
    unittest.main()
